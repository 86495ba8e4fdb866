package conformance

import (
	"bytes"
	"slices"
	"syscall"

	"github.com/bluering/bluering/engine"
)

var _ = register(map[string]func(*trial){
	"D-01": func(x *trial) {
		x.eachInline(func() {
			a, b := x.pair(engine.QPConfig{MaxInline: 200})
			b.receives(b.qp, 1)
			a.hold() // nothing is executed before the bytes change
			data := a.frame(200, 1)
			want := slices.Clone(data)
			a.post(engine.SendWR{Opcode: engine.OpSend, Flags: engine.Inline, Inline: data})
			clear(data)
			a.release()
			b.arrives(want)
		})
	},
	"D-02": func(x *trial) {
		x.eachInline(func() {
			a, b := x.pair(engine.QPConfig{MaxInline: 64})
			b.receives(b.qp, 1)
			a.post(engine.SendWR{ID: 1, Opcode: engine.OpSend, Flags: engine.Inline | engine.Signaled, Inline: a.frame(64, 3)})
			a.one(1, engine.StatusSuccess)
			b.arrives(a.frame(64, 3))
		})
	},
	"D-03": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxInline: 60})
		wrs := []engine.SendWR{{Opcode: engine.OpSend, Flags: engine.Inline, Inline: make([]byte, a.qp.Cap().MaxInline+1)}}
		a.refused("a list", wrs, 0, choose(x, 3, syscall.EINVAL, syscall.EINVAL, syscall.ENOMEM))
		x.want("a batch", a.qp.PostAll(wrs), choose(x, 3, syscall.EINVAL, syscall.ENOSPC, syscall.ENOMEM))
	},
	"D-04": func(x *trial) {
		x.eachInline(func() {
			a, b := x.pair(engine.QPConfig{MaxInline: 100})
			b.receives(b.qp, 1)
			most := a.qp.Cap().MaxInline
			f := a.frame(most+1, 1)
			n, err := a.qp.Post([]engine.SendWR{{Opcode: engine.OpSend, Flags: engine.Inline, Inline: f}})
			x.check(n == 0, "posted %d", n)
			x.want("a byte more", err, engine.CauseInline)
			a.post(engine.SendWR{Opcode: engine.OpSend, Flags: engine.Inline, Inline: f[:most]})
			b.arrives(f[:most])
		})
	},
	"D-05": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxInline: 60})
		a.refused("TSO", []engine.SendWR{{Opcode: engine.OpTSO, Flags: engine.Inline, Inline: make([]byte, 60),
			TSOHeader: make([]byte, 54), MSS: 20}}, 0, syscall.EINVAL)
	},
	"D-06": func(x *trial) {
		x.eachInline(func() {
			a := x.lone(engine.QPConfig{MaxSendSGE: 2, MaxSendWR: 4})
			head := a.piece(a.frame(18, 0))
			a.fails(head, bogus(60))
			key := engine.MRFromKey(a.pool.MR().LKey()^1, a.pool.MR().Addr(), 100) // another generation
			a.fails(head, key.SGE(0, 60))
		})
	},
	"D-07": func(x *trial) { x.eachInline(func() { edges(x) }) },
	"D-08": func(x *trial) {
		x.eachInline(func() {
			a := x.lone(engine.QPConfig{MaxSendSGE: 2, MaxSendWR: 4})
			mr, err := a.dev.NewPD().Register(make([]byte, 100), engine.LocalWrite)
			x.ok(err)
			a.fails(mr.SGE(0, 60))
			a.fails(a.piece(a.frame(60, 0)), mr.SGE(0, 60))
		})
	},
	"D-09": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		mem := make([]byte, 2048)
		mr, err := b.pd.Register(mem, 0)
		x.ok(err)
		x.ok(b.qp.PostRecv1(7, mr.SGE(0, 2048)))
		b.quiet()
		a.post(a.sends(1)...)
		c := b.one(7, engine.StatusLocProt)
		x.check(c.Recv && b.qp.State() == toErr && bytes.Equal(mem, make([]byte, 2048)), "%+v, state %v", c, b.qp.State())
	},
	"D-10": func(x *trial) {
		x.eachInline(func() {
			a, b := x.pair(engine.QPConfig{})
			b.receives(b.qp, 1)
			f := a.frame(60, 5)
			mr, err := a.pd.Register(f, 0)
			x.ok(err)
			a.post(engine.SendWR{ID: 1, Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{mr.SGE(0, 60)}})
			a.one(1, engine.StatusSuccess)
			b.arrives(f)
		})
	},
	"D-11": func(x *trial) {
		x.eachInline(func() {
			a, b := x.pair(engine.QPConfig{MaxSendSGE: 5})
			f := a.frame(60, 5)
			g, _ := b.pool.Get()
			_, err := b.qp.PostRecv([]engine.RecvWR{{ID: uint64(g), SGEs: []engine.SGE{bogus(0), {}, b.pool.SGE(g, 2048), bogus(0)}}})
			x.ok(err)
			a.post(engine.SendWR{Opcode: engine.OpSend, SGEs: []engine.SGE{bogus(0), a.piece(f[:20]), {}, a.piece(f[20:]), bogus(0)}})
			b.arrives(f)
		})
	},
	"D-13": deregistered,
	"D-14": func(x *trial) {
		x.eachInline(func() {
			a, b := x.pair(engine.QPConfig{MaxSendSGE: 10, MaxSendWR: 32})
			sizes := []int{1, 0, 63, 2, 17, 0, 300, 64, 5, 18}
			for n := 0; n < len(sizes); n++ {
				b.receives(b.qp, 1)
				slices.Reverse(sizes[:n])
				total := 0
				for _, s := range sizes {
					total += s
				}
				f, wr := a.frame(total, byte(n)), engine.SendWR{ID: 1, Opcode: engine.OpSend, Flags: engine.Signaled}
				rest := f
				for _, s := range sizes {
					wr.SGEs = append(wr.SGEs, a.piece(rest[:s]))
					rest = rest[s:]
				}
				a.post(wr)
				a.one(1, engine.StatusSuccess)
				b.arrives(f)
			}
		})
	},
	"D-15": func(x *trial) {
		a, b, qa, qb := x.udPair()
		for _, cuts := range [][]int{{20, 20, 64}, {1, 39, 10, 100}, {39, 100}, {41, 100}, {10, 90}, {100, 4}} {
			for _, f := range a.families() {
				whole := b.buffer(qb, 1, 200)
				a.postTo(qa, a.gram(1, a.to(b, f), qb.QPN(), message(44, 1)))
				b.got(1, whole, message(44, 1))
				a.one(1, engine.StatusSuccess)
				mem := make([]byte, 300)
				mr, err := b.pd.Register(mem, engine.LocalWrite)
				x.ok(err)
				var sges []engine.SGE
				at := 0
				for _, n := range cuts {
					sges = append(sges, mr.SGE(at, n))
					at += n + 10 // a gap that stays as it is
				}
				_, err = qb.PostRecv([]engine.RecvWR{{ID: 2, SGEs: sges}})
				x.ok(err)
				a.postTo(qa, a.gram(1, a.to(b, f), qb.QPN(), message(44, 1)))
				x.check(b.one(2, engine.StatusSuccess).ByteLen == 84, "length")
				a.one(1, engine.StatusSuccess)
				var got []byte
				for _, s := range sges {
					got = append(got, mem[s.Off:s.Off+s.Len]...)
				}
				x.check(bytes.Equal(got[:84], whole.mem[:84]), "%v:\n got %x\nwant %x", cuts, got[:84], whole.mem[:84])
			}
		}
	},
	"D-16": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		_, err := a.pd.Register(make([]byte, 100), engine.LocalWrite|engine.ZeroBased)
		x.want("zero-based", err, syscall.EOPNOTSUPP)
	},
})

