package ring

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/bluering/bluering/internal/barrier"
)

// SQConfig describes a send queue.
type SQConfig struct {
	QPN   uint32
	MaxBB int // largest WQE in blocks, 1..16
	MaxWR int // 0: what the slots give
}

// SQSlots sizes a send ring so that askedWR requests of at most maxBB blocks
// always fit, whatever their mix, NOPs at the queue's edge included: those
// take at most maxBB-1 slots, and a window of that many requests crosses the
// edge once. maxWR is what the ring grants.
func SQSlots(askedWR, maxBB int) (slots, maxWR int, err error) {
	if askedWR < 1 || askedWR > MaxSlots {
		return 0, 0, fmt.Errorf("ring: send queue of %d requests, want 1..%d", askedWR, MaxSlots)
	}
	if maxBB < 1 || maxBB > MaxWQEBB {
		return 0, 0, fmt.Errorf("ring: WQE of %d blocks, want 1..%d", maxBB, MaxWQEBB)
	}
	slots = pow2ceil(askedWR*maxBB + maxBB - 1)
	if slots > MaxSlots {
		return 0, 0, fmt.Errorf("ring: %d requests of %d blocks need %d slots, more than %d",
			askedWR, maxBB, slots, MaxSlots)
	}
	return slots, sqMaxWR(slots, maxBB), nil
}

func sqMaxWR(slots, maxBB int) int { return (slots - (maxBB - 1)) / maxBB }

func pow2ceil(n int) int { return 1 << bits.Len(uint(n-1)) }

func isPow2(n int) bool { return n > 0 && n&(n-1) == 0 }

// sqRun remembers n requests of bb blocks each, one behind the other, from slot
// pi on. Their numbers count up from id.
type sqRun struct {
	id uint64
	pi uint32
	n  uint32
	bb uint32
}

// SQ is the host half of a send queue. One goroutine owns it.
//
//	Reserve -> fill -> Commit ... Publish -> doorbell ... Retire
type SQ struct {
	blocks []Block
	runs   []sqRun // a ring: those from head to tail hold all requests outstanding, in order
	head   uint32
	tail   uint32
	mask   uint32
	qpn    uint32
	maxBB  uint32
	maxWR  int
	rec    Record

	pi      uint32 // next slot
	ci      uint32 // oldest slot not retired
	posted  uint32 // requests committed
	retired uint32 // requests retired
	last    uint32 // first slot of the last request committed
	resPI   uint32 // first slot of the last Reserve
	resEnd  uint32 // its end; equal to resPI when nothing is reserved
	pub     SQMark // state at the last Publish
}

// SQMark is a point in a send queue's life that Rollback can return to.
type SQMark struct{ pi, posted, last uint32 }

// NewSQ makes a send queue over a ring. The number of blocks is a power of two.
func NewSQ(blocks []Block, rec Record, c SQConfig) (*SQ, error) {
	n := len(blocks)
	switch {
	case !isPow2(n) || n > MaxSlots:
		return nil, fmt.Errorf("ring: send ring of %d slots, want a power of two up to %d", n, MaxSlots)
	case c.MaxBB < 1 || c.MaxBB > MaxWQEBB || c.MaxBB > n:
		return nil, fmt.Errorf("ring: WQE of %d blocks in a ring of %d", c.MaxBB, n)
	case c.MaxWR < 0 || c.MaxWR > sqMaxWR(n, c.MaxBB):
		return nil, fmt.Errorf("ring: %d requests of %d blocks do not fit %d slots", c.MaxWR, c.MaxBB, n)
	case c.QPN > 0xffffff:
		return nil, fmt.Errorf("ring: QP number %#x has more than 24 bits", c.QPN)
	case !rec.Valid():
		return nil, fmt.Errorf("ring: send queue without a record")
	}
	q := apart(SQ{
		blocks: blocks, runs: make([]sqRun, n), mask: uint32(n - 1), rec: rec,
		qpn: c.QPN, maxBB: uint32(c.MaxBB), maxWR: c.MaxWR,
	})
	if q.maxWR == 0 {
		q.maxWR = sqMaxWR(n, c.MaxBB)
	}
	return q, nil
}

