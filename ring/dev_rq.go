package ring

import (
	"fmt"

	"github.com/bluering/bluering/internal/barrier"
)

// DevRQ is the device half of a receive queue. The NIC's goroutine owns it.
//
//	Available ... Peek -> scatter -> Advance
type DevRQ struct {
	mem    []byte
	stride int
	mask   uint32
	rec    Record
	pi     uint32 // what the record said last
	ci     uint32 // next entry to take
}

// NewDevRQ makes the device half over the same memory as NewRQ.
func NewDevRQ(mem []byte, rec Record, c RQConfig) (*DevRQ, error) {
	if err := c.check(mem); err != nil {
		return nil, err
	}
	if !rec.Valid() {
		return nil, fmt.Errorf("ring: receive queue without a record")
	}
	return &DevRQ{
		mem: mem[:c.Stride*c.Entries], stride: c.Stride, mask: uint32(c.Entries - 1), rec: rec,
	}, nil
}

// Available gives the entries posted and not taken. It reads the record, which
// acquires the entries; partner: RQ.Publish. A record that claims more than
// the ring holds counts as a full ring.
func (d *DevRQ) Available() int {
	n := uint32(uint16(d.rec.LoadRecv() - d.ci))
	barrier.FromDevice() // the record before the entries
	n = min(n, d.mask+1)
	d.pi = d.ci + n
	return int(n)
}

// Peek reads the oldest entry's pieces without taking it; ok is false when
// there is none. The record is read only when no entry is known of.
func (d *DevRQ) Peek(segs []Seg) (n int, ok bool) {
	if d.pi == d.ci && d.Available() == 0 {
		return 0, false
	}
	off := int(d.ci&d.mask) * d.stride
	return GetScatter(d.mem[off:off+d.stride], segs), true
}

// Advance takes the entry that Peek read and gives its counter.
func (d *DevRQ) Advance() uint16 {
	c := uint16(d.ci)
	if d.pi != d.ci {
		d.ci++
	}
	return c
}

// CI gives the counter of the next entry to take.
func (d *DevRQ) CI() uint32 { return d.ci }

// Reset returns the counters to zero.
func (d *DevRQ) Reset() { d.pi, d.ci = 0, 0 }
