package engine

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// CQ is a completion queue. One goroutine owns it and all queue pairs on it.
type CQ struct {
	ring    *ring.CQ
	dev     *Device
	owner   owner
	overrun *atomic.Uint32
	cqn     uint32
	users   int // queue pair halves; under the device's lock
	closed  atomic.Bool
	ch      *Channel // nil: none
	armed   uint8    // what for; as unacked, under the channel's lock
	unacked int
	failure error // what Poll says after an overrun
	gone    error // and after Close

	_ [128]byte // beside it stand queues of other owners
}

// pollBudget is the number of packets that an empty Poll lets the device do.
const pollBudget = 64

// NewCQ makes a completion queue for at least that many completions.
func (d *Device) NewCQ(entries int) (*CQ, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	return d.newCQ(nil, entries)
}

// NewCQOn makes a completion queue that can be armed: its events come to the
// channel.
func (d *Device) NewCQOn(ch *Channel, entries int) (*CQ, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if err := ch.usable(); err != nil {
		return nil, err
	}
	if ch.dev != d {
		return nil, fmt.Errorf("engine: %s: new CQ: the completion channel is of another device: %w", d.caps.Name, syscall.EINVAL)
	}
	return d.newCQ(ch, entries)
}

func (d *Device) newCQ(ch *Channel, entries int) (*CQ, error) {
	if entries < 1 || entries > d.caps.MaxCQE {
		return nil, fmt.Errorf("engine: %s: CQ of %d entries, want 1..%d: %w", d.caps.Name, entries, d.caps.MaxCQE, syscall.EINVAL)
	}
	n, err := ring.CQEntries(entries)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: %w: %w", d.caps.Name, err, syscall.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, closed("device " + d.caps.Name)
	}
	if len(d.cqs) >= d.caps.MaxCQ {
		return nil, fmt.Errorf("engine: %s: all %d completion queues are in use: %w", d.caps.Name, d.caps.MaxCQ, syscall.ENOMEM)
	}
	m, err := d.b.NewCQ(n)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: new CQ: %w", d.caps.Name, err)
	}
	r, err := ring.NewCQ(m.CQEs, m.Rec, m.CQN)
	if err != nil {
		_ = d.b.DestroyCQ(m.CQN) // the first error says what happened
		return nil, fmt.Errorf("engine: %s: new CQ: %w", d.caps.Name, err)
	}
	c := &CQ{
		ring: r, dev: d, overrun: m.Overrun, cqn: m.CQN,
		failure: fmt.Errorf("engine: %s: CQ 0x%x: %w", d.caps.Name, m.CQN, ErrOverrun),
		gone:    fmt.Errorf("%w: CQ 0x%x: %w", ErrClosed, m.CQN, syscall.EINVAL),
	}
	if ch != nil && !ch.join(c) {
		_ = d.b.DestroyCQ(m.CQN) // it was closed meanwhile
		return nil, closed("completion channel of " + d.caps.Name)
	}
	d.cqs = append(d.cqs, c)
	d.hub.mu.Lock()
	d.hub.cqs[c.cqn] = c
	d.hub.mu.Unlock()
	return c, nil
}

var errNoCQ = closed("completion queue")

func (c *CQ) usable() error {
	switch {
	case c == nil || c.ring == nil:
		return errNoCQ
	case c.closed.Load() || c.dev.closed.Load():
		return c.gone
	}
	return nil
}

// CQN gives the queue's number.
func (c *CQ) CQN() uint32 {
	if c == nil {
		return 0
	}
	return c.cqn
}

// Entries gives the room, which is at least what was asked for.
func (c *CQ) Entries() int {
	if c.usable() != nil {
		return 0
	}
	return c.ring.Entries() - 1
}

// Poll takes up to len(wc) completions, in the order in which the device wrote
// them, and frees what they retire in the send and receive queues. When there
// is none, it lets the device work a little and looks again. 0 without an error
// means that there is nothing now. After an overrun, when the rest is polled,
// the error wraps ErrOverrun. A completion that names a pad of the send queue,
// or nothing outstanding, is dropped and counted in Counters.StrayCQEs.
func (c *CQ) Poll(wc []Completion) (int, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	if !c.owner.enter() {
		return 0, ErrOwner
	}
	n := 0
	if len(wc) != 0 {
		if e, ok := c.ring.Peek(); ok {
			n = c.drain(e, wc)
		}
		if n == 0 && c.dev.b.Progress(pollBudget) > 0 {
			if e, ok := c.ring.Peek(); ok {
				n = c.drain(e, wc)
			}
		}
		if n == 0 && c.overrun != nil && c.overrun.Load() != 0 {
			c.owner.leave()
			return 0, c.failure
		}
	}
	c.owner.leave()
	return n, nil
}

