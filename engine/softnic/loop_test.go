package softnic

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

const rw = engine.LocalWrite

// account asserts that every frame is somewhere: what one side sent, the other received or dropped by reason.
func account(t testing.TB, from, to *NIC) {
	t.Helper()
	var a, b engine.Counters
	from.Counters(&a)
	to.Counters(&b)
	got := b.RxFrames + b.Dropped() - b.Drops[engine.DropNoPeer] - b.RxCopies + a.Drops[engine.DropNoPeer]
	if waiting := uint64(pendingFrames(to)); a.TxFrames != got+waiting {
		t.Fatalf("sent %d; received %d + dropped %d - copies %d + waiting %d", a.TxFrames, b.RxFrames, b.Dropped(), b.RxCopies, waiting)
	}
}

// pendingFrames counts what stands in the wire for n and was not taken.
func pendingFrames(n *NIC) int {
	return n.wire.Next(make([]wire.Frame, 1<<16))
}

func TestLoopDeliversEveryByteInOrder(t *testing.T) {
	for _, inline := range []int{0, 18} {
		for _, sges := range []int{1, 2, 5} {
			a, b := loopPair(t, "", Config{MinInline: inline})
			tx := newHost(t, a, hostConfig{sendWR: 5, maxBB: 3, access: 0})
			rx := newHost(t, b, hostConfig{recvWR: 4, sge: 4, access: rw})
			const count = 997
			sent, received := 0, 0
			posted := map[uint64][]byte{}
			nextRecv := uint64(0)
			for rounds := 0; received < count; rounds++ {
				if rounds > 100*count {
					t.Fatalf("stuck after %d of %d frames", received, count)
				}
				for rx.rq.Outstanding() < 4 {
					off := int(nextRecv%4) * 2048
					rx.rq.Post([]ring.Seg{rx.seg(off, 7), rx.seg(off+7, 0), rx.seg(off+7, 30), rx.seg(off+37, 1500)}, nextRecv)
					nextRecv++
				}
				rx.rq.Publish()
				for ; sent < count && tx.sq.Outstanding() < tx.sq.MaxWR(); sent++ {
					f := udpFrame(t, uint64(sent), sent%1400+20)
					off := (sent % 32) * 2048
					copy(tx.mem[off:], f)
					hdr, at := f[:inline], inline
					var segs []ring.Seg
					for k := 1; k < sges; k++ {
						segs = append(segs, tx.seg(off+at, 3*k))
						at += 3 * k
					}
					segs = append(segs, tx.seg(off+at, len(f)-at))
					if !tx.post(uint64(sent), true, hdr, nil, segs...) {
						break
					}
					posted[uint64(sent)] = f
				}
				tx.ring()
				a.Step(64) // a full wire left some
				b.Step(64)
				for _, d := range rx.receives() {
					off := int(d.wrID%4) * 2048
					if d.op != ring.CQERecv || d.wrID != uint64(received) {
						t.Fatalf("receive %d: %+v", received, d)
					}
					if want := posted[uint64(received)]; !bytes.Equal(rx.mem[off:off+int(d.bytes)], want) {
						t.Fatalf("inline %d, %d segments: frame %d of %d bytes came as\n%x, want\n%x", inline, sges, received, len(want), rx.mem[off:off+int(d.bytes)], want)
					}
					delete(posted, uint64(received))
					received++
				}
				tx.sends()
			}
			if len(posted) != 0 || tx.sq.Outstanding() != 0 {
				t.Fatalf("%d frames and %d WRs left", len(posted), tx.sq.Outstanding())
			}
			account(t, a, b)
		}
	}
}

