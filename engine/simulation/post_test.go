package simulation

import (
	"slices"

	"github.com/bluering/bluering/engine"
)

// request is a send request with what should come of it.
type request struct {
	wr    engine.SendWR
	send  *send
	cause engine.Cause // why it is refused
}

// post posts one to four sends of any kind.
func (p *pair) post() {
	s := p.s
	count := 1 + s.rnd.IntN(4)
	if s.one(8) {
		count = 20 // runs into the queue's end
	}
	if p.alike = p.typ == engine.UD && s.grams && s.one(3); p.alike {
		count = 20
	}
	free := p.q.Cap().MaxSendWR - len(p.sends)
	var rs []request
	var wrs []engine.SendWR
	cause := engine.CauseNone
	want := 0
	for i := range count {
		if i > free || len(s.free) < 2 {
			break
		}
		r := p.request(p.alike || i == 0 || !s.one(2))
		rs = append(rs, r)
		wrs = append(wrs, r.wr)
		if cause != engine.CauseNone {
			continue
		}
		switch {
		case i == free:
			cause = engine.CauseFull
		case r.cause != engine.CauseNone:
			cause = r.cause
		default:
			want++
		}
	}
	if p.asked < engine.StateRTS && len(wrs) > 0 {
		want, cause = 0, engine.CauseState
	}
	all := s.one(4)
	if all && cause != engine.CauseNone {
		want = 0
	}
	for _, r := range rs[:want] {
		p.sends = append(p.sends, r.send)
	}
	s.posted += uint64(want)
	var n int
	var err error
	if all {
		if err = p.q.PostAll(wrs); err == nil {
			n = len(wrs)
		}
	} else {
		n, err = p.q.Post(wrs)
	}
	s.trace("  %d of %d sends, all or none: %v", want, len(wrs), all)
	p.expect(n, err, want, cause)
	for i, r := range rs {
		clear(r.wr.Inline) // the engine has read it
		if i >= want && r.send.slot >= 0 {
			s.release(r.send.slot)
		}
	}
}

// request makes a send request. usual ones are what an application posts.
func (p *pair) request(usual bool) request {
	s := p.s
	s.wrID++
	least := 14
	if s.cfg.MinInline > 14 && p.typ == engine.RawPacket {
		least = s.cfg.MinInline
	}
	length := least + s.rnd.IntN(120)
	w := &send{id: s.wrID, seq: p.seq, slot: s.take(0), signaled: !s.one(3)}
	p.seq++
	r := request{send: w}
	r.wr = engine.SendWR{ID: w.id, Opcode: engine.OpSend}
	if w.signaled {
		r.wr.Flags = engine.Signaled
	}
	if p.sigAll {
		w.signaled = true
	}
	kind := 0
	if !usual || s.one(12) {
		kind = s.rnd.IntN(12)
	}
	switch {
	case p.typ == engine.UD && s.grams:
		p.datagram(&r, usual)
		return r
	case p.typ == engine.UD:
		kind, w.want = 0, engine.StatusLocQPOp
		r.wr.AH = s.ah
	case s.grams && (kind == 5 || kind == 6): // no slot holds what is too long there
		kind = 0
	}
	switch kind {
	case 5: // as long as can be, with a tag or without
		length = maxFrame - s.rnd.IntN(6)
	case 6:
		length = maxFrame + 1 + s.rnd.IntN(50)
	case 7:
		length = 1 + s.rnd.IntN(13)
	case 8, 9, 10, 11:
		length = max(length, 60)
	}
	p.fill(w, length)
	p.pieces(&r, kind)
	if kind == 5 && length > mtu+14 && w.frame[12] != 0x81 || kind == 6 {
		w.want = engine.StatusLocLen
	}
	if kind == 7 {
		switch {
		case s.cfg.Profile != engine.ProfileMLX5 || s.cfg.MinInline != 0:
			r.cause = engine.CauseShort
		default:
			w.want = engine.StatusLocLen
		}
	}
	return r
}

