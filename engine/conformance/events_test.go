package conformance

import (
	"context"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bluering/bluering/engine"
)

var _ = register(map[string]func(*trial){
	"A-07": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		ch, err := a.dev.NewChannel()
		x.ok(err)
		q, err := a.dev.NewCQOn(ch, 8)
		x.ok(err)
		x.want("a channel with a CQ", ch.Close(), syscall.EBUSY)
		x.ok(q.Close())
		x.ok(ch.Close())
		x.ok(ch.Close())
		_, err = a.dev.NewCQOn(ch, 8)
		x.want("a closed channel", err, engine.ErrClosed)
	},
	"A-08": closeWaits,
	"I-01": func(x *trial) {
		a, b, ch := x.onChannel()
		x.ok(b.cq.Arm(false))
		b.eventless(ch)
		a.packet(b)
		b.wakes(ch)
		b.take(1)
		a.packet(b) // not armed again
		b.take(1)
		b.eventless(ch)
		x.ok(b.cq.Arm(false)) // armed again
		a.packet(b)
		b.wakes(ch)
	},
	"I-02": func(x *trial) {
		a, b, ch := x.onChannel()
		x.ok(b.cq.Arm(true))
		a.packet(b)
		b.take(1)
		b.eventless(ch)
		qa, qb := a.udQP(engine.QPConfig{}), b.udQP(engine.QPConfig{})
		buf := b.buffer(qb, 1, 100)
		a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN(), message(10, 1)))
		b.got(1, buf, message(10, 1))
		b.eventless(ch)
	},
	"I-03": func(x *trial) {
		a, b, ch := x.onChannel()
		x.ok(b.cq.Arm(true))
		a.packet(b)
		b.take(1)
		b.eventless(ch)
		b.receives(b.qp, 2)
		x.ok(b.qp.Modify(toErr, engine.QPAttr{}, 0)) // flushes are failures
		b.wakes(ch)
		x.check(b.take(2)[0].Status == engine.StatusWRFlush, "no flush")
		qa, qb := a.udQP(engine.QPConfig{}), b.udQP(engine.QPConfig{})
		x.ok(b.cq.Arm(true))
		buf := b.buffer(qb, 1, 100)
		wr := a.gram(1, a.to(b, 4), qb.QPN(), message(10, 1))
		a.postTo(qa, wr)
		b.got(1, buf, message(10, 1))
		b.eventless(ch)
		buf = b.buffer(qb, 2, 100)
		wr.Flags |= engine.Solicited
		a.postTo(qa, wr)
		b.wakes(ch)
		b.got(2, buf, message(10, 1))
	},
	"I-04": func(x *trial) {
		a, b, ch := x.onChannel()
		x.ok(b.cq.Arm(false))
		x.ok(b.cq.Arm(true))
		a.packet(b)
		b.wakes(ch)
	},
	"I-05": func(x *trial) {
		a, b, ch := x.onChannel()
		x.ok(b.cq.Arm(true))
		a.packet(b)
		b.eventless(ch)
		x.ok(b.cq.Arm(false))
		b.eventless(ch)
		a.packet(b)
		b.wakes(ch)
	},
	"I-06": func(x *trial) {
		a, b, ch := x.onChannel()
		a.packet(b)
		a.packet(b)
		b.eventless(ch)
		x.ok(b.cq.Arm(false))
		b.eventless(ch)
		b.take(2) // they are there all the same
		a.packet(b)
		b.wakes(ch)
	},
	"I-07": func(x *trial) {
		a, b, ch := x.onChannel()
		for i := range 10 {
			x.ok(b.cq.Arm(i%3 == 0))
		}
		a.packet(b)
		b.wakes(ch)
		b.eventless(ch)
		a.packet(b)
		b.eventless(ch)
	},
	"I-08": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		err := a.cq.Arm(false)
		want := choose(x, 23, syscall.EINVAL, 0, 0)
		if want == 0 {
			x.ok(err)
		} else {
			x.want("arming", err, want)
		}
	},
	"I-09": manyOnOne,
	"I-10": func(x *trial) {
		a, b, ch := x.onChannel()
		for range 5 {
			x.ok(b.cq.Arm(false))
			a.packet(b)
			b.get(ch)
			b.take(1)
		}
		x.want("more than there are", b.cq.Ack(6), syscall.EINVAL)
		x.want("fewer than none", b.cq.Ack(-1), syscall.EINVAL)
		x.ok(b.cq.Ack(2))
		x.ok(b.cq.Ack(3))
		x.want("one more", b.cq.Ack(1), syscall.EINVAL)
		x.ok(b.qp.Close())
		x.ok(b.cq.Close()) // does not wait: all are acknowledged
	},
	"I-11": descriptor,
	"I-12": func(x *trial) {
		a, b, ch := x.onChannel()
		x.ok(b.cq.Arm(false))
		a.packet(b)
		b.take(1) // the completion is taken, the event is not
		b.wakes(ch)
		b.quiet()
		x.ok(b.cq.Arm(false)) // and nothing is out of step after it
		a.packet(b)
		b.wakes(ch)
		b.take(1)
		b.eventless(ch)
	},
	"I-13": func(x *trial) {
		for e, n := range map[engine.EventType]int{engine.EventCQErr: 0, engine.EventQPFatal: 1, engine.EventQPReqErr: 2,
			engine.EventQPAccessErr: 3, engine.EventCommEst: 4, engine.EventSQDrained: 5, engine.EventPathMig: 6,
			engine.EventPathMigErr: 7, engine.EventDeviceFatal: 8, engine.EventPortActive: 9, engine.EventPortErr: 10,
			engine.EventLIDChange: 11, engine.EventPKeyChange: 12, engine.EventSMChange: 13, engine.EventSRQErr: 14,
			engine.EventSRQLimitReached: 15, engine.EventQPLastWQEReached: 16, engine.EventClientReregister: 17,
			engine.EventGIDChange: 18, engine.EventWQFatal: 19} {
			x.check(int(e) == n, "%v is %d, want %d", e, e, n)
		}
	},
})

