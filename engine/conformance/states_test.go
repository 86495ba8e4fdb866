package conformance

import (
	"slices"
	"syscall"

	"github.com/bluering/bluering/engine"
)

const (
	toReset = engine.StateReset
	toInit  = engine.StateInit
	toRTR   = engine.StateRTR
	toRTS   = engine.StateRTS
	toSQD   = engine.StateSQD
	toSQE   = engine.StateSQE
	toErr   = engine.StateErr

	udInit = engine.AttrPKeyIndex | engine.AttrPort | engine.AttrQKey
)

var _ = register(map[string]func(*trial){
	"B-01": func(x *trial) {
		a := x.unready()
		for _, q := range []*engine.QP{a.qp, a.ud()} {
			x.want(q.Type().String(), q.Modify(toErr, engine.QPAttr{}, 0), syscall.EINVAL)
			x.check(q.State() == toReset, "state %v", q.State())
		}
	},
	"B-02": transitions,
	"B-03": func(x *trial) {
		q := x.unready().ud()
		for _, missing := range []engine.AttrMask{engine.AttrPKeyIndex, engine.AttrPort, engine.AttrQKey} {
			x.want("an attribute less", q.Modify(toInit, engine.QPAttr{Port: 1}, udInit&^missing), syscall.EINVAL)
		}
		x.ok(q.Modify(toInit, engine.QPAttr{Port: 1}, udInit))
	},
	"B-04": func(x *trial) {
		q := x.unready().ud()
		x.ok(q.MoveTo(toRTR, engine.QPAttr{}))
		x.want("without SQ_PSN", q.Modify(toRTS, engine.QPAttr{}, 0), syscall.EINVAL)
		x.ok(q.Modify(toRTS, engine.QPAttr{}, engine.AttrSQPSN))
	},
	"B-05": func(x *trial) {
		a := x.unready()
		q := a.ud()
		x.ok(q.MoveTo(toInit, engine.QPAttr{}))
		for _, m := range []engine.AttrMask{engine.AttrPathMTU, engine.AttrAV, engine.AttrRQPSN, engine.AttrSQPSN, engine.AttrPort, 1 << 20} {
			x.want("UD to RTR", q.Modify(toRTR, engine.QPAttr{Port: 1}, m), syscall.EINVAL)
		}
		for _, m := range []engine.AttrMask{engine.AttrQKey, engine.AttrPKeyIndex} {
			x.want("raw to INIT", a.qp.Modify(toInit, engine.QPAttr{Port: 1}, engine.AttrPort|m), syscall.EINVAL)
		}
		x.check(q.State() == toInit && a.qp.State() == toReset, "states %v, %v", q.State(), a.qp.State())
	},
	"B-06": func(x *trial) {
		a := x.unready()
		for _, port := range []uint8{0, 2, 255} {
			x.want("raw", a.qp.Modify(toInit, engine.QPAttr{Port: port}, engine.AttrPort), syscall.EINVAL)
			x.want("UD", a.ud().Modify(toInit, engine.QPAttr{Port: port}, udInit), syscall.EINVAL)
		}
	},
	"B-07": func(x *trial) {
		x.want("index 1 of 1", x.unready().ud().Modify(toInit, engine.QPAttr{Port: 1, PKeyIndex: 1}, udInit), syscall.EINVAL)
	},
	"B-08": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, s := range []engine.QPState{7, 8, 255} {
			x.want("state", a.qp.Modify(s, engine.QPAttr{}, 0), syscall.EINVAL)
			q := a.ud()
			x.ok(q.MoveTo(toRTS, engine.QPAttr{}))
			x.want("current state", q.Modify(toRTS, engine.QPAttr{CurState: s}, engine.AttrCurState), syscall.EINVAL)
		}
	},
	"B-09": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, m := range []engine.AttrMask{1 << 21, 1 << 26, 1 << 31} {
			x.want("mask", a.qp.Modify(toRTS, engine.QPAttr{}, m), syscall.EOPNOTSUPP)
		}
	},
	"B-10": func(x *trial) {
		q := x.unready().ud()
		x.ok(q.MoveTo(toRTR, engine.QPAttr{}))
		for _, s := range []engine.QPState{toReset, toInit, toRTS, toSQD, toSQE, toErr} {
			x.want(s.String(), q.Modify(toRTS, engine.QPAttr{CurState: s}, engine.AttrSQPSN|engine.AttrCurState), syscall.EINVAL)
		}
		x.ok(q.Modify(toRTS, engine.QPAttr{CurState: toRTR}, engine.AttrSQPSN|engine.AttrCurState))
		x.ok(q.Modify(toRTS, engine.QPAttr{CurState: toRTS}, engine.AttrCurState))
	},
	"B-11": func(x *trial) {
		a := x.unready()
		var want error = syscall.EPERM
		if a.dev.Caps().PrivilegedQKey {
			want = nil
		}
		x.want("Q_Key", a.ud().Modify(toInit, engine.QPAttr{Port: 1, QKey: 1 << 31}, udInit), want)
		x.ok(a.ud().Modify(toInit, engine.QPAttr{Port: 1, QKey: 1<<31 - 1}, udInit))
	},
	"B-12": resetEmpties,
	"B-13": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxRecvWR: 4})
		a.receives(a.qp, 2)
		x.ok(a.qp.Modify(toErr, engine.QPAttr{}, 0))
		a.take(2)
		x.ok(a.qp.Modify(toErr, engine.QPAttr{}, 0))
		x.check(a.qp.State() == toErr, "state %v", a.qp.State())
		a.quiet()
	},
	"B-14": query,
	"B-15": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 4)
		first := a.frame(60, 9)
		a.post(a.send(9, first))
		a.one(9, engine.StatusSuccess)
		b.arrives(first)
		x.ok(a.qp.Modify(toSQD, engine.QPAttr{}, 0)) // not asked for
		a.noEvent()
		x.ok(a.qp.Modify(toRTS, engine.QPAttr{}, 0))
		x.ok(a.qp.Modify(toSQD, engine.QPAttr{SQDNotify: true}, engine.AttrSQDNotify))
		a.event(engine.EventSQDrained, func(e engine.AsyncEvent) bool { return e.QP == a.qp })
		a.noEvent()
		a.post(a.sends(3)...)
		a.quiet()
		b.quiet()
		x.check(a.qp.State() == toSQD && a.counters().TxFrames == 1, "%v, %d frames sent", a.qp.State(), a.counters().TxFrames)
	},
	"B-16": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 4)
		a.hold()
		a.post(a.sends(3)...)
		a.release()
		b.arrives(a.frame(60, 0), a.frame(60, 1), a.frame(60, 2))
		for i, c := range a.take(3) {
			x.check(c.WRID == uint64(i) && c.Status == engine.StatusSuccess, "%+v", c)
		}
	},
	"B-17": failedDatagram,
	"B-20": func(x *trial) {
		a := x.unready()
		n, err := a.qp.PostRecv([]engine.RecvWR{{SGEs: []engine.SGE{a.pool.SGE(0, 64)}}, {}})
		x.want("a receive", err, syscall.EINVAL)
		x.check(n == 0 && err.(*engine.PostError).Index == 0, "posted %d", n)
	},
	"B-21": func(x *trial) { beforeRTR(x, false) },
	"B-22": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 2)
		x.ok(a.qp.Modify(toReset, engine.QPAttr{}, 0))
		for _, s := range []engine.QPState{toReset, toInit, toRTR} {
			x.check(a.qp.State() == s, "state %v", a.qp.State())
			a.refused(s.String(), a.sends(2), 0, choose(x, 1, syscall.EINVAL, syscall.EINVAL, syscall.ENOMEM))
			x.want("a batch", a.qp.PostAll(a.sends(2)), syscall.EINVAL)
			x.ok(a.qp.Modify(s+1, engine.QPAttr{Port: 1}, []engine.AttrMask{engine.AttrPort, 0, 0}[s]))
		}
		b.quiet()
		a.quiet()
	},
	"B-23": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		x.ok(a.qp.Modify(toErr, engine.QPAttr{}, 0))
		a.post(a.send(5, a.frame(60, 0)))
		a.one(5, engine.StatusWRFlush)
	},
	"B-24": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxRecvWR: 4})
		x.ok(a.qp.Modify(toErr, engine.QPAttr{}, 0))
		for id := range uint64(3) {
			x.ok(a.qp.PostRecv1(id, a.pool.SGE(0, 64)))
		}
		for i, c := range a.take(3) {
			x.check(c.WRID == uint64(i) && c.Recv && c.Status == engine.StatusWRFlush, "%+v", c)
		}
		a.quiet()
		_, recvs := a.qp.Outstanding()
		x.check(recvs == 0, "%d receives are queued", recvs)
	},
	"B-25": func(x *trial) { flushes(x, engine.Signaled) },
	"B-26": func(x *trial) { flushes(x, 0) },
	"B-27": func(x *trial) { beforeRTR(x, true) },
})

