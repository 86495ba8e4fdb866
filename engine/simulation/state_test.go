package simulation

import (
	"errors"
	"syscall"

	"github.com/bluering/bluering/engine"
)

const states = int(engine.StateErr) + 1

// legal are the moves that an owner may make.
var legal = [states][]engine.QPState{
	engine.StateReset: {engine.StateReset, engine.StateInit},
	engine.StateInit:  {engine.StateReset, engine.StateErr, engine.StateInit, engine.StateRTR},
	engine.StateRTR:   {engine.StateReset, engine.StateErr, engine.StateRTS},
	engine.StateRTS:   {engine.StateReset, engine.StateErr, engine.StateRTS, engine.StateSQD},
	engine.StateSQD:   {engine.StateReset, engine.StateErr, engine.StateRTS, engine.StateSQD},
	engine.StateSQE:   {engine.StateReset, engine.StateErr, engine.StateRTS},
	engine.StateErr:   {engine.StateReset, engine.StateErr},
}

func isLegal(from, to engine.QPState) bool {
	for _, s := range legal[from] {
		if s == to {
			return true
		}
	}
	return false
}

// modify asks for a move, legal or not.
func (p *pair) modify(to engine.QPState) {
	s := p.s
	from := p.known
	a := engine.QPAttr{Port: 1, QKey: gramKey, SQPSN: 0xffffff - uint32(p.id)}
	var mask engine.AttrMask
	switch {
	case from == engine.StateReset && to == engine.StateInit:
		mask = engine.AttrPort
		if p.typ == engine.UD {
			mask |= engine.AttrPKeyIndex | engine.AttrQKey
		}
	case from == engine.StateRTR && to == engine.StateRTS && p.typ == engine.UD:
		mask = engine.AttrSQPSN
	}
	s.trace("  QP 0x%x: %v to %v", p.q.QPN(), from, to)
	if !isLegal(from, to) {
		if err := p.q.Modify(to, a, mask); !errors.Is(err, syscall.EINVAL) {
			s.fail("QP 0x%x: the move from %v to %v is not refused: %v", p.q.QPN(), from, to, err)
		}
		s.seen.illegal[from][to]++
		return
	}
	if to == engine.StateReset {
		p.forget()
	}
	if to == engine.StateErr && from != to && p.srq != nil {
		p.wantLastWQE++
	}
	for _, w := range p.sends {
		w.over = w.over || from == engine.StateSQE && to == engine.StateRTS && !w.sent
	}
	if from == engine.StateRTR && to == engine.StateRTS {
		p.psn = a.SQPSN
	}
	s.must(p.q.Modify(to, a, mask))
	s.seen.moves[from][to]++
	p.asked, p.known = to, to
	if to == engine.StateReset {
		for _, c := range s.queues {
			for _, e := range c.visible() {
				if e.QPN() == p.q.QPN() {
					s.fail("QP 0x%x was reset, CQ 0x%x still has a completion of it", p.q.QPN(), c.cq.CQN())
				}
			}
		}
	}
	s.observe(nil, 0)
}

// revive brings the pair to a state by legal moves.
func (p *pair) revive(to engine.QPState) {
	for range 8 {
		switch p.known {
		case to:
			return
		case engine.StateReset, engine.StateInit, engine.StateRTR:
			p.modify(p.known + 1)
		case engine.StateSQD, engine.StateSQE:
			p.modify(engine.StateRTS)
		default:
			p.modify(engine.StateReset)
		}
	}
}

// observe looks for what the device did by itself: queues that overran and pairs that it moved. n completions of c
// were just polled.
func (s *side) observe(c *queue, n int) {
	for _, o := range s.queues {
		held := len(o.visible())
		if o == c {
			held += n
		}
		if held == len(o.mem.CQEs) {
			s.seen.events["a completion ring is full"]++
		}
		if o.broken || o.mem.Overrun.Load() == 0 {
			continue
		}
		o.broken, s.lossy = true, true
		s.seen.events["a completion queue overruns"]++
		if held != len(o.mem.CQEs) {
			s.fail("CQ 0x%x overran with %d completions in %d entries", o.cq.CQN(), held, len(o.mem.CQEs))
		}
	}
	for _, p := range s.pairs {
		now := p.q.State()
		if now == p.known {
			continue
		}
		sqe := now == engine.StateSQE && p.known == engine.StateRTS && p.typ == engine.UD && s.cfg.Profile != engine.ProfileRXE
		failed := now == engine.StateErr && (p.known == engine.StateRTR || p.known == engine.StateRTS || p.known == engine.StateSQD)
		if p.typ == engine.UD {
			failed = failed || now == engine.StateErr && p.known == engine.StateSQE
			if !s.grams && s.cfg.Profile != engine.ProfileRXE {
				failed = false // no datagrams arrive there, and sends lead to SQE
			}
		}
		if !sqe && !failed && !(p.overrun() && now == engine.StateErr) {
			s.fail("QP 0x%x: the device moved it from %v to %v", p.q.QPN(), p.known, now)
		}
		s.trace("  QP 0x%x: the device moves it from %v to %v", p.q.QPN(), p.known, now)
		s.seen.byDevice[p.known][now]++
		p.known = now
		p.owed++
		if now == engine.StateErr && p.srq != nil {
			p.wantLastWQE++
		}
	}
}