// Short WQEs go in runs, all others one by one, and so do receive WQEs of one segment and of two. Whatever the
// mix, the frames arrive in order and whole, and each send completes once.
func TestRunsAndOthersKeepTheirOrder(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	tx := newHost(t, a, hostConfig{sendWR: 100, maxBB: 3})
	rx := newHost(t, b, hostConfig{access: rw, recvWR: 128, sge: 2})
	for run := range 20 {
		for i := range 64 {
			seg := rx.seg(i*128, 128)
			if i%(run+2) == run { // the last of its group is in two pieces
				rx.rq.Post([]ring.Seg{rx.seg(i*128, 20), rx.seg(i*128+20, 108)}, uint64(i))
			} else {
				rx.rq.Post1(seg, uint64(i))
			}
			frame := tx.mem[i*128:][:14+(i*7+run)%100]
			for k := range frame {
				frame[k] = byte(i + k*run)
			}
			ok := false
			if i%(run+1) == run && run < 16 {
				ok = tx.post(uint64(i), true, nil, frame)
			} else {
				ok = tx.post(uint64(i), i%3 == 0, nil, nil, tx.seg(i*128, len(frame)))
			}
			if !ok {
				t.Fatal("no room")
			}
		}
		rx.rq.Publish()
		tx.ring()
		a.Step(256)
		b.Step(256)
		got := rx.receives()
		if len(got) != 64 {
			t.Fatalf("run %d: %d of 64 received", run, len(got))
		}
		for i, d := range got {
			n := 14 + (i*7+run)%100
			if d.wrID != uint64(i) || int(d.bytes) != n || !bytes.Equal(rx.mem[i*128:][:n], tx.mem[i*128:][:n]) {
				t.Fatalf("run %d: completion %d is %+v, %x", run, i, d, rx.mem[i*128:][:n])
			}
		}
		retired := 0
		for _, d := range tx.sends() {
			retired += d.retired
		}
		if want := 64; retired > want || retired+tx.sq.Outstanding() != want {
			t.Fatalf("run %d: %d retired, %d outstanding", run, retired, tx.sq.Outstanding())
		}
		for tx.sq.Outstanding() > 0 { // a signaled frame of its own retires the rest
			tx.post(0, true, nil, nil, tx.seg(0, 60))
			tx.ring()
			tx.sends()
			rx.rq.Post1(rx.seg(0, 128), 0)
			rx.rq.Publish()
			b.Step(64)
			rx.receives()
		}
	}
}

func TestReceivedFrameIsWhatGopacketBuilt(t *testing.T) {
	a, b := loopPair(t, "", Config{MinInline: 18})
	tx := newHost(t, a, hostConfig{maxBB: 4})
	rx := newHost(t, b, hostConfig{access: rw})
	rx.rq.Post([]ring.Seg{rx.seg(0, 2048)}, 1)
	rx.rq.Publish()
	f := udpFrame(t, 7, 100)
	tx.post(9, true, f[:18], f[18:])
	tx.ring()
	b.Step(8)
	got := rx.receives()
	if len(got) != 1 || int(got[0].bytes) != len(f) {
		t.Fatalf("received %+v, sent %d bytes", got, len(f))
	}
	p := gopacket.NewPacket(rx.mem[:got[0].bytes], layers.LayerTypeEthernet, gopacket.Default)
	udp, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || p.ErrorLayer() != nil || udp.DstPort != 50001 || len(udp.Payload) != 100 {
		t.Fatalf("gopacket reads %v", p)
	}
	if rx.mem[got[0].bytes] != 0xa5 {
		t.Fatal("a byte behind the frame was written")
	}
	if d := tx.sends(); len(d) != 1 || d[0].wrID != 9 || d[0].op != ring.CQEReq {
		t.Fatalf("send completed as %+v", d)
	}
}

