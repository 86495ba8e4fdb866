package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/bluering/bluering/engine"
)

// Two queue pairs receive from one queue, whose owner is told when it runs low.
func ExampleSRQ() {
	a, b := openPort("loop:example-srq"), openPort("loop:example-srq")
	defer a.dev.Close()
	defer b.dev.Close()
	pd := b.dev.DefaultPD()
	var srq *engine.SRQ
	srq, err := pd.NewSRQ(engine.SRQConfig{MaxWR: 3, Limit: 2, Type: engine.SRQBasic})
	check(err)
	for range 3 {
		f, _ := b.pool.Get()
		check(srq.Post1(uint64(f), b.pool.SGE(f, 2048)))
	}
	for to := range 2 {
		qp, err := pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq})
		check(err)
		check(qp.MoveTo(engine.StateRTR, engine.QPAttr{}))
		_, err = qp.Attach(engine.FlowRule{Match: engine.MatchDstMAC([6]byte{2, 0, 0, 0, 0, byte(to)})})
		check(err)
	}
	_, err = a.qp.Post([]engine.SendWR{a.frame(1, 0), a.frame(2, 1)})
	check(err)
	wc := make([]engine.Completion, 8)
	n, err := b.cq.Poll(wc)
	check(err)
	for _, c := range wc[:n] {
		fmt.Println("request", c.WRID, c.Status, c.ByteLen)
	}
	var e engine.AsyncEvent
	e, err = b.dev.NextEvent(context.Background())
	check(err)
	fmt.Println(e.Type, e.SRQ == srq, "limit", srq.Limit(), "left", srq.Outstanding())
	fmt.Println(srq.Modify(engine.SRQAttr{Limit: 1}, engine.SRQLimit), "limit", srq.Limit())
	// Output:
	// request 0 SUCCESS 60
	// request 1 SUCCESS 60
	// SRQ_LIMIT_REACHED true limit 0 left 1
	// <nil> limit 1
}

// Sleeping until there is something: arm, poll once more, and only then wait.
func ExampleChannel_Get() {
	a, b := openPort("loop:example-channel"), openPort("loop:example-channel")
	defer a.dev.Close()
	defer b.dev.Close()
	ch, err := b.dev.NewChannel()
	check(err)
	cq, err := b.dev.NewCQOn(ch, 16)
	check(err)
	qp, err := b.dev.DefaultPD().NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq, MaxRecvWR: 4})
	check(err)
	check(qp.MoveTo(engine.StateRTR, engine.QPAttr{}))
	_, err = qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
	check(err)
	f, _ := b.pool.Get()
	check(qp.PostRecv1(7, b.pool.SGE(f, 2048)))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	wc := make([]engine.Completion, 4)
	check(cq.Arm(false))
	n, err := cq.Poll(wc) // what came before the arming makes no event
	fmt.Println("before:", n, err)
	_, err = a.qp.Post([]engine.SendWR{a.frame(1, 2)})
	check(err)
	ready, err := ch.Get(ctx)
	check(err)
	check(ready.Ack(1))
	n, err = ready.Poll(wc)
	fmt.Println("after:", n, err, wc[0].WRID, ready == cq)
	// Output:
	// before: 0 <nil>
	// after: 1 <nil> 7 true
}
