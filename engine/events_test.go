package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
)

// waiter is an end of a loop whose CQ is on a channel; its queue pair receives all frames from an SRQ.
type waiter struct {
	dev *engine.Device
	ch  *engine.Channel
	cq  *engine.CQ
	srq *engine.SRQ
	qp  *engine.QP
	mem *engine.Pool
}

func openWaiter(t *testing.T, uri string) *waiter {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &waiter{}
	var err error
	w.dev, err = device.Open(uri, device.Options{})
	must(err)
	t.Cleanup(func() { w.dev.Close() })
	w.ch, err = w.dev.NewChannel()
	must(err)
	w.cq, err = w.dev.NewCQOn(w.ch, 256)
	must(err)
	pd := w.dev.DefaultPD()
	w.mem, err = pd.AllocPool(128, 256)
	must(err)
	w.srq, err = pd.NewSRQ(engine.SRQConfig{MaxWR: 64})
	must(err)
	w.qp, err = pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: w.cq, RecvCQ: w.cq, MaxSendWR: 64, SRQ: w.srq})
	must(err)
	must(w.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err = w.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
	must(err)
	return w
}

func (w *waiter) post(id uint64) error {
	return w.srq.Post1(id, w.mem.SGE(uint32(id), 256))
}

// bounded is far more than anything here takes.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestNoWakeUpIsLost: one goroutine sends in bursts and waits until the other has them; that one sleeps whenever it
// has nothing. One event that went missing would be the end.
func TestNoWakeUpIsLost(t *testing.T) {
	for _, mode := range []string{"inline", "goroutine"} {
		t.Run(mode, func(t *testing.T) {
			const count = 3000
			a, b := openWaiter(t, "loop:wake"+mode+"?mode="+mode), openWaiter(t, "loop:wake"+mode+"?mode="+mode)
			for id := range uint64(32) {
				if err := b.post(id); err != nil {
					t.Fatal(err)
				}
			}
			ctx := bounded(t)
			taken := make(chan int, count)
			failed := make(chan error, 1)
			go func(end chan<- error) { end <- b.receive(ctx, count, taken) }(failed)
			wc := make([]engine.Completion, 8)
			for sent := 0; sent < count; {
				burst := min(1+sent%7, count-sent)
				for i := range burst {
					wr := engine.SendWR{ID: uint64(i), Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{a.mem.SGE(uint32(i), 60)}}
					if _, err := a.qp.Post([]engine.SendWR{wr}); err != nil {
						t.Fatal(err)
					}
				}
				for done := 0; done < burst; { // the sender sleeps for its completions, too
					if err := a.cq.Arm(false); err != nil {
						t.Fatal(err)
					}
					n, err := a.cq.Poll(wc)
					if err != nil {
						t.Fatal(err)
					}
					if done += n; n == 0 {
						if err := a.sleep(ctx); err != nil {
							t.Fatal(err)
						}
					}
				}
				for got := 0; got < burst; {
					select {
					case n := <-taken:
						got += n
					case err := <-failed:
						if err != nil {
							t.Fatalf("after %d frames: %v", sent, err)
						}
						failed = nil // it has told of all that it has taken
					}
				}
				sent += burst
			}
		})
	}
}

func (w *waiter) sleep(ctx context.Context) error {
	cq, err := w.ch.Get(ctx)
	if err != nil {
		return err
	}
	return cq.Ack(1)
}

