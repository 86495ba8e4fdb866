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
	copyHeader(dst, s.header)
	s.plan.patch(dst, g, sum)
}

// patch writes what the segment's header, which is a copy of the packet's, differs in from it.
func (p *Plan) patch(dst []byte, g *Segment, sum uint32) {
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

// WriteRun is Write for the frames of a burst, and returns how many it wrote:
// fewer than there are only for one of the reasons of Write.
func (s *Segmenter) WriteRun(frames [][]byte, payload []byte) int {
	p, done := s.plan, 0
	for done < len(frames) {
		// The first segment, and the last, may differ from the others in flags and length.
		if k := min(len(frames)-done, p.count-1-s.next); s.next > 0 && k > 0 && p.header <= len(p.inner) {
			n := s.writeInner(frames[done:done+k], payload)
			if done += n; n < k {
				return done
			}
			continue
		}
		if s.Write(frames[done], payload) == 0 {
			return done
		}
		done++
	}
	return done
}

// writeInner writes segments that are neither first nor last, up to a frame that is too short.
func (s *Segmenter) writeInner(frames [][]byte, payload []byte) int {
	p, from := s.plan, s.next*s.plan.mss
	for i := range frames {
		if len(frames[i]) < p.header+p.mss {
			frames = frames[:i]
			break
		}
	}
	t := csum.Train{Head: p.inner[:p.header], Size: p.mss}
	if !p.v6 {
		t.IDPlace, t.ID = p.l3+4, p.id+uint16(s.next)
		if !p.KeepL3 {
			t.IPPlace, t.IPSum = p.l3+10, p.innerIP
		}
	}
	if !p.udp {
		t.SeqPlace, t.Seq = p.l4+4, p.seq+uint32(from)
	}
	if !p.KeepL4 {
		t.SumPlace, t.Sum = p.l4+16, p.innerL4
		if p.udp {
			t.SumPlace, t.Zero = p.l4+6, 0xffff
		}
	}
	t.Write(frames, payload[from:])
	s.next += len(frames)
	return len(frames)
}

// ready prepares the header of the segments that are neither first nor last, and the parts of its checksums that stay.
func (p *Plan) ready(header []byte) {
	if p.count < 3 || copy(p.inner[:], header) < len(header) {
		return
	}
	g := Segment{Index: 1, From: p.mss, To: 2 * p.mss}
	p.patch(p.inner[:], &g, 0)
	checks := [2]int{p.l3 + 10, p.l4 + 16} // stay as they are, if they are kept
	if p.udp {
		checks[1] = p.l4 + 6
	}
	for i, at := range checks {
		if i == 1 || !p.v6 {
			copy(p.inner[at:at+2], header[at:])
		}
	}
	l4Bytes := uint32(p.header - p.l4 + p.mss)
	if !p.v6 {
		p.innerIP = p.ipSum + uint32(p.header-p.l3+p.mss)
	}
	if p.innerL4 = p.l4Sum + l4Bytes; p.udp {
		p.innerL4 += l4Bytes
		return
	}
	p.innerL4 += uint32(binary.BigEndian.Uint16(p.inner[p.l4+12:]))
}
