package raw

import (
	"encoding/binary"
	"math/bits"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// chunk is how many packets a leaf loop writes at a time.
const chunk = 64

// slot is what the leaf loops write of the frame of one ring slot. A pointer
// for each place costs one load, an offset into a slice a bounds check too.
type slot struct {
	tag   *[proto.TagBytes]byte
	check *[2]byte // TCP or UDP checksum
	field *[4]byte // nil without a field
	ip    *[2]byte // IPv4 header checksum; nil where it stays
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
	psn         uint32 // packets before
}

// walk moves past n packets.
func (l *lane) walk(n int) {
	l.index += uint64(n) * l.indexStep
	l.psn += uint32(n)
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
	key    proto.TagKey
	sum    uint64 // the part of the checksum that stays
	ipSum  uint64
	icrc   uint32 // likewise, of a datagram
	zero   uint16 // what a checksum of 0 is written as
	width  uint8  // of the field: 0 (none), 2, 4
	summed bool   // the field is in the L4 checksum

	keys  [chunk]uint64 // flow and sequence of the next packets, as in the tag
	ticks [chunk]uint32 // their times
	same  int           // so many from the first on are equal
	words [chunk]uint32 // their field
	none  [chunk]uint32 // zeros: a field that is not summed
}

// newLeaf gives the leaf of p; ok is false when p has more to do than the
// loops can.
func newLeaf(p *program, key proto.TagKey) (l *leaf, ok bool) {
	if len(p.variants) != 1 || len(p.fields) > 1 || !p.tag || p.roce == nil && (p.l4Check == 0 || p.variants[0].tagSwap) {
		return nil, false
	}
	v := &p.variants[0]
	l = &leaf{key: key, sum: v.l4Sum, ipSum: v.ipSum, icrc: v.icrc}
	if p.udp {
		l.zero = 0xffff
	}
	if len(p.fields) == 1 {
		f := &p.fields[0]
		if f.width != 2 && f.width != 4 || f.swap || f.off+4 > len(v.frame) {
			return nil, false
		}
		l.width, l.summed = uint8(f.width), f.inL4
	}
	return l, true
}

// slotOf finds the places of p in a frame.
func slotOf(p *program, frame []byte) slot {
	s := slot{tag: (*[proto.TagBytes]byte)(frame[p.variants[0].tagOff:])}
	if p.l4Check != 0 {
		s.check = (*[2]byte)(frame[p.l4Check:])
	}
	if len(p.fields) == 1 {
		s.field = (*[4]byte)(frame[p.fields[0].off:])
		if p.ipVaries {
			s.ip = (*[2]byte)(frame[p.ipCheck:])
		}
	}
	return s
}

// ports is a leaf for what is less still: UDP with one frame size, no tag, and a port that varies. All that is written
// of a packet is its UDP header, in one piece.
type ports struct {
	header uint64 // with port and checksum zero
	sum    uint32 // the part of the checksum that stays, folded
	shift  uint8  // of the port in the header
	words  [chunk]uint32
}

// newPorts gives the ports of p; ok is false when p has more to do.
func newPorts(p *program) (l *ports, ok bool) {
	if len(p.variants) != 1 || len(p.fields) != 1 || p.tag || p.roce != nil || !p.udp || p.l4Check == 0 {
		return nil, false
	}
	v, f, l4Off := &p.variants[0], &p.fields[0], p.l4Check-6
	if f.width != 2 || f.off != l4Off && f.off != l4Off+2 {
		return nil, false
	}
	header := binary.BigEndian.Uint64(v.frame[l4Off:]) &^ 0xffff
	return &ports{header: header, sum: uint32(csum.Fold64(v.l4Sum)), shift: uint8(48 - 8*(f.off-l4Off))}, true
}

// write makes the frames with these UDP headers, at most chunk, the next packets.
func (l *ports) write(headers []*[8]byte, n *lane, f *field) {
	if x, by, ok := f.line(n); ok {
		l.writeLine(headers, x, by)
		return
	}
	f.words(&l.words, len(headers), n)
	for i, h := range headers {
		binary.BigEndian.PutUint64(h[:], l.with(l.words[uint(i)%chunk]))
	}
}

// writeLine is write for a port that goes up by the same step: the checksum goes down by it, until it would pass 0 and
// the carry goes round.
func (l *ports) writeLine(headers []*[8]byte, x, by uint32) {
	step := uint64(by)<<(l.shift&63) - uint64(by)
	for len(headers) > 0 {
		w := l.with(x)
		n := len(headers)
		if check := uint64(uint16(w)); check <= uint64(n)*uint64(by) {
			n = int((check-1)/uint64(by)) + 1
		}
		for _, h := range headers[:n] {
			binary.BigEndian.PutUint64(h[:], w)
			w += step
		}
		headers, x = headers[n:], x+uint32(n)*by
	}
}

// with is the UDP header with port x and its checksum; one of 0 is written as ones.
func (l *ports) with(x uint32) uint64 {
	sum := l.sum + x // both below 2^16
	check := ^uint16(sum + sum>>16)
	if check == 0 {
		check = 0xffff
	}
	return l.header | uint64(x)<<(l.shift&63) | uint64(check)
}

// write makes the frames of slots, at most chunk, the next packets. times holds
// one time for all or one each; f is the narrow field, if there is one.
func (l *leaf) write(slots []slot, times []uint32, n *lane, f *field) {
	l.setTicks(times, len(slots))
	times = l.ticks[:len(slots)]
	if f != nil && l.summed && (l.width == 2 || slots[0].ip != nil) {
		key, one := n.lineOfKeys()
		value, by, straight := f.line(n)
		switch {
		case !one || !straight:
		case l.width == 2:
			l.writeLine2(slots, times, key, value, by)
			return
		default:
			l.writeLineIP(slots, times, key, value, by)
			return
		}
	}
	n.keys(&l.keys, len(slots))
	if f == nil {
		l.writeTags(slots, &l.none)
		return
	}
	f.words(&l.words, len(slots), n)
	switch {
	case l.width == 2 && l.summed:
		l.writeTags2(slots)
		return
	case l.width == 2:
		storeWords2(slots, &l.words)
	case slots[0].ip != nil:
		storeAddresses(slots, &l.words, l.ipSum)
	default:
		storeWords4(slots, &l.words)
	}
	if l.summed {
		l.writeTags(slots, &l.words)
	} else {
		l.writeTags(slots, &l.none)
	}
}

// setTicks takes the times of the next n packets: one for all, or one each.
func (l *leaf) setTicks(times []uint32, n int) {
	if len(times) != 1 {
		copy(l.ticks[:], times[:n])
		l.same = 0
		return
	}
	if l.same >= n && l.ticks[0] == times[0] {
		return
	}
	for i := range n {
		l.ticks[uint(i)%chunk] = times[0]
	}
	l.same = n
}

// The loops below write out the tag and fold the sum where a call would cost
// as much as the work: proto.TagKey.Words and csum.Fold64 are their twins.

// writeTags writes tags and checksums; adds are what the fields add.
func (l *leaf) writeTags(slots []slot, adds *[chunk]uint32) {
	key, sum, zero := l.key, l.sum, l.zero
	for i := range slots {
		s := &slots[i]
		k := uint(i) % chunk
		w0, w1 := key.WordsOf(l.keys[k], l.ticks[k])
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		binary.BigEndian.PutUint16(s.check[:], l4Check(w0, w1, sum+uint64(adds[k]), zero))
	}
}

// writeTags2 is writeTags with a summed field of two bytes, the usual case.
func (l *leaf) writeTags2(slots []slot) {
	key, sum, zero := l.key, l.sum, l.zero
	for i := range slots {
		s := slots[i]
		k := uint(i) % chunk
		x := l.words[k]
		w0, w1 := key.WordsOf(l.keys[k], l.ticks[k])
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		binary.BigEndian.PutUint16(s.field[:2], uint16(x))
		binary.BigEndian.PutUint16(s.check[:], l4Check(w0, w1, sum+uint64(x), zero))
	}
}

// writeLine2 is writeTags2 for the commonest run: one flow, and a field that
// goes up by the same step. What varies is then computed and not looked up.
func (l *leaf) writeLine2(slots []slot, times []uint32, flowSeq uint64, x, by uint32) {
	key, sum, zero := l.key, l.sum, l.zero
	times = times[:len(slots)]
	for i := range slots {
		s := &slots[i]
		w0, w1 := key.WordsOf(flowSeq, times[i])
		flowSeq++
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		binary.BigEndian.PutUint16(s.field[:2], uint16(x))
		binary.BigEndian.PutUint16(s.check[:], l4Check(w0, w1, sum+uint64(x), zero))
		x += by
	}
}

// writeLineIP is writeLine2 for an IPv4 address, whose header has a checksum too.
func (l *leaf) writeLineIP(slots []slot, times []uint32, flowSeq uint64, x, by uint32) {
	key, sum, ipSum, zero := l.key, l.sum, l.ipSum, l.zero
	times = times[:len(slots)]
	for i := range slots {
		s := &slots[i]
		w0, w1 := key.WordsOf(flowSeq, times[i])
		flowSeq++
		binary.BigEndian.PutUint64(s.tag[:8], w0)
		binary.BigEndian.PutUint64(s.tag[8:], w1)
		binary.BigEndian.PutUint32(s.field[:], x)
		binary.BigEndian.PutUint16(s.ip[:], fold(ipSum+uint64(x)))
		binary.BigEndian.PutUint16(s.check[:], l4Check(w0, w1, sum+uint64(x), zero))
		x += by
	}
}

func storeWords2(slots []slot, words *[chunk]uint32) {
	for i := range slots {
		binary.BigEndian.PutUint16(slots[i].field[:2], uint16(words[uint(i)%chunk]))
	}
}

func storeWords4(slots []slot, words *[chunk]uint32) {
	for i := range slots {
		binary.BigEndian.PutUint32(slots[i].field[:], words[uint(i)%chunk])
	}
}

// storeAddresses writes IPv4 addresses and their header's checksum.
func storeAddresses(slots []slot, words *[chunk]uint32, sum uint64) {
	for i := range slots {
		x := words[uint(i)%chunk]
		binary.BigEndian.PutUint32(slots[i].field[:], x)
		binary.BigEndian.PutUint16(slots[i].ip[:], fold(sum+uint64(x)))
	}
}

// l4Check is the checksum over a tag's two words and the sum of the rest; 0 is
// written as zero.
func l4Check(w0, w1, rest uint64, zero uint16) uint16 {
	y, c := bits.Add64(w0, w1, 0)
	y, c = bits.Add64(y, rest, c)
	if v := fold(y + c); v != 0 {
		return v
	}
	return zero
}

// fold is the checksum of a sum.
func fold(s uint64) uint16 {
	s += bits.RotateLeft64(s, 32)
	t := uint32(s >> 32)
	t += bits.RotateLeft32(t, 16)
	return ^uint16(t >> 16)
}

// lineOfKeys gives flow and sequence of the next packet, and whether those of
// the chunk from it on count up from it.
func (l *lane) lineOfKeys() (first uint64, ok bool) {
	flow := l.first + l.place*l.step
	first = proto.FlowSeq(flow, l.round)
	return first, l.flows == 1 && proto.FlowSeq(flow, l.round+chunk) == first+chunk
}

// line gives the field's value for the next packet, and by how much each of the
// chunk from it on is above the one before; ok is false where they do not go so.
func (f *field) line(l *lane) (first, by uint32, ok bool) {
	if f.byFlow || f.list != nil || f.order != Inc || f.fixed != 0 || l.index+chunk*l.indexStep < l.index {
		return 0, 0, false
	}
	x, d := f.number(l.index), l.indexStep%f.n
	if d > (f.n-1-x)/chunk {
		return 0, 0, false // the end of its range is near
	}
	return uint32(f.lo.Lo) + uint32(x)*uint32(f.step), uint32(d) * uint32(f.step), true
}

// keys fills in flow and sequence of the next n packets.
func (l *lane) keys(out *[chunk]uint64, n int) {
	flow, place, round := l.first+l.place*l.step, l.place, l.round
	if a, ok := l.lineOfKeys(); ok {
		for i := range n {
			out[uint(i)%chunk] = a
			a++
		}
		return
	}
	for i := range n {
		out[uint(i)%chunk] = proto.FlowSeq(flow, round)
		flow += l.step
		if place++; place == l.flows {
			flow, place = l.first, 0
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
	if v, by, ok := f.line(l); ok {
		for k := range n {
			out[uint(k)%chunk] = v
			v += by
		}
		return
	}
	lo, fixed, by := uint32(f.lo.Lo), uint32(f.fixed), uint32(f.step)
	for k := range n {
		out[k%chunk] = (lo + uint32(x)*by) | fixed
		if x += d; x >= f.n || x < d {
			x -= f.n
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
