package softnic

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/barrier"
)

// Step runs the NIC for at most about budget frames and returns how many things it did: frames sent, frames
// taken from the wire, WRs flushed. It is a deterministic state machine: what it does depends on the rings,
// the wire and the clock alone. 0 means that there was nothing it could do.
func (n *NIC) Step(budget int) int {
	for !n.busy.take(stepping) {
		if n.busy.by() == stepping {
			n.fail(ErrTwoOwners)
			return 0
		}
		runtime.Gosched() // a control operation; it ends soon
	}
	if n.closed.Load() {
		n.busy.give()
		return 0
	}
	n.now, n.held = 0, notHeld
	work := 0
	if n.sendsWait() {
		work = n.serveQueues(budget)
	}
	if n.unflushed {
		n.unflushed = false
		n.flushWire()
	}
	if n.lent.waiting() {
		work += n.comeBack()
	}
	work += n.receive(budget)
	if len(n.dirty) > 0 || len(n.events) > 0 {
		n.publish()
	}
	n.busy.give()
	return work
}

// flushWire pushes the committed frames to the medium. What the medium does not take now stays pending in
// the wire and is pushed again by the next Step. An error tells of frames the wire lost for good; it counts
// them in its own statistics and goes on, unless it is one that stays.
func (n *NIC) flushWire() {
	if err := n.wire.Flush(); err != nil {
		n.counters.TxWireErrors++
		if n.wire.Err() != nil || errors.Is(err, wire.ErrReadOnly) {
			n.fail(fmt.Errorf("softnic: %w", err))
		}
	}
	n.unflushed = n.wire.Pending() > 0
}

// sendsWait reports whether serveQueues may have something to do.
func (n *NIC) sendsWait() bool {
	for _, q := range n.active {
		if q.state != engine.StateRTS || q.sq.Pending() != 0 {
			return true
		}
	}
	return false
}

// serveQueues gives each QP a turn of at most one burst, beginning with another one at each call, and goes
// round again while there is budget and somebody did something and is not known to be done.
func (n *NIC) serveQueues(budget int) int {
	work := 0
	for round := len(n.active) > 0; round; {
		round = false
		for i := range n.active {
			at := n.turn + i
			if at >= len(n.active) {
				at -= len(n.active)
			}
			q := n.active[at]
			did := n.serve(q, min(budget-work, burst))
			work += did
			round = round || did > 0 && (q.state != engine.StateRTS || q.sq.More())
			if work >= budget {
				round = false
				n.turn = at
				break
			}
		}
	}
	if n.turn++; n.turn >= len(n.active) {
		n.turn = 0
	}
	return work
}

func (n *NIC) serve(q *qp, limit int) int {
	switch q.state {
	case engine.StateRTS:
		if q.ud != nil {
			return n.sendUD(q, limit)
		}
		if q.rate != nil {
			return n.sendPaced(q, limit)
		}
		return n.send(q, limit)
	case engine.StateSQE:
		return n.flushSends(q, limit)
	case engine.StateErr:
		work := n.flushSends(q, limit)
		return work + n.flushReceives(q, limit-work)
	}
	// RESET, INIT, RTR and SQD send nothing.
	return 0
}

// time returns this Step's reading of the clock.
func (n *NIC) time() int64 {
	if n.now == 0 {
		n.now = n.cfg.Clock.Now()
	}
	return n.now
}

// publish releases every CQ's pending burst with one atomic store each, and tells the events that this or what
// went before led to.
func (n *NIC) publish() {
	if len(n.dirty) > 0 {
		n.publishBursts()
	}
	if len(n.events) > 0 {
		n.tell()
	}
}

func (n *NIC) publishBursts() {
	for i, c := range n.dirty {
		urgent := c.dev.Urgent()
		count := c.dev.Publish()
		if n.g != nil || n.busy.by() != stepping { // else the owner of the queues is here, who sets the flag
			barrier.StoreLoad() // the completions before it
		}
		if c.armed.Load() && count > 0 {
			n.completed(c, urgent)
		}
		c.dirty = false
		n.dirty[i] = nil
	}
	n.dirty = n.dirty[:0]
	if n.g != nil {
		n.published.Add(1)
		if n.waiting.Load() {
			n.bell.ring()
		}
	}
}