func TestSendErrors(t *testing.T) {
	type wr struct {
		hdr, data []byte
		segs      []ring.Seg
	}
	cases := []struct {
		name   string
		inline int
		make   func(h *host) wr
		want   ring.Syndrome // 0: goes through
	}{
		{"exactly the region", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(0, 1000)}} }, 0},
		{"last bytes", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(900, 100)}} }, 0},
		{"one byte before the region", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(-1, 60)}} }, ring.SynLocalProt},
		{"one byte behind the region", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(941, 60)}} }, ring.SynLocalProt},
		{"unknown key", 0, func(h *host) wr { s := h.seg(0, 60); s.LKey += 0x100; return wr{segs: []ring.Seg{s}} }, ring.SynLocalProt},
		{"old generation", 0, func(h *host) wr { s := h.seg(0, 60); s.LKey--; return wr{segs: []ring.Seg{s}} }, ring.SynLocalProt},
		{"other protection domain", 0, func(h *host) wr {
			mem := make([]byte, 100)
			key, addr, _ := h.nic.Register(testPD+1, mem, rw)
			return wr{segs: []ring.Seg{{Addr: addr, Len: 60, LKey: key}}}
		}, ring.SynLocalProt},
		{"second segment bad", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(0, 60), h.seg(1000, 1)}} }, ring.SynLocalProt},
		{"empty segment with a bad key", 0, func(h *host) wr {
			return wr{segs: []ring.Seg{{Addr: 1, Len: 0, LKey: 0xdead00}, h.seg(0, 60)}}
		}, ring.SynLocalLength}, // posting leaves empty segments out
		{"13 bytes", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(0, 13)}} }, ring.SynLocalLength},
		{"14 bytes", 0, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(0, 14)}} }, 0},
		{"inline data needs no key", 0, func(h *host) wr { return wr{data: make([]byte, 60)} }, 0},
		{"inline header missing", 18, func(h *host) wr { return wr{segs: []ring.Seg{h.seg(0, 60)}} }, ring.SynLocalQPOp},
		{"inline header alone", 18, func(h *host) wr { return wr{hdr: make([]byte, 18)} }, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := loopPair(t, "", Config{MinInline: c.inline})
			h := newHost(t, a, hostConfig{maxBB: 4, memBytes: 1000})
			w := c.make(h)
			hdr := make([]byte, c.inline) // a good WR before, unsignaled, and one behind
			h.post(1, false, hdr, nil, h.seg(0, 60))
			h.post(2, false, w.hdr, w.data, w.segs...)
			h.post(3, true, hdr, nil, h.seg(0, 60))
			h.ring()
			got := h.sends()
			var want []done
			if c.want == 0 {
				want = []done{{wrID: 3, op: ring.CQEReq, retired: 3}}
			} else { // unsignaled, and completed all the same; the one behind is flushed
				want = []done{{wrID: 2, op: ring.CQEReqErr, syndrome: c.want, retired: 2}, {wrID: 3, op: ring.CQEReqErr, syndrome: ring.SynFlushed, retired: 1}}
			}
			if !equalDone(got, want) {
				t.Fatalf("completions %+v, want %+v", got, want)
			}
			sent := map[bool]int{true: 3, false: 1}[c.want == 0]
			if n := pendingFrames(b); n != sent {
				t.Fatalf("%d frames on the wire, want %d", n, sent)
			}
			account(t, a, b)
		})
	}
}

func equalDone(a, b []done) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestReceiveErrors(t *testing.T) {
	cases := []struct {
		name   string
		access engine.Access
		segs   func(h *host) []ring.Seg
		want   ring.Syndrome // 0: delivered
		kept   bool          // dropped as too long, the WQE is kept
	}{
		{"exact", rw, func(h *host) []ring.Seg { return []ring.Seg{h.seg(0, 60)} }, 0, false},
		{"exact at the region's end", rw, func(h *host) []ring.Seg { return []ring.Seg{h.seg(940, 60)} }, 0, false},
		{"one byte short", rw, func(h *host) []ring.Seg { return []ring.Seg{h.seg(0, 59)} }, 0, true},
		{"one byte short over two", rw, func(h *host) []ring.Seg { return []ring.Seg{h.seg(0, 20), h.seg(20, 39)} }, 0, true},
		{"one byte before", rw, func(h *host) []ring.Seg { return []ring.Seg{h.seg(-1, 60)} }, ring.SynLocalProt, false},
		{"one byte behind", rw, func(h *host) []ring.Seg { return []ring.Seg{h.seg(941, 60)} }, ring.SynLocalProt, false},
		{"not writable", 0, func(h *host) []ring.Seg { return []ring.Seg{h.seg(0, 60)} }, ring.SynLocalProt, false},
		{"second not writable", rw, func(h *host) []ring.Seg {
			s := h.seg(20, 40)
			s.LKey ^= 0x7700
			return []ring.Seg{h.seg(0, 20), s}
		}, ring.SynLocalProt, false},
		{"bad key that is not needed", rw, func(h *host) []ring.Seg {
			s := h.seg(60, 40)
			s.LKey ^= 0x7700
			return []ring.Seg{h.seg(0, 60), s}
		}, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := loopPair(t, "", Config{})
			tx := newHost(t, a, hostConfig{})
			rx := newHost(t, b, hostConfig{access: c.access, memBytes: 1000, sge: 2})
			rx.rq.Post(c.segs(rx), 1)
			rx.rq.Post([]ring.Seg{rx.seg(100, 60)}, 2)
			rx.rq.Publish()
			tx.post(1, true, nil, nil, tx.seg(0, 60))
			tx.ring()
			b.Step(8)
			b.Step(8)
			var want []done
			switch {
			case c.kept:
			case c.want == 0:
				want = []done{{wrID: 1, op: ring.CQERecv, bytes: 60}}
			default:
				want = []done{{wrID: 1, op: ring.CQERecvErr, syndrome: c.want}, {wrID: 2, op: ring.CQERecvErr, syndrome: ring.SynFlushed}}
			}
			if got := rx.receives(); !equalDone(got, want) {
				t.Fatalf("completions %+v, want %+v", got, want)
			}
			if c.kept && rx.rq.Outstanding() != 2 {
				t.Fatal("the WQE of a frame too long was consumed")
			}
			if c.want != 0 {
				for i, v := range rx.mem {
					if v != 0xa5 {
						t.Fatalf("byte %d was written", i)
					}
				}
			}
			account(t, a, b)
		})
	}
}

