package conformance

import (
	"errors"
	"slices"
	"syscall"

	"github.com/bluering/bluering/engine"
)

var _ = register(map[string]func(*trial){
	"C-01": badThird,
	"C-02": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 4)
		wrs := a.sends(3)
		wrs[0].Opcode = 0xff
		a.refused("first", wrs, 0, syscall.EINVAL)
		a.quiet()
		b.quiet()
		x.check(a.counters().TxFrames == 0, "%d frames sent", a.counters().TxFrames)
	},
	"C-03": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 4)
		wrs := a.sends(3)
		wrs[2].Opcode = 0xff
		a.refused("third", wrs, 2, syscall.EINVAL)
		b.arrives(a.frame(60, 0), a.frame(60, 1)) // with no other call on a
	},
	"C-04": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, wrs := range [][]engine.SendWR{nil, {}} {
			n, err := a.qp.Post(wrs)
			x.check(n == 0 && err == nil, "%d, %v", n, err)
			x.ok(a.qp.PostAll(wrs))
		}
		for _, wrs := range [][]engine.RecvWR{nil, {}} {
			n, err := a.qp.PostRecv(wrs)
			x.check(n == 0 && err == nil, "%d, %v", n, err)
		}
		a.quiet()
	},
	"C-05": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		bad := a.sends(1)
		bad[0].Opcode = 0xff
		_, err := a.qp.Post(bad)
		p, is := err.(*engine.PostError)
		x.check(is, "%v", err)
		before := *p
		a.post(a.sends(1)...)
		x.check(*p == before, "a success made %+v of %+v", *p, before)
	},
	"C-06": func(x *trial) {
		for _, asked := range []int{1, 5, 16} {
			a := x.lone(engine.QPConfig{MaxSendWR: asked})
			most := a.qp.Cap().MaxSendWR
			a.refused("one more", a.sends(most+1), most, syscall.ENOMEM)
			a.take(most)
			a.post(a.sends(1)...)
		}
	},
	"C-07": func(x *trial) {
		for _, asked := range []int{1, 5, 16} {
			a := x.lone(engine.QPConfig{MaxRecvWR: asked})
			most := a.qp.Cap().MaxRecvWR
			wrs := make([]engine.RecvWR, most+1)
			for i := range wrs {
				wrs[i].SGEs = []engine.SGE{a.pool.SGE(0, 64)}
			}
			n, err := a.qp.PostRecv(wrs)
			x.want("one more", err, syscall.ENOMEM)
			x.check(n == most && err.(*engine.PostError).Index == most, "posted %d of %d", n, most)
		}
	},
	"C-08": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendWR: 8})
		most := a.qp.Cap().MaxSendWR
		wrs := a.sends(most)
		for i := range wrs {
			if i != 1 {
				wrs[i].Flags = 0
			}
		}
		a.post(wrs...)
		x.work()
		a.refused("executed, not polled", wrs[:1], 0, syscall.ENOMEM)
		c := a.one(1, engine.StatusSuccess)
		x.check(c.Retired == 2, "%+v", c)
		a.refused("room for two", wrs[2:5], 2, syscall.ENOMEM)
	},
	"C-09": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendWR: 8})
		wrs := a.sends(a.qp.Cap().MaxSendWR)
		for i := range wrs {
			wrs[i].Flags = 0
		}
		a.post(wrs...)
		for range 3 {
			a.quiet()
			a.refused("one more", wrs[:1], 0, syscall.ENOMEM)
		}
	},
	"C-10": badReceives,
	"C-11": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendSGE: 3, MaxSendWR: 4})
		wrs := a.sends(2)
		for len(wrs[1].SGEs) <= a.qp.Cap().MaxSendSGE {
			wrs[1].SGEs = append(wrs[1].SGEs, wrs[1].SGEs[0])
		}
		a.refused("a list", wrs, 1, choose(x, 2, syscall.EINVAL, syscall.EINVAL, syscall.ENOMEM))
		x.want("a batch", a.qp.PostAll(wrs), choose(x, 2, syscall.EINVAL, syscall.ENOSPC, syscall.ENOMEM))
	},
	"C-14": func(x *trial) {
		x.eachInline(func() {
			a := x.lone(engine.QPConfig{})
			a.refused("no pieces", []engine.SendWR{{Opcode: engine.OpSend}}, 0, syscall.EINVAL)
		})
	},
	"C-15": func(x *trial) { x.eachInline(func() { shortest(x) }) },
	"C-16": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendSGE: 3, MaxRecvSGE: 3, MaxRecvWR: 2})
		half := engine.SGE{MR: a.pool.MR(), Len: 1 << 30}
		for _, sges := range [][]engine.SGE{{half, half}, {{MR: a.pool.MR(), Len: 1 << 31}}, {half, half, half}} {
			a.refused("a send", []engine.SendWR{{Opcode: engine.OpSend, SGEs: sges}}, 0, syscall.EINVAL)
		}
	},
	"C-17": opcodes,
	"C-13": func(x *trial) {
		a, b, qa, qb := x.udPair()
		for i, sges := range [][]engine.SGE{nil, {{}}, {{}, {Len: 0, Off: 7}}} {
			buf := b.buffer(qb, 5, 100)
			wr := a.gram(uint64(i), a.to(b, 4), qb.QPN(), nil)
			wr.SGEs = sges
			a.postTo(qa, wr)
			a.one(uint64(i), engine.StatusSuccess)
			b.got(5, buf, nil)
		}
	},
	"C-18": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		u := a.ud()
		x.ok(u.MoveTo(toRTS, engine.QPAttr{}))
		for _, op := range []engine.Opcode{11, 12, 100, 255} {
			wr := a.send(1, a.frame(60, 0))
			wr.Opcode, wr.AH = op, a.ah()
			a.refused("raw", []engine.SendWR{wr}, 0, syscall.EINVAL)
			_, err := u.Post([]engine.SendWR{wr})
			x.want("UD", err, syscall.EINVAL)
		}
	},
	"C-19": func(x *trial) { judgeFlag(x, 15, engine.Fence) },
	"C-20": func(x *trial) {
		a, b, qa, qb := x.udPair()
		for _, op := range []engine.Opcode{engine.OpSend, engine.OpSendImm} {
			for _, f := range []engine.SendFlags{0, engine.Solicited} {
				buf := b.buffer(qb, 5, 100)
				wr := a.gram(1, a.to(b, 4), qb.QPN(), message(10, 1))
				wr.Opcode, wr.Flags = op, wr.Flags|f
				a.postTo(qa, wr)
				a.one(1, engine.StatusSuccess)
				c := b.got(5, buf, message(10, 1))
				x.check((c.Flags&engine.WCSolicited != 0) == (f != 0), "%+v", c)
			}
		}
		x.close()
		a, b = x.pair(engine.QPConfig{})
		b.receives(b.qp, 1)
		wr := a.send(1, a.frame(60, 1))
		wr.Flags |= engine.Solicited
		a.post(wr)
		a.one(1, engine.StatusSuccess)
		x.check(b.take(1)[0].Flags&engine.WCSolicited == 0, "a raw receive is solicited")
	},
	"C-21": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		caps := a.dev.Caps()
		wr := a.send(1, a.frame(60, 0))
		wr.Flags |= engine.IPCsum
		less, err := engine.NewDevice(withoutOffloads{a.dev.Backend()})
		x.ok(err)
		cq, err := less.NewCQ(4)
		x.ok(err)
		pd := less.NewPD()
		pool, err := pd.AllocPool(1, 60)
		x.ok(err)
		q, err := pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq})
		x.ok(err)
		x.ok(q.MoveTo(toRTS, engine.QPAttr{}))
		_, err = q.Post([]engine.SendWR{{Opcode: engine.OpSend, Flags: engine.IPCsum, SGEs: []engine.SGE{pool.SGE(0, 60)}}})
		x.want("raw", err, syscall.EINVAL)
		if caps.Has(engine.OffloadUDCsum) {
			return
		}
		u := a.ud()
		x.ok(u.MoveTo(toRTS, engine.QPAttr{}))
		wr.AH = a.ah()
		_, err = u.Post([]engine.SendWR{wr})
		x.want("UD", err, choose[error](x, 17, syscall.EINVAL, nil, nil))
	},
	"C-22": func(x *trial) {
		judgeFlag(x, 15, 1<<5)
		judgeFlag(x, 15, 1<<7)
	},
	"C-23": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 1)
		wr := a.send(1, a.frame(60, 1))
		wr.Flags = 0
		a.post(wr)
		b.arrives(a.frame(60, 1))
		a.quiet()
	},
	"C-24": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendWR: 8, SigAll: true})
		wrs := a.sends(4)
		for i := range wrs {
			wrs[i].Flags = engine.SendFlags(i&1) * engine.Signaled
		}
		a.post(wrs...)
		for i, c := range a.take(4) {
			x.check(c.WRID == uint64(i) && c.Status == engine.StatusSuccess, "%+v", c)
		}
		a.quiet()
	},
	"C-25": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		a.post(engine.SendWR{ID: 3, Opcode: engine.OpSend, SGEs: []engine.SGE{bogus(60)}})
		a.one(3, engine.StatusLocProt)
	},
	"C-26": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 6)
		wrs := a.sends(6)
		var want [][]byte
		for i := range wrs {
			want = append(want, a.frame(60, byte(i)))
			if i < 5 {
				wrs[i].Flags = 0
			}
		}
		a.post(wrs...)
		c := a.one(5, engine.StatusSuccess)
		x.check(c.Retired == 6, "%+v", c)
		b.arrives(want...)
	},
	"C-27": badBatch,
	"C-28": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 2)
		for range 3 {
			_, _, err := a.qp.Reserve(1)
			x.ok(err)
			a.qp.Commit(1, 99)
		}
		a.qp.Abort()
		x.ok(a.qp.Publish()) // there is no batch
		b.quiet()
		sends, _ := a.qp.Outstanding()
		x.check(sends == 0, "%d sends outstanding", sends)
		a.post(a.sends(1)...)
		a.one(0, engine.StatusSuccess)
		b.arrives(a.frame(60, 0))
	},
	"C-29": func(x *trial) {
		a, b, qa, qb := x.udPair()
		buf := b.buffer(qb, 1, 100)
		var err error
		wr := a.gram(1, a.to(b, 4), qb.QPN(), message(10, 1))
		wr.AH, err = a.dev.NewPD().NewAH(wr.AH.Attr())
		x.ok(err)
		_, err = qa.Post([]engine.SendWR{wr})
		x.want("an address of another PD", err, choose[error](x, 20, syscall.EINVAL, nil, nil))
		switch x.profile {
		case strict:
			x.want("its cause", err, engine.CauseAHDomain)
		case rxe:
			a.one(1, engine.StatusLocQPOp)
		case mlx5:
			a.one(1, engine.StatusSuccess)
			b.got(1, buf, message(10, 1))
			return
		}
		a.quiet()
		b.quiet()
	},
	"C-30": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		u := a.ud()
		x.ok(u.MoveTo(toRTS, engine.QPAttr{}))
		_, err := u.Post(a.sends(1))
		x.want("no address", err, syscall.EINVAL)
		wr := a.send(1, make([]byte, 60))
		wr.AH = a.ah()
		x.ok(wr.AH.Close())
		_, err = u.Post([]engine.SendWR{wr})
		x.want("a closed address", err, syscall.EINVAL)
	},
	"C-31": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 2)
		a.hold() // nothing is executed before the request is changed
		wrs := a.sends(1)
		wrs[0].ID = 7
		a.post(wrs...)
		a.post(wrs...)
		wrs[0].SGEs[0] = bogus(1)
		wrs[0] = engine.SendWR{ID: 1}
		a.release()
		b.arrives(a.frame(60, 0), a.frame(60, 0))
		a.one(7, engine.StatusSuccess)
		a.one(7, engine.StatusSuccess)
	},
})

