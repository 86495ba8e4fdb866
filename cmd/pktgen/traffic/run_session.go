package traffic

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
)

// session is a run under way: the loops around a sender, a receiver or both.
//
//	one goroutine   send a round, receive a burst, pass the time   (loop:)
//	two             the sender's and the receiver's own loop       (wires)
//
// The sender publishes its counts once a round in shared; the receiver, or the
// sender when there is none, feeds the interval records.
type session struct {
	clk     clock.Clock
	send    *sender   // nil: only receive
	recv    *receiver // nil: only send
	recvErr error
	shared  sharedCounts
	stop    *atomic.Bool // set from outside: end early
	feed    *intervalFeed
	drainNS int64
	count   uint64 // a receiver alone ends after so many
	finite  bool   // a receiver alone ends at the first empty poll
	endNS   int64  // a receiver alone ends at this reading; 0: never

	pending int   // after the last send: frames that the device still has, the sender's goroutine owns these three
	movedAt int64 // reading at which they were fewer
	stuck   int   // rounds since

	closing    bool // the sender's last hello is to be sent; the sender's goroutine owns it
	silent     int  // empty polls since the drain is over; the receiver's goroutine owns it
	awaitHello bool // the receiver waits for it

	newest   uint64 // frames of ours when one was last seen to have come, after the sender's end,
	newestAt int64  // and when: a slow receiver is not a network that never falls silent

	recvStalls  stallLedger
	interrupted bool
	endedAt     int64 // reading at which the sender, or a receiver alone, was to end; 0: not yet
}

// sharedCounts goes from the sender's goroutine to the receiver's. ended is
// stored last: who loads it true sees the final counts.
type sharedCounts struct {
	sent, bytes, late atomic.Uint64
	endedAt           atomic.Int64
	ended             atomic.Bool
}

// sendStep runs one round and publishes. When nothing is left to send it waits
// for the device to let go of the last frame: there the drain begins.
func (x *session) sendStep(now int64) int {
	s := x.send
	if s == nil || x.shared.ended.Load() {
		return 0
	}
	n := s.step(now, x.stop.Load())
	if n > 0 {
		x.shared.sent.Store(s.pacer.sent)
		x.shared.bytes.Store(s.port.SentBytes())
		x.shared.late.Store(s.pacer.late)
	}
	if !s.ended {
		return n
	}
	if x.endedAt == 0 {
		x.interrupted, x.endedAt = s.cut, now
		x.movedAt = now
	}
	if s.err != nil || x.taken(now) {
		if x.closing { // before the drain, so that it is received, too
			x.hello(helloAfter)
			now = x.clk.Now()
		}
		x.shared.endedAt.Store(now)
		x.shared.ended.Store(true)
	}
	return n
}

// taken reports that the device has let go of the last frame, or that nothing
// has gone for so long that nothing will: for stuckNS and some rounds, because
// a process that was not running has not waited.
func (x *session) taken(now int64) bool {
	const stuckNS, stuckRounds = 1e9, 64
	if p := x.send.port.Pending(); p != x.pending {
		x.pending, x.movedAt, x.stuck = p, now, 0
	} else {
		x.stuck++
	}
	return x.pending == 0 || x.stuck >= stuckRounds && now-x.movedAt >= max(stuckNS, x.drainNS)
}

// receiveStep takes one burst; an error ends the receiving.
func (x *session) receiveStep() int {
	if x.recv == nil || x.recvErr != nil {
		return 0
	}
	n, err := x.recv.step()
	x.recvErr = err
	return n
}

// arrived reports that every frame sent so far has come.
func (x *session) arrived() bool {
	return x.recv == nil || x.recv.unique() >= x.shared.sent.Load()
}

// closed reports that the sender's last hello has come, if there is one.
func (x *session) closed() bool { return !x.awaitHello || x.recv.totalKnown }

// receiveDone reports that the receiver need not wait any longer, given that
// its last poll was empty or not. The drain has an end only in silence: a
// process that was not running for a while looks some more times, because its
// last look may be older than what has come since.
func (x *session) receiveDone(now int64, empty bool) bool {
	const silentRounds = 64
	if x.recvErr != nil {
		return true
	}
	over := x.drained(now, empty)
	if !over || !empty {
		x.silent = 0
	} else {
		x.silent++
	}
	return over && (!empty || x.silent >= silentRounds || x.send == nil && x.endedAt != 0 || x.complete())
}

