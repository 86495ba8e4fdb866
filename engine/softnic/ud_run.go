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
//	sendGrams      WQEs that are one pointer                          else decodeUD, transmitUD
//	deliverGrams   packets that begin as one that was judged before   else datagram
//
// Both live on what datagrams of one flow have in common: all bytes up to the PSN, when they are equally long. What
// these bytes bring about (headers, their judgement, and the CRC so far) is remembered, so that a datagram costs its
// PSN, its keys, its payload and the rest of the CRC.

// startBytes is how far the common bytes go at most: Ethernet, IPv6, UDP, and the BTH up to the PSN.
const (
	startBytes = maxHead + bthStart
	bthStart   = 8
)

// runWork is the workspace for both.
type runWork struct {
	sends [burst]ring.Gram
	ways  [burst]uint8
	flow  [burst]uint8
	done  [burst]ring.DoneGram
	flows [flowsKept]flow
}

// start is what the last frame of a way began with.
type start struct {
	bytes [startBytes + proto.DETHBytes + 4]byte // the rest is scratch
	len   int32                                  // of the frame; 0: there was none
	pad   uint8
	se    bool
	op    ring.Opcode
	qpn   uint32
	crc   uint32 // of bytes, as the ICRC counts them
}

// begin makes the start of frames of this length, opcode and QP number.
func (w *way) begin(length int32, pad uint8, op ring.Opcode, g *ring.Gram) {
	s := &w.start
	s.len, s.pad, s.op, s.se, s.qpn = length, pad, op, g.Solicited, g.QPN
	w.putHead(s.bytes[:w.n], int(length))
	h := proto.UD{Opcode: proto.OpUDSend, Solicited: g.Solicited, Pad: pad, PKey: defaultPKey, DestQP: g.QPN}
	if op == ring.OpSendImm {
		h.Opcode = proto.OpUDSendImm
	}
	h.Put(s.bytes[w.n:])
	l3 := s.bytes[proto.EthernetBytes:]
	s.crc = proto.ICRC(l3, l3[0]>>4, int(w.n)-proto.EthernetBytes-proto.UDPBytes, int(w.n)-proto.EthernetBytes+bthStart)
}

// sendGrams is sendUD for up to limit WQEs that are one pointer each, all of them sound and to the wire alone. ok is
// false, and nothing has happened, when the queue does not begin with one.
func (n *NIC) sendGrams(q *qp, limit int) (sent int, ok bool) {
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
	dev := n.touch(q.scq)
	for i := range u.sends[:room] {
		if g := &u.sends[i]; g.Signaled {
			n.completeSend(q, dev, op, g.Index)
		}
	}
	return room, true
}

