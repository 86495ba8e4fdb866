package engine_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
)

// side is one end of a loop: a device with a raw packet queue pair in RTS.
type side struct {
	t    testing.TB
	dev  *engine.Device
	cq   *engine.CQ
	qp   *engine.QP
	pool *engine.Pool
	wc   []engine.Completion
}

func open(t testing.TB, uri string, c engine.QPConfig) *side {
	t.Helper()
	d, err := device.Open(uri, device.Options{})
	s := &side{t: t, dev: d, wc: make([]engine.Completion, 64)}
	s.ok(err)
	t.Cleanup(func() { s.ok(d.Close()) })
	s.cq, err = d.NewCQ(2000)
	s.ok(err)
	pd := d.DefaultPD()
	c.Type, c.SendCQ, c.RecvCQ = engine.RawPacket, s.cq, s.cq
	s.qp, err = pd.NewQP(c)
	s.ok(err)
	s.ok(s.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err = s.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
	s.ok(err)
	s.pool, err = pd.AllocPool(512, 2048)
	s.ok(err)
	return s
}

func (s *side) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) poll() []engine.Completion {
	s.t.Helper()
	n, err := s.cq.Poll(s.wc)
	s.ok(err)
	return s.wc[:n]
}

// fillRecv posts receives as long as there are frames and room.
func (s *side) fillRecv() {
	s.t.Helper()
	for {
		f, ok := s.pool.Get()
		if !ok {
			return
		}
		if err := s.qp.QueueRecv(uint64(f), s.pool.SGE(f, 2048)); err != nil {
			if !errors.Is(err, engine.CauseFull) {
				s.t.Fatal(err)
			}
			s.pool.Put(f)
			s.qp.PublishRecv()
			return
		}
	}
}

func frame(rng *rand.Rand, number uint64) []byte {
	b := make([]byte, 22+rng.IntN(1400))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	b[0] &^= 1
	binary.BigEndian.PutUint64(b[14:], number)
	return b
}

// Every byte of every frame arrives once and in order, whatever the way it was
// posted: in one piece, in several, inline.
func TestLoopCarriesEveryByte(t *testing.T) {
	for _, mode := range []string{"inline", "goroutine"} {
		for _, inline := range []int{0, 18} {
			t.Run(fmt.Sprintf("mode=%s/inline=%d", mode, inline), func(t *testing.T) {
				uri := fmt.Sprintf("loop:%s%d?mode=%s&inline=%d", mode, inline, mode, inline)
				a := open(t, uri, engine.QPConfig{MaxSendWR: 50, MaxSendSGE: 3, MaxInline: 200})
				b := open(t, uri, engine.QPConfig{MaxRecvWR: 100})
				carry(t, a, b, 3000)
			})
		}
	}
}

func carry(t *testing.T, a, b *side, total int) {
	rng := rand.New(rand.NewPCG(1, uint64(total)))
	var want [][]byte
	sent, got, flight := 0, 0, []uint32{}
	for idle := 0; got < total; {
		b.fillRecv()
		var wrs []engine.SendWR
		frames := make([][]byte, 0, 8)
		for len(wrs) < 8 && sent+len(wrs) < total {
			f, ok := a.pool.Get()
			if !ok {
				break
			}
			data := frame(rng, uint64(sent+len(wrs)))
			copy(a.pool.Bytes(f), data)
			wr := engine.SendWR{ID: uint64(f), Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{a.pool.SGE(f, len(data))}}
			switch s := a.pool.SGE(f, 5); {
			case rng.IntN(3) == 0:
				rest := s
				rest.Off, rest.Len = s.Off+5, uint32(len(data)-5)
				wr.SGEs = []engine.SGE{s, {}, rest}
			case len(data) <= a.qp.Cap().MaxInline:
				wr.SGEs, wr.Inline, wr.Flags = nil, data, engine.Signaled|engine.Inline
			}
			wrs, frames = append(wrs, wr), append(frames, data)
		}
		n, err := a.qp.Post(wrs)
		if err != nil && !errors.Is(err, syscall.ENOMEM) {
			t.Fatal(err)
		}
		for _, wr := range wrs[n:] {
			a.pool.Put(uint32(wr.ID))
		}
		for _, wr := range wrs[:n] {
			flight = append(flight, uint32(wr.ID))
		}
		want = append(want, frames[:n]...) // those not posted are made anew
		sent += n
		for _, c := range a.poll() {
			if c.Status != engine.StatusSuccess || uint32(c.WRID) != flight[0] {
				t.Fatalf("%+v, expected frame %d", c, flight[0])
			}
			flight = flight[1:]
			a.pool.Put(uint32(c.WRID))
		}
		did := 0
		for _, c := range b.poll() {
			f := uint32(c.WRID)
			if c.Status != engine.StatusSuccess || !c.Recv || !bytes.Equal(b.pool.Bytes(f)[:c.ByteLen], want[got]) {
				t.Fatalf("frame %d: %+v", got, c)
			}
			b.pool.Put(f)
			got++
			did++
		}
		if did > 0 {
			idle = 0
		} else if idle++; idle > 10 {
			b.ok(b.dev.Wait(1e6))
			if idle > 100000 {
				t.Fatalf("stuck at %d of %d, %d sent", got, total, sent)
			}
		}
	}
	c, d := a.dev.Counters(), b.dev.Counters()
	if c.TxFrames != uint64(total) || d.RxFrames != uint64(total) || d.Dropped() != 0 || c.StrayCQEs+d.StrayCQEs != 0 {
		t.Fatalf("%+v\n%+v", c, d)
	}
}

