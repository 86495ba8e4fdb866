package ring

import (
	"fmt"

	"github.com/bluering/bluering/internal/barrier"
)

// TermLKey marks the end of a scatter list that is shorter than its entry:
// length 0, this key, address 0 (MLX5_INVALID_LKEY).
const TermLKey = 0x100

// Limits of a receive queue.
const (
	MaxRQEntries = 32768
	MaxRQStride  = 1024
	minRQBytes   = 64
)

// RQConfig is the geometry of a receive ring.
type RQConfig struct {
	Stride  int // bytes of an entry, a power of two from 16
	Entries int // a power of two
}

func (c RQConfig) check(mem []byte) error {
	switch {
	case !isPow2(c.Stride) || c.Stride < DSBytes || c.Stride > MaxRQStride:
		return fmt.Errorf("ring: receive stride of %d bytes, want a power of two from %d to %d",
			c.Stride, DSBytes, MaxRQStride)
	case !isPow2(c.Entries) || c.Entries > MaxRQEntries:
		return fmt.Errorf("ring: %d receive entries, want a power of two up to %d", c.Entries, MaxRQEntries)
	case len(mem) < c.Stride*c.Entries:
		return fmt.Errorf("ring: %d entries of %d bytes in %d bytes", c.Entries, c.Stride, len(mem))
	}
	return nil
}

// RQGeometry sizes a receive ring as libmlx5 does: stride and entries are
// rounded up to powers of two, the ring has at least 64 bytes. All of it is
// granted.
func RQGeometry(askedWR, askedSGE int) (entries, stride, maxWR, maxSGE int, err error) {
	if askedWR < 1 || askedWR > MaxRQEntries {
		return 0, 0, 0, 0, fmt.Errorf("ring: receive queue of %d requests, want 1..%d", askedWR, MaxRQEntries)
	}
	if askedSGE < 1 || askedSGE > MaxRQStride/DSBytes {
		return 0, 0, 0, 0, fmt.Errorf("ring: %d receive pieces, want 1..%d", askedSGE, MaxRQStride/DSBytes)
	}
	stride = pow2ceil(askedSGE * DSBytes)
	entries = max(pow2ceil(askedWR), minRQBytes/stride)
	return entries, stride, entries, stride / DSBytes, nil
}

// RQ is the host half of a receive queue. One goroutine owns it.
//
//	Post ... Publish ... Take
type RQ struct {
	mem    []byte
	wrIDs  []uint64
	stride int
	mask   uint32
	rec    Record
	pi     uint32 // next entry
	ci     uint32 // oldest entry not completed
	pub    uint32 // pi at the last Publish
}

// NewRQ makes a receive queue over memory of at least Stride*Entries bytes.
func NewRQ(mem []byte, rec Record, c RQConfig) (*RQ, error) {
	if err := c.check(mem); err != nil {
		return nil, err
	}
	if !rec.Valid() {
		return nil, fmt.Errorf("ring: receive queue without a record")
	}
	return apart(RQ{
		mem: mem[:c.Stride*c.Entries], wrIDs: make([]uint64, c.Entries),
		stride: c.Stride, mask: uint32(c.Entries - 1), rec: rec,
	}), nil
}

// Post writes one request. Pieces of length 0 are skipped. It is false when
// the queue is full or the pieces are too many; nothing has changed then.
func (q *RQ) Post(segs []Seg, wrID uint64) bool {
	if q.pi-q.ci > q.mask {
		return false
	}
	slot := q.pi & q.mask
	if !PutScatter(q.entry(slot), segs) {
		return false
	}
	q.wrIDs[slot] = wrID
	q.pi++
	return true
}

// Post1 is Post for one piece, which must not be empty.
func (q *RQ) Post1(seg Seg, wrID uint64) bool {
	if q.pi-q.ci > q.mask {
		return false
	}
	slot := q.pi & q.mask
	b := q.entry(slot)
	PutSeg((*[DSBytes]byte)(b), seg.Addr, seg.Len, seg.LKey)
	if len(b) >= 2*DSBytes {
		PutSeg((*[DSBytes]byte)(b[DSBytes:]), 0, 0, TermLKey)
	}
	q.wrIDs[slot] = wrID
	q.pi++
	return true
}

func (q *RQ) entry(slot uint32) []byte {
	off := int(slot) * q.stride
	return q.mem[off : off+q.stride]
}

// Run gives the memory of up to n free entries that stand one behind the other,
// and the places of their numbers. What is written there, as Post does, becomes
// posted by Commit.
func (q *RQ) Run(n int) (mem []byte, wrIDs []uint64) {
	slot := int(q.pi & q.mask)
	n = min(n, q.Max()-q.Outstanding(), q.Max()-slot)
	if n <= 0 {
		return nil, nil
	}
	return q.mem[slot*q.stride : (slot+n)*q.stride], q.wrIDs[slot : slot+n]
}