// checkGrams looks keys and addresses up, checks the lengths and lists those of the frames. It returns how many WQEs
// are sound and go to the wire alone before one that does not.
func (n *NIC) checkGrams(q *qp, run []ring.Gram, op ring.Opcode) int {
	u := &n.ud.runWork
	lens, ways := n.tx.lens[:len(run)], u.ways[:len(run)]
	var from *region
	var w *way
	at, used := uint8(0), uint32(0)
	for i := range run {
		g := &run[i]
		if from == nil || from.key != g.LKey {
			if from = n.mtt.find(g.LKey, q.pd, 0); from == nil {
				return i
			}
		}
		if g.Len > uint32(n.maxDatagram) || from.slice(g.Addr, g.Len) == nil {
			return i
		}
		if addr := g.AV.Addr(); w == nil || w.av != *addr {
			at = wayPlace(addr)
			if w = &q.ud.ways[at]; w.av != *addr {
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

// fillGrams builds the frames of a run in the wire and returns their bytes. The CRCs come last: a processor reads
// what it has just written in other pieces slowly.
func (n *NIC) fillGrams(q *qp, run []ring.Gram, op ring.Opcode) (bytes uint64) {
	ways, bufs := n.ud.ways[:len(run)], n.tx.bufs[:len(run)]
	psn, own := q.ud.psn, n.cfg.Profile != engine.ProfileRXE
	var from *region
	for i := range run {
		g, frame := &run[i], bufs[i]
		w := &q.ud.ways[ways[i]&(waysPerQP-1)]
		pad := uint8(-g.Len & 3)
		if s := &w.start; s.len != int32(len(frame)) || s.qpn != g.QPN || s.pad != pad || s.op != op || s.se != g.Solicited {
			w.begin(int32(len(frame)), pad, op, g)
		}
		if from == nil || from.key != g.LKey {
			from = n.mtt.find(g.LKey, q.pd, 0)
		}
		head := w.start.bytes[:w.n+bthStart]
		copyFrame(frame, head)
		key := g.QKey
		if key&qkeyOwn != 0 && own {
			key = q.ud.qkey // D10
		}
		binary.BigEndian.PutUint32(frame[len(frame)-2*proto.ICRCBytes:], 0) // pad
		rest := frame[len(head):]
		binary.BigEndian.PutUint64(rest, uint64(psn)<<32|uint64(key))
		binary.BigEndian.PutUint32(rest[8:], q.qpn)
		rest = rest[12:]
		if op == ring.OpSendImm {
			binary.BigEndian.PutUint32(rest, g.Imm)
			rest = rest[proto.ImmDtBytes:]
		}
		copyFrame(rest, from.slice(g.Addr, g.Len))
		psn = (psn + 1) & 0xffffff
		bytes += uint64(len(frame))
		g.QPN = w.start.crc // of use to nobody else now
	}
	q.ud.psn = psn
	for i := range run {
		frame := bufs[i]
		end := len(frame) - proto.ICRCBytes
		at := int(q.ud.ways[ways[i]&(waysPerQP-1)].n) + bthStart
		proto.PutICRC(frame[end:], proto.ICRCRest(run[i].QPN, frame[at:end]))
	}
	return bytes
}

// flowsKept is how many flows are remembered. A power of two.
const flowsKept = 16

// flow is the judgement of a good packet by what it begins with. It holds until the next control operation.
type flow struct {
	start [startBytes]byte
	n     uint8 // bytes of start; 0: nothing is remembered
	kind  uint8 // of the CQE: GRHInBuffer and the RoCE kind
	imm   bool
	se    bool
	crc   uint32 // of start, as the ICRC counts it
	end   int    // where the ICRC stands in the frame
	at    int    // where the payload does
	pad   int
	q     *qp
}

// flowPlace gives a flow's place from bytes that differ between flows: length, source port, addresses, QP number.
func flowPlace(b []byte) uint8 {
	if b[13] == proto.EtherTypeIPv6&0xff {
		return (b[19] ^ b[37] ^ b[55] ^ b[69]) & (flowsKept - 1)
	}
	return (b[17] ^ b[29] ^ b[35] ^ b[49]) & (flowsKept - 1)
}

// learn remembers a packet that was judged good for a queue pair.
func (n *NIC) learn(f *wire.Frame, r *roceFrame, q *qp) {
	if r.l3 != proto.EthernetBytes || &r.head[0] != &f.Data[r.l3] { // of another length, or its own header is not known
		return
	}
	at := r.l4 + proto.UDPBytes + bthStart
	e := &n.ud.flows[flowPlace(f.Data)]
	copy(e.start[:], f.Data[:at])
	e.n, e.kind, e.imm, e.se = uint8(at), r.kind(), r.ud.HasImm, r.ud.Solicited
	e.end, e.at, e.pad, e.q = r.end-proto.ICRCBytes, r.payload, int(r.ud.Pad), q
	e.crc = proto.ICRC(f.Data[r.l3:], r.version, r.l4-r.l3, at-r.l3)
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
	b := f.Data
	if len(b) < startBytes || f.Flags&^wire.FlagIDUnknown != 0 {
		return nil
	}
	at := flowPlace(b)
	e := &n.ud.flows[at]
	switch e.n {
	case proto.EthernetBytes + ipv4Head + bthStart:
		if *(*[proto.EthernetBytes + ipv4Head + bthStart]byte)(b) != *(*[proto.EthernetBytes + ipv4Head + bthStart]byte)(e.start[:]) {
			return nil
		}
	case startBytes:
		if *(*[startBytes]byte)(b) != e.start {
			return nil
		}
	default:
		return nil
	}
	if len(b) < e.end+proto.ICRCBytes {
		return nil
	}
	return e
}

// deliverGrams delivers the first of the frames whose flow is known and whose queue pair is that of the first, as far
// as they are good, receive WQEs of one segment have room for them, and the CQ has room. It returns how many are done
// with; all others are for datagram.
func (n *NIC) deliverGrams(frames []wire.Frame) int {
	x, u := &n.rx, &n.ud.runWork
	first := n.known(&frames[0])
	if first == nil || first.q.srq != nil {
		return 0
	}
	q := first.q
	count := 0
	for count < len(frames) {
		e := n.known(&frames[count])
		if e == nil || e.q != q {
			break
		}
		u.flow[count] = flowPlace(frames[count].Data)
		count++
	}
	if q.rcq.broken || !q.receives() {
		return 0
	}
	entries := x.entries[:q.rq.Run(x.entries[:count])]
	entries = entries[:q.rcq.dev.Room(len(entries))]
	counter := uint16(q.rq.CI())
	var to *region
	used, bytes, now := 0, uint64(0), n.time()
	for i := range entries {
		g, f, d := &entries[i], &frames[i], &u.done[i]
		e := &u.flows[u.flow[i]&(flowsKept-1)]
		b := f.Data
		if proto.ICRCRest(e.crc, b[e.n:e.end]) != proto.LoadICRC(b[e.end:]) {
			break
		}
		deth := b[e.n:][:12]
		payload := b[e.at : e.end-e.pad]
		need := uint32(grhArea + len(payload))
		if binary.BigEndian.Uint32(deth[4:]) != q.ud.qkey || g.Len < need {
			break
		}
		if to == nil || to.key != g.LKey {
			if to = n.mtt.find(g.LKey, q.pd, engine.LocalWrite); to == nil {
				break
			}
		}
		p := to.slice(g.Addr, need)
		if p == nil {
			break
		}
		putGRH((*[grhArea]byte)(p), b[proto.EthernetBytes:], e.kind)
		copyFrame(p[grhArea:], payload)
		d.Bytes, d.Counter = need, counter+uint16(i)
		d.Source = uint32(e.kind)<<24 | binary.BigEndian.Uint32(deth[8:])&0xffffff
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
