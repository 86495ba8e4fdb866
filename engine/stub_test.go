package engine

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bluering/bluering/ring"
)

// stub is a device without a wire: it has the memory of the rings and executes
// them with the device halves when a test, a doorbell or a poll tells it to. It
// looks no key up; what a WQE said is kept for the test to read.
type stub struct {
	caps    Caps
	qps     map[uint32]*stubQP
	cqs     map[uint32]*stubCQ
	nextQPN uint32
	nextCQN uint32
	nextKey uint32
	keys    map[uint32]bool
	hold    bool // doorbells and polls execute nothing
	rings   int
	sent    []stubSend
	quiet   bool // do not keep what was sent
	silent  bool // tell neither states nor overruns
	flows   map[uint64]FlowRule
	fail    error // what the next control call returns
	attrs   []QPAttr
	waits   int
	limits  map[uint32]*atomic.Uint32 // of SRQs
	notify  func(DeviceEvent)
	armed   []uint64 // doorbells of CQs
	gids    []GIDEntry
	mac     [6]byte          // of every next hop
	dests   []Dest           // that Resolve was asked for
	groups  map[GID][]uint32 // queue pairs by group
}

type stubQP struct {
	spec  QPSpec
	mem   *ring.Region
	sq    *ring.DevSQ
	rq    *ring.DevRQ
	state atomic.Uint32
	wqe   ring.SendWQE
	bad   ring.Syndrome // of the next WQE
}

type stubCQ struct {
	mem     *ring.Region
	dev     *ring.DevCQ
	overrun atomic.Uint32
}

type stubSend struct {
	op      ring.Opcode
	qpn     uint32
	hdr     []byte
	inline  []byte
	segs    []ring.Seg
	flags   uint8 // checksum flags
	mss     uint16
	imm     uint32
	signal  bool
	solicit bool
	fence   bool
	index   uint16
	av      ring.AVFields
	qkey    uint32
	remote  uint32
}

func newStub(c Caps) *stub {
	if c.Name == "" {
		c.Name = "stub:"
	}
	return &stub{caps: c, qps: map[uint32]*stubQP{}, cqs: map[uint32]*stubCQ{}, nextQPN: 0x40, nextCQN: 0x10,
		nextKey: 2, keys: map[uint32]bool{}, flows: map[uint64]FlowRule{}, limits: map[uint32]*atomic.Uint32{}, groups: map[GID][]uint32{},
		mac: [6]byte{2, 0, 0, 0, 0, 2}, gids: []GIDEntry{{0, stubGID4}, {1, stubGID6}}}
}

// The stub's own addresses.
var (
	stubGID4 = GIDFromAddr(netip.MustParseAddr("198.18.0.1"))
	stubGID6 = GIDFromAddr(netip.MustParseAddr("2001:2::1"))
)

func (s *stub) GIDs() []GIDEntry { return s.gids }

func (s *stub) Resolve(ctx context.Context, d Dest) (AHAttr, error) {
	s.dests = append(s.dests, d)
	if err := s.failure(); err != nil {
		return AHAttr{}, err
	}
	return d.Attr(s.mac), ctx.Err()
}

func (s *stub) AttachMulticast(qpn uint32, g GID) error {
	if err := s.failure(); err != nil {
		return err
	}
	s.groups[g] = append(s.groups[g], qpn)
	return nil
}

func (s *stub) DetachMulticast(qpn uint32, g GID) error {
	if err := s.failure(); err != nil {
		return err
	}
	s.groups[g] = slices.DeleteFunc(s.groups[g], func(o uint32) bool { return o == qpn })
	return nil
}

func (s *stub) Caps() Caps { return s.caps }

func (s *stub) failure() error {
	err := s.fail
	s.fail = nil
	return err
}

func (s *stub) AllocMemory(n int) (*ring.Region, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	return ring.NewRegion(n, ring.RegionOptions{})
}

func (s *stub) Register(pd uint32, mem []byte, a Access) (uint32, uint64, error) {
	if err := s.failure(); err != nil {
		return 0, 0, err
	}
	key := s.nextKey << 8
	s.nextKey++
	s.keys[key] = true
	return key, uint64(key) << 20, nil
}

