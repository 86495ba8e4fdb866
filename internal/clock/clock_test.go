package clock

import (
	"sync"
	"testing"
)

// checkTracks compares c with the monotonic clock for spanNS. A reading must lie
// between the monotonic readings around it, give or take bound, and never
// before the one before it.
func checkTracks(t *testing.T, c Clock, spanNS, bound int64) {
	t.Helper()
	last := c.Now()
	for end := nanotime() + spanNS; ; {
		before := nanotime()
		now := c.Now()
		after := nanotime()
		if now < before-bound || now > after+bound {
			t.Fatalf("reading %d outside [%d, %d] by more than %d ns", now, before, after, bound)
		}
		if now < last {
			t.Fatalf("went back from %d to %d", last, now)
		}
		last = now
		if after > end {
			return
		}
	}
}

func TestClocksTrackMonotonic(t *testing.T) {
	t.Run("system", func(t *testing.T) { checkTracks(t, System(), 30e6, 5_000) })
	t.Run("monotonic", func(t *testing.T) { checkTracks(t, Monotonic(), 1e6, 0) })
	t.Run("segments", func(t *testing.T) {
		c := newTSC()
		if c == nil {
			t.Fatal("no calibration")
		}
		checkTracks(t, c, 30e6, 5_000)
	})
}

// An idle clock whose slope is wrong must catch up in the first reading after
// the pause and still not go back.
func TestWrongSlopeIsCorrected(t *testing.T) {
	for name, factor := range map[string][2]uint64{"fast by 0.1 %": {1001, 1000}, "slow by 0.1 %": {999, 1000}} {
		t.Run(name, func(t *testing.T) {
			c := newTSC()
			c.slope.Store(c.slope.Load() / factor[1] * factor[0])
			first := c.Now()
			for end := nanotime() + 10e6; nanotime() < end; {
			}
			if now := c.Now(); now < first {
				t.Fatalf("went back from %d to %d", first, now)
			}
			checkTracks(t, c, 5e6, 5_000)
		})
	}
}

func TestNowIsMonotonicAcrossGoroutines(t *testing.T) {
	c := newTSC()
	var mu sync.Mutex
	var last int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20_000 {
				mu.Lock()
				now := c.Now()
				if now < last {
					t.Errorf("went back from %d to %d", last, now)
				}
				last = now
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestNowAllocatesNothing(t *testing.T) {
	c := System()
	if n := testing.AllocsPerRun(1000, func() { c.Now() }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestVirtualMovesOnlyForward(t *testing.T) {
	var v Virtual
	v.Advance(5)
	v.Set(3)
	v.Advance(-4)
	if v.Now() != 5 {
		t.Fatalf("at %d, want 5", v.Now())
	}
	v.Set(9)
	if v.Now() != 9 {
		t.Fatalf("at %d, want 9", v.Now())
	}
}

func BenchmarkNow(b *testing.B) {
	for name, c := range map[string]Clock{"system": System(), "monotonic": Monotonic()} {
		b.Run("op/clock="+name, func(b *testing.B) {
			for b.Loop() {
				c.Now()
			}
		})
	}
}

func TestTicksGoForward(t *testing.T) {
	for last, i := Ticks(), 0; i < 1000; i++ {
		next := Ticks()
		if next < last {
			t.Fatalf("%d after %d", next, last)
		}
		last = next
	}
}