func TestLoopCarriesImages(t *testing.T) {
	for _, inline := range []int{0, 18} {
		for _, inRing := range []bool{false, true} {
			uri := fmt.Sprintf("loop:image%d%v?inline=%d", inline, inRing, inline)
			a := open(t, uri, engine.QPConfig{MaxSendWR: 40, MaxInline: 60})
			b := open(t, uri, engine.QPConfig{MaxRecvWR: 100})
			m, err := a.qp.NewImage(engine.ImageConfig{Frame: make([]byte, 60), Inline: inRing, SignalEvery: 8})
			a.ok(err)
			sent, got := uint32(0), uint32(0)
			for rounds := 0; got < 5000; rounds++ {
				if rounds > 100000 {
					t.Fatalf("stuck at %d, %d sent", got, sent)
				}
				b.fillRecv()
				first, n := m.Rearm(min(10, int(5000-sent)))
				for i := range n {
					_, body := m.Frame(m.Slot(first + uint32(i)*m.Step()))
					binary.BigEndian.PutUint32(body[len(body)-4:], sent)
					sent++
				}
				a.ok(m.Publish())
				for _, c := range a.poll() {
					a.ok(c.Err())
				}
				for _, c := range b.poll() {
					f := uint32(c.WRID)
					if c.ByteLen != 60 || binary.BigEndian.Uint32(b.pool.Bytes(f)[56:]) != got {
						t.Fatalf("packet %d: %+v", got, c)
					}
					b.pool.Put(f)
					got++
				}
			}
		}
	}
}

// What the device judges at execution (D-06..D-09, D-13, C-17 of profile mlx5).
func TestLoopJudgesMemory(t *testing.T) {
	uri := "loop:memory?profile=mlx5"
	for id, c := range map[string]struct {
		wr   func(s *side) engine.SendWR
		want engine.Status
	}{
		"D-06 unknown key": {func(s *side) engine.SendWR {
			return engine.SendWR{SGEs: []engine.SGE{engine.MRFromKey(0xffff00, 0x1000, 100).SGE(0, 60)}}
		}, engine.StatusLocProt},
		"D-07 a byte beyond the end": {func(s *side) engine.SendWR {
			return engine.SendWR{SGEs: []engine.SGE{s.pool.MR().SGE(s.pool.MR().Len()-59, 60)}}
		}, engine.StatusLocProt},
		"D-07 the last byte": {func(s *side) engine.SendWR {
			return engine.SendWR{SGEs: []engine.SGE{s.pool.MR().SGE(s.pool.MR().Len()-60, 60)}}
		}, engine.StatusSuccess},
		"D-08 another domain": {func(s *side) engine.SendWR {
			mr, err := s.dev.NewPD().Register(make([]byte, 100), engine.LocalWrite)
			s.ok(err)
			return engine.SendWR{SGEs: []engine.SGE{mr.SGE(0, 60)}}
		}, engine.StatusLocProt},
		"D-10 read-only memory": {func(s *side) engine.SendWR {
			mr, err := s.dev.DefaultPD().Register(make([]byte, 100), 0)
			s.ok(err)
			return engine.SendWR{SGEs: []engine.SGE{mr.SGE(40, 60)}}
		}, engine.StatusSuccess},
		"D4 RDMA_READ": {func(s *side) engine.SendWR {
			return engine.SendWR{Opcode: engine.OpRead, SGEs: []engine.SGE{s.pool.SGE(0, 60)}}
		}, engine.StatusLocQPOp},
	} {
		t.Run(id, func(t *testing.T) {
			a, b := open(t, uri, engine.QPConfig{}), open(t, uri, engine.QPConfig{})
			defer b.dev.Close()
			defer a.dev.Close()
			wr := c.wr(a)
			wr.ID = 5
			wr.Flags = engine.Signaled
			if wr.Opcode == 0 {
				wr.Opcode = engine.OpSend
			}
			_, err := a.qp.Post([]engine.SendWR{wr})
			a.ok(err)
			wc := a.poll()
			if len(wc) != 1 || wc[0].WRID != 5 || wc[0].Status != c.want {
				t.Fatalf("%+v, want %v", wc, c.want)
			}
		})
	}
}

