package traffic

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// dullTracker keeps every sequence of every flow in maps.
type dullTracker struct {
	window                              uint64
	seen                                map[uint32]map[uint64]bool
	highest                             map[uint32]uint64
	unique, duplicate, reordered, stale uint64
	extentMax                           uint64
}

func (d *dullTracker) see(flow uint32, seq uint64) bool {
	if d.seen[flow] == nil {
		d.seen[flow] = map[uint64]bool{seq: true}
		d.highest[flow] = seq
		d.unique++
		return true
	}
	high := d.highest[flow]
	switch {
	case seq > high:
		d.highest[flow] = seq
	case high-seq >= d.window:
		d.stale++
		return false
	case d.seen[flow][seq]:
		d.duplicate++
		return false
	default:
		d.reordered++
		d.extentMax = max(d.extentMax, high-seq)
	}
	d.seen[flow][seq] = true
	d.unique++
	return true
}

func (d *dullTracker) gaps() (n uint64) {
	for _, high := range d.highest {
		n += high + 1
	}
	return n - d.unique
}

// arrivals sends per sequences of each flow through a hostile network.
func arrivals(rng *rand.Rand, flows, per int, loss, dup, reorder float64, reach int) (out [][2]uint64) {
	next := make([]uint64, flows)
	for range flows * per {
		f := rng.IntN(flows)
		if rng.Float64() >= loss {
			out = append(out, [2]uint64{uint64(f), next[f]})
		}
		if rng.Float64() < dup {
			out = append(out, [2]uint64{uint64(f), next[f]})
		}
		next[f]++
		if rng.Float64() < 0.0005 { // a long outage
			next[f] += uint64(rng.IntN(3 * reach))
		}
	}
	for i := range out {
		if rng.Float64() < reorder {
			j := min(i+rng.IntN(reach), len(out)-1)
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}

func TestTrackerEqualsDullModel(t *testing.T) {
	for _, c := range []struct {
		flows, per, reach int
	}{{1, 200_000, 100_000}, {3, 50_000, 200_000}, {64, 500, 50}, {65, 3000, 100_000}, {2000, 100, 3000}, {65537, 3, 200}, {70_000, 2, 150_000}} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("flows=%d/seed=%d", c.flows, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, uint64(c.flows)))
				tr, err := newTracker(c.flows)
				if err != nil {
					t.Fatal(err)
				}
				dull := &dullTracker{window: windowOf(c.flows), seen: map[uint32]map[uint64]bool{}, highest: map[uint32]uint64{}}
				for _, a := range arrivals(rng, c.flows, c.per, 0.05, 0.03, 0.1, c.reach) {
					f, seq := uint32(a[0]), a[1]
					if got, want := tr.see(f, seq), dull.see(f, seq); got != want {
						t.Fatalf("flow %d sequence %d: first %v, want %v", f, seq, got, want)
					}
				}
				got := [...]uint64{tr.unique, tr.duplicate, tr.reordered, tr.stale, tr.extentMax, tr.gaps()}
				want := [...]uint64{dull.unique, dull.duplicate, dull.reordered, dull.stale, dull.extentMax, dull.gaps()}
				if got != want {
					t.Errorf("unique, duplicate, reordered, stale, extent, gaps = %v, want %v", got, want)
				}
			})
		}
	}
}

func FuzzTracker(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 2, 1, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const flows = 70_000 // a window of 64
		tr, _ := newTracker(flows)
		dull := &dullTracker{window: 64, seen: map[uint32]map[uint64]bool{}, highest: map[uint32]uint64{}}
		var at int64 = 100
		for _, b := range steps {
			at = max(at+int64(int8(b)), 0)
			flow := uint32(b%3) * 30_000
			if got, want := tr.see(flow, uint64(at)), dull.see(flow, uint64(at)); got != want {
				t.Fatalf("flow %d sequence %d: first %v, want %v", flow, at, got, want)
			}
		}
		if tr.gaps() != dull.gaps() || tr.stale != dull.stale || tr.duplicate != dull.duplicate || tr.reordered != dull.reordered {
			t.Fatal("counts differ")
		}
	})
}

func TestTrackerAllocatesNothing(t *testing.T) {
	tr, _ := newTracker(1000)
	seq := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		tr.see(7, seq)
		tr.see(7, seq+70)
		tr.see(7, seq/2)
		seq++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTrackerWindows(t *testing.T) {
	for flows, want := range map[int]uint64{1: 65536, 64: 65536, 65: 1024, 65536: 1024, 65537: 64, MaxFlows: 64} {
		if got := windowOf(flows); got != want {
			t.Errorf("%d flows: window %d, want %d", flows, got, want)
		}
	}
	for _, flows := range []int{0, -1, MaxFlows + 1} {
		if _, err := newTracker(flows); err == nil {
			t.Errorf("%d flows are accepted", flows)
		}
	}
}

func BenchmarkTracker(b *testing.B) {
	for _, flows := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("op/flows=%d", flows), func(b *testing.B) {
			tr, _ := newTracker(flows)
			var seq uint64
			for b.Loop() {
				for f := range 64 {
					tr.see(uint32(f*7919%flows), seq)
				}
				seq++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
		})
	}
}
