package engine

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// SRQType is the kind of a shared receive queue, with the numbers of
// ibv_srq_type.
type SRQType uint8

// The kinds. Others than SRQBasic are EOPNOTSUPP.
const (
	SRQBasic SRQType = 0
	SRQXRC   SRQType = 1
	SRQTM    SRQType = 2 // matches tags
)

// SRQConfig asks for a shared receive queue.
type SRQConfig struct {
	MaxWR  int // at least 1
	MaxSGE int // 0: 1
	Limit  int // as SetLimit; 0: none
	Type   SRQType
}

// SRQAttr holds what Modify can set.
type SRQAttr struct {
	MaxWR, Limit int
}

// SRQAttrMask says which attributes Modify sets, with the numbers of
// ibv_srq_attr_mask.
type SRQAttrMask uint32

// The attributes.
const (
	SRQMaxWR SRQAttrMask = 1 << 0
	SRQLimit SRQAttrMask = 1 << 1
)

// SRQ is a shared receive queue: queue pairs made with it take their receive
// requests from it, in the order in which they were posted, whichever of them
// gets a packet. The memory is judged by the SRQ's protection domain (D-12).
//
// One goroutine owns the posting. The completions belong to the owners of the
// queue pairs' completion queues, which may be others.
type SRQ struct {
	ring   *ring.SRQ
	dev    *Device
	pd     *PD
	owner  owner
	srqn   uint32
	limit  *atomic.Uint32
	maxSGE int
	users  int // queue pairs; under the device's lock
	closed atomic.Bool
	err    PostError // handed out again and again
	segs   [ring.MaxRQStride / ring.DSBytes]ring.Seg
}