// onChannel opens two ends; b's CQ is on a channel and its queue pair takes all frames.
func (x *trial) onChannel() (a, b *end, ch *engine.Channel) {
	x.Helper()
	one, other := x.uris()
	a, b = x.open(one, engine.QPConfig{MaxSendWR: 16}), x.open(other, engine.QPConfig{})
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	ch, err := b.dev.NewChannel()
	x.ok(err)
	b.cq, b.qp = b.receiver(ch)
	return a, b, ch
}

// receiver makes a CQ on a channel and a queue pair that receives there, with all frames.
func (e *end) receiver(ch *engine.Channel) (*engine.CQ, *engine.QP) {
	e.x.Helper()
	cq, err := e.dev.NewCQOn(ch, 100)
	e.x.ok(err)
	q, err := e.pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 32})
	e.x.ok(err)
	e.x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err = q.Attach(engine.FlowRule{Kind: engine.FlowAll})
	e.x.ok(err)
	return cq, q
}

// packet sends one to a receive of b, and waits until it has arrived there.
func (e *end) packet(b *end) {
	e.x.Helper()
	b.receives(b.qp, 1)
	before := b.counters().RxFrames
	e.post(e.send(1, e.frame(60, 1)))
	e.take(1)
	e.x.check(b.settles(func() bool { return b.counters().RxFrames == before+1 }), "the packet does not arrive")
}

// get waits for an event of b's CQ.
func (e *end) get(ch *engine.Channel) {
	e.x.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cq, err := ch.Get(ctx)
	e.x.ok(err)
	e.x.check(cq == e.cq, "an event of another CQ")
}

// wakes is get, acknowledged; and there is no second event.
func (e *end) wakes(ch *engine.Channel) {
	e.x.Helper()
	e.get(ch)
	e.x.ok(e.cq.Ack(1))
	e.eventless(ch)
}

