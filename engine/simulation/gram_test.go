package simulation

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/bluering/bluering/engine"
)

// In some histories the wire has an MTU for datagrams of up to 256 bytes; in the others UD queue pairs can send none.
const (
	gramMTU  = 400
	gramMost = 256
	gramKey  = 0x11111111
	grhBytes = 40
)

// gram is what a datagram's request says, beside its payload.
type gram struct {
	six      bool
	qpn, key uint32
	imm      uint32
	hasImm   bool
	se       bool
	hop      uint8
	class    uint8
	flow     uint32
	port     uint16
}

// addr gives the address of a side in a family.
func (w *world) addr(n int, six bool) []byte {
	a := netip.AddrFrom4([4]byte{198, 18, 0, byte(n + 1)})
	if six {
		a = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 3: 0x02, 15: byte(n + 1)})
	}
	return a.AsSlice()
}

// makeAHs makes the addresses that datagrams of the side go to: two for each family.
func (s *side) makeAHs() {
	for i := range 4 {
		g := gram{six: i >= 2, hop: uint8(s.rnd.Uint32()), class: uint8(s.rnd.Uint32()), port: uint16(0xc000 | s.rnd.Uint32()&0x3fff)}
		if g.six {
			g.flow = s.rnd.Uint32() & 0xfffff
		}
		to, _ := netip.AddrFromSlice(s.addr(1-s.n, g.six))
		ah, err := s.pd.NewAH(engine.AHAttr{MAC: [6]byte{2, 0, 0, 0, 0, byte(2 - s.n)}, GID: engine.GIDFromAddr(to), SGIDIndex: uint8(i / 2),
			HopLimit: g.hop, TClass: g.class, FlowLabel: g.flow, SrcPort: g.port})
		s.must(err)
		s.ahs, s.ways = append(s.ahs, ah), append(s.ways, g)
	}
}

// datagram turns a request into one of a UD queue pair. usual ones are what an application posts.
func (p *pair) datagram(r *request, usual bool) {
	s := p.s
	kind := 0
	if !p.alike && (!usual || s.one(12)) {
		kind = s.rnd.IntN(12)
	}
	length := s.rnd.IntN(gramMost + 1)
	if s.one(3) {
		length = s.rnd.IntN(40)
	}
	again := usual && p.last.qpn != 0 && (p.alike || !s.one(4)) // one more of a flow
	if again {
		length = min(p.last.length, gramMost)
	}
	if kind == 5 && s.cfg.Profile != engine.ProfileRXE {
		length = gramMost + 1 + s.rnd.IntN(20)
		r.send.want = engine.StatusLocLen
	}
	if kind >= 8 {
		length = max(length, 60)
	}
	p.fill(r.send, length)
	p.pieces(r, kind)
	if length == 0 {
		r.wr.SGEs = nil
	}
	at := s.rnd.IntN(len(s.ahs))
	if again && !(p.alike && s.one(10)) {
		at = p.last.at
	}
	r.wr.AH = s.ahs[at]
	g := s.ways[at]
	g.qpn, g.key = s.rnd.Uint32()&0xffffff, gramKey
	if other := s.world.sides[1-s.n].pairs; len(other) > 0 && !s.one(12) {
		g.qpn = other[s.rnd.IntN(len(other))].q.QPN()
	}
	if again {
		g.qpn = p.last.qpn
	}
	p.last.at, p.last.length, p.last.qpn = at, len(r.send.frame), g.qpn
	switch vary := s.rnd.IntN(12); {
	case p.alike:
	case vary == 0:
		g.key ^= 1
	case vary == 1:
		g.key |= 1 << 31
	}
	if g.hasImm = r.wr.Opcode == engine.OpSend && !p.alike && s.one(4); g.hasImm {
		g.imm = s.rnd.Uint32()
		r.wr.Opcode, r.wr.Imm = engine.OpSendImm, g.imm
	}
	if g.se = !p.alike && s.one(4); g.se {
		r.wr.Flags |= engine.Solicited
	}
	r.wr.RemoteQPN, r.wr.RemoteQKey = g.qpn, g.key
	if g.key>>31 != 0 && s.cfg.Profile != engine.ProfileRXE {
		g.key = gramKey // the queue pair's own
	}
	r.send.gram = &g
}

