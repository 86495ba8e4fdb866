package tso

import (
	"encoding/binary"

	"github.com/bluering/bluering/internal/csum"
)

// Segment is one of a packet: its number, and the range of the payload it carries.
type Segment struct {
	Index    int
	From, To int
}

// Segmenter walks the segments of a Plan. It is a small value: copy it to
// remember a place. One goroutine owns it.
//
//	Next ─▶ copy payload[From:To] behind the header, summing it ─▶ Put
type Segmenter struct {
	plan   *Plan
	header []byte
	next   int
}

// Segmenter starts at the first segment. header is what Make saw; it is read
// until the last Put.
func (p *Plan) Segmenter(header []byte) Segmenter {
	return Segmenter{plan: p, header: header[:p.header]}
}

// Seek makes segment n, from 0, the next.
func (s *Segmenter) Seek(n int) { s.next = n }

// Next fills g; false when there is none left, or none at all.
func (s *Segmenter) Next(g *Segment) bool {
	p := s.plan
	if uint(s.next) >= uint(p.count) {
		return false
	}
	g.Index, g.From = s.next, s.next*p.mss
	g.To = min(g.From+p.mss, p.payload)
	s.next++
	return true
}

// FrameLen is the length of the segment's frame, without FCS.
func (s *Segmenter) FrameLen(g *Segment) int { return s.plan.header + g.To - g.From }

// HeaderLen is where its payload begins.
func (s *Segmenter) HeaderLen() int { return s.plan.header }

// Put writes the segment's header to the front of dst, which is at least
// HeaderLen long. sum is that of the segment's payload, as csum.Sum gives it.
func (s *Segmenter) Put(dst []byte, g *Segment, sum uint32) {
	p := s.plan
	copyHeader(dst, s.header)
	l4Bytes := uint32(p.header - p.l4 + g.To - g.From)
	if p.v6 {
		binary.BigEndian.PutUint16(dst[p.l3+4:], uint16(p.header-p.l3-40+g.To-g.From))
	} else {
		ip := dst[p.l3 : p.l3+20]
		total, id := uint16(p.header-p.l3+g.To-g.From), p.id+uint16(g.Index)
		binary.BigEndian.PutUint32(ip[2:], uint32(total)<<16|uint32(id))
		if !p.KeepL3 {
			binary.BigEndian.PutUint16(ip[10:], csum.Finish(p.ipSum+uint32(total)+uint32(id)))
		}
	}
	if p.udp {
		p.putUDP(dst[p.l4:p.header], l4Bytes, sum)
		return
	}
	p.putTCP(dst[p.l4:p.header], g, l4Bytes, sum)
}

// copyHeader copies a header, of 42 bytes at least, in runs of 16 bytes, of which
// the last overlaps: the compiler makes a vector move of each, where longer arrays
// become a call of memmove that costs more than the rest of Put.
func copyHeader(dst, src []byte) {
	n := len(src) - 16
	dst = dst[:len(src)]
	for at := 0; at < n; at += 16 {
		*(*[16]byte)(dst[at:]) = *(*[16]byte)(src[at:])
	}
	*(*[16]byte)(dst[n:]) = *(*[16]byte)(src[n:])
}

func (p *Plan) putTCP(t []byte, g *Segment, l4Bytes, sum uint32) {
	seq, word := p.seq+uint32(g.From), p.word
	if g.Index != 0 {
		word &^= flagCWR
	}
	if g.Index != p.count-1 {
		word &^= flagFIN | flagPSH
	}
	binary.BigEndian.PutUint32(t[4:], seq)
	binary.BigEndian.PutUint16(t[12:], word)
	if !p.KeepL4 {
		total := uint64(p.l4Sum) + uint64(l4Bytes) + uint64(seq) + uint64(word) + uint64(sum)
		binary.BigEndian.PutUint16(t[16:], ^csum.Fold64(total))
	}
}

// putUDP writes the length, which counts twice: in the header and in the pseudo header.
func (p *Plan) putUDP(u []byte, l4Bytes, sum uint32) {
	binary.BigEndian.PutUint16(u[4:], uint16(l4Bytes))
	if !p.KeepL4 {
		total := uint64(p.l4Sum) + 2*uint64(l4Bytes) + uint64(sum)
		binary.BigEndian.PutUint16(u[6:], csum.FinishUDP(uint32(csum.Fold64(total))))
	}
}

// Write writes the next segment's whole frame to dst, payload being that of the
// whole packet, and returns its length; 0 when there is none left, or when dst
// is too short for it, which does not take it.
func (s *Segmenter) Write(dst, payload []byte) int {
	var g Segment
	if !s.Next(&g) {
		return 0
	}
	n := s.FrameLen(&g)
	if len(dst) < n {
		s.next--
		return 0
	}
	s.Put(dst, &g, csum.Copy(dst[s.plan.header:n], payload[g.From:g.To], 0))
	return n
}