// unready opens one end in RESET.
func (x *trial) unready() *end {
	x.Helper()
	uri, _ := x.uris()
	return x.open(uri, engine.QPConfig{MaxSendWR: 4, MaxRecvWR: 4})
}

// bring takes a fresh queue pair to any state.
func (a *end) bring(q *engine.QP, to engine.QPState) {
	a.x.Helper()
	up := min(to, toRTS)
	if to == toErr {
		up = toInit
	}
	if up != toReset {
		a.x.ok(q.MoveTo(up, engine.QPAttr{}))
	}
	switch to {
	case toSQD, toErr:
		a.x.ok(q.Modify(to, engine.QPAttr{}, 0))
	case toSQE:
		a.fail(q, 1)
		a.take(1)
	}
	a.x.check(q.State() == to, "brought to %v, is in %v", to, q.State())
}

// fail posts a datagram from memory that nobody registered.
func (a *end) fail(q *engine.QP, id uint64) {
	a.x.Helper()
	_, err := q.Post([]engine.SendWR{{ID: id, Opcode: engine.OpSend, AH: a.ah(), SGEs: []engine.SGE{bogus(60)}}})
	a.x.ok(err)
}

// bogus names memory under a key that no device has given.
func bogus(n int) engine.SGE { return engine.MRFromKey(0xfffffe, 1<<40, n).SGE(0, n) }