// Stride gives the bytes of an entry.
func (q *RQ) Stride() int { return q.stride }

// Commit posts the first n entries that Run gave. A Run at once before it is
// what makes n valid.
func (q *RQ) Commit(n int) {
	if n = min(n, q.Max()-q.Outstanding()); n > 0 {
		q.pi += uint32(n)
	}
}

// Repost posts up to n requests again, those that stand in the next entries
// since the last lap, with their numbers, and gives how many: nothing is written.
// It is 0 in the first lap of the counter.
func (q *RQ) Repost(n int) int {
	if q.pi <= q.mask {
		return 0
	}
	n = max(0, min(n, q.Max()-q.Outstanding()))
	q.pi += uint32(n)
	return n
}

// Publish hands all posted entries to the device: barrier, then the record. A
// raw packet queue's owner calls it from RTR on only.
func (q *RQ) Publish() {
	if q.pi == q.pub {
		return
	}
	q.pub = q.pi
	barrier.ToDevice() // entries before the record
	q.rec.StoreRecv(q.pi)
}

// Take completes the oldest published entry; ok is false when there is none.
func (q *RQ) Take() (wrID uint64, ok bool) {
	if q.ci == q.pub {
		return 0, false
	}
	wrID = q.wrIDs[q.ci&q.mask]
	q.ci++
	return wrID, true
}

// Row gives the numbers of up to n of the oldest published entries, those that
// stand one behind the other.
func (q *RQ) Row(n int) (wrIDs []uint64) {
	slot := int(q.ci & q.mask)
	n = min(n, int(q.pub-q.ci), q.Max()-slot)
	return q.wrIDs[slot : slot+n]
}

// TakeRow completes the first n entries that Row gave.
func (q *RQ) TakeRow(n int) { q.ci += min(uint32(n), q.pub-q.ci) }

// Outstanding gives the entries posted and not completed.
func (q *RQ) Outstanding() int { return int(q.pi - q.ci) }

// Max gives the number of entries.
func (q *RQ) Max() int { return int(q.mask) + 1 }

// MaxSGE gives the pieces that fit an entry.
func (q *RQ) MaxSGE() int { return q.stride / DSBytes }

// PI gives the counter of the next entry.
func (q *RQ) PI() uint32 { return q.pi }

// Reset drops everything and returns the counters, the record's too, to zero.
// The device half must be reset as well, and not be running.
func (q *RQ) Reset() {
	q.pi, q.ci, q.pub = 0, 0, 0
	q.rec.StoreRecv(0)
}

// PutScatter writes a receive entry: the pieces that are not empty, then a
// terminator if there is room for one. It is false, and nothing is written,
// when the pieces are too many.
func PutScatter(entry []byte, segs []Seg) bool {
	n := 0
	for i := range segs {
		if segs[i].Len != 0 {
			n++
		}
	}
	if n > len(entry)/DSBytes {
		return false
	}
	for i := range segs {
		if segs[i].Len == 0 {
			continue
		}
		putSeg(entry, segs[i])
		entry = entry[DSBytes:]
	}
	if len(entry) >= DSBytes {
		putSeg(entry, Seg{LKey: TermLKey})
	}
	return true
}

// PutSeg writes one piece, or with no length and TermLKey the terminator.
func PutSeg(b *[DSBytes]byte, addr uint64, length, lkey uint32) {
	put64(b[0:8], uint64(length)<<32|uint64(lkey))
	put64(b[8:16], addr)
}

func putSeg(b []byte, s Seg) {
	_ = b[15]
	put64(b[0:8], uint64(s.Len)<<32|uint64(s.LKey))
	put64(b[8:16], s.Addr)
}

func getSeg(b []byte) Seg {
	_ = b[15]
	v := get64(b[0:8])
	return Seg{Addr: get64(b[8:16]), Len: uint32(v >> 32), LKey: uint32(v)}
}

// GetScatter reads a receive entry up to its terminator or its end, and gives
// the number of pieces. Empty pieces that are not the terminator are skipped;
// what does not fit segs is left out.
func GetScatter(entry []byte, segs []Seg) (n int) {
	for len(entry) >= DSBytes && n < len(segs) {
		s := getSeg(entry)
		if s.Len != 0 {
			segs[n] = s
			n++
		} else if s.LKey == TermLKey {
			break
		}
		entry = entry[DSBytes:]
	}
	return n
}
