package softnic

import (
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// maxPieces bounds the pieces of one burst; a WQE has at most MaxDS of them.
const maxPieces = 8 * burst

// sender is the send side's workspace. Its slices are rewritten in every burst and never kept.
type sender struct {
	wqe    ring.SendWQE
	segs   [burst]ring.Seg
	jobs   [burst]job
	pieces [maxPieces][]byte
	lens   [burst]int32
	bufs   [burst][]byte
	cutter cutter
}

// job is one WQE of a burst, decoded and checked.
type job struct {
	pieces   uint16 // how many, in sender.pieces, behind those of the job before
	index    uint16
	opcode   ring.Opcode
	signaled bool
	csum     uint8 // flags of the Ethernet segment
}

// send executes up to limit WQEs of a QP in RTS, in two phases:
//
//	decode, validate, look the keys up, add up the lengths   (nothing has happened yet)
//	wire.Reserve, copy, wire.Commit, CQEs
//
// A WQE that fails ends the burst; those before it go out first. When the wire has less room than asked, the
// queue goes back to the first WQE that found none, and the burst is decoded again in a later Step: its keys
// are checked anew, so that a region deregistered in between is never read (D-13).
func (n *NIC) send(q *qp, limit int) int {
	pending := q.sq.Pending()
	if pending == 0 {
		return 0
	}
	if sent, ok := n.sendRun(q, min(limit, pending)); ok {
		return sent
	}
	if q.lent > 0 {
		return 0 // their completions come first
	}
	s := &n.tx
	first := *q.sq
	jobs, bad := n.decode(q, limit)
	if jobs == 0 && bad == cutNext {
		return n.sendSegments(q, limit)
	}
	room := jobs
	if jobs > 0 {
		if room = n.wire.Reserve(s.lens[:jobs], s.bufs[:jobs]); room < jobs {
			n.rewind(q, &first, room)
			bad = 0
			n.full(q, room)
		}
		n.transmit(q, room)
	}
	if bad != 0 && bad != cutNext {
		n.sendError(q, bad)
		room++
	}
	return room
}

// full notes that the wire has less room than asked. One that has none is pushed, because only Flush tells why;
// what is posted to a NIC that has failed comes back flushed.
func (n *NIC) full(q *qp, room int) {
	n.counters.TxWireFull++
	n.unflushed = true
	if room == 0 && n.Err() != nil {
		q.move(engine.StateErr)
	}
}

// decode fills the workspace with up to limit WQEs and advances behind them. bad is the syndrome of the WQE
// that stopped it, which is then the next of the queue and stands in s.wqe.
func (n *NIC) decode(q *qp, limit int) (jobs int, bad ring.Syndrome) {
	s := &n.tx
	used := 0
	for jobs < limit && used <= maxPieces-ring.MaxDS-1 {
		switch q.sq.Fetch(&s.wqe) {
		case ring.FetchOK:
		case ring.FetchBad:
			return jobs, s.wqe.Syndrome
		default:
			return jobs, 0
		}
		if s.wqe.Opcode == ring.OpTSO {
			return jobs, cutNext
		}
		pieces, length, syndrome := n.gather(q, &s.wqe, used)
		if syndrome != 0 {
			return jobs, syndrome
		}
		used += pieces
		s.lens[jobs] = length
		s.jobs[jobs] = job{pieces: uint16(pieces), index: s.wqe.Index, opcode: s.wqe.Opcode, signaled: s.wqe.Signaled, csum: s.wqe.CsumFlags}
		jobs++
		q.sq.Advance()
	}
	return jobs, 0
}

// gather lists the WQE's bytes as pieces from s.pieces[at] on: inline header, inline data, data segments.
// Nothing is copied yet.
func (n *NIC) gather(q *qp, w *ring.SendWQE, at int) (pieces int, length int32, bad ring.Syndrome) {
	s := &n.tx
	total := uint64(len(w.InlineHdr) + len(w.Inline))
	if len(w.InlineHdr) > 0 {
		s.pieces[at] = w.InlineHdr
		pieces++
	}
	if len(w.Inline) > 0 {
		s.pieces[at+pieces] = w.Inline
		pieces++
	}
	for i := 0; i < w.NSeg; i++ {
		g := &w.Segs[i]
		if g.Len == 0 {
			continue
		}
		p := n.mtt.lookup(g.LKey, g.Addr, g.Len, q.pd, 0)
		if p == nil {
			return 0, 0, ring.SynLocalProt
		}
		s.pieces[at+pieces] = p
		pieces++
		total += uint64(g.Len)
	}
	if total < ethernetHeader || total > uint64(n.info.MaxFrame) {
		return 0, 0, ring.SynLocalLength
	}
	if total > uint64(n.plainMax) && !tagged(s.pieces[at:at+pieces]) {
		return 0, 0, ring.SynLocalLength
	}
	return pieces, int32(total), 0
}

// tagged reports whether the frame that the pieces make has a VLAN tag, for which the last four bytes of
// MaxFrame are. Only frames that long are asked.
func tagged(pieces [][]byte) bool {
	var head [ethernetHeader]byte
	at := 0
	for _, p := range pieces {
		at += copy(head[at:], p)
	}
	etherType := uint16(head[12])<<8 | uint16(head[13])
	return etherType == 0x8100 || etherType == 0x88a8
}

// transmit copies the first count jobs of the burst into the wire and completes the signaled ones: a send CQE
// means that the wire has the frame.
func (n *NIC) transmit(q *qp, count int) {
	if count == 0 {
		return
	}
	s := &n.tx
	at, bytes := 0, uint64(0)
	for i := 0; i < count; i++ {
		buf := s.bufs[i]
		bytes += uint64(len(buf))
		for k := s.jobs[i].pieces; k > 0; k-- {
			copyFrame(buf, s.pieces[at])
			buf = buf[len(s.pieces[at]):]
			at++
		}
		if s.jobs[i].csum != 0 {
			fillChecksums(s.bufs[i], s.jobs[i].csum)
		}
	}
	n.commit(count, count, bytes)
	n.completeSends(q, s.jobs[:count])
}

// commit hands what the last Reserve gave to the wire: buffers that hold frames of so many bytes in all.
func (n *NIC) commit(buffers, frames int, bytes uint64) {
	n.wire.Commit(buffers)
	n.unflushed = true
	n.counters.TxFrames += uint64(frames)
	n.counters.TxBytes += bytes
}

// completeSends writes the CQEs of the signaled jobs.
func (n *NIC) completeSends(q *qp, jobs []job) {
	dev := n.touch(q.scq)
	for i := range jobs {
		if j := &jobs[i]; j.signaled {
			n.completeSend(q, dev, j.opcode, j.index)
		}
	}
}

// completeSend writes the CQE of one send WQE to the device half that touch gave.
func (n *NIC) completeSend(q *qp, dev *ring.DevCQ, op ring.Opcode, index uint16) {
	c, ok := dev.Next()
	if !ok || q.scq.broken {
		n.overrun(q.scq)
		return
	}
	c.PutReq(q.uidx, q.qpn, op, index, uint64(n.time()))
	dev.Seal(sealReq)
}

// rewind puts the queue back to where the burst began and steps over the WQEs that were executed. Only a full
// wire comes here.
func (n *NIC) rewind(q *qp, first *ring.DevSQ, executed int) {
	*q.sq = *first
	for range executed {
		q.sq.Fetch(&n.tx.wqe)
		q.sq.Advance()
	}
}
