package raw

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
)

// ErrTimes: Send wants one time for all packets, or one for each.
var ErrTimes = errors.New("raw: neither one tag time nor one for each packet")

// StreamConfig says which packets of a run a stream sends. With n flows,
// packet i of the stream, from 0,
//
//	is of flow FlowFirst + (i mod n) * FlowStep, with sequence i div n,
//	and is packet First + i * Step of the template,
//	a RoCE v2 datagram with the template's PSN + i.
type StreamConfig struct {
	Tag                        bool // write the tag, which needs the last 16 bytes of the payload
	Key                        proto.TagKey
	FlowFirst, FlowStep, Flows uint32 // Flows 0: one; FlowStep 0: 1
	First                      uint64
	Step                       uint32 // 0: 1
	// IPCsum leaves the IPv4, TCP and UDP checksums to the device, of UDP without
	// one too. The frames' own are not written.
	IPCsum bool
}

// Stream sends a template's packets from a queue, which belongs to it until
// Close. The frames lie ready, one for each slot of the send ring, and a packet
// costs what varies in it. The queue's owner owns the stream.
type Stream struct {
	q    *TxQueue
	p    *program
	img  *engine.Image
	lane lane

	frames  [][]byte // whole, by slot; the device does not read the first bytes if there are heads
	heads   [][]byte // by slot: what stands in the WQE itself; nil if nothing varies there
	lens    []uint32 // by slot: of the frame in it; nil with one size
	current []uint16 // by slot: the variant in it; nil with one size

	leaf   *leaf // nil if its loops cannot do the work
	slots  []slot
	grams  []gram     // beside the slots, of RoCE v2 datagrams
	ports  *ports     // nil likewise
	udp    []*[8]byte // by slot: the UDP header
	narrow *field     // the one field of the leaf loops

	burst      int // packets of one Rearm
	begun      bool
	start      int    // slot of the first packet
	startDone  uint64 // the queue's done when the stream began
	frameBytes uint64
	sent       uint64
	bytes      uint64
}

// NewStream lays a template over the queue's ring. Nothing may be outstanding.
func (q *TxQueue) NewStream(t *Template, c StreamConfig) (*Stream, error) {
	if q.closed {
		return nil, ErrClosed
	}
	if q.stream != nil {
		return nil, ErrStream
	}
	if q.Reclaim(); q.Outstanding() != 0 || q.made != q.posted {
		return nil, fmt.Errorf("raw: %v has %d frames outstanding: %w", q, q.Outstanding(), syscall.EBUSY)
	}
	c.Flows, c.FlowStep, c.Step = max(c.Flows, 1), max(c.FlowStep, 1), max(c.Step, 1)
	if top := uint64(c.FlowFirst) + uint64(c.Flows-1)*uint64(c.FlowStep); c.Tag && top >= proto.MaxFlows {
		return nil, fmt.Errorf("raw: flow %d, the tag holds those below %d: %w", top, proto.MaxFlows, syscall.EINVAL)
	}
	p, err := newProgram(t, c.Tag, c.IPCsum)
	if err != nil {
		return nil, err
	}
	for i := range p.variants {
		if n := len(p.variants[i].frame); n < q.minBytes || n > q.maxBytes {
			return nil, fmt.Errorf("raw: %s takes frames of %d..%d bytes, the template has one of %d: %w", q.port.caps.Name, q.minBytes, q.maxBytes, n, syscall.EMSGSIZE)
		}
	}
	s := &Stream{q: q, p: p, lane: lane{
		key: c.Key, first: c.FlowFirst, step: c.FlowStep, flows: c.Flows, index: c.First, indexStep: uint64(c.Step),
	}}
	if err := s.lay(t.MaxFrame(), c.IPCsum); err != nil {
		return nil, err
	}
	q.stream = s
	return s, nil
}

// lay makes the image and finds each slot's frame in it.
func (s *Stream) lay(maxFrame int, ipCsum bool) (err error) {
	v := &s.p.variants[0]
	if s.img, err = s.q.qp.NewImage(engine.ImageConfig{Frame: v.frame, MaxLen: maxFrame, IPCsum: ipCsum}); err != nil {
		return err
	}
	n := s.img.Slots()
	s.burst = max(n/4, 1)
	s.frameBytes = uint64(len(v.frame))
	spans := s.img.Spans()
	body := spans[len(spans)-1]
	room := body.Stride
	for k := range n {
		at := k*body.Stride + body.Off - body.From // a frame's first bytes have their place even where the WQE has them
		s.frames = append(s.frames, body.Mem[at:at+room:at+room])
	}
	for k := range s.frames {
		copy(s.frames[k], v.frame)
	}
	if len(spans) == 2 && s.varyBelow(spans[0].Len) {
		h := spans[0]
		for k := range n {
			at := k*h.Stride + h.Off
			s.heads = append(s.heads, h.Mem[at:at+h.Len:at+h.Len])
		}
	}
	if len(s.p.variants) > 1 {
		s.lens, s.current = make([]uint32, n), make([]uint16, n)
	}
	s.layLeaf()
	return nil
}

// varyBelow reports whether anything varies in the first n bytes.
func (s *Stream) varyBelow(n int) bool {
	for i := range s.p.fields {
		if s.p.fields[i].off < n {
			return true
		}
	}
	return len(s.p.variants) > 1 && n > s.p.firstLength
}