func TestLoopRegionClosedUnderARequest(t *testing.T) { // D-13, D-09
	a, b := open(t, "loop:d13", engine.QPConfig{MaxSendWR: 4}), open(t, "loop:d13", engine.QPConfig{})
	pd := a.dev.DefaultPD()
	mr, err := pd.Register(make([]byte, 100), 0)
	a.ok(err)
	a.ok(a.qp.Modify(engine.StateSQD, engine.QPAttr{}, 0))
	wrs := []engine.SendWR{{ID: 1, Opcode: engine.OpSend, SGEs: []engine.SGE{mr.SGE(0, 60)}}}
	_, err = a.qp.Post(wrs)
	a.ok(err)
	a.ok(pd.Deregister(mr))
	_, err = a.qp.Post(wrs)
	if !errors.Is(err, engine.CauseKey) {
		t.Fatalf("stale handle: %v", err)
	}
	a.ok(a.qp.Modify(engine.StateRTS, engine.QPAttr{}, 0))
	if wc := a.poll(); len(wc) != 1 || wc[0].Status != engine.StatusLocProt || a.qp.State() != engine.StateErr {
		t.Fatalf("%+v, state %v", wc, a.qp.State())
	}
	readOnly, err := b.dev.DefaultPD().Register(make([]byte, 100), 0)
	b.ok(err)
	b.ok(b.qp.PostRecv1(7, readOnly.SGE(0, 100)))
	a.ok(a.qp.Modify(engine.StateReset, engine.QPAttr{}, 0))
	a.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err = a.qp.Post([]engine.SendWR{{ID: 2, Opcode: engine.OpSend, SGEs: []engine.SGE{a.pool.SGE(0, 60)}}})
	a.ok(err)
	if wc := b.poll(); len(wc) != 1 || wc[0].WRID != 7 || wc[0].Status != engine.StatusLocProt || b.qp.State() != engine.StateErr {
		t.Fatalf("%+v, state %v", wc, b.qp.State())
	}
}

// Requests posted again receive into the same memory under the same numbers, lap after lap.
func TestRepostReceivesWhereItDidBefore(t *testing.T) {
	name := "loop:" + t.Name()
	a, b := open(t, name, engine.QPConfig{MaxSendWR: 16}), open(t, name, engine.QPConfig{MaxRecvWR: 8})
	if n := b.qp.Repost(8); n != 0 {
		t.Fatalf("%d reposted before anything was posted", n)
	}
	entries := b.qp.Cap().MaxRecvWR
	for i := range entries {
		b.ok(b.qp.PostRecv1(uint64(100+i), b.pool.SGE(uint32(i), 2048)))
	}
	if n := b.qp.Repost(1); n != 0 {
		t.Fatalf("%d reposted into a full ring", n)
	}
	sent := 0
	for round := range 50 {
		n := 1 + round%entries
		for range n {
			copy(a.pool.Bytes(0)[60:], []byte{byte(sent)})
			_, err := a.qp.Post([]engine.SendWR{{Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{a.pool.SGE(0, 100)}}})
			a.ok(err)
			sent++
			a.poll()
		}
		got := b.poll()
		if len(got) != n {
			t.Fatalf("round %d: %d of %d received", round, len(got), n)
		}
		for i, c := range got {
			k := sent - n + i
			if slot := k % entries; c.WRID != uint64(100+slot) || b.pool.Bytes(uint32(slot))[60] != byte(k) {
				t.Fatalf("packet %d: request %d, byte %d", k, c.WRID, b.pool.Bytes(uint32(slot))[60])
			}
		}
		if m := b.qp.Repost(100); m != n {
			t.Fatalf("round %d: %d of %d reposted", round, m, n)
		}
	}
}
