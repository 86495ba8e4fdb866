package echo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// Ping sends datagrams that are answered: one after the other, or with a rate
// when the schedule says, whether or not answers have come. A nil report means
// that nothing was sent; a *results.UsageError that the request cannot be met.
func Ping(ctx context.Context, c Config) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.onePath(); err != nil {
		return nil, err
	}
	if c.paced() && c.foreign() {
		return nil, results.Usage("rate", c.Rate.String(), fmt.Sprintf("is for an open loop, and --exchange %s has %s; use --exchange native, or leave the rate out", c.Exchange, lockstep))
	}
	x, err := connect(ctx, "ping", &c, exchange.ModeEcho)
	if err != nil {
		return nil, err
	}
	if err := x.begin(); err != nil {
		return x.finish(err)
	}
	x.r.LossKnown = true
	if c.paced() {
		return x.finish(x.scheduled(nil))
	}
	return x.finish(x.pingPong())
}

// lockstep is why nothing can be said of datagrams of other programs' exchanges that are on their way at a time.
const lockstep = "servers that answer in lockstep: one datagram at a time, with answers that do not say which they answer"

// over reports whether a run of c ends before datagram seq at this time.
func (x *client) over(seq uint64, now int64) bool {
	return x.c.Count != 0 && seq >= x.c.Count || x.c.Duration != 0 && now-x.start >= int64(x.c.Duration)
}

// lastAnswers is how long an interrupted run waits for answers to what it has sent, if that is not lost before.
const lastAnswers = 200 * time.Millisecond

// pingPong has one datagram on its way.
func (x *client) pingPong() error {
	x.r.RTTFrom = "send"
	for seq, now := uint64(0), x.start; !x.over(seq, now); seq++ {
		end, err := x.once(seq)
		if err != nil {
			return err
		}
		now = end
		x.r.ElapsedNS = now - x.start
		x.progress(now)
		if x.ended || x.stopped() {
			return nil
		}
	}
	return x.err()
}

// once sends a datagram and looks for its answer until that is lost.
func (x *client) once(seq uint64) (now int64, err error) {
	r, timeout := x.r, int64(x.c.Timeout)
	if err := x.put(x.peers[0], seq); err != nil {
		return 0, err
	}
	sent := x.clk.Now()
	if err := x.ep.Commit(); err != nil {
		r.SendFailed++
		return 0, err
	}
	r.Sent++
	r.SentBytes += uint64(x.c.Size)
	x.sendNS = sent - x.start
	for {
		got := x.answers(seq)
		now = x.clk.Now()
		switch {
		case got:
			x.rtt.Record(now - sent)
			return now, nil
		case now-sent >= timeout: // lost: sent and not unique
			return now, x.alive()
		case x.stopped() && now-sent >= int64(lastAnswers):
			return now, nil
		}
		if err := x.rest(timeout); err != nil {
			return now, err
		}
	}
}

// answers takes what has come, and reports whether datagram seq was answered.
func (x *client) answers(seq uint64) (got bool) {
	r := x.r
	n := x.ep.Poll(x.msgs[:])
	for i := range x.msgs[:n] {
		m := &x.msgs[i]
		of, ok := x.seqOf(m, seq+1)
		switch {
		case !ok:
			r.Foreign++
		case of != seq:
			r.Received++
			r.Late++
		case got:
			r.Received++
			r.Duplicate++
		default:
			r.Received++
			r.RecvBytes += uint64(len(m.Data))
			r.Unique++
			got = true
		}
		m.Release()
	}
	return got
}

// window is how many of the newest datagrams are remembered: an answer to an
// older one is late.
const window = 1 << 16

// scheduledRun sends when the schedule says, and measures from then. Paths share
// the schedule in turn.
type scheduledRun struct {
	*client
	paths   []pathRun
	next    uint64 // number of the next datagram
	highest uint64 // newest answered, plus 1
	seen    [window / 64]uint64
}

