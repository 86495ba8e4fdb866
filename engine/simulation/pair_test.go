package simulation

import (
	"slices"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// pair is a queue pair with what its owner believes.
type pair struct {
	s        *side
	id       int
	q        *engine.QP
	mem      engine.QPMem
	typ      engine.QPType
	scq, rcq *queue
	known    engine.QPState
	asked    engine.QPState // by the last Modify
	sends    []*send        // outstanding, oldest first
	recvs    []*recv
	entries  uint16 // receives posted since RESET
	seq      uint16
	owed     int // moves by the device whose cause was not polled yet
	cursor   int // in the tap's log: what is behind it may still be received
	rules    [3]bool
	flows    []*engine.Flow
	sigAll   bool
	srq      *shared // nil: a receive queue of its own

	lastWQE, wantLastWQE int    // events that nothing is taken from the SRQ any more
	psn                  uint32 // of the next datagram
	last                 struct {
		at, length int
		qpn        uint32
	} // datagram that was asked for
	alike bool // datagrams are asked for as a row
}

// send is a send request outstanding.
type send struct {
	id       uint64
	seq      uint16
	slot     int // -1: none
	off      int // of the frame in the slot's room
	frame    []byte
	signaled bool
	want     engine.Status // what comes of it, if it is executed
	temp     bool          // names the region that may be deregistered
	sent     bool
	over     bool  // it failed or was flushed, though its completion may be unpolled
	gram     *gram // of a datagram, whose payload is frame; nil: a raw frame, or one that fails
}

// recv is a receive request outstanding.
type recv struct {
	id      uint64
	slot    int
	room    int
	counter uint16 // of its entry in the ring
	bad     int    // offset of the first byte that may not be written; -1: none
	temp    int    // offset of the piece in the region that may be deregistered; -1: none
	taken   bool   // of an SRQ: its completion was seen
}

// newPair makes a queue pair with rings of random small sizes and brings it up some way.
func (s *side) newPair() *pair {
	p := &pair{s: s, id: len(s.world.pairs), typ: engine.RawPacket}
	if s.grams && !s.one(3) || s.one(8) {
		p.typ = engine.UD // where there are no datagrams its sends fail, which is a way to SQE
	}
	p.scq, p.rcq = s.queues[s.rnd.IntN(len(s.queues))], s.queues[s.rnd.IntN(len(s.queues))]
	c := engine.QPConfig{Type: p.typ, SendCQ: p.scq.cq, RecvCQ: p.rcq.cq, SigAll: s.one(10),
		MaxSendWR: 1 + s.rnd.IntN(4), MaxRecvWR: 1 + s.rnd.IntN(8), MaxSendSGE: 2 + s.rnd.IntN(2), MaxRecvSGE: 1 + s.rnd.IntN(4)}
	if (p.typ == engine.RawPacket || s.grams) && s.one(2) {
		c.MaxInline = s.rnd.IntN(100)
	}
	if c.MaxInline < 30 && c.MaxSendSGE == 2 && p.typ == engine.RawPacket {
		c.MaxSendWR = 2 + s.rnd.IntN(7)
	}
	if p.typ == engine.UD && s.one(3) {
		c.MaxSendWR, c.MaxRecvWR = 6+s.rnd.IntN(4), 6+s.rnd.IntN(6) // longer than the shortest row
	}
	if p.srq = s.pick(); p.srq != nil {
		c.SRQ = p.srq.q
	}
	q, err := s.pd.NewQP(c)
	s.must(err)
	p.q, p.mem, p.sigAll = q, s.nic.qp, c.SigAll
	s.seen.slots[q.Cap().SendSlots]++
	s.seen.entries[q.Cap().MaxRecvWR]++
	s.world.pairs = append(s.world.pairs, p)
	s.pairs = append(s.pairs, p)
	if p.typ == engine.UD {
		if s.uds++; s.uds == 1 {
			s.since = len(s.tap.log)
		}
	}
	p.attach()
	p.revive(engine.StateInit + engine.QPState(s.rnd.IntN(3)))
	return p
}

// attach gives a raw queue pair one more rule.
func (p *pair) attach() {
	kind := engine.FlowKind(p.s.rnd.IntN(3))
	if p.typ != engine.RawPacket || p.rules[kind] {
		return
	}
	r := engine.FlowRule{Kind: kind}
	if kind == engine.FlowNormal {
		r.Match = engine.MatchDstMAC(p.mac())
	}
	f, err := p.q.Attach(r)
	p.s.must(err)
	p.rules[kind] = true
	p.flows = append(p.flows, f)
}

// mac is shared by the two pairs of a side whose numbers differ by 4, so that copies are made.
func (p *pair) mac() [6]byte { return [6]byte{2, 0xfe, 0, 0, byte(p.s.n), byte(p.id % 4)} }

// wants reports whether a rule that the pair ever had takes the frame.
func (p *pair) wants(frame []byte) bool {
	return p.rules[engine.FlowAll] || p.rules[engine.FlowNormal] && [6]byte(frame) == p.mac() ||
		p.rules[engine.FlowMulticast] && frame[0]&1 != 0
}

// complete compares one completion, which was made of e, with the model.
func (s *side) complete(c *queue, wc *engine.Completion, e *ring.CQE) {
	s.trace("  %s: completion of %d, QP 0x%x: %v, receive %v, retired %d", s.name, wc.WRID, wc.QPN, wc.Status, wc.Recv, wc.Retired)
	at := slices.IndexFunc(s.pairs, func(p *pair) bool { return p.q.QPN() == wc.QPN })
	if at < 0 {
		s.fail("%s: completion of QP 0x%x, which does not exist", s.name, wc.QPN)
	}
	p := s.pairs[at]
	s.seen.status[wc.Recv][wc.Status]++
	if wc.Status != engine.StatusSuccess && wc.Status != engine.StatusWRFlush && wc.Status != engine.StatusRemInvReq {
		p.owed--
		if p.owed < 0 && p.typ == engine.UD && s.grams {
			p.owed = 0 // a send and a receive that fail in one step may look like one move
		}
		if p.owed < 0 && !p.overrun() {
			s.fail("QP 0x%x: %v without a move to an error state", wc.QPN, wc.Status)
		}
	}
	if wc.Recv {
		p.completeRecv(c, wc, e)
	} else {
		p.completeSend(c, wc)
	}
}

// overrun reports whether a completion queue of the pair has overrun.
func (p *pair) overrun() bool { return p.scq.broken || p.rcq.broken }

func (p *pair) completeSend(c *queue, wc *engine.Completion) {
	s := p.s
	at := slices.IndexFunc(p.sends, func(w *send) bool { return w.id == wc.WRID })
	if at < 0 || c != p.scq || int(wc.Retired) != at+1 {
		s.fail("QP 0x%x: send %d completes, retiring %d, as number %d of those outstanding", wc.QPN, wc.WRID, wc.Retired, at+1)
	}
	for _, w := range p.sends[:at] {
		if w.signaled || !w.sent {
			s.fail("QP 0x%x: send %d (signaled %v, sent %v) is retired without a completion", wc.QPN, w.id, w.signaled, w.sent)
		}
		p.give(w)
	}
	w := p.sends[at]
	switch wc.Status {
	case engine.StatusSuccess:
		if !w.signaled || !w.sent || w.want != engine.StatusSuccess || wc.Opcode != engine.WCSend || wc.TimeNS <= 0 || wc.TimeNS > s.clk.Now() {
			s.fail("QP 0x%x: send %d succeeds: signaled %v, sent %v, want %v, time %d", wc.QPN, w.id, w.signaled, w.sent, w.want, wc.TimeNS)
		}
	case engine.StatusWRFlush:
		if w.sent {
			s.fail("QP 0x%x: send %d is flushed after it was sent", wc.QPN, w.id)
		}
		s.failed++
	default:
		if w.sent || w.want != wc.Status {
			s.fail("QP 0x%x: send %d fails with %v, sent %v, want %v", wc.QPN, w.id, wc.Status, w.sent, w.want)
		}
		s.failed++
	}
	p.give(w)
	p.sends = p.sends[at+1:]
}

// give checks a send's memory and takes it back.
func (p *pair) give(w *send) {
	if w.slot < 0 {
		return
	}
	if at := p.s.room(w.slot)[w.off:][:len(w.frame)]; !slices.Equal(at, w.frame) {
		p.s.fail("QP 0x%x: the buffer of send %d has changed", p.q.QPN(), w.id)
	}
	p.s.release(w.slot)
}

func (p *pair) completeRecv(c *queue, wc *engine.Completion, e *ring.CQE) {
	s := p.s
	var r *recv
	switch {
	case p.srq != nil:
		r = p.srq.complete(e.Counter())
	case len(p.recvs) > 0:
		r = p.recvs[0]
		p.recvs = p.recvs[1:]
	}
	if r == nil || r.id != wc.WRID || c != p.rcq || wc.Retired != 1 {
		s.fail("QP 0x%x: receive %d completes, retiring %d, out of order", wc.QPN, wc.WRID, wc.Retired)
	}
	if e.Counter() != r.counter {
		s.fail("QP 0x%x: receive %d of entry %d completes as entry %d", p.q.QPN(), r.id, r.counter, e.Counter())
	}
	written := 0
	switch wc.Status {
	case engine.StatusSuccess:
		s.okRecvs++
		written = int(wc.ByteLen)
		if written > r.room || r.bad >= 0 && written > r.bad || wc.Opcode != engine.WCRecv || wc.TimeNS <= 0 || wc.TimeNS > s.clk.Now() {
			s.fail("QP 0x%x: receive %d of %d bytes, room %d, the first bad one is %d, time %d", wc.QPN, r.id, written, r.room, r.bad, wc.TimeNS)
		}
		if p.typ == engine.UD {
			p.findGram(wc, s.room(r.slot)[:written])
		} else {
			p.find(s.room(r.slot)[:written])
		}
	case engine.StatusWRFlush:
		s.flushed++
	case engine.StatusRemInvReq: // D7
		if p.srq == nil || p.typ != engine.UD || s.cfg.Profile != engine.ProfileRXE {
			s.fail("QP 0x%x: receive %d fails with %v", wc.QPN, r.id, wc.Status)
		}
		s.seen.events["a datagram does not fit a shared request"]++
	default:
		s.protRecvs++
		if wc.Status != engine.StatusLocProt || r.bad < 0 {
			s.fail("QP 0x%x: receive %d fails with %v, the first bad byte is %d", wc.QPN, r.id, wc.Status, r.bad)
		}
	}
	for i, b := range s.room(r.slot)[written:] {
		if b != freshByte {
			s.fail("QP 0x%x: receive %d (%v) of %d bytes: byte %d was written", wc.QPN, r.id, wc.Status, written, written+i)
		}
	}
	s.release(r.slot)
}

// find looks the frame up in what arrived behind the frame that the pair received last.
func (p *pair) find(frame []byte) {
	log := p.s.tap.log
	for i := p.cursor; i < len(log); i++ {
		if a := &log[i]; !a.broken && slices.Equal(a.bytes, frame) {
			if !p.wants(frame) || isRoCE(frame) && p.s.uds > 0 && i >= p.s.since {
				p.s.fail("QP 0x%x received frame %d, which no rule of it wants: % x", p.q.QPN(), i, frame)
			}
			p.cursor = i + 1
			return
		}
	}
	p.s.fail("QP 0x%x received what did not arrive after its frame before: % x", p.q.QPN(), frame)
}

// room gives a slot's bytes between the guards.
func (s *side) room(slot int) []byte {
	off := slot*slotBytes + guard
	return s.mem[off : off+room : off+room]
}

// take takes a free slot and fills it.
func (s *side) take(fill byte) int {
	slot := s.free[0]
	s.free = s.free[1:]
	b := s.room(slot)
	for i := range b {
		b[i] = fill
	}
	return slot
}

func (s *side) release(slot int) {
	s.checkGuards(slot)
	b := s.room(slot)
	for i := range b {
		b[i] = guardByte
	}
	s.free = append(s.free, slot)
}

func (s *side) checkGuards(slot int) {
	off := slot * slotBytes
	for i := range guard {
		if s.mem[off+i] != guardByte || s.mem[off+slotBytes-1-i] != guardByte {
			s.fail("%s: a guard of slot %d was written", s.name, slot)
		}
	}
}

// checkMemory demands that nothing was written where nobody may.
func (s *side) checkMemory() {
	for i := range slots {
		s.checkGuards(i)
	}
	for _, slot := range s.free {
		for i, b := range s.room(slot) {
			if b != guardByte {
				s.fail("%s: byte %d of slot %d was written, which is free", s.name, i, slot)
			}
		}
	}
	for i, b := range s.mem[memBytes-tail:] {
		if b != guardByte {
			s.fail("%s: byte %d behind the slots was written", s.name, i)
		}
	}
}

// onSent is told of each frame that goes to the wire.
func (s *side) onSent(frame []byte) {
	if isRoCE(frame) {
		s.sentGram(frame)
		return
	}
	if len(frame) < 14 || frame[7] != byte(s.n) {
		s.fail("%s sends what nobody posted: % x", s.name, frame)
	}
	id := int(frame[8])<<8 | int(frame[9])
	if id >= len(s.world.pairs) || s.world.pairs[id].s != s {
		s.fail("%s sends what nobody posted: % x", s.name, frame)
	}
	p := s.world.pairs[id]
	at := slices.IndexFunc(p.sends, func(w *send) bool { return !w.sent })
	if at < 0 || !slices.Equal(p.sends[at].frame, frame) {
		s.fail("QP 0x%x sends other bytes than those of its next request: % x", p.q.QPN(), frame)
	}
	w := p.sends[at]
	if w.want != engine.StatusSuccess || p.known != engine.StateRTS {
		s.fail("QP 0x%x in %v sends request %d, which is to end with %v", p.q.QPN(), p.known, w.id, w.want)
	}
	w.sent = true
}

// forget takes all requests of the pair away, for RESET and destruction. What has completed and was not polled is
// lost to the owner and still counts.
func (p *pair) forget() {
	s := p.s
	failed := uint64(0)
	queues := []*queue{p.scq, p.rcq}
	if p.scq == p.rcq {
		queues = queues[:1]
	}
	for _, c := range queues {
		for _, e := range c.visible() {
			if e.QPN() != p.q.QPN() {
				continue
			}
			switch {
			case e.Op() == ring.CQEReqErr:
				failed++
			case e.Op() == ring.CQERecv || e.Op() == ring.CQERecvImm:
				s.okRecvs++
			case e.Op() == ring.CQERecvErr && e.Syndrome() == ring.SynFlushed:
				s.flushed++
			case e.Op() == ring.CQERecvErr && e.Syndrome() != ring.SynRemoteInval:
				s.protRecvs++
			}
		}
	}
	p.purge(queues)
	s.failed += failed
	unsent := uint64(0)
	for _, w := range p.sends {
		if !w.sent {
			unsent++
		}
		p.give(w)
	}
	if unsent < failed {
		s.fail("QP 0x%x: %d sends failed, %d were there to fail", p.q.QPN(), failed, unsent)
	}
	s.discarded += unsent - failed
	for _, r := range p.recvs {
		s.release(r.slot)
	}
	if len(p.sends)+len(p.recvs) > 0 {
		s.seen.takenAway++
	}
	p.sends, p.recvs, p.entries, p.owed = nil, nil, 0, 0
	p.cursor = len(s.tap.log)
	p.noteRings()
}

// noteRings counts the wraps and the pads of the pair's rings.
func (p *pair) noteRings() {
	c := p.q.Cap()
	if p.mem.SQRec.LoadSend() > uint32(c.SendSlots) {
		p.s.seen.events["a send ring wraps"]++
	}
	if p.mem.RQRec.LoadRecv() > uint32(c.MaxRecvWR) {
		p.s.seen.events["a receive ring wraps"]++
	}
	for i := range p.mem.SQ {
		if b := &p.mem.SQ[i]; b[ring.OffOpcode] == 0 && b[ring.OffDS] == 1 {
			p.s.seen.events["the edge of a send ring is padded"]++
			break
		}
	}
}

// destroy ends the pair in whatever state it is.
func (p *pair) destroy() {
	s := p.s
	p.forget()
	s.must(p.q.Close())
	if p.typ == engine.UD {
		s.uds--
	}
	s.pairs = slices.DeleteFunc(s.pairs, func(o *pair) bool { return o == p })
	for _, c := range s.queues {
		for _, e := range c.visible() {
			if e.QPN() == p.q.QPN() || e.QPN() == p.mem.QPN {
				s.fail("QP 0x%x was destroyed, CQ 0x%x still has a completion of it", p.mem.QPN, c.cq.CQN())
			}
		}
	}
}
