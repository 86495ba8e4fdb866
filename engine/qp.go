package engine

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// QPConfig asks for a queue pair. Zero limits become 1, or none for inline data
// and TSO headers.
type QPConfig struct {
	Type           QPType
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // where receive requests come from; the receive limits are then ignored
	MaxSendWR      int
	MaxRecvWR      int
	MaxSendSGE     int
	MaxRecvSGE     int
	MaxInline      int  // bytes that a request may carry inline
	MaxTSOHeader   int  // 0: no segmentation
	RxCsum         bool // check the checksums of what is received: WCCsumOK (H-07); costs time
	SigAll         bool
	BlockSelfLB    bool // UD: no copy of what it sends to a group it is in (BLOCK_SELF_MCAST_LB)
}

// QPCap is what a queue pair got: nothing is less than asked.
type QPCap struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int
	MaxTSOHeader           int
	MaxBlocks              int // of the largest WQE
	SendSlots              int // of the send ring, 64 bytes each
}

// QP is a queue pair. The owner of its CQs owns it.
//
//	Post      what verbs calls ibv_post_send: those before the bad one are posted
//	PostAll   all or nothing, as ibv_wr_start .. ibv_wr_complete
//	Reserve, Commit, Publish, Abort   the same for hand-written WQEs
//	PostRecv  ibv_post_recv
type QP struct {
	sq     *ring.SQ
	rq     *ring.RQ // nil with an SRQ
	srq    *SRQ
	ids    []uint64 // of requests, by slot; an image's are in the ring half
	idMask uint32
	enc    encoder
	dev    *Device
	pd     *PD
	scq    *CQ
	rcq    *CQ
	qpn    uint32
	maxWR  int
	image  *Image
	state  QPState // as the engine knows it; live knows better
	live   *atomic.Uint32
	closed atomic.Bool

	inBatch  bool
	batchErr *PostError
	mark     ring.SQMark

	postErr PostError // handed out again and again
	recvErr PostError
	segs    [ring.MaxRQStride / ring.DSBytes]ring.Seg

	typ   QPType
	cap   QPCap
	attr  QPAttr
	index uint32 // user index

	groups []GID       // multicast, under the device's lock
	tables int         // of receive hashes that it stands in, how often; under the device's lock
	hashed atomic.Bool // it has stood in one

	_ [128]byte // beside it stand queue pairs of other owners
}

// NewQP makes a queue pair in RESET.
func (p *PD) NewQP(c QPConfig) (*QP, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	d := p.dev
	if err := c.check(d); err != nil {
		return nil, fmt.Errorf("engine: %s: new QP: %w", d.caps.Name, err)
	}
	spec, caps, err := c.geometry(&d.caps)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: new QP: %w: %w", d.caps.Name, err, syscall.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || p.closed || c.SendCQ.closed.Load() || c.RecvCQ.closed.Load() {
		return nil, closed("protection domain or CQ")
	}
	if d.live >= d.caps.MaxQP {
		return nil, fmt.Errorf("engine: %s: all %d queue pairs are in use: %w", d.caps.Name, d.caps.MaxQP, syscall.ENOMEM)
	}
	spec.PD, spec.SendCQN, spec.RecvCQN = p.num, c.SendCQ.cqn, c.RecvCQ.cqn
	spec.UserIndex = d.freeIndex()
	if c.SRQ != nil {
		if c.SRQ.closed.Load() {
			return nil, closed("shared receive queue")
		}
		spec.SRQN = c.SRQ.srqn
	}
	m, err := d.b.NewQP(spec)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: new QP: %w", d.caps.Name, err)
	}
	q := &QP{
		dev: d, pd: p, scq: c.SendCQ, rcq: c.RecvCQ, srq: c.SRQ, qpn: m.QPN, live: m.State,
		typ: c.Type, cap: caps, index: spec.UserIndex, maxWR: caps.MaxSendWR,
	}
	if err := q.takeRings(&m, &spec); err != nil {
		_ = d.b.DestroyQP(m.QPN) // the first error says what happened
		return nil, fmt.Errorf("engine: %s: new QP: %w", d.caps.Name, err)
	}
	q.enc.init(q, c.SigAll)
	d.setQP(q.index, q)
	d.live++
	p.users++
	c.SendCQ.users++
	c.RecvCQ.users++
	if c.SRQ != nil {
		c.SRQ.users++
	}
	d.hub.mu.Lock()
	d.hub.qps[q.qpn] = q
	d.hub.mu.Unlock()
	return q, nil
}