// drain takes completions from e on, the next.
func (c *CQ) drain(e *ring.CQE, wc []Completion) (n int) {
	qps := *c.dev.qps.Load()
	strays := uint64(0)
	for ok := true; ok && n < len(wc); {
		var q *QP
		if i := e.UserIndex(); uint(i) < uint(len(qps)) {
			q = qps[i]
		}
		more := c.ring.More()
		if q != nil && more { // complete does the same in less time for one
			if did := q.completeRow(c.ring, e.Op(), wc[n:]); did != 0 {
				n += did
				e, ok = c.ring.Peek()
				continue
			}
		}
		if q != nil && q.complete(e, &wc[n]) {
			n++
		} else {
			strays++
		}
		if c.ring.Consume(); !more {
			break
		}
		e, ok = c.ring.Peek()
	}
	c.ring.Update()
	if strays != 0 {
		c.dev.strays.Add(strays)
	}
	return n
}

// completeRow is complete for CQEs of the commonest kinds that stand in a row:
// packets received, and raw ones sent that have a CQE each. It consumes them and
// gives how many they were. All else it leaves to complete.
func (q *QP) completeRow(r *ring.CQ, op ring.CQEOpcode, wc []Completion) (n int) {
	switch {
	case op == ring.CQERecv && q.rq != nil:
		n = q.completeRecvs(r, wc)
	case op == ring.CQEReq && q.typ == RawPacket:
		n = q.completeSends(r, wc)
	}
	r.ConsumeRun(n)
	return n
}

func (q *QP) completeRecvs(r *ring.CQ, wc []Completion) (n int) {
	ids := q.rq.Row(len(wc))
	row, owner := r.Row(len(ids))
	want := ring.MatchWord(ring.CQERecv, 0, q.qpn) | owner
	csum, ud := q.dev.caps.Has(OffloadRxCsum), q.typ == UD
	all := Completion{QPN: q.qpn, Retired: 1, Opcode: WCRecv, Recv: true}
	index := q.index
	wc, ids = wc[:len(row)], ids[:len(row)]
	for i := range row {
		e := &row[i]
		if _, ok := e.Match(want); !ok || e.UserIndex() != index {
			break
		}
		w := &wc[i]
		*w = all
		w.WRID = ids[i]
		w.TimeNS, w.ByteLen = int64(e.Time()), e.ByteLen()
		n++
		if ud {
			w.SrcQP = e.SrcQP()
			if e.GRH() {
				w.Flags = WCGRH
			}
			continue
		}
		if csum && e.CsumOK() { // H-07
			w.Flags = WCCsumOK
		}
		if e.HdrType()&ring.VLANStripped != 0 {
			w.VLAN = e.VLAN()
		}
	}
	q.rq.TakeRow(n)
	if q.hashed.Load() { // partner: NewRSS, before the device can write such a CQE
		for i := range row[:n] {
			wc[i].takeHash(&row[i])
		}
	}
	return n
}

// takeHash takes the receive hash, if a frame came through one.
func (w *Completion) takeHash(e *ring.CQE) {
	kind := e.RSSType()
	if kind == 0 {
		return
	}
	w.RSSHash = e.RSSHash()
	w.Flags |= WCRSSHash
	if kind&ring.RSSL4 != 0 {
		w.Flags |= WCRSSPorts
	}
}

func (q *QP) completeSends(r *ring.CQ, wc []Completion) (n int) {
	pi, id, most := q.sq.Row()
	row, owner := r.Row(min(len(wc), most))
	want := ring.MatchWord(ring.CQEReq, ring.OpSend, q.qpn) | owner
	index, ids, image := q.index, q.ids, q.image != nil
	wc = wc[:len(row)]
	all := Completion{QPN: q.qpn, Retired: 1, Opcode: WCSend}
	for i := range row {
		e := &row[i]
		counter, ok := e.Match(want)
		if !ok || counter != uint16(pi)+uint16(i) || e.UserIndex() != index {
			break
		}
		w := &wc[i]
		*w = all
		if w.WRID = id + uint64(i); !image {
			w.WRID = ids[int(counter)&(len(ids)-1)]
		}
		w.TimeNS = int64(e.Time())
		n++
	}
	q.sq.RetireRow(n)
	return n
}

// complete turns a CQE of this queue pair into a completion; false when it must
// be dropped.
func (q *QP) complete(e *ring.CQE, wc *Completion) bool {
	wc.QPN = q.qpn
	wc.TimeNS = int64(e.Time())
	wc.Status, wc.Syndrome, wc.Vendor = StatusSuccess, 0, 0
	switch op := e.Op(); op {
	case ring.CQEReq:
		return q.completeSend(e, wc)
	case ring.CQERecv, ring.CQERecvImm:
		return q.completeRecv(e, op, wc)
	case ring.CQEReqErr, ring.CQERecvErr:
		return q.completeError(e, op == ring.CQERecvErr, wc)
	}
	return false
}

