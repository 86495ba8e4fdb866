package traffic

import (
	"math"

	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
)

// stampOf is the tag's time ns after the epoch.
func stampOf(ns int64) uint32 { return uint32(uint64(ns) / proto.TickNS) }

// maxCatchUp is how many missed frames a late sender sends at once before the
// rest of its schedule slips.
const maxCatchUp = 64

// txQueue is one send queue. Send takes up to n frames and returns how many it
// took: fewer mean that the queue is full now. times are the scheduled times
// for their tags, one each or one for all.
type txQueue interface {
	Send(n int, times []uint32) (int, error)
}

// pacer decides what leaves when. Frame k of the run belongs to queue
// k mod queues and to slot k of one absolute schedule; nothing is measured
// from the last departure, so nothing accumulates. It has no clock: round is
// told the time.
//
//	          sent          released = due, at most 64 ahead of sent and of what waits for its group
//	frames ────┼──────────────┼───────────────────▶ k
//	                          └ beyond: late, and the schedule slips
//
// One goroutine owns a pacer and its queues.
type pacer struct {
	sched    clock.Schedule
	paced    bool
	onLate   OnLate
	burst    int
	group    uint64 // frames that leave together, but for the run's last
	queues   []pacedQueue
	count    uint64 // frames in all
	duration int64  // end of the schedule in ns from the start
	start    int64  // clock reading of slot 0
	epoch    int64  // clock reading the tags count from

	slipNS   int64  // added to the schedule of every frame not sent yet
	skipped  uint64 // slots left out (LateSkip)
	firstK   uint64 // the slot of frame 0
	released uint64
	sent     uint64

	late         uint64
	slips        uint64
	longestBurst uint64
	first, last  int64 // departures, as clock readings
	gapError     *latency.Recorder

	times [maxCatchUp]uint32
	slots [maxCatchUp]int64
}

// pacedQueue is one queue's share: frames first, first+Q, first+2Q, ...
type pacedQueue struct {
	tx   txQueue
	sent uint64
	cur  clock.Cursor
}

type pacerConfig struct {
	Rate       clock.Rate // Num 0: max
	Count      uint64     // 0: no limit
	DurationNS int64      // 0: no limit
	Burst      int        // 0: 64
	OnLate     OnLate
	Group      int    // frames of a queue that leave together, at most 64; 0: 1
	FirstK     uint64 // the schedule's first slot; a test starts far out
}

func newPacer(c pacerConfig, queues []txQueue) (*pacer, error) {
	p := &pacer{
		onLate: c.OnLate, burst: maxCatchUp, count: math.MaxUint64, duration: math.MaxInt64,
		queues: make([]pacedQueue, len(queues)), firstK: c.FirstK,
		gapError: latency.New(latency.Options{}),
	}
	if c.Burst > 0 {
		p.burst = min(c.Burst, maxCatchUp)
	}
	p.group = uint64(max(c.Group, 1))
	p.burst = max(p.burst-p.burst%int(p.group), int(p.group))
	if c.Count > 0 {
		p.count = c.Count
	}
	if c.DurationNS > 0 {
		p.duration = c.DurationNS
	}
	if c.Rate.Num > 0 {
		var err error
		if p.sched, err = clock.NewSchedule(c.Rate); err != nil {
			return nil, err
		}
		p.paced = true
	}
	for q := range queues {
		p.queues[q].tx = queues[q]
	}
	p.aim()
	return p, nil
}

// aim puts every queue's cursor on the slot of its next frame.
func (p *pacer) aim() {
	if !p.paced {
		return
	}
	n := uint64(len(p.queues))
	for q := range p.queues {
		s := &p.queues[q]
		s.cur = p.sched.Cursor(p.slot(s.sent*n+uint64(q)), n)
	}
}

// slot is the slot of frame k, which has not been sent yet.
func (p *pacer) slot(k uint64) uint64 { return p.firstK + p.skipped + k }

// begin fixes the start of the schedule and the epoch of the tags.
func (p *pacer) begin(start, epoch int64) { p.start, p.epoch = start, epoch }

// end is the number of frames the run has as things stand: all of the count,
// and of a paced duration those whose slot lies in it.
func (p *pacer) end() uint64 {
	count := p.count - min(p.count, p.skipped)
	if !p.paced || p.duration == math.MaxInt64 {
		return count
	}
	return min(count, p.dueBy(p.duration-1-p.slipNS))
}

// dueBy is how many frames have a slot up to ns from the start.
func (p *pacer) dueBy(ns int64) uint64 {
	due := p.sched.Due(ns)
	return due - min(due, p.slot(0))
}

