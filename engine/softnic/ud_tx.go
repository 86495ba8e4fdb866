package softnic

import (
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// datagram is one UD WQE of a burst beside what job has: decoded and checked, not yet sent.
type datagram struct {
	av        *ring.AV
	qkey      uint32
	remoteQPN uint32
	imm       uint32
	length    int32 // of the payload
	way       uint8
	solicited bool
}

// udSender is the send side's workspace for datagrams. A frame that is delivered here is built in scratch.
type udSender struct {
	grams   [burst]datagram
	scratch []byte
}

// sendUD is send for a UD queue pair: a run of datagrams that go to the wire alone is sent as a burst, any other one
// by itself.
func (n *NIC) sendUD(q *qp, limit int) int {
	blocks := q.sq.Pending()
	if blocks == 0 {
		return 0
	}
	if sent, ok := n.sendGrams(q, min(limit, (blocks+1)/2)); ok { // a datagram of the common kinds has two
		return sent
	}
	s := &n.tx
	first := *q.sq
	jobs, next, bad := n.decodeUD(q, min(limit, burst))
	room := jobs
	if jobs > 0 {
		if room = n.wire.Reserve(s.lens[:jobs], s.bufs[:jobs]); room < jobs {
			n.rewind(q, &first, room)
			n.full(q, room)
			next, bad = toWire, 0
		}
		n.transmitUD(q, room)
	}
	switch {
	case bad != 0:
		n.sendError(q, bad)
		room++
	case next != toWire:
		room += n.sendApart(q, jobs, next)
	}
	return room
}

// decodeUD fills the workspace with up to limit datagrams that go to the wire alone, and advances behind them. next
// is not toWire when it stopped at one that goes elsewhere, bad is the syndrome of one that fails: such a one is the
// next of the queue and stands in s.wqe, and its datagram behind the others.
func (n *NIC) decodeUD(q *qp, limit int) (jobs int, next where, bad ring.Syndrome) {
	s := &n.tx
	used := 0
	for jobs < limit && used <= maxPieces-ring.MaxDS-1 {
		switch q.sq.Fetch(&s.wqe) {
		case ring.FetchOK:
		case ring.FetchBad:
			return jobs, toWire, s.wqe.Syndrome
		default:
			return jobs, toWire, 0
		}
		pieces, length, syndrome := n.gatherUD(q, &s.wqe, used)
		if syndrome != 0 {
			return jobs, toWire, syndrome
		}
		w, at := n.wayOf(q, s.wqe.AV)
		if w.where == toNowhere {
			return jobs, toWire, ring.SynLocalQPOp
		}
		d := &n.ud.grams[jobs]
		d.av, d.qkey, d.remoteQPN, d.imm = s.wqe.AV, s.wqe.QKey, s.wqe.RemoteQPN, s.wqe.Imm
		d.length, d.way, d.solicited = length, at, s.wqe.Solicited
		s.jobs[jobs] = job{pieces: uint16(pieces), index: s.wqe.Index, opcode: s.wqe.Opcode, signaled: s.wqe.Signaled}
		s.lens[jobs] = frameLength(w, s.wqe.Opcode, length)
		if int(length) > n.maxDatagram { // profile rxe, or gatherUD had refused it
			return jobs, toNowhere, 0
		}
		if w.where != toWire {
			return jobs, w.where, 0
		}
		used += pieces
		jobs++
		q.sq.Advance()
	}
	return jobs, toWire, 0
}

// frameLength gives the length of a datagram's frame.
func frameLength(w *way, op ring.Opcode, payload int32) int32 {
	n := int32(w.n) + proto.BTHBytes + proto.DETHBytes + payload + -payload&3 + proto.ICRCBytes
	if op == ring.OpSendImm {
		n += proto.ImmDtBytes
	}
	return n
}

// gatherUD lists the payload as pieces from s.pieces[at] on.
func (n *NIC) gatherUD(q *qp, w *ring.SendWQE, at int) (pieces int, length int32, bad ring.Syndrome) {
	s := &n.tx
	if n.maxDatagram == 0 {
		n.counters.TxNotBuilt++
		return 0, 0, ring.SynLocalQPOp // Caps say so
	}
	if len(w.Inline) > 0 {
		s.pieces[at] = w.Inline
		pieces++
	}
	for i := 0; i < w.NSeg; i++ {
		g := &w.Segs[i]
		p := n.mtt.lookup(g.LKey, g.Addr, g.Len, q.pd, 0)
		if p == nil {
			return 0, 0, ring.SynLocalProt
		}
		s.pieces[at+pieces] = p
		pieces++
	}
	if w.Bytes > uint32(n.maxDatagram) && n.cfg.Profile != engine.ProfileRXE { // D5
		return 0, 0, ring.SynLocalLength
	}
	return pieces, int32(w.Bytes), 0
}

// transmitUD builds the first count frames of the burst in the wire and completes the signaled ones.
func (n *NIC) transmitUD(q *qp, count int) {
	if count == 0 {
		return
	}
	s := &n.tx
	at, bytes := 0, uint64(0)
	for i := 0; i < count; i++ {
		k := int(s.jobs[i].pieces)
		n.build(q, s.bufs[i], i, s.pieces[at:at+k])
		at += k
		bytes += uint64(len(s.bufs[i]))
	}
	n.commit(count, count, bytes)
	n.completeSends(q, s.jobs[:count])
}

// build writes the frame of datagram i, which takes the queue pair's next PSN.
func (n *NIC) build(q *qp, frame []byte, i int, pieces [][]byte) {
	d := &n.ud.grams[i]
	w := &q.ud.ways[d.way]
	if w.av != *d.av.Addr() {
		n.makeWay(q, d.av, w) // another address of the burst has taken its place
	}
	w.putHead(frame, len(frame))
	h := proto.UD{Opcode: proto.OpUDSend, Solicited: d.solicited, Pad: uint8(-d.length & 3), PKey: defaultPKey,
		DestQP: d.remoteQPN, PSN: q.ud.psn, QKey: n.qkey(q, d.qkey), SrcQP: q.qpn}
	if n.tx.jobs[i].opcode == ring.OpSendImm {
		h.Opcode, h.HasImm, h.Imm = proto.OpUDSendImm, true, d.imm
	}
	q.ud.psn = (q.ud.psn + 1) & 0xffffff
	at := int(w.n)
	at += h.Put(frame[at:])
	for _, p := range pieces {
		copyFrame(frame[at:], p)
		at += len(p)
	}
	for end := len(frame) - proto.ICRCBytes; at < end; at++ {
		frame[at] = 0
	}
	l3 := frame[proto.EthernetBytes:]
	version := l3[0] >> 4
	proto.PutICRC(frame[at:], proto.ICRC(l3, version, int(w.n)-proto.EthernetBytes-proto.UDPBytes, at-proto.EthernetBytes))
}

// qkey gives the Q_Key that a datagram of a request with this one carries.
func (n *NIC) qkey(q *qp, key uint32) uint32 {
	if key&qkeyOwn != 0 && n.cfg.Profile != engine.ProfileRXE {
		return q.ud.qkey // D10
	}
	return key
}

// sendApart sends datagram i, at which decodeUD stopped because it does not go to the wire alone, and returns how
// many it has executed. Its pieces are behind those of the datagrams before it.
func (n *NIC) sendApart(q *qp, i int, how where) int {
	s := &n.tx
	at := 0
	for k := range i {
		at += int(s.jobs[k].pieces)
	}
	pieces := s.pieces[at : at+int(s.jobs[i].pieces)]
	if how == toNowhere { // too long, and profile rxe: nothing is sent
		q.ud.psn = (q.ud.psn + 1) & 0xffffff
		n.counters.TxTooLong++
		q.sq.Advance()
		n.completeSends(q, s.jobs[i:i+1])
		return 1
	}
	if how == toGroup && n.wire.Reserve(s.lens[i:i+1], s.bufs[i:i+1]) == 0 {
		n.full(q, 0)
		return 0
	}
	frame := n.ud.scratch[:s.lens[i]]
	n.build(q, frame, i, pieces)
	if how == toGroup {
		copy(s.bufs[i], frame)
		n.commit(1, 1, uint64(len(frame)))
	}
	q.sq.Advance()
	n.completeSends(q, s.jobs[i:i+1])
	n.loopBack(q, frame, how)
	return 1
}
