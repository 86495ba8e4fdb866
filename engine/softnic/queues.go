package softnic

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// qp is a queue pair as the device sees it. No field is shared with the host half; the rings and records are.
type qp struct {
	qpn, pd  uint32
	uidx     uint32
	kind     engine.QPType
	state    engine.QPState
	sq       *ring.DevSQ
	rq       *ring.DevRQ // nil with an SRQ
	srq      *srq        // nil: rq
	nic      *NIC
	scq, rcq *cq
	mem      *ring.Region
	shown    *atomic.Uint32 // the state, for the host half to read
	ud       *udSide        // nil of a raw one
	rss      *rss           // not nil: a receive hash, which has nothing else but its number
	cut      int            // segments of the first WQE that have left already: a TSO whose wire was full
	rxCsum   bool           // what it receives is checked
	rate     *limiter       // nil: none
	lent     int            // runs in NIC.lent
	_        apart
}

// cq is a completion queue as the device sees it.
type cq struct {
	cqn    uint32
	dev    *ring.DevCQ
	mem    *ring.Region
	dirty  bool           // its burst is pending and it stands in NIC.dirty
	broken bool           // it overran (H-11)
	shown  *atomic.Uint32 // broken, for the host half to read
	users  int            // QP halves that complete here
	armed  atomic.Bool    // the owner has rung the completion doorbell since the last event
	fired  uint32         // events
	_      apart
}

// apart keeps objects of several NICs, which several processors write, in cache lines of their own.
type apart [recordSpace]byte

// recordSpace keeps what different goroutines write apart: two cache lines, because of the adjacent-line
// prefetcher.
const recordSpace = 128

// NewCQ makes a completion queue of a power-of-two number of entries.
func (n *NIC) NewCQ(entries int) (m engine.CQMem, err error) {
	err = n.control(func() error {
		if entries < 2 || entries > maxCQEntries || entries&(entries-1) != 0 {
			return fmt.Errorf("softnic: CQ of %d entries: must be a power of two from 2 to %d: %w", entries, maxCQEntries, syscall.EINVAL)
		}
		cqn, slot, ok := nextNumber(n.lastCQ, maxCQ, func(i uint32) bool { return n.cqs[i] == nil })
		if !ok {
			return fmt.Errorf("softnic: all %d completion queues are in use: %w", maxCQ, syscall.ENOMEM)
		}
		mem, err := ring.NewRegion(entries*ring.CQEBytes+recordSpace, ring.RegionOptions{})
		if err != nil {
			return fmt.Errorf("softnic: CQ: %w", err)
		}
		b := mem.Bytes()
		cqes := ring.CQEs(b[:entries*ring.CQEBytes])
		rec, err1 := ring.NewRecord(b[entries*ring.CQEBytes:])
		dev, err2 := ring.NewDevCQ(cqes, rec, cqn)
		if err := errors.Join(err1, err2); err != nil {
			mem.Close()
			return fmt.Errorf("softnic: CQ: %w", err)
		}
		n.lastCQ = cqn
		n.cqs[slot] = &cq{cqn: cqn, dev: dev, mem: mem, shown: new(atomic.Uint32)}
		m = engine.CQMem{CQN: cqn, CQEs: cqes, Rec: rec, Overrun: n.cqs[slot].shown}
		return nil
	})
	return m, err
}

// DestroyCQ frees a completion queue that no QP uses; EBUSY otherwise.
func (n *NIC) DestroyCQ(cqn uint32) error {
	return n.control(func() error {
		c := n.findCQ(cqn)
		if c == nil {
			return fmt.Errorf("softnic: no CQ 0x%x: %w", cqn, syscall.EINVAL)
		}
		if c.users > 0 {
			return fmt.Errorf("softnic: CQ 0x%x is in use: %w", cqn, syscall.EBUSY)
		}
		n.publish() // nothing pending may point into the memory
		n.cqs[cqn%maxCQ] = nil
		return c.mem.Close()
	})
}

// NewQP makes a queue pair in RESET.
func (n *NIC) NewQP(s engine.QPSpec) (m engine.QPMem, err error) {
	err = n.control(func() error {
		scq, rcq := n.findCQ(s.SendCQN), n.findCQ(s.RecvCQN)
		if scq == nil || rcq == nil {
			return fmt.Errorf("softnic: QP: no CQ 0x%x or 0x%x: %w", s.SendCQN, s.RecvCQN, syscall.EINVAL)
		}
		qpn, slot, ok := nextNumber(n.lastQP, maxQP, func(i uint32) bool { return n.qps[i] == nil })
		if !ok {
			return fmt.Errorf("softnic: all %d queue pairs are in use: %w", maxQP, syscall.ENOMEM)
		}
		from := n.findSRQ(s.SRQN)
		if s.SRQN != 0 && from == nil {
			return fmt.Errorf("softnic: QP: no SRQ 0x%x: %w", s.SRQN, syscall.EINVAL)
		}
		q := &qp{nic: n, srq: from, qpn: qpn, pd: s.PD, uidx: s.UserIndex, kind: s.Type, scq: scq, rcq: rcq, shown: new(atomic.Uint32), rxCsum: s.RxCsum}
		if s.Type == engine.UD {
			if err := n.newUD(q, &s); err != nil {
				return err
			}
		}
		if m, err = q.makeRings(&s, n.cfg.MinInline); err != nil {
			return err
		}
		if q.ud != nil {
			n.uds++
		}
		n.lastQP = qpn
		n.qps[slot] = q
		n.active = append(n.active, q)
		scq.users++
		rcq.users++
		if from != nil {
			from.users++
		}
		return nil
	})
	return m, err
}

