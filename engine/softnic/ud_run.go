package softnic

import (
	"encoding/binary"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// The ways of the commonest bursts of datagrams. Each does what the general way does, frame for frame, or leaves the
// frame to it:
//
//	sendGrams      WQEs that are one pointer, or a few bytes inline   else decodeUD, transmitUD
//	deliverGrams   packets that begin as one that was judged before   else datagram
//
// Rows of equal ones are taken out of both first (ud_row.go), and one alone goes a shorter way (ud_one.go). All live on
// what datagrams of one flow have in common: all headers but the PSN, when they are equally long. What these bytes bring
// about (headers, their judgement, and the CRC so far) is remembered, so that a datagram costs its PSN, its payload and
// the rest of the CRC.

// startBytes is how far the common bytes go at most: Ethernet, IPv6, UDP, BTH and DETH. The PSN among them is 0.
const (
	bthStart   = 8 // of the BTH in front of the PSN
	behindBTH  = proto.BTHBytes - bthStart + proto.DETHBytes
	startBytes = maxHead + bthStart + behindBTH
	start4     = startBytes - proto.IPv6Bytes + proto.IPv4Bytes // of an IPv4 packet
)

// runWork is the workspace for both.
type runWork struct {
	sends [burst]ring.Gram
	ways  [burst]uint8
	done  [burst]ring.DoneGram
	flows [flowsKept]flow
}

// start is what the last frame of a way began with.
type start struct {
	bytes [startBytes]byte
	len   int32 // of the frame; 0: there was none
	pad   uint8
	se    bool
	row   bool // the way's row is set
	op    ring.Opcode
	qpn   uint32
	key   uint32 // the Q_Key
	crc   uint32 // of bytes, as the ICRC counts them
}

// fits reports whether frames of this length to a QP number begin with it.
func (s *start) fits(length int32, pad uint8, op ring.Opcode, key uint32, g *ring.Gram) bool {
	return s.len == length && s.qpn == g.QPN && s.key == key && s.pad == pad && s.op == op && s.se == g.Solicited
}

// begin makes the start of frames of this length, opcode, Q_Key and QP number.
func (w *way) begin(length int32, pad uint8, op ring.Opcode, key, qpn uint32, g *ring.Gram) {
	s := &w.start
	s.len, s.pad, s.op, s.se, s.qpn, s.key, s.row = length, pad, op, g.Solicited, g.QPN, key, false
	w.putHead(s.bytes[:w.n], int(length))
	h := proto.UD{Opcode: proto.OpUDSend, Solicited: g.Solicited, Pad: pad, PKey: defaultPKey, DestQP: g.QPN, QKey: key, SrcQP: qpn}
	if op == ring.OpSendImm {
		h.Opcode = proto.OpUDSendImm
	}
	l3 := s.bytes[proto.EthernetBytes:]
	end := int(w.n) + h.Put(s.bytes[w.n:]) - proto.EthernetBytes
	s.crc = proto.ICRC(l3, l3[0]>>4, int(w.n)-proto.EthernetBytes-proto.UDPBytes, end)
}

// sendGrams is sendUD for up to limit WQEs of a ring.Gram's shape, all of them sound and to the wire alone. ok is
// false, and nothing has happened, when the queue does not begin with one.
func (n *NIC) sendGrams(q *qp, limit int) (sent int, ok bool) {
	switch {
	case limit == 1:
		return n.sendGram(q)
	case limit >= leastGramRow:
		if sent, ok = n.sendGramRow(q, limit); ok {
			return sent, ok
		}
	}
	s, u := &n.tx, &n.ud.runWork
	count, op := q.sq.FetchGrams(u.sends[:min(limit, burst)])
	count = n.checkGrams(q, u.sends[:count], op)
	if count == 0 {
		return 0, false
	}
	room := n.wire.Reserve(s.lens[:count], s.bufs[:count])
	if room < count {
		n.full(q, room)
	}
	if room == 0 {
		return 0, true
	}
	bytes := n.fillGrams(q, u.sends[:room], op)
	n.commit(room, room, bytes)
	q.sq.AdvanceGrams(room)
	for i := range u.sends[:room] {
		if g := &u.sends[i]; g.Signaled {
			n.completeSend(q, n.touch(q.scq), op, g.Index)
		}
	}
	return room, true
}

// checkGrams looks keys and addresses up, checks the lengths and lists those of the frames. It returns how many WQEs
// are sound and go to the wire alone before one that does not. The payload of those is their Inline then.
func (n *NIC) checkGrams(q *qp, run []ring.Gram, op ring.Opcode) int {
	u := &n.ud.runWork
	lens, ways := n.tx.lens[:len(run)], u.ways[:len(run)]
	var from *region
	var w *way
	at, used := uint8(0), uint32(0)
	for i := range run {
		g := &run[i]
		if g.Len > uint32(n.maxDatagram) {
			return i
		}
		if g.Inline == nil {
			if from == nil || from.key != g.LKey {
				if from = n.mtt.find(g.LKey, q.pd, 0); from == nil {
					return i
				}
			}
			if g.Inline = from.slice(g.Addr, g.Len); g.Inline == nil {
				return i
			}
		}
		if addr := g.AV.Addr(); w == nil || !sameAddr(&w.av, addr) {
			at = wayPlace(addr)
			if w = &q.ud.ways[at]; !sameAddr(&w.av, addr) {
				if used>>at&1 != 0 {
					return i // its place is taken by one of this run
				}
				n.makeWay(q, g.AV, w)
			}
			if w.where != toWire {
				return i
			}
			used |= 1 << at
		}
		ways[i] = at
		lens[i] = frameLength(w, op, int32(g.Len))
	}
	return len(run)
}

// sameAddr compares words: the compiler compares arrays of this size by a call.
func sameAddr(a, b *[ring.AVAddrBytes]byte) bool {
	const last = ring.AVAddrBytes - 8
	return differ(a[0:], b[0:])|differ(a[8:], b[8:])|differ(a[16:], b[16:])|differ(a[24:], b[24:])|differ(a[last:], b[last:]) == 0
}

// differ has the bits in which the first eight bytes differ.
func differ(a, b []byte) uint64 { return binary.NativeEndian.Uint64(a) ^ binary.NativeEndian.Uint64(b) }

// fillGrams builds the frames of a run in the wire and returns their bytes. The CRC is taken where the payload comes
// from: a processor reads what it has just written in other pieces slowly, and what another one had read before more so.
func (n *NIC) fillGrams(q *qp, run []ring.Gram, op ring.Opcode) (bytes uint64) {
	ways, bufs := n.ud.ways[:len(run)], n.tx.bufs[:len(run)]
	psn := q.ud.psn
	for i := range run {
		g, frame := &run[i], bufs[i]
		w := &q.ud.ways[ways[i]&(waysPerQP-1)]
		pad := uint8(-g.Len & 3)
		key := n.qkey(q, g.QKey)
		s := &w.start
		if !s.fits(int32(len(frame)), pad, op, key, g) {
			w.begin(int32(len(frame)), pad, op, key, q.qpn, g)
		}
		bytes += uint64(len(frame))
		crc := s.crc ^ proto.ICRCOfPSN(psn)
		if head := s.bytes[:]; w.n == maxHead {
			copy64((*[64]byte)(frame), (*[64]byte)(head))
			copy32((*[32]byte)(frame[startBytes-32:]), (*[32]byte)(head[startBytes-32:]))
		} else {
			copySmall(frame, head[:start4])
		}
		binary.BigEndian.PutUint32(frame[w.n+bthStart:], psn)
		rest := frame[w.n+bthStart+behindBTH:]
		if op == ring.OpSendImm {
			binary.BigEndian.PutUint32(rest, g.Imm)
			crc = proto.ICRCRest(crc, rest[:proto.ImmDtBytes])
			rest = rest[proto.ImmDtBytes:]
		}
		if isSmall(g.Inline) {
			copySmall(rest, g.Inline)
		} else {
			copyOther(rest, g.Inline)
		}
		crc = proto.ICRCRest(crc, g.Inline[:g.Len&^3])
		if rest = rest[g.Len&^3:]; pad != 0 {
			clear(rest[4-pad : 4])
			crc = proto.ICRCRest(crc, rest[:4])
			rest = rest[4:]
		}
		proto.PutICRC(rest, crc)
		psn = (psn + 1) & 0xffffff
	}
	q.ud.psn = psn
	return bytes
}

// flowsKept is how many flows are remembered. A power of two.
const flowsKept = 16

// flow is the judgement of a good packet by what it begins with. It holds until the next control operation.
type flow struct {
	start [startBytes]byte // its PSN and the byte in front of it are 0
	grh   [grhArea]byte    // what stands in front of its payload in a receive buffer
	n     uint8            // where the PSN's word stands; 0: nothing is remembered
	imm   bool
	se    bool
	set   bool   // row is
	crc   uint32 // of start, as the ICRC counts it
	from  uint32 // of the CQE: GRHInBuffer, the RoCE kind and the sender's QP number
	need  uint32 // bytes in the receive buffer
	at    int    // where the payload stands in the frame
	end   int    // and the ICRC
	q     *qp
	row   proto.Row
}

const (
	psn4 = proto.EthernetBytes + ipv4Head + bthStart // where the PSN's word stands
	psn6 = maxHead + bthStart
)

// flowPlace gives a flow's place from bytes that differ between flows: length, source port, addresses, QP numbers. The
// frame has startBytes, or start4 if it is of IPv4.
func flowPlace(b []byte) uint8 {
	if b[13] == proto.EtherTypeIPv6&0xff {
		return (b[19] ^ b[37] ^ b[55] ^ b[69] ^ b[81]) & (flowsKept - 1)
	}
	return (b[17] ^ b[29] ^ b[35] ^ b[49] ^ b[61]) & (flowsKept - 1)
}

// learn remembers a packet that was judged good for a queue pair.
func (n *NIC) learn(f *wire.Frame, r *roceFrame, q *qp) {
	if r.l3 != proto.EthernetBytes || &r.head[0] != &f.Data[r.l3] || r.end&3 != proto.EthernetBytes&3 {
		return // of another length, or its own header is not known
	}
	at := r.l4 + proto.UDPBytes + bthStart
	e := &n.ud.flows[flowPlace(f.Data)]
	e.n = 0
	if copy(e.start[:at+behindBTH], f.Data); e.start[at] != 0 {
		return
	}
	binary.BigEndian.PutUint32(e.start[at:], 0)
	e.n, e.imm, e.se, e.set = uint8(at), r.ud.HasImm, r.ud.Solicited, false
	e.end, e.at, e.q = r.end-proto.ICRCBytes, r.payload, q
	e.need = uint32(grhArea + r.length())
	e.from = uint32(r.kind())<<24 | r.ud.SrcQP
	putGRH(&e.grh, r.head, r.kind())
	e.crc = proto.ICRC(e.start[r.l3:], r.version, r.l4-r.l3, at+behindBTH-r.l3)
}

// forget is for control operations, which may change what a queue pair takes.
func (n *NIC) forget() {
	if n.uds != 0 {
		for i := range n.ud.flows {
			n.ud.flows[i].n = 0
		}
	}
}

// known finds the flow of a frame; nil when it is none that is remembered.
func (n *NIC) known(f *wire.Frame) *flow {
	if b := f.Data; len(b) >= startBytes || len(b) >= start4 && b[13] != proto.EtherTypeIPv6&0xff {
		if e := &n.ud.flows[flowPlace(b)]; e.has(f) {
			return e
		}
	}
	return nil
}

// has reports whether a whole frame begins as those of the flow, but for its PSN.
func (e *flow) has(f *wire.Frame) bool {
	if f.Flags&^wire.FlagIDUnknown != 0 || len(f.Data) < e.end+proto.ICRCBytes {
		return false
	}
	s := &e.start
	switch e.n {
	case psn4:
		b := (*[start4]byte)(f.Data)
		return sameHead((*[psn4]byte)(b[:]), (*[psn4]byte)(s[:])) && b[psn4] == 0 && differ(b[psn4+4:], s[psn4+4:]) == 0
	case psn6:
		b := (*[startBytes]byte)(f.Data)
		return sameHead((*[psn4]byte)(b[:]), (*[psn4]byte)(s[:])) &&
			differ(b[psn4:], s[psn4:])|differ(b[psn4+8:], s[psn4+8:])|differ(b[psn6-8:], s[psn6-8:]) == 0 &&
			b[psn6] == 0 && differ(b[psn6+4:], s[psn6+4:]) == 0
	}
	return false
}

func sameHead(a, b *[psn4]byte) bool {
	const last = psn4 - 8
	return differ(a[0:], b[0:])|differ(a[8:], b[8:])|differ(a[16:], b[16:])|differ(a[24:], b[24:])|
		differ(a[32:], b[32:])|differ(a[40:], b[40:])|differ(a[last:], b[last:]) == 0
}

// deliverGrams delivers the first of the frames whose flow is known and whose queue pair is that of the first, as far
// as they are good, receive WQEs of one segment have room for them, and the CQ has room. It returns how many are done
// with; all others are for datagram.
func (n *NIC) deliverGrams(frames []wire.Frame) int {
	x, u := &n.rx, &n.ud.runWork
	e := n.known(&frames[0])
	if e == nil || e.q.srq != nil || e.q.rcq.broken || !e.q.receives() {
		return 0
	}
	q := e.q
	if len(frames) == 1 {
		return n.deliverGram(e, &frames[0])
	}
	entries := x.entries[:q.rq.Run(x.entries[:len(frames)])]
	entries = entries[:q.rcq.dev.Room(len(entries))]
	if len(entries) >= leastGramRow {
		if used := n.deliverGramRow(e, frames, entries); used != 0 {
			return used
		}
	}
	counter := uint16(q.rq.CI())
	var to *region
	used, bytes, now := 0, uint64(0), n.time()
	for i := range entries {
		g, f, d := &entries[i], &frames[i], &u.done[i]
		if i > 0 && !e.has(f) {
			if e = n.known(f); e == nil || e.q != q {
				break
			}
		}
		b := f.Data
		rest := b[e.n:e.end]
		crc := e.crc ^ proto.ICRCOfPSN(binary.BigEndian.Uint32(rest))
		if proto.ICRCRest(crc, rest[behindBTH:]) != proto.LoadICRC(b[e.end:]) || g.Len < e.need {
			break
		}
		if to == nil || to.key != g.LKey {
			if to = n.mtt.find(g.LKey, q.pd, engine.LocalWrite); to == nil {
				break
			}
		}
		p := to.slice(g.Addr, e.need)
		if p == nil {
			break
		}
		*(*[grhArea]byte)(p) = e.grh
		p = p[grhArea:]
		if from := b[e.at : e.at+len(p)]; isSmall(from) {
			copySmall(p, from)
		} else {
			copyOther(p, from)
		}
		d.Bytes, d.Counter, d.Source = e.need, counter+uint16(i), e.from
		d.Imm, d.HasImm, d.Solicited = 0, e.imm, e.se
		if e.imm {
			d.Imm = binary.BigEndian.Uint32(b[e.at-proto.ImmDtBytes:])
		}
		if d.Time = uint64(f.TimeNS); f.TimeNS == 0 {
			d.Time = uint64(now)
		}
		bytes += uint64(len(b))
		used++
	}
	if used == 0 {
		return 0
	}
	q.rq.Take(used)
	n.touch(q.rcq).PutGrams(q.uidx, q.qpn, u.done[:used])
	n.counters.RxFrames += uint64(used)
	n.counters.RxBytes += bytes
	return used
}
