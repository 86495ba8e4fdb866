package softnic

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// maxSRQ bounds the shared receive queues of a NIC.
const maxSRQ = 1024

// srq is a shared receive queue as the device sees it.
type srq struct {
	srqn, pd uint32
	dev      *ring.DevSRQ
	mem      *ring.Region
	users    int            // QPs that receive from it
	limit    uint32         // the event comes when fewer are left; 0: not armed
	shown    *atomic.Uint32 // limit, for the host half to read
}

// NewSRQ makes a shared receive queue.
func (n *NIC) NewSRQ(s engine.SRQSpec) (m engine.SRQMem, err error) {
	err = n.control(func() error {
		if s.Entries < 2 || s.Entries > ring.MaxSRQEntries || s.Stride < 0 || s.Stride > ring.MaxRQStride {
			return fmt.Errorf("softnic: SRQ of %d entries of %d bytes: %w", s.Entries, s.Stride, syscall.EINVAL)
		}
		srqn, slot, ok := nextNumber(n.lastSRQ, maxSRQ, func(i uint32) bool { return n.srqs[i] == nil })
		if !ok {
			return fmt.Errorf("softnic: all %d shared receive queues are in use: %w", maxSRQ, syscall.ENOMEM)
		}
		bytes := s.Entries * s.Stride
		recs := (bytes + recordSpace - 1) &^ (recordSpace - 1)
		mem, err := ring.NewRegion(recs+recordSpace, ring.RegionOptions{})
		if err != nil {
			return fmt.Errorf("softnic: SRQ: %w", err)
		}
		b := mem.Bytes()
		rec, err1 := ring.NewRecord(b[recs:])
		dev, err2 := ring.NewDevSRQ(b[:bytes:bytes], rec, s.Stride, s.Entries)
		if err := errors.Join(err1, err2); err != nil {
			mem.Close()
			return fmt.Errorf("softnic: SRQ: %w", err)
		}
		n.lastSRQ = srqn
		n.srqs[slot] = &srq{srqn: srqn, pd: s.PD, dev: dev, mem: mem, shown: new(atomic.Uint32)}
		m = engine.SRQMem{SRQN: srqn, Mem: b[:bytes:bytes], Rec: rec, Limit: n.srqs[slot].shown}
		return nil
	})
	return m, err
}

// DestroySRQ frees a shared receive queue that no QP uses; EBUSY otherwise.
func (n *NIC) DestroySRQ(srqn uint32) error {
	return n.control(func() error {
		s := n.findSRQ(srqn)
		if s == nil {
			return unknownSRQ(srqn)
		}
		if s.users > 0 {
			return fmt.Errorf("softnic: SRQ 0x%x is in use: %w", srqn, syscall.EBUSY)
		}
		n.srqs[srqn%maxSRQ] = nil
		return s.mem.Close()
	})
}

// LimitSRQ arms the limit event, or with 0 disarms it (G-05).
func (n *NIC) LimitSRQ(srqn uint32, limit int) error {
	return n.control(func() error {
		s := n.findSRQ(srqn)
		if s == nil {
			return unknownSRQ(srqn)
		}
		s.setLimit(uint32(limit))
		return nil
	})
}

func (s *srq) setLimit(limit uint32) {
	s.limit = limit
	s.shown.Store(limit)
}

func (n *NIC) findSRQ(srqn uint32) *srq {
	if s := n.srqs[srqn%maxSRQ]; s != nil && s.srqn == srqn {
		return s
	}
	return nil
}

func unknownSRQ(srqn uint32) error {
	return fmt.Errorf("softnic: no SRQ 0x%x: %w", srqn, syscall.EINVAL)
}

// The receive side takes its WQEs here, from the QP's own queue or from its SRQ:
//
//	waitingRecv ... peekRecv -> scatter -> takeRecv

// waitingRecv gives the receive WQEs that are posted and not taken.
func (q *qp) waitingRecv() int {
	if q.srq != nil {
		return q.srq.dev.Available()
	}
	return q.rq.Available()
}

// peekRecv reads the oldest receive WQE's segments without taking it; ok is false when there is none.
func (q *qp) peekRecv(segs []ring.Seg) (count int, ok bool) {
	if q.srq != nil {
		return q.srq.dev.Peek(segs)
	}
	return q.rq.Peek(segs)
}

// takeRecv takes the WQE that peekRecv read and gives what its CQE names it by: the counter of the QP's own
// queue, or the index in the SRQ. Taking below the limit of an SRQ fires its event, once.
func (n *NIC) takeRecv(q *qp) uint16 {
	s := q.srq
	if s == nil {
		return q.rq.Advance()
	}
	index := s.dev.Advance()
	if s.limit != 0 && s.dev.Available() < int(s.limit) {
		s.setLimit(0)
		n.raise(engine.EventSRQLimitReached, s.srqn)
	}
	return index
}

// recvPD is the protection domain of the memory that receives may write: the SRQ's own (D-12), or the QP's.
func (q *qp) recvPD() uint32 {
	if q.srq != nil {
		return q.srq.pd
	}
	return q.pd
}
