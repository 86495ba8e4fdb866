package softnic

import (
	"math/bits"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// Runs are the ways of the commonest bursts. Each does what the general way does, frame for frame, or leaves the
// frame to it:
//
//	sendRun      WQEs that are one pointer       else decode, transmit
//	deliverRun   receive WQEs of one segment     else deliver
//
// Each has two forms. The first goes through the wire's slices; the second, for wires that offer wire.Spans, through
// the wire's memory, and costs about half.

// leastRun is the shortest run of short WQEs, with others behind it, that is sent apart from them.
const leastRun = 8

// sendRun is send for up to limit WQEs that are one pointer each, all of them sound. ok is false, and nothing
// has happened, when the queue does not begin with enough of them. A WQE that fails is left to send, which
// finds out how.
func (n *NIC) sendRun(q *qp, limit int) (sent int, ok bool) {
	s := &n.tx
	limit = min(limit, burst)
	count, first, signaled := q.sq.FetchRun(s.segs[:limit])
	if count == 0 || count < min(limit, leastRun) {
		return 0, false
	}
	if n.lent.lender != nil {
		return n.sendLent(q, s.segs[:count], first, signaled)
	}
	if n.spans != nil {
		sent, ok = n.fillSpans(q, s.segs[:count])
	} else {
		sent, ok = n.fillFrames(q, s.segs[:count])
	}
	if sent == 0 {
		return 0, ok
	}
	q.sq.AdvanceRun(sent)
	n.completeRun(q, first, sent, signaled)
	return sent, true
}

// fillSpans copies the frames of a run into the wire's memory and commits them. It returns how many: those before the
// first that is not sound or longer than frames without a tag may be, or for which the wire has no room. ok is false
// when it is the first that is not sound.
func (n *NIC) fillSpans(q *qp, run []ring.Seg) (count int, ok bool) {
	lens := n.tx.lens[:len(run)]
	for count < len(run) && n.checkRun(q, run[count:count+1]) != 0 {
		w := n.spans.Window(int32(run[count].Len))
		if w == nil {
			n.full(q, count)
			return count, true
		}
		start, bytes := count, uint64(0)
		for count < len(run) {
			from := n.mtt.find(run[count].LKey, q.pd, 0)
			if from == nil {
				break
			}
			row, at, some := gatherRow(w, from, run[count:], lens[count:], n.plainMax)
			if row == 0 {
				break
			}
			count += row
			bytes += some
			w = w[at:]
		}
		n.spans.Place(lens[start:count], bytes)
		n.counters.TxFrames += uint64(count - start)
		n.counters.TxBytes += bytes
	}
	n.unflushed = n.unflushed || count > 0
	return count, count > 0
}

// fillFrames is fillSpans for any wire.
func (n *NIC) fillFrames(q *qp, run []ring.Seg) (count int, ok bool) {
	s := &n.tx
	count = n.checkRun(q, run)
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
	var from *region
	bytes := uint64(0)
	run, bufs := run[:room], s.bufs[:room]
	for i := range run {
		g := &run[i]
		if from == nil || from.key != g.LKey {
			from = n.mtt.find(g.LKey, q.pd, 0)
		}
		copyFrame(bufs[i], from.slice(g.Addr, g.Len))
		bytes += uint64(g.Len)
	}
	n.commit(room, room, bytes)
	return room, true
}

// checkRun looks the keys up, checks the lengths and lists them. It returns how many WQEs are sound before one
// that is not, or that is longer than frames without a tag may be.
func (n *NIC) checkRun(q *qp, run []ring.Seg) int {
	lens := n.tx.lens[:len(run)]
	var from *region
	for i := range run {
		g := &run[i]
		if from == nil || from.key != g.LKey {
			if from = n.mtt.find(g.LKey, q.pd, 0); from == nil {
				return i
			}
		}
		if g.Len < ethernetHeader || g.Len > n.plainMax || from.slice(g.Addr, g.Len) == nil {
			return i
		}
		lens[i] = int32(g.Len)
	}
	return len(run)
}

// completeRun writes the CQEs of those of count WQEs that are signaled, a row of them at a time.
func (n *NIC) completeRun(q *qp, first uint16, count int, signaled uint64) {
	signaled &= ^uint64(0) >> (ring.MaxRun - count)
	if signaled == 0 {
		return
	}
	now := uint64(n.time())
	dev := n.touch(q.scq)
	for signaled != 0 {
		skip := bits.TrailingZeros64(signaled)
		row := bits.TrailingZeros64(^(signaled >> skip))
		room := 0
		if !q.scq.broken {
			room = dev.Room(row)
		}
		dev.PutSends(q.uidx, q.qpn, ring.OpSend, first+uint16(skip), room, now)
		for range row - room {
			n.overrun(q.scq)
		}
		if skip+row >= ring.MaxRun {
			return
		}
		signaled = signaled >> (skip + row) << (skip + row)
	}
}

// deliverSpans takes up to most frames that lie in the wire's memory, for the one queue pair that gets all, and
// returns how many frames are done with and how many there were. The first that is not as deliverRun wants it ends it.
func (n *NIC) deliverSpans(q *qp, most int) (used, got int) {
	r := &n.rx
	mem, frames := n.spans.Arrived(min(most, burst))
	if len(frames) == 0 || q.rcq.broken {
		return 0, len(frames)
	}
	got = len(frames)
	if used = n.deliverRows(q, mem, frames); used != 0 {
		return used, got
	}
	entries := r.entries[:q.rq.Run(r.entries[:len(frames)])]
	entries = entries[:q.rcq.dev.Room(len(entries))]
	frames, lens := frames[:len(entries)], r.lens[:len(entries)]
	bytes := uint64(0)
	for used < len(entries) {
		to := n.mtt.find(entries[used].LKey, q.pd, engine.LocalWrite)
		if to == nil {
			break
		}
		row, some := scatterRow(to, entries[used:], mem, frames[used:], lens[used:])
		if row == 0 {
			break
		}
		used += row
		bytes += some
	}
	if used == 0 {
		return 0, got
	}
	n.received(q, lens[:used], nil, false, bytes)
	return used, got
}

// deliverRows is deliverSpans for receive queues whose entries are one piece, which are read while their frames are
// copied. It leaves to others what is not as it wants it.
func (n *NIC) deliverRows(q *qp, mem []byte, frames []wire.Span) (used int) {
	frames = frames[:q.rcq.dev.Room(len(frames))]
	lens, bytes := n.rx.lens[:len(frames)], uint64(0)
	for used < len(frames) {
		entries := q.rq.Row(used, len(frames)-used)
		if len(entries) == 0 {
			break
		}
		to := n.mtt.find(ring.RowKey(entries), q.pd, engine.LocalWrite)
		if to == nil {
			break
		}
		row, some := scatterEntries(to, entries, mem, frames[used:], lens[used:])
		if row == 0 {
			break
		}
		used += row
		bytes += some
	}
	if used != 0 {
		n.received(q, lens[:used], nil, false, bytes)
	}
	return used
}

// deliverRun is deliver for whole frames, receive WQEs of one segment with room for them, and a CQ with room. The
// first frame that is otherwise ends the run; it returns how many are done with.
func (n *NIC) deliverRun(q *qp, frames []wire.Frame) int {
	r := &n.rx
	if q.rq == nil || q.rcq.broken || len(frames) == 0 || len(frames) > burst {
		return 0
	}
	entries := r.entries[:q.rq.Run(r.entries[:len(frames)])]
	entries = entries[:q.rcq.dev.Room(len(entries))]
	frames, lens := frames[:len(entries)], r.lens[:len(entries)]
	bytes := uint64(0)
	var to *region
	used, timed := 0, false
	for i := range entries {
		g, f := &entries[i], &frames[i]
		data := f.Data
		if len(data) < ethernetHeader || len(data) > int(g.Len) || f.Flags&wire.FlagTruncated != 0 {
			break
		}
		if to == nil || to.key != g.LKey {
			if to = n.mtt.find(g.LKey, q.pd, engine.LocalWrite); to == nil {
				break
			}
		}
		p := to.slice(g.Addr, uint32(len(data)))
		if p == nil {
			break
		}
		copyFrame(p, data)
		lens[i] = int32(len(data))
		bytes += uint64(len(data))
		timed = timed || f.TimeNS != 0
		used++
	}
	if used != 0 {
		n.received(q, lens[:used], frames, timed, bytes)
	}
	return used
}

// received takes the receive WQEs of a run and writes their CQEs, with this Step's time or, if there are such, the
// frames' own.
func (n *NIC) received(q *qp, lens []int32, frames []wire.Frame, timed bool, bytes uint64) {
	first := uint16(q.rq.CI())
	q.rq.Take(len(lens))
	dev, now := n.touch(q.rcq), n.time()
	n.counters.RxFrames += uint64(len(lens))
	n.counters.RxBytes += bytes
	if !timed {
		dev.PutRecvs(q.uidx, q.qpn, first, lens, uint64(now))
		return
	}
	for i := range lens {
		dev.PutRecvs(q.uidx, q.qpn, first+uint16(i), lens[i:i+1], n.arrival(&frames[i]))
	}
}