func transitions(x *trial) {
	rows := [...][]engine.QPState{
		toReset: {toReset, toInit}, toInit: {toReset, toInit, toRTR, toErr}, toRTR: {toReset, toRTS, toErr},
		toRTS: {toReset, toRTS, toSQD, toErr}, toSQD: {toReset, toRTS, toSQD, toErr}, toSQE: {toReset, toRTS, toErr},
		toErr: {toReset, toErr},
	}
	a := x.unready()
	for _, typ := range []engine.QPType{engine.RawPacket, engine.UD} {
		for from, legal := range rows {
			from := engine.QPState(from)
			if from == toSQE && (typ == engine.RawPacket || x.profile == rxe) {
				continue // cannot be reached
			}
			for to := toReset; to <= toErr; to++ {
				q := a.raw(engine.QPConfig{})
				mask := map[engine.QPState]engine.AttrMask{toReset + 10*toInit: engine.AttrPort}[from+10*to]
				if typ == engine.UD {
					q = a.ud()
					mask = map[engine.QPState]engine.AttrMask{toReset + 10*toInit: udInit, toRTR + 10*toRTS: engine.AttrSQPSN}[from+10*to]
				}
				a.bring(q, from)
				err := q.Modify(to, engine.QPAttr{Port: 1}, mask)
				if slices.Contains(legal, to) {
					x.check(err == nil && q.State() == to, "%v %v to %v: %v, is in %v", typ, from, to, err, q.State())
				} else {
					x.want(from.String()+" to "+to.String(), err, syscall.EINVAL)
					x.check(q.State() == from, "%v to %v refused, yet in %v", from, to, q.State())
				}
				x.ok(q.Close())
			}
		}
	}
}

func resetEmpties(x *trial) {
	a, b := x.pair(engine.QPConfig{})
	b.receives(b.qp, 1)
	a.receives(a.qp, 5)
	a.post(a.sends(1)...)
	a.sent(1)
	a.hold()
	a.post(a.sends(3)...)
	x.ok(a.qp.Modify(toReset, engine.QPAttr{}, 0))
	a.quiet() // neither the completion of the first nor flushes of the others
	sends, recvs := a.qp.Outstanding()
	x.check(sends == 0 && recvs == 0, "%d sends and %d receives are left", sends, recvs)
	x.ok(a.qp.MoveTo(toRTS, engine.QPAttr{}))
	b.arrives(a.frame(60, 0))
	b.receives(b.qp, a.qp.Cap().MaxSendWR)
	for range 2 { // all of the queue is there again
		a.post(a.sends(a.qp.Cap().MaxSendWR)...)
		a.take(a.qp.Cap().MaxSendWR)
		b.take(a.qp.Cap().MaxSendWR)
		b.receives(b.qp, a.qp.Cap().MaxSendWR)
	}
}