func (s *stub) Deregister(key uint32) error {
	if !s.keys[key] {
		return syscall.EINVAL
	}
	delete(s.keys, key)
	return nil
}

func (s *stub) NewCQ(entries int) (CQMem, error) {
	if err := s.failure(); err != nil {
		return CQMem{}, err
	}
	mem, err := ring.NewRegion(entries*ring.CQEBytes+64, ring.RegionOptions{})
	if err != nil {
		return CQMem{}, err
	}
	rec, err := ring.NewRecord(mem.Bytes()[entries*ring.CQEBytes:])
	if err != nil {
		return CQMem{}, err
	}
	cqes := ring.CQEs(mem.Bytes()[:entries*ring.CQEBytes])
	dev, err := ring.NewDevCQ(cqes, rec, s.nextCQN)
	if err != nil {
		return CQMem{}, err
	}
	c := &stubCQ{mem: mem, dev: dev}
	m := CQMem{CQN: s.nextCQN, CQEs: cqes, Rec: rec, Overrun: &c.overrun}
	if s.silent {
		m.Overrun = nil
	}
	s.cqs[s.nextCQN] = c
	s.nextCQN++
	return m, nil
}

func (s *stub) DestroyCQ(cqn uint32) error {
	if s.cqs[cqn] == nil {
		return syscall.EINVAL
	}
	delete(s.cqs, cqn)
	return nil
}

func (s *stub) NewQP(spec QPSpec) (QPMem, error) {
	if err := s.failure(); err != nil {
		return QPMem{}, err
	}
	sq, rq := spec.SQSlots*ring.BlockBytes, max(spec.RQEntries*spec.RQStride, 64)
	mem, err := ring.NewRegion(sq+rq+128, ring.RegionOptions{})
	if err != nil {
		return QPMem{}, err
	}
	b := mem.Bytes()
	m := QPMem{QPN: s.nextQPN, SQ: ring.BlocksOf(b[:sq]), RQ: b[sq : sq+rq]}
	q := &stubQP{spec: spec, mem: mem}
	if m.SQRec, err = ring.NewRecord(b[sq+rq:]); err != nil {
		return m, err
	}
	if m.RQRec, err = ring.NewRecord(b[sq+rq+64:]); err != nil {
		return m, err
	}
	if q.sq, err = ring.NewDevSQ(m.SQ, m.SQRec, m.QPN); err != nil {
		return m, err
	}
	if spec.SRQN == 0 {
		q.rq, err = ring.NewDevRQ(m.RQ, m.RQRec, ring.RQConfig{Stride: spec.RQStride, Entries: spec.RQEntries})
		if err != nil {
			return m, err
		}
	}
	kind := ring.RawPacket
	if spec.Type == UD {
		kind = ring.UD
	}
	q.sq.SetLimits(ring.SendLimits{Kind: kind, MinInline: s.caps.MinInline})
	if !s.silent {
		m.State = &q.state
	}
	s.qps[m.QPN] = q
	s.nextQPN++
	return m, nil
}

func (s *stub) NewSRQ(spec SRQSpec) (SRQMem, error) {
	if err := s.failure(); err != nil {
		return SRQMem{}, err
	}
	mem, err := ring.NewRegion(spec.Entries*spec.Stride+64, ring.RegionOptions{})
	if err != nil {
		return SRQMem{}, err
	}
	b := mem.Bytes()
	rec, err := ring.NewRecord(b[spec.Entries*spec.Stride:])
	m := SRQMem{SRQN: s.nextQPN, Mem: b[:spec.Entries*spec.Stride], Rec: rec, Limit: new(atomic.Uint32)}
	s.nextQPN++
	s.limits[m.SRQN] = m.Limit
	return m, err
}

func (s *stub) DestroySRQ(srqn uint32) error {
	if s.limits[srqn] == nil {
		return syscall.EINVAL
	}
	delete(s.limits, srqn)
	return nil
}

func (s *stub) LimitSRQ(srqn uint32, limit int) error {
	s.limits[srqn].Store(uint32(limit))
	return nil
}

func (s *stub) Notify(f func(DeviceEvent)) { s.notify = f }

