package raw

import (
	"encoding/binary"
	"fmt"

	"github.com/bluering/bluering/internal/proto"
)

// roce says where the parts of a RoCE v2 datagram stand in a template; its zero value is none.
//
//	| IP | UDP | BTH DETH [ImmDt] | payload ... tag | pad | ICRC |
//	           PayloadOff         payloadOff
type roce struct {
	payloadOff int
	pad        int
	psn        uint32
}

func (r *roce) on() bool { return r.payloadOff != 0 }

// trailer is what stands behind the payload.
func (r *roce) trailer() int {
	if !r.on() {
		return 0
	}
	return r.pad + proto.ICRCBytes
}

// Offsets in the BTH.
const (
	padCountOff = 1
	destQPNOff  = 4 // in the low 24 bits of four bytes
	psnOff      = 8 // likewise
)

// SetRoCE says that the frame is a RoCE v2 datagram of the UD transport: UDP to port 4791, and in it BTH, DETH, with a
// SEND WITH IMMEDIATE the immediate data, payload, pad, and four bytes for the ICRC. From then on every packet has the
// right ICRC, whatever varies, no UDP checksum, and a PSN of its own: packet i that of the template and i, modulo 2^24.
// The payload that holds counters and tags, and that SetSizes cuts or lengthens, is the datagram's.
func (t *Template) SetRoCE() error {
	h := &t.head
	if h.Status != proto.OK || h.Fragment || h.Routed || h.L4Proto != proto.ProtoUDP || h.DstPort != proto.RoCEPort {
		return fmt.Errorf("raw: RoCE v2 is UDP to port %d, the template is: %v, port %d", proto.RoCEPort, h.Status, h.DstPort)
	}
	var u proto.UD
	body := t.frame[h.PayloadOff:h.PayloadEnd]
	off, ok := proto.ParseUD(body, &u)
	if !ok {
		return fmt.Errorf("raw: the template's %d bytes of UDP payload, opcode %#x, are no UD datagram", len(body), u.Opcode)
	}
	if rest := off + int(u.Pad) + proto.ICRCBytes; len(body) < rest || len(body)%4 != 0 {
		return fmt.Errorf("raw: a datagram of %d bytes: want a multiple of 4, and at least %d for headers, %d bytes of pad and the ICRC", len(body), rest, u.Pad)
	}
	check := t.frame[h.L4Off+6 : h.L4Off+8]
	old, oldCheck := t.roce, [2]byte(check)
	t.roce = roce{payloadOff: h.PayloadOff + off, pad: int(u.Pad), psn: u.PSN}
	clear(check)
	if err := t.compile(); err != nil {
		t.roce = old
		copy(check, oldCheck[:])
		return err
	}
	return nil
}

// trailer is what stands behind the payload of the template's frames.
func (t *Template) trailer() int {
	if t.roce.on() && t.resized {
		return proto.ICRCBytes
	}
	return t.roce.trailer()
}

// checkRoCESize refuses sizes that a datagram cannot fill: its length is a multiple of 4.
func (t *Template) checkRoCESize(n int) error {
	if !t.roce.on() || !t.resized {
		return nil
	}
	if odd := (n - t.head.PayloadOff) % 4; odd != 0 {
		return fmt.Errorf("raw: a RoCE v2 datagram does not fill a frame of %d bytes; %d or %d would do", n, n-odd, n-odd+4)
	}
	return nil
}

// inICRC is what the values of a byte change in an ICRC, from 0. A CRC is linear:
//
//	ICRC = that of the frame with zeros in all places that vary
//	       ^ what each byte in front of the payload's end changes at a common place, moved on to this frame's end
//	       ^ what the bytes of the tag change, which are as far from the end in all frames
type inICRC [256]uint32

// roceProgram writes PSNs and ICRCs.
type roceProgram struct {
	psnOff int
	psn    uint32 // of the template
	ack    uint32 // the bits that share the PSN's word
	ofPSN  [4]inICRC
	ofTag  *[proto.TagBytes]inICRC
}

// roceVariant is what a frame of one size has of it.
type roceVariant struct {
	icrc    uint32     // of the frame
	icrcOff int        // where it stands
	behind  *[4]inICRC // what the bytes of a difference at the common place become; nil where it is the end
}