func badThird(x *trial) {
	a, b := x.pair(engine.QPConfig{})
	wrs := make([]engine.RecvWR, 5)
	var frames []uint32
	for i := range wrs {
		f, _ := b.pool.Get()
		frames = append(frames, f)
		wrs[i] = engine.RecvWR{ID: uint64(f), SGEs: []engine.SGE{b.pool.SGE(f, 2048)}}
	}
	wrs[2].SGEs = slices.Repeat(wrs[2].SGEs, b.qp.Cap().MaxRecvSGE+1)
	n, err := b.qp.PostRecv(wrs)
	x.want("receives", err, syscall.EINVAL)
	x.check(n == 2 && err.(*engine.PostError).Index == 2, "posted %d", n)
	_, recvs := b.qp.Outstanding()
	x.check(recvs == 2, "%d receives outstanding", recvs)

	sends := a.sends(5)
	sends[2].Opcode = 0xff
	a.refused("sends", sends, 2, syscall.EINVAL)
	for i, c := range a.take(2) {
		x.check(c.WRID == uint64(i) && c.Status == engine.StatusSuccess, "%+v", c)
	}
	a.quiet()
	b.arrives(a.frame(60, 0), a.frame(60, 1))
	x.check(b.pool.Bytes(frames[0])[14] == a.frame(60, 0)[14], "not in the first receive")
	b.quiet()
}