// eventless fails when there is an event.
func (e *end) eventless(ch *engine.Channel) {
	e.x.Helper()
	for e.x.work() {
	}
	cq, err := ch.TryGet()
	e.x.check(cq == nil, "an event that was not asked for")
	e.x.want("no event", err, syscall.EAGAIN)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = ch.Get(ctx)
	e.x.want("an ended context", err, context.Canceled)
}

// closeWaits is A-08.
func closeWaits(x *trial) {
	a, b, ch := x.onChannel()
	for range 3 {
		x.ok(b.cq.Arm(false))
		a.packet(b)
		b.get(ch)
		b.take(1)
	}
	x.ok(b.qp.Close())
	var closed atomic.Bool
	done := make(chan error)
	go func() {
		err := b.cq.Close()
		closed.Store(true)
		done <- err
	}()
	for range 3 {
		for range 1000 {
			runtime.Gosched()
		}
		x.check(!closed.Load(), "closed with an event that is not acknowledged")
		x.ok(b.cq.Ack(1))
	}
	x.ok(<-done)
	x.ok(ch.Close())
}

// manyOnOne is I-09: each event is told of its own CQ.
func manyOnOne(x *trial) {
	a, b, ch := x.onChannel()
	_, err := a.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
	x.ok(err)
	cqs := []*engine.CQ{b.cq}
	for range 7 {
		cq, err := b.dev.NewCQOn(ch, 16)
		x.ok(err)
		cqs = append(cqs, cq)
	}
	for round := range 3 {
		want := map[*engine.CQ]bool{}
		var qps []*engine.QP
		for i, cq := range cqs {
			if x.ok(cq.Arm(false)); i%(round+2) != 0 {
				continue // armed, and nothing comes
			}
			q, err := b.pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq, MaxRecvWR: 4})
			x.ok(err)
			x.ok(q.MoveTo(engine.StateRTR, engine.QPAttr{}))
			b.receives(q, 2)
			x.ok(q.Modify(engine.StateErr, engine.QPAttr{}, 0)) // two completions
			want[cq] = true
			qps = append(qps, q)
		}
		for len(want) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			cq, err := ch.Get(ctx)
			cancel()
			x.ok(err)
			x.check(want[cq], "round %d: an event of CQ 0x%x, which was not due", round, cq.CQN())
			delete(want, cq)
			x.ok(cq.Ack(1))
		}
		b.eventless(ch)
		for _, q := range qps {
			x.ok(q.Close())
		}
	}
}

// descriptor is I-11.
func descriptor(x *trial) {
	a, b, ch := x.onChannel()
	if !pollable {
		x.check(ch.FD() == -1, "a descriptor %d on a system without", ch.FD())
		return
	}
	for range 3 {
		x.ok(b.cq.Arm(false))
		b.eventless(ch)
		x.check(!readable(x.T, ch.FD(), 0), "readable without a cause")
		b.receives(b.qp, 1)
		a.post(a.send(1, a.frame(60, 1)))
		a.take(1)
		for tries := 0; ; tries++ { // a wire's descriptor may tell of less than an event
			x.check(tries < 100, "readable and no event")
			x.check(readable(x.T, ch.FD(), 20000), "not readable with a packet")
			cq, err := ch.TryGet()
			if err == nil {
				x.check(cq == b.cq, "an event of another CQ")
				break
			}
			x.want("no event yet", err, syscall.EAGAIN)
		}
		b.take(1)
		x.ok(b.cq.Ack(1))
	}
	// A send that waits for its time (L-07) is an event of its own.
	b.limit(engine.RateLimit{Kbps: 8_000, BurstBytes: 1000, TypicalBytes: 1000})
	b.post(b.send(1, b.frame(1000, 1)), b.send(2, b.frame(1000, 2)))
	b.one(1, engine.StatusSuccess)
	x.ok(b.cq.Arm(false))
	for {
		cq, err := ch.TryGet()
		if err == nil {
			x.check(cq == b.cq, "an event of another CQ")
			break
		}
		x.check(readable(x.T, ch.FD(), 20000), "not readable when a send is due")
	}
	b.one(2, engine.StatusSuccess)
	x.ok(b.cq.Ack(1))
}
