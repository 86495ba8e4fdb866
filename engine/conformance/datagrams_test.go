package conformance

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
)

var _ = register(map[string]func(*trial){
	"E-01": func(x *trial) {
		a, b, qa, qb := x.udPair()
		for i, n := range []int{1, 2, 3, 4, 60, 255, 1024} {
			buf := b.buffer(qb, 7, n+100)
			data := message(n, byte(i))
			a.postTo(qa, a.gram(3, a.to(b, 4), qb.QPN(), data))
			c := a.one(3, engine.StatusSuccess)
			x.check(c.Opcode == engine.WCSend && !c.Recv, "%+v", c)
			b.got(7, buf, data)
		}
	},
	"E-02": func(x *trial) {
		a, b, qa, qb := x.udPair()
		for _, f := range a.families() {
			buf := b.buffer(qb, 1, 200)
			a.postTo(qa, a.gram(1, a.to(b, f), qb.QPN(), message(33, 5)))
			b.got(1, buf, message(33, 5))
			a.one(1, engine.StatusSuccess)
		}
	},
	"E-03": func(x *trial) {
		h := headerOf(x, 4)[20:]
		x.check(h[0] == 0x45 && h[1] == 0x88 && binary.BigEndian.Uint16(h[2:]) == 20+8+20+36+4 && h[6] == 0x40 && h[8] == 9 &&
			h[9] == 17, "%x", h)
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(h[i:]))
		}
		x.check(sum>>16+sum&0xffff == 0xffff, "checksum of %x", h)
	},
	"E-04": func(x *trial) {
		h := headerOf(x, 6)
		x.check(binary.BigEndian.Uint32(h) == 0x68812345 && binary.BigEndian.Uint16(h[4:]) == 8+20+36+4 && h[6] == 17 && h[7] == 9,
			"%x", h)
	},
	"E-06": func(x *trial) {
		a, b, qa, qb := x.udPair()
		other := a.udQP(engine.QPConfig{})
		for _, q := range []*engine.QP{qa, other} {
			buf := b.buffer(qb, 1, 100)
			a.postTo(q, a.gram(1, a.to(b, 4), qb.QPN(), []byte{1}))
			x.check(b.got(1, buf, []byte{1}).SrcQP == q.QPN(), "source is not 0x%x", q.QPN())
		}
	},
	"E-08": immediate,
	"E-09": func(x *trial) {
		a, b, qa, qb := x.udPair()
		n := a.dev.Caps().MaxDatagram
		buf := b.buffer(qb, 1, n+grhLen)
		a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN(), message(n, 1)))
		a.one(1, engine.StatusSuccess)
		b.got(1, buf, message(n, 1))
	},
	"E-10": tooLong,
	"E-11": func(x *trial) { fits(x, 64, 64+grhLen, true) },
	"E-12": func(x *trial) {
		fits(x, 64, 64+grhLen-1, false)
		x.close()
		sharedFits(x)
	},
	"E-13": func(x *trial) { fits(x, 1, grhLen-1, false) },
	"E-14": func(x *trial) {
		x.params = dropping()
		a, b, qa, qb := x.udPair()
		a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN(), message(50, 1)))
		a.one(1, engine.StatusSuccess)
		b.dropped(engine.DropNoWQE, 1)
		b.quiet()
	},
	"E-15": overflow,
	"E-16": func(x *trial) {
		a, b, qa, qb := x.udPair()
		b.buffer(qb, 1, 100)
		a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN()+5, message(50, 1)))
		a.one(1, engine.StatusSuccess)
		b.dropped(engine.DropUnknownQP, 1)
		b.quiet()
	},
	"E-17": func(x *trial) { strangeHeader(x, engine.DropUnknownQP, func(u *proto.UD) { u.DestQP = 0 }) },
	"E-18": func(x *trial) {
		strangeHeader(x, engine.DropUnknownQP, func(u *proto.UD) { u.DestQP, u.QKey = 1, 0x80010000 })
	},
	"E-19": func(x *trial) {
		strangeHeader(x, engine.DropQPType, func(u *proto.UD) { u.Opcode = 0x04 }) // SEND_ONLY of RC
		x.close()
		a, b, qa, _ := x.udPair()
		raw := b.raw(engine.QPConfig{})
		x.ok(raw.MoveTo(engine.StateRTS, engine.QPAttr{}))
		a.postTo(qa, a.gram(1, a.to(b, 4), raw.QPN(), message(50, 1)))
		a.one(1, engine.StatusSuccess)
		b.dropped(engine.DropQPType, 1)
	},
	"E-20": func(x *trial) {
		a, b, qa, qb := x.udPair()
		ah := a.to(b, 4)
		for i, s := range []engine.QPState{toErr, toReset, toInit} {
			if s == toInit {
				x.ok(qb.MoveTo(s, engine.QPAttr{QKey: qkey}))
			} else {
				x.ok(qb.Modify(s, engine.QPAttr{}, 0))
			}
			a.postTo(qa, a.gram(1, ah, qb.QPN(), message(50, 1)))
			a.one(1, engine.StatusSuccess)
			b.dropped(engine.DropState, uint64(i+1))
		}
	},
	"E-21": func(x *trial) {
		a, b, qa, qb := x.udPair()
		b.buffer(qb, 1, 100)
		wr := a.gram(1, a.to(b, 4), qb.QPN(), message(50, 1))
		wr.RemoteQKey++
		a.postTo(qa, wr)
		a.one(1, engine.StatusSuccess)
		b.dropped(engine.DropQKey, 1)
		b.quiet()
	},
	"E-22": ownQKey,
	"E-23": func(x *trial) {
		a, b, _, qb := x.udPair()
		x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
		for _, key := range []uint16{0x7fff, 0xffff} { // a limited member, a full one
			u := good(qb)
			u.PKey = key
			buf := b.buffer(qb, 1, 100)
			a.inject(roce(a, b, 4, u, message(10, 1)))
			b.got(1, buf, message(10, 1))
		}
		b.buffer(qb, 1, 100)
		for i, key := range []uint16{0, 1, 0x8001, 0x7ffe, 0xfffe} {
			u := good(qb)
			u.PKey = key
			a.inject(roce(a, b, 4, u, message(10, 1)))
			b.dropped(engine.DropPKey, uint64(i+1))
		}
		b.quiet()
	},
	"E-24": func(x *trial) {
		a, b, qa := x.watched()
		b.receives(b.qp, 1)
		a.postTo(qa, a.gram(1, a.to(b, 4), 5, message(10, 1)))
		_, _, u := b.seen()
		x.check(u.PKey == 0xffff, "P_Key 0x%x", u.PKey)
	},
	"E-25": toOneself,
	"E-26": pathFields,
	"E-27": groupCopies,
	"E-28": func(x *trial) {
		strangeHeader(x, engine.DropAddress, func(u *proto.UD) { u.DestQP = proto.MulticastQPN })
	},
	"E-29": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		q := a.udReset(engine.QPConfig{})
		x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{QKey: qkey, SQPSN: 0xfffffe}))
		b.receives(b.qp, 4)
		for _, psn := range []uint32{0xfffffe, 0xffffff, 0, 1} {
			a.postTo(q, a.gram(1, a.to(b, 4), 5, message(10, 1)))
			_, _, u := b.seen()
			x.check(u.PSN == psn, "PSN 0x%x, want 0x%x", u.PSN, psn)
		}
	},
	"E-30": func(x *trial) {
		a, b, qa, qb := x.udPair()
		ah := a.to(b, 4)
		for id := range uint64(60) {
			b.buffer(qb, id, 100)
			a.postTo(qa, a.gram(id, ah, qb.QPN(), message(1+int(id)%20, byte(id))))
		}
		for i, c := range b.take(60) {
			x.check(c.WRID == uint64(i) && c.ByteLen == uint32(grhLen+1+i%20), "%d: %+v", i, c)
		}
	},
})

