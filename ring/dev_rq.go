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
	return apart(DevRQ{
		mem: mem[:c.Stride*c.Entries], stride: c.Stride, mask: uint32(c.Entries - 1), rec: rec,
	}), nil
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

// Run reads up to len(segs) entries without taking them, from the oldest on, as
// long as each has exactly one piece, and gives their number. An entry of
// another shape ends the run and is left to Peek. The record is read only when
// fewer entries are known of.
func (d *DevRQ) Run(segs []Seg) (n int) {
	if int(d.pi-d.ci) < len(segs) {
		d.Available()
	}
	slot := int(d.ci & d.mask)
	segs = segs[:min(len(segs), int(d.pi-d.ci))]
	edge := min(len(segs), int(d.mask)+1-slot)
	if n = onePieces(d.mem[slot*d.stride:], d.stride, segs[:edge]); n == edge && edge < len(segs) {
		n += onePieces(d.mem, d.stride, segs[edge:])
	}
	return n
}

// First is Run for one entry.
func (d *DevRQ) First() (s Seg, ok bool) {
	if d.pi == d.ci && d.Available() == 0 {
		return s, false
	}
	b := d.mem[int(d.ci&d.mask)*d.stride:]
	s = getSeg(b)
	return s, s.Len != 0 && (d.stride == DSBytes || get64(b[DSBytes:]) == TermLKey)
}

// Row gives up to n of the oldest entries but the first skip, those that stand
// one behind the other, as they are in the ring, without taking them: each has
// the 16 bytes of one piece. It is empty for rings whose entries have room for
// more. The record is read only when fewer entries are known of.
func (d *DevRQ) Row(skip, n int) (entries []byte) {
	if d.stride != DSBytes {
		return nil
	}
	if int(d.pi-d.ci) < skip+n {
		d.Available()
	}
	slot := int((d.ci + uint32(skip)) & d.mask)
	n = min(n, int(d.pi-d.ci)-skip, int(d.mask)+1-slot)
	if n <= 0 {
		return nil
	}
	return d.mem[slot*DSBytes : (slot+n)*DSBytes]
}

// RowKey gives the key of the first entry of a Row that is not empty.
func RowKey(entries []byte) uint32 { return getSeg(entries).LKey }

// onePieces reads entries as long as each has exactly one piece.
func onePieces(mem []byte, stride int, segs []Seg) int {
	if stride == DSBytes {
		mem = mem[:len(segs)*DSBytes]
		for i := range segs {
			b := (*[DSBytes]byte)(mem[i*DSBytes:])
			v := get64(b[0:8])
			s := &segs[i]
			s.Addr, s.Len, s.LKey = get64(b[8:16]), uint32(v>>32), uint32(v)
			if v>>32 == 0 {
				return i
			}
		}
		return len(segs)
	}
	for i := range segs {
		b := mem[i*stride:][:2*DSBytes]
		if segs[i] = getSeg(b); segs[i].Len == 0 || get64(b[DSBytes:]) != TermLKey {
			return i
		}
	}
	return len(segs)
}

// Take takes the first n entries that Run read and gives the counter of the
// first.
func (d *DevRQ) Take(n int) (first uint16) {
	first = uint16(d.ci)
	d.ci += min(uint32(n), d.pi-d.ci)
	return first
}

// CI gives the counter of the next entry to take.
func (d *DevRQ) CI() uint32 { return d.ci }

// Reset returns the counters to zero.
func (d *DevRQ) Reset() { d.pi, d.ci = 0, 0 }
