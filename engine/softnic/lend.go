package softnic

import (
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// Of a wire that lends memory (wire.Lender) pools are made there as long as it has some. A frame that lies in it is
// sent from where it is. Its WQE is then done when the wire has returned the frame, not when it has taken it:
//
//	WQEs of a run ─▶ wire.Pass ─▶ lent: a queue of runs ─▶ wire.Returned ─▶ CQEs
//
// Completions are in order, so whatever is sent behind such a run by the same queue pair waits with it: another run in
// the same queue, all else in the send queue. A change of state waits for the frames that are under way.

// maxLentRuns bounds the runs that wait. Each frame that is passed is in one, and each wire has room for fewer.
const maxLentRuns = 1 << 12

// lentRun is a run of sends that are done when the wire has returned so many frames.
type lentRun struct {
	q        *qp
	done     uint64 // by the count of wire.Returned
	signaled uint64
	first    uint16
	count    uint16
}

// loans is what a NIC keeps of what it passed.
type loans struct {
	lender     wire.Lender // the wire, if it is one
	runs       []lentRun   // by counter, masked
	head, tail uint64
	passed     uint64 // frames
	ats        [burst]uint64
}

func (l *loans) waiting() bool { return l.head != l.tail }

// borrow makes a region of what the wire lends; nil when it has not so much.
func (n *NIC) borrow(bytes int) *ring.Region {
	var mem []byte
	_ = n.control(func() error { // a closed NIC lends nothing
		mem = n.lent.lender.Lend(bytes)
		return nil
	})
	if mem == nil {
		return nil
	}
	return ring.RegionOf(mem, func() error {
		_ = n.control(func() error { // with the NIC the memory is gone, too
			n.settle(func() bool { return !n.lent.waiting() })
			n.lent.lender.TakeBack(mem)
			return nil
		})
		return nil
	})
}

// passRun passes those frames at the beginning of a run that may be sent from where they are, and returns how many.
func (n *NIC) passRun(q *qp, run []ring.Seg) int {
	l, s := &n.lent, &n.tx
	from := n.mtt.find(run[0].LKey, q.pd, 0)
	if from == nil || !from.lent {
		return 0
	}
	count := 0
	for _, g := range run[:n.checkRun(q, run)] {
		if from.key != g.LKey {
			if from = n.mtt.find(g.LKey, q.pd, 0); !from.lent {
				break
			}
		}
		l.ats[count] = from.at + g.Addr - from.base
		count++
	}
	if count == 0 {
		return 0
	}
	count = l.lender.Pass(l.ats[:count], s.lens[:count])
	bytes := uint64(0)
	for _, length := range s.lens[:count] {
		bytes += uint64(length)
	}
	l.passed += uint64(count)
	n.counters.TxPassed += uint64(count)
	n.counters.TxFrames += uint64(count)
	n.counters.TxBytes += bytes
	n.unflushed = n.unflushed || count > 0
	return count
}

// finishRun completes a run, or has it wait: for its own frames, or for those of a run before it.
func (n *NIC) finishRun(q *qp, first uint16, count int, signaled uint64, passed bool) {
	l := &n.lent
	if !passed && q.lent == 0 {
		n.completeRun(q, first, count, signaled)
		return
	}
	l.runs[l.tail%maxLentRuns] = lentRun{q: q, done: l.passed, signaled: signaled, first: first, count: uint16(count)}
	l.tail++
	q.lent++
}

// comeBack completes the runs whose frames the wire has returned, and gives how many.
func (n *NIC) comeBack() (runs int) {
	l := &n.lent
	for returned := l.lender.Returned(); l.waiting(); runs++ {
		r := &l.runs[l.head%maxLentRuns]
		if r.done > returned {
			break
		}
		r.q.lent--
		n.completeRun(r.q, r.first, int(r.count), r.signaled)
		l.head++
	}
	return runs
}

// settleQP waits until nothing that a queue pair sent is under way.
func (n *NIC) settleQP(q *qp) {
	if q.lent > 0 {
		n.settle(func() bool { return q.lent == 0 })
	}
}

// settle waits until frames that are under way have come back, as a change of state and the end of a loan have to. A wire
// that does not return them within a second is not believed to do so at all: they are completed.
func (n *NIC) settle(done func() bool) {
	n.push(func() bool {
		n.comeBack()
		return done()
	})
	for l := &n.lent; !done(); l.head++ {
		r := &l.runs[l.head%maxLentRuns]
		r.q.lent--
		n.completeRun(r.q, r.first, int(r.count), r.signaled)
	}
}

// sendLent is the end of sendRun for a wire that lends memory.
func (n *NIC) sendLent(q *qp, run []ring.Seg, first uint16, signaled uint64) (sent int, ok bool) {
	if n.lent.tail-n.lent.head == maxLentRuns {
		return 0, true
	}
	sent, ok = n.passRun(q, run), true
	passed := sent > 0
	if !passed {
		sent, ok = n.fillFrames(q, run)
	}
	if sent > 0 {
		q.sq.AdvanceRun(sent)
		n.finishRun(q, first, sent, signaled, passed)
	}
	return sent, ok
}