// dropping gives the parameters with which a frame that finds no receive is dropped: a loop keeps it otherwise.
func dropping() string {
	if strings.HasPrefix(*flagDevice, "loop:") {
		return "drop=1"
	}
	return ""
}

// headerOf gives the 40 bytes in front of a datagram of 33 bytes sent with hop limit 9, traffic class 0x88, and flow
// label 0x12345 over IPv6; the addresses in them are judged here.
func headerOf(x *trial, family int) []byte {
	x.Helper()
	a, b, qa, qb := x.udPair()
	buf := b.buffer(qb, 1, 200)
	d := engine.Dest{GID: b.gid(family), HopLimit: 9, TrafficClass: 0x88}
	if family == 6 {
		d.FlowLabel = 0x12345
	}
	a.postTo(qa, a.gram(1, a.resolve(d), qb.QPN(), message(33, 5)))
	b.got(1, buf, message(33, 5))
	src, dst := a.gid(family), b.gid(family)
	addrs := append(src[:], dst[:]...)
	if family == 4 {
		addrs = append(src[12:], dst[12:]...)
	}
	x.check(bytes.HasSuffix(buf.mem[:grhLen], addrs), "%x does not end in %x", buf.mem[:grhLen], addrs)
	return buf.mem[:grhLen]
}

