package ring

import (
	"math/rand/v2"
	"testing"
)

// put writes a WQE of bb blocks, its size and number in the pointers.
func put(t testing.TB, s *SQ, bb int, id uint64) bool {
	w, pi, ok := s.Reserve(bb)
	if !ok {
		return false
	}
	if len(w) != bb {
		t.Fatalf("%d blocks, asked %d", len(w), bb)
	}
	ds := bb * dsPerBlock
	PutCtrl(&w[0], uint16(pi), OpSend, s.QPN(), ds, FlagSignaled, 0)
	PutEth0(&w[0], 0)
	for k := 2; k < ds; k++ {
		PutData(w, k, Seg{id, uint32(k), 1})
	}
	s.Commit(bb, id)
	return true
}

type modelWR struct {
	id uint64
	bb int
}

// The dullest model: a list of requests. Rings of a few slots, so that most
// WQEs are near the edge; every seed is its own test.
func TestSendHalvesAgreeWithAList(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		maxBB := 1 + r.IntN(4)
		slots, _, err := SQSlots(1+r.IntN(5), maxBB)
		if err != nil {
			t.Fatal(err)
		}
		s, d := newTestSQ(t, slots, SQConfig{QPN: 9, MaxBB: maxBB})
		s.pi = uint32(0x10000 - r.IntN(3*slots)) // over the edge of 16 bits
		s.ci, d.ci, d.pi = s.pi, s.pi, s.pi
		s.pub = s.Mark()
		s.rec.StoreSend(s.pi)
		var committed, published, device []modelWR
		var doneAt []uint16
		var v SendWQE
		id := uint64(0)
		for step := range 3000 {
			switch r.IntN(6) {
			case 0, 1:
				bb := 1 + r.IntN(maxBB)
				if put(t, s, bb, id) {
					committed = append(committed, modelWR{id, bb})
				} else if s.Outstanding() < s.MaxWR() {
					t.Fatalf("seed %d step %d: full with %d of %d", seed, step, s.Outstanding(), s.MaxWR())
				}
				id++
			case 2:
				m := s.Mark()
				put(t, s, 1+r.IntN(maxBB), 1<<40)
				s.Rollback(m)
			case 3:
				if _, any := s.Publish(); any != (len(committed) > 0) {
					t.Fatalf("seed %d step %d: published %t of %d", seed, step, any, len(committed))
				}
				published, committed = append(published, committed...), nil
			case 4:
				switch st := d.Fetch(&v); {
				case len(published) == 0 && st != FetchEmpty:
					t.Fatalf("seed %d step %d: %v from nothing", seed, step, st)
				case len(published) > 0:
					w := published[0]
					if st != FetchOK || v.Segs[0].Addr != w.id || v.NSeg != w.bb*4-2 {
						t.Fatalf("seed %d step %d: %v %v, want request %d", seed, step, st, v.Rule, w.id)
					}
					published = published[1:]
					device = append(device, w)
					doneAt = append(doneAt, v.Index)
					d.Advance()
				}
			case 5:
				if len(device) == 0 {
					break
				}
				k := r.IntN(len(device))
				got, n, ok := s.Retire(doneAt[k])
				if !ok || got != device[k].id || n != k+1 {
					t.Fatalf("seed %d step %d: retired %d (%d) %t, want %d (%d)", seed, step, n, got, ok, k+1, device[k].id)
				}
				if _, _, again := s.Retire(doneAt[k]); again {
					t.Fatalf("seed %d step %d: retired twice", seed, step)
				}
				device, doneAt = device[k+1:], doneAt[k+1:]
			}
			if n := len(committed) + len(published) + len(device); n != s.Outstanding() {
				t.Fatalf("seed %d step %d: %d outstanding, want %d", seed, step, s.Outstanding(), n)
			}
		}
	}
}