func (c *QPConfig) check(d *Device) error {
	over := func(name string, v, most int) error {
		if v < 0 || v > most {
			return fmt.Errorf("%s %d, want 0..%d: %w", name, v, most, syscall.EINVAL)
		}
		return nil
	}
	if c.Type != RawPacket && c.Type != UD {
		return fmt.Errorf("%v: %w", c.Type, syscall.EINVAL)
	}
	if c.SendCQ.usable() != nil || c.RecvCQ.usable() != nil {
		return fmt.Errorf("a CQ is missing or closed: %w", syscall.EINVAL)
	}
	if c.SendCQ.dev != d || c.RecvCQ.dev != d {
		return fmt.Errorf("a CQ is of another device: %w", syscall.EINVAL)
	}
	if c.SRQ != nil {
		if err := c.SRQ.usable(); err != nil {
			return err
		}
		if c.SRQ.dev != d {
			return fmt.Errorf("the SRQ is of another device: %w", syscall.EINVAL)
		}
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0 // of this copy
	}
	l := &d.caps
	for _, err := range []error{
		over("max_send_wr", c.MaxSendWR, l.MaxSendWR), over("max_recv_wr", c.MaxRecvWR, l.MaxRecvWR),
		over("max_send_sge", c.MaxSendSGE, l.MaxSendSGE), over("max_recv_sge", c.MaxRecvSGE, l.MaxRecvSGE),
		over("max_inline", c.MaxInline, l.MaxInline), over("max_tso_header", c.MaxTSOHeader, l.MaxTSOHeader),
	} {
		if err != nil {
			return err
		}
	}
	if c.BlockSelfLB && c.Type != UD {
		return fmt.Errorf("a %v queue pair has no groups whose loopback could be blocked: %w", c.Type, syscall.EINVAL)
	}
	if c.MaxTSOHeader > 0 && c.Type != RawPacket {
		return fmt.Errorf("TSO on a %v queue pair: %w", c.Type, syscall.EINVAL)
	}
	if c.MaxTSOHeader > 0 && !l.Has(OffloadRawTSO) {
		return fmt.Errorf("the device does not segment: %w", syscall.EOPNOTSUPP)
	}
	if c.RxCsum && c.Type != RawPacket {
		return fmt.Errorf("receive checksums on a %v queue pair: %w", c.Type, syscall.EINVAL)
	}
	if c.RxCsum && !l.Has(OffloadRxCsum) {
		return fmt.Errorf("the device does not check received checksums: %w", syscall.EOPNOTSUPP)
	}
	return nil
}

// geometry sizes the rings. The inline room that is left over in the largest
// WQE is granted.
func (c *QPConfig) geometry(l *Caps) (s QPSpec, g QPCap, err error) {
	fixed := 4 // control and datagram segment
	spared := 0
	if c.Type == RawPacket {
		fixed = 1 + ring.EthDS(l.MinInline)
		spared = l.MinInline // stands in the Ethernet segment
	}
	g.MaxSendSGE = max(c.MaxSendSGE, 1)
	ds := fixed + max(g.MaxSendSGE, ring.InlineDS(max(c.MaxInline-spared, 0)))
	if c.MaxTSOHeader > 0 {
		ds = max(ds, 1+ring.EthDS(c.MaxTSOHeader)+g.MaxSendSGE)
	}
	if ds > ring.MaxDS {
		return s, g, fmt.Errorf("a WQE of %d pieces, %d bytes inline and a TSO header of %d does not fit %d units",
			g.MaxSendSGE, c.MaxInline, c.MaxTSOHeader, ring.MaxDS)
	}
	g.MaxBlocks = ring.BlocksFor(ds)
	const dsPerBlock = ring.BlockBytes / ring.DSBytes
	room := (min(g.MaxBlocks*dsPerBlock, ring.MaxDS) - fixed) * ring.DSBytes
	g.MaxInline = max(min(room-4+spared, l.MaxInline), c.MaxInline)
	g.MaxTSOHeader = c.MaxTSOHeader
	g.SendSlots, g.MaxSendWR, err = ring.SQSlots(max(c.MaxSendWR, 1), g.MaxBlocks)
	if err != nil {
		return s, g, err
	}
	s.SQSlots = g.SendSlots
	if c.SRQ == nil {
		s.RQEntries, s.RQStride, g.MaxRecvWR, g.MaxRecvSGE, err = ring.RQGeometry(max(c.MaxRecvWR, 1), max(c.MaxRecvSGE, 1))
	}
	s.Type, s.MaxTSOHeader, s.SigAll, s.BlockSelfLB = c.Type, c.MaxTSOHeader, c.SigAll, c.BlockSelfLB
	s.RxCsum = c.RxCsum
	return s, g, err
}

