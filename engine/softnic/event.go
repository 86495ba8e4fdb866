package softnic

import "github.com/bluering/bluering/engine"

// Notify sets what gets the NIC's events. It is called by whoever runs the NIC, while it holds the NIC: it must
// not call back.
func (n *NIC) Notify(f func(engine.DeviceEvent)) { n.notify = f }

// raise notes an event. It is told by publish, when the completions that led to it are visible.
func (n *NIC) raise(t engine.EventType, number uint32) {
	n.events = append(n.events, engine.DeviceEvent{Type: t, Number: number})
}

// tell hands out what was raised.
func (n *NIC) tell() {
	for _, e := range n.events {
		if n.notify != nil {
			n.notify(e)
		}
	}
	n.events = n.events[:0]
}

// ArmCQ is the completion doorbell of a queue's owner. The arm word itself stands in the queue's record. Partner:
// publish, which looks here after it has made completions visible; the owner polls after it has armed: one of them
// sees the other.
func (n *NIC) ArmCQ(cqn uint32, _ uint64) {
	if c := n.findCQ(cqn); c != nil {
		c.armed.Store(true)
	}
}

// completed fires the event of a CQ whose burst has just been published, if it is armed for it. One event for each
// arming: from here on the record's arm word is that of an event which has happened.
func (n *NIC) completed(c *cq, urgent bool) {
	if c.dev.Fires(c.fired, urgent) {
		c.armed.Store(false)
		c.fired++
		n.raise(engine.EventCompletion, c.cqn)
	}
}

// Wake ends a Wait in progress, or the next one.
func (n *NIC) Wake() { n.bell.ring() }

// WaitFD gives the wire's descriptor, armed. There is none when the NIC has a goroutine of its own, or when its
// first frame waits for a receive WQE: the wire would be ready all the time. The time is that of the next send which
// waits for it.
func (n *NIC) WaitFD() (fd int, out bool, afterNS int64) {
	if n.g != nil {
		return -1, false, -1
	}
	if fd = -1; !n.rx.stalled {
		fd, out = n.arm()
	}
	if n.held == notHeld {
		return fd, out, -1
	}
	return fd, out, n.held
}