// fill writes a frame that names pair and request.
func (p *pair) fill(w *send, length int) {
	s := p.s
	if s.one(2) {
		w.off = room - length // up to the end
	}
	b := s.room(w.slot)[w.off:][:length]
	dst := [6]byte{2, 0xfe, 0, 0, byte(1 - s.n), byte(s.rnd.IntN(5))}
	if s.one(6) {
		dst = [6]byte{1, 0, 0x5e, 0, 0, 1}
	}
	for i := range b {
		b[i] = byte(i*7 + int(w.seq)*13 + p.id*31)
	}
	if p.typ == engine.UD && s.grams {
		w.frame = slices.Clone(b)
		return
	}
	copy(b, dst[:])
	copy(b[min(6, length):], []byte{2, byte(s.n), byte(p.id >> 8), byte(p.id), byte(w.seq >> 8), byte(w.seq), 0x88, 0xb5})
	if s.one(4) && length > 18 {
		copy(b[12:], []byte{0x81, 0})
	}
	w.frame = slices.Clone(b)
}

// pieces names the frame's bytes in the request, or other bytes when the kind is a fault.
func (p *pair) pieces(r *request, kind int) {
	s, w := p.s, r.send
	off, n := w.slot*slotBytes+guard+w.off, len(w.frame)
	r.wr.SGEs = []engine.SGE{s.rw.SGE(off, n)}
	split := func(mr engine.MR) {
		r.wr.SGEs = []engine.SGE{s.ro.SGE(off, 30), mr.SGE(off+30, n-30)}
	}
	switch kind {
	case 1, 2: // two pieces, and one that is empty where there is room for it
		if s.one(3) && p.typ == engine.RawPacket {
			r.wr.Flags |= engine.IPCsum // the frame is not IP, and comes as it is
		}
		if n > 40 {
			split(s.temp)
			w.temp = true
			if p.q.Cap().MaxSendSGE > 2 {
				r.wr.SGEs = slices.Insert(r.wr.SGEs, s.rnd.IntN(3), engine.SGE{MR: s.stale})
			}
		}
	case 3, 4:
		p.inline(r)
	case 8:
		split(engine.MRFromKey(s.rw.LKey()+1, s.rw.Addr(), memBytes))
		w.want = engine.StatusLocProt
	case 9:
		split(s.rw)
		r.wr.SGEs[1].Off = memBytes - 29 // n is at least 60
		if s.one(2) {
			r.wr.SGEs[1].Off = 1 << 30
		}
		w.want = engine.StatusLocProt
	case 10:
		split(s.alien)
		w.want = engine.StatusLocProt
	case 11:
		p.refused(r, off, n)
	}
}

// inline puts the frame into the request itself, where it fits.
func (p *pair) inline(r *request) {
	w := r.send
	r.wr.Inline, r.wr.SGEs = slices.Clone(w.frame), nil
	r.wr.Flags |= engine.Inline
	if len(w.frame) > p.q.Cap().MaxInline {
		r.cause = engine.CauseInline
	}
}

// refused makes a request that the engine does not take, or that only a device of profile mlx5 judges.
func (p *pair) refused(r *request, off, n int) {
	s := p.s
	switch s.rnd.IntN(6) {
	case 0:
		if p.typ == engine.UD { // legal: it has no bytes
			r.send.frame = nil
			r.wr.SGEs = nil
			break
		}
		r.wr.SGEs, r.cause = nil, engine.CauseNoData
	case 1:
		r.wr.SGEs, r.cause = make([]engine.SGE, p.q.Cap().MaxSendSGE+1), engine.CauseSGECount
	case 2:
		r.wr.SGEs[0].MR, r.cause = s.stale, engine.CauseKey
	case 3:
		r.wr.SGEs[0].MR = engine.MRFromKey(0xffffff00, 1, 1)
		if r.send.want = engine.StatusLocProt; s.cfg.MinInline != 0 && p.typ == engine.RawPacket {
			r.cause = engine.CauseForeignKey
		}
	case 4:
		r.wr.SGEs[0].Off = memBytes
		if r.send.want = engine.StatusLocProt; s.cfg.MinInline != 0 && p.typ == engine.RawPacket {
			r.cause = engine.CauseBounds
		}
	case 5:
		r.wr.Opcode = engine.OpRead
		if r.send.want = engine.StatusLocQPOp; s.cfg.Profile != engine.ProfileMLX5 {
			r.cause = engine.CauseOpcode
		}
	}
}