func (q *QP) takeRings(m *QPMem, s *QPSpec) (err error) {
	if len(m.SQ) != s.SQSlots {
		return fmt.Errorf("the backend gave %d send slots, not %d", len(m.SQ), s.SQSlots)
	}
	q.sq, err = ring.NewSQ(m.SQ, m.SQRec, ring.SQConfig{QPN: m.QPN, MaxBB: q.cap.MaxBlocks, MaxWR: q.cap.MaxSendWR})
	if err != nil {
		return err
	}
	if q.srq == nil {
		q.rq, err = ring.NewRQ(m.RQ, m.RQRec, ring.RQConfig{Stride: s.RQStride, Entries: s.RQEntries})
	}
	q.ids = make([]uint64, s.SQSlots)
	q.idMask = uint32(s.SQSlots - 1)
	return err
}

// freeIndex gives an unused user index. The device is locked.
func (d *Device) freeIndex() uint32 {
	qps := *d.qps.Load()
	for i := firstUserIndex; i < len(qps); i++ {
		if qps[i] == nil {
			return uint32(i)
		}
	}
	return uint32(len(qps))
}

// setQP changes the table that Poll reads, in a copy. The device is locked.
func (d *Device) setQP(index uint32, q *QP) {
	old := *d.qps.Load()
	qps := make([]*QP, max(len(old), int(index)+1))
	copy(qps, old)
	qps[index] = q
	d.qps.Store(&qps)
}

func (q *QP) usable() error {
	if q.open() {
		return nil
	}
	if q == nil || q.sq == nil {
		return closed("queue pair")
	}
	return fmt.Errorf("%w: QP 0x%x: %w", ErrClosed, q.qpn, syscall.EINVAL)
}

// open is usable for those who do not ask why not.
func (q *QP) open() bool { return q != nil && q.sq != nil && !q.closed.Load() }

// QPN gives the queue pair's number.
func (q *QP) QPN() uint32 {
	if q == nil {
		return 0
	}
	return q.qpn
}

// Type gives the queue pair's type.
func (q *QP) Type() QPType {
	if q == nil {
		return 0
	}
	return q.typ
}

// Cap gives what the queue pair got.
func (q *QP) Cap() QPCap {
	if q == nil {
		return QPCap{}
	}
	return q.cap
}

// PD gives the protection domain.
func (q *QP) PD() *PD {
	if q == nil {
		return nil
	}
	return q.pd
}

// State gives the present state, which an error may have moved. Of a closed
// queue pair it is RESET.
func (q *QP) State() QPState {
	if !q.open() {
		return StateReset
	}
	if q.live != nil {
		return QPState(q.live.Load())
	}
	return q.state
}

// Attr gives the attributes as they were set, with the present state as
// CurState.
func (q *QP) Attr() QPAttr {
	if q.usable() != nil {
		return QPAttr{}
	}
	a := q.attr
	a.CurState = q.State()
	return a
}

// Outstanding gives the requests posted and not retired by a completion. Those
// of an SRQ are the SRQ's.
func (q *QP) Outstanding() (sends, recvs int) {
	if q.usable() != nil {
		return 0, 0
	}
	if q.rq != nil {
		recvs = q.rq.Outstanding()
	}
	return q.sq.Outstanding(), recvs
}

// Modify moves the queue pair to a state and sets the attributes of the mask,
// whose bit for the state is implied. The present state is allowed where the
// table of transitions has it. On an error nothing has changed.
func (q *QP) Modify(to QPState, a QPAttr, mask AttrMask) error {
	if err := q.usable(); err != nil {
		return err
	}
	if !q.enterBoth() {
		return fmt.Errorf("engine: QP 0x%x: %w", q.qpn, ErrOwner)
	}
	defer q.leaveBoth()
	from := q.State()
	if err := q.dev.caps.checkModify(q.typ, from, to, &a, mask); err != nil {
		return fmt.Errorf("engine: QP 0x%x: %w", q.qpn, err)
	}
	if to == StateErr && q.rq != nil {
		q.rq.Publish() // what was posted before RTR is flushed too
	}
	next := q.merge(&a, mask)
	if err := q.dev.b.SetState(q.qpn, to, next); err != nil {
		return fmt.Errorf("engine: QP 0x%x: %v to %v: %w", q.qpn, from, to, err)
	}
	q.attr = next
	q.state = to
	q.enc.open = to >= StateRTS
	switch {
	case to == StateReset:
		q.reset()
	case to == StateRTR && q.rq != nil:
		q.rq.Publish() // B-27: withheld until now
	}
	return nil
}