func immediate(x *trial) {
	a, b, qa, qb := x.udPair()
	bufs := [2]buffer{b.buffer(qb, 1, 100), b.buffer(qb, 2, 100)}
	wr := a.gram(1, a.to(b, 4), qb.QPN(), message(5, 1))
	wr.Opcode, wr.Imm = engine.OpSendImm, 0xdeadbeef
	a.postTo(qa, wr)
	x.check(a.one(1, engine.StatusSuccess).Opcode == engine.WCSend, "opcode")
	c := b.got(1, bufs[0], message(5, 1))
	x.check(c.Flags&engine.WCImm != 0 && c.Imm == 0xdeadbeef, "%+v", c)
	a.postTo(qa, a.gram(2, a.to(b, 4), qb.QPN(), message(5, 2)))
	c = b.got(2, bufs[1], message(5, 2))
	x.check(c.Flags&engine.WCImm == 0 && c.Imm == 0, "%+v", c)
	_, watching := qb.Close(), b.udOff() // b's raw queue pair sees what comes from now on
	b.receives(watching, 1)
	wr.SGEs = []engine.SGE{a.piece(message(5, 1))}
	a.postTo(qa, wr)
	frame, h, _ := b.seen()
	at := h.PayloadOff + proto.BTHBytes + proto.DETHBytes
	x.check(bytes.Equal(frame[at:at+4], []byte{0xde, 0xad, 0xbe, 0xef}), "immediate %x", frame[at:at+4])
}

// udOff brings the raw queue pair up, with all frames.
func (e *end) udOff() *engine.QP {
	e.x.Helper()
	e.x.ok(e.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err := e.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
	e.x.ok(err)
	return e.qp
}

func tooLong(x *trial) {
	a, b, qa, qb := x.udPair()
	n := a.dev.Caps().MaxDatagram
	buf := b.buffer(qb, 7, n+200)
	a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN(), message(n+1, 1)))
	c := a.take(1)[0]
	x.check(c.Status == choose(x, 5, engine.StatusLocLen, engine.StatusSuccess, engine.StatusLocLen), "%+v", c)
	b.quiet()
	x.check(a.counters().TxFrames == 0, "something was sent")
	if x.profile != rxe {
		x.ok(qa.Modify(toRTS, engine.QPAttr{}, 0)) // from SQE
	}
	a.postTo(qa, a.gram(2, a.to(b, 4), qb.QPN(), message(n, 1)))
	b.got(7, buf, message(n, 1)) // the receive was kept
}

// fits sends n bytes to a receive of that many, which takes them or is kept for the next.
func fits(x *trial, n, room int, fit bool) {
	x.Helper()
	a, b, qa, qb := x.udPair()
	buf := b.buffer(qb, 9, room)
	a.postTo(qa, a.gram(1, a.to(b, 4), qb.QPN(), message(n, 3)))
	a.one(1, engine.StatusSuccess)
	if fit {
		b.got(9, buf, message(n, 3))
		return
	}
	b.dropped(engine.DropOversize, 1)
	b.quiet()
	if room >= grhLen {
		a.postTo(qa, a.gram(2, a.to(b, 4), qb.QPN(), message(room-grhLen, 4)))
		b.got(9, buf, message(room-grhLen, 4))
		return
	}
	_, recvs := qb.Outstanding()
	x.check(recvs == 1, "%d receives are left", recvs)
}

func overflow(x *trial) {
	x.params = dropping()
	a, b, qa, qb := x.udPair()
	const posted, sent = 50, 300
	ah := a.to(b, 4)
	for id := range uint64(posted) {
		b.buffer(qb, id, 100)
	}
	for range sent / 50 {
		for id := range uint64(50) {
			a.postTo(qa, a.gram(id, ah, qb.QPN(), nil))
		}
		a.take(50)
	}
	for i, c := range b.take(posted) {
		x.check(c.Status == engine.StatusSuccess && c.WRID == uint64(i), "%+v", c)
	}
	b.dropped(engine.DropNoWQE, sent-posted)
	buf := b.buffer(qb, 1, 100)
	a.postTo(qa, a.gram(1, ah, qb.QPN(), message(9, 9)))
	b.got(1, buf, message(9, 9))
}

// strangeHeader injects a datagram whose header is as good as it can be but for one change, and wants it dropped.
func strangeHeader(x *trial, why engine.DropReason, change func(*proto.UD)) {
	x.Helper()
	a, b, _, qb := x.udPair()
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	buf := b.buffer(qb, 5, 100)
	for i, f := range a.families() {
		u := good(qb)
		change(&u)
		a.inject(roce(a, b, f, u, message(10, 1)))
		b.dropped(why, uint64(i+1))
	}
	b.quiet()
	a.inject(roce(a, b, 4, good(qb), message(10, 1)))
	b.got(5, buf, message(10, 1))
}