// retire frees the send request that a CQE names and all before it.
func (q *QP) retire(e *ring.CQE, wc *Completion) bool {
	counter := e.Counter()
	id, n, ok := q.sq.Retire(counter)
	if !ok {
		return false
	}
	if q.image == nil {
		id = q.ids[uint32(counter)&q.idMask]
	}
	wc.WRID, wc.Retired, wc.Recv = id, uint32(n), false
	return true
}

// takeRecv completes the receive request that a CQE names: the oldest of the
// queue pair's own, or any of its SRQ.
func (q *QP) takeRecv(e *ring.CQE) (id uint64, ok bool) {
	if q.srq != nil {
		return q.srq.ring.Take(e.Counter())
	}
	return q.rq.Take()
}

func (q *QP) completeSend(e *ring.CQE, wc *Completion) bool {
	if !q.retire(e, wc) {
		return false
	}
	wc.Opcode = WCSend
	if e.WQEOpcode() == ring.OpTSO {
		wc.Opcode = WCTSO
	}
	wc.ByteLen, wc.Imm, wc.SrcQP, wc.Flags, wc.VLAN, wc.RSSHash = 0, 0, 0, 0, 0, 0
	return true
}

func (q *QP) completeRecv(e *ring.CQE, op ring.CQEOpcode, wc *Completion) bool {
	id, ok := q.takeRecv(e)
	if !ok {
		return false
	}
	wc.WRID, wc.Retired, wc.Recv, wc.Opcode = id, 1, true, WCRecv
	wc.ByteLen = e.ByteLen()
	wc.Imm, wc.SrcQP, wc.VLAN, wc.RSSHash = 0, 0, 0, 0
	flags := WCFlags(0)
	if e.Solicited() {
		flags |= WCSolicited
	}
	if op == ring.CQERecvImm {
		wc.Imm = e.Imm()
		flags |= WCImm
	}
	if q.typ == UD {
		wc.SrcQP = e.SrcQP()
		if e.GRH() {
			flags |= WCGRH
		}
	} else {
		if e.CsumOK() && q.dev.caps.Has(OffloadRxCsum) { // H-07
			flags |= WCCsumOK
		}
		if e.HdrType()&ring.VLANStripped != 0 {
			wc.VLAN = e.VLAN()
		}
	}
	wc.Flags = flags
	if q.typ == RawPacket {
		wc.takeHash(e)
	}
	return true
}

func (q *QP) completeError(e *ring.CQE, recv bool, wc *Completion) bool {
	s := e.Syndrome()
	status := Status(s.Status())
	if recv {
		id, ok := q.takeRecv(e)
		if !ok {
			return false
		}
		wc.WRID, wc.Retired, wc.Recv = id, 1, true
		if q.srq == nil || s != ring.SynRemoteInval { // a datagram too long for an SRQ changes no state (D7)
			q.recvFailed()
		}
	} else {
		if !q.retire(e, wc) {
			return false
		}
		q.sendFailed(status)
	}
	wc.Status, wc.Syndrome, wc.Vendor = status, s, e.Vendor()
	wc.TimeNS, wc.Opcode, wc.Flags = 0, 0, 0
	wc.ByteLen, wc.Imm, wc.SrcQP, wc.VLAN, wc.RSSHash = 0, 0, 0, 0, 0
	return true
}

// Close destroys the queue; EBUSY while a queue pair uses it. It waits
// until the events that a channel gave of it are acknowledged; those not
// taken yet are dropped. A second Close does nothing.
func (c *CQ) Close() error {
	if c.usable() != nil {
		return nil
	}
	if !c.owner.enter() {
		return ErrOwner
	}
	defer c.owner.leave()
	d := c.dev
	if err := c.leave(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil
	}
	for i, o := range d.cqs {
		if o == c {
			d.cqs = append(d.cqs[:i], d.cqs[i+1:]...)
			break
		}
	}
	if err := d.b.DestroyCQ(c.cqn); err != nil {
		return fmt.Errorf("engine: %s: destroy CQ 0x%x: %w", d.caps.Name, c.cqn, err)
	}
	return nil
}

// leave ends what a CQ has to do with others: queue pairs, events, its channel.
func (c *CQ) leave() error {
	d := c.dev
	d.mu.Lock()
	if c.users > 0 && !d.closed.Load() {
		d.mu.Unlock()
		return fmt.Errorf("engine: %s: CQ 0x%x has %d users: %w", d.caps.Name, c.cqn, c.users, syscall.EBUSY)
	}
	c.closed.Store(true) // no queue pair can come
	d.mu.Unlock()
	d.hub.mu.Lock()
	delete(d.hub.cqs, c.cqn)
	d.hub.forget(func(e AsyncEvent) bool { return e.CQ == c })
	d.hub.mu.Unlock()
	if c.ch != nil {
		c.ch.part(c)
	}
	return nil
}