func (s *stub) ArmCQ(_ uint32, word uint64) { s.armed = append(s.armed, word) }

func (s *stub) Wake() {}

func (s *stub) WaitFD() (int, bool, int64) { return -1, false, -1 }

func (s *stub) DestroyQP(qpn uint32) error {
	if s.qps[qpn] == nil {
		return syscall.EINVAL
	}
	delete(s.qps, qpn)
	return nil
}

func (s *stub) SetState(qpn uint32, to QPState, a QPAttr) error {
	if err := s.failure(); err != nil {
		return err
	}
	q := s.qps[qpn]
	s.attrs = append(s.attrs, a)
	if to == StateReset {
		q.sq.Reset()
		if q.rq != nil {
			q.rq.Reset()
		}
	}
	q.state.Store(uint32(to))
	if to == StateErr {
		s.run()
	}
	return nil
}

func (s *stub) Attach(qpn uint32, r FlowRule) (uint64, error) {
	if err := s.failure(); err != nil {
		return 0, err
	}
	id := uint64(len(s.flows) + 1)
	s.flows[id] = r
	return id, nil
}

func (s *stub) Detach(id uint64) error {
	delete(s.flows, id)
	return nil
}

func (s *stub) Ring(uint32, uint64) {
	s.rings++
	if !s.hold {
		s.run()
	}
}

func (s *stub) Progress(budget int) int {
	if s.hold {
		return 0
	}
	return s.run()
}

func (s *stub) Wait(int64) error      { s.waits++; return nil }
func (s *stub) Counters(c *Counters)  { c.TxFrames += uint64(len(s.sent)) }
func (s *stub) Err() error            { return nil }
func (s *stub) Close() error          { return s.failure() }
func (s *stub) cq(cqn uint32) *stubCQ { return s.cqs[cqn] }
func (q *stubQP) is(st QPState) bool  { return q.state.Load() == uint32(st) }

func (s *stub) cqe(c *stubCQ, q *stubQP, fill func(*ring.CQE), kind ring.CQEOpcode) {
	e, ok := c.dev.Next()
	if !ok {
		c.overrun.Store(1)
		q.state.Store(uint32(StateErr))
		return
	}
	fill(e)
	c.dev.Seal(uint8(kind) << 4)
}

// run executes everything there is.
func (s *stub) run() (work int) {
	for qpn, q := range s.qps {
		work += s.runSends(qpn, q)
		if q.is(StateErr) {
			for q.rq != nil && q.rq.Available() > 0 {
				s.recvError(qpn, ring.SynFlushed)
				work++
			}
		}
	}
	for _, c := range s.cqs {
		c.dev.Publish()
	}
	return work
}

func (s *stub) runSends(qpn uint32, q *stubQP) (work int) {
	w := &q.wqe
	for q.is(StateRTS) || q.is(StateSQE) || q.is(StateErr) {
		found := q.sq.Fetch(w)
		if found == ring.FetchEmpty {
			break
		}
		work++
		q.sq.Advance()
		syn := w.Syndrome
		if q.bad != 0 {
			syn, q.bad = q.bad, 0
		}
		if !q.is(StateRTS) {
			syn = ring.SynFlushed
		}
		if syn != 0 {
			s.cqe(s.cq(q.spec.SendCQN), q, func(e *ring.CQE) {
				e.PutError(q.spec.UserIndex, qpn, w.Opcode, w.Index, syn, 0x51)
			}, ring.CQEReqErr)
			if q.is(StateRTS) {
				to := StateErr
				if q.spec.Type == UD && s.caps.Profile != ProfileRXE {
					to = StateSQE
				}
				q.state.Store(uint32(to))
			}
			continue
		}
		if !s.quiet {
			s.keep(qpn, w)
		}
		if w.Signaled {
			s.cqe(s.cq(q.spec.SendCQN), q, func(e *ring.CQE) {
				e.PutReq(q.spec.UserIndex, qpn, w.Opcode, w.Index, 77)
			}, ring.CQEReq)
		}
	}
	return work
}