// receive takes frames, posts their memory again, and sleeps when there are none.
func (w *waiter) receive(ctx context.Context, count int, taken chan<- int) error {
	wc := make([]engine.Completion, 8)
	for got := 0; got < count; {
		if err := w.cq.Arm(false); err != nil {
			return err
		}
		n, err := w.cq.Poll(wc)
		if err != nil {
			return err
		}
		for _, c := range wc[:n] {
			if c.Status != engine.StatusSuccess || c.ByteLen != 60 {
				return fmt.Errorf("%+v", c)
			}
			if err := w.post(c.WRID); err != nil {
				return err
			}
		}
		if got += n; n > 0 {
			taken <- n
		} else if err := w.sleep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TestWaitersEnd: by their context, and with the device.
func TestWaitersEnd(t *testing.T) {
	w := openWaiter(t, "loop:ends?mode=goroutine")
	inline := openWaiter(t, "loop:ends-inline")
	ctx, cancel := context.WithCancel(bounded(t))
	ended := make(chan error, 4)
	get := func(c context.Context, ch *engine.Channel) { _, err := ch.Get(c); ended <- err }
	next := func(c context.Context, d *engine.Device) { _, err := d.NextEvent(c); ended <- err }
	go get(ctx, w.ch)
	go get(ctx, inline.ch)
	go next(ctx, w.dev)
	go next(ctx, inline.dev)
	cancel()
	for range 4 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context: %v", err)
		}
	}
	go get(bounded(t), w.ch)
	go next(bounded(t), w.dev)
	go next(bounded(t), inline.dev)
	if err := errors.Join(w.dev.Close(), inline.dev.Close()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, engine.ErrClosed) {
			t.Errorf("a closed device: %v", err)
		}
	}
	if _, ok := w.dev.TryEvent(); ok || w.ch.FD() != -1 || w.ch.Close() != nil || w.srq.Close() != nil {
		t.Error("a closed device is not quiet")
	}
}

// TestCloseOfTheDeviceEndsACloseThatWaits, for an event that nobody will acknowledge.
func TestCloseOfTheDeviceEndsACloseThatWaits(t *testing.T) {
	w := openWaiter(t, "loop:unacked")
	if err := errors.Join(w.cq.Arm(false), w.qp.Modify(engine.StateErr, engine.QPAttr{}, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.qp.Post([]engine.SendWR{{ID: 1, Opcode: engine.OpSend, SGEs: []engine.SGE{w.mem.SGE(0, 60)}}}); err != nil {
		t.Fatal(err)
	}
	if cq, err := w.ch.Get(bounded(t)); err != nil || cq != w.cq { // the flush
		t.Fatal(cq, err)
	}
	if err := w.qp.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- w.cq.Close() }()
	if err := w.dev.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestEventsThatNobodyTakesAreBounded: the oldest go, counted.
func TestEventsThatNobodyTakesAreBounded(t *testing.T) {
	w := openWaiter(t, "loop:unread")
	const kept, extra = 1024, 10
	for range kept + extra {
		if err := errors.Join(w.qp.Modify(engine.StateErr, engine.QPAttr{}, 0), w.qp.Modify(engine.StateReset, engine.QPAttr{}, 0),
			w.qp.MoveTo(engine.StateRTS, engine.QPAttr{})); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.dev.Counters().LostEvents; n != extra {
		t.Errorf("%d events lost, want %d", n, extra)
	}
	for i := range kept {
		if e, ok := w.dev.TryEvent(); !ok || e.Type != engine.EventQPLastWQEReached || e.QP != w.qp {
			t.Fatalf("event %d: %+v, %v", i, e, ok)
		}
	}
	if e, ok := w.dev.TryEvent(); ok {
		t.Errorf("one more: %+v", e)
	}
	if err := w.qp.Modify(engine.StateErr, engine.QPAttr{}, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.qp.Close(); err != nil { // takes its event along
		t.Fatal(err)
	}
	if e, ok := w.dev.TryEvent(); ok {
		t.Errorf("an event of a queue pair that is closed: %+v", e)
	}
}

func TestSharedReceiveAndArmingAllocateNothing(t *testing.T) {
	a, b := openWaiter(t, "loop:alloc-srq"), openWaiter(t, "loop:alloc-srq")
	wc := make([]engine.Completion, 4)
	wrs := []engine.SendWR{{ID: 1, Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{a.mem.SGE(0, 60)}}}
	recvs := []engine.RecvWR{{ID: 2, SGEs: []engine.SGE{b.mem.SGE(2, 256)}}}
	if n := testing.AllocsPerRun(200, func() {
		if err := b.cq.Arm(true); err != nil {
			t.Fatal(err)
		}
		if _, err := b.srq.Post(recvs); err != nil {
			t.Fatal(err)
		}
		if _, err := a.qp.Post(wrs); err != nil {
			t.Fatal(err)
		}
		if n, err := b.cq.Poll(wc); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := a.cq.Poll(wc); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