// From every slot of a small ring, with every mix of sizes, maxWR requests fit.
func TestMaxWRRequestsOfAnyMixFit(t *testing.T) {
	for maxBB := 1; maxBB <= 4; maxBB++ {
		for asked := 1; asked <= 4; asked++ {
			slots, maxWR, err := SQSlots(asked, maxBB)
			if err != nil || maxWR < asked {
				t.Fatalf("asked %d: got %d, %v", asked, maxWR, err)
			}
			mixes := 1
			n := min(maxWR, 6) // beyond six requests the rest are of the largest size
			for range n {
				mixes *= maxBB
			}
			s, _ := newTestSQ(t, slots, SQConfig{QPN: 1, MaxBB: maxBB})
			for start := range slots {
				for mix := range mixes {
					s.Reset()
					s.pi, s.ci = uint32(start), uint32(start)
					s.pub = s.Mark()
					for i, m := 0, mix; i < maxWR; i++ {
						bb := maxBB
						if i < n {
							bb, m = 1+m%maxBB, m/maxBB
						}
						if _, _, ok := s.Reserve(bb); !ok {
							t.Fatalf("slots %d maxBB %d start %d mix %d: request %d of %d does not fit",
								slots, maxBB, start, mix, i, maxWR)
						}
						s.Commit(bb, 0)
					}
				}
			}
		}
	}
}

func TestRetireDropsWhatIsNoRequest(t *testing.T) {
	s, d := newTestSQ(t, 8, SQConfig{QPN: 1, MaxBB: 3})
	put(t, s, 3, 10)
	put(t, s, 3, 11)
	s.Publish()
	var v SendWQE
	fetch := func(want uint16) {
		t.Helper()
		if d.Fetch(&v) != FetchOK || v.Index != want {
			t.Fatalf("fetched %d (%v), want %d", v.Index, v.Rule, want)
		}
		d.Advance()
	}
	fetch(0)
	fetch(3)
	if _, _, ok := s.Retire(1); ok {
		t.Error("the inside of a WQE was retired")
	}
	if id, n, ok := s.Retire(3); !ok || id != 11 || n != 2 {
		t.Errorf("retired %d, %d, %t", id, n, ok)
	}
	put(t, s, 3, 12) // two NOPs at 6 and 7 in front
	if _, _, ok := s.Retire(8); ok {
		t.Error("a request that is not published was retired")
	}
	s.Publish()
	for _, c := range []uint16{6, 7, 9, 11, 3} {
		if _, _, ok := s.Retire(c); ok {
			t.Errorf("counter %d was retired", c)
		}
	}
	fetch(8)
	if id, n, ok := s.Retire(8); !ok || id != 12 || n != 1 || s.FreeSlots() != 8 {
		t.Errorf("retired %d, %d, %t, %d free", id, n, ok, s.FreeSlots())
	}
}

func TestRunsStopAtTheEdge(t *testing.T) {
	s, d := newTestSQ(t, 8, SQConfig{QPN: 1, MaxBB: 2})
	var v SendWQE
	id, seen := uint64(0), uint64(0)
	for range 200 {
		w, pi, n := s.ReserveRun(3, 2)
		for i := range n {
			PutCtrl(&w[2*i], uint16(pi)+uint16(2*i), OpSend, 1, 8, 0, 0)
			PutEth0(&w[2*i], 0)
			PutInline(w[2*i:], 2, make([]byte, 92))
		}
		s.CommitRun(n, 2, id)
		id += uint64(n)
		s.Publish()
		for d.Fetch(&v) == FetchOK {
			d.Advance()
			got, _, ok := s.Retire(v.Index)
			if !ok || got != seen {
				t.Fatalf("retired %d %t, want %d", got, ok, seen)
			}
			seen++
		}
		if v.Rule != RuleNone {
			t.Fatal(v.Rule)
		}
	}
	if seen != id || id < 400 {
		t.Fatalf("%d of %d arrived", seen, id)
	}
}

func TestReceiveHalvesAgreeWithAList(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	mem := make([]byte, 4*32)
	rec, _ := NewRecord(make([]byte, 8))
	c := RQConfig{Stride: 32, Entries: 4}
	q, _ := NewRQ(mem, rec, c)
	d, _ := NewDevRQ(mem, rec, c)
	var list []uint64
	posted, published, taken, done := 0, 0, 0, 0
	segs := make([]Seg, 2)
	for range 200_000 {
		switch r.IntN(4) {
		case 0:
			id := r.Uint64()
			if q.Post1(Seg{id, 8, 1}, id) != (posted-done < 4) {
				t.Fatalf("%d outstanding", posted-done)
			}
			if posted-done < 4 {
				list = append(list, id)
				posted++
			}
		case 1:
			q.Publish()
			published = posted
		case 2:
			n, ok := d.Peek(segs)
			if ok != (taken < published) {
				t.Fatalf("peek %t with %d of %d taken", ok, taken, published)
			}
			if ok {
				if n != 1 || segs[0].Addr != list[taken] || d.Advance() != uint16(taken) {
					t.Fatalf("entry %d: %v", taken, segs[:n])
				}
				taken++
			}
		case 3:
			if done == taken {
				break
			}
			if id, ok := q.Take(); !ok || id != list[done] {
				t.Fatalf("took %d %t, want %d", id, ok, list[done])
			}
			done++
		}
	}
}

