package conformance

import (
	"errors"
	"strings"
	"syscall"

	"github.com/bluering/bluering/engine"
)

var _ = register(map[string]func(*trial){
	"A-12": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		c := a.dev.Caps()
		q, err := a.pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: a.cq, RecvCQ: a.cq, SRQ: a.srq(4),
			MaxRecvWR: c.MaxRecvWR + 1, MaxRecvSGE: c.MaxRecvSGE + 1})
		x.ok(err)
		x.ok(q.Close())
	},
	"A-20": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		most := a.dev.Caps().MaxSRQWR
		for what, c := range map[string]engine.SRQConfig{
			"no requests": {}, "fewer than none": {MaxWR: -1}, "too many requests": {MaxWR: most + 1},
			"a limit above them": {MaxWR: 8, Limit: 9}, "a limit below none": {MaxWR: 8, Limit: -1},
			"too many pieces": {MaxWR: 8, MaxSGE: a.dev.Caps().MaxSRQSGE + 1},
		} {
			_, err := a.pd.NewSRQ(c)
			x.want(what, err, syscall.EINVAL)
		}
		for _, n := range []int{1, 2, 7, 8, most} {
			s, err := a.pd.NewSRQ(engine.SRQConfig{MaxWR: n, Limit: n})
			x.ok(err)
			got, _ := s.Cap()
			x.check(got >= n && s.Limit() == n, "asked for %d, got %d and limit %d", n, got, s.Limit())
			x.ok(s.Close())
		}
	},
	"A-21": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, typ := range []engine.SRQType{engine.SRQXRC, engine.SRQTM, 3, 0xff} {
			_, err := a.pd.NewSRQ(engine.SRQConfig{MaxWR: 4, Type: typ})
			x.want("a type that the device lacks", err, syscall.EOPNOTSUPP)
		}
	},
	"A-22": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		s := a.srq(4)
		q := a.on(s, engine.FlowRule{Kind: engine.FlowAll})
		x.want("an SRQ in use", s.Close(), syscall.EBUSY)
		x.ok(q.Close())
		x.ok(s.Close())
		_, err := s.Post([]engine.RecvWR{{}})
		x.want("a closed SRQ", err, engine.ErrClosed)
	},
	"B-28": notFlushed,
	"D-12": srqDomain,
	"G-01": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		q := a.on(a.srq(4), engine.FlowRule{Kind: engine.FlowAll})
		n, err := q.PostRecv([]engine.RecvWR{{ID: 1, SGEs: []engine.SGE{a.piece(make([]byte, 60))}}, {ID: 2}})
		x.want("a receive", err, syscall.EINVAL)
		x.want("its cause", err, engine.CauseSRQ)
		var p *engine.PostError
		x.check(errors.As(err, &p) && p.Index == 0 && n == 0, "posted %d: %+v", n, err)
		x.want("a receive of one piece", q.PostRecv1(1, a.piece(make([]byte, 60))), syscall.EINVAL)
	},
	"G-02": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		s := a.srq(5)
		most, _ := s.Cap()
		wrs := make([]engine.RecvWR, most+2)
		n, err := s.Post(wrs)
		x.want("one too many", err, syscall.ENOMEM)
		var p *engine.PostError
		x.check(errors.As(err, &p) && p.Index == most && n == most, "posted %d of %d: %+v", n, most, err)
		n, err = s.Post(wrs[:1])
		x.want("one more", err, engine.CauseFull)
		x.check(n == 0 && s.Outstanding() == most, "posted %d, %d outstanding", n, s.Outstanding())
	},
	"G-03": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		s := a.srq(4)
		_, sges := s.Cap()
		n, err := s.Post([]engine.RecvWR{{}, {SGEs: make([]engine.SGE, sges+1)}, {}})
		x.want("too many pieces", err, syscall.EINVAL)
		var p *engine.PostError
		x.check(errors.As(err, &p) && p.Index == 1 && n == 1, "posted %d: %+v", n, err)
	},
	"G-04": inOrderAcross,
	"G-05": limitOnce,
	"G-06": func(x *trial) {
		a, b, s := x.onSRQ(8)
		x.ok(s.SetLimit(4)) // nothing is posted: below already, and no event by itself
		b.noEvent()
		b.fill(s, 3)
		b.noEvent()
		a.post(a.send(1, a.frame(60, 1)))
		b.take(1)
		b.event(engine.EventSRQLimitReached, func(e engine.AsyncEvent) bool { return e.SRQ == s })
		x.check(s.Limit() == 0, "limit %d after the event", s.Limit())
	},
	"G-07": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		s := a.srq(4)
		most, _ := s.Cap()
		x.ok(s.SetLimit(2))
		x.want("a limit above the size", s.SetLimit(most+1), syscall.EINVAL)
		x.want("a limit below 0", s.SetLimit(-1), syscall.EINVAL)
		x.check(s.Limit() == 2, "limit %d", s.Limit())
		x.ok(s.SetLimit(most))
		x.ok(s.SetLimit(0))
		x.check(s.Limit() == 0, "limit %d", s.Limit())
	},
	"G-08": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		s := a.srq(8)
		a.fill(s, 3)
		for _, n := range []int{2, 3, 16} { // the device does not resize
			x.want("a resize", s.Modify(engine.SRQAttr{MaxWR: n}, engine.SRQMaxWR), syscall.EOPNOTSUPP)
		}
		x.check(s.Outstanding() == 3, "%d outstanding", s.Outstanding())
	},
	"G-09": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		s := a.srq(8)
		x.ok(s.SetLimit(3))
		x.ok(s.Modify(engine.SRQAttr{MaxWR: 1, Limit: 99}, 0))
		most, _ := s.Cap()
		x.check(s.Limit() == 3 && most >= 8, "limit %d, %d requests", s.Limit(), most)
	},
	"G-10": func(x *trial) {
		if strings.HasPrefix(*flagDevice, "loop:") {
			x.params = "drop=1" // as hardware; a lossless loop keeps a raw frame waiting
		}
		a, b, s := x.onSRQ(4)
		b.fill(s, 1)
		for i := range 3 {
			a.post(a.send(uint64(i), a.frame(60, byte(i))))
		}
		x.check(a.take(3)[2].Status == engine.StatusSuccess, "the sender fails")
		b.take(1)
		b.dropped(engine.DropNoWQE, 2)
		qa, qb := a.udQP(engine.QPConfig{}), b.udQP(engine.QPConfig{SRQ: s})
		for i := range 2 {
			a.postTo(qa, a.gram(uint64(i), a.to(b, 4), qb.QPN(), message(50, 1)))
			a.one(uint64(i), engine.StatusSuccess)
		}
		b.dropped(engine.DropNoWQE, 4)
		b.quiet()
	},
	"G-11": func(x *trial) {
		one, other := x.uris()
		a := x.open(one, engine.QPConfig{MaxSendWR: 8})
		x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
		b := x.open(other, engine.QPConfig{})
		s := b.srq(4)
		ids := b.fill(s, 2)
		b.on(s, engine.FlowRule{Kind: engine.FlowAll})
		a.post(a.send(1, a.frame(60, 1)), a.send(2, a.frame(60, 2)))
		for i, c := range b.take(2) {
			x.check(c.WRID == ids[i], "completion %d is of request %d, want %d", i, c.WRID, ids[i])
		}
	},
})

