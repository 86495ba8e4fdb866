package ring

import (
	"encoding/binary"
	"math/bits"
)

// DevCQ is the device half of a completion queue. The NIC's goroutine owns it.
//
//	Free ... Next -> fill -> Seal ... Publish
//
// Completions are published in bursts. The first of a burst is built aside;
// the others are written to the ring with plain stores. Publish then copies
// the first, its last word last and atomically. A poller reads nothing behind
// an entry that is not its own, so that one store releases the whole burst.
type DevCQ struct {
	cqes []CQE
	mask uint32
	lap  uint8
	rec  Record
	cqn  uint32
	pi   uint32 // next entry
	pub  uint32 // first entry not published
	ci   uint32 // what the record said last
	held [1]CQE // the first entry of the burst, while it is pending

	urgent bool // the pending burst has a failure or a solicited receive
}

// NewDevCQ makes the device half over a ring that NewCQ has initialised.
func NewDevCQ(cqes []CQE, rec Record, cqn uint32) (*DevCQ, error) {
	if err := checkCQ(cqes, rec, cqn); err != nil {
		return nil, err
	}
	return apart(DevCQ{
		cqes: cqes, mask: uint32(len(cqes) - 1), lap: uint8(bits.Len(uint(len(cqes) - 1))),
		rec: rec, cqn: cqn,
	}), nil
}

// Free gives the entries that may still be written, pending ones taken off. It
// reads the consumer record, which acquires what the poller has finished with.
// Partner: CQ.Update. A record that claims more than was published leaves 0.
func (d *DevCQ) Free() int {
	used := (d.pi - d.rec.LoadCI()) & 0xffffff
	d.ci = d.pi - used
	return max(0, len(d.cqes)-int(used))
}

// Room gives how many of n entries may be written now. The record is read only
// when the room known of does not suffice.
func (d *DevCQ) Room(n int) int {
	room := len(d.cqes) - int(d.pi-d.ci)
	if room < n {
		room = d.Free()
	}
	return min(n, room)
}

// Next gives the next entry, to be written whole with one of its Put methods
// and sealed; false when the queue is full. What stood in the entry may still
// stand there. The record is read only when the room known of is used up.
func (d *DevCQ) Next() (*CQE, bool) {
	if d.pi-d.ci > d.mask && d.Free() == 0 {
		return nil, false
	}
	return d.entry(d.pi), true
}

// entry gives the memory in which the completion of that counter is built.
func (d *DevCQ) entry(pi uint32) *CQE {
	if pi == d.pub {
		return &d.held[0]
	}
	return &d.cqes[pi&d.mask]
}

// Seal finishes the entry that Next gave: its last byte gets opOwn, that is
// CQEOpcode<<4 with OpOwnSolicited, and the owner bit of its counter.
func (d *DevCQ) Seal(opOwn uint8) {
	d.entry(d.pi)[cqeOpOwn] = opOwn&^opOwnOwner | uint8(d.pi>>d.lap&1)
	d.pi++
	d.urgent = d.urgent || opOwn >= uint8(CQEReqErr)<<4 || opOwn&OpOwnSolicited != 0
}

// PutSends writes and seals the completions of n send WQEs of one queue pair
// whose counters go up by one: the bytes that Next, PutReq and Seal would write.
// The caller has asked Room.
func (d *DevCQ) PutSends(uidx, qpn uint32, op Opcode, first uint16, n int, time uint64) {
	r := doneRun{
		user: swap64(uint64(uidx&0xffffff) << 32), time: swap64(time),
		last: uint64(op)<<56 | uint64(qpn&0xffffff)<<32 | uint64(CQEReq)<<4,
	}
	for n > 0 {
		part := d.part(n)
		r.last = r.last&^1 | uint64(d.pi>>d.lap&1)
		for i := range part {
			part[i].putDone(&r, 0, first)
			first++
		}
		d.pi += uint32(len(part))
		n -= len(part)
	}
}

// PutRecvs is PutSends for receives, PutRecv in its place, of frames of these
// lengths.
func (d *DevCQ) PutRecvs(uidx, qpn uint32, first uint16, lens []int32, time uint64) {
	r := doneRun{
		user: swap64(uint64(uidx&0xffffff) << 32), time: swap64(time),
		last: uint64(qpn&0xffffff)<<32 | uint64(CQERecv)<<4,
	}
	for len(lens) > 0 {
		part := d.part(len(lens))
		r.last = r.last&^1 | uint64(d.pi>>d.lap&1) // the owner bit is the same up to the ring's edge
		for i, n := range lens[:len(part)] {
			part[i].putDone(&r, uint32(n), first)
			first++
		}
		d.pi += uint32(len(part))
		lens = lens[len(part):]
	}
}

// doneRun is what the completions of a run have in common. user and time are in
// the ring's order of bytes.
type doneRun struct{ user, time, last uint64 }

func (c *CQE) putDone(r *doneRun, bytes uint32, counter uint16) {
	c.zero32()
	binary.NativeEndian.PutUint64(c[32:40], r.user)
	put64(c[40:48], uint64(bytes))
	binary.NativeEndian.PutUint64(c[48:56], r.time)
	put64(c[56:64], r.last|uint64(counter)<<16)
}

// part gives the memory of up to n entries from pi on that stand in one piece.
func (d *DevCQ) part(n int) []CQE {
	if d.pi == d.pub {
		return d.held[:1]
	}
	slot := int(d.pi & d.mask)
	return d.cqes[slot:min(slot+n, len(d.cqes))]
}

// Publish releases the pending burst with one store, which later loads may pass,
// and gives its length. Partner: CQ.Peek.
func (d *DevCQ) Publish() int {
	n := d.pi - d.pub
	if n == 0 {
		return 0
	}
	c := &d.cqes[d.pub&d.mask]
	*(*[cqeLast]byte)(c[:]) = *(*[cqeLast]byte)(d.held[0][:])
	publishLast(c, get64(d.held[0][cqeLast:]))
	d.pub = d.pi
	d.urgent = false
	return int(n)
}

// Urgent reports whether the pending burst has what an arming for solicited
// completions waits for: a failure, or a receive whose sender asked for it.
func (d *DevCQ) Urgent() bool { return d.urgent }

// Fires reports whether the queue is armed for a burst, after the given number
// of events: the arm word carries the two low bits of the owner's own count,
// which lags behind by the events not taken yet. Partner: CQ.Arm.
func (d *DevCQ) Fires(events uint32, urgent bool) bool {
	w := d.rec.LoadArm()
	return w>>28&3 == events&3 && (urgent || w&armSolicited == 0)
}

// Pending gives the entries sealed and not published.
func (d *DevCQ) Pending() int { return int(d.pi - d.pub) }

// PI gives the counter of the next entry.
func (d *DevCQ) PI() uint32 { return d.pi }

// CQN gives the queue's number.
func (d *DevCQ) CQN() uint32 { return d.cqn }

// Reset returns the counters to zero; pending entries are dropped.
func (d *DevCQ) Reset() { d.pi, d.pub, d.ci, d.urgent = 0, 0, 0, false }
