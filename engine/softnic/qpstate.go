package softnic

import (
	"fmt"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// What the device does in each state (semantics B):
//
//	RESET  nothing          INIT  nothing        RTR  receives
//	RTS    receives, sends  SQD   receives       SQE  receives, flushes sends
//	ERR    flushes both
//
// A send error moves a RAW_PACKET QP to ERR and, but for profile rxe, a UD QP to SQE (D9); a receive error
// moves it to ERR. Flushing completes every WQE, signaled or not (B-26), in order, with the flush syndrome;
// padding is stepped over. Each Step goes on flushing what is posted to a QP in ERR or SQE.

// legal[from] is the set of states that a QP may be moved to by its owner.
var legal = [engine.StateErr + 1]uint8{
	engine.StateReset: 1<<engine.StateReset | 1<<engine.StateInit,
	engine.StateInit:  1<<engine.StateReset | 1<<engine.StateErr | 1<<engine.StateInit | 1<<engine.StateRTR,
	engine.StateRTR:   1<<engine.StateReset | 1<<engine.StateErr | 1<<engine.StateRTS,
	engine.StateRTS:   1<<engine.StateReset | 1<<engine.StateErr | 1<<engine.StateRTS | 1<<engine.StateSQD,
	engine.StateSQD:   1<<engine.StateReset | 1<<engine.StateErr | 1<<engine.StateRTS | 1<<engine.StateSQD,
	engine.StateSQE:   1<<engine.StateReset | 1<<engine.StateErr | 1<<engine.StateRTS,
	engine.StateErr:   1<<engine.StateReset | 1<<engine.StateErr,
}

// move sets the state, and shows it to the host half. A QP on an SRQ that comes to ERR takes nothing from it any
// more, and says so (B-28).
func (q *qp) move(to engine.QPState) {
	if to == engine.StateErr && q.state != engine.StateErr && q.srq != nil {
		q.nic.raise(engine.EventQPLastWQEReached, q.qpn)
	}
	q.state = to
	q.shown.Store(uint32(to))
}

// receives reports whether packets are taken in the QP's state.
func (q *qp) receives() bool {
	const takes = 1<<engine.StateRTR | 1<<engine.StateRTS | 1<<engine.StateSQD | 1<<engine.StateSQE
	return takes>>q.state&1 != 0
}

// SetState moves a QP. When it returns, everything that the old state did is published: after RTS to SQD no
// send is in progress but a segmented one that the wire had no room for, which goes on in RTS; after a move to ERR
// all WRs posted before it are flushed, after RESET no CQE of the QP comes any more.
func (n *NIC) SetState(qpn uint32, to engine.QPState, a engine.QPAttr) error {
	return n.control(func() error {
		q := n.findQP(qpn)
		if q == nil {
			return unknownQP(qpn)
		}
		if to > engine.StateErr || legal[q.state]>>to&1 == 0 {
			return fmt.Errorf("softnic: QP 0x%x: no move from %v to %v: %w", qpn, q.state, to, syscall.EINVAL)
		}
		n.settleQP(q)
		switch to {
		case engine.StateReset:
			q.sq.Reset()
			q.cut, q.rate = 0, nil
			if q.rq != nil {
				q.rq.Reset()
			}
		case engine.StateErr:
			q.move(to)
			n.flushSends(q, ring.MaxSlots)
			n.flushReceives(q, ring.MaxSlots)
		case engine.StateRTS:
			if q.state == engine.StateSQE {
				n.flushSends(q, ring.MaxSlots) // posted in SQE, so flushed
			}
			if q.state == engine.StateErr {
				return nil // the CQ has no room for them, and the QP no way out (H-11)
			}
		case engine.StateSQD:
			if q.state == engine.StateRTS && a.SQDNotify {
				n.raise(engine.EventSQDrained, qpn) // no Step is in progress, so no send is (B-15)
			}
		}
		if q.ud != nil {
			q.ud.qkey = a.QKey
			if q.state == engine.StateRTR && to == engine.StateRTS {
				q.ud.psn = a.SQPSN
			}
		}
		if to == engine.StateRTS {
			n.setRate(q, a.Rate)
		}
		q.move(to)
		return nil
	})
}

func unknownQP(qpn uint32) error {
	return fmt.Errorf("softnic: no QP 0x%x: %w", qpn, syscall.EINVAL)
}

// sendError completes the WQE that decode stopped at and changes the QP's state.
func (n *NIC) sendError(q *qp, bad ring.Syndrome) {
	w := &n.tx.wqe
	n.completeSendError(q, w, bad)
	n.counters.TxErrors++
	q.sq.Advance()
	if q.kind == engine.UD && n.cfg.Profile != engine.ProfileRXE {
		if q.state == engine.StateRTS { // its CQ may just have failed, which is ERR
			q.move(engine.StateSQE)
		}
		return
	}
	q.move(engine.StateErr)
}

// flushSends completes up to limit posted send WQEs with the flush syndrome, when all that left before them has completed.
func (n *NIC) flushSends(q *qp, limit int) int {
	if q.lent > 0 {
		return 0
	}
	w := &n.tx.wqe
	for done := 0; ; done++ {
		if done == limit {
			return done
		}
		switch q.sq.Fetch(w) {
		case ring.FetchOK, ring.FetchBad:
			n.completeSendError(q, w, ring.SynFlushed)
			n.counters.TxFlushed++
			q.sq.Advance()
		default:
			return done
		}
	}
}

// flushReceives completes up to limit posted receive WQEs with the flush syndrome.
func (n *NIC) flushReceives(q *qp, limit int) int {
	if q.srq != nil {
		return 0 // what is posted there is for others (B-28)
	}
	for done := 0; ; done++ {
		if done >= limit || q.rq.Available() == 0 {
			return done
		}
		counter := q.rq.Advance()
		n.counters.RxFlushed++
		if c := n.nextCQE(q.rcq); c != nil {
			c.PutError(q.uidx, q.qpn, 0, counter, ring.SynFlushed, 0)
			q.rcq.dev.Seal(sealRecvErr)
		}
	}
}

// What Seal writes for each kind of completion.
const (
	sealReq     = uint8(ring.CQEReq) << 4
	sealReqErr  = uint8(ring.CQEReqErr) << 4
	sealRecv    = uint8(ring.CQERecv) << 4
	sealRecvImm = uint8(ring.CQERecvImm) << 4
	sealRecvErr = uint8(ring.CQERecvErr) << 4
)

func (n *NIC) completeSendError(q *qp, w *ring.SendWQE, s ring.Syndrome) {
	if c := n.nextCQE(q.scq); c != nil {
		c.PutError(q.uidx, q.qpn, w.Opcode, w.Index, s, 0)
		q.scq.dev.Seal(sealReqErr)
	}
}

// touch notes that the CQ's burst is to be published at the end of Step, and gives its device half.
func (n *NIC) touch(c *cq) *ring.DevCQ {
	if !c.dirty {
		c.dirty = true
		n.dirty = append(n.dirty, c)
	}
	return c.dev
}

// nextCQE gives the CQ's next entry to fill, or nil when the CQ has overrun, now or before. The caller seals
// it. Until Step ends, the burst is pending and unseen.
func (n *NIC) nextCQE(c *cq) *ring.CQE {
	if e, ok := n.touch(c).Next(); ok && !c.broken {
		return e
	}
	n.overrun(c)
	return nil
}

// overrun counts a CQE that has no room. The first makes the CQ unusable, and with it every QP that completes
// there (H-11). What the CQ holds stays valid.
func (n *NIC) overrun(c *cq) {
	n.counters.LostCQEs++
	if c.broken {
		return
	}
	c.broken = true
	c.shown.Store(1)
	n.counters.CQOverruns++
	n.raise(engine.EventCQErr, c.cqn)
	for _, q := range n.active {
		if (q.scq == c || q.rcq == c) && q.state != engine.StateReset {
			q.move(engine.StateErr)
		}
	}
}
