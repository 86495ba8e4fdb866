package conformance

import (
	"syscall"

	"github.com/bluering/bluering/engine"
)

var _ = register(map[string]func(*trial){
	"K-14": func(x *trial) {
		x.clock = newClock(1_000_000_000)
		a, b := x.pair(engine.QPConfig{MaxTSOHeader: 94})
		f := x.packet(4, true, 0, 0)
		size := max(len(f.bytes)+100, a.dev.Caps().MinFrame)
		a.limit(engine.RateLimit{Kbps: 8_000, BurstBytes: uint32(size), TypicalBytes: uint16(size)}) // a byte in a microsecond
		b.receives(b.qp, 3)
		a.post(a.segmented(f, 300, 100))
		for i := range 3 {
			b.frames(1)
			b.quiet()
			if i < 2 {
				a.quiet()
				x.clock.Advance(int64(size)*1000 - 1)
				b.quiet()
				x.clock.Advance(1)
			}
		}
		a.one(7, engine.StatusSuccess)
	},
	"L-01": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, kbps := range []uint32{5000, 0} {
			r := engine.RateLimit{Kbps: kbps}
			q := a.raw(engine.QPConfig{})
			x.ok(q.MoveTo(engine.StateRTR, engine.QPAttr{}))
			x.ok(q.Modify(engine.StateRTS, engine.QPAttr{Rate: r}, engine.AttrRateLimit))
			x.check(q.Attr().Rate == r, "at RTR to RTS: %+v", q.Attr())
			a.limit(r)
		}
		for _, state := range []engine.QPState{engine.StateInit, engine.StateRTR} {
			q := a.raw(engine.QPConfig{})
			x.ok(q.MoveTo(state, engine.QPAttr{}))
			x.want("set in "+state.String(), q.Modify(state, engine.QPAttr{Rate: engine.RateLimit{Kbps: 5000}}, engine.AttrRateLimit), syscall.EINVAL)
		}
	},
	"L-02": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		least, most := a.dev.Caps().MinRateKbps, a.dev.Caps().MaxRateKbps
		x.check(least > 0 && least <= most, "from %d to %d", least, most)
		a.limit(engine.RateLimit{Kbps: least})
		a.limit(engine.RateLimit{Kbps: most})
		outside := []uint32{most + 1, ^uint32(0)}
		if least > 1 {
			outside = append(outside, least-1)
		}
		for _, kbps := range outside {
			x.want("a rate outside", a.rate(engine.RateLimit{Kbps: kbps}), syscall.EINVAL)
		}
		x.check(a.qp.Attr().Rate.Kbps == most, "refused, and %d", a.qp.Attr().Rate.Kbps)
	},
	"L-03": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		q := a.ud()
		x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{}))
		x.want("a UD queue pair", q.Modify(engine.StateRTS, engine.QPAttr{Rate: engine.RateLimit{Kbps: 5000}}, engine.AttrRateLimit), syscall.EINVAL)
	},
	"L-04": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		x.want("a burst without a rate", a.rate(engine.RateLimit{BurstBytes: 3000}), syscall.EINVAL)
		x.want("a size without a rate", a.rate(engine.RateLimit{TypicalBytes: 300}), syscall.EINVAL)
		a.limit(engine.RateLimit{Kbps: 5000, BurstBytes: 3000, TypicalBytes: 300})
	},
	"L-06": func(x *trial) {
		x.clock = newClock(1_000_000_000)
		longest := uint16(0)
		atOnce := func(typical uint16) (frames int) {
			a := x.lone(engine.QPConfig{MaxSendWR: 512})
			longest = uint16(a.dev.Caps().MTU + 14)
			a.limit(engine.RateLimit{Kbps: 8_000, BurstBytes: 2 * uint32(longest), TypicalBytes: typical})
			return a.leaves(a.send(1, a.frame(100, 1)), 300)
		}
		none := atOnce(0)
		same, less := atOnce(longest), atOnce(100)
		x.check(none == same && none == 1+int(longest)/100 && less == 2*int(longest)/100, "%d frames at once by default, %d of the MTU, %d of 100 bytes", none, same, less)
	},
	"L-07": func(x *trial) {
		x.clock = newClock(1_000_000_000)
		a := x.lone(engine.QPConfig{MaxSendWR: 64})
		const size, burst, perSecond = 1000, 16_000, 2_500_000
		a.limit(engine.RateLimit{Kbps: perSecond * 8 / 1000, BurstBytes: burst, TypicalBytes: size})
		wr := a.send(1, a.frame(size, 1))
		x.check(a.leaves(wr, 64) == burst/size, "not %d bytes at once", burst)
		posted, sent := 64-burst/size, 0
		for left, step := int64(1e9), int64(1); left > 0; step = step*7%6_000_000 + 1 { // the burst makes up for 6 ms
			step = min(step, left)
			left -= step
			x.clock.Advance(step)
			n := a.leaves(wr, 64-posted)
			posted = 64 - n
			x.check(n <= burst/size, "%d bytes at once", n*size)
			sent += n * size
		}
		x.check(sent > perSecond*99/100 && sent < perSecond*101/100, "%d bytes in a second, want %d", sent, perSecond)
	},
})

// rate sets a rate in RTS.
func (e *end) rate(r engine.RateLimit) error {
	return e.qp.Modify(engine.StateRTS, engine.QPAttr{Rate: r}, engine.AttrRateLimit)
}

// limit is rate where it is to hold.
func (e *end) limit(r engine.RateLimit) {
	e.x.Helper()
	e.x.ok(e.rate(r))
	e.x.check(e.qp.Attr().Rate == r, "%+v was set, it is %+v", r, e.qp.Attr().Rate)
}

// leaves posts the request so many times, and counts what completes at this time, of all that is posted.
func (e *end) leaves(wr engine.SendWR, times int) (completed int) {
	e.x.Helper()
	for range times {
		e.post(wr)
	}
	wc := make([]engine.Completion, 64)
	for idle := 0; idle < 3; {
		n, err := e.cq.Poll(wc)
		e.x.ok(err)
		for _, c := range wc[:n] {
			e.x.check(c.Status == engine.StatusSuccess, "%+v", c)
		}
		completed += n
		if idle++; n > 0 || e.x.work() {
			idle = 0
		} else if !deterministic() {
			e.x.ok(e.dev.Wait(1e6))
		}
	}
	return completed
}
