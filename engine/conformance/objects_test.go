package conformance

import (
	"strings"
	"syscall"

	"github.com/bluering/bluering/engine"
)

var _ = register(map[string]func(*trial){
	"A-01": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, n := range []int{0, -1, a.dev.Caps().MaxCQE + 1} {
			_, err := a.dev.NewCQ(n)
			x.want("NewCQ", err, syscall.EINVAL)
		}
	},
	"A-03": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, n := range []int{1, 2, 7, 8, 100, 4095, 4096} {
			q, err := a.dev.NewCQ(n)
			x.ok(err)
			x.check(q.Entries() >= n, "asked for %d, got %d", n, q.Entries())
		}
	},
	"A-05": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		x.want("a CQ in use", a.cq.Close(), syscall.EBUSY)
		x.ok(a.qp.Close())
		x.ok(a.cq.Close())
	},
	"A-06": busyPD,
	"A-09": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		c := a.dev.Caps()
		for what, q := range map[string]engine.QPConfig{
			"send requests": {MaxSendWR: c.MaxSendWR + 1}, "receive requests": {MaxRecvWR: c.MaxRecvWR + 1},
			"send pieces": {MaxSendSGE: c.MaxSendSGE + 1}, "receive pieces": {MaxRecvSGE: c.MaxRecvSGE + 1},
			"inline bytes": {MaxInline: c.MaxInline + 1},
		} {
			q.Type, q.SendCQ, q.RecvCQ = engine.RawPacket, a.cq, a.cq
			_, err := a.pd.NewQP(q)
			x.want(what, err, syscall.EINVAL)
		}
	},
	"A-10": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendWR: 0, MaxRecvWR: 0})
		x.check(a.qp.State() == engine.StateRTS, "state %v", a.qp.State())
	},
	"A-11": func(x *trial) { x.eachInline(func() { grants(x) }) },
	"A-13": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for _, typ := range []engine.QPType{0, 1, 2, 3, 5, 6, 7, 9, 10, 0xff} {
			_, err := a.pd.NewQP(engine.QPConfig{Type: typ, SendCQ: a.cq, RecvCQ: a.cq})
			x.want(typ.String(), err, syscall.EINVAL)
		}
	},
	"A-14": func(x *trial) {
		if !strings.HasPrefix(*flagDevice, "loop:") {
			return // was asked for when the device was opened
		}
		withoutNetRaw(x.T, func() {
			a, b := x.pair(engine.QPConfig{})
			b.receives(b.qp, 1)
			f := a.frame(60, 1)
			a.post(a.send(1, f))
			b.arrives(f)
		})
	},
	"A-18": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		_, err := a.pd.NewQP(engine.QPConfig{Type: engine.UD, SendCQ: a.cq, RecvCQ: a.cq, MaxTSOHeader: 94})
		x.want("a TSO header", err, syscall.EINVAL)
	},
	"A-23": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		q := a.udQP(engine.QPConfig{})
		g := group("239.1.1.1")
		x.ok(q.AttachMulticast(g))
		x.want("a member", q.Close(), syscall.EBUSY)
		x.ok(q.DetachMulticast(g))
		x.ok(q.Close())
	},
	"A-24": destroyWithWork,
})

func busyPD(x *trial) {
	a := x.lone(engine.QPConfig{})
	pd := a.dev.NewPD()
	q, err := pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: a.cq, RecvCQ: a.cq})
	x.ok(err)
	x.want("a queue pair", pd.Close(), syscall.EBUSY)
	x.ok(q.Close())
	mr, err := pd.Register(make([]byte, 100), engine.LocalWrite)
	x.ok(err)
	x.want("a region", pd.Close(), syscall.EBUSY)
	x.ok(pd.Deregister(mr))
	ah, err := pd.NewAH(engine.AHAttr{GID: [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: 2}})
	x.ok(err)
	x.want("an address", pd.Close(), syscall.EBUSY)
	x.ok(ah.Close())
	pool, err := pd.AllocPool(1, 64)
	x.ok(err)
	x.want("a pool", pd.Close(), syscall.EBUSY)
	x.ok(pool.Close())
	srq, err := pd.NewSRQ(engine.SRQConfig{MaxWR: 4})
	x.ok(err)
	x.want("an SRQ", pd.Close(), syscall.EBUSY)
	x.ok(srq.Close())
	x.ok(pd.Close())
}

func grants(x *trial) {
	uri, _ := x.uris()
	a := x.open(uri, engine.QPConfig{})
	for _, n := range []int{1, 3, 64} {
		for _, sge := range []int{0, 1, 5, 30} {
			for _, inline := range []int{0, 18, 100, 800} {
				q := a.raw(engine.QPConfig{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: sge, MaxRecvSGE: sge, MaxInline: inline})
				c := q.Cap()
				x.check(c.MaxSendWR >= n && c.MaxRecvWR >= n && c.MaxSendSGE >= sge && c.MaxRecvSGE >= sge && c.MaxInline >= inline,
					"asked for %d requests of %d pieces and %d bytes inline, got %+v", n, sge, inline, c)
				x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{}))
				if c.MaxInline >= 18 {
					_, err := q.Post([]engine.SendWR{{Opcode: engine.OpSend, Flags: engine.Inline, Inline: make([]byte, c.MaxInline)}})
					x.ok(err)
				}
				wr := engine.SendWR{Opcode: engine.OpSend}
				for range c.MaxSendSGE {
					wr.SGEs = append(wr.SGEs, a.pool.SGE(0, 20))
				}
				if c.MaxSendWR > 1 || c.MaxInline < 18 {
					_, err := q.Post([]engine.SendWR{wr})
					x.ok(err)
				}
				x.ok(q.Close())
			}
		}
	}
}

func destroyWithWork(x *trial) {
	a, b := x.pair(engine.QPConfig{})
	other := b.raw(engine.QPConfig{MaxRecvWR: 4, MaxSendWR: 4})
	x.ok(other.MoveTo(engine.StateRTS, engine.QPAttr{}))
	_, err := other.Attach(engine.FlowRule{Kind: engine.FlowNormal, Match: engine.MatchDstMAC([6]byte{2, 0, 0, 0, 0, 0x99})})
	x.ok(err)
	b.receives(b.qp, 5)
	b.receives(other, 1)
	mine := a.frame(60, 9)
	mine[5] = 0x99
	wrs := append(a.sends(3), a.send(3, mine))
	a.post(wrs...)
	x.work()
	b.post(b.sends(2)...) // executed, completions not polled
	x.work()
	x.ok(b.qp.Close())
	b.arrives(mine) // of the other queue pair, on the same CQ
	b.quiet()
	a.hold()
	a.post(a.sends(2)...) // never executed
	x.ok(a.qp.Close())
	a.quiet()
	x.ok(a.cq.Close())
}
