package traffic

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
)

// ErrInconclusive is wrapped when a run ended but proves nothing: frames were
// dropped on this machine's side of the wire. Its report is complete.
var ErrInconclusive = errors.New("inconclusive")

// token is the run's: the one asked for, else one that starts at now. The plan
// then carries it as text.
func (p *Plan) token(now int64) (Token, error) {
	t := NewToken(now, max(p.Flows, 1))
	if p.Config.Run != "" {
		var err error
		if t, err = ParseToken(p.Config.Run); err != nil {
			return t, err
		}
		if p.TX != nil && t.Flows != p.Flows {
			return t, results.Usage("run", p.Config.Run, fmt.Sprintf("is for %d flows and this run has %d; use --flows %d, or --queues if there are no flows", t.Flows, p.Flows, t.Flows))
		}
		p.Flows = t.Flows
	} else if p.TX == nil && p.Tagged {
		return t, results.Usage("run", "", "a receiver alone needs the token that tx prints; use --run TOKEN, or --no-tag for counts only")
	}
	if p.TX != nil && t.Boot == "" {
		t.Boot = bootID() // the sender's clock is the tags' clock
	}
	if p.TX != nil && (t.StartNS == 0 || t.StartNS > now) {
		t.StartNS = now
	}
	p.Config.Run = t.String()
	return t, nil
}

// runPorts is what a run drives. apart asks for a goroutine of its own for the
// receiver.
type runPorts struct {
	out   outPort // nil: only receive
	in    inPort  // nil: only send
	apart bool
	// finite: what arrives has an end, and a poll is empty only there.
	finite bool
	drops  func(map[string]uint64) (ring uint64) // adds the drops by reason
}

// execute is Run behind the opened ports: deterministic under a virtual clock
// unless the receiver is apart.
func execute(ctx context.Context, p *Plan, token Token, ports runPorts, clk clock.Clock) (*Report, error) {
	x, err := newSession(p, token, ports, clk)
	if err != nil {
		return nil, err
	}
	report := NewReport(p)
	host := readHostStalls()
	x.stop.Store(ctx.Err() != nil) // the function below takes its time
	stop := context.AfterFunc(ctx, func() { x.stop.Store(true) })
	defer stop()

	if p.Config.Hello && ports.out != nil {
		x.hello(helloBefore)
		x.closing = p.Tagged // without a tag there are no marks
		x.awaitHello = x.closing
	}
	start := clk.Now()
	if x.send != nil {
		x.send.pacer.begin(start, token.StartNS)
	}
	if x.send == nil && p.Config.Duration > 0 {
		x.endNS = start + int64(p.Config.Duration)
	}
	total := x.loops(p, start, ports.apart)
	x.settle()
	x.fill(report, total, clk.Now())
	report.Stalls = x.stalls(host)
	ring := uint64(0)
	if ports.drops != nil {
		ring = ports.drops(report.Drops)
	}
	if n := report.Drops[engine.DropTruncated.String()]; n > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("%d frames were longer than a slot of the receive ring and not looked at: another's, unless slot= is too small for this run's, or the sender's ?gso=auto wants the receiver's", n))
	}
	return report, x.conclude(report, ring)
}

func newSession(p *Plan, token Token, ports runPorts, clk clock.Clock) (*session, error) {
	c := &p.Config
	x := &session{clk: clk, drainNS: int64(c.Drain), count: p.Count, finite: ports.finite, stop: new(atomic.Bool)}
	if ports.out != nil {
		pacer, err := newPacer(pacerConfig{Rate: p.Rate, Count: p.Count, DurationNS: int64(c.Duration), Burst: c.Burst, OnLate: c.OnLate, Group: c.TSO.segments()}, ports.out.Queues())
		if err != nil {
			return nil, results.Usage("rate", c.Rate.String(), err.Error())
		}
		x.send = &sender{pacer: pacer, port: ports.out}
	}
	if ports.in != nil {
		token.Flows = max(token.Flows, 1)
		limit := uint64(0)
		if ports.out == nil {
			limit = p.Count
		}
		r, err := newReceiver(receiverConfig{
			Limit: limit,
			Token: token, Tagged: p.Tagged, EveryN: c.Latency.EveryN, Count: p.Count,
			NoEpoch: ports.out == nil && !token.SameClock(),
		}, ports.in, clk)
		if err != nil {
			return nil, err
		}
		x.recv = r
	}
	return x, nil
}

// loops runs the session to its end and returns all latency recorded.
func (x *session) loops(p *Plan, start int64, apart bool) *latency.Snapshot {
	total := new(latency.Snapshot)
	shown := make(chan bool)
	x.feed = newIntervalFeed(p.Config.Interval, start)
	if x.feed != nil {
		go func() {
			x.feed.show(x, total, p.Config.OnInterval)
			close(shown)
		}()
	}
	if apart && x.send != nil && x.recv != nil {
		x.runApart()
	} else {
		x.runInline()
	}
	if x.feed != nil {
		close(x.feed.out)
		<-shown
	}
	if x.recv != nil {
		total.Merge(x.recv.latency.Swap()) // one geometry: cannot fail
	}
	return total
}