// srq makes a shared receive queue of one piece a request.
func (e *end) srq(n int) *engine.SRQ {
	e.x.Helper()
	s, err := e.pd.NewSRQ(engine.SRQConfig{MaxWR: n})
	e.x.ok(err)
	return s
}

// on makes a raw queue pair on an SRQ, in RTS, with the frames of the rule.
func (e *end) on(s *engine.SRQ, r engine.FlowRule) *engine.QP {
	e.x.Helper()
	q := e.raw(engine.QPConfig{SRQ: s, MaxSendWR: 8})
	e.x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err := q.Attach(r)
	e.x.ok(err)
	return q
}

// fill posts n requests of 2048 bytes; the ID is the frame.
func (e *end) fill(s *engine.SRQ, n int) (ids []uint64) {
	e.x.Helper()
	for range n {
		f, ok := e.pool.Get()
		e.x.check(ok, "the pool is empty")
		e.x.ok(s.Post1(uint64(f), e.pool.SGE(f, 2048)))
		ids = append(ids, uint64(f))
	}
	return ids
}

// onSRQ opens two ends; all frames of a come to a queue pair of b on an SRQ of n requests.
func (x *trial) onSRQ(n int) (a, b *end, s *engine.SRQ) {
	x.Helper()
	one, other := x.uris()
	a, b = x.open(one, engine.QPConfig{MaxSendWR: 16}), x.open(other, engine.QPConfig{})
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	s = b.srq(n)
	b.qp = b.on(s, engine.FlowRule{Kind: engine.FlowAll})
	return a, b, s
}