func TestCompletionHalvesAgreeWithAList(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, entries := range []int{1, 2, 4, 8} {
		q, d, _, _ := newTestCQ(t, entries)
		q.ci, d.pi, d.pub, d.ci = 1<<24-16, 1<<24-16, 1<<24-16, 1<<24-16 // over the edge of 24 bits
		q.Update()
		sealed, published, polled, updated := 0, 0, 0, 0
		for range 50_000 {
			switch r.IntN(4) {
			case 0:
				c, ok := d.Next()
				if ok != (sealed-updated < entries) {
					t.Fatalf("next %t with %d of %d used", ok, sealed-updated, entries)
				}
				if ok {
					c.PutRecv(0, 1, uint32(sealed), uint16(sealed), 0)
					d.Seal(uint8(CQERecv) << 4)
					sealed++
				}
			case 1:
				if n := d.Publish(); n != sealed-published {
					t.Fatalf("published %d, want %d", n, sealed-published)
				}
				published = sealed
			case 2:
				c, ok := q.Peek()
				if ok != (polled < published) {
					t.Fatalf("peek %t with %d of %d polled", ok, polled, published)
				}
				if ok {
					if c.ByteLen() != uint32(polled) {
						t.Fatalf("completion %d, want %d", c.ByteLen(), polled)
					}
					q.Consume()
					polled++
				}
			case 3:
				q.Update()
				updated = polled
			}
		}
	}
}

func TestPurgeKeepsTheOthersInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		q, d, _, _ := newTestCQ(t, 8)
		var want []uint32
		for range r.IntN(20) { // somewhere in some lap
			d.Next()
			d.Seal(0)
			d.Publish()
			q.Peek()
			q.Consume()
			q.Update()
		}
		n := r.IntN(9)
		for i := range n {
			qpn := uint32(1 + r.IntN(2))
			c, _ := d.Next()
			c.PutRecv(0, qpn, uint32(i), 0, 0)
			d.Seal(uint8(CQERecv) << 4)
			if qpn == 1 {
				want = append(want, uint32(i))
			}
		}
		d.Publish()
		if freed := q.Purge(func(c *CQE) bool { return c.QPN() == 2 }); freed != n-len(want) {
			t.Fatalf("freed %d of %d, want %d", freed, n, n-len(want))
		}
		if d.Free() != 8-len(want) {
			t.Fatalf("%d free, want %d", d.Free(), 8-len(want))
		}
		for _, w := range want {
			c, ok := q.Peek()
			if !ok || c.ByteLen() != w {
				t.Fatalf("polled %t, want %d", ok, w)
			}
			q.Consume()
		}
		if _, ok := q.Peek(); ok {
			t.Fatal("more than was left")
		}
	}
}

