package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// EventType says what has happened, with the numbers of ibv_event_type.
type EventType uint8

// The asynchronous events. The software NIC raises EventCQErr, EventSQDrained,
// EventSRQLimitReached and EventQPLastWQEReached; the others exist so that a
// provider can pass them on.
const (
	EventCQErr            EventType = 0 // a CQ has overrun (H-11)
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4
	EventSQDrained        EventType = 5 // no send is in progress after a move to SQD (B-15)
	EventPathMig          EventType = 6
	EventPathMigErr       EventType = 7
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15 // fewer requests are left than the limit (G-05)
	EventQPLastWQEReached EventType = 16 // a queue pair on an SRQ takes nothing from it any more (B-28)
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
	EventWQFatal          EventType = 19

	// EventCompletion is for backends: a CQ was armed, and has a completion. It
	// comes out of the CQ's channel and has no number of verbs.
	EventCompletion EventType = 0xff
)

var eventNames = [...]string{
	"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG", "PATH_MIG_ERR",
	"DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "SRQ_ERR",
	"SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE", "WQ_FATAL",
}

// String gives the name of verbs.
func (t EventType) String() string {
	switch {
	case int(t) < len(eventNames):
		return eventNames[t]
	case t == EventCompletion:
		return "COMPLETION"
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// AsyncEvent is something that no completion tells. The queue that it is about,
// if it is about one, is the one field that is set.
type AsyncEvent struct {
	Type EventType
	CQ   *CQ
	QP   *QP
	SRQ  *SRQ
}

// maxAsync is how many events wait for a reader; the oldest beyond that are
// dropped and counted.
const maxAsync = 1024

// hub hands the backend's events out. Its lock is taken once an event, which is
// once an arming or a change of state, and never together with the device's.
type hub struct {
	mu     sync.Mutex
	cqs    map[uint32]*CQ
	qps    map[uint32]*QP
	srqs   map[uint32]*SRQ
	queue  []AsyncEvent
	lost   uint64
	signal chan struct{} // something waits, or the device has closed; holds one
	closed chan struct{}
}

func (h *hub) init() {
	h.cqs, h.qps, h.srqs = map[uint32]*CQ{}, map[uint32]*QP{}, map[uint32]*SRQ{}
	h.signal, h.closed = make(chan struct{}, 1), make(chan struct{})
}

// take is what the backend calls.
func (h *hub) take(e DeviceEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := AsyncEvent{Type: e.Type}
	known := true
	switch e.Type {
	case EventCompletion:
		if c := h.cqs[e.Number]; c != nil && c.ch != nil {
			c.ch.push(c)
		}
		return
	case EventCQErr:
		a.CQ, known = h.cqs[e.Number]
	case EventSRQErr, EventSRQLimitReached:
		a.SRQ, known = h.srqs[e.Number]
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig, EventPathMigErr,
		EventQPLastWQEReached:
		a.QP, known = h.qps[e.Number]
	}
	if !known { // it is being made or has been closed
		return
	}
	if len(h.queue) == maxAsync {
		h.queue = h.queue[1:]
		h.lost++
	}
	h.queue = append(h.queue, a)
	poke(h.signal)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// forget drops the events about an object that is closed. The hub is locked.
func (h *hub) forget(gone func(AsyncEvent) bool) { h.queue = slices.DeleteFunc(h.queue, gone) }

// TryEvent gives the oldest asynchronous event, or false when there is none now.
// Any goroutine may call it.
func (d *Device) TryEvent() (AsyncEvent, bool) {
	if d.usable() != nil {
		return AsyncEvent{}, false
	}
	h := &d.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return AsyncEvent{}, false
	}
	e := h.queue[0]
	h.queue = h.queue[1:]
	if len(h.queue) > 0 {
		poke(h.signal) // another reader may have slept through it
	}
	return e, true
}

// NextEvent waits for the next asynchronous event until the context or the
// device ends. Any goroutine may call it. It does not run the device: of a
// device without a goroutine of its own, the owner's polls and doorbells do.
func (d *Device) NextEvent(ctx context.Context) (AsyncEvent, error) {
	for {
		if err := d.usable(); err != nil {
			return AsyncEvent{}, err
		}
		if e, ok := d.TryEvent(); ok {
			return e, nil
		}
		select {
		case <-d.hub.signal:
		case <-d.hub.closed:
		case <-ctx.Done():
			return AsyncEvent{}, fmt.Errorf("engine: %s: no event: %w", d.caps.Name, ctx.Err())
		}
	}
}
