package softnic

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// fuzzWorld is a NIC with a UD queue pair in a group, a raw one for what is left, and the other end of its wire.
type fuzzWorld struct {
	from, to *NIC
	tx       *host
	ud, raw  *host
}

func newFuzzWorld(t testing.TB, drop bool) *fuzzWorld {
	a, b := loopPair(t, "", Config{Drop: drop})
	w := &fuzzWorld{from: a, to: b, tx: newHost(t, a, hostConfig{sendWR: 64})}
	w.ud = udHost(t, b, 0x111, hostConfig{access: rw, recvWR: 32, sge: 2}, engine.QPAttr{QKey: 0x11111111})
	w.raw = newHost(t, b, hostConfig{access: rw, recvWR: 32})
	if err := b.AttachMulticast(0x111, engine.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 1, 15: 1}); err != nil {
		t.Fatal(err)
	}
	return w
}

// send gives the frame to the NIC as often as asked, and demands that each is accounted for exactly once.
func (w *fuzzWorld) send(t *testing.T, frame []byte, times int) {
	if len(frame) < 14 || len(frame) > 9014 {
		return
	}
	c := &w.to.counters
	before := *c
	copy(w.tx.mem, frame)
	for range times {
		for _, h := range []*host{w.ud, w.raw} {
			if h.rq.Outstanding() == 0 {
				h.rq.Post1(h.seg(100, 9100), 1)
				h.rq.Publish()
			}
		}
		w.tx.post(1, true, nil, nil, w.tx.seg(0, len(frame)))
		w.tx.ring()
		w.to.Step(8)
		for _, h := range []*host{w.ud, w.raw} {
			h.receives()
		}
		w.tx.sends()
	}
	dropped := uint64(0)
	for i := range c.Drops {
		dropped += c.Drops[i] - before.Drops[i]
	}
	delivered, cnps := c.RxFrames-before.RxFrames, c.RxCNPs-before.RxCNPs
	if delivered+dropped+cnps != uint64(times)+c.RxCopies-before.RxCopies {
		t.Fatalf("%x sent %d times: %d delivered, %d dropped, %d notifications", frame, times, delivered, dropped, cnps)
	}
	for i := range w.ud.mem[:100] {
		if w.ud.mem[i] != 0xa5 {
			t.Fatalf("byte %d before the receive was written", i)
		}
	}
}

// mend makes the lengths and checksums of a damaged frame right again, so that the damage gets further.
func mend(frame []byte) {
	var h proto.Headers
	if len(frame) < 54 || !proto.Parse(frame, &h) || h.L3Off+40 > len(frame) {
		return
	}
	ip := frame[h.L3Off:]
	l4 := 40
	if ip[0]>>4 == 4 {
		l4 = 20
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], csum.Finish(csum.Sum(ip[:20], 0)))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}
	if len(ip) < l4+8+12+8+4 {
		return
	}
	binary.BigEndian.PutUint16(ip[l4+4:], uint16(len(ip)-l4))
	end := len(ip) - proto.ICRCBytes
	proto.PutICRC(ip[end:], proto.ICRC(ip, ip[0]>>4, l4, end))
}

