package wire

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/clock"
)

// seqsThrough sends count frames, 1 us apart, and returns what arrives, as sequence and time.
func seqsThrough(t *testing.T, how Impairs, count uint64) (seqs []uint64, times []int64, s Stats) {
	t.Helper()
	clk := &clock.Virtual{}
	a, b := pairOf(t, LoopOptions{Impair: how, Clock: clk})
	frames := make([]Frame, 7)
	receive := func() {
		for {
			n := b.Next(frames)
			for _, f := range frames[:n] {
				seqs = append(seqs, binary.BigEndian.Uint64(f.Data))
				times = append(times, f.TimeNS)
			}
			b.Release(n)
			if n == 0 {
				return
			}
		}
	}
	for k := range count {
		clk.Set(int64(k) * 1000)
		sendOne(t, a, 60, k)
		if k%5 == 0 {
			receive()
		}
	}
	clk.Advance(1e10)
	receive()
	a.Close()
	b.Close()
	return seqs, times, statsOf(b)
}

func near(t *testing.T, what string, got uint64, count, p float64) {
	t.Helper()
	if d := math.Abs(float64(got) - count*p); d > 6*math.Sqrt(count*p*(1-p)) {
		t.Errorf("%s: %d, want about %.0f", what, got, count*p)
	}
}

func TestImpairLoss(t *testing.T) {
	seqs, _, s := seqsThrough(t, Impairs{Loss: .1, Seed: 3}, 20000)
	near(t, "lost", s.ImpairLost, 20000, .1)
	if !slices.IsSorted(seqs) || uint64(len(seqs))+s.ImpairLost != 20000 || s.RxFrames != uint64(len(seqs)) {
		t.Errorf("%d frames, %+v", len(seqs), s)
	}
}

func TestImpairDup(t *testing.T) {
	seqs, _, s := seqsThrough(t, Impairs{Dup: .1, Seed: 3}, 20000)
	near(t, "duplicated", s.ImpairDuplicated, 20000, .1)
	twice := uint64(0)
	for i := 1; i < len(seqs); i++ {
		if seqs[i] == seqs[i-1] {
			twice++
		}
	}
	if !slices.IsSorted(seqs) || twice != s.ImpairDuplicated || len(seqs) != 20000+int(twice) {
		t.Errorf("%d frames, %d twice, %+v", len(seqs), twice, s)
	}
}

// TestFramesInFlightAreCountedOnce, whatever happens to them on the way.
func TestFramesInFlightAreCountedOnce(t *testing.T) {
	for name, how := range map[string]Impairs{
		"plain": {}, "delayed": {Delay: time.Second}, "doubled": {Delay: time.Second, Dup: .5}, "held back": {Delay: time.Second, Reorder: 1},
	} {
		t.Run(name, func(t *testing.T) {
			clk := &clock.Virtual{}
			a, b := pairOf(t, LoopOptions{Impair: how, Clock: clk})
			frames := make([]Frame, 7)
			look := func() {
				if n := b.Next(frames); how.Delay > 0 && n > 0 {
					t.Fatalf("%d frames came", n)
				}
			}
			for k := range uint64(1000) {
				sendOne(t, a, 60, k)
				if k%2 == 0 {
					look()
				}
				if s := statsOf(b); s.RxInFlight != k+1 {
					t.Fatalf("%d in flight of %d", s.RxInFlight, k+1)
				}
			}
			clk.Advance(2e9)
			seen := map[uint64]bool{}
			for {
				n := b.Next(frames)
				if n == 0 {
					break
				}
				for _, f := range frames[:(n+1)/2] {
					seen[binary.BigEndian.Uint64(f.Data)] = true
				}
				b.Release((n + 1) / 2)
				if s := statsOf(b); s.RxInFlight+uint64(len(seen)) != 1000 {
					t.Fatalf("%d in flight, %d have come", s.RxInFlight, len(seen))
				}
			}
			if s := statsOf(a); s.RxInFlight != 0 {
				t.Errorf("%d towards the sender", s.RxInFlight)
			}
		})
	}
}

func TestImpairReorder(t *testing.T) {
	seqs, times, s := seqsThrough(t, Impairs{Reorder: .1, Delay: 3 * time.Microsecond, Seed: 3}, 20000)
	back := uint64(0)
	for i := 1; i < len(seqs); i++ {
		if seqs[i] < seqs[i-1] {
			back++
			if seqs[i] != seqs[i-1]-1 {
				t.Fatalf("%d behind %d", seqs[i], seqs[i-1])
			}
		}
	}
	if len(seqs) != 20000 || back != s.ImpairReordered || back < 1500 || !slices.IsSorted(times) {
		t.Errorf("%d frames, %d behind, %+v", len(seqs), back, s)
	}
}