func (s *stub) keep(qpn uint32, w *ring.SendWQE) {
	k := stubSend{op: w.Opcode, qpn: qpn, hdr: append([]byte{}, w.InlineHdr...), inline: append([]byte{}, w.Inline...),
		segs: append([]ring.Seg{}, w.Segs[:w.NSeg]...), flags: w.CsumFlags, mss: w.MSS, imm: w.Imm,
		signal: w.Signaled, solicit: w.Solicited, fence: w.Fence, index: w.Index, qkey: w.QKey, remote: w.RemoteQPN}
	if w.AV != nil {
		k.av = w.AV.Fields()
	}
	s.sent = append(s.sent, k)
}

func (s *stub) recvError(qpn uint32, syn ring.Syndrome) {
	q := s.qps[qpn]
	counter := q.rq.Advance()
	s.cqe(s.cq(q.spec.RecvCQN), q, func(e *ring.CQE) {
		e.PutError(q.spec.UserIndex, qpn, 0, counter, syn, 0)
	}, ring.CQERecvErr)
}

// deliver completes a receive of n bytes; false when no WQE was there.
func (s *stub) deliver(qpn, n uint32, kind ring.CQEOpcode, more func(*ring.CQE)) bool {
	q := s.qps[qpn]
	if q.rq.Available() == 0 || q.state.Load() < uint32(StateRTR) {
		return false
	}
	counter := q.rq.Advance()
	c := s.cq(q.spec.RecvCQN)
	s.cqe(c, q, func(e *ring.CQE) {
		e.PutRecv(q.spec.UserIndex, qpn, n, counter, 99)
		if more != nil {
			more(e)
		}
	}, kind)
	c.dev.Publish()
	return true
}

// rig is a device with one queue pair in RTS.
type rig struct {
	t   testing.TB
	s   *stub
	d   *Device
	cq  *CQ
	q   *QP
	mr  MR
	mem []byte
	wc  []Completion
}

type rigConfig struct {
	caps  Caps
	qp    QPConfig
	cqe   int
	state QPState // StateRTS when zero; use reset for RESET
	reset bool
	bare  bool // silent backend
}

func newRig(t testing.TB, c rigConfig) *rig {
	t.Helper()
	r := &rig{t: t, s: newStub(c.caps), wc: make([]Completion, 256)}
	r.s.silent = c.bare
	var err error
	r.d, err = NewDevice(r.s)
	r.ok(err)
	if c.cqe == 0 {
		c.cqe = 200
	}
	r.cq, err = r.d.NewCQ(c.cqe)
	r.ok(err)
	if c.qp.Type == 0 {
		c.qp.Type = RawPacket
	}
	if c.qp.SendCQ == nil {
		c.qp.SendCQ, c.qp.RecvCQ = r.cq, r.cq
	}
	if c.qp.MaxSendWR == 0 {
		c.qp.MaxSendWR = 8
	}
	if c.qp.MaxRecvWR == 0 {
		c.qp.MaxRecvWR = 8
	}
	pd := r.d.DefaultPD()
	r.q, err = pd.NewQP(c.qp)
	r.ok(err)
	r.mem = make([]byte, 1<<16)
	for i := range r.mem {
		r.mem[i] = byte(i*7 + i>>8)
	}
	r.mr, err = pd.Register(r.mem, LocalWrite)
	r.ok(err)
	if !c.reset {
		if c.state == 0 {
			c.state = StateRTS
		}
		r.ok(r.q.MoveTo(min(c.state, StateRTS), QPAttr{QKey: 0x1111, SQPSN: 5}))
	}
	t.Cleanup(func() { r.ok(r.d.Close()) })
	return r
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) wr(id uint64, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: OpSend, Flags: flags, SGEs: []SGE{r.mr.SGE(int(id%512)*64, 60)}}
}

func (r *rig) ah() *AH {
	r.t.Helper()
	a, err := r.d.DefaultPD().NewAH(AHAttr{MAC: [6]byte{2, 0, 0, 0, 0, 2}, HopLimit: 1, GID: stubGID4})
	r.ok(err)
	return a
}

// poll gives all completions there are.
func (r *rig) poll() []Completion {
	r.t.Helper()
	var out []Completion
	for {
		n, err := r.cq.Poll(r.wc)
		r.ok(err)
		if n == 0 {
			return out
		}
		out = append(out, r.wc[:n]...)
	}
}