// event takes one asynchronous event and judges it.
func (e *end) event(want engine.EventType, is func(engine.AsyncEvent) bool) {
	e.x.Helper()
	var got engine.AsyncEvent
	there := false
	e.settles(func() bool {
		if !there {
			got, there = e.dev.TryEvent()
		}
		return there
	})
	e.x.check(there && got.Type == want && is(got), "event %+v, there %v, want %v", got, there, want)
}

// noEvent fails when an asynchronous event has come.
func (e *end) noEvent() {
	e.x.Helper()
	for e.x.work() {
	}
	got, there := e.dev.TryEvent()
	e.x.check(!there, "event %v", got.Type)
}

// notFlushed is B-28.
func notFlushed(x *trial) {
	a, b, s := x.onSRQ(8)
	ids := b.fill(s, 3)
	q := b.qp
	x.ok(q.Modify(engine.StateErr, engine.QPAttr{}, 0))
	b.quiet()
	b.event(engine.EventQPLastWQEReached, func(e engine.AsyncEvent) bool { return e.QP == q })
	x.ok(q.Modify(engine.StateErr, engine.QPAttr{}, 0)) // again: nothing new
	b.noEvent()
	x.check(s.Outstanding() == 3, "%d requests are left, want 3", s.Outstanding())
	x.ok(q.Close())
	b.on(s, engine.FlowRule{Kind: engine.FlowAll}) // another queue pair takes them
	a.post(a.send(1, a.frame(60, 1)))
	c := b.take(1)[0]
	x.check(c.WRID == ids[0] && c.Status == engine.StatusSuccess, "%+v, want request %d", c, ids[0])
}

// srqDomain is D-12: the queue pair's own domain has no say.
func srqDomain(x *trial) {
	one, other := x.uris()
	a, b := x.open(one, engine.QPConfig{MaxSendWR: 16}), x.open(other, engine.QPConfig{})
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	s := b.srq(4)
	pd := b.dev.NewPD()
	foreign, err := pd.AllocPool(1, 2048)
	x.ok(err)
	q, err := pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: b.cq, RecvCQ: b.cq, SRQ: s})
	x.ok(err)
	x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err = q.Attach(engine.FlowRule{Kind: engine.FlowAll})
	x.ok(err)
	b.fill(s, 1)
	f, _ := foreign.Get()
	x.ok(s.Post1(77, foreign.SGE(f, 2048)))
	frame := a.frame(60, 1)
	a.post(a.send(1, frame), a.send(2, frame))
	wc := b.take(2)
	x.check(wc[0].Status == engine.StatusSuccess, "memory of the SRQ's domain: %v", wc[0].Status)
	x.check(wc[1].WRID == 77 && wc[1].Status == engine.StatusLocProt && wc[1].QPN == q.QPN(), "memory of the queue pair's: %+v", wc[1])
	x.check(q.State() == engine.StateErr, "state %v", q.State())
	b.event(engine.EventQPLastWQEReached, func(e engine.AsyncEvent) bool { return e.QP == q })
}