// Two goroutines, one a driver and one a device, over regions: what the race
// detector sees of the whole traffic.
func TestTwoGoroutinesAreRaceFree(t *testing.T) {
	const total = 20_000
	region, err := NewRegion(8192, RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	b := region.Bytes()
	blocks, cqes := BlocksOf(b[:1024]), CQEs(b[1024:2048])
	sqRec, _ := NewRecord(b[4096:4104])
	cqRec, _ := NewRecord(b[4160:4168])
	rqMem := b[2048 : 2048+256]
	rc := RQConfig{Stride: 16, Entries: 16}
	s, err := NewSQ(blocks, sqRec, SQConfig{QPN: 1, MaxBB: 2})
	if err != nil {
		t.Fatal(err)
	}
	q, err := NewCQ(cqes, cqRec, 1)
	if err != nil {
		t.Fatal(err)
	}
	rq, _ := NewRQ(rqMem, sqRec, rc)
	ds, _ := NewDevSQ(blocks, sqRec, 1)
	dc, _ := NewDevCQ(cqes, cqRec, 1)
	dr, _ := NewDevRQ(rqMem, sqRec, rc)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var v SendWQE
		var segs [1]Seg
		for n := 0; n < total; {
			for range 1 + n%5 {
				if dc.Free() < 2 || ds.Pending() == 0 || dr.Available() == 0 {
					break
				}
				if ds.Fetch(&v) != FetchOK {
					break
				}
				c, _ := dc.Next()
				c.PutReq(1, 1, v.Opcode, v.Index, v.Segs[0].Addr)
				dc.Seal(uint8(CQEReq) << 4)
				ds.Advance()
				dr.Peek(segs[:])
				c, _ = dc.Next()
				c.PutRecv(1, 1, uint32(segs[0].Addr), dr.Advance(), 0)
				dc.Seal(uint8(CQERecv) << 4)
				n++
			}
			dc.Publish()
		}
	}()
	sent, recvs, sends, got := 0, 0, 0, 0
	for got < total || sends < total {
		for sent < total && s.Outstanding() < s.MaxWR() && put(t, s, 1+sent%2, uint64(sent)) {
			sent++
		}
		for rq.Post1(Seg{uint64(recvs), 8, 1}, uint64(recvs)) {
			recvs++
		}
		rq.Publish()
		s.Publish()
		for c, ok := q.Peek(); ok; c, ok = q.Peek() {
			if c.Op() == CQEReq {
				if id, _, ok := s.Retire(c.Counter()); !ok || id != c.Time() || id != uint64(sends) {
					t.Errorf("send %d: id %d time %d %t", sends, id, c.Time(), ok)
				}
				sends++
			} else {
				if id, ok := rq.Take(); !ok || id != uint64(got) || c.ByteLen() != uint32(got) {
					t.Errorf("receive %d: id %d %t", got, id, ok)
				}
				got++
			}
			q.Consume()
		}
		q.Update()
	}
	<-done
}

func TestHotFunctionsAllocateNothing(t *testing.T) {
	s, d := newTestSQ(t, 64, SQConfig{QPN: 1, MaxBB: 4})
	q, dc, _, _ := newTestCQ(t, 64)
	mem := make([]byte, 64*32)
	rec, _ := NewRecord(make([]byte, 8))
	rq, _ := NewRQ(mem, rec, RQConfig{32, 64})
	dr, _ := NewDevRQ(mem, rec, RQConfig{32, 64})
	var v SendWQE
	var segs [2]Seg
	hdr := make([]byte, 54)
	n := testing.AllocsPerRun(1000, func() {
		w, pi, _ := s.Reserve(2)
		PutCtrl(&w[0], uint16(pi), OpTSO, 1, 7, FlagSignaled, 0)
		PutData(w, PutEth(w, CsumL3, 100, hdr), Seg{1, 2, 3})
		PutTail(w, 7)
		s.Commit(2, 1)
		m := s.Mark()
		put(t, s, 1, 2)
		s.Rollback(m)
		s.Publish()
		if d.Fetch(&v) != FetchOK {
			t.Fatal(v.Rule)
		}
		d.Advance()
		rq.Post1(Seg{1, 2, 3}, 1)
		rq.Publish()
		dr.Peek(segs[:])
		dr.Advance()
		rq.Take()
		c, _ := dc.Next()
		c.PutReq(1, 1, OpTSO, v.Index, 0)
		dc.Seal(0)
		dc.Publish()
		c, _ = q.Peek()
		s.Retire(c.Counter())
		q.Consume()
		q.Update()
	})
	if n != 0 {
		t.Fatalf("%v allocations, want 0", n)
	}
}

func TestRegionsAreZeroedAlignedAndClosedOnce(t *testing.T) {
	for _, huge := range []bool{false, true} {
		r, err := NewRegion(10_000, RegionOptions{Huge: huge})
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range r.Bytes() {
			if b != 0 {
				t.Fatalf("byte %d is %#x", i, b)
			}
		}
		if len(r.Bytes()) != 10_000 || len(r.Blocks()) != 156 || len(CQEs(r.Bytes()[1:])) != 0 {
			t.Errorf("%d bytes, %d blocks", len(r.Bytes()), len(r.Blocks()))
		}
		for range 2 { // a second Close is nothing
			if err := r.Close(); err != nil || r.Bytes() != nil {
				t.Errorf("close: %v, %d bytes left", err, len(r.Bytes()))
			}
		}
	}
	if _, err := NewRegion(0, RegionOptions{}); err == nil {
		t.Error("an empty region was given")
	}
}