func (x *client) scheduled(paths []pathRun) error {
	x.r.RTTFrom = "schedule"
	return (&scheduledRun{client: x, paths: paths}).run()
}

func (s *scheduledRun) run() error {
	r, lastSent, heard, limit, timeout := s.r, s.start, s.start, s.c.Count, int64(s.c.Timeout)
	if s.c.Duration != 0 {
		if n := s.at.Due(int64(s.c.Duration) - 1); limit == 0 || n < limit {
			limit = n
		}
	}
	for halted := false; ; {
		now := s.clk.Now()
		due := s.at.Due(now - s.start)
		if limit != 0 {
			due = min(due, limit)
		}
		if s.stopped() && !halted {
			halted, limit, timeout = true, s.next, min(timeout, int64(lastAnswers))
			r.Unsent = due - s.next
		}
		if halted {
			due = s.next
		}
		if s.next < due {
			sent, err := s.send(min(due-s.next, 32))
			if err != nil {
				return err
			}
			if sent > 0 {
				lastSent = now
				s.sendNS = now - s.start
			}
		}
		got := s.collect()
		if got {
			r.ElapsedNS = s.clk.Now() - s.start
			heard = now
		} else if now-heard >= timeout && s.next > 0 {
			heard = now
			if err := s.alive(); err != nil {
				return err
			}
		}
		s.progress(now)
		done := halted || limit != 0 && s.next >= limit
		switch {
		case done && (r.Unique == s.next || now-lastSent >= timeout):
			r.ElapsedNS = max(r.ElapsedNS, lastSent-s.start)
			return s.err()
		case !got && s.next >= due:
			wait := timeout
			if !done {
				wait = s.at.At(s.next) + s.start - now
			}
			if err := s.rest(wait); err != nil {
				return err
			}
		}
	}
}

// send sends up to n datagrams with one doorbell; fewer while there is no room.
func (s *scheduledRun) send(n uint64) (sent uint64, err error) {
	r := s.r
	for ; sent < n; sent++ {
		path := 0
		if len(s.paths) > 0 {
			path = int(s.next % uint64(len(s.paths)))
		}
		if err := s.put(s.peers[path], s.next); errors.Is(err, ud.ErrFull) {
			break
		} else if err != nil {
			return sent, err
		}
		s.seen[s.next%window/64] &^= 1 << (s.next % 64)
		if len(s.paths) > 0 {
			s.paths[path].sent++
		}
		s.next++
	}
	if sent == 0 {
		return 0, nil
	}
	if err := s.ep.Commit(); err != nil {
		r.SendFailed += sent
		return sent, err
	}
	r.Sent += sent
	r.SentBytes += sent * uint64(s.c.Size)
	return sent, nil
}

// collect takes what has come.
func (s *scheduledRun) collect() bool {
	n := s.ep.Poll(s.msgs[:])
	if n == 0 {
		return false
	}
	now := s.clk.Now() - s.start
	for i := range s.msgs[:n] {
		m := &s.msgs[i]
		s.account(m, now)
		m.Release()
	}
	return true
}

func (s *scheduledRun) account(m *ud.Msg, now int64) {
	r := s.r
	seq, ok := s.seqOf(m, s.next)
	if !ok {
		r.Foreign++
		return
	}
	r.Received++
	bit, word := uint64(1)<<(seq%64), &s.seen[seq%window/64]
	switch {
	case s.next-seq > window:
		r.Late++
		return
	case *word&bit != 0:
		r.Duplicate++
		return
	}
	*word |= bit
	r.Unique++
	r.RecvBytes += uint64(len(m.Data))
	rtt := max(now-s.at.At(seq), 0)
	s.rtt.Record(rtt)
	if seq+1 < s.highest {
		r.Reordered++
	}
	s.highest = max(s.highest, seq+1)
	if len(s.paths) > 0 {
		p := &s.paths[seq%uint64(len(s.paths))]
		p.unique++
		p.rtt.Record(rtt)
	}
}