func TestFlushIsCompleteAndInOrder(t *testing.T) {
	a, _ := loopPair(t, "", Config{})
	h := newHost(t, a, hostConfig{state: engine.StateRTR, access: rw, sendWR: 7, maxBB: 3})
	check := func(what string, got []done, op ring.CQEOpcode, ids ...uint64) {
		t.Helper()
		if len(got) != len(ids) {
			t.Fatalf("%s: %d completions, want %d: %+v", what, len(got), len(ids), got)
		}
		for i, d := range got {
			if d.wrID != ids[i] || d.op != op || d.syndrome != ring.SynFlushed {
				t.Fatalf("%s %d: %+v", what, i, d)
			}
		}
	}
	for lap := range uint64(20) { // laps, so that the padding at the ring's edge is flushed over as well
		base := lap * 10
		for i := range uint64(4) {
			h.rq.Post1(h.seg(0, 100), base+i)
		}
		h.rq.Publish()
		h.ok(a.SetState(h.qpn, engine.StateErr, engine.QPAttr{}))
		check("receives", h.receives(), ring.CQERecvErr, base, base+1, base+2, base+3)
		for i := range uint64(5) { // of one to three blocks, unsignaled
			h.post(base+i, false, nil, make([]byte, 20+int(i)*25))
		}
		h.ring()
		check("sends", h.sends(), ring.CQEReqErr, base, base+1, base+2, base+3, base+4)
		h.rq.Post1(h.seg(0, 100), base+9)
		h.rq.Publish()
		a.Step(10)
		check("late receive", h.receives(), ring.CQERecvErr, base+9)
		if lap == 10 { // half of them through RESET
			h.ok(a.SetState(h.qpn, engine.StateReset, engine.QPAttr{}))
			h.sq.Reset()
			h.rq.Reset()
			for s := engine.StateInit; s <= engine.StateRTR; s++ {
				h.ok(a.SetState(h.qpn, s, engine.QPAttr{}))
			}
		}
	}
}

func TestDrainedQPSendsNothingAndGoesOn(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	h := newHost(t, a, hostConfig{})
	h.ok(a.SetState(h.qpn, engine.StateSQD, engine.QPAttr{}))
	h.post(1, true, nil, nil, h.seg(0, 60))
	h.post(2, true, nil, nil, h.seg(0, 60))
	h.ring()
	if got := h.sends(); len(got) != 0 || pendingFrames(b) != 0 {
		t.Fatalf("sent in SQD: %+v", got)
	}
	h.ok(a.SetState(h.qpn, engine.StateRTS, engine.QPAttr{}))
	a.Step(8)
	if got := h.sends(); len(got) != 2 || got[0].wrID != 1 || got[1].wrID != 2 || pendingFrames(b) != 2 {
		t.Fatalf("after SQD: %+v", got)
	}
}

