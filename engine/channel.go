package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Channel is where completion queues tell that they have something, so that
// their owner can sleep. The way to wait loses nothing:
//
//	for {
//		cq.Arm(false)              ask for one event
//		n, _ := cq.Poll(wc)        what came before the asking makes none
//		if n == 0 {
//			cq, err = ch.Get(ctx)  sleeps
//			cq.Ack(1)
//		}
//	}
//
// Get and TryGet run a device that does not run by itself, so they belong to
// the owner of its queues. Of an autonomous device any goroutine may call them.
// The other methods may always be called from any goroutine.
type Channel struct {
	dev *Device

	mu     sync.Mutex // also of what its CQs have to do with events; taken once an event
	acked  *sync.Cond
	queue  []*CQ
	cqs    int
	closed bool
	signal chan struct{} // holds one: something waits
	ready  descriptor    // for others to poll; made when it is asked for
}

// What a CQ is armed for.
const (
	armedNot = iota
	armedSolicited
	armedAny
)

// NewChannel makes a channel for completion queues of this device.
func (d *Device) NewChannel() (*Channel, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	ch := &Channel{dev: d, signal: make(chan struct{}, 1)}
	ch.acked = sync.NewCond(&ch.mu)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, closed("device " + d.caps.Name)
	}
	d.channels = append(d.channels, ch)
	return ch, nil
}

func (ch *Channel) usable() error {
	if ch == nil || ch.dev == nil {
		return closed("completion channel")
	}
	if err := ch.dev.usable(); err != nil {
		return err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return closed("completion channel of " + ch.dev.caps.Name)
	}
	return nil
}

// push queues an event. The backend's goroutine calls it.
func (ch *Channel) push(c *CQ) {
	ch.mu.Lock()
	ch.queue = append(ch.queue, c)
	ch.ready.set()
	ch.mu.Unlock()
	poke(ch.signal)
}

// pop takes the oldest event.
func (ch *Channel) pop() *CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.queue) == 0 {
		return nil
	}
	c := ch.queue[0]
	ch.queue = ch.queue[1:]
	if len(ch.queue) == 0 {
		ch.ready.clear()
	} else {
		poke(ch.signal) // another reader may have slept through it
	}
	c.ring.EventTaken()
	c.armed = armedNot
	c.unacked++
	return c
}

// drop takes out the events of a CQ that is closed. The channel is locked.
func (ch *Channel) drop(c *CQ) {
	ch.queue = slices.DeleteFunc(ch.queue, func(o *CQ) bool { return o == c })
	if len(ch.queue) == 0 {
		ch.ready.clear()
	}
}

// idleCheck is how often a sleeping Get looks after the health of the device.
const idleCheck = 100 * time.Millisecond

