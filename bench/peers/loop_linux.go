package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/pin"
)

const (
	burst      = 64
	depth      = 1024 // requests under way at most, where the ends have a goroutine each
	frameBytes = 60   // without FCS
	slotBytes  = 2048
	// between is how many bursts pass between two looks at the clock.
	between = 64
)

// loopEnds is a sender on one port of a loop and a receiver on the other.
type loopEnds struct {
	devices  [2]*engine.Device
	tx, rx   *engine.QP
	txCQ     *engine.CQ
	rxCQ     *engine.CQ
	sends    []engine.SendWR // one for each frame in the sender's memory
	receives []engine.RecvWR
	wc       [2][burst]engine.Completion // of the sender's and of the receiver's goroutine
}

// openLoop makes both ends with requests for n frames each. Of every so many sends the last is signaled.
func (b *bench) openLoop(n, every int) (l *loopEnds, err error) {
	l = &loopEnds{sends: make([]engine.SendWR, n), receives: make([]engine.RecvWR, n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for i := range l.devices {
		if l.devices[i], err = device.Open(fmt.Sprintf("loop:peers%d", b.runs), device.Options{}); err != nil {
			return l, err
		}
	}
	if l.tx, l.txCQ, err = queuePair(l.devices[0], engine.QPConfig{MaxSendWR: n}, engine.StateRTS); err != nil {
		return l, err
	}
	if l.rx, l.rxCQ, err = queuePair(l.devices[1], engine.QPConfig{MaxRecvWR: n}, engine.StateRTR); err != nil {
		return l, err
	}
	if _, err = l.rx.Attach(engine.FlowRule{Kind: engine.FlowAll}); err != nil {
		return l, err
	}
	return l, l.fill(every)
}

func queuePair(d *engine.Device, c engine.QPConfig, to engine.QPState) (*engine.QP, *engine.CQ, error) {
	cq, err := d.NewCQ(2 * (c.MaxSendWR + c.MaxRecvWR))
	if err != nil {
		return nil, nil, err
	}
	c.Type, c.SendCQ, c.RecvCQ = engine.RawPacket, cq, cq
	qp, err := d.DefaultPD().NewQP(c)
	if err != nil {
		return nil, nil, err
	}
	return qp, cq, qp.MoveTo(to, engine.QPAttr{})
}

// fill writes the frames and the requests for them.
func (l *loopEnds) fill(every int) error {
	n := len(l.sends)
	from, err := l.devices[0].DefaultPD().AllocPool(n, slotBytes)
	if err != nil {
		return err
	}
	to, err := l.devices[1].DefaultPD().AllocPool(n, slotBytes)
	if err != nil {
		return err
	}
	dst, src := l.devices[1].Caps().MAC, l.devices[0].Caps().MAC
	for i := range n {
		f, _ := from.Get()
		header := append(append(append([]byte(nil), dst[:]...), src[:]...), 0x88, 0xb5) // an EtherType for experiments
		copy(from.Bytes(f), header)
		l.sends[i] = engine.SendWR{ID: uint64(i), Opcode: engine.OpSend, SGEs: []engine.SGE{from.SGE(f, frameBytes)}}
		if (i+1)%every == 0 {
			l.sends[i].Flags = engine.Signaled
		}
		f, _ = to.Get()
		l.receives[i] = engine.RecvWR{ID: uint64(i), SGEs: []engine.SGE{to.SGE(f, slotBytes)}}
	}
	return nil
}

func (l *loopEnds) close() (err error) {
	for _, d := range l.devices {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}

// round sends a burst and polls both ends until all of it has completed, one goroutine in the place of both.
func (l *loopEnds) round(sendCQEs int) error {
	if n, err := l.rx.PostRecv(l.receives); n != burst || err != nil {
		return fmt.Errorf("posted %d receives of %d: %w", n, burst, err)
	}
	if n, err := l.tx.Post(l.sends); n != burst || err != nil {
		return fmt.Errorf("posted %d sends of %d: %w", n, burst, err)
	}
	for sent, received := 0, 0; sent < sendCQEs || received < burst; {
		n, err := poll(l.txCQ, l.wc[0][:])
		if err != nil {
			return err
		}
		sent += n
		if n, err = poll(l.rxCQ, l.wc[1][:]); err != nil {
			return err
		}
		received += n
	}
	return nil
}

// poll takes completions, all of which have to be good.
func poll(cq *engine.CQ, wc []engine.Completion) (int, error) {
	n, err := cq.Poll(wc)
	for i := range wc[:n] {
		c := &wc[i]
		if c.Status != engine.StatusSuccess || c.Opcode.IsRecv() && c.ByteLen != frameBytes {
			return n, fmt.Errorf("completion of request %d: %w, %d bytes", c.WRID, c.Status, c.ByteLen)
		}
	}
	return n, err
}

// loopOnOneCore sends bursts of which every so many'th packet has a send completion; all have a receive completion.
func loopOnOneCore(every int) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		s.command = fmt.Sprintf("in process, cpu %d: two loop: ports inline, Post and PostRecv of %d, Signaled every %d", b.cpu, burst, every)
		l, err := b.openLoop(burst, every)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		all := uint64(0)
		err = pinned(b.cpu, func() error {
			return s.repeat(ctx, b.window, func() (int, error) {
				for range between {
					if err := l.round(burst / every); err != nil {
						return 0, err
					}
				}
				all += between * burst
				return between * burst, nil
			})
		})
		if err == nil {
			err = l.account(all)
		}
		return s, err
	}
}

// repeat runs work, which says how much it did, for a tenth of the window to get warm, and then for the window.
func (s *sample) repeat(ctx context.Context, window time.Duration, work func() (int, error)) error {
	for _, span := range []time.Duration{window / 10, window} {
		s.packets, s.elapsed = 0, 0
		for start := time.Now(); s.elapsed < span; s.elapsed = time.Since(start) {
			n, err := work()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			s.packets += uint64(n)
		}
	}
	return nil
}

// loopOnTwoCores has the sender on one processor and the receiver on another; all packets have both completions.
func loopOnTwoCores(ctx context.Context, b *bench) (s sample, err error) {
	s.command = fmt.Sprintf("in process, cpus %d and %d: a loop: port inline in each of two pinned goroutines, %d requests under way, all Signaled",
		b.cpu, b.otherCPU, depth)
	l, err := b.openLoop(depth, 1)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if _, err := l.rx.PostRecv(l.receives); err != nil {
		return s, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := transfer{window: b.window, ready: make(chan struct{}, 2), begin: make(chan struct{})}
	t.total.Store(-1)
	both := make(chan error, 2)
	for _, half := range []func() error{
		func() error { return pinned(b.cpu, func() error { return l.sendFor(ctx, &t) }) },
		func() error { return pinned(b.otherCPU, func() error { return l.receiveAll(ctx, &t) }) },
	} {
		go func() {
			err := half()
			if err != nil {
				cancel()
			}
			both <- err
		}()
	}
	for range 2 {
		select {
		case <-t.ready:
		case <-ctx.Done():
		}
	}
	start := time.Now()
	close(t.begin)
	err = errors.Join(<-both, <-both)
	s.packets, s.elapsed = uint64(t.total.Load()), t.end.Sub(start)
	if err == nil {
		err = l.account(s.packets)
	}
	return s, err
}

// transfer is what the goroutines of two ends agree on.
type transfer struct {
	window time.Duration
	ready  chan struct{} // each sends one; there is room for both
	begin  chan struct{} // closed then
	total  atomic.Int64  // stored by the sender when it has ended, -1 before; the receiver loads it
	end    time.Time     // of the receiver
}

// pinned runs f on a processor.
func pinned(cpu int, f func() error) error {
	unpin, err := pin.Pin(cpu)
	if err != nil {
		return err
	}
	defer unpin()
	return f()
}

// sendFor sends for the window and returns when all of it has completed.
func (l *loopEnds) sendFor(ctx context.Context, t *transfer) error {
	t.ready <- struct{}{}
	<-t.begin
	sent, completed, deadline := int64(0), int64(0), time.Now().Add(t.window)
	defer func() { t.total.Store(sent) }()
	for over := false; !over || completed < sent; {
		for range between {
			if at := int(sent % depth); !over && sent-completed <= depth-burst {
				if n, err := l.tx.Post(l.sends[at : at+burst]); n != burst || err != nil {
					return fmt.Errorf("posted %d sends of %d: %w", n, burst, err)
				}
				sent += burst
			}
			n, err := poll(l.txCQ, l.wc[0][:])
			if err != nil {
				return err
			}
			completed += int64(n)
		}
		over = over || !time.Now().Before(deadline)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// receiveAll receives until it has as many as the sender says it sent.
func (l *loopEnds) receiveAll(ctx context.Context, t *transfer) error {
	t.ready <- struct{}{}
	<-t.begin
	received, posted := int64(0), int64(0) // posted again, in bursts
	for {
		if total := t.total.Load(); total >= 0 && received >= total {
			t.end = time.Now()
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for range between {
			n, err := poll(l.rxCQ, l.wc[1][:])
			if err != nil {
				return err
			}
			received += int64(n)
			if received-posted < burst {
				continue
			}
			at := int(posted % depth)
			if n, err := l.rx.PostRecv(l.receives[at : at+burst]); n != burst || err != nil {
				return fmt.Errorf("posted %d receives of %d: %w", n, burst, err)
			}
			posted += burst
		}
	}
}

// account compares what was counted here with what the devices did.
func (l *loopEnds) account(packets uint64) error {
	out, in := l.devices[0].Counters(), l.devices[1].Counters()
	if out.TxFrames != packets || in.RxFrames != packets {
		return fmt.Errorf("%d packets have completed, but one device has sent %d and the other received %d", packets, out.TxFrames, in.RxFrames)
	}
	return nil
}