// fails posts a send that must complete with LOC_PROT_ERR, and brings the queue pair back.
func (e *end) fails(sges ...engine.SGE) {
	e.x.Helper()
	e.post(engine.SendWR{ID: 9, Opcode: engine.OpSend, SGEs: sges})
	c := e.one(9, engine.StatusLocProt)
	e.x.check(!c.Recv && e.qp.State() == toErr, "%+v, state %v", c, e.qp.State())
	e.again()
}

func edges(x *trial) {
	a, b := x.pair(engine.QPConfig{MaxSendSGE: 2})
	b.receives(b.qp, 2)
	f := a.frame(100, 1)
	mr, err := a.pd.Register(f, 0)
	x.ok(err)
	head := a.piece(a.frame(18, 2))
	before := engine.MRFromKey(mr.LKey(), mr.Addr()-1, 101)
	for _, s := range []engine.SGE{mr.SGE(0, 101), mr.SGE(1, 100), mr.SGE(40, 61)} {
		a.fails(s)
	}
	for _, s := range []engine.SGE{mr.SGE(0, 101), mr.SGE(99, 2), mr.SGE(100, 1), mr.SGE(1000, 1), before.SGE(0, 100), before.SGE(0, 1),
		mr.SGE(-1, 2)} {
		a.fails(head, s)
	}
	b.quiet()
	a.post(engine.SendWR{Opcode: engine.OpSend, SGEs: []engine.SGE{mr.SGE(0, 100)}})
	a.post(engine.SendWR{Opcode: engine.OpSend, SGEs: []engine.SGE{head, before.SGE(100, 1)}})
	b.arrives(f, append(a.frame(18, 2), f[99]))

	mem := make([]byte, 300)
	in, err := b.pd.Register(mem[100:200], engine.LocalWrite)
	x.ok(err)
	x.ok(b.qp.PostRecv1(5, in.SGE(1, 100)))
	a.post(engine.SendWR{Opcode: engine.OpSend, SGEs: []engine.SGE{mr.SGE(0, 100)}})
	b.one(5, engine.StatusLocProt)
	x.check(bytes.Equal(mem, make([]byte, 300)), "memory was written")
}

func deregistered(x *trial) {
	a, b := x.pair(engine.QPConfig{})
	mr, err := a.pd.Register(a.frame(100, 0), 0)
	x.ok(err)
	wr := engine.SendWR{ID: 4, Opcode: engine.OpSend, SGEs: []engine.SGE{mr.SGE(0, 100)}}
	a.hold()
	a.post(wr)
	x.ok(a.pd.Deregister(mr))
	a.release()
	a.one(4, engine.StatusLocProt)
	a.again()
	a.refused("a stale handle", []engine.SendWR{wr}, 0, syscall.EINVAL)

	in, err := b.pd.Register(make([]byte, 100), engine.LocalWrite)
	x.ok(err)
	x.ok(b.qp.PostRecv1(6, in.SGE(0, 100)))
	x.ok(b.pd.Deregister(in))
	a.post(a.sends(1)...)
	c := b.one(6, engine.StatusLocProt)
	x.check(c.Recv, "%+v", c)
}