func badReceives(x *trial) {
	a := x.lone(engine.QPConfig{MaxRecvWR: 4, MaxRecvSGE: 3})
	c := a.qp.Cap()
	good := engine.RecvWR{SGEs: []engine.SGE{a.pool.SGE(0, 64)}}
	bad := engine.RecvWR{SGEs: slices.Repeat(good.SGEs, c.MaxRecvSGE+1)}
	n, err := a.qp.PostRecv([]engine.RecvWR{good, bad})
	x.want("too many pieces", err, syscall.EINVAL)
	x.check(n == 1, "posted %d", n)
	_, err = a.qp.PostRecv(slices.Repeat([]engine.RecvWR{good}, c.MaxRecvWR-1))
	x.ok(err)
	_, err = a.qp.PostRecv([]engine.RecvWR{bad})
	x.want("to a full queue", err, choose(x, 14, syscall.EINVAL, syscall.ENOMEM, syscall.ENOMEM))
}

// shortest judges both edges of the inline minimum of the trial, and what stands before them.
func shortest(x *trial) {
	a, b := x.pair(engine.QPConfig{MaxSendSGE: 3, MaxInline: 64})
	b.receives(b.qp, 10)
	least := max(14, x.inline)
	for _, n := range []int{1, least - 1} {
		wr := a.send(1, a.frame(n, 0))
		if posted := x.inline == 0 && choose(x, 16, false, false, true); posted {
			a.post(wr)
			a.one(1, engine.StatusLocLen)
			a.again()
			continue
		}
		a.refused("too short", []engine.SendWR{wr}, 0, syscall.EINVAL)
		wr.SGEs, wr.Inline, wr.Flags = nil, a.frame(n, 0), engine.Inline
		a.refused("too short, inline", []engine.SendWR{wr}, 0, syscall.EINVAL)
	}
	for _, n := range []int{least, least + 1} {
		f := a.frame(n, byte(n))
		a.post(a.send(1, f))
		a.post(engine.SendWR{Opcode: engine.OpSend, SGEs: []engine.SGE{a.piece(f[:3]), {}, a.piece(f[3:])}})
		a.post(engine.SendWR{Opcode: engine.OpSend, Flags: engine.Inline, Inline: f})
		b.arrives(f, f, f)
		a.one(1, engine.StatusSuccess)
	}
	if x.inline == 0 {
		return
	}
	mr, err := a.pd.Register(make([]byte, 100), 0)
	x.ok(err)
	for what, sge := range map[string]engine.SGE{
		"memory registered elsewhere": bogus(60), "no region": {Len: 60}, "across the end": mr.SGE(90, 60), "beyond the end": mr.SGE(200, 60),
	} {
		a.refused(what, []engine.SendWR{{Opcode: engine.OpSend, SGEs: []engine.SGE{sge}}}, 0, syscall.EINVAL)
		a.refused(what+", second", []engine.SendWR{{Opcode: engine.OpSend, SGEs: []engine.SGE{mr.SGE(0, 5), sge}}}, 0, syscall.EINVAL)
	}
	x.ok(a.pd.Deregister(mr))
	a.refused("a stale region", []engine.SendWR{{Opcode: engine.OpSend, SGEs: []engine.SGE{mr.SGE(0, 60)}}}, 0, syscall.EINVAL)
	a.quiet()
}

