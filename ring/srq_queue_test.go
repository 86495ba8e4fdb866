package ring

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
)

func newTestSRQ(t testing.TB, stride, entries int) (*SRQ, *DevSRQ) {
	t.Helper()
	mem, err := NewRegion(stride*entries+64, RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	rec, err := NewRecord(mem.Bytes()[stride*entries:])
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSRQ(mem.Bytes(), rec, stride, entries)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDevSRQ(mem.Bytes(), rec, stride, entries)
	if err != nil {
		t.Fatal(err)
	}
	return s, d
}

// The dullest model: lists of what is posted, published and taken. Pollers give
// entries back in any order, so that the chain is soon a shuffle.
func TestSharedReceiveHalvesAgreeWithLists(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 5))
		entries, stride, maxWR, maxSGE, err := SRQGeometry(1+r.IntN(9), 1+r.IntN(4))
		if err != nil {
			t.Fatal(err)
		}
		s, d := newTestSRQ(t, stride, entries)
		if s.Max() != maxWR || s.MaxSGE() != maxSGE {
			t.Fatalf("holds %d of %d pieces, want %d and %d", s.Max(), s.MaxSGE(), maxWR, maxSGE)
		}
		edge := uint32(0) - uint32(r.IntN(40)) // over the edge of 32 bits
		s.posted, s.pub, s.reaped, d.consumed, d.posted = edge, edge, edge, edge, edge
		s.given.Store(edge)
		s.rec.StoreSRQ(edge)
		type taken struct {
			index uint16
			id    uint64
		}
		var posted, published []uint64
		var out []taken
		id := uint64(1)
		for step := range 4000 {
			switch r.IntN(6) {
			case 0, 1:
				segs := make([]Seg, 1+r.IntN(maxSGE))
				segs[0] = Seg{Addr: id, Len: 1, LKey: 7}
				if s.Post(segs, id) {
					posted = append(posted, id)
				} else if len(posted)+len(published)+len(out) < maxWR {
					t.Fatalf("seed %d step %d: full with %d of %d", seed, step, s.Outstanding(), maxWR)
				}
				id++
			case 2:
				s.Publish()
				published, posted = append(published, posted...), nil
			case 3:
				var segs [MaxRQStride / DSBytes]Seg
				n, ok := d.Peek(segs[:])
				if ok != (len(published) > 0) {
					t.Fatalf("seed %d step %d: an entry %v of %d", seed, step, ok, len(published))
				}
				if !ok {
					break
				}
				if n != 1 || segs[0].Addr != published[0] {
					t.Fatalf("seed %d step %d: request %d of %d pieces, want %d", seed, step, segs[0].Addr, n, published[0])
				}
				out = append(out, taken{d.Advance(), published[0]})
				published = published[1:]
			case 4:
				if len(out) == 0 {
					break
				}
				k := r.IntN(len(out))
				if got, ok := s.Take(out[k].index); !ok || got != out[k].id {
					t.Fatalf("seed %d step %d: entry %d is request %d, %v, want %d", seed, step, out[k].index, got, ok, out[k].id)
				}
				if _, ok := s.Take(out[k].index); ok {
					t.Fatalf("seed %d step %d: entry %d given back twice", seed, step, out[k].index)
				}
				out = slices.Delete(out, k, k+1)
			case 5:
				if postTooMany(s) {
					t.Fatalf("seed %d step %d: too many pieces were taken", seed, step)
				}
			}
			if n := len(posted) + len(published) + len(out); s.Outstanding() != n {
				t.Fatalf("seed %d step %d: %d outstanding, want %d", seed, step, s.Outstanding(), n)
			}
			if n := d.Available(); n != len(published) {
				t.Fatalf("seed %d step %d: the device has %d, want %d", seed, step, n, len(published))
			}
		}
	}
}

// postTooMany posts one piece more than fits.
func postTooMany(s *SRQ) bool { return s.Post(make([]Seg, s.MaxSGE()+1), 0) }