// layLeaf prepares the leaf loops, if they can do the work.
func (s *Stream) layLeaf() {
	if s.heads != nil {
		return
	}
	if l, ok := newLeaf(s.p, s.lane.key); ok {
		s.leaf = l
		for _, f := range s.frames {
			s.slots = append(s.slots, slotOf(s.p, f))
			if s.p.roce != nil {
				s.grams = append(s.grams, gramOf(s.p, f))
			}
		}
	} else if l, ok := newPorts(s.p); ok {
		s.ports = l
		for _, f := range s.frames {
			s.udp = append(s.udp, (*[8]byte)(f[s.p.l4Check-6:]))
		}
	} else {
		return
	}
	if len(s.p.fields) == 1 {
		s.narrow = &s.p.fields[0]
		s.narrow.tabulate(&s.lane)
	}
}

// Send sends up to n packets and returns how many; fewer when the ring is full
// (it looks for completions itself) or something is wrong. times are the
// tags' scheduled times in 16 ns units, one for each packet or one for all;
// without a tag they are not looked at.
func (s *Stream) Send(n int, times []uint32) (sent int, err error) {
	q := s.q
	switch {
	case q.closed:
		return 0, ErrClosed
	case q.stream != s:
		return 0, ErrStream
	case s.p.tag && len(times) != 1 && len(times) < n:
		return 0, ErrTimes
	}
	asked := false
	for sent < n {
		first, got := s.img.Rearm(min(n-sent, s.burst))
		if got == 0 {
			if asked {
				break
			}
			asked = true
			if err = s.img.Publish(); err != nil {
				break
			}
			if q.Reclaim(); q.err != nil {
				break
			}
			continue
		}
		asked = false
		if !s.begun {
			s.begun, s.start, s.startDone = true, s.img.Slot(first), q.done
		}
		s.write(s.img.Slot(first), got, times, sent)
		sent += got
		q.made += uint64(got)
		q.posted = q.made
	}
	if e := s.img.Publish(); err == nil {
		err = e
	}
	if err == nil {
		err = q.err
	}
	s.sent += uint64(sent)
	return sent, err
}

// write makes the frames of got slots, from slot at on, the next packets. The
// time of the first is times[done].
func (s *Stream) write(at, got int, times []uint32, done int) {
	if !s.p.tag && len(s.p.fields) == 0 && s.lens == nil && s.p.roce == nil {
		s.lane.walk(got)
		return
	}
	for got > 0 {
		m := min(got, chunk)
		t := times
		if s.p.tag && len(times) > 1 {
			t = times[done : done+m]
		}
		switch {
		case s.grams != nil:
			s.leaf.writeGrams(s.p.roce, &gramRun{s.slots[at : at+m], s.grams[at : at+m]}, t, &s.lane, s.narrow)
			s.lane.walk(m)
		case s.leaf != nil:
			s.leaf.write(s.slots[at:at+m], t, &s.lane, s.narrow)
			s.lane.walk(m)
		case s.ports != nil:
			s.ports.write(s.udp[at:at+m], &s.lane, s.narrow)
			s.lane.walk(m)
		default:
			s.writeAny(at, m, t)
		}
		at, got, done = at+m, got-m, done+m
	}
}

// writeAny is for every program.
func (s *Stream) writeAny(at, n int, times []uint32) {
	l, p := &s.lane, s.p
	for i := range n {
		k := at + i
		frame, v := s.frames[k], &p.variants[0]
		if s.lens != nil {
			v = s.resize(k)
		}
		pk := packet{index: l.index, flow: l.first + l.place*l.step, psn: l.psn}
		if v.tagOff != 0 {
			pk.w0, pk.w1 = l.key.Words(pk.flow, l.round, times[min(i, len(times)-1)])
		}
		p.patch(frame, v, &pk)
		if s.heads != nil {
			copy(s.heads[k], frame)
		}
		l.walk(1)
	}
}

// resize puts the next packet's variant into slot k.
func (s *Stream) resize(k int) *variant {
	x := s.p.order.at(s.lane.index)
	v := &s.p.variants[x]
	s.bytes += uint64(len(v.frame))
	if s.current[k] != uint16(x) || s.lens[k] == 0 {
		copy(s.frames[k], v.frame)
		s.img.SetLen(k, len(v.frame))
		s.current[k], s.lens[k] = uint16(x), uint32(len(v.frame))
	}
	return v
}

// Sent is the number of packets handed to the device, and so the number of the
// next. Those that fail later are in the queue's Counts.
func (s *Stream) Sent() uint64 { return s.sent }

// Bytes is the sum of the lengths, without FCS, of the packets sent.
func (s *Stream) Bytes() uint64 {
	if s.lens == nil {
		return s.sent * s.frameBytes
	}
	return s.bytes
}

// FlowSent is the number of packets sent of the stream's flow number k, from
// 0: flow FlowFirst + k*FlowStep.
func (s *Stream) FlowSent(k uint32) uint64 {
	if k >= s.lane.flows {
		return 0
	}
	flows := uint64(s.lane.flows)
	return (s.sent + flows - 1 - uint64(k)) / flows
}

// Outstanding is the number of packets sent that have not completed.
func (s *Stream) Outstanding() int { return s.q.Outstanding() }

// Close gives the queue back; EBUSY while packets are outstanding. A second
// Close does nothing.
func (s *Stream) Close() error {
	if s.q.closed || s.q.stream != s {
		return nil
	}
	if err := s.img.Close(); err != nil {
		return err
	}
	s.q.stream = nil
	return nil
}

// lengths sums the lengths of the n oldest packets outstanding.
func (s *Stream) lengths(n uint64) (sum uint64) {
	if s.lens == nil {
		return n * s.frameBytes
	}
	at := int((uint64(s.start) + s.q.done - s.startDone) % uint64(len(s.lens)))
	for range n {
		sum += uint64(s.lens[at])
		if at++; at == len(s.lens) {
			at = 0
		}
	}
	return sum
}
