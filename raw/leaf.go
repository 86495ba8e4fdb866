package raw

import (
	"encoding/binary"
	"math/bits"

	"github.com/bluering/bluering/internal/proto"
)

// chunk is how many packets a leaf loop writes at a time.
const chunk = 64

// windowBytes of each frame are in reach of the leaf loops. A frame has room
// for as many, whole cache lines.
const windowBytes = 64

// slot is the frame of one ring slot as the leaf loops see it.
type slot struct {
	head *[windowBytes]byte
	tag  *[proto.TagBytes]byte // nil without a tag
}

// lane says which packet of a stream is next: number round of the flow that
// stands at place of the queue's flows.
type lane struct {
	key         proto.TagKey
	first, step uint32 // flow = first + place*step
	flows       uint32
	place       uint32
	round       uint64 // sequence within the flow
	index       uint64 // of the packet, for fields and sizes that do not go by flow
	indexStep   uint64
}

// walk moves past n packets.
func (l *lane) walk(n int) {
	l.index += uint64(n) * l.indexStep
	if l.flows == 1 {
		l.round += uint64(n)
		return
	}
	at := uint64(l.place) + uint64(n)
	l.round += at / uint64(l.flows)
	l.place = uint32(at % uint64(l.flows))
}

// leaf is what the loops need to know of a program with one frame size and at
// most one narrow field.
type leaf struct {
	sum     uint64 // the part of the checksum that stays
	ipSum   uint64
	sumMask uint64 // all ones if the field is in the L4 checksum, else 0
	shift   uint8  // 8 if the tag ends at an odd place, else 0
	off     uint8  // of the field
	width   uint8  // of the field: 0 (none), 2, 4
	check   uint8  // offset of the L4 checksum
	ipCheck uint8  // offset of the IPv4 checksum, if the field is in it; else 0
	zero    uint16 // what a checksum of 0 is written as
}

// newLeaf gives the leaf of p, and where the window on a frame begins; ok is
// false when p has more to do than the loops can.
func newLeaf(p *program) (l leaf, base int, ok bool) {
	if len(p.variants) != 1 || len(p.fields) > 1 || !p.tag || p.l4Check == 0 {
		return l, 0, false
	}
	v := &p.variants[0]
	base = max(p.l4Check+2-windowBytes, 0)
	l = leaf{sum: v.l4Sum, ipSum: v.ipSum, check: uint8(p.l4Check - base)}
	if v.tagSwap {
		l.shift = 8
	}
	if p.udp {
		l.zero = 0xffff
	}
	if len(p.fields) == 0 {
		return l, base, true
	}
	f := &p.fields[0]
	if f.width != 2 && f.width != 4 || f.off < base || f.off+f.width > base+windowBytes || f.swap {
		return l, 0, false
	}
	l.off, l.width = uint8(f.off-base), uint8(f.width)
	if f.inL4 {
		l.sumMask = ^uint64(0)
	}
	if f.inIP {
		if p.ipCheck < base {
			return l, 0, false
		}
		l.ipCheck = uint8(p.ipCheck - base)
	}
	return l, base, true
}

// fold is csum.Fold64, complemented, where the call would cost more than the
// work.
func fold(s uint64) uint16 {
	s += bits.RotateLeft64(s, 32)
	t := uint32(s >> 32)
	t += bits.RotateLeft32(t, 16)
	return ^uint16(t >> 16)
}

// The loops differ in the width of the field alone. times holds one time, or
// one for each slot. words are the field's values.

func (l *leaf) write0(slots []slot, times []uint32, n *lane) {
	flow, place, round, key := n.first+n.place*n.step, n.place, n.round, n.key
	last, sum, shift, check, zero := n.flows-1, l.sum, l.shift, l.check%(windowBytes-1), l.zero
	var each uint
	if len(times) > 1 {
		each = ^uint(0)
	}
	for i := range slots {
		s := &slots[i]
		w0, w1 := key.Words(flow, round, times[uint(i)&each])
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		c := fold(sum + (w0>>32+w0&0xffffffff+w1>>32+w1&0xffffffff)<<shift)
		if c == 0 {
			c = zero
		}
		binary.BigEndian.PutUint16(s.head[check:check+2], c)
		flow += n.step
		if place++; place > last {
			flow, place = n.first, 0
			round++
		}
	}
}