// Whatever comes, nothing panics and every frame counts once: as delivered, as a notification, or under one reason.
func FuzzReceivedFrame(f *testing.F) {
	for _, g := range golden {
		frame, err := hex.DecodeString(g)
		if err != nil {
			f.Fatal(err)
		}
		var h proto.Headers
		proto.Parse(frame, &h)
		if h.IPVersion == 4 {
			copy(frame[h.DstOff:], []byte{198, 18, 0, 2})
		} else {
			copy(frame[h.DstOff:], []byte{0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2})
		}
		frame[h.PayloadOff+6], frame[h.PayloadOff+7] = 1, 0x11
		f.Add(frame, true, uint8(0), uint16(0))
		for _, at := range []int{0, 12, 14, 15, 16, 20, 23, h.L4Off + 2, h.L4Off + 4, h.PayloadOff, h.PayloadOff + 1, h.PayloadOff + 2,
			h.PayloadOff + 5, h.PayloadOff + 12, h.DstOff, len(frame) - 1} {
			for _, v := range []uint8{0x01, 0x10, 0x81, 0xff} {
				f.Add(frame, true, v, uint16(at))
				f.Add(frame, false, v, uint16(at))
			}
		}
		f.Add(append(append(frame[:12:12], 0x81, 0, 0, 0), frame[12:]...), true, uint8(0), uint16(0))
		group := append([]byte(nil), frame...)
		group[0], group[h.PayloadOff+5], group[h.PayloadOff+6], group[h.PayloadOff+7] = 1, 0xff, 0xff, 0xff
		copy(group[h.DstOff:], []byte{239, 1, 1, 1})
		f.Add(group, true, uint8(0), uint16(0))
		cnp := append(append([]byte(nil), frame[:h.PayloadOff]...), make([]byte, 32)...)
		cnp[h.PayloadOff] = proto.OpCNP
		f.Add(cnp, true, uint8(0), uint16(0))
	}
	f.Fuzz(func(t *testing.T, frame []byte, whole bool, v uint8, at uint16) {
		frame = append([]byte(nil), frame...)
		if len(frame) > 0 {
			frame[int(at)%len(frame)] ^= v
		}
		if whole {
			mend(frame)
		}
		w := newFuzzWorld(t, v&1 == 0)
		w.send(t, frame, 3) // the third may meet what the others taught
	})
}

// Each reason is met by some frame, so that the fuzzing begins everywhere.
func TestEveryReasonToDropADatagram(t *testing.T) {
	w := newFuzzWorld(t, true)
	base := proto.UD{Opcode: proto.OpUDSend, PKey: 0xffff, DestQP: 0x111, QKey: 0x11111111, SrcQP: 9}
	frame := func(change func(u *proto.UD), payload int) []byte {
		u := base
		change(&u)
		head := make([]byte, 24)
		head = head[:u.Put(head)]
		b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 9, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
			0xc0, 0, proto.RoCEPort >> 8, proto.RoCEPort & 0xff, 0, 0, 0, 0}
		b = append(append(b, head...), make([]byte, payload+4)...)
		mend(b)
		return b
	}
	none := func(*proto.UD) {}
	bad := frame(none, 8)
	bad[len(bad)-1] ^= 1
	badIP := frame(none, 8)
	badIP[22]++ // TTL, which the ICRC does not cover
	short := frame(none, 8)
	short[39]--
	other := frame(none, 8)
	other[33] = 3
	mend(other)
	stranger := frame(func(u *proto.UD) { u.DestQP = proto.MulticastQPN }, 8)
	copy(stranger[30:], []byte{239, 9, 9, 9})
	mend(stranger)
	for _, c := range []struct {
		frame []byte
		why   engine.DropReason
	}{
		{bad, engine.DropChecksum}, {badIP, engine.DropChecksum}, {short, engine.DropMalformed},
		{frame(func(u *proto.UD) { u.Pad = 3 }, 0), engine.DropMalformed},
		{frame(func(u *proto.UD) { u.Opcode = 0x66 }, 8), engine.DropMalformed},
		{frame(func(u *proto.UD) { u.Version = 1 }, 8), engine.DropVersion},
		{frame(func(u *proto.UD) { u.DestQP = 0 }, 8), engine.DropUnknownQP},
		{frame(func(u *proto.UD) { u.Opcode = 4 }, 8), engine.DropQPType},
		{frame(func(u *proto.UD) { u.PKey = 0x8001 }, 8), engine.DropPKey},
		{frame(func(u *proto.UD) { u.QKey++ }, 8), engine.DropQKey},
		{other, engine.DropAddress}, {stranger, engine.DropNoGroup},
		{frame(func(u *proto.UD) { u.DestQP = proto.MulticastQPN }, 8), engine.DropAddress},
		{frame(none, 9000-62), engine.NumDropReasons}, {frame(none, 8), engine.NumDropReasons},
	} {
		before := w.to.counters.Drops
		w.send(t, c.frame, 1)
		for why := range w.to.counters.Drops {
			want := before[why]
			if engine.DropReason(why) == c.why {
				want++
			}
			if got := w.to.counters.Drops[why]; got != want {
				t.Errorf("%x: %d dropped for %v, want %d for %v", c.frame, got-before[why], engine.DropReason(why), want-before[why], c.why)
			}
		}
	}
	cnp := frame(func(u *proto.UD) { u.Opcode = proto.OpCNP }, 8)
	w.send(t, cnp, 2)
	if w.to.counters.RxCNPs != 2 {
		t.Errorf("%d notifications", w.to.counters.RxCNPs)
	}
}