func opcodes(x *trial) {
	a := x.lone(engine.QPConfig{})
	u := a.ud()
	for op := engine.OpWrite; op <= engine.OpTSO; op++ {
		wr := a.send(1, a.frame(60, 0))
		wr.Opcode, wr.AH, wr.MSS, wr.TSOHeader = op, a.ah(), 20, make([]byte, 54)
		for _, q := range []*engine.QP{a.qp, u} {
			x.ok(q.Modify(toReset, engine.QPAttr{}, 0))
			x.ok(q.MoveTo(toRTS, engine.QPAttr{}))
			_, err := q.Post([]engine.SendWR{wr})
			switch {
			case op == engine.OpSend, op == engine.OpSendImm && q == u:
				x.ok(err)
				a.take(1)
			case op == engine.OpTSO || choose(x, 4, true, true, false):
				x.want(q.Type().String(), err, syscall.EINVAL) // neither queue pair has a TSO header
			default:
				x.ok(err)
				a.one(1, engine.StatusLocQPOp)
			}
		}
	}
}

// judgeFlag posts with a flag that strict refuses and others ignore.
func judgeFlag(x *trial, point int, f engine.SendFlags) {
	a, b := x.pair(engine.QPConfig{})
	b.receives(b.qp, 2)
	u := a.ud()
	x.ok(u.MoveTo(toRTS, engine.QPAttr{}))
	wr := a.send(1, a.frame(60, 0))
	wr.Flags |= f
	datagram := wr
	datagram.AH = a.ah()
	n, err := u.Post([]engine.SendWR{datagram})
	if choose(x, point, true, false, false) {
		x.want("UD", err, syscall.EINVAL)
		a.refused("raw", []engine.SendWR{wr}, 0, syscall.EINVAL)
		return
	}
	x.check(n == 1 && err == nil, "UD: %v", err)
	a.one(1, engine.StatusSuccess)
	b.one(0, engine.StatusSuccess)
	a.post(wr)
	b.arrives(a.frame(60, 0))
	a.one(1, engine.StatusSuccess)
}