// inOrderAcross is G-04: more requests than the ring has, so that entries come back in another order than they lie.
func inOrderAcross(x *trial) {
	one, other := x.uris()
	a, b := x.open(one, engine.QPConfig{MaxSendWR: 16}), x.open(other, engine.QPConfig{})
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	s := b.srq(7)
	var qps [2]*engine.QP
	var macs [2][6]byte
	for i := range qps {
		macs[i] = [6]byte{2, 0, 0, 0, 1, byte(i)}
		qps[i] = b.on(s, engine.FlowRule{Match: engine.Match{DstMAC: macs[i], DstMACMask: [6]byte{255, 255, 255, 255, 255, 255}}})
	}
	for round := range 30 {
		ids := b.fill(s, 1+round%5)
		var want []uint32
		for i := range ids {
			to := (round*7 + i*i) % 3 % 2
			f := a.frame(60+i, byte(round))
			copy(f, macs[to][:])
			a.post(a.send(uint64(i), f))
			want = append(want, qps[to].QPN())
		}
		a.take(len(ids))
		for i, c := range b.take(len(ids)) {
			x.check(c.WRID == ids[i] && c.QPN == want[i] && c.ByteLen == uint32(60+i) && c.Status == engine.StatusSuccess,
				"round %d: completion %d is %+v, want request %d of QP 0x%x", round, i, c, ids[i], want[i])
			b.pool.Put(uint32(c.WRID))
		}
		for _, i := range ids {
			x.check(s.Outstanding() == 0, "round %d: %d outstanding after request %d", round, s.Outstanding(), i)
		}
	}
}

// limitOnce is G-05, with the numbers of the public test: of ten posted with limit 7, the fourth taken is below.
func limitOnce(x *trial) {
	a, b, s := x.onSRQ(16)
	b.fill(s, 10)
	x.ok(s.SetLimit(7))
	for i := range 3 { // 9, 8, 7: not below
		a.post(a.send(uint64(i), a.frame(60, byte(i))))
		b.take(1)
		b.noEvent()
		x.check(s.Limit() == 7, "limit %d with %d taken", s.Limit(), i+1)
	}
	a.post(a.send(3, a.frame(60, 3)))
	b.take(1)
	b.event(engine.EventSRQLimitReached, func(e engine.AsyncEvent) bool { return e.SRQ == s && e.QP == nil && e.CQ == nil })
	x.check(s.Limit() == 0, "limit %d after the event", s.Limit())
	a.post(a.send(4, a.frame(60, 4)))
	b.take(1)
	b.noEvent() // once
}

// sharedFits is E-12 for an SRQ, which kernel rxe treats otherwise (D7).
func sharedFits(x *trial) {
	one, other := x.uris()
	a, b := x.open(one, engine.QPConfig{}), x.open(other, engine.QPConfig{})
	s := b.srq(4)
	qa, qb := a.udQP(engine.QPConfig{}), b.udQP(engine.QPConfig{SRQ: s})
	for i, n := range []int{64 + grhLen - 1, 64 + grhLen} {
		f, ok := b.pool.Get()
		x.check(ok, "the pool is empty")
		x.ok(s.Post1(uint64(i), b.pool.SGE(f, n)))
	}
	send := func(n int) {
		a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN(), message(n, 3)))
		a.one(1, engine.StatusSuccess)
	}
	send(64)
	b.dropped(engine.DropOversize, 1)
	if choose(x, 7, 0, engine.StatusRemInvReq, 0) == engine.StatusRemInvReq {
		b.one(0, engine.StatusRemInvReq)
		x.check(qb.State() == toRTS && s.Outstanding() == 1, "state %v, %d requests", qb.State(), s.Outstanding())
		send(64)
		c := b.one(1, engine.StatusSuccess)
		x.check(c.ByteLen == 64+grhLen, "%d bytes", c.ByteLen)
		return
	}
	b.quiet()
	x.check(s.Outstanding() == 2, "%d requests are left", s.Outstanding())
	send(63)
	c := b.one(0, engine.StatusSuccess) // the one that was kept
	x.check(c.ByteLen == 63+grhLen && c.QPN == qb.QPN(), "%+v", c)
}