// Reserve gives bb contiguous blocks and the counter of the first. When they
// would cross the ring's edge, the blocks up to it become NOPs of one block
// each. ok is false when there is no room, or bb is not 1..MaxBB. Nothing
// moves before Commit; a Reserve that is not committed is void.
func (q *SQ) Reserve(bb int) (w []Block, pi uint32, ok bool) {
	n, pi := uint32(bb), q.pi
	if n-1 >= q.maxBB {
		return nil, 0, false
	}
	slots := uint32(len(q.blocks))
	s := pi & q.mask
	if n > slots-s || n > slots-(pi-q.ci) { // full, or at the edge
		w, pi, got := q.ReserveRun(1, bb)
		return w, pi, got == 1
	}
	q.resPI, q.resEnd = pi, pi+n
	return q.blocks[s : s+n : s+n], pi, true
}

// ReserveRun gives contiguous blocks for up to n WQEs of bb blocks each, and
// how many: fewer when the ring's edge or the oldest WQE is nearer, 0 when
// there is no room for one.
func (q *SQ) ReserveRun(n, bb int) (w []Block, pi uint32, got int) {
	if uint32(bb-1) >= uint32(len(q.blocks)) || n < 1 {
		return nil, 0, 0
	}
	pi = q.pi
	slots := uint32(len(q.blocks))
	free := slots - (pi - q.ci)
	edge := slots - pi&q.mask
	if uint32(bb) > edge {
		if free < edge+uint32(bb) {
			return nil, 0, 0
		}
		q.pad(pi, edge)
		pi += edge
		free -= edge
		edge = slots
	}
	room := min(free, edge)
	if uint32(bb) > room {
		return nil, 0, 0
	}
	need := uint32(bb)
	got = 1
	if n > 1 {
		got = min(n, int(room)/bb)
		need = uint32(got * bb)
	}
	q.resPI, q.resEnd = pi, pi+need
	s := pi & q.mask
	return q.blocks[s : s+need : s+need], pi, got
}

// pad turns the n blocks before the edge into NOPs.
func (q *SQ) pad(pi, n uint32) {
	for i := range n {
		w := &q.blocks[(pi+i)&q.mask]
		PutNOP(w, uint16(pi+i), q.qpn)
		clear(w[DSBytes:])
	}
}

// Commit makes the first bb blocks of the last Reserve one request. bb may be
// smaller than what was reserved. Without a Reserve it does nothing.
func (q *SQ) Commit(bb int, wrID uint64) {
	pi := q.resPI
	if uint32(bb-1) >= q.resEnd-pi {
		return
	}
	q.remember(pi, 1, uint32(bb), wrID)
}

// CommitRun makes the first n*bb blocks of the last ReserveRun n requests,
// numbered from firstID.
func (q *SQ) CommitRun(n, bb int, firstID uint64) {
	pi := q.resPI
	if n < 1 || bb < 1 || uint64(n)*uint64(bb) > uint64(q.resEnd-pi) {
		return
	}
	q.remember(pi, uint32(n), uint32(bb), firstID)
}

// remember commits requests. Those that go on where the last run ends become
// part of it, so that there are never more runs than slots in use.
func (q *SQ) remember(pi, n, bb uint32, id uint64) {
	end := pi + n*bb
	r := &q.runs[(q.tail-1)&q.mask]
	if q.tail == q.head || r.bb != bb || r.pi+r.n*bb != pi || r.id+uint64(r.n) != id {
		r = &q.runs[q.tail&q.mask]
		r.id, r.pi, r.n, r.bb = id, pi, 0, bb
		q.tail++
	}
	r.n += n
	q.posted += n
	q.last = end - bb
	q.pi, q.resPI, q.resEnd = end, end, end
}

// Mark remembers the present state for Rollback.
func (q *SQ) Mark() SQMark { return SQMark{q.pi, q.posted, q.last} }

// Rollback drops every request committed since the mark and not published, and
// any Reserve.
func (q *SQ) Rollback(m SQMark) {
	if int32(m.pi-q.pub.pi) < 0 {
		m = q.pub
	}
	if int32(m.pi-q.pi) > 0 {
		return
	}
	for q.tail != q.head {
		r := &q.runs[(q.tail-1)&q.mask]
		if keep := int32(m.pi - r.pi); keep > 0 {
			r.n = min(r.n, uint32(keep)/r.bb)
			break
		}
		q.tail--
	}
	q.pi, q.posted, q.last = m.pi, m.posted, m.last
	q.resPI, q.resEnd = q.pi, q.pi
}

