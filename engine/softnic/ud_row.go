package softnic

import (
	"math/bits"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// Rows of datagrams are those of a burst that differ in PSN and payload only. What makes one of the row is found out by
// comparing requests, or frames, with the first; then all of them are built, or judged and copied, by one call of package
// proto. A row ends at the first that is different, and all that is not as a row wants it is left to the loops of
// sendGrams and deliverGrams.

// leastGramRow is the shortest row that is not left to the loops.
const leastGramRow = 4

// sendGramRow is sendGrams for a row, with a limit of leastGramRow or more.
func (n *NIC) sendGramRow(q *qp, limit int) (sent int, ok bool) {
	var addrs [burst]uint64
	g, count, signaled := q.sq.FetchGramRow(addrs[:min(limit, burst)], leastGramRow)
	if count == 0 || g.Len > uint32(n.maxDatagram) {
		return 0, false
	}
	mem, base := q.sq.Bytes(), uint64(0)
	if g.Inline == nil {
		from := n.mtt.find(g.LKey, q.pd, 0)
		if from == nil {
			return 0, false
		}
		mem, base = from.mem, from.base
	}
	w, at := n.wayOf(q, g.AV)
	if w.where != toWire || len(mem) < int(g.Len) {
		return 0, false
	}
	var grams [burst]proto.RowGram
	row := grams[:0]
	for _, addr := range addrs[:count] {
		off := addr - base
		if off > uint64(len(mem)-int(g.Len)) {
			break
		}
		row = append(row, proto.RowGram{Data: &mem[off]})
	}
	if len(row) == 0 {
		return 0, false
	}
	length := frameLength(w, ring.OpSend, int32(g.Len))
	room := n.reserveRow(q, row, length)
	if room == 0 {
		return 0, true
	}
	n.rowOf(q, at, &g, length).Seal(row[:room], q.ud.psn)
	q.ud.psn = (q.ud.psn + uint32(room)) & 0xffffff
	n.commitRow(room, length)
	q.sq.AdvanceGrams(room)
	if signaled &= ^uint64(0) >> (ring.MaxRun - room); signaled != 0 {
		for dev := n.touch(q.scq); signaled != 0; signaled &= signaled - 1 {
			n.completeSend(q, dev, ring.OpSend, g.Index+uint16(2*bits.TrailingZeros64(signaled)))
		}
	}
	return room, true
}

// rowOf gives the row of frames of this length to the way at a place.
func (n *NIC) rowOf(q *qp, at uint8, g *ring.Gram, length int32) *proto.Row {
	w, row := &q.ud.ways[at&(waysPerQP-1)], &q.ud.rows[at&(waysPerQP-1)]
	s, pad, key := &w.start, uint8(-g.Len&3), n.qkey(q, g.QKey)
	if !s.fits(length, pad, ring.OpSend, key, g) {
		w.begin(length, pad, ring.OpSend, key, q.qpn, g)
	}
	if !s.row {
		row.Set(s.bytes[:w.n+bthStart+behindBTH], int(g.Len), s.crc, &n.ud.grh)
		s.row = true
	}
	return row
}

// reserveRow asks the wire for room for a row of frames of that length, lists where they begin, and returns for how many
// there is room.
func (n *NIC) reserveRow(q *qp, row []proto.RowGram, length int32) (room int) {
	s := &n.tx
	lens := s.lens[:len(row)]
	for i := range lens {
		lens[i] = length
	}
	if n.spans == nil {
		if room = n.wire.Reserve(lens, s.bufs[:len(row)]); room < len(row) {
			n.full(q, room)
		}
		for i, frame := range s.bufs[:room] {
			row[i].Frame = &frame[:length][0]
		}
		return room
	}
	w := n.spans.Window(length)
	if w == nil {
		n.full(q, 0)
	}
	every := (int(length) + wire.SpanBytes - 1) &^ (wire.SpanBytes - 1)
	for room < len(row) && room*every+int(length) <= len(w) { // what is behind the window's end has one of its own
		row[room].Frame = &w[room*every]
		room++
	}
	return room
}

// commitRow commits frames of that length, for which reserveRow found room.
func (n *NIC) commitRow(count int, length int32) {
	bytes := uint64(count) * uint64(length)
	if n.spans == nil {
		n.commit(count, count, bytes)
		return
	}
	n.spans.Place(n.tx.lens[:count], bytes)
	n.unflushed = true
	n.counters.TxFrames += uint64(count)
	n.counters.TxBytes += bytes
}

// deliverGramRow delivers the first of the frames, as far as they are a row of the flow and good, to receive entries in
// one region and with room, of which there are leastGramRow or more. It returns how many it did.
func (n *NIC) deliverGramRow(e *flow, frames []wire.Frame, entries []ring.Seg) int {
	if e.imm || !e.has(&frames[1]) {
		return 0
	}
	key, need, q := entries[0].LKey, e.need, e.q
	to := n.mtt.find(key, q.pd, engine.LocalWrite)
	if to == nil || len(to.mem) < int(need) {
		return 0
	}
	if !e.set {
		e.row.Set(e.start[:e.at], int(need)-grhArea, e.crc, &e.grh)
		e.set = true
	}
	var grams [burst]proto.RowGram
	used, length, times := 0, e.row.FrameBytes(), int64(0)
	base, mem, frames := to.base, to.mem, frames[:len(entries)]
	for i := range entries {
		g, f := &entries[i], &frames[i]
		off := g.Addr - base
		if g.LKey != key || g.Len < need || off > uint64(len(mem)-int(need)) || f.Flags&^wire.FlagIDUnknown != 0 || len(f.Data) < length {
			break
		}
		grams[i] = proto.RowGram{Frame: &f.Data[0], Data: &mem[off]}
		times |= f.TimeNS
		used++
	}
	timed := times != 0
	if used = e.row.Open(grams[:used]); used == 0 {
		return 0
	}
	done := ring.DoneGram{Bytes: need, Source: e.from, Solicited: e.se, Counter: q.rq.Take(used), Time: uint64(n.time())}
	dev := n.touch(q.rcq)
	if !timed {
		dev.PutGramRow(q.uidx, q.qpn, done, used)
	}
	bytes := uint64(0)
	for i := range frames[:used] {
		f := &frames[i]
		bytes += uint64(len(f.Data))
		if timed {
			done.Time = n.arrival(f)
			dev.PutGramRow(q.uidx, q.qpn, done, 1)
			done.Counter++
		}
	}
	n.counters.RxFrames += uint64(used)
	n.counters.RxBytes += bytes
	return used
}