func (l *leaf) write2(slots []slot, times []uint32, words *[chunk]uint32, n *lane) {
	flow, place, round, key := n.first+n.place*n.step, n.place, n.round, n.key
	last, sum, shift, check, zero := n.flows-1, l.sum, l.shift, l.check%(windowBytes-1), l.zero
	off, mask := l.off%(windowBytes-1), l.sumMask
	var each uint
	if len(times) > 1 {
		each = ^uint(0)
	}
	for i := range slots {
		s := &slots[i]
		w0, w1 := key.Words(flow, round, times[uint(i)&each])
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		x := words[i%chunk]
		binary.BigEndian.PutUint16(s.head[off:off+2], uint16(x))
		c := fold(sum + uint64(x)&mask + (w0>>32+w0&0xffffffff+w1>>32+w1&0xffffffff)<<shift)
		if c == 0 {
			c = zero
		}
		binary.BigEndian.PutUint16(s.head[check:check+2], c)
		flow += n.step
		if place++; place > last {
			flow, place = n.first, 0
			round++
		}
	}
}

func (l *leaf) write4(slots []slot, times []uint32, words *[chunk]uint32, n *lane) {
	flow, place, round, key := n.first+n.place*n.step, n.place, n.round, n.key
	last, sum, shift, check, zero := n.flows-1, l.sum, l.shift, l.check%(windowBytes-1), l.zero
	off, mask, ipSum, ipCheck := l.off%(windowBytes-3), l.sumMask, l.ipSum, l.ipCheck%(windowBytes-1)
	var each uint
	if len(times) > 1 {
		each = ^uint(0)
	}
	for i := range slots {
		s := &slots[i]
		w0, w1 := key.Words(flow, round, times[uint(i)&each])
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		x := words[i%chunk]
		binary.BigEndian.PutUint32(s.head[off:off+4], x)
		if ipCheck != 0 {
			binary.BigEndian.PutUint16(s.head[ipCheck:ipCheck+2], fold(ipSum+uint64(x)))
		}
		c := fold(sum + uint64(x)&mask + (w0>>32+w0&0xffffffff+w1>>32+w1&0xffffffff)<<shift)
		if c == 0 {
			c = zero
		}
		binary.BigEndian.PutUint16(s.head[check:check+2], c)
		flow += n.step
		if place++; place > last {
			flow, place = n.first, 0
			round++
		}
	}
}

// words fills in the field's values for the next n packets.
func (f *field) words(out *[chunk]uint32, n int, l *lane) {
	if f.byFlow {
		f.wordsByFlow(out, n, l)
		return
	}
	i, step := l.index, l.indexStep
	if f.order == Random || i+chunk*step < i { // or the index passes 2^64
		f.wordsByIndex(out, n, i, step)
		return
	}
	x, d := f.number(i), step%f.n
	if f.order == Dec {
		d = f.n - d // backwards
	}
	if f.list != nil {
		for k := range n {
			out[k%chunk] = uint32(f.list[x].Lo | f.fixed)
			if x += d; x >= f.n || x < d {
				x -= f.n
			}
		}
		return
	}
	lo, fixed, by, count := uint32(f.lo.Lo), uint32(f.fixed), uint32(f.step), f.n
	for k := range n {
		out[k%chunk] = (lo + uint32(x)*by) | fixed
		if x += d; x >= count || x < d {
			x -= count
		}
	}
}

func (f *field) wordsByIndex(out *[chunk]uint32, n int, i, step uint64) {
	for k := range n {
		out[k%chunk] = uint32(f.at(i).Lo)
		i += step
	}
}

func (f *field) wordsByFlow(out *[chunk]uint32, n int, l *lane) {
	place := l.place
	if len(f.byPlace) != 0 {
		for k := range n {
			out[k%chunk] = f.byPlace[place]
			if place++; int(place) >= len(f.byPlace) {
				place = 0
			}
		}
		return
	}
	for k := range n {
		out[k%chunk] = uint32(f.at(uint64(l.first + place*l.step)).Lo)
		if place++; place == l.flows {
			place = 0
		}
	}
}

// most places that are worth a table: 256 KiB.
const mostPlaces = 1 << 16

// tabulate computes the values of a field that goes by flow once.
func (f *field) tabulate(l *lane) {
	if !f.byFlow || l.flows > mostPlaces {
		return
	}
	f.byPlace = make([]uint32, l.flows)
	for k := range f.byPlace {
		f.byPlace[k] = uint32(f.at(uint64(l.first + uint32(k)*l.step)).Lo)
	}
}