// MoveTo brings the queue pair up from RESET step by step to INIT, RTR or RTS,
// with all attributes of a.
func (q *QP) MoveTo(to QPState, a QPAttr) error {
	if err := q.usable(); err != nil {
		return err
	}
	if a.Port == 0 {
		a.Port = 1
	}
	steps := []struct {
		to  QPState
		ud  AttrMask
		raw AttrMask
	}{
		{StateInit, AttrPKeyIndex | AttrPort | AttrQKey, AttrPort},
		{StateRTR, 0, 0},
		{StateRTS, AttrSQPSN, 0},
	}
	if to < StateInit || to > StateRTS {
		return fmt.Errorf("engine: QP 0x%x: cannot be brought up to %v: %w", q.qpn, to, syscall.EINVAL)
	}
	for _, s := range steps {
		if s.to > to {
			break
		}
		mask := s.raw
		if q.typ == UD {
			mask = s.ud
		}
		if err := q.Modify(s.to, a, mask); err != nil {
			return err
		}
	}
	return nil
}

func (q *QP) merge(a *QPAttr, mask AttrMask) QPAttr {
	m := q.attr
	if mask&AttrPort != 0 {
		m.Port = a.Port
	}
	if mask&AttrPKeyIndex != 0 {
		m.PKeyIndex = a.PKeyIndex
	}
	if mask&AttrQKey != 0 {
		m.QKey = a.QKey
	}
	if mask&AttrSQPSN != 0 {
		m.SQPSN = a.SQPSN
	}
	if mask&AttrRateLimit != 0 {
		m.Rate = a.Rate
	}
	m.SQDNotify = mask&AttrSQDNotify != 0 && a.SQDNotify
	return m
}

// reset empties the queues after the device has done so (B-12).
func (q *QP) reset() {
	q.purge()
	q.sq.Reset()
	if q.rq != nil {
		q.rq.Reset()
	}
	q.attr = QPAttr{}
	q.inBatch, q.batchErr = false, nil
	if q.image != nil {
		q.image.restart()
	}
}

// purge takes this queue pair's completions out of its CQs. What they took from
// an SRQ goes back there.
func (q *QP) purge() {
	mine := func(e *ring.CQE) bool {
		if e.UserIndex() != q.index {
			return false
		}
		if op := e.Op(); q.srq != nil && op != ring.CQEReq && op != ring.CQEReqErr {
			q.srq.ring.Take(e.Counter())
		}
		return true
	}
	q.scq.ring.Purge(mine)
	if q.rcq != q.scq {
		q.rcq.ring.Purge(mine)
	}
}

// sendFailed and recvFailed follow the device's state by its completions, for
// backends that do not tell it.
func (q *QP) sendFailed(s Status) {
	switch {
	case q.state != StateRTS && q.state != StateSQD:
	case q.typ != UD || q.dev.caps.Profile == ProfileRXE:
		q.state = StateErr
	case s != StatusWRFlush:
		q.state = StateSQE // D9
	}
}

func (q *QP) recvFailed() {
	if q.state >= StateInit {
		q.state = StateErr
	}
}

func (q *QP) enterBoth() bool {
	if !q.scq.owner.enter() {
		return false
	}
	if q.rcq != q.scq && !q.rcq.owner.enter() {
		q.scq.owner.leave()
		return false
	}
	return true
}

func (q *QP) leaveBoth() {
	if q.rcq != q.scq {
		q.rcq.owner.leave()
	}
	q.scq.owner.leave()
}

// Close destroys the queue pair in any state. Its completions that were not
// polled are gone, its flow rules too. A member of a multicast group is
// EBUSY. A second Close does nothing.
func (q *QP) Close() error {
	if q.usable() != nil {
		return nil
	}
	if !q.enterBoth() {
		return fmt.Errorf("engine: QP 0x%x: %w", q.qpn, ErrOwner)
	}
	defer q.leaveBoth()
	d := q.dev
	d.mu.Lock()
	if n := len(q.groups); n > 0 && !d.closed.Load() && !q.closed.Load() {
		d.mu.Unlock()
		return fmt.Errorf("engine: QP 0x%x is a member of %d multicast groups: %w", q.qpn, n, syscall.EBUSY)
	}
	if q.tables > 0 && !d.closed.Load() && !q.closed.Load() {
		d.mu.Unlock()
		return fmt.Errorf("engine: QP 0x%x is in the table of a receive hash: %w", q.qpn, syscall.EBUSY)
	}
	if !q.closed.CompareAndSwap(false, true) || d.closed.Load() {
		d.mu.Unlock()
		return nil
	}
	err := d.b.DestroyQP(q.qpn)
	q.purge()
	d.setQP(q.index, nil)
	d.live--
	q.pd.users--
	q.scq.users--
	q.rcq.users--
	if q.srq != nil {
		q.srq.users--
	}
	d.hub.mu.Lock()
	delete(d.hub.qps, q.qpn)
	d.hub.forget(func(e AsyncEvent) bool { return e.QP == q })
	d.hub.mu.Unlock()
	d.mu.Unlock()
	if q.image != nil {
		if e := q.image.release(); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("engine: QP 0x%x: destroy: %w", q.qpn, err)
	}
	return nil
}