func TestStateEdges(t *testing.T) {
	// semantics B: reset, init, rtr, rts, sqd, sqe, err
	want := [7]string{"11.....", "111...1", "1..1..1", "1..11.1", "1..11.1", "1..1..1", "1.....1"}
	for from := engine.StateReset; from <= engine.StateErr; from++ {
		for to := engine.StateReset; to <= engine.StateErr; to++ {
			a, _ := loopPair(t, "", Config{})
			h := newHost(t, a, hostConfig{noRule: true})
			a.findQP(h.qpn).move(from)
			err := a.SetState(h.qpn, to, engine.QPAttr{})
			if legal := want[from][to] == '1'; legal != (err == nil) {
				t.Errorf("%v to %v: %v, want legal=%v", from, to, err, legal)
			}
			a.Close()
		}
	}
}

func TestUDSendErrorStopsTheSendQueueOnly(t *testing.T) {
	for _, p := range []engine.Profile{engine.ProfileStrict, engine.ProfileRXE} {
		a, _ := loopPair(t, "", Config{Profile: p})
		h := newHost(t, a, hostConfig{kind: engine.UD, maxBB: 2, access: rw})
		h.rq.Post1(h.seg(0, 100), 50)
		h.rq.Publish()
		h.post(1, false, nil, nil, h.seg(0, 60))
		h.post(2, false, nil, nil, h.seg(0, 60))
		h.ring()
		want := []done{{wrID: 1, op: ring.CQEReqErr, syndrome: ring.SynLocalQPOp, retired: 1}, {wrID: 2, op: ring.CQEReqErr, syndrome: ring.SynFlushed, retired: 1}}
		if got := h.sends(); !equalDone(got, want) {
			t.Fatalf("%v: %+v", p, got)
		}
		state, flushed := engine.StateSQE, 0
		if p == engine.ProfileRXE {
			state, flushed = engine.StateErr, 1
		}
		if got := a.findQP(h.qpn).state; got != state {
			t.Fatalf("%v: state %v, want %v", p, got, state)
		}
		if got := h.receives(); len(got) != flushed {
			t.Fatalf("%v: receives %+v", p, got)
		}
		if p == engine.ProfileStrict {
			h.ok(a.SetState(h.qpn, engine.StateRTS, engine.QPAttr{}))
		}
	}
}

func TestLosslessWireHoldsFramesForReceives(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	tx := newHost(t, a, hostConfig{})
	rx := newHost(t, b, hostConfig{access: rw})
	for i := range uint64(5) {
		tx.post(i, true, nil, nil, tx.seg(0, 60))
	}
	tx.ring()
	for range 3 {
		if got := b.Step(64); got != 0 || !b.rx.stalled {
			t.Fatalf("step without receive WQEs did %d", got)
		}
	}
	rx.rq.Post1(rx.seg(0, 100), 0)
	rx.rq.Post1(rx.seg(0, 100), 1)
	rx.rq.Publish()
	b.Step(64)
	if got := rx.receives(); len(got) != 2 || pendingFrames(b) != 3 {
		t.Fatalf("%d received, %d wait", len(got), pendingFrames(b))
	}
	account(t, a, b)
}

func TestHardwareDropsWithoutReceives(t *testing.T) {
	a, b := loopPair(t, "", Config{Drop: true})
	tx := newHost(t, a, hostConfig{})
	rx := newHost(t, b, hostConfig{access: rw})
	rx.rq.Post1(rx.seg(0, 100), 0)
	rx.rq.Publish()
	for i := range uint64(5) {
		tx.post(i, true, nil, nil, tx.seg(0, 60))
	}
	tx.ring()
	b.Step(64)
	if got := rx.receives(); len(got) != 1 || b.counters.Drops[engine.DropNoWQE] != 4 {
		t.Fatalf("%d received, %d dropped", len(got), b.counters.Drops[engine.DropNoWQE])
	}
	account(t, a, b)
}

func TestFullWireHoldsTheQueueAndLosesNothing(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	tx := newHost(t, a, hostConfig{sendWR: 64, cqe: 8191})
	rx := newHost(t, b, hostConfig{access: rw, recvWR: 64, cqe: 8191})
	posted := uint64(0)
	for stalls := 0; stalls < 3; {
		for tx.post(posted, true, nil, nil, tx.seg(0, 1500)) {
			posted++
		}
		tx.ring()
		if len(tx.sends()) == 0 {
			stalls++
		}
	}
	received := uint64(0)
	for received < posted {
		for rx.rq.Post1(rx.seg(0, 2000), 0) {
		}
		rx.rq.Publish()
		a.Step(256)
		if b.Step(256) == 0 {
			t.Fatalf("stuck: %d of %d received", received, posted)
		}
		received += uint64(len(rx.receives()))
		tx.sends()
	}
	if tx.sq.Outstanding() != 0 {
		t.Fatalf("%d sends left", tx.sq.Outstanding())
	}
	account(t, a, b)
}

