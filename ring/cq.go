package ring

import (
	"fmt"
	"math/bits"

	"github.com/bluering/bluering/internal/barrier"
)

// MaxCQEntries is the largest completion queue: its counter in the record has
// 24 bits, and mlx5 devices stop at 4 Mi.
const MaxCQEntries = 1 << 22

// CQEntries gives the entries of a queue that was asked to hold that many: a
// power of two, more than asked, as libmlx5 does.
func CQEntries(asked int) (entries int, err error) {
	if asked < 1 || asked >= MaxCQEntries {
		return 0, fmt.Errorf("ring: completion queue of %d entries, want 1..%d", asked, MaxCQEntries-1)
	}
	return pow2ceil(asked + 1), nil
}

// armSolicited in the arm word asks for an event at a solicited completion only.
const armSolicited = 1 << 24

// CQ is the host half of a completion queue. One goroutine owns it.
//
//	Peek -> read -> Consume ... Update
type CQ struct {
	cqes []CQE
	mask uint32
	lap  uint8 // bit of the counter that the owner bit follows
	rec  Record
	cqn  uint32
	ci   uint32
	arm  uint32 // events taken, two bits of which go into the arm word
}

func checkCQ(cqes []CQE, rec Record, cqn uint32) error {
	switch n := len(cqes); {
	case !isPow2(n) || n > MaxCQEntries:
		return fmt.Errorf("ring: completion ring of %d entries, want a power of two up to %d", n, MaxCQEntries)
	case !alignedCQEs(cqes):
		return fmt.Errorf("ring: completion ring not on an 8-byte boundary")
	case !rec.Valid():
		return fmt.Errorf("ring: completion queue without a record")
	case cqn > 0xffffff:
		return fmt.Errorf("ring: CQ number %#x has more than 24 bits", cqn)
	}
	return nil
}

// NewCQ makes a completion queue over a ring and initialises its entries: all
// zero, the last byte "invalid". It must come before the device's half.
func NewCQ(cqes []CQE, rec Record, cqn uint32) (*CQ, error) {
	if err := checkCQ(cqes, rec, cqn); err != nil {
		return nil, err
	}
	q := apart(CQ{
		cqes: cqes, mask: uint32(len(cqes) - 1), lap: uint8(bits.Len(uint(len(cqes) - 1))),
		rec: rec, cqn: cqn,
	})
	q.Reset()
	return q, nil
}

// Peek gives the next completion if it is ours. The entry is valid until
// Consume and Update have returned it to the device. It reads the entry's last
// word and nothing else; partner: DevCQ.Publish.
func (q *CQ) Peek() (*CQE, bool) {
	c := &q.cqes[q.ci&q.mask]
	opOwn := uint8(lastWord(c))
	if opOwn >= opOwnInvalid || uint32(opOwn&opOwnOwner) != q.ci>>q.lap&1 {
		return nil, false
	}
	barrier.FromDevice() // the last word before the rest
	return c, true
}

// More reports whether the entry behind the one that Peek gave is ours, too.
func (q *CQ) More() bool {
	next := q.ci + 1
	opOwn := uint8(lastWord(&q.cqes[next&q.mask]))
	return opOwn < opOwnInvalid && uint32(opOwn&opOwnOwner) == next>>q.lap&1
}

// Row gives up to n entries from the consumer counter on that stand one behind
// the other, whether they are ours or not, and the owner bit that ours have.
func (q *CQ) Row(n int) (c []CQE, owner uint64) {
	slot := int(q.ci & q.mask)
	return q.cqes[slot:min(slot+n, len(q.cqes))], uint64(q.ci >> q.lap & 1)
}

// Match reports whether the entry's last word is want, which MatchWord and the
// owner bit make, but for the counter of the WQE: then the entry is ours. It
// reads that word and nothing else; partner: DevCQ.Publish.
func (c *CQE) Match(want uint64) (counter uint16, ok bool) {
	last := lastWord(c)
	barrier.FromDevice() // the last word before the rest
	return uint16(last >> 16), last&^(0xffff<<16) == want
}

// MatchWord is what Match compares with: a completion of that kind, operation
// (0 of receives) and queue pair, not solicited, in the profile's format.
func MatchWord(kind CQEOpcode, op Opcode, qpn uint32) uint64 {
	return uint64(op)<<56 | uint64(qpn&0xffffff)<<32 | uint64(kind)<<4
}

// ConsumeRun steps over the first n entries of a Row, which are ours.
func (q *CQ) ConsumeRun(n int) { q.ci += uint32(n) }

// Consume steps over the entry that Peek gave.
func (q *CQ) Consume() { q.ci++ }

// Update returns all consumed entries to the device; once per burst. Partner:
// DevCQ.Free.
func (q *CQ) Update() { q.rec.StoreCI(q.ci) }

// CI gives the consumer counter.
func (q *CQ) CI() uint32 { return q.ci }

// CQN gives the queue's number.
func (q *CQ) CQN() uint32 { return q.cqn }

// Entries gives the size of the ring.
func (q *CQ) Entries() int { return len(q.cqes) }

// Arm asks for an event at the next completion, or the next solicited one. It
// writes the arm word and gives the 8 bytes for the CQ doorbell, as a native
// word.
func (q *CQ) Arm(solicitedOnly bool) (dbWord uint64) {
	w := q.arm&3<<28 | q.ci&0xffffff
	if solicitedOnly {
		w |= armSolicited
	}
	q.rec.StoreArm(w)
	barrier.ToDevice() // the record before the doorbell
	return swap64(uint64(w)<<32 | uint64(q.cqn))
}

// EventTaken counts an event; arm words carry the count's two low bits.
func (q *CQ) EventTaken() { q.arm++ }

// Purge takes out the completions that match, for a queue pair that is
// destroyed or reset: the others move up over them, towards newer slots, and
// keep their order; each slot keeps its owner bit. It gives the number taken
// out, and updates the record. The device must not be writing.
func (q *CQ) Purge(match func(*CQE) bool) (freed int) {
	prod := q.ci
	for prod-q.ci <= q.mask {
		opOwn := uint8(lastWord(&q.cqes[prod&q.mask]))
		if opOwn >= opOwnInvalid || uint32(opOwn&opOwnOwner) != prod>>q.lap&1 {
			break
		}
		prod++
	}
	for i := prod; i != q.ci; {
		i--
		src := &q.cqes[i&q.mask]
		if match(src) {
			freed++
			continue
		}
		if freed != 0 {
			q.move(src, i+uint32(freed))
		}
	}
	if freed != 0 {
		q.ci += uint32(freed)
		barrier.ToDevice() // moved entries before the record
		q.Update()
	}
	return freed
}

// move copies a completion to the slot of counter to, whose owner bit stays.
func (q *CQ) move(src *CQE, to uint32) {
	dst := &q.cqes[to&q.mask]
	*(*[cqeLast]byte)(dst[:]) = *(*[cqeLast]byte)(src[:])
	owner := uint64(to >> q.lap & 1)
	publishLast(dst, lastWord(src)&^opOwnOwner|owner)
}

// Reset initialises all entries, counter and record. The device half must be
// reset as well, and not be running.
func (q *CQ) Reset() {
	for i := range q.cqes {
		c := &q.cqes[i]
		clear(c[:cqeLast])
		publishLast(c, opOwnInvalid)
	}
	q.ci, q.arm = 0, 0
	q.rec.StoreCI(0)
	q.rec.StoreArm(0)
}