func ownQKey(x *trial) {
	a, b, qa, qb := x.udPair()
	buf := b.buffer(qb, 1, 100)
	wr := a.gram(1, a.to(b, 4), qb.QPN(), message(8, 1))
	wr.RemoteQKey = qkey ^ 1<<30 // the bit below: sent as it is
	a.postTo(qa, wr)
	a.one(1, engine.StatusSuccess)
	b.dropped(engine.DropQKey, 1)
	wr.RemoteQKey = 1<<31 | 5
	a.postTo(qa, wr)
	a.one(1, engine.StatusSuccess)
	if choose(x, 10, true, false, true) {
		b.got(1, buf, message(8, 1)) // qa's own is the same as qb's
		b.dropped(engine.DropQKey, 1)
		return
	}
	b.dropped(engine.DropQKey, 2)
	b.quiet()
}

func toOneself(x *trial) {
	a, b, qa, qb := x.udPair()
	other := a.udQP(engine.QPConfig{})
	b.buffer(qb, 1, 100)
	for _, f := range a.families() {
		for _, q := range []*engine.QP{qa, other} {
			buf := a.buffer(q, 2, 100)
			a.postTo(qa, a.gram(2, a.to(a, f), q.QPN(), message(20, 1)))
			a.one(2, engine.StatusSuccess) // the send
			c := a.got(2, buf, message(20, 1))
			x.check(c.QPN == q.QPN() && c.SrcQP == qa.QPN(), "%+v", c)
		}
	}
	sent := uint64(2 * len(a.families()))
	x.check(a.counters().TxFrames == 0 && a.counters().TxLooped == sent, "%+v", a.counters())
	b.quiet()
	wr := a.gram(3, a.to(a, 4), other.QPN(), message(20, 1))
	wr.RemoteQKey = 7
	a.postTo(qa, wr)
	a.one(3, engine.StatusSuccess)
	a.dropped(engine.DropQKey, 1)
	a.postTo(qa, a.gram(4, a.to(a, 4), other.QPN(), message(20, 1)))
	a.one(4, engine.StatusSuccess)
	a.dropped(engine.DropNoWQE, 1)
}

func pathFields(x *trial) {
	a, b, qa := x.watched()
	b.receives(b.qp, 8)
	for _, fam := range a.families() {
		for _, class := range []uint8{0, 0xb9} {
			d := engine.Dest{GID: b.gid(fam), HopLimit: 1, TrafficClass: class, FlowLabel: 0xabcde}
			a.postTo(qa, a.gram(1, a.resolve(d), 5, message(10, 1)))
			frame, h, _ := b.seen()
			ip := frame[h.L3Off:]
			if fam == 4 {
				x.check(ip[8] == 1 && ip[1] == class, "%x", ip[:20])
			} else {
				x.check(ip[7] == 1 && binary.BigEndian.Uint32(ip) == 6<<28|uint32(class)<<20|0xabcde, "%x", ip[:40])
			}
		}
	}
}

func groupCopies(x *trial) {
	for _, g := range []engine.GID{group("239.1.2.3"), group("ff1e::123")} {
		a, b, qa, qb := x.udPair()
		if g.Is4() || len(a.families()) == 2 {
			toMembers(x, a, b, qa, qb, g)
		}
		x.close()
	}
}

// toMembers has three members in a group: the sender, one beside it, one at the other end, where another queue pair is
// none.
func toMembers(x *trial, a, b *end, qa, qb *engine.QP, g engine.GID) {
	x.Helper()
	beside, stranger := a.udQP(engine.QPConfig{}), b.udQP(engine.QPConfig{})
	b.buffer(stranger, 99, 100)
	x.ok(qa.AttachMulticast(g))
	x.ok(beside.AttachMulticast(g))
	x.ok(qb.AttachMulticast(g))
	mine, its, far := a.buffer(qa, 11, 100), a.buffer(beside, 12, 100), b.buffer(qb, 13, 100)
	a.postTo(qa, a.gram(1, a.resolve(engine.Dest{GID: g}), proto.MulticastQPN, message(30, 1)))
	a.one(1, engine.StatusSuccess)
	a.got(11, mine, message(30, 1))
	a.got(12, its, message(30, 1))
	b.got(13, far, message(30, 1))
	a.quiet()
	b.quiet()
	x.ok(qb.DetachMulticast(g))
	a.buffer(qa, 14, 100)
	a.buffer(beside, 15, 100)
	a.postTo(qa, a.gram(2, a.resolve(engine.Dest{GID: g}), proto.MulticastQPN, message(30, 1)))
	if b.dev.Caps().Loop { // others may be left alone by their network
		b.dropped(engine.DropNoGroup, 1)
	}
	b.quiet()
	for _, c := range a.take(3) {
		x.check(c.Status == engine.StatusSuccess, "%+v", c)
	}
}
