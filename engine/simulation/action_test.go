package simulation

import (
	"errors"

	"github.com/bluering/bluering/engine"
)

// run plays the history.
func (w *world) run() {
	ends := w.one(10) && !w.opts.Impair.Any() // one side is closed early: what is sent to it then has no peer
	uneven := w.one(4)
	for step := range 100 + w.rnd.IntN(300) {
		s := w.sides[w.rnd.IntN(2)]
		if uneven && !w.one(60) {
			s = w.sides[1] // the other hardly ever looks at its wire, which fills
		}
		if ends && step == 80 {
			w.did = "close"
			w.sides[0].close()
		}
		if s.closed {
			continue
		}
		s.act()
		s.observe(nil, 0)
		s.checkOutstanding()
		s.checkShared()
	}
}

func (s *side) act() {
	if len(s.pairs) == 0 {
		s.newPair()
	}
	p := s.pairs[s.rnd.IntN(len(s.pairs))]
	c := s.queues[s.rnd.IntN(len(s.queues))]
	say := func(what string) {
		s.did = s.name + ": " + what
		s.trace("%s, QP 0x%x in %v", s.did, p.q.QPN(), p.known)
	}
	switch n := s.rnd.IntN(100); {
	case n < 32:
		say("post sends")
		p.post()
	case n < 54 && len(s.shared) > 0 && s.one(3):
		say("shared queue")
		s.shared[s.rnd.IntN(len(s.shared))].act()
	case n < 54:
		say("post receives")
		p.postRecv()
	case n < 66:
		say("progress")
		s.dev.Progress(1 + s.rnd.IntN(8))
	case n < 82:
		say("poll")
		s.poll(c, 1+s.rnd.IntN(8))
	case n < 87:
		say("time passes")
		s.clk.Advance(int64(s.rnd.IntN(20000)))
	case n < 90:
		say("modify")
		p.modify(engine.QPState(s.rnd.IntN(states)))
	case n < 95:
		say("revive")
		if p.overrun() {
			s.replace(p)
		} else {
			p.revive(engine.StateRTS)
		}
	case n < 97:
		say("deregister")
		s.deregister()
	case n < 98:
		say("flow rules")
		s.changeRules(p)
	default:
		say("destroy")
		p.destroy()
		s.newPair()
	}
}

// replace gives up a pair whose completion queue has overrun, and the queue when nobody else is on it.
func (s *side) replace(p *pair) {
	p.destroy()
	for i := 0; i < len(s.queues); i++ {
		c := s.queues[i]
		users := 0
		for _, o := range s.pairs {
			if o.scq == c || o.rcq == c {
				users++
			}
		}
		if !c.broken || users > 0 {
			continue
		}
		if c.mem.Rec.LoadCI() > uint32(len(c.mem.CQEs)) {
			s.seen.events["a completion ring wraps"]++
		}
		s.must(c.cq.Close())
		s.queues = append(s.queues[:i], s.queues[i+1:]...)
		i--
	}
	if len(s.queues) == 0 {
		s.newQueue()
	}
	s.newPair()
}

// changeRules takes a rule away or adds one.
func (s *side) changeRules(p *pair) {
	if len(p.flows) == 0 || s.one(2) {
		p.attach()
		return
	}
	f := p.flows[0]
	p.flows = p.flows[1:]
	s.must(f.Close()) // the model goes on to allow its frames: they may be in the queue
	s.seen.events["a flow rule is detached"]++
}

// deregister takes the region away that requests outstanding may name, and makes another.
func (s *side) deregister() {
	for _, c := range s.queues { // so that receives that are done are known
		if n := len(c.visible()); n > 0 {
			s.poll(c, n)
		}
	}
	s.stale = s.temp
	s.must(s.pd.Deregister(s.temp))
	for _, p := range s.pairs {
		for _, w := range p.sends {
			if w.temp && !w.sent {
				s.seen.events["a region is deregistered under a send"]++
				if w.want == engine.StatusSuccess {
					w.want = engine.StatusLocProt
				}
				w.temp = false
			}
		}
		s.spoilt(p.recvs)
	}
	for _, h := range s.shared {
		s.spoilt(h.recvs)
	}
	var err error
	s.temp, err = s.pd.Register(s.mem[:tempBytes], engine.LocalWrite)
	s.must(err)
}

// spoilt notes receives that name the region which is gone.
func (s *side) spoilt(recvs []*recv) {
	for _, r := range recvs {
		if r.temp >= 0 {
			s.seen.events["a region is deregistered under a receive"]++
			r.bad, r.temp = r.temp, -1
		}
	}
}

// checkOutstanding compares the engine's count with the model's.
func (s *side) checkOutstanding() {
	for _, p := range s.pairs {
		if sends, recvs := p.q.Outstanding(); sends != len(p.sends) || recvs != len(p.recvs) {
			s.fail("QP 0x%x: %d sends and %d receives outstanding, the model has %d and %d", p.q.QPN(), sends, recvs, len(p.sends), len(p.recvs))
		}
	}
}

// settle ends everything that is outstanding: all pairs are flushed, all completions polled.
func (s *side) settle() {
	for _, p := range s.pairs {
		if p.known != engine.StateErr && p.known != engine.StateReset {
			p.modify(engine.StateErr)
		}
	}
	for rounds, again := 0, true; again; rounds++ {
		if rounds > 10000 {
			s.fail("%s never comes to rest", s.name)
		}
		again = s.nic.NIC.Step(64) > 0
		s.observe(nil, 0)
		for _, c := range s.queues {
			for len(c.visible()) > 0 {
				s.poll(c, 8)
				again = true
			}
		}
	}
	for _, p := range s.pairs {
		if p.overrun() {
			continue
		}
		if p.owed != 0 {
			s.fail("QP 0x%x: %d error completions are missing", p.q.QPN(), p.owed)
		}
		if len(p.recvs) != 0 {
			s.fail("QP 0x%x: %d receives never complete", p.q.QPN(), len(p.recvs))
		}
		for _, w := range p.sends {
			if w.signaled || !w.sent {
				s.fail("QP 0x%x: send %d never completes: signaled %v, sent %v", p.q.QPN(), w.id, w.signaled, w.sent)
			}
		}
	}
}

// finish takes the leftovers of a settled side away: successful sends without Signaled, and what an overrun lost.
func (s *side) finish() {
	for _, p := range s.pairs {
		p.forget()
	}
	for _, h := range s.shared {
		h.end()
	}
	for _, c := range s.queues {
		if c.mem.Rec.LoadCI() > uint32(len(c.mem.CQEs)) {
			s.seen.events["a completion ring wraps"]++
		}
	}
}

// expect compares what a call for several requests did with what it should have done.
func (p *pair) expect(n int, err error, want int, cause engine.Cause) {
	p.s.trace("  %d, %v", n, err)
	if n != want || cause == engine.CauseNone != (err == nil) || err != nil && !errors.Is(err, cause) {
		p.s.fail("QP 0x%x in %v: posted %d, %v; want %d, %v", p.q.QPN(), p.known, n, err, want, cause)
	}
	if err != nil {
		p.s.seen.causes[cause]++
	}
}