// A damaged datagram of a known flow is not delivered, whichever bit it is.
func TestADamagedDatagramIsNotDelivered(t *testing.T) {
	w := newFuzzWorld(t, true)
	frame, _ := hex.DecodeString(golden[0])
	copy(frame[30:], []byte{198, 18, 0, 2})
	frame[48], frame[49] = 1, 0x11
	mend(frame)
	w.send(t, frame, 2)
	taken := w.to.counters.RxFrames
	if taken != 2 {
		t.Fatalf("%d of 2 are delivered", taken)
	}
	for bit := 14 * 8; bit < len(frame)*8; bit++ {
		masked := bit/8 == 40 || bit/8 == 41 || bit/8 == 46 // UDP checksum, congestion bits: not covered, and of no account
		bent := append([]byte(nil), frame...)
		bent[bit/8] ^= 1 << (bit % 8)
		w.send(t, bent, 1)
		w.send(t, frame, 1)
		taken++
		if masked {
			taken++
		}
		toRaw := w.to.counters.RxFrames - taken // no RoCE frame any more: it went to the raw queue pair
		if toRaw > 1 {
			t.Fatalf("bit %d: %d delivered too many", bit, toRaw)
		}
		if toRaw == 1 && bit/8 != 14 && bit/8 != 20 && bit/8 != 21 && bit/8 != 23 && bit/8 != 36 && bit/8 != 37 {
			t.Fatalf("byte %d, bit %d: a damaged datagram is delivered", bit/8, bit%8)
		}
		taken += toRaw
	}
}

// A datagram is sent and received without an allocation.
func TestDatagramsAllocateNothing(t *testing.T) {
	for _, g := range []string{golden[0], golden[4]} {
		frame, _ := hex.DecodeString(g)
		p := takeApart(t, frame)
		a, b := p.pairFor(t, frame, Config{})
		tx := udHost(t, a, 0x12, hostConfig{sendWR: 16}, engine.QPAttr{})
		rx := udHost(t, b, p.u.DestQP, hostConfig{access: rw}, engine.QPAttr{QKey: p.u.QKey})
		av := p.av(frame)
		got := 0
		if n := testing.AllocsPerRun(200, func() {
			rx.rq.Post1(rx.seg(0, 8000), 1)
			rx.rq.Publish()
			tx.postUD1(&p, &av)
			b.Step(8)
			for _, ok := rx.rcq.Peek(); ok; _, ok = rx.rcq.Peek() {
				rx.rq.Take()
				rx.rcq.Consume()
				got++
			}
			rx.rcq.Update()
		}); n != 0 || got != 201 {
			t.Errorf("%v allocations, %d received", n, got)
		}
	}
}

// postUD1 is postUD of one piece, without an allocation.
func (h *host) postUD1(p *parts, av *ring.AV) {
	w, pi, ok := h.sq.Reserve(2)
	if !ok {
		h.t.Fatal("the send queue is full")
	}
	op := ring.OpSend
	if p.u.HasImm {
		op = ring.OpSendImm
	}
	ring.PutCtrl(&w[0], uint16(pi), op, h.qpn, 5, ring.FlagSignaled, p.u.Imm)
	ring.PutDatagram(&w[0], av, p.u.QKey, p.u.DestQP)
	ring.PutData(w, 4, h.seg(0, len(p.payload)))
	h.sq.Commit(2, 1)
	h.ring()
	for c, ok := h.scq.Peek(); ok; c, ok = h.scq.Peek() {
		h.sq.Retire(c.Counter())
		h.scq.Consume()
	}
	h.scq.Update()
}