func badBatch(x *trial) {
	a, b := x.pair(engine.QPConfig{})
	b.receives(b.qp, 4)
	wrs := a.sends(4)
	wrs[2].Opcode = 0xff
	err := a.qp.PostAll(wrs)
	var p *engine.PostError
	x.check(errors.As(err, &p) && p.Index == 2 && p.Errno == syscall.EINVAL, "%v", err)
	b.quiet()
	a.quiet()
	_, _, err = a.qp.Reserve(1)
	x.ok(err)
	a.qp.Commit(1, 9)
	_, _, err = a.qp.Reserve(a.qp.Cap().MaxBlocks + 1)
	x.want("a WQE too large", err, syscall.EINVAL)
	x.want("its batch", a.qp.Publish(), syscall.EINVAL)
	b.quiet()
	sends, _ := a.qp.Outstanding()
	x.check(sends == 0, "%d sends outstanding", sends)
	x.ok(a.qp.PostAll(wrs[:2]))
	b.arrives(a.frame(60, 0), a.frame(60, 1))
	a.take(2)
}

// withoutOffloads is a device that does nothing to packets.
type withoutOffloads struct{ engine.Backend }

func (w withoutOffloads) Caps() engine.Caps {
	c := w.Backend.Caps()
	c.Offloads = 0
	return c
}
