package wire

import "golang.org/x/sys/unix"

// The time of a datagram that is under way alone is that of the caches, which the kernel has had for itself before each
// of our steps. So one that goes or comes alone, and is of the same kind as the last that did, passes little code and
// few lines of memory: one comparison tells where it goes to, or which headers it came with. All others go the general
// way.

// vainLooks is how many looks for lone datagrams there are for one at the interface.
const vainLooks = 16

// Reserve is that of all wires by sockets, shorter for a frame that goes alone.
func (w *udp) Reserve(lens []int32, bufs [][]byte) int {
	t := w.tx
	if len(lens) != 1 || t.sent != t.tail || lens[0] < headerBytes || int(lens[0]) > t.longest || w.err.get() != nil {
		return w.kernelWire.Reserve(lens, bufs)
	}
	t.sent, t.built, t.tail, t.reserved = 0, 0, 0, 1
	t.lens[0] = lens[0]
	bufs[0] = t.mem[:lens[0]:t.stride]
	return 1
}

// sendLone sends the frame that was committed, if it is the only one and begins as the last one that went alone did.
// False: nothing was sent, and the general way will.
func (w *udp) sendLone() bool {
	t := w.tx
	if t.tail != 1 || t.built != 0 || !t.lone.sends(t.mem, t.lens[0]) || w.failed != nil || w.err.get() != nil {
		return false
	}
	if e := t.lone.send(t.fd, t.mem); e != 0 {
		if e != unix.EAGAIN {
			w.drainErrors()
		}
		return false
	}
	t.tail = 0
	w.stats.TxFrames++
	w.stats.TxBytes += t.lone.bytes
	return true
}

// receiveLone is Next of a wire that holds nothing, has no groups, and whose last look but one was in vain or is yet to be.
func (w *udp) receiveLone(frames []Frame) int {
	r := &w.rx
	n, e := r.lone.receive(w.fd)
	if e != 0 {
		w.source.ask = 0
		if w.vain++; w.armed || e != unix.EAGAIN || w.vain%vainLooks == 0 {
			w.idle(e)
		}
		return 0
	}
	w.source.ask++
	if !r.lone.same(n) {
		r.lone.tell(&r.batch, n)
		r.dress(0, w.addr)
	}
	r.head, r.tail = 0, 1
	frames[0] = r.frames[0]
	return 1
}