// A poster, a device and two pollers at the same time: each request comes once,
// the device sees them in order.
func TestSharedReceiveQueueAmongGoroutines(t *testing.T) {
	s, d := newTestSRQ(t, 32, 8)
	const count = 20_000
	done := [2]chan uint16{make(chan uint16, 8), make(chan uint16, 8)}
	var seen [count]uint8
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range done {
		wg.Go(func() {
			for index := range c {
				id, ok := s.Take(index)
				mu.Lock()
				if !ok || id >= count || seen[id] != 0 {
					t.Errorf("entry %d is request %d, %v, seen before: %v", index, id, ok, ok && id < count && seen[id] != 0)
				} else {
					seen[id] = 1
				}
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		var segs [2]Seg
		for next := uint64(0); next < count; {
			if _, ok := d.Peek(segs[:]); !ok {
				runtime.Gosched()
				continue
			}
			if segs[0].Addr != next {
				t.Errorf("request %d, want %d", segs[0].Addr, next)
			}
			done[next%2] <- d.Advance()
			next++
		}
		close(done[0])
		close(done[1])
	})
	for id := uint64(0); id < count; {
		if s.Post([]Seg{{Addr: id, Len: 1, LKey: 7}}, id) {
			id++
		} else {
			runtime.Gosched()
		}
		s.Publish()
	}
	wg.Wait()
	if s.Outstanding() != 0 {
		t.Errorf("%d outstanding", s.Outstanding())
	}
	for id, n := range seen {
		if n != 1 {
			t.Fatalf("request %d was seen %d times", id, n)
		}
	}
}

func TestSharedReceiveRingRefuses(t *testing.T) {
	mem := make([]byte, 4096)
	rec, err := NewRecord(mem)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		mem             []byte
		rec             Record
		stride, entries int
	}{
		"a stride of no power of two": {mem, rec, 48, 4}, "too small a stride": {mem, rec, 16, 4}, "too large a stride": {mem, rec, 2048, 1},
		"one entry": {mem, rec, 32, 1}, "three entries": {mem, rec, 32, 3}, "too little memory": {mem[:127], rec, 32, 4}, "no record": {mem, Record{}, 32, 4},
	} {
		if _, err := NewSRQ(c.mem, c.rec, c.stride, c.entries); err == nil {
			t.Errorf("host half: %s was taken", what)
		}
		if _, err := NewDevSRQ(c.mem, c.rec, c.stride, c.entries); err == nil {
			t.Errorf("device half: %s was taken", what)
		}
	}
	for _, asked := range [][2]int{{0, 1}, {-1, 1}, {MaxSRQEntries, 1}, {1, 0}, {1, 64}} {
		if _, _, _, _, err := SRQGeometry(asked[0], asked[1]); err == nil {
			t.Errorf("%d requests of %d pieces were granted", asked[0], asked[1])
		}
	}
	s, d := newTestSRQ(t, 32, 4)
	if _, ok := s.Take(9); ok {
		t.Error("an entry outside the ring was taken")
	}
	if _, ok := s.Take(0); ok {
		t.Error("an entry that is not posted was taken")
	}
	s.rec.StoreSRQ(100)
	if n := d.Available(); n != 3 {
		t.Errorf("a record that lies makes %d available, want 3", n)
	}
}

func TestSharedReceiveAllocatesNothing(t *testing.T) {
	s, d := newTestSRQ(t, 32, 8)
	segs := make([]Seg, 1)
	var got [2]Seg
	if n := testing.AllocsPerRun(100, func() {
		s.Post(segs, 1)
		s.Publish()
		d.Peek(got[:])
		s.Take(d.Advance())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The device's half of arming: one event for each, by the count in the arm word.
func TestArmedQueueFiresOncePerArming(t *testing.T) {
	mem, err := NewRegion(4096, RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	rec, err := NewRecord(mem.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	cqes := CQEs(mem.Bytes()[64 : 64+8*CQEBytes])
	host, err := NewCQ(cqes, rec, 5)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := NewDevCQ(cqes, rec, 5)
	if err != nil {
		t.Fatal(err)
	}
	for events := range uint32(9) {
		host.Arm(true)
		if dev.Fires(events, false) || !dev.Fires(events, true) {
			t.Fatalf("event %d: armed for solicited", events)
		}
		host.Arm(false)
		if !dev.Fires(events, false) || dev.Fires(events+1, true) {
			t.Fatalf("event %d: armed for any", events)
		}
		host.EventTaken()
	}
	for _, c := range []struct {
		opOwn  uint8
		urgent bool
	}{
		{uint8(CQEReq) << 4, false}, {uint8(CQERecv) << 4, false}, {uint8(CQERecv)<<4 | OpOwnSolicited, true},
		{uint8(CQERecvImm)<<4 | OpOwnSolicited, true}, {uint8(CQEReqErr) << 4, true}, {uint8(CQERecvErr) << 4, true},
	} {
		if _, ok := dev.Next(); !ok {
			t.Fatal("no room")
		}
		dev.Seal(c.opOwn)
		if dev.Urgent() != c.urgent {
			t.Errorf("0x%02x: urgent %v", c.opOwn, dev.Urgent())
		}
		dev.Publish()
		if dev.Urgent() {
			t.Errorf("0x%02x: urgent after it was published", c.opOwn)
		}
		host.Peek()
		host.Consume()
		host.Update()
	}
}
