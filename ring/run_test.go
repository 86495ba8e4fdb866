package ring

import (
	"math/rand/v2"
	"testing"
)

// Whatever stands in the ring, what FetchRun accepts Fetch accepts too, and
// reads the same from it; and it accepts all good WQEs of its shape.
func FuzzFetchRunIsNeverLaxerThanFetch(f *testing.F) {
	for _, at := range []int{OffOpmod, OffIndex, OffOpcode, OffQPN, OffDS, OffSig, 9, OffFMCESE, OffImm, OffSWP,
		OffCsumFlags, OffMSS, OffMetadata, OffInlineLen, OffInlineHdr, 32, 35, 36, 40} {
		for _, v := range []byte{1, 2, 3, 0x08, 0x40, 0x80, 0xff} {
			f.Add(uint16(at), v, uint16(65530), uint8(8))
		}
	}
	f.Fuzz(func(t *testing.T, at uint16, v byte, start uint16, n uint8) {
		const slots, qpn = 8, 0x100
		rec, err := NewRecord(make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		blocks := make([]Block, slots)
		fast, err := NewDevSQ(blocks, rec, qpn)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(slots) {
			pi := uint32(start) + i
			w := blocks[pi%slots:][:1]
			PutCtrl(&w[0], uint16(pi), OpSend, qpn, 3, uint8(i%2)*FlagSignaled, 0)
			PutEth0(&w[0], 0)
			PutData(w, 2, Seg{Addr: uint64(pi) << 32, Len: 60 + i, LKey: 0x1100 + i})
		}
		bad := int(at) / BlockBytes % slots
		Flatten(blocks)[int(at)%(slots*BlockBytes)] ^= v
		rec.StoreSend(uint32(start) + uint32(n%(slots+1)))
		fast.ci, fast.pi = uint32(start), uint32(start)
		slow := *fast
		var out [slots]Short
		run := fast.FetchRun(out[:])
		var w SendWQE
		for i := range out[:run] {
			if got := slow.Fetch(&w); got != FetchOK {
				t.Fatalf("WQE %d: FetchRun takes it, Fetch says %d, rule %s", i, got, w.Rule)
			}
			s := &out[i]
			if w.NSeg != 1 || w.Segs[0] != s.Seg || w.Index != s.Index || w.Signaled != s.Signaled || w.Bytes != s.Len ||
				w.Opcode != OpSend || w.CsumFlags != 0 || len(w.InlineHdr)+len(w.Inline) != 0 {
				t.Fatalf("WQE %d: FetchRun reads %+v, Fetch %+v", i, *s, w)
			}
			slow.Advance()
		}
		want := int(n % (slots + 1))
		if v != 0 {
			want = min(want, (bad-int(start)%slots+slots)%slots)
		}
		if run < want {
			t.Fatalf("%d WQEs taken of at least %d good ones", run, want)
		}
		fast.AdvanceRun(run)
		if fast.CI() != slow.CI() {
			t.Fatalf("counters %d and %d", fast.CI(), slow.CI())
		}
	})
}

func TestFetchRunLeavesOtherQueuesToFetch(t *testing.T) {
	for _, l := range []SendLimits{{Kind: UD}, {MinInline: EthInline18}} {
		s, d := newTestSQ(t, 8, SQConfig{QPN: 0x100, MaxBB: 1})
		d.SetLimits(l)
		w, pi, _ := s.Reserve(1)
		PutCtrl(&w[0], uint16(pi), OpSend, 0x100, 3, 0, 0)
		PutEth0(&w[0], 0)
		PutData(w, 2, Seg{Addr: 1, Len: 60, LKey: 0x1100})
		s.Commit(1, 0)
		s.Publish()
		if n := d.FetchRun(make([]Short, 4)); n != 0 {
			t.Errorf("limits %+v: a run of %d", l, n)
		}
	}
}

// Run gives what Peek gives, entry for entry, as far as entries are one piece.
func TestReceiveRunAgreesWithPeek(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, stride := range []int{16, 32, 64} {
		c := RQConfig{Stride: stride, Entries: 8}
		rec, _ := NewRecord(make([]byte, 8))
		mem := make([]byte, stride*c.Entries)
		host, err := NewRQ(mem, rec, c)
		if err != nil {
			t.Fatal(err)
		}
		fast, _ := NewDevRQ(mem, rec, c)
		slow, _ := NewDevRQ(mem, rec, c)
		for range 2000 {
			for range rng.IntN(9) {
				segs := make([]Seg, rng.IntN(stride/16+1))
				for i := range segs {
					segs[i] = Seg{Addr: rng.Uint64(), Len: rng.Uint32N(3), LKey: TermLKey + rng.Uint32N(2)}
				}
				host.Post(segs, 0)
			}
			host.Publish()
			var segs, one [8]Seg
			n := fast.Run(segs[:1+rng.IntN(8)])
			for i := range n {
				if got, ok := slow.Peek(one[:]); !ok || got != 1 || one[0] != segs[i] {
					t.Fatalf("stride %d: entry %d of the run is %+v, Peek gives %d pieces, %+v", stride, i, segs[i], got, one[0])
				}
				slow.Advance()
				host.Take()
			}
			if first := fast.Take(n); first+uint16(n) != uint16(slow.CI()) || fast.CI() != slow.CI() {
				t.Fatalf("stride %d: counters %d and %d", stride, fast.CI(), slow.CI())
			}
			if n == 0 && host.Outstanding() > 0 { // an entry of another shape, or the end of what is known
				slow.Peek(one[:])
				fast.Peek(one[:])
				slow.Advance()
				fast.Advance()
				host.Take()
			}
		}
	}
}

// PutDone leaves the ring as Next, Put and Seal do, whatever stood there, and
// Room never promises what Next would refuse.
func TestPutDoneWritesWhatPutAndSealWrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	type side struct {
		ring []CQE
		host *CQ
		dev  *DevCQ
	}
	var s [2]side
	for i := range s {
		rec, _ := NewRecord(make([]byte, 8))
		s[i].ring = make([]CQE, 8)
		s[i].host, _ = NewCQ(s[i].ring, rec, 7)
		s[i].dev, _ = NewDevCQ(s[i].ring, rec, 7)
		for k := range s[i].ring {
			c := &s[i].ring[k]
			for b := range c[:cqeLast] {
				c[b] = 0xa5
			}
		}
	}
	for range 2000 {
		done := make([]Done, rng.IntN(9))
		for i := range done {
			done[i] = Done{Time: rng.Uint64(), Bytes: rng.Uint32(), Counter: uint16(rng.Uint32())}
		}
		done = done[:s[0].dev.Room(len(done))]
		kind, op := CQERecv, Opcode(0)
		if rng.IntN(2) == 0 {
			kind, op = CQEReq, OpSend
		}
		for i := range done {
			w := &done[i]
			if kind == CQEReq {
				w.Bytes = 0
			}
			c, ok := s[1].dev.Next()
			if !ok {
				t.Fatal("Room promised too much")
			}
			if kind == CQEReq {
				c.PutReq(0x123456, 0x654321, op, w.Counter, w.Time)
			} else {
				c.PutRecv(0x123456, 0x654321, w.Bytes, w.Counter, w.Time)
			}
			s[1].dev.Seal(uint8(kind) << 4)
		}
		s[0].dev.PutDone(0x123456, 0x654321, kind, op, done)
		if rng.IntN(2) == 0 {
			take := rng.IntN(9)
			for i := range s {
				s[i].dev.Publish()
				for range take {
					if _, ok := s[i].host.Peek(); ok {
						s[i].host.Consume()
					}
				}
				s[i].host.Update()
			}
		}
		for k := range s[0].ring {
			if s[0].ring[k] != s[1].ring[k] {
				t.Fatalf("entry %d: %x, want %x", k, s[0].ring[k], s[1].ring[k])
			}
		}
		if s[0].dev.PI() != s[1].dev.PI() || s[0].dev.Pending() != s[1].dev.Pending() {
			t.Fatal("counters differ")
		}
	}
}