func query(x *trial) {
	a := x.unready()
	q := a.ud()
	x.check(q.Attr() == engine.QPAttr{}, "RESET: %+v", q.Attr())
	want := engine.QPAttr{Port: 1, QKey: 0x1234567}
	for _, step := range []struct {
		to   engine.QPState
		mask engine.AttrMask
		set  func(*engine.QPAttr)
	}{
		{toInit, udInit, func(*engine.QPAttr) {}},
		{toRTR, engine.AttrQKey, func(a *engine.QPAttr) { a.QKey = 0x7654321 }},
		{toRTS, engine.AttrSQPSN, func(a *engine.QPAttr) { a.SQPSN = 0xabcdef }},
		{toSQD, 0, func(*engine.QPAttr) {}},
		{toErr, 0, func(*engine.QPAttr) {}},
	} {
		step.set(&want)
		x.ok(q.Modify(step.to, want, step.mask))
		want.CurState = step.to
		x.check(q.Attr() == want && q.State() == step.to, "%v: %+v, want %+v", step.to, q.Attr(), want)
		want.CurState = 0
	}
}

func failedDatagram(x *trial) {
	a, b, q, qb := x.udPair()
	first := a.buffer(q, 1, 100)
	a.fail(q, 2)
	a.one(2, engine.StatusLocProt)
	after := choose(x, 9, toSQE, toErr, toSQE)
	x.check(q.State() == after, "state %v, want %v", q.State(), after)
	if after == toErr {
		a.one(1, engine.StatusWRFlush)
		x.want("to RTS", q.Modify(toRTS, engine.QPAttr{}, 0), syscall.EINVAL)
		return
	}
	a.postTo(q, a.gram(3, a.to(b, 4), qb.QPN(), message(10, 1)))
	a.one(3, engine.StatusWRFlush)
	b.postTo(qb, b.gram(4, b.to(a, 4), q.QPN(), message(10, 2)))
	b.one(4, engine.StatusSuccess)
	a.got(1, first, message(10, 2)) // receives still work
	x.ok(q.Modify(toRTS, engine.QPAttr{}, 0))
	buf := b.buffer(qb, 5, 100)
	a.postTo(q, a.gram(6, a.to(b, 4), qb.QPN(), message(10, 3)))
	a.one(6, engine.StatusSuccess)
	b.got(5, buf, message(10, 3))
}

// beforeRTR posts a receive in INIT, lets a frame come then or not, and one after RTR.
func beforeRTR(x *trial, early bool) {
	a, b := x.pair(engine.QPConfig{})
	x.ok(b.qp.Modify(toReset, engine.QPAttr{}, 0))
	x.ok(b.qp.MoveTo(toInit, engine.QPAttr{}))
	b.receives(b.qp, 1)
	if early {
		a.post(a.send(1, a.frame(60, 1)))
		b.quiet()
		x.check(b.counters().Drops[engine.DropState] == 1, "%+v", b.counters())
	}
	x.ok(b.qp.Modify(toRTR, engine.QPAttr{}, 0))
	b.quiet()
	late := a.frame(60, 2)
	a.post(a.send(2, late))
	b.arrives(late)
}

func flushes(x *trial, flags engine.SendFlags) {
	a := x.lone(engine.QPConfig{MaxSendWR: 8, MaxRecvWR: 8})
	a.hold()
	for id := range uint64(5) {
		wr := a.send(id, a.frame(60, 0))
		wr.Flags = flags
		a.post(wr)
		x.ok(a.qp.PostRecv1(id+100, a.pool.SGE(0, 64)))
	}
	x.ok(a.qp.Modify(toErr, engine.QPAttr{}, 0))
	send, recv := uint64(0), uint64(100)
	for _, c := range a.take(10) {
		next := &send
		if c.Recv {
			next = &recv
		}
		x.check(c.Status == engine.StatusWRFlush && c.WRID == *next, "%+v, want request %d", c, *next)
		*next++
	}
	a.quiet()
}