// Get waits for an event and gives the CQ that it is of, which is then no longer
// armed. The event has to be acknowledged. An event may find its CQ empty
// (I-12). Get ends with an error when the context or the device does.
func (ch *Channel) Get(ctx context.Context) (*CQ, error) {
	if err := ch.usable(); err != nil {
		return nil, err
	}
	d := ch.dev
	if !d.caps.Autonomous { // its Wait cannot hear the context
		defer context.AfterFunc(ctx, d.b.Wake)()
	}
	for {
		if err := ch.usable(); err != nil {
			return nil, err
		}
		if c := ch.look(); c != nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("engine: %s: no completion event: %w", d.caps.Name, ctx.Err())
		}
		if err := d.b.Err(); err != nil {
			return nil, err
		}
		if !d.caps.Autonomous {
			if err := d.b.Wait(-1); err != nil {
				return nil, err
			}
			continue
		}
		timer := time.NewTimer(idleCheck)
		select {
		case <-ch.signal:
		case <-ctx.Done():
		case <-d.hub.closed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// TryGet is Get that does not wait: EAGAIN when there is no event now (I-11).
func (ch *Channel) TryGet() (*CQ, error) {
	if err := ch.usable(); err != nil {
		return nil, err
	}
	if c := ch.look(); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("engine: %s: no completion event now: %w", ch.dev.caps.Name, syscall.EAGAIN)
}

// look takes an event, and runs the device as long as that gives none and does
// something.
func (ch *Channel) look() *CQ {
	for {
		if c := ch.pop(); c != nil {
			return c
		}
		if ch.dev.b.Progress(pollBudget) == 0 {
			return ch.pop()
		}
	}
}

// FD gives a descriptor for poll, select and epoll: readable when TryGet may
// find an event. It has to be asked for anew, after a fruitless TryGet, before
// each wait. It belongs to the channel and is not to be read. -1 on systems
// without such descriptors.
func (ch *Channel) FD() int {
	if ch.usable() != nil {
		return -1
	}
	wire, out, after := -1, false, int64(-1)
	if !ch.dev.caps.Autonomous {
		wire, out, after = ch.dev.b.WaitFD()
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.ready.fd(len(ch.queue) > 0, !ch.dev.caps.Autonomous, wire, out, after)
}

// Close ends the channel; EBUSY while a CQ is on it. A second Close does
// nothing.
func (ch *Channel) Close() error {
	if ch == nil || ch.dev == nil {
		return nil
	}
	d := ch.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return nil
	}
	if ch.cqs > 0 && !d.closed.Load() {
		return fmt.Errorf("engine: %s: completion channel has %d CQs: %w", d.caps.Name, ch.cqs, syscall.EBUSY)
	}
	d.channels = slices.DeleteFunc(d.channels, func(o *Channel) bool { return o == ch })
	ch.end()
	return nil
}

// end closes the channel. It is locked.
func (ch *Channel) end() {
	ch.closed = true
	ch.queue = nil
	ch.ready.close()
	ch.acked.Broadcast()
	poke(ch.signal)
}

// Arm asks for one event when the next completion comes, or with solicitedOnly
// the next failure or receive whose sender asked for it. Completions that are
// there already make none: poll once more after it (I-06). Armed for any, it
// stays so until the event is taken (I-04). A CQ without a channel cannot be
// armed: EINVAL; the profiles rxe and mlx5 do nothing instead (I-08).
func (c *CQ) Arm(solicitedOnly bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	if c.ch == nil {
		if c.dev.caps.Profile == ProfileStrict {
			return fmt.Errorf("engine: %s: arm CQ 0x%x, which has no completion channel: %w", c.dev.caps.Name, c.cqn, syscall.EINVAL)
		}
		return nil
	}
	if !c.owner.enter() {
		return ErrOwner
	}
	c.ch.mu.Lock()
	if c.armed != armedAny {
		c.armed = armedAny
		if solicitedOnly {
			c.armed = armedSolicited
		}
	}
	word := c.ring.Arm(c.armed == armedSolicited)
	c.ch.mu.Unlock()
	c.dev.b.ArmCQ(c.cqn, word)
	c.owner.leave()
	return nil
}

// Ack acknowledges n of the events that Get gave for this CQ; EINVAL when they
// were fewer. Close waits for all of them, so that nobody is left with
// an event of a CQ that is gone. Any goroutine may call it.
func (c *CQ) Ack(n int) error {
	if c == nil || c.ring == nil {
		return errNoCQ
	}
	if c.ch == nil || n < 0 {
		return fmt.Errorf("engine: %s: acknowledge %d events of CQ 0x%x: %w", c.dev.caps.Name, n, c.cqn, syscall.EINVAL)
	}
	c.ch.mu.Lock()
	defer c.ch.mu.Unlock()
	if n > c.unacked {
		return fmt.Errorf("engine: %s: acknowledge %d events of CQ 0x%x, %d are open: %w", c.dev.caps.Name, n, c.cqn, c.unacked, syscall.EINVAL)
	}
	c.unacked -= n
	c.ch.acked.Broadcast()
	return nil
}

// join puts a CQ on the channel; false when that is closed.
func (ch *Channel) join(c *CQ) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return false
	}
	ch.cqs++
	c.ch = ch
	return true
}

// part waits until the CQ's events are acknowledged, and takes it from the
// channel.
func (ch *Channel) part(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for c.unacked > 0 && !ch.closed {
		ch.acked.Wait()
	}
	ch.drop(c)
	ch.cqs--
}
