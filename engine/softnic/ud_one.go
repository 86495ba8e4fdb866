package softnic

import (
	"encoding/binary"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// A datagram alone, as one of a conversation is, pays each step of a burst by itself. These are the ways of ud_run.go
// without what only a second datagram needs: they do the same, or leave it to the general way as those do.

// sendGram is sendGrams for a limit of one.
func (n *NIC) sendGram(q *qp) (sent int, ok bool) {
	s, u := &n.tx, &n.ud.runWork
	g := &u.sends[0]
	count, op := q.sq.FetchGrams(u.sends[:1])
	if count == 0 || g.Len > uint32(n.maxDatagram) {
		return 0, false
	}
	if g.Inline == nil {
		if g.Inline = n.mtt.lookup(g.LKey, g.Addr, g.Len, q.pd, 0); g.Inline == nil {
			return 0, false
		}
	}
	w, at := n.wayOf(q, g.AV)
	if w.where != toWire {
		return 0, false
	}
	u.ways[0] = at
	length := frameLength(w, op, int32(g.Len))
	s.lens[0] = length
	if n.wire.Reserve(s.lens[:1], s.bufs[:1]) == 0 {
		n.full(q, 0)
		return 0, true
	}
	n.fillGrams(q, u.sends[:1], op)
	n.commit(1, 1, uint64(length))
	q.sq.AdvanceGrams(1)
	if len(n.active) == 1 && !q.sq.More() {
		n.flushWire() // nothing can go with it, so it does not wait for the rest of the Step
	}
	if g.Signaled {
		n.completeSend(q, n.touch(q.scq), op, g.Index)
	}
	return 1, true
}

// deliverGram is deliverGrams for one frame of the flow, whose queue pair takes it. It returns 1 or 0.
func (n *NIC) deliverGram(e *flow, f *wire.Frame) int {
	q, b := e.q, f.Data
	g, ok := q.rq.First()
	if !ok || g.Len < e.need || q.rcq.dev.Room(1) == 0 {
		return 0
	}
	rest := b[e.n:e.end]
	crc := e.crc ^ proto.ICRCOfPSN(binary.BigEndian.Uint32(rest))
	if proto.ICRCRest(crc, rest[behindBTH:]) != proto.LoadICRC(b[e.end:]) {
		return 0
	}
	p := n.mtt.lookup(g.LKey, g.Addr, e.need, q.pd, engine.LocalWrite)
	if p == nil {
		return 0
	}
	*(*[grhArea]byte)(p) = e.grh
	copyFrame(p[grhArea:], b[e.at:e.at+len(p)-grhArea])
	done := ring.DoneGram{Time: n.arrival(f), Bytes: e.need, Source: e.from, Counter: q.rq.Take(1), HasImm: e.imm, Solicited: e.se}
	if e.imm {
		done.Imm = binary.BigEndian.Uint32(b[e.at-proto.ImmDtBytes:])
	}
	n.touch(q.rcq).PutGram(q.uidx, q.qpn, &done)
	n.counters.RxFrames++
	n.counters.RxBytes += uint64(len(b))
	return 1
}