// hello sends a marked frame; a port that fails in it fails the run.
func (x *session) hello(kind uint32) {
	if x.send.err != nil {
		return
	}
	if err := x.send.port.Hello(kind, x.send.pacer.sent); err != nil {
		x.send.err, x.send.ended = err, true
		x.shared.ended.Store(true)
	}
}

// settle asks what has become of the last frames: a medium may refuse them at the end.
func (x *session) settle() {
	s := x.send
	if s == nil {
		return
	}
	s.failed, s.failedBytes = s.port.Failed()
	if s.err == nil {
		s.err = s.port.Err()
	}
}

// fill writes everything the session counted.
func (x *session) fill(r *Report, total *latency.Snapshot, now int64) {
	r.Counts = x.counts()
	r.LatencyFrom = "none"
	if s := x.send; s != nil {
		x.fillSent(r, s)
	}
	if x.recv == nil {
		r.Finish()
		return
	}
	if x.send == nil {
		r.ElapsedNS = x.recv.last - x.recv.first
	}
	r.LatencySamples = total.Count()
	r.Latency = results.Summarize(total)
	if r.Latency != nil {
		r.LatencyFrom = "schedule"
		if x.send != nil && !x.send.pacer.paced {
			r.LatencyFrom = "burst"
		}
		r.LatencyOK = x.send != nil || x.recv.clockKnown
		if text, err := total.Encode(); err == nil {
			r.LatencyHDR = text
		}
	}
	if !r.LatencyOK && r.Latency != nil {
		r.Notes = append(r.Notes, "latency counts from the fastest frame's so far: the sender's clock is not this machine's")
	}
	if x.recv.tagged {
		r.ReorderExtentMaxSeqs, r.WindowPackets = x.recv.tracker.extentMax, x.recv.tracker.window
	}
	if x.send == nil && x.recv.tagged && !x.recv.totalKnown {
		r.Notes = append(r.Notes, "no totals from the sender (--hello): lost counts gaps, not what was lost at the tail")
	}
	r.Finish()
}

// fillSent writes the sender's part.
func (x *session) fillSent(r *Report, s *sender) {
	p := s.pacer
	r.SendFailed, r.Late, r.Unsent = s.failed, p.late, p.unsent(x.endedAt)
	r.Sent = p.sent - min(p.sent, s.failed)
	bytes := s.port.SentBytes()
	r.SentBytes = bytes - min(bytes, s.failedBytes)
	r.ElapsedNS = p.last - p.first
	r.LongestBurst = p.longestBurst
	gaps := p.gapError.Swap()
	r.GapError = results.Summarize(&gaps)
	if r.GapError != nil {
		if text, err := gaps.Encode(); err == nil {
			r.GapErrorHDR = text
		}
	}
	for q := range p.queues {
		r.Queues = append(r.Queues, QueueCounts{Queue: q, Sent: p.queues[q].sent})
	}
	if x.recv != nil {
		r.Lost = r.Sent - min(r.Sent, r.Unique)
		if r.Unique > r.Sent {
			r.Notes = append(r.Notes, fmt.Sprintf("%d more frames arrived than were sent", r.Unique-r.Sent))
		}
	}
}

// stalls sums up what disturbed the loops.
func (x *session) stalls(before hostStalls) Stalls {
	after := readHostStalls()
	out := Stalls{GCCycles: after.gc - before.gc, Involuntary: after.involuntary - before.involuntary}
	if x.send != nil {
		out.Count, out.LongestNS = x.send.stalls.count, x.send.stalls.longest
	}
	out.Count += x.recvStalls.count
	out.LongestNS = max(out.LongestNS, x.recvStalls.longest)
	return out
}

// hostStalls are the process's counts of what takes time away.
type hostStalls struct{ gc, involuntary uint64 }

func readHostStalls() hostStalls {
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	return hostStalls{gc: uint64(gc.NumGC), involuntary: involuntarySwitches()}
}

// portError says which port an error is of, and not which layers it came through.
func portError(p *Port, err error) error {
	if err == nil || p == nil {
		return err
	}
	return fmt.Errorf("port %q: %w", p.URI, results.Plain(p.URI, err))
}

// nobodyThere is the error of a run whose every frame met a loop without another end.
func nobodyThere(r *Report) error {
	if n := r.Drops[engine.DropNoPeer.String()]; n == 0 || n < r.Sent || r.TX == nil {
		return nil
	}
	return fmt.Errorf("nobody has the other port of %s, and all frames were dropped (no_peer): a loop lives within one process; use --rx %s", r.TX.URI, r.TX.Name)
}

// conclude names the outcome.
func (x *session) conclude(r *Report, ring uint64) error {
	r.RingDrops = ring
	var err error
	if x.send != nil {
		err = portError(r.TX, x.send.err)
	}
	err = errors.Join(err, portError(r.RX, x.recvErr), nobodyThere(r))
	switch {
	case err != nil:
		r.Outcome, r.Error = "failed", err.Error()
		return fmt.Errorf("run ended early: %w", err)
	case x.interrupted:
		r.Outcome = "interrupted"
	}
	if ring > 0 {
		note := fmt.Sprintf("inconclusive: this machine dropped %d frames in its receive ring; lower the rate", ring)
		r.Notes, r.Error = append(r.Notes, note), note
		return fmt.Errorf("%w: %d frames dropped in the receive ring of this machine", ErrInconclusive, ring)
	}
	return nil
}