// frameOf makes the frame of a datagram, as dully as can be.
func (p *pair) frameOf(w *send) []byte {
	s, g := p.s, w.gram
	f := []byte{2, 0, 0, 0, 0, byte(2 - s.n), 2, 0, 0, 0, 0, byte(s.n + 1)}
	pad := -len(w.frame) & 3
	udp := 8 + 20 + len(w.frame) + pad + 4
	if g.hasImm {
		udp += 4
	}
	if g.six {
		f = append(f, 0x86, 0xdd)
		f = binary.BigEndian.AppendUint32(f, 6<<28|uint32(g.class)<<20|g.flow)
		f = append(binary.BigEndian.AppendUint16(f, uint16(udp)), 17, g.hop)
	} else {
		f = append(f, 8, 0, 0x45, g.class)
		f = append(binary.BigEndian.AppendUint16(f, uint16(20+udp)), 0, 0, 0x40, 0, g.hop, 17, 0, 0)
	}
	f = append(append(f, s.addr(s.n, g.six)...), s.addr(1-s.n, g.six)...)
	if !g.six {
		sum := uint32(0)
		for i := 14; i < 34; i += 2 {
			sum += uint32(f[i])<<8 | uint32(f[i+1])
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(f[24:], ^uint16(sum&0xffff+sum>>16))
	}
	f = binary.BigEndian.AppendUint16(f, g.port)
	f = append(f, 4791>>8, 4791&0xff)
	f = append(binary.BigEndian.AppendUint16(f, uint16(udp)), 0, 0)
	op, flags := byte(0x64), byte(pad<<4)
	if g.hasImm {
		op = 0x65
	}
	if g.se {
		flags |= 0x80
	}
	f = append(f, op, flags, 0xff, 0xff)
	f = binary.BigEndian.AppendUint32(f, g.qpn)
	f = binary.BigEndian.AppendUint32(f, p.psn)
	f = binary.BigEndian.AppendUint32(f, g.key)
	f = binary.BigEndian.AppendUint32(f, p.q.QPN())
	if g.hasImm {
		f = binary.BigEndian.AppendUint32(f, g.imm)
	}
	f = append(append(f, w.frame...), make([]byte, pad)...)
	return binary.LittleEndian.AppendUint32(f, dullICRC(f))
}

// dullICRC is the ICRC of an untagged frame that ends where it stands, a bit at a time over a masked copy.
func dullICRC(frame []byte) uint32 {
	b := slices.Clone(frame[14:])
	l4 := 40
	if b[0]>>4 == 4 {
		b[1], b[8], b[10], b[11] = 0xff, 0xff, 0xff, 0xff
		l4 = 20
	} else {
		b[0], b[1], b[2], b[3], b[7] = b[0]|0x0f, 0xff, 0xff, 0xff, 0xff
	}
	b[l4+6], b[l4+7], b[l4+12] = 0xff, 0xff, 0xff
	crc := ^uint32(0)
	for _, v := range append(slices.Repeat([]byte{0xff}, 8), b...) {
		crc ^= uint32(v)
		for range 8 {
			crc = crc>>1 ^ 0xedb88320&-(crc&1)
		}
	}
	return ^crc
}

// isRoCE reports whether a frame is a RoCE v2 one to a side, well enough for frames made here and for a bit flipped in
// them: UDP, whole, to port 4791 (RFC 791 section 3.1, RFC 8200 section 3).
func isRoCE(frame []byte) bool {
	if len(frame) < 34 {
		return false
	}
	l4, proto, whole := 54, frame[20], true
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		l4, proto = 14+4*int(frame[14]&15), frame[23]
		whole = binary.BigEndian.Uint16(frame[20:])&0x3fff == 0 && l4 >= 34
	case 0x86dd:
	default:
		return false
	}
	return proto == 17 && whole && len(frame) >= l4+8 && binary.BigEndian.Uint16(frame[l4+2:]) == 4791
}

// sentGram is onSent for a datagram.
func (s *side) sentGram(frame []byte) {
	l4 := 34
	if frame[12] == 0x86 {
		l4 = 54
	}
	from := binary.BigEndian.Uint32(frame[l4+8+16:]) & 0xffffff
	at := slices.IndexFunc(s.pairs, func(p *pair) bool { return p.typ == engine.UD && p.q.QPN() == from })
	if at < 0 {
		s.fail("%s sends a datagram of nobody: % x", s.name, frame)
	}
	p := s.pairs[at]
	at = slices.IndexFunc(p.sends, func(w *send) bool { return !w.sent && !w.over })
	if at < 0 {
		s.fail("QP 0x%x sends what nobody posted: % x", from, frame)
	}
	w := p.sends[at]
	if want := p.frameOf(w); !slices.Equal(want, frame) {
		s.fail("QP 0x%x sends for request %d\n% x, not\n% x", from, w.id, frame, want)
	}
	if w.want != engine.StatusSuccess || p.known != engine.StateRTS {
		s.fail("QP 0x%x in %v sends request %d, which is to end with %v", from, p.known, w.id, w.want)
	}
	w.sent = true
	if p.psn = (p.psn + 1) & 0xffffff; p.psn == 0 {
		s.seen.events["a PSN wraps"]++
	}
	s.seen.events["a datagram is sent"]++
}

// findGram looks the datagram up in what arrived behind the one that the pair received last.
func (p *pair) findGram(wc *engine.Completion, got []byte) {
	log := p.s.tap.log
	for i := p.cursor; i < len(log); i++ {
		a := &log[i]
		if a.broken || !isRoCE(a.bytes) {
			continue
		}
		f := a.bytes
		l4, head := 34, append(make([]byte, 20), f[14:34]...)
		if f[12] == 0x86 {
			l4, head = 54, f[14:54]
		}
		bth := f[l4+8:]
		end := len(f) - 4 - int(bth[1]>>4&3)
		at := l4 + 8 + 20
		if bth[0] == 0x65 {
			at += 4
		}
		if binary.LittleEndian.Uint32(f[len(f)-4:]) != dullICRC(f[:len(f)-4]) || binary.BigEndian.Uint32(bth[4:])&0xffffff != p.q.QPN() ||
			binary.BigEndian.Uint32(bth[12:]) != gramKey || at > end || !slices.Equal(got, append(slices.Clone(head), f[at:end]...)) {
			continue
		}
		imm := uint32(0)
		if bth[0] == 0x65 {
			imm = binary.BigEndian.Uint32(f[at-4:])
		}
		if wc.SrcQP != binary.BigEndian.Uint32(bth[16:])&0xffffff || wc.Imm != imm || (wc.Flags&engine.WCImm != 0) != (bth[0] == 0x65) ||
			(wc.Flags&engine.WCSolicited != 0) != (bth[1]&0x80 != 0) || wc.Flags&engine.WCGRH == 0 {
			continue // another of the same bytes
		}
		p.cursor = i + 1
		p.s.seen.events["a datagram is received"]++
		return
	}
	p.s.fail("QP 0x%x received a datagram that did not arrive after its one before: %+v, % x", p.q.QPN(), *wc, got)
}