// NewSRQ makes a shared receive queue. It takes requests at once, with or
// without queue pairs (G-11).
func (p *PD) NewSRQ(c SRQConfig) (*SRQ, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	d := p.dev
	if err := c.check(&d.caps); err != nil {
		return nil, fmt.Errorf("engine: %s: new SRQ: %w", d.caps.Name, err)
	}
	entries, stride, maxWR, maxSGE, err := ring.SRQGeometry(c.MaxWR, max(c.MaxSGE, 1))
	if err != nil {
		return nil, fmt.Errorf("engine: %s: new SRQ: %w: %w", d.caps.Name, err, syscall.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || p.closed {
		return nil, closed("protection domain")
	}
	if d.srqs >= d.caps.MaxSRQ {
		return nil, fmt.Errorf("engine: %s: all %d shared receive queues are in use: %w", d.caps.Name, d.caps.MaxSRQ, syscall.ENOMEM)
	}
	m, err := d.b.NewSRQ(SRQSpec{PD: p.num, Entries: entries, Stride: stride})
	if err != nil {
		return nil, fmt.Errorf("engine: %s: new SRQ: %w", d.caps.Name, err)
	}
	s := &SRQ{dev: d, pd: p, srqn: m.SRQN, limit: m.Limit, maxSGE: min(maxSGE, d.caps.MaxSRQSGE)}
	s.ring, err = ring.NewSRQ(m.Mem, m.Rec, stride, entries)
	if err == nil && s.ring.Max() != maxWR {
		err = fmt.Errorf("the backend's ring holds %d requests, not %d", s.ring.Max(), maxWR)
	}
	if err == nil && c.Limit > 0 {
		err = d.b.LimitSRQ(m.SRQN, c.Limit)
	}
	if err != nil {
		_ = d.b.DestroySRQ(m.SRQN) // the first error says what happened
		return nil, fmt.Errorf("engine: %s: new SRQ: %w", d.caps.Name, err)
	}
	d.srqs++
	p.users++
	d.hub.mu.Lock()
	d.hub.srqs[s.srqn] = s
	d.hub.mu.Unlock()
	return s, nil
}

// check judges what was asked for.
func (c *SRQConfig) check(l *Caps) error {
	switch {
	case l.Features&FeatureSRQ == 0:
		return fmt.Errorf("the device has none: %w", syscall.EOPNOTSUPP)
	case c.Type != SRQBasic:
		return fmt.Errorf("type %d, the device has basic ones: %w", c.Type, syscall.EOPNOTSUPP)
	case c.MaxWR < 1 || c.MaxWR > l.MaxSRQWR:
		return fmt.Errorf("max_wr %d, want 1..%d: %w", c.MaxWR, l.MaxSRQWR, syscall.EINVAL)
	case c.MaxSGE < 0 || c.MaxSGE > l.MaxSRQSGE:
		return fmt.Errorf("max_sge %d, want 0..%d: %w", c.MaxSGE, l.MaxSRQSGE, syscall.EINVAL)
	case c.Limit < 0 || c.Limit > c.MaxWR:
		return fmt.Errorf("limit %d, want 0..%d: %w", c.Limit, c.MaxWR, syscall.EINVAL)
	}
	return nil
}

func (s *SRQ) usable() error {
	switch {
	case s == nil || s.ring == nil:
		return closed("shared receive queue")
	case s.closed.Load() || s.dev.closed.Load():
		return fmt.Errorf("%w: SRQ 0x%x: %w", ErrClosed, s.srqn, syscall.EINVAL)
	}
	return nil
}

// SRQN gives the queue's number.
func (s *SRQ) SRQN() uint32 {
	if s == nil {
		return 0
	}
	return s.srqn
}

// Cap gives the requests and pieces that fit: nothing is less than asked.
func (s *SRQ) Cap() (maxWR, maxSGE int) {
	if s.usable() != nil {
		return 0, 0
	}
	return s.ring.Max(), s.maxSGE
}

// Outstanding gives the requests posted whose completion was not polled. The
// owner calls it.
func (s *SRQ) Outstanding() int {
	if s.usable() != nil {
		return 0
	}
	return s.ring.Outstanding()
}

// Post posts receive requests in order, up to the first that is refused: n are
// posted, and err, a *PostError, says why wrs[n] is not. The device is told once
// for all that were posted.
func (s *SRQ) Post(wrs []RecvWR) (n int, err error) {
	if s == nil || s.ring == nil {
		return 0, closedPost
	}
	if s.usable() != nil {
		return 0, s.refuse(CauseClosed, 0)
	}
	if !s.owner.enter() {
		return 0, ErrOwner
	}
	cause, ref := CauseNone, noRef
	for ; n < len(wrs); n++ {
		if cause = s.queue(wrs[n].SGEs, wrs[n].ID, &ref); cause != CauseNone {
			break
		}
	}
	s.ring.Publish()
	if cause != CauseNone {
		err = s.refuse(cause, n)
	}
	s.owner.leave()
	return n, err
}

// Post1 posts one receive request of one piece.
func (s *SRQ) Post1(id uint64, sge SGE) error {
	pieces := [1]SGE{sge}
	wrs := [1]RecvWR{{ID: id, SGEs: pieces[:]}}
	_, err := s.Post(wrs[:])
	return err
}

// queue writes one entry. Profile strict judges the request before the room,
// the others the other way round, as for a receive queue. What the two share is
// listPieces: QP.PostRecv has a ring without a free list, an owner of its CQ, and
// ways of its own for requests of one piece, which an SRQ's entries do not repay.
func (s *SRQ) queue(sges []SGE, id uint64, ref *uint64) Cause {
	full := s.ring.Free() == 0
	if full && s.dev.caps.Profile != ProfileStrict {
		return CauseFull
	}
	if cause := s.dev.mrs.listPieces(s.segs[:s.maxSGE], sges, ref); cause != CauseNone {
		return cause
	}
	if full || !s.ring.Post(s.segs[:len(sges)], id) {
		return CauseFull
	}
	return CauseNone
}

func (s *SRQ) refuse(c Cause, index int) *PostError {
	s.err = PostError{Cause: c, Index: index, Errno: c.recvErrno(), SRQN: s.srqn, Recv: true}
	return &s.err
}

// SetLimit arms the event EventSRQLimitReached: it comes once, when the device
// takes a request and fewer than limit are left (G-05, G-06). 0 disarms it. A
// limit above what the queue holds is EINVAL and changes nothing (G-07).
func (s *SRQ) SetLimit(limit int) error { return s.Modify(SRQAttr{Limit: limit}, SRQLimit) }

// Limit gives the limit that is armed; 0: none, as it is after the event.
func (s *SRQ) Limit() int {
	if s.usable() != nil {
		return 0
	}
	return int(s.limit.Load())
}

// Modify sets the attributes of the mask; an empty one changes nothing (G-09). No
// device here resizes a shared receive queue: EOPNOTSUPP (G-08).
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	if err := s.usable(); err != nil {
		return err
	}
	switch {
	case mask&^(SRQMaxWR|SRQLimit) != 0:
		return fmt.Errorf("engine: SRQ 0x%x: unknown attributes 0x%x: %w", s.srqn, uint32(mask), syscall.EINVAL)
	case mask&SRQMaxWR != 0:
		return fmt.Errorf("engine: SRQ 0x%x: resize to %d requests: %w", s.srqn, a.MaxWR, syscall.EOPNOTSUPP)
	case mask == 0:
		return nil
	case a.Limit < 0 || a.Limit > s.ring.Max():
		return fmt.Errorf("engine: SRQ 0x%x: limit %d, want 0..%d: %w", s.srqn, a.Limit, s.ring.Max(), syscall.EINVAL)
	}
	if err := s.dev.b.LimitSRQ(s.srqn, a.Limit); err != nil {
		return fmt.Errorf("engine: SRQ 0x%x: limit %d: %w", s.srqn, a.Limit, err)
	}
	return nil
}

// Close destroys the queue; EBUSY while a queue pair uses it. Requests
// that are left in it complete nowhere. A second Close does nothing.
func (s *SRQ) Close() error {
	if s.usable() != nil {
		return nil
	}
	if !s.owner.enter() {
		return ErrOwner
	}
	defer s.owner.leave()
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || s.closed.Load() {
		return nil
	}
	if s.users > 0 {
		return fmt.Errorf("engine: %s: SRQ 0x%x has %d queue pairs: %w", d.caps.Name, s.srqn, s.users, syscall.EBUSY)
	}
	s.closed.Store(true)
	d.srqs--
	s.pd.users--
	d.hub.mu.Lock()
	delete(d.hub.srqs, s.srqn)
	d.hub.forget(func(e AsyncEvent) bool { return e.SRQ == s })
	d.hub.mu.Unlock()
	if err := d.b.DestroySRQ(s.srqn); err != nil {
		return fmt.Errorf("engine: %s: destroy SRQ 0x%x: %w", d.caps.Name, s.srqn, err)
	}
	return nil
}