// layICRC prepares for the ICRCs of frames whose smallest has the given size: the common place is its end.
func (p *program) layICRC(t *Template, smallest int) {
	h := &t.head
	place := t.segmentEnd(smallest) - proto.ICRCBytes
	r := &roceProgram{psnOff: h.PayloadOff + psnOff, psn: t.roce.psn}
	r.ack = uint32(t.frame[r.psnOff]) << 24
	frame := append([]byte(nil), t.frame...)
	frame = append(frame, make([]byte, max(0, place-len(frame)))...)
	table := func(at int) (c inICRC) {
		l3 := frame[h.L3Off:]
		icrc := func() uint32 { return proto.ICRC(l3, h.IPVersion, h.L4Off-h.L3Off, place-h.L3Off) }
		zero := icrc()
		return spread(func(bit int) uint32 {
			frame[at] ^= 1 << bit
			d := icrc() ^ zero // nothing for a bit that it does not cover
			frame[at] ^= 1 << bit
			return d
		})
	}
	for k := range r.ofPSN {
		r.ofPSN[k] = table(r.psnOff + k)
	}
	if p.tag {
		r.ofTag = new([proto.TagBytes]inICRC)
		for k := range r.ofTag {
			r.ofTag[k] = table(t.payloadEnd(smallest) - proto.TagBytes + k)
		}
	}
	for i := range p.fields {
		f := &p.fields[i]
		if f.off < h.L3Off {
			continue
		}
		for k := range f.width {
			c := table(f.off + k)
			stays := c[byte(f.fixed>>(8*(f.width-1-k)))] // of bits that the frame has already
			for x := range c {
				c[x] ^= stays
			}
			f.icrc = append(f.icrc, c)
		}
	}
	for i := range p.variants {
		v := &p.variants[i]
		v.icrcOff = t.segmentEnd(len(v.frame)) - proto.ICRCBytes
		if t.resized {
			v.frame[h.PayloadOff+padCountOff] &^= 0x30
		}
		binary.BigEndian.PutUint32(v.frame[r.psnOff:], r.ack)
		v.icrc = proto.ICRC(v.frame[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, v.icrcOff-h.L3Off)
		if n := v.icrcOff - place; n > 0 {
			v.behind = new([4]inICRC)
			for k := range v.behind {
				v.behind[k] = spread(func(bit int) uint32 { return proto.ICRCBehind(1<<(8*k+bit), n) })
			}
		}
	}
	p.roce = r
}

// spread makes the table of a byte of what each of its bits changes.
func spread(ofBit func(bit int) uint32) (c inICRC) {
	for bit := range 8 {
		d, n := ofBit(bit), 1<<bit
		for i := range n {
			c[n+i] = c[i] ^ d
		}
	}
	return c
}

// inICRC is what a value changes in the ICRC.
func (f *field) inICRC(v Value) (d uint32) {
	for k := len(f.icrc) - 1; k >= 0; k-- {
		d ^= f.icrc[k][byte(v.Lo)]
		v.Lo = v.Lo>>8 | v.Hi<<56
		v.Hi >>= 8
	}
	return d
}

// patch writes PSN and ICRC; head is what the fields change at the common place.
func (r *roceProgram) patch(frame []byte, v *variant, pk *packet, head uint32) {
	psn := (r.psn+pk.psn)&0xffffff | r.ack
	binary.BigEndian.PutUint32(frame[r.psnOff:], psn)
	head ^= r.ofPSN[1][byte(psn>>16)] ^ r.ofPSN[2][byte(psn>>8)] ^ r.ofPSN[3][byte(psn)]
	if b := v.behind; b != nil {
		head = b[0][byte(head)] ^ b[1][byte(head>>8)] ^ b[2][byte(head>>16)] ^ b[3][byte(head>>24)]
	}
	if v.tagOff != 0 {
		head ^= ofTag(r.ofTag, pk.w0, pk.w1)
	}
	proto.PutICRC(frame[v.icrcOff:], v.icrc^head)
}

// gram is what the leaf loops write of a datagram in a ring slot beside what slot has.
type gram struct {
	psn, icrc *[4]byte
}

// gramOf finds the places of p in a frame.
func gramOf(p *program, frame []byte) gram {
	return gram{psn: (*[4]byte)(frame[p.roce.psnOff:]), icrc: (*[4]byte)(frame[p.variants[0].icrcOff:])}
}

// writeGrams is write for datagrams; r is their program's.
func (l *leaf) writeGrams(r *roceProgram, w *gramRun, times []uint32, n *lane, f *field) {
	count := len(w.slots)
	l.setTicks(times, count)
	n.keys(&l.keys, count)
	adds := &l.none
	if f != nil {
		f.words(&l.words, count, n)
		switch {
		case l.width == 2:
			storeWords2(w.slots, &l.words)
		case w.slots[0].ip != nil:
			storeAddresses(w.slots, &l.words, l.ipSum)
		default:
			storeWords4(w.slots, &l.words)
		}
		if f.icrc != nil {
			f.inICRCs(&l.words, count)
			adds = &l.words
		}
	}
	l.writeICRCs(r, w, adds, n.psn)
}

// gramRun is a run of slots of datagrams, at most chunk.
type gramRun struct {
	slots []slot
	grams []gram
}

// inICRCs puts in place of a narrow field's values what they change in the ICRC.
func (f *field) inICRCs(words *[chunk]uint32, n int) {
	low, high := &f.icrc[f.width-1], &f.icrc[f.width-2]
	if f.width == 2 {
		for k, x := range words[:n] {
			words[k] = low[byte(x)] ^ high[byte(x>>8)]
		}
		return
	}
	c, d := &f.icrc[1], &f.icrc[0]
	for k, x := range words[:n] {
		words[k] = low[byte(x)] ^ high[byte(x>>8)] ^ c[byte(x>>16)] ^ d[byte(x>>24)]
	}
}

// writeICRCs writes tags, PSNs and ICRCs; adds are what the fields change. roceProgram.patch is its twin. Flow, sequence,
// time and PSN mostly differ from one packet to the next in their last byte, and what all others change stays.
func (l *leaf) writeICRCs(r *roceProgram, w *gramRun, adds *[chunk]uint32, psn uint32) {
	key, icrc, t, psn := l.key, l.icrc, r.ofTag, r.psn+psn
	grams := w.grams[:len(w.slots)]
	first := ^l.keys[0] // unlike the first
	time, number, stays := uint32(0), uint32(0), uint32(0)
	for i := range w.slots {
		tag, g, k := w.slots[i].tag, &grams[i], uint(i)%chunk
		flowSeq, ticks := l.keys[k], l.ticks[k]
		w0, w1 := key.WordsOf(flowSeq, ticks)
		if (first^flowSeq)|uint64((time^ticks)|(number^psn)) > 0xff {
			first, time, number = flowSeq&^0xff, ticks&^0xff, psn&^0xff
			stays = icrc ^ ofTag(t, first>>32, first<<32|uint64(time)) ^ r.ofPSN[1][byte(psn>>16)] ^ r.ofPSN[2][byte(psn>>8)]
		}
		binary.BigEndian.PutUint64(tag[:8], w0)
		binary.BigEndian.PutUint64(tag[8:], w1)
		binary.BigEndian.PutUint32(g.psn[:], psn&0xffffff|r.ack)
		d := stays ^ adds[k] ^ t[0][byte(w0>>56)] ^ t[1][byte(w0>>48)] ^ t[2][byte(w0>>40)] ^ t[3][byte(w0>>32)]
		proto.PutICRC(g.icrc[:], d^t[11][byte(flowSeq)]^t[15][byte(ticks)]^r.ofPSN[3][byte(psn)])
		psn++
	}
}

// ofTag is what a tag changes in the ICRC.
func ofTag(t *[proto.TagBytes]inICRC, w0, w1 uint64) uint32 {
	return t[0][byte(w0>>56)] ^ t[1][byte(w0>>48)] ^ t[2][byte(w0>>40)] ^ t[3][byte(w0>>32)] ^
		t[4][byte(w0>>24)] ^ t[5][byte(w0>>16)] ^ t[6][byte(w0>>8)] ^ t[7][byte(w0)] ^
		t[8][byte(w1>>56)] ^ t[9][byte(w1>>48)] ^ t[10][byte(w1>>40)] ^ t[11][byte(w1>>32)] ^
		t[12][byte(w1>>24)] ^ t[13][byte(w1>>16)] ^ t[14][byte(w1>>8)] ^ t[15][byte(w1)]
}
