package ud

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// SharedReceive is memory and a shared receive queue for the datagrams of
// several endpoints, so that they need not each be prepared for a burst. Whoever
// gets a datagram takes the next buffer. One goroutine owns it and all its
// endpoints.
type SharedReceive struct {
	dev     *engine.Device
	pd      *engine.PD
	srq     *engine.SRQ
	rx      *receive
	payload int

	mu     sync.Mutex
	users  int
	closed bool
}

// NewSharedReceive makes depth buffers for datagrams of up to payload bytes; 0:
// DefaultDepth, and what the device takes. The endpoints name it in
// Config.Shared.
func NewSharedReceive(dev *engine.Device, depth, payload int) (*SharedReceive, error) {
	if err := dev.Err(); err != nil {
		return nil, fmt.Errorf("ud: shared receive: %w", err)
	}
	caps := dev.Caps()
	if depth == 0 {
		depth = min(DefaultDepth, caps.MaxRecvWR)
	}
	if payload == 0 {
		payload = caps.MaxDatagram
	}
	if payload < 1 || payload > caps.MaxDatagram {
		return nil, fmt.Errorf("ud: %s: shared receive: payload %d, want 1..%d: %w", caps.Name, payload, caps.MaxDatagram, syscall.EINVAL)
	}
	s := &SharedReceive{dev: dev, payload: payload}
	if s.pd = dev.NewPD(); s.pd == nil {
		return nil, ErrClosed
	}
	err := s.build(depth)
	if err != nil {
		_ = s.free() // the first error says what happened
		return nil, fmt.Errorf("ud: %s: shared receive: %w", caps.Name, err)
	}
	return s, nil
}

func (s *SharedReceive) build(depth int) (err error) {
	if s.srq, err = s.pd.NewSRQ(engine.SRQConfig{MaxWR: depth, MaxSGE: 1}); err != nil {
		return err
	}
	if s.rx, err = newReceive(s.pd, depth, s.payload, s.srq.Post); err != nil {
		return err
	}
	return s.rx.start()
}

// SRQ gives the queue, for its limit and the event that tells of it. Posting to
// it breaks the endpoints.
func (s *SharedReceive) SRQ() *engine.SRQ { return s.srq }

func (s *SharedReceive) join(e *Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.dev != e.dev {
		return fmt.Errorf("the shared receive is of another device: %w", syscall.EINVAL)
	}
	s.users++
	e.shared, e.pd, e.rx = s, s.pd, s.rx
	return nil
}

func (s *SharedReceive) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.closed && s.users == 0 {
		return s.free()
	}
	return nil
}

// Close gives the memory back, after the last endpoint on it has been closed. A
// second Close does nothing.
func (s *SharedReceive) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.users > 0 {
		return nil
	}
	return s.free()
}

func (s *SharedReceive) free() error {
	errs := []error{s.srq.Close()}
	if s.rx != nil {
		errs = append(errs, s.rx.pool.Close())
	}
	return errors.Join(append(errs, s.pd.Close())...)
}