// postRecv posts one to four receives of any kind.
func (p *pair) postRecv() {
	s := p.s
	rs, wrs, want, cause := s.receives(p.q.Cap().MaxRecvWR-len(p.recvs), p.q.Cap().MaxRecvSGE, false)
	if p.asked == engine.StateReset && len(wrs) > 0 {
		want, cause = 0, engine.CauseState
	}
	if p.srq != nil && len(wrs) > 0 {
		want, cause = 0, engine.CauseSRQ
	}
	n, err := p.q.PostRecv(wrs)
	for _, r := range rs[:want] {
		r.counter = p.entries
		p.entries++
		p.recvs = append(p.recvs, r)
	}
	p.expect(n, err, want, cause)
	for _, r := range rs[want:] {
		s.release(r.slot)
	}
}

// receives makes one to four receive requests, as receive does, for a queue with room for free. A queue that takes
// receives at all posts want of them and refuses the next for the cause.
func (s *side) receives(free, sges int, foreign bool) (rs []*recv, wrs []engine.RecvWR, want int, cause engine.Cause) {
	for i := range 1 + s.rnd.IntN(4) {
		if i > free || len(s.free) < 2 {
			break
		}
		r, wr, refused := s.receive(sges, foreign)
		rs, wrs = append(rs, r), append(wrs, wr)
		switch {
		case cause != engine.CauseNone:
		case refused != engine.CauseNone && (i < free || s.cfg.Profile == engine.ProfileStrict):
			cause = refused
		case i == free:
			cause = engine.CauseFull
		default:
			want++
		}
	}
	return rs, wrs, want, cause
}

// receive makes a receive request of up to sges pieces, of the second protection domain if foreign is set.
func (s *side) receive(sges int, foreign bool) (*recv, engine.RecvWR, engine.Cause) {
	s.wrID++
	r := &recv{id: s.wrID, slot: s.take(freshByte), room: room, bad: -1, temp: -1}
	off := r.slot*slotBytes + guard
	one := func(mr engine.MR) []engine.SGE { return []engine.SGE{mr.SGE(off, r.room)} }
	own, other := s.rw, s.alien
	if foreign {
		own, other = other, own
	}
	two := func(mr engine.MR) []engine.SGE {
		return []engine.SGE{own.SGE(off, 30), mr.SGE(off+30, r.room-30)}
	}
	pieces, cause := one(own), engine.CauseNone
	kind := s.rnd.IntN(40)
	if foreign && (kind == 4 || kind == 8 || kind == 9) {
		kind = 5 // the region that may be deregistered is not of that domain either
	}
	if sges < 2 && kind >= 1 && kind <= 5 {
		kind = 0
	}
	switch kind {
	case 1, 2, 3:
		pieces = two(own)
	case 4:
		pieces, r.temp = two(s.temp), 30
	case 5:
		pieces, r.bad = two(other), 30
	case 6, 7:
		r.room = 64
		pieces = one(own)
	case 8, 9:
		pieces, r.temp = one(s.temp), 0
	case 10:
		pieces, r.bad = one(s.ro), 0
	case 11:
		pieces, r.bad = one(engine.MRFromKey(s.rw.LKey()^0x4000, s.rw.Addr(), memBytes)), 0
	case 12:
		pieces[0].Off, r.bad = memBytes-8, 0
	case 13:
		pieces, cause = one(s.stale), engine.CauseKey
	case 14:
		if s.one(4) {
			pieces, r.room = nil, 0
		}
	case 15:
		pieces, cause = make([]engine.SGE, sges+1), engine.CauseSGECount
	}
	return r, engine.RecvWR{ID: r.id, SGEs: pieces}, cause
}
