package simulation

import (
	"errors"
	"slices"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// shared is a shared receive queue with what its owner believes. Its requests are taken in the order of posting,
// by whichever pair gets a frame; the completions come in the queues of those pairs.
type shared struct {
	s       *side
	q       *engine.SRQ
	foreign bool    // it is of the side's second protection domain
	recvs   []*recv // outstanding, oldest first
	free    []uint16
	limit   int  // armed
	took    int  // requests taken since the last check
	fired   int  // limit events since the last check
	lost    bool // a completion queue of a pair on it has overrun: not all that was taken is told
}

// newShared makes a shared receive queue of 1 to 7 requests.
func (s *side) newShared() *shared {
	h := &shared{s: s, foreign: s.one(4)}
	pd := s.pd
	if h.foreign {
		pd = s.pd2
	}
	var err error
	h.q, err = pd.NewSRQ(engine.SRQConfig{MaxWR: 1 + s.rnd.IntN(7), MaxSGE: 1 + s.rnd.IntN(3)})
	s.must(err)
	most, _ := h.q.Cap()
	for i := range most + 1 {
		h.free = append(h.free, uint16(i))
	}
	s.seen.events["a shared receive queue"]++
	s.shared = append(s.shared, h)
	return h
}

// pick gives a pair in the making a shared queue, or none.
func (s *side) pick() *shared {
	if !s.one(4) {
		return nil
	}
	if len(s.shared) < 2 && s.one(2) || len(s.shared) == 0 {
		return s.newShared()
	}
	return s.shared[s.rnd.IntN(len(s.shared))]
}

// act does something with the queue.
func (h *shared) act() {
	s := h.s
	switch n := s.rnd.IntN(20); {
	case n < 15:
		h.post()
	case n < 18:
		most, _ := h.q.Cap()
		limit := s.rnd.IntN(most + 2)
		err := h.q.SetLimit(limit)
		if limit <= most != (err == nil) || err != nil && !errors.Is(err, syscall.EINVAL) {
			s.fail("SRQ 0x%x of %d requests: limit %d: %v", h.q.SRQN(), most, limit, err)
		}
		if err == nil {
			h.limit = limit
		}
	default:
		used := slices.ContainsFunc(s.pairs, func(p *pair) bool { return p.srq == h })
		err := h.q.Close()
		if used != errors.Is(err, syscall.EBUSY) || !used && err != nil {
			s.fail("SRQ 0x%x, used: %v, is closed: %v", h.q.SRQN(), used, err)
		}
		if !used {
			h.end()
			s.shared = slices.DeleteFunc(s.shared, func(o *shared) bool { return o == h })
		}
	}
}

// end takes back what is left in a queue that nobody uses any more.
func (h *shared) end() {
	if len(h.recvs) > 0 {
		h.s.seen.events["requests left in a shared queue"]++
	}
	for _, r := range h.recvs {
		h.s.release(r.slot)
	}
	h.recvs = nil
}

// post posts one to four requests of any kind.
func (h *shared) post() {
	s := h.s
	most, sges := h.q.Cap()
	rs, wrs, want, cause := s.receives(most-len(h.recvs), sges, h.foreign)
	n, err := h.q.Post(wrs)
	for _, r := range rs[:want] {
		r.counter = h.free[0]
		h.free = h.free[1:]
		h.recvs = append(h.recvs, r)
	}
	s.trace("  %s: SRQ 0x%x: posted %d, %v", s.name, h.q.SRQN(), n, err)
	if n != want || cause == engine.CauseNone != (err == nil) || err != nil && !errors.Is(err, cause) {
		s.fail("SRQ 0x%x: posted %d, %v; want %d, %v", h.q.SRQN(), n, err, want, cause)
	}
	if err != nil {
		s.seen.causes[cause]++
	}
	for _, r := range rs[want:] {
		s.release(r.slot)
	}
}

// mark finds out which requests the device has taken: those whose completions can be seen.
func (h *shared) mark() {
	for _, p := range h.s.pairs {
		if p.srq != h {
			continue
		}
		h.lost = h.lost || p.overrun()
		for _, e := range p.rcq.visible() {
			if e.QPN() != p.q.QPN() || !ofRecv(e) {
				continue
			}
			if r := h.find(e.Counter()); r == nil {
				h.s.fail("SRQ 0x%x: a completion names entry %d, which is not posted", h.q.SRQN(), e.Counter())
			} else {
				h.taken(r)
			}
		}
	}
}

// ofRecv reports whether a completion is of a receive.
func ofRecv(e *ring.CQE) bool {
	return e.Op() == ring.CQERecv || e.Op() == ring.CQERecvImm || e.Op() == ring.CQERecvErr
}

func (h *shared) taken(r *recv) {
	if !r.taken {
		r.taken = true
		h.took++
	}
}

func (h *shared) find(entry uint16) *recv {
	for _, r := range h.recvs {
		if r.counter == entry {
			return r
		}
	}
	return nil
}

// complete takes out the request of an entry whose completion is polled or purged. All before it have been taken.
func (h *shared) complete(entry uint16) *recv {
	h.mark()
	return h.remove(entry)
}

func (h *shared) remove(entry uint16) *recv {
	r := h.find(entry)
	if r == nil {
		h.s.fail("SRQ 0x%x: entry %d completes, which is not posted", h.q.SRQN(), entry)
	}
	h.taken(r)
	at := slices.Index(h.recvs, r)
	h.inOrder(at)
	h.recvs = slices.Delete(h.recvs, at, at+1)
	h.free = append(h.free, entry)
	return r
}

// inOrder demands that the first n requests have been taken.
func (h *shared) inOrder(n int) {
	for _, r := range h.recvs[:n] {
		if !r.taken && !h.lost {
			h.s.fail("SRQ 0x%x: request %d is passed over", h.q.SRQN(), r.id)
		}
	}
}

// purge is for a pair that is reset or destroyed: entries of its completions come back, those of the send queue's CQ
// first, the newest of a CQ first.
func (p *pair) purge(queues []*queue) {
	if p.srq == nil {
		return
	}
	p.srq.mark()
	for _, c := range queues {
		all := c.visible()
		for i := len(all) - 1; i >= 0; i-- {
			if e := all[i]; e.QPN() == p.q.QPN() && ofRecv(e) {
				p.s.release(p.srq.remove(e.Counter()).slot)
				p.s.seen.events["a shared entry is taken back"]++
			}
		}
	}
}

// checkShared compares queues and events with the model, after each action. None both posts and takes.
func (s *side) checkShared() {
	for e, ok := s.dev.TryEvent(); ok; e, ok = s.dev.TryEvent() {
		s.event(e)
	}
	for _, p := range s.pairs {
		if p.lastWQE != p.wantLastWQE {
			s.fail("QP 0x%x: %d events that it takes nothing from its SRQ any more, want %d", p.q.QPN(), p.lastWQE, p.wantLastWQE)
		}
	}
	for _, h := range s.shared {
		h.check()
	}
}

// event books an asynchronous event.
func (s *side) event(e engine.AsyncEvent) {
	s.trace("  %s: event %v", s.name, e.Type)
	s.seen.events["event "+e.Type.String()]++
	switch e.Type {
	case engine.EventQPLastWQEReached:
		at := slices.IndexFunc(s.pairs, func(p *pair) bool { return p.q == e.QP })
		if at < 0 {
			s.fail("%s: an event of a queue pair that does not exist", s.name)
		}
		s.pairs[at].lastWQE++
	case engine.EventSRQLimitReached:
		at := slices.IndexFunc(s.shared, func(h *shared) bool { return h.q == e.SRQ })
		if at < 0 {
			s.fail("%s: an event of an SRQ that does not exist", s.name)
		}
		s.shared[at].fired++
	case engine.EventCQErr:
		if !slices.ContainsFunc(s.queues, func(c *queue) bool { return c.cq == e.CQ && c.broken }) {
			s.fail("%s: CQ 0x%x tells an overrun that the model has not seen", s.name, e.CQ.CQN())
		}
	default:
		s.fail("%s: event %v", s.name, e.Type)
	}
}

func (h *shared) check() {
	h.mark()
	untaken := 0
	for i, r := range h.recvs {
		if !r.taken {
			untaken++
		} else {
			h.inOrder(i)
		}
	}
	if n := h.q.Outstanding(); n != len(h.recvs) {
		h.s.fail("SRQ 0x%x: %d requests outstanding, the model has %d", h.q.SRQN(), n, len(h.recvs))
	}
	want := 0
	if h.took > 0 && untaken < h.limit {
		want = 1
	}
	if h.lost {
		want, h.limit = h.fired, h.q.Limit() // what was taken is not all known
	}
	if want == 1 {
		h.limit = 0
	}
	if h.fired != want || h.q.Limit() != h.limit {
		h.s.fail("SRQ 0x%x: %d limit events, limit %d; %d were taken, %d are left, want %d and %d",
			h.q.SRQN(), h.fired, h.q.Limit(), h.took, untaken, want, h.limit)
	}
	h.fired, h.took = 0, 0
}