// complete reports that all has come that will.
func (x *session) complete() bool {
	if x.send != nil {
		return x.shared.ended.Load() && x.arrived() && x.closed()
	}
	return x.finite || x.count > 0 && x.recv.unique() >= x.count || x.recv.totalKnown && x.recv.unique() >= x.recv.total
}

// drained reports that everything has come, or that the drain is over.
func (x *session) drained(now int64, empty bool) bool {
	if x.send == nil {
		return x.aloneDone(now, empty)
	}
	if !x.shared.ended.Load() {
		return false
	}
	const hardNS = 1e9 // a network that never falls silent, and brings nothing new of ours
	if n := x.recv.unique(); x.recv.tagged && n != x.newest {
		x.newest, x.newestAt = n, now
	}
	waited := now - x.shared.endedAt.Load()
	return empty && (x.arrived() && x.closed() || waited >= x.drainNS) || min(waited, now-x.newestAt) >= x.drainNS+hardNS
}

// aloneDone is drained for a receiver whose sender is elsewhere: it ends by
// signal, by time, by count, at the end of a recording, or a drain after the
// sender's last hello. By signal and by time it reads what has arrived before
// it ends: the kernel has counted those frames, and they are no ring drops.
func (x *session) aloneDone(now int64, empty bool) bool {
	const backlogNS = 3e9 // foreign frames without an end
	r := x.recv
	if x.endedAt == 0 && (x.stop.Load() || x.endNS > 0 && now >= x.endNS) {
		x.interrupted, x.endedAt = x.endNS == 0 || now < x.endNS, now
	}
	switch {
	case x.endedAt != 0 && (empty || r.last > x.endedAt || now-x.endedAt >= backlogNS):
		return true
	case x.count > 0 && r.unique() >= x.count:
		return true
	case x.finite && empty:
		return true
	case r.totalKnown && empty:
		return r.unique() >= r.total || now-r.last >= x.drainNS
	}
	return false
}

// runInline is the loop of a session in one goroutine.
func (x *session) runInline() {
	idle := newIdler(x.clk)
	for {
		now := x.clk.Now()
		if x.send == nil {
			x.recvStalls.tick(now)
		}
		sent := x.sendStep(now)
		got := x.receiveStep()
		x.feed.offer(x, now)
		if x.allDone(now, got == 0) {
			return
		}
		if sent+got == 0 {
			x.pass(idle, now)
		} else {
			idle.breathe(now)
		}
	}
}

func (x *session) allDone(now int64, empty bool) bool {
	if x.recv == nil {
		return x.shared.ended.Load()
	}
	return x.receiveDone(now, empty)
}

// pass lets time go by until the next frame is due. The device gets to work on
// the way: completions, and frames the wire would not take.
func (x *session) pass(idle *idler, now int64) {
	if x.send == nil {
		idle.until(now, now+1000, false)
		return
	}
	x.send.port.Pending()
	if x.send.ended {
		idle.until(now, now+1000, false)
		return
	}
	p := x.send.pacer
	if idle.until(now, p.nextDue(), p.sent == p.released && x.arrived()) {
		x.send.stalls.rest()
	}
}

// runApart is the session in two goroutines; the sender's is the caller's.
func (x *session) runApart() {
	var wg sync.WaitGroup
	wg.Go(x.receiveLoop)
	idle := newIdler(x.clk)
	for !x.shared.ended.Load() {
		now := x.clk.Now()
		if x.sendStep(now) > 0 {
			idle.breathe(now)
			continue
		}
		x.send.port.Pending()
		p := x.send.pacer
		if idle.until(now, p.nextDue(), !x.send.ended && p.sent == p.released) {
			x.send.stalls.rest()
		}
	}
	wg.Wait()
}

func (x *session) receiveLoop() {
	idle := newIdler(x.clk)
	for {
		now := x.clk.Now()
		x.recvStalls.tick(now)
		n := x.receiveStep()
		x.feed.offer(x, now)
		if x.receiveDone(now, n == 0) {
			return
		}
		if n == 0 {
			idle.until(now, now+1000, false)
		} else {
			idle.breathe(now)
		}
	}
}

