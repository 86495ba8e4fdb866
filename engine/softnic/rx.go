package softnic

import (
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// receiver is the receive side's workspace.
type receiver struct {
	frames  [burst]wire.Frame
	entries [burst]ring.Seg
	lens    [burst]int32
	segs    [ring.MaxRQStride / ring.DSBytes]ring.Seg
	pieces  [ring.MaxRQStride / ring.DSBytes][]byte
	targets [maxTargets]*qp
	stalled bool // the wire's first frame waits for a receive WQE
}

// receive takes up to budget frames from the wire. It stops at a frame that must wait for a receive WQE:
// that one stays in the wire, and with it all behind it.
func (n *NIC) receive(budget int) int {
	r := &n.rx
	r.stalled = false
	total := 0
	for total < budget {
		want := min(budget-total, burst)
		if q := n.only; q != nil && n.spans != nil && n.uds == 0 && !q.rxCsum && q.rq != nil && q.receives() {
			took, got := n.deliverSpans(q, want)
			n.wire.Release(took)
			if total += took; took != 0 && took == got {
				continue
			}
			want -= took
		}
		got := n.wire.Next(r.frames[:want])
		if got == 0 {
			break
		}
		var took int
		if n.uds == 0 {
			took = n.deliverRaw(r.frames[:got])
		} else {
			took = n.deliverMixed(r.frames[:got])
		}
		n.wire.Release(took)
		total += took
		if took < got {
			r.stalled = true
			break
		}
		if got < want {
			break
		}
	}
	return total
}

// deliverRaw is the way of frames to raw queue pairs. It returns how many frames are done with.
func (n *NIC) deliverRaw(frames []wire.Frame) int {
	if q := n.only; q != nil && q.receives() {
		return n.deliverOnly(q, frames)
	}
	return n.deliverSteered(frames)
}

// deliverOnly is the way of a burst when one all rule is the only rule: nothing looks at the frames. It
// returns how many frames are done with.
func (n *NIC) deliverOnly(q *qp, frames []wire.Frame) int {
	i := 0
	if !q.rxCsum {
		i = n.deliverRun(q, frames)
	}
	for ; i < len(frames); i++ {
		f := &frames[i]
		if n.unfit(f) {
			continue
		}
		if !n.deliver(q, f, rssHash{}) {
			return i
		}
		if q.state == engine.StateErr {
			return i + 1 // the rest finds another verdict
		}
	}
	return len(frames)
}

func (n *NIC) deliverSteered(frames []wire.Frame) int {
	r := &n.rx
	for i := range frames {
		f := &frames[i]
		if n.unfit(f) {
			continue
		}
		count := n.steering.targets(f.Data, &r.targets)
		if count == 0 {
			n.drop(engine.DropNoRule, len(f.Data))
			continue
		}
		if !n.cfg.Drop && !allHaveWQE(r.targets[:count]) {
			return i // before any copy is delivered: the frame is looked at again as a whole
		}
		n.counters.RxCopies += uint64(count - 1)
		for k, q := range r.targets[:count] {
			n.deliver(q, f, n.steering.hashes[k])
		}
	}
	return len(frames)
}

func allHaveWQE(targets []*qp) bool {
	for _, q := range targets {
		if q.receives() && q.waitingRecv() < wanted(targets, q) {
			return false
		}
	}
	return true
}

// wanted is how many receive WQEs the targets take from the queue that q takes its own from.
func wanted(targets []*qp, q *qp) int {
	if q.srq == nil {
		return 1
	}
	count := 0
	for _, o := range targets {
		if o.srq == q.srq && o.receives() {
			count++
		}
	}
	return count
}

// deliver scatters one frame into the QP's next receive WQE and completes it. It returns false, having done
// nothing, when the frame must wait for a WQE. Everything is checked before the first byte is written.
func (n *NIC) deliver(q *qp, f *wire.Frame, hash rssHash) bool {
	if !q.receives() {
		n.drop(engine.DropState, len(f.Data))
		return true
	}
	r := &n.rx
	count, ok := q.peekRecv(r.segs[:])
	if !ok {
		if n.cfg.Drop {
			n.drop(engine.DropNoWQE, len(f.Data))
		}
		return n.cfg.Drop
	}
	length := uint32(len(f.Data))
	if g := &r.segs[0]; count == 1 && g.Len >= length {
		p := n.mtt.lookup(g.LKey, g.Addr, length, q.recvPD(), engine.LocalWrite)
		if p == nil {
			n.receiveError(q, f)
			return true
		}
		copyFrame(p, f.Data)
	} else if !n.scatter(q, f, count) {
		return true
	}
	n.counters.RxFrames++
	n.counters.RxBytes += uint64(length)
	n.completeReceive(q, f, hash)
	return true
}

// scatter spreads the frame over several segments. It returns false when it dealt with the frame otherwise.
func (n *NIC) scatter(q *qp, f *wire.Frame, count int) bool {
	used := n.segments(q, f, count, uint64(len(f.Data)))
	rest := f.Data
	for _, p := range n.rx.pieces[:used] {
		copyFrame(p, rest[:len(p)])
		rest = rest[len(p):]
	}
	return used != 0
}

// segments fills the workspace's pieces with the memory of the first left bytes of the WQE's segments. It returns 0
// when it dealt with the frame otherwise: too long for the WQE, which is kept (J-21), or a segment that may not be
// written.
func (n *NIC) segments(q *qp, f *wire.Frame, count int, left uint64) (used int) {
	r := &n.rx
	if room(r.segs[:count]) < left {
		n.drop(engine.DropOversize, len(f.Data))
		return 0
	}
	for i := 0; left > 0; i++ {
		g := &r.segs[i]
		part := min(uint64(g.Len), left)
		if part == 0 {
			continue
		}
		p := n.mtt.lookup(g.LKey, g.Addr, uint32(part), q.recvPD(), engine.LocalWrite)
		if p == nil {
			n.receiveError(q, f)
			return 0
		}
		r.pieces[used] = p
		used++
		left -= part
	}
	return used
}

// room is how many bytes the segments hold.
func room(segs []ring.Seg) (bytes uint64) {
	for i := range segs {
		bytes += uint64(segs[i].Len)
	}
	return bytes
}

// receiveError completes the WQE whose memory may not be written and moves the QP to ERR (D-09). The frame
// is lost, and counted.
func (n *NIC) receiveError(q *qp, f *wire.Frame) {
	n.drop(engine.DropProtection, len(f.Data))
	counter := n.takeRecv(q)
	if c := n.nextCQE(q.rcq); c != nil {
		c.PutError(q.uidx, q.qpn, 0, counter, ring.SynLocalProt, 0)
		q.rcq.dev.Seal(sealRecvErr)
	}
	q.move(engine.StateErr)
}

// arrival gives the frame's time: the wire's, or else this Step's.
func (n *NIC) arrival(f *wire.Frame) uint64 {
	if f.TimeNS != 0 {
		return uint64(f.TimeNS)
	}
	return uint64(n.time())
}

// completeReceive consumes the WQE and writes its CQE.
func (n *NIC) completeReceive(q *qp, f *wire.Frame, hash rssHash) {
	counter := n.takeRecv(q)
	c := n.nextCQE(q.rcq)
	if c == nil {
		return
	}
	c.PutRecv(q.uidx, q.qpn, uint32(len(f.Data)), counter, n.arrival(f))
	if q.rxCsum {
		ok, kind := judge(f)
		c.SetHeaders(ok, kind, 0)
	}
	if hash.kind != 0 {
		c.SetRSS(hash.sum, hash.kind)
	}
	q.rcq.dev.Seal(sealRecv)
}

// unfit drops what is no frame: too short, or cut by the wire.
func (n *NIC) unfit(f *wire.Frame) bool {
	if len(f.Data) >= ethernetHeader && f.Flags&wire.FlagTruncated == 0 {
		return false
	}
	if len(f.Data) < ethernetHeader {
		n.drop(engine.DropRunt, len(f.Data))
	} else {
		n.drop(engine.DropTruncated, len(f.Data))
	}
	return true
}

func (n *NIC) drop(why engine.DropReason, bytes int) {
	n.counters.Drops[why]++
	n.counters.DroppedBytes += uint64(bytes)
}