// TestImpairHeldFrameGoesOn: with no frame to overtake it, a frame held back comes all the same.
func TestImpairHeldFrameGoesOn(t *testing.T) {
	seqs, times, _ := seqsThrough(t, Impairs{Reorder: 1}, 1)
	if !slices.Equal(seqs, []uint64{0}) || !slices.Equal(times, []int64{heldFor}) {
		t.Error(seqs, times)
	}
}

func TestImpairDelayAndJitter(t *testing.T) {
	_, times, _ := seqsThrough(t, Impairs{Delay: 5 * time.Microsecond}, 1000)
	for k, at := range times {
		if at != int64(k)*1000+5000 {
			t.Fatalf("frame %d arrives at %d", k, at)
		}
	}
	_, times, _ = seqsThrough(t, Impairs{Delay: 5 * time.Microsecond, Jitter: 900 * time.Nanosecond}, 1000)
	low, high := int64(math.MaxInt64), int64(0)
	for k, at := range times {
		late := at - int64(k)*1000 - 5000
		low, high = min(low, late), max(high, late)
	}
	if len(times) != 1000 || low < 0 || low > 20 || high < 880 || high >= 900 {
		t.Errorf("%d frames, jitter from %d to %d", len(times), low, high)
	}
}

func TestImpairCorruptFlipsOneBit(t *testing.T) {
	clk := &clock.Virtual{}
	a, b := pairOf(t, LoopOptions{Impair: Impairs{Corrupt: .5, Seed: 1}, Clock: clk})
	want, frames := make([]byte, 60), make([]Frame, 1)
	flipped := uint64(0)
	for k := range uint64(2000) {
		sendOne(t, a, 60, k)
		fill(want, k)
		if b.Next(frames) != 1 {
			t.Fatal("no frame")
		}
		n := 0
		for i, x := range frames[0].Data {
			n += bits.OnesCount8(x ^ want[i])
		}
		if n > 1 {
			t.Fatalf("%d bits", n)
		}
		flipped += uint64(n)
		b.Release(1)
	}
	if s := statsOf(b); flipped != s.ImpairCorrupted {
		t.Errorf("%d flipped, %+v", flipped, s)
	}
	near(t, "corrupted", flipped, 2000, .5)
}

// TestImpairReplays: the same seed gives the same run, another seed or the other direction another one.
func TestImpairReplays(t *testing.T) {
	how := Impairs{Loss: .1, Dup: .1, Reorder: .1, Corrupt: 0, Jitter: time.Microsecond, Seed: rand.Uint64()}
	seqs, times, _ := seqsThrough(t, how, 2000)
	again, timesAgain, _ := seqsThrough(t, how, 2000)
	if !slices.Equal(seqs, again) || !slices.Equal(times, timesAgain) {
		t.Errorf("seed %d does not replay", how.Seed)
	}
	how.Seed++
	if other, _, _ := seqsThrough(t, how, 2000); slices.Equal(seqs, other) {
		t.Errorf("seed %d is like the one before", how.Seed)
	}
}

// TestImpairLosesNothing fills everything with nobody reading, then reads it all.
func TestImpairLosesNothing(t *testing.T) {
	clk := &clock.Virtual{}
	a, b := pairOf(t, LoopOptions{Impair: Impairs{Delay: time.Millisecond, Reorder: .3}, Clock: clk, MTU: 1500, Capacity: 8 << 10})
	frames := make([]Frame, 50)
	sent, got := uint64(0), uint64(0)
	for b.Next(frames) == 0 {
		if !sendOne(t, a, 1500, sent) {
			if b.Next(frames); !sendOne(t, a, 1500, sent) {
				break // the pipe is full too
			}
		}
		sent++
	}
	for range 10000 {
		clk.Advance(1e6)
		n := b.Next(frames)
		b.Release(n)
		got += uint64(n)
	}
	if got != sent || sent < 500 {
		t.Errorf("%d sent, %d arrived", sent, got)
	}
}

func TestImpairAllocatesNothing(t *testing.T) {
	clk := &clock.Virtual{}
	a, b := pairOf(t, LoopOptions{Impair: Impairs{Delay: time.Microsecond, Loss: .1, Dup: .1, Reorder: .1, Corrupt: .1}, Clock: clk})
	checkAllocs(t, func() { clk.Advance(1e6) }, a, b)
}
