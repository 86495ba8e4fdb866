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
	held CQE    // the first entry of the burst, while it is pending
}

// NewDevCQ makes the device half over a ring that NewCQ has initialised.
func NewDevCQ(cqes []CQE, rec Record, cqn uint32) (*DevCQ, error) {
	if err := checkCQ(cqes, rec, cqn); err != nil {
		return nil, err
	}
	return &DevCQ{
		cqes: cqes, mask: uint32(len(cqes) - 1), lap: uint8(bits.Len(uint(len(cqes) - 1))),
		rec: rec, cqn: cqn,
	}, nil
}

// Free gives the entries that may still be written, pending ones taken off. It
// reads the consumer record, which acquires what the poller has finished with.
// Partner: CQ.Update. A record that claims more than was published leaves 0.
func (d *DevCQ) Free() int {
	used := (d.pi - d.rec.LoadCI()) & 0xffffff
	d.ci = d.pi - used
	return max(0, len(d.cqes)-int(used))
}

// Next gives the next entry, zeroed, to be filled and sealed; false when the
// queue is full. The record is read only when the room known of is used up.
func (d *DevCQ) Next() (*CQE, bool) {
	if d.pi-d.ci > d.mask && d.Free() == 0 {
		return nil, false
	}
	c := &d.held
	if d.pi != d.pub {
		c = &d.cqes[d.pi&d.mask]
	}
	*c = CQE{}
	return c, true
}

// Seal finishes the entry that Next gave: its last byte gets opOwn, that is
// CQEOpcode<<4 with OpOwnSolicited, and the owner bit of its counter.
func (d *DevCQ) Seal(opOwn uint8) {
	c := &d.held
	if d.pi != d.pub {
		c = &d.cqes[d.pi&d.mask]
	}
	c[cqeOpOwn] = opOwn&^opOwnOwner | uint8(d.pi>>d.lap&1)
	d.pi++
}

// Publish releases the pending burst with one atomic store and gives its
// length. Partner: CQ.Peek.
func (d *DevCQ) Publish() int {
	n := d.pi - d.pub
	if n == 0 {
		return 0
	}
	c := &d.cqes[d.pub&d.mask]
	*(*[cqeLast]byte)(c[:]) = *(*[cqeLast]byte)(d.held[:])
	publishLast(c, binary.BigEndian.Uint64(d.held[cqeLast:]))
	d.pub = d.pi
	return int(n)
}

// Pending gives the entries sealed and not published.
func (d *DevCQ) Pending() int { return int(d.pi - d.pub) }

// PI gives the counter of the next entry.
func (d *DevCQ) PI() uint32 { return d.pi }

// CQN gives the queue's number.
func (d *DevCQ) CQN() uint32 { return d.cqn }

// Reset returns the counters to zero; pending entries are dropped.
func (d *DevCQ) Reset() { d.pi, d.pub, d.ci = 0, 0, 0 }
