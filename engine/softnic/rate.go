package softnic

import (
	"math"
	"time"

	"github.com/bluering/bluering/engine"
)

// Rates that a queue pair can be limited to, in kbit/s: as fast as any card is, and below a frame a second.
const (
	minRateKbps = 1
	maxRateKbps = 800_000_000
)

// defBurst is how long a queue pair that is told no burst may have been kept from sending and still make up for it.
const defBurst = time.Millisecond

// notHeld is how long a NIC waits for the time of a send when none waits.
const notHeld = math.MaxInt64

// limiter keeps a queue pair to a rate (engine.RateLimit), as a leaky bucket: each frame is due when those before it
// have had their time at an even pace, and may leave up to slack earlier. A queue pair that always has something to
// send keeps its rate exactly, as long as it is served once in every slack.
type limiter struct {
	limit engine.RateLimit
	slack int64  // ns
	due   int64  // ns, of the next frame
	part  uint64 // what due leaves out, in 1/Kbps ns
}

// newLimiter makes the limiter of a rate that is not 0. longest is what a frame has at most.
func newLimiter(r engine.RateLimit, longest uint32) *limiter {
	l := &limiter{limit: r, due: math.MinInt64 / 2}
	typical, most := uint64(r.TypicalBytes), uint64(r.BurstBytes)
	if typical == 0 {
		typical = uint64(longest)
	}
	if most == 0 {
		l.slack = int64(defBurst)
	} else if most > typical {
		l.slack = int64((most - typical) * bitTime / uint64(r.Kbps))
	}
	return l
}

// bitTime is the time of a byte at 1 kbit/s, in ns.
const bitTime = 8 * 1_000_000

// wait gives the time until the next frame may leave; 0 and less: it may.
func (l *limiter) wait(now int64) int64 { return l.due - l.slack - now }

// charge books what has left.
func (l *limiter) charge(now int64, bytes uint64) {
	if l.due < now {
		l.due, l.part = now, 0
	}
	cost := l.part + bytes*bitTime
	l.due += int64(cost / uint64(l.limit.Kbps))
	l.part = cost % uint64(l.limit.Kbps)
}

// sendPaced is send for a queue pair with a rate: frame for frame, so that segmented sends are paced by their
// segments (K-14). What is left waits for its time.
func (n *NIC) sendPaced(q *qp, limit int) (work int) {
	for q.state == engine.StateRTS && work < limit && q.sq.Pending() > 0 {
		if wait := q.rate.wait(n.time()); wait > 0 {
			n.held = min(n.held, wait)
			return work
		}
		before := n.counters.TxBytes
		did := n.send(q, 1)
		if did == 0 {
			return work
		}
		q.rate.charge(n.time(), n.counters.TxBytes-before)
		work += did
	}
	return work
}

// setRate gives the queue pair a rate. One that it has goes on, and what it has sent ahead of another counts.
func (n *NIC) setRate(q *qp, r engine.RateLimit) {
	old := q.rate
	switch {
	case r.Kbps == 0:
		q.rate = nil
	case old == nil:
		q.rate = newLimiter(r, n.plainMax)
	case old.limit != r:
		q.rate = newLimiter(r, n.plainMax)
		now := n.cfg.Clock.Now()
		q.rate.due = now + int64(float64(max(old.due-now, 0))*float64(old.limit.Kbps)/float64(r.Kbps))
	}
}