// done reports that nothing is left to send at time now. A run by duration ends
// a second late at most when the wire takes nothing.
func (p *pacer) done(now int64) bool {
	const graceNS = 1e9
	if p.sent >= p.end() {
		return true
	}
	if p.duration == math.MaxInt64 {
		return false
	}
	if !p.paced {
		return now-p.start >= p.duration
	}
	return now-p.start-graceNS >= p.duration
}

// unsent is how many slots up to now, or up to the run's end, were given up.
func (p *pacer) unsent(now int64) uint64 {
	if !p.paced {
		return 0
	}
	planned := p.sched.Due(min(now-p.start, p.duration-1))
	planned = min(p.count, planned-min(planned, p.firstK))
	return planned - min(planned, p.sent)
}

// nextDue is the clock reading at which round has something to do; now or less
// when it has already.
func (p *pacer) nextDue() int64 {
	if !p.paced || p.released-p.sent >= p.group*uint64(len(p.queues)) || p.sent < p.released && p.released == p.end() {
		return p.start
	}
	return p.start + p.slipNS + p.sched.At(p.slot(p.released))
}

// round sends what is due at time now and returns how many frames left.
func (p *pacer) round(now int64) (int, error) {
	if !p.paced {
		return p.roundMax(now)
	}
	slip, skip := p.release(now)
	before := p.sent
	var err error
	for q := range p.queues {
		if err = p.sendDue(q, now); err != nil {
			break
		}
	}
	n := p.sent - before
	if n > 1 && n > p.longestBurst {
		p.longestBurst = n
	}
	if slip > 0 || skip > 0 {
		p.slips++
		p.slipNS += slip
		p.skipped += skip
		p.aim()
	}
	return int(n), err
}

// release lets frames go whose slot has come. When more are due than may be
// caught up, it says by how much the schedule is to move (or how many slots it
// is to leave out) once the released ones are sent at their own slots.
func (p *pacer) release(now int64) (slipNS int64, skip uint64) {
	end := p.end()
	due := min(p.dueBy(now-p.start-p.slipNS), end)
	ahead := uint64(maxCatchUp)
	if p.onLate == LateSlip {
		ahead = 1
	}
	ahead += (p.group - 1) * uint64(len(p.queues)) // that many may wait for the rest of their groups
	limit := p.sent + ahead
	if due > limit {
		p.late += due - limit
		slot := p.slot(limit)
		if p.onLate == LateSkip {
			skip = due - limit
		} else {
			gap := p.sched.At(slot) - p.sched.At(slot-1)
			slipNS = now + gap - (p.start + p.slipNS + p.sched.At(slot))
		}
		due = limit
	}
	p.released = max(p.released, due)
	return max(slipNS, 0), skip
}

// sendDue sends queue q's released frames, each at its own slot's time.
func (p *pacer) sendDue(q int, now int64) error {
	s := &p.queues[q]
	share := p.share(q, p.released)
	offset := p.start + p.slipNS
	for s.sent < share {
		due := share - s.sent
		if p.group > 1 && share != p.share(q, p.end()) {
			if due -= due % p.group; due == 0 {
				return nil // the rest of the group is not due yet
			}
		}
		n := int(min(due, uint64(p.burst)))
		cur := s.cur
		for i := range n {
			ns := cur.NS()
			p.slots[i] = offset + ns
			p.times[i] = stampOf(offset + ns - p.epoch)
			cur.Next()
		}
		took, err := s.tx.Send(n, p.times[:n])
		if took == n {
			s.cur = cur
		} else {
			for range took {
				s.cur.Next()
			}
		}
		p.depart(s, took, now)
		for _, slot := range p.slots[:took] {
			p.gapError.Record(now - slot)
		}
		if err != nil || took < n {
			return err
		}
	}
	return nil
}

// share is how many of the run's first k frames are queue q's.
func (p *pacer) share(q int, k uint64) uint64 {
	n := uint64(len(p.queues))
	if k <= uint64(q) {
		return 0
	}
	return (k-uint64(q)-1)/n + 1
}

// roundMax offers every queue a burst, all with the one reading now as time.
func (p *pacer) roundMax(now int64) (int, error) {
	p.times[0] = stampOf(now - p.epoch)
	before := p.sent
	for q := range p.queues {
		s := &p.queues[q]
		n := int(min(p.share(q, p.count)-s.sent, uint64(p.burst)))
		if n == 0 {
			continue
		}
		took, err := s.tx.Send(n, p.times[:1])
		p.depart(s, took, now)
		if err != nil {
			return int(p.sent - before), err
		}
	}
	return int(p.sent - before), nil
}

// depart books n departures of queue s at time now.
func (p *pacer) depart(s *pacedQueue, n int, now int64) {
	if n == 0 {
		return
	}
	if p.sent == 0 {
		p.first = now
	}
	p.last = now
	s.sent += uint64(n)
	p.sent += uint64(n)
}