// makeRings lays out one region: send blocks, receive entries, send record, receive record.
func (q *qp) makeRings(s *engine.QPSpec, minInline int) (m engine.QPMem, err error) {
	if s.SQSlots < 0 || s.SQSlots > ring.MaxSlots || s.RQEntries < 0 || s.RQEntries > ring.MaxSlots || s.RQStride < 0 || s.RQStride > 1024 {
		return m, fmt.Errorf("softnic: QP with %d send slots and %d receive entries of %d bytes: %w", s.SQSlots, s.RQEntries, s.RQStride, syscall.EINVAL)
	}
	sqBytes := s.SQSlots * ring.BlockBytes
	rqBytes := s.RQEntries * s.RQStride
	recs := (sqBytes + rqBytes + recordSpace - 1) &^ (recordSpace - 1)
	mem, err := ring.NewRegion(recs+2*recordSpace, ring.RegionOptions{})
	if err != nil {
		return m, fmt.Errorf("softnic: QP: %w", err)
	}
	b := mem.Bytes()
	m = engine.QPMem{QPN: q.qpn, SQ: ring.BlocksOf(b[:sqBytes]), RQ: b[sqBytes : sqBytes+rqBytes : sqBytes+rqBytes], State: q.shown}
	var errs [4]error
	m.SQRec, errs[0] = ring.NewRecord(b[recs:])
	m.RQRec, errs[1] = ring.NewRecord(b[recs+recordSpace:])
	q.sq, errs[2] = ring.NewDevSQ(m.SQ, m.SQRec, q.qpn)
	if q.srq == nil {
		q.rq, errs[3] = ring.NewDevRQ(m.RQ, m.RQRec, ring.RQConfig{Stride: s.RQStride, Entries: s.RQEntries})
	}
	if err := errors.Join(errs[:]...); err != nil {
		mem.Close()
		return engine.QPMem{}, fmt.Errorf("softnic: QP: %w", err)
	}
	kind := ring.RawPacket
	if s.Type == engine.UD {
		kind = ring.UD
	}
	q.sq.SetLimits(ring.SendLimits{Kind: kind, MinInline: minInline})
	q.mem = mem
	return m, nil
}

// DestroyQP ends a queue pair in any state. Its flow rules go with it (J-20), what it completed is published,
// and nothing of it completes afterwards; the host half takes its CQEs out of the CQs. The memory of
// its rings is gone.
func (n *NIC) DestroyQP(qpn uint32) error {
	return n.control(func() error {
		q := n.findQP(qpn)
		if q == nil {
			return unknownQP(qpn)
		}
		n.settleQP(q)
		n.remove(func(r *rule) bool { return r.q == q })
		left := n.leaveAll(q)
		n.qps[qpn%maxQP] = nil
		n.active = slices.DeleteFunc(n.active, func(o *qp) bool { return o == q })
		n.turn = 0
		if q.ud != nil {
			n.uds--
		}
		q.scq.users--
		q.rcq.users--
		if q.srq != nil {
			q.srq.users--
		}
		return errors.Join(left, q.mem.Close())
	})
}

// Attach gives a QP the frames that match a rule.
func (n *NIC) Attach(qpn uint32, r engine.FlowRule) (id uint64, err error) {
	err = n.control(func() (e error) {
		q := n.findTarget(qpn)
		if q == nil {
			return unknownQP(qpn)
		}
		if q.kind != engine.RawPacket {
			return fmt.Errorf("softnic: QP 0x%x: flow rules are for raw packet queue pairs: %w", qpn, syscall.EOPNOTSUPP)
		}
		id, e = n.attach(q, n.list(r.Kind), rule{priority: int(r.Priority), match: compile(&r.Match)})
		return e
	})
	return id, err
}

// Detach removes a rule.
func (n *NIC) Detach(id uint64) error {
	return n.control(func() error {
		if n.remove(func(r *rule) bool { return r.id == id }) == 0 {
			return fmt.Errorf("softnic: no flow rule %d: %w", id, syscall.EINVAL)
		}
		return nil
	})
}

func (n *NIC) findQP(qpn uint32) *qp {
	if q := n.findTarget(qpn); q != nil && q.rss == nil {
		return q
	}
	return nil
}

// findTarget finds what a flow rule may name: a queue pair or a receive hash.
func (n *NIC) findTarget(qpn uint32) *qp {
	if q := n.qps[qpn%maxQP]; q != nil && q.qpn == qpn {
		return q
	}
	return nil
}

func (n *NIC) findCQ(cqn uint32) *cq {
	if c := n.cqs[cqn%maxCQ]; c != nil && c.cqn == cqn {
		return c
	}
	return nil
}

// nextNumber gives the next 24-bit number behind last whose slot is free, so that a number comes back as late
// as can be. 0 and 1 are special queue pairs, 0xffffff is multicast: none of the lowest 16 or the last is given.
func nextNumber(last, slots uint32, free func(slot uint32) bool) (number, slot uint32, ok bool) {
	for range slots {
		if last++; last >= 0xffffff {
			last = 16
		}
		if slot = last % slots; free(slot) {
			return last, slot, true
		}
	}
	return 0, 0, false
}
