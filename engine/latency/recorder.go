package latency

import (
	"math"
	"math/bits"
	"sync/atomic"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Options sets a recorder's range and precision.
type Options struct {
	MaxNS  int64 // largest value told apart; 0: 68 s, the packet tag's window
	Digits int   // significant decimal digits, 1 to 5; 0: 3
}

// DefaultMaxNS is the range of a recorder that names none: 2^32 units of 16 ns.
const DefaultMaxNS = 1<<36 - 1

func (o Options) normal() Options {
	if o.MaxNS <= 0 {
		o.MaxNS = DefaultMaxNS
	}
	o.MaxNS = min(max(o.MaxNS, 2), math.MaxInt64/4)
	if o.Digits == 0 {
		o.Digits = 3
	}
	o.Digits = min(max(o.Digits, 1), 5)
	return o
}

// Recorder records values. One goroutine owns it and calls Record, RecordN and
// Swap; Recycle may be called by the reader of a snapshot.
type Recorder struct {
	b         *buffer
	max       int64
	mask      uint64 // values up to mask are counted one by one
	halfShift uint   // log2 of half the number of sub-buckets

	opts  Options
	size  int
	spare atomic.Pointer[buffer] // Recycle stores, Swap takes
}

// buffer is one histogram: an HDR histogram's counts and exact statistics.
type buffer struct {
	counts       []int64
	count        uint64
	min, max     int64
	sumHi, sumLo uint64
	clamped      uint64
}

// New returns an empty recorder. It is the only call that allocates, with Swap
// when no snapshot was recycled.
func New(o Options) *Recorder {
	o = o.normal()
	r := &Recorder{opts: o, max: o.MaxNS}
	// The geometry of an HDR histogram with lowest value 1: the number of
	// sub-buckets is the power of two above 2*10^digits.
	size := uint64(2 * math.Pow10(o.Digits))
	r.mask = 1<<bits.Len64(size-1) - 1
	r.halfShift = uint(bits.Len64(r.mask)) - 1
	r.size = len(hdr.New(1, o.MaxNS, o.Digits).Export().Counts)
	r.b = newBuffer(r.size)
	return r
}

func newBuffer(n int) *buffer {
	return &buffer{counts: make([]int64, n), min: math.MaxInt64}
}

// Record counts one value: below 0 as 0, above the range as its end, both
// counted as clamped.
func (r *Recorder) Record(ns int64) {
	b := r.b
	if uint64(ns) > uint64(r.max) { // negative ones too
		ns = r.clamp(ns, 1)
	}
	b.counts[r.index(uint64(ns))]++
	b.count++
	if ns < b.min {
		b.min = ns
	}
	if ns > b.max {
		b.max = ns
	}
	lo, carry := bits.Add64(b.sumLo, uint64(ns), 0)
	b.sumLo, b.sumHi = lo, b.sumHi+carry
}

// RecordN counts a value n times.
func (r *Recorder) RecordN(ns int64, n uint64) {
	if n == 0 {
		return
	}
	b := r.b
	if uint64(ns) > uint64(r.max) {
		ns = r.clamp(ns, n)
	}
	b.counts[r.index(uint64(ns))] += int64(n)
	b.count += n
	b.min = min(b.min, ns)
	b.max = max(b.max, ns)
	hi, lo := bits.Mul64(uint64(ns), n)
	lo, carry := bits.Add64(b.sumLo, lo, 0)
	b.sumLo, b.sumHi = lo, b.sumHi+hi+carry
}

// RecordAll counts values, as Record of each does. Those at the beginning that
// are equal cost as much as one.
func (r *Recorder) RecordAll(ns []int64) {
	same := 0
	for same < len(ns) && ns[same] == ns[0] {
		same++
	}
	if same > 0 {
		r.RecordN(ns[0], uint64(same))
	}
	b := r.b
	counts, lo, hi, least, most := b.counts, b.sumLo, b.sumHi, b.min, b.max
	mask, shift, top := r.mask, r.halfShift&63, uint64(r.max)
	for _, v := range ns[same:] {
		u := uint64(v)
		if u > top {
			v = r.clamp(v, 1)
			u = uint64(v)
		}
		bucket := uint(bits.Len64(u|mask)) - (shift + 1)
		counts[uint64(bucket)<<shift+u>>(bucket&63)]++
		var carry uint64
		lo, carry = bits.Add64(lo, u, 0)
		hi += carry
		least, most = min(least, v), max(most, v)
	}
	b.sumLo, b.sumHi, b.min, b.max = lo, hi, least, most
	b.count += uint64(len(ns) - same)
}

func (r *Recorder) clamp(ns int64, n uint64) int64 {
	r.b.clamped += n
	if ns < 0 {
		return 0
	}
	return r.max
}

// index is an HDR histogram's slot of v: the bucket is v's power of two above
// the sub-bucket range, the sub-bucket its leading bits.
func (r *Recorder) index(v uint64) uint64 {
	bucket := uint(bits.Len64(v|r.mask)) - (r.halfShift + 1)
	return uint64(bucket)<<(r.halfShift&63) + v>>(bucket&63)
}

// Count returns how many values the recorder holds since the last Swap.
func (r *Recorder) Count() uint64 { return r.b.count }

// Swap takes out what was recorded and starts anew. Called by the owner; the
// snapshot may go to another goroutine. It allocates unless an earlier snapshot
// was recycled.
func (r *Recorder) Swap() Snapshot {
	fresh := r.spare.Swap(nil)
	if fresh == nil {
		fresh = newBuffer(r.size)
	}
	s := Snapshot{b: r.b, opts: r.opts}
	r.b = fresh
	return s
}

// Recycle clears s and gives its memory back for the next Swap; s is empty
// afterwards. Any goroutine may call it; snapshots that were merged into stay
// usable only if they are not recycled.
func (r *Recorder) Recycle(s *Snapshot) {
	b := s.b
	s.b = nil
	if b == nil || len(b.counts) != r.size {
		return
	}
	clear(b.counts)
	*b = buffer{counts: b.counts, min: math.MaxInt64}
	r.spare.Store(b)
}
