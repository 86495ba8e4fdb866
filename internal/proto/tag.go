package proto

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// TagBytes is the length of the tag.
const TagBytes = 16

// MaxFlows is how many flows 24 bits name.
const MaxFlows = 1 << 24

// TickNS is the tag's unit of time.
const TickNS = 16 // 1<<4, as Ticks shifts

// Bits of the tag.
const (
	SeqBits = 40 // of a sequence that travel
	seqMask = 1<<SeqBits - 1

	// FirstEarly: delays from this value up, in ticks, are negative: the packet came before its schedule.
	FirstEarly = 1<<32 - 1<<26

	// MaxDelay and MaxEarly bound what a 32-bit tag time can tell: +67.6 s and -1.07 s, rounded down to a tick.
	MaxDelay = (FirstEarly - 1) * TickNS * time.Nanosecond
	MaxEarly = (1 << 26) * TickNS * time.Nanosecond
)

// Tag is what a test packet carries.
type Tag struct {
	Flow uint32 // 24 bits
	Seq  uint64 // counts within the flow; 40 bits travel, see ExtendSeq
	Time uint32 // scheduled time in ticks from the run's start, see Ticks
}

// TagKey keys the tags of one run. The zero key belongs to no run, but works.
type TagKey struct{ k0, k1 uint64 }

// NewTagKey derives the key from the run id.
func NewTagKey(runID uint64) TagKey {
	return TagKey{splitMix(runID, 1), splitMix(runID, 2)}
}

// splitMix is number n, from 1, of SplitMix64 started at seed (Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", 2014).
func splitMix(seed, n uint64) uint64 {
	x := seed + n*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// FlowSeq is flow and sequence as they stand in the tag, in one word: a
// sender may keep it, adding 1 for the next packet of the flow until the 40
// bits of the sequence are full.
func FlowSeq(flow uint32, seq uint64) uint64 { return uint64(flow)<<SeqBits | seq&seqMask }

// Words is the tag as two big-endian words: for those that have their own way
// of storing it.
func (k *TagKey) Words(flow uint32, seq uint64, ticks uint32) (w0, w1 uint64) {
	return k.WordsOf(FlowSeq(flow, seq), ticks)
}

// WordsOf is Words of a FlowSeq.
func (k TagKey) WordsOf(flowSeq uint64, ticks uint32) (w0, w1 uint64) {
	hi, lo := bits.Mul64(flowSeq^k.k0, uint64(ticks)^k.k1)
	x := hi ^ lo
	return (x>>32^x)<<32 | flowSeq>>32, flowSeq<<32 | uint64(ticks)
}

// Put writes the tag to the first 16 bytes of b. Flow has to be below
// MaxFlows; of the sequence the low 40 bits are written.
func (k *TagKey) Put(b []byte, flow uint32, seq uint64, ticks uint32) {
	t := (*[TagBytes]byte)(b)
	w0, w1 := k.Words(flow, seq, ticks)
	binary.BigEndian.PutUint64(t[:8], w0)
	binary.BigEndian.PutUint64(t[8:], w1)
}

// Get reads the tag from the first 16 bytes of b. False: b is shorter or the
// check is wrong, so the tag is not of this run. Seq has its low 40 bits.
func (k *TagKey) Get(b []byte) (t Tag, ok bool) {
	if len(b) < TagBytes {
		return Tag{}, false
	}
	return k.Read((*[TagBytes]byte)(b))
}

// Read is Get of 16 bytes.
func (k *TagKey) Read(b *[TagBytes]byte) (t Tag, ok bool) {
	w0, w1 := binary.BigEndian.Uint64(b[0:8]), binary.BigEndian.Uint64(b[8:16])
	a := w0<<32 | w1>>32
	hi, lo := bits.Mul64(a^k.k0, w1&0xffffffff^k.k1)
	x := hi ^ lo
	return Tag{Flow: uint32(a >> SeqBits), Seq: a & seqMask, Time: uint32(w1)}, uint32(x>>32^x) == uint32(w0>>32)
}

// FindTag reads the tag of a parsed frame: the last 16 bytes of the L4
// payload of a whole TCP or UDP datagram.
func (k *TagKey) FindTag(frame []byte, h *Headers) (Tag, bool) {
	p, ok := h.Payload(frame)
	if !ok || len(p) < TagBytes {
		return Tag{}, false
	}
	return k.Get(p[len(p)-TagBytes:])
}

// ExtendSeq is the 64-bit sequence that ends in the 40 bits of seq and is
// nearest to highest, the highest seen of the flow; the lower one of two
// equally near. A sequence below 0 is not possible, so a value that would be
// is the next one above.
func ExtendSeq(seq, highest uint64) uint64 {
	lag := int64((seq-highest)<<(64-SeqBits)) >> (64 - SeqBits)
	if lag < 0 && uint64(-lag) > highest {
		return seq & seqMask
	}
	return highest + uint64(lag)
}

// DelayTicks is arrival minus tag, both in ticks modulo 2^32, unwrapped to the
// window from -2^26 to 2^32-2^26-1 ticks: -1.07 s to +67.6 s.
func DelayTicks(arrival, tag uint32) int64 {
	d := arrival - tag
	if d >= FirstEarly {
		return int64(d) - 1<<32
	}
	return int64(d)
}