// counts is the session's counts so far, as the goroutine of its feed sees
// them. What has arrived is read before what was sent, so that lost is never
// below zero.
func (x *session) counts() (c Counts) {
	if x.recv != nil {
		x.recv.counts(&c)
	}
	c.Sent, c.SentBytes, c.Late = x.shared.sent.Load(), x.shared.bytes.Load(), x.shared.late.Load()
	if x.recv == nil {
		return c
	}
	switch {
	case x.send != nil:
		c.Lost = c.Sent - min(c.Sent, c.Unique)
	case x.recv.totalKnown:
		c.Lost = x.recv.total - min(x.recv.total, c.Unique)
	case x.recv.tagged:
		c.Lost = x.recv.tracker.gaps()
	}
	return c
}

// idler passes the time between rounds: it spins, yields now and then so that
// the runtime and other goroutines get on, and sleeps only when nothing is on
// its way and the next frame is far. A virtual clock is set to the time asked
// for.
type idler struct {
	virtual *clock.Virtual
	spins   int
	yielded int64 // when a busy loop did so last
}

const (
	yieldSpins   = 256
	sleepFromNS  = 2_000_000
	sleepEarlyNS = 1_000_000 // wake so much ahead: a sleep ends late
	sleepMostNS  = 5_000_000 // a signal is heard after so long at most
	breatheNS    = 5_000_000 // half of what the runtime preempts a goroutine after
)

func newIdler(clk clock.Clock) *idler {
	v, _ := clk.(*clock.Virtual)
	return &idler{virtual: v}
}

// until passes some of the time from now to due and reports whether it slept.
// quiet permits it to.
func (d *idler) until(now, due int64, quiet bool) bool {
	if d.virtual != nil {
		if due > now {
			d.virtual.Set(due)
		} else {
			d.virtual.Advance(1000)
		}
		return false
	}
	if quiet && due-now > sleepFromNS {
		time.Sleep(time.Duration(min(due-now-sleepEarlyNS, sleepMostNS)))
		return true
	}
	if d.spins++; d.spins%yieldSpins == 0 {
		runtime.Gosched()
	}
	return false
}

// breathe yields now and then in a loop that is always busy. Not to do so is
// dear: the runtime's monitor preempts a goroutine that has run for 10 ms, and
// after each time looks every 20 us for a while, on the loop's own processor
// when there is no other.
func (d *idler) breathe(now int64) {
	if d.virtual == nil && now-d.yielded > breatheNS {
		d.yielded = now
		runtime.Gosched()
	}
}

// intervalFeed hands interval records from a hot loop to the goroutine that
// shows them. The loop makes one when its time has come and the last one was
// taken, and waits for nobody.
type intervalFeed struct {
	everyNS, next, start int64
	out                  chan intervalRecord
}

type intervalRecord struct {
	at      int64 // clock reading
	counts  Counts
	latency latency.Snapshot
}

func newIntervalFeed(every time.Duration, start int64) *intervalFeed {
	if every <= 0 {
		return nil
	}
	return &intervalFeed{everyNS: int64(every), next: start + int64(every), start: start, out: make(chan intervalRecord, 1)}
}

func (f *intervalFeed) offer(x *session, now int64) {
	if f == nil || now < f.next || len(f.out) == cap(f.out) {
		return
	}
	f.next += (now - f.next + f.everyNS) / f.everyNS * f.everyNS
	rec := intervalRecord{at: now, counts: x.counts()}
	if x.recv != nil {
		if x.recv.tagged { // what is on its way is not lost
			rec.counts.Lost = x.recv.tracker.gaps()
		}
		rec.latency = x.recv.latency.Swap()
	}
	f.out <- rec
}

// show passes the records on until the feed is closed, and gathers their
// latency in total.
func (f *intervalFeed) show(x *session, total *latency.Snapshot, call func(*Interval)) {
	var before Counts
	at := f.start
	for rec := range f.out {
		iv := &Interval{Schema: Schema, Record: "interval", StartNS: at - f.start, ElapsedNS: rec.at - f.start, Counts: rec.counts}
		iv.Rates = ratesBetween(&before, &rec.counts, rec.at-at)
		iv.Latency, iv.LatencySamples = results.Summarize(&rec.latency), rec.latency.Count()
		before, at = rec.counts, rec.at
		total.Merge(rec.latency) // one geometry: cannot fail
		if x.recv != nil {
			x.recv.latency.Recycle(&rec.latency)
		}
		if call != nil {
			call(iv)
		}
	}
}

func ratesBetween(a, b *Counts, ns int64) Rates {
	d := Counts{Sent: b.Sent - a.Sent, SentBytes: b.SentBytes - a.SentBytes, Received: b.Received - a.Received, RecvBytes: b.RecvBytes - a.RecvBytes}
	return RatesOf(&d, ns)
}