func TestCQOverrunStopsItsQueues(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	h := newHost(t, a, hostConfig{cqe: 3, sendWR: 16}) // 4 entries
	other := newHost(t, a, hostConfig{noRule: true})
	for i := range uint64(8) {
		h.post(i, true, nil, nil, h.seg(0, 60))
	}
	h.ring()
	a.Step(64)
	if got := h.sends(); len(got) != 4 || got[3].wrID != 3 {
		t.Fatalf("completions kept: %+v", got)
	}
	if s := a.findQP(h.qpn).state; s != engine.StateErr {
		t.Fatalf("state %v", s)
	}
	if s := a.findQP(other.qpn).state; s != engine.StateRTS {
		t.Fatalf("QP on another CQ is in %v", s)
	}
	if a.counters.CQOverruns != 1 || a.counters.LostCQEs == 0 {
		t.Fatalf("counters %+v", a.counters)
	}
	account(t, a, b)
}

func TestSharedCQCompletesForAllQueues(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	one := newHost(t, a, hostConfig{})
	two := newHost(t, a, hostConfig{shared: one, noRule: true})
	for i := range uint64(3) {
		one.post(i, true, nil, nil, one.seg(0, 60))
		two.post(i, true, nil, nil, two.seg(0, 60))
	}
	one.ring()
	two.ring()
	seen := map[uint32]int{}
	for {
		c, ok := one.scq.Peek()
		if !ok {
			break
		}
		seen[c.QPN()]++
		one.scq.Consume()
	}
	if seen[one.qpn] != 3 || seen[two.qpn] != 3 {
		t.Fatalf("completions by QP: %v", seen)
	}
	if err := a.DestroyCQ(one.scqn); err == nil {
		t.Fatal("a CQ in use was destroyed")
	}
	two.ok(a.DestroyQP(two.qpn))
	one.ok(a.DestroyQP(one.qpn))
	one.ok(a.DestroyCQ(one.scqn))
	account(t, a, b)
}

func TestDeregisteredWhilePosted(t *testing.T) {
	a, _ := loopPair(t, "", Config{})
	h := newHost(t, a, hostConfig{})
	h.ok(a.SetState(h.qpn, engine.StateSQD, engine.QPAttr{}))
	h.post(1, false, nil, nil, h.seg(0, 60))
	h.ring()
	h.ok(a.Deregister(h.key))
	h.ok(a.SetState(h.qpn, engine.StateRTS, engine.QPAttr{}))
	a.Step(8)
	if got := h.sends(); len(got) != 1 || got[0].syndrome != ring.SynLocalProt {
		t.Fatalf("%+v", got)
	}
}

func TestSecondOwnerIsRefusedByName(t *testing.T) {
	a, _ := loopPair(t, "", Config{})
	a.busy.take(stepping) // another goroutine is inside
	if a.Step(8) != 0 || !errors.Is(a.Err(), ErrTwoOwners) {
		t.Fatalf("err %v", a.Err())
	}
	a.busy.give()
}

func TestStepAllocatesNothing(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	tx := newHost(t, a, hostConfig{sendWR: 64})
	rx := newHost(t, b, hostConfig{access: rw, recvWR: 64})
	round := func() {
		for i := range uint64(32) {
			rx.rq.Post1(rx.seg(0, 100), i)
			tx.post(i, true, nil, nil, tx.seg(0, 60))
		}
		rx.rq.Publish()
		tx.ring()
		b.Step(64)
		drain(tx.scq, func(c *ring.CQE) { tx.sq.Retire(c.Counter()) })
		drain(rx.rcq, func(c *ring.CQE) { rx.rq.Take() })
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Fatalf("%v allocations in a round", n)
	}
	account(t, a, b)
}

func drain(cq *ring.CQ, f func(*ring.CQE)) int {
	n := 0
	for {
		c, ok := cq.Peek()
		if !ok {
			cq.Update()
			return n
		}
		f(c)
		cq.Consume()
		n++
	}
}
