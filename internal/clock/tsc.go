package clock

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	calibrateNS = 200_000   // first slope: two anchors this far apart
	maxSpanNS   = 4_000_000 // longest segment; see tsc
	slopeBaseNS = 1_000_000_000
	slopeShift  = 32 // slopes are nanoseconds per tick in 32.32 fixed point
)

// tsc turns the counter into nanoseconds by straight segments. A segment
//
//	ns = ns0 + (ticks-tick0) * slope
//
// is valid for span ticks. The first reading past its end starts the next one
// from the monotonic clock itself, so errors do not add up, and not below the
// value the old segment ends with, which no reading has exceeded: the clock
// never goes backwards, and leaps only by what the old slope was wrong.
//
// A segment is never longer than the time its slope was measured over (and
// never than maxSpanNS), so that its error stays in the size of the error of
// one anchor, about 50 ns, from the first reading on. When the operating
// system slews its clock by the 500 ppm it may, the error is at most
// 500 ppm * maxSpanNS = 2 us.
//
// Readers share the segment through a sequence lock of atomics: seq is odd
// while a reader is replacing the segment, its partner is the second load of
// seq in Now. Two readings that overlap a replacement may differ by less than
// the time between them.
type tsc struct {
	seq   atomic.Uint64
	tick0 atomic.Uint64
	ns0   atomic.Int64
	slope atomic.Uint64
	span  atomic.Uint64 // ticks

	// Owned by whoever made seq odd. The slope is measured from base, an anchor
	// one to two slopeBaseNS old; next is the anchor that follows it.
	base, next anchor
}

// anchor is one moment on both clocks.
type anchor struct {
	tick uint64
	ns   int64
}

var sharedTSC = sync.OnceValue(func() *tsc {
	if !invariantTSC() {
		return nil
	}
	return newTSC()
})

// newTSC calibrates for calibrateNS; nil if the counter does not behave.
func newTSC() *tsc {
	a, _ := readAnchor()
	b := a
	for b.ns-a.ns < calibrateNS {
		b, _ = readAnchor()
	}
	if b.tick <= a.tick {
		return nil
	}
	c := &tsc{base: a, next: b}
	c.seq.Store(1)
	c.install(b, b.ns)
	c.seq.Store(2)
	return c
}

// readAnchor reads the two clocks as nearly together as it can. exact is false
// if the thread was held up in all its attempts.
func readAnchor() (a anchor, exact bool) {
	const good = 400 // ticks; a reading of the monotonic clock takes about 100
	best := ^uint64(0)
	for range 5 {
		before := readTSC()
		ns := nanotime()
		after := readTSC()
		if width := after - before; width < best {
			best = width
			a = anchor{tick: before + width/2, ns: ns}
		}
		if best <= good {
			break
		}
	}
	return a, best <= 8*good
}

// Now returns nanoseconds since the monotonic clock's epoch.
func (c *tsc) Now() int64 {
	for spins := 1; ; spins++ {
		seq := c.seq.Load()
		tick0, ns0 := c.tick0.Load(), c.ns0.Load()
		slope, span := c.slope.Load(), c.span.Load()
		ticks := readTSC() - tick0
		if int64(ticks) < 0 {
			ticks = 0 // the segment was installed by a core a few ticks ahead
		}
		if seq&1 != 0 || c.seq.Load() != seq {
			// Whoever replaces the segment may itself be stopped, for a
			// garbage collection that waits for us.
			if spins%128 == 0 {
				runtime.Gosched()
			}
			continue
		}
		if ticks < span {
			return ns0 + scale(ticks, slope)
		}
		if c.seq.CompareAndSwap(seq, seq+1) {
			c.reanchor(ns0 + scale(span, slope))
			c.seq.Store(seq + 2)
		}
	}
}

// reanchor starts a new segment at or after floor. The caller holds seq odd.
func (c *tsc) reanchor(floor int64) {
	a, exact := readAnchor()
	if exact && a.ns-c.next.ns > slopeBaseNS {
		c.base, c.next = c.next, a
	}
	c.install(a, max(floor, a.ns))
}

func (c *tsc) install(a anchor, ns0 int64) {
	dns, dticks := uint64(a.ns-c.base.ns), a.tick-c.base.tick
	if dticks > 0 && a.tick > c.base.tick {
		hi, lo := bits.Mul64(dns, 1<<slopeShift)
		if hi < dticks {
			slope, _ := bits.Div64(hi, lo, dticks)
			c.slope.Store(max(slope, 1))
			spanNS := min(dns, maxSpanNS)
			span, _ := bits.Div64(spanNS>>(64-slopeShift), spanNS<<slopeShift, max(slope, 1<<16))
			c.span.Store(max(span, 1))
		}
	}
	c.tick0.Store(a.tick)
	c.ns0.Store(ns0)
}

// scale returns ticks*slope; ticks is below the span, so it fits.
func scale(ticks, slope uint64) int64 {
	hi, lo := bits.Mul64(ticks, slope)
	return int64(hi<<(64-slopeShift) | lo>>slopeShift)
}

// Ticks reads the processor's time stamp counter, after all earlier loads are done; where there is none that this
// package reads, it is the monotonic clock in nanoseconds. It is for measuring gaps: Clock is for time.
func Ticks() uint64 { return readTSC() }