// Publish hands all committed requests to the device: barrier, then the
// record. any is false when there were none. dbWord is what the doorbell wants:
// the first 8 bytes of the last WQE, as a native word, so that one native store
// puts them in order. The caller rings, once.
func (q *SQ) Publish() (dbWord uint64, any bool) {
	if q.pi == q.pub.pi {
		return 0, false
	}
	q.pub = SQMark{q.pi, q.posted, q.last}
	dbWord = binary.NativeEndian.Uint64(q.blocks[q.last&q.mask][0:8])
	barrier.ToDevice() // WQEs before the record
	q.rec.StoreSend(q.pi)
	barrier.ToDevice() // the record before the doorbell
	return dbWord, true
}

// Retire takes a completion's WQE counter: that request and all older ones are
// done. ok is false, and nothing changes, when the counter names a NOP, a slot
// within a WQE, or nothing that is outstanding; such a CQE must be dropped.
func (q *SQ) Retire(wqeCounter uint16) (wrID uint64, retired int, ok bool) {
	behind := uint32(wqeCounter - uint16(q.ci))
	if behind >= q.pub.pi-q.ci {
		return 0, 0, false
	}
	pi, n := q.ci+behind, uint32(0)
	for at := q.head; at != q.tail; at++ {
		r := &q.runs[at&q.mask]
		off, k := pi-r.pi, pi-r.pi // off is huge where pi is a pad in front of the run
		if r.bb != 1 {
			k = off / r.bb
		}
		if k >= r.n {
			n += r.n
			continue
		}
		if k*r.bb != off {
			break
		}
		wrID = r.id + uint64(k)
		k++
		n += k
		r.id, r.pi, r.n = r.id+uint64(k), r.pi+k*r.bb, r.n-k
		if q.head = at; r.n == 0 {
			q.head++
		}
		q.retired += n
		q.ci = pi + r.bb
		return wrID, int(n), true
	}
	return 0, 0, false
}

// Row gives the counter and the number of the oldest request, and how many
// requests of one block that are published stand one behind the other from it
// on, with numbers that count up; 0 when it is larger or behind a pad.
func (q *SQ) Row() (pi uint32, id uint64, n int) {
	r := &q.runs[q.head&q.mask]
	if q.head == q.tail || r.bb != 1 || r.pi != q.ci {
		return q.ci, 0, 0
	}
	return r.pi, r.id, int(min(r.n, q.pub.pi-r.pi))
}

// RetireRow retires the first n requests of the Row, each by a completion of its
// own.
func (q *SQ) RetireRow(n int) {
	if n > 0 {
		q.Retire(uint16(q.ci) + uint16(n-1))
	}
}

// Outstanding gives the requests committed and not retired.
func (q *SQ) Outstanding() int { return int(q.posted - q.retired) }

// MaxWR gives the number of requests that always fit.
func (q *SQ) MaxWR() int { return q.maxWR }

// MaxBB gives the size of the largest WQE in blocks.
func (q *SQ) MaxBB() int { return int(q.maxBB) }

// FreeSlots gives the slots that nothing occupies, NOPs counted as occupying.
func (q *SQ) FreeSlots() int { return len(q.blocks) - int(q.pi-q.ci) }

// PI gives the counter of the next slot.
func (q *SQ) PI() uint32 { return q.pi }

// CI gives the counter of the oldest slot that is not retired.
func (q *SQ) CI() uint32 { return q.ci }

// Slots gives the size of the ring.
func (q *SQ) Slots() int { return len(q.blocks) }

// QPN gives the QP number that goes into each WQE.
func (q *SQ) QPN() uint32 { return q.qpn }

// Blocks gives the ring's memory.
func (q *SQ) Blocks() []Block { return q.blocks }

// Reset drops everything and returns the counters, the record's too, to zero.
// The device half must be reset as well, and not be running.
func (q *SQ) Reset() {
	q.head, q.tail = 0, 0
	q.pi, q.ci, q.posted, q.retired, q.last, q.resPI, q.resEnd = 0, 0, 0, 0, 0, 0, 0
	q.pub = SQMark{}
	q.rec.StoreSend(0)
}
