package conformance

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/frametest"
)

var _ = register(map[string]func(*trial){
	"H-01": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		n, err := a.cq.Poll(make([]engine.Completion, 4))
		x.check(n == 0 && err == nil, "%d, %v", n, err)
	},
	"H-02": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxSendWR: 8})
		a.post(a.sends(5)...)
		a.sent(5)
		wc := make([]engine.Completion, 10)
		next := uint64(0)
		for _, want := range [][2]int{{3, 3}, {10, 2}, {10, 0}} {
			n, err := a.cq.Poll(wc[:want[0]])
			x.check(n == want[1] && err == nil, "polled for %d: %d, %v", want[0], n, err)
			for _, c := range wc[:n] {
				x.check(c.WRID == next, "%+v, want request %d", c, next)
				next++
			}
		}
	},
	"H-03": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		a.post(engine.SendWR{ID: 1<<63 + 3, Opcode: engine.OpSend, SGEs: []engine.SGE{bogus(60)}})
		c := a.one(1<<63+3, engine.StatusLocProt)
		x.check(c.QPN == a.qp.QPN() && !c.Recv && errors.Is(c.Err(), engine.StatusLocProt), "%+v", c)
	},
	"H-04": func(x *trial) {
		x.check(engine.WCSend == 0 && engine.WCTSO == 7 && engine.WCRecv == 128, "other numbers")
		x.check(!engine.WCSend.IsRecv() && !engine.WCTSO.IsRecv() && engine.WCRecv.IsRecv(), "other directions")
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 1)
		a.post(a.sends(1)...)
		s, r := a.take(1)[0], b.take(1)[0]
		x.check(s.Opcode == engine.WCSend && !s.Recv && r.Opcode == engine.WCRecv && r.Recv, "%+v, %+v", s, r)
	},
	"H-05": func(x *trial) {
		x.check(engine.WCGRH == 1 && engine.WCImm == 2 && engine.WCCsumOK == 4, "other numbers")
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 1)
		a.post(a.sends(1)...)
		r := b.take(1)[0]
		x.check(r.Flags&(engine.WCGRH|engine.WCImm) == 0, "a raw receive has flags 0x%x", r.Flags)
	},
	"H-06": func(x *trial) {
		for n, s := range map[engine.Status]engine.Status{
			0: engine.StatusSuccess, 1: engine.StatusLocLen, 2: engine.StatusLocQPOp, 4: engine.StatusLocProt, 5: engine.StatusWRFlush,
			6: engine.StatusMWBind, 7: engine.StatusBadResp, 8: engine.StatusLocAccess, 9: engine.StatusRemInvReq,
			10: engine.StatusRemAccess, 11: engine.StatusRemOp, 12: engine.StatusRetryExc, 13: engine.StatusRNRRetryExc,
			19: engine.StatusFatal, 20: engine.StatusRespTimeout, 21: engine.StatusGeneral,
		} {
			x.check(n == s, "%v is %d, want %d", s, s, n)
		}
	},
	"H-09": func(x *trial) { lengths(x, 14, 15, 59, 60, 61, 64, 1000, 1514) },
	"H-11": overrun,
	"H-12": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		second := a.raw(engine.QPConfig{MaxSendWR: 4, MaxRecvWR: 4})
		x.ok(second.MoveTo(toRTS, engine.QPAttr{}))
		_, err := second.Attach(engine.FlowRule{Kind: engine.FlowAll})
		x.ok(err)
		b.receives(b.qp, 2)
		a.receives(second, 1)
		a.post(a.sends(1)...)
		c := a.take(1)[0]
		x.check(c.QPN == a.qp.QPN(), "%+v", c)
		_, err = second.Post(a.sends(1))
		x.ok(err)
		c = a.take(1)[0]
		x.check(c.QPN == second.QPN() && !c.Recv, "%+v", c)
		b.take(2)
		b.post(b.sends(1)...)
		c = a.take(1)[0]
		x.check(c.QPN == second.QPN() && c.Recv, "%+v", c)
	},
	"H-15": func(x *trial) {
		x.clock = newClock(5_000_000_007)
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 2)
		for i := range 2 {
			a.post(a.sends(1)...)
			s, r := a.take(1)[0], b.take(1)[0]
			if at := x.clock.Now(); a.dev.Caps().Loop {
				x.check(s.TimeNS == at && r.TimeNS == at, "%d: at %d ns: %+v, %+v", i, at, s, r)
			}
			x.check(s.TimeNS != 0 && r.TimeNS != 0, "%+v, %+v", s, r)
			x.clock.Advance(1001)
		}
	},

	"J-01": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		x.ok(b.qp.Close())
		b.qp = b.raw(engine.QPConfig{MaxRecvWR: 4})
		x.ok(b.qp.MoveTo(toRTS, engine.QPAttr{}))
		b.receives(b.qp, 1)
		a.post(a.sends(1)...)
		b.quiet()
		b.dropped(engine.DropNoRule, 1)
	},
	"J-04": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		mac := engine.MatchDstMAC([6]byte{2})
		for what, r := range map[string]engine.FlowRule{
			"unknown kind":                  {Kind: 77},
			"all with a match":              {Kind: engine.FlowAll, Match: mac},
			"multicast with a match":        {Kind: engine.FlowMulticast, Match: mac},
			"IP version 5":                  {Match: engine.Match{IPVersion: 5}},
			"an address of no version":      {Match: engine.Match{DstMask: [16]byte{1}}},
			"an IPv4 address of five bytes": {Match: engine.Match{IPVersion: 4, SrcMask: [16]byte{4: 1}}},
		} {
			_, err := a.qp.Attach(r)
			x.want(what, err, syscall.EINVAL)
		}
	},
	"J-07": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		d, err := engine.NewDevice(fewPriorities{a.dev.Backend()})
		x.ok(err)
		cq, err := d.NewCQ(4)
		x.ok(err)
		q, err := d.NewPD().NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq})
		x.ok(err)
		_, err = q.Attach(engine.FlowRule{Priority: 7, Match: engine.MatchDstMAC([6]byte{2})})
		x.ok(err)
		_, err = q.Attach(engine.FlowRule{Priority: 8, Match: engine.MatchDstMAC([6]byte{4})})
		x.want("priority 8 of 8", err, choose(x, 18, syscall.EINVAL, syscall.EINVAL, syscall.ENOMEM))
	},
	"J-10": func(x *trial) {
		own, mask := [6]byte{2, 0, 0, 0, 0, 0x77}, [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		matches(x, engine.MatchDstMAC(own), []int{-1}, []int{5, 4, 3, 2, 1, 0})
		mask[5] = 0x70
		matches(x, engine.Match{DstMAC: own, DstMACMask: mask}, []int{-1, 5}, []int{4, 0})
		matches(x, engine.Match{DstMAC: [6]byte{5: 1}, DstMACMask: [6]byte{5: 1}}, []int{-1, 0, 1, 4}, []int{5})
	},
	"J-11": layered,
	"J-12": priorities,
	"J-14": func(x *trial) {
		a, b := x.pair(engine.QPConfig{}) // b.qp has the all rule
		mine := b.steered(engine.FlowRule{Match: engine.MatchDstMAC([6]byte{2, 0, 0, 0, 0, 0x10})})
		b.receives(b.qp, 4)
		for last, want := range map[byte]*engine.QP{0x10: mine, 0x11: b.qp, 0xff: b.qp} {
			f := a.frame(60, last)
			f[5] = last
			a.reaches(b, f, want)
		}
		f := a.frame(60, 1)
		f[0] = 0xff
		a.reaches(b, f, b.qp)
	},
	"J-15": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		x.ok(b.qp.Close())
		group := b.steered(engine.FlowRule{Kind: engine.FlowMulticast})
		claimed := b.steered(engine.FlowRule{Match: engine.MatchDstMAC([6]byte{1, 0, 0, 0, 0, 0x77})})
		f := a.frame(60, 1)
		a.post(a.send(1, f)) // unicast
		b.quiet()
		b.dropped(engine.DropNoRule, 1)
		a.take(1)
		f[0] = 1
		a.reaches(b, f, claimed)
		f[0] = 3
		a.reaches(b, f, group)
		copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		a.reaches(b, f, group)
	},
	"J-20": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		other := b.steered(engine.FlowRule{Kind: engine.FlowMulticast})
		flow, err := b.qp.Attach(engine.FlowRule{Match: engine.MatchDstMAC([6]byte{2, 0, 0, 0, 0, 0x77})})
		x.ok(err)
		b.receives(b.qp, 2)
		x.ok(b.qp.Close())
		x.ok(flow.Close())
		a.post(a.sends(1)...)
		b.quiet()
		b.dropped(engine.DropNoRule, 1)
		a.take(1)
		f := a.frame(60, 1)
		f[0] = 1
		a.reaches(b, f, other)
	},
	"J-21": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		f, _ := b.pool.Get()
		x.ok(b.qp.PostRecv1(uint64(f), b.pool.SGE(f, 100)))
		a.post(a.send(1, a.frame(101, 1)), a.send(2, a.frame(1000, 2)))
		b.quiet()
		b.dropped(engine.DropOversize, 2)
		a.post(a.send(3, a.frame(100, 3)))
		b.arrives(a.frame(100, 3))
	},
	"J-22": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		if loop := a.dev.Caps().Loop; loop {
			x.close()
			lengths(x, 14, 15, 30, 46, 59)
		}
	},
	"J-23": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		most := a.dev.Caps().MaxFrame - 4 // without a tag
		x.close()
		lengths(x, min(most, 2048))
	},
	"J-28": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		b.receives(b.qp, 2)
		for _, n := range []int{64, 1518} {
			f := a.frame(n, 1)
			copy(f[12:], []byte{0x81, 0x00, 0xe1, 0x23, 0x88, 0xb5})
			a.post(a.send(1, f))
			b.arrives(f)
		}
	},
	"J-30": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		_, err := a.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
		x.ok(err)
		a.receives(a.qp, 1)
		b.receives(b.qp, 1)
		f := a.frame(60, 1)
		copy(f, f[6:12])
		a.post(a.send(1, f))
		b.arrives(f)
		a.one(1, engine.StatusSuccess)
		a.quiet()
		if x.profile != mlx5 { // which is as the claim has it for hardware
			x.points[19] = true
		}
	},
})

// fewPriorities is a device with eight flow priorities.
type fewPriorities struct{ engine.Backend }

func (f fewPriorities) Caps() engine.Caps {
	c := f.Backend.Caps()
	c.FlowPriorities = 8
	return c
}

// lengths sends frames of these lengths and judges that they arrive unchanged.
func lengths(x *trial, sizes ...int) {
	x.Helper()
	a, b := x.pair(engine.QPConfig{})
	for i, n := range sizes {
		b.receives(b.qp, 1)
		f := a.frame(n, byte(i))
		a.post(a.send(1, f))
		c := a.one(1, engine.StatusSuccess)
		x.check(c.ByteLen == 0, "%+v", c)
		b.arrives(f)
	}
}

func (e *end) dropped(r engine.DropReason, want uint64) {
	e.x.Helper()
	e.settles(func() bool { return e.counters().Drops[r] >= want })
	c := e.counters()
	e.x.check(c.Drops[r] == want, "%v: %d, want %d", r, c.Drops[r], want)
}

// steered makes a raw queue pair in RTS with a rule and receives.
func (e *end) steered(r engine.FlowRule) *engine.QP {
	e.x.Helper()
	q := e.raw(engine.QPConfig{MaxSendWR: 4, MaxRecvWR: 16})
	e.x.ok(q.MoveTo(toRTS, engine.QPAttr{}))
	_, err := q.Attach(r)
	e.x.ok(err)
	e.receives(q, 8)
	return q
}

// reaches sends a frame and judges which queue pairs of b get it.
func (e *end) reaches(b *end, frame []byte, want ...*engine.QP) (got []engine.Completion) {
	e.x.Helper()
	e.post(e.send(1, frame))
	e.one(1, engine.StatusSuccess)
	got = b.take(len(want))
	for i, c := range got {
		e.x.check(c.QPN == want[i].QPN() && c.Status == engine.StatusSuccess, "%+v, want QP 0x%x", c, want[i].QPN())
	}
	b.quiet()
	return got
}

// matches judges a rule by a frame that has the bytes of the list flipped in bit 3, one at a time; -1 flips none.
func matches(x *trial, m engine.Match, taken, left []int) {
	x.Helper()
	a, b := x.pair(engine.QPConfig{})
	x.ok(b.qp.Close())
	q := b.steered(engine.FlowRule{Match: m})
	for _, at := range append(taken, left...) {
		f := a.frame(60, 1)
		if at >= 0 {
			f[at] ^= 1
			if at == 0 {
				f[0] ^= 1 ^ 8 // stays unicast
			}
		}
		var want []*engine.QP
		if len(taken) > 0 {
			taken = taken[1:]
			want = append(want, q)
		}
		a.reaches(b, f, want...)
	}
	b.dropped(engine.DropNoRule, uint64(len(left)))
	x.close()
}

// layered judges each field of a rule by a frame that has it and one that has another value.
func layered(x *trial) {
	addr := func(s string) (a [16]byte) {
		copy(a[:], netip.MustParseAddr(s).AsSlice())
		return a
	}
	ones := func(n int) (a [16]byte) {
		for i := range n {
			a[i] = 0xff
		}
		return a
	}
	v4 := frametest.Spec{DstMAC: [6]byte{2, 1}, SrcMAC: [6]byte{2, 2}, Src: netip.MustParseAddr("198.18.0.1"),
		Dst: netip.MustParseAddr("198.18.0.2"), SrcPort: 1000, DstPort: 2000, Payload: make([]byte, 40), VLANs: []uint16{0x2123, 7}}
	v6 := v4
	v6.Src, v6.Dst, v6.VLANs, v6.TCP, v6.Extensions = netip.MustParseAddr("2001:2::1"), netip.MustParseAddr("2001:2::2"), nil, true, 1
	m4 := engine.Match{EtherType: 0x0800, EtherTypeMask: 0xffff, VLAN: 0x123, VLANMask: 0xfff, IPVersion: 4, Proto: 17, ProtoMask: 0xff,
		Src: addr("198.18.0.1"), SrcMask: ones(4), Dst: addr("198.18.0.2"), DstMask: ones(3),
		SrcPort: 1000, SrcPortMask: 0xffff, DstPort: 2000, DstPortMask: 0xffff}
	m6 := engine.Match{EtherType: 0x86dd, EtherTypeMask: 0xffff, IPVersion: 6, Proto: 6, ProtoMask: 0xff,
		Src: addr("2001:2::1"), SrcMask: ones(16), Dst: addr("2001:2::2"), DstMask: ones(8),
		SrcPort: 1000, SrcPortMask: 0xffff, DstPort: 2000, DstPortMask: 0xffff}
	a, b := x.pair(engine.QPConfig{})
	x.ok(b.qp.Close())
	q4, q6 := b.steered(engine.FlowRule{Match: m4}), b.steered(engine.FlowRule{Match: m6})
	a.reaches(b, v4.Build(), q4)
	a.reaches(b, v6.Build(), q6)
	near := v4
	near.Dst = netip.MustParseAddr("198.18.0.9") // the mask leaves the last byte out
	a.reaches(b, near.Build(), q4)
	for what, change := range map[string]func(*frametest.Spec){
		"source address": func(s *frametest.Spec) { s.Src = s.Src.Next().Next().Next() },
		"source port":    func(s *frametest.Spec) { s.SrcPort++ },
		"target port":    func(s *frametest.Spec) { s.DstPort++ },
		"protocol":       func(s *frametest.Spec) { s.TCP = !s.TCP },
	} {
		for _, s := range []frametest.Spec{v4, v6} {
			change(&s)
			x.Log(what)
			a.reaches(b, s.Build())
		}
	}
	untagged := v4
	untagged.VLANs = nil
	a.reaches(b, untagged.Build())
	b.dropped(engine.DropNoRule, 9)
}

func priorities(x *trial) {
	a, b := x.pair(engine.QPConfig{})
	x.ok(b.qp.Close())
	exact := engine.MatchDstMAC([6]byte{2, 0, 0, 0, 0, 0x77})
	broad := engine.Match{DstMAC: [6]byte{2}, DstMACMask: [6]byte{0xff}}
	low := b.steered(engine.FlowRule{Priority: 5, Match: exact})
	f := a.frame(60, 1)
	a.reaches(b, f, low)
	high := b.steered(engine.FlowRule{Priority: 3, Match: broad})
	a.reaches(b, f, high)
	twin := b.steered(engine.FlowRule{Priority: 3, Match: broad})
	a.reaches(b, f, high, twin)
	_, err := high.Attach(engine.FlowRule{Priority: 3, Match: broad})
	x.want("the same rule again", err, syscall.EEXIST)
	x.ok(high.Close())
	a.reaches(b, f, twin)
	x.ok(twin.Close())
	a.reaches(b, f, low)
}

func overrun(x *trial) {
	uri, _ := x.uris()
	a := x.open(uri, engine.QPConfig{})
	var err error
	a.cq, err = a.dev.NewCQ(3)
	x.ok(err)
	a.qp = a.raw(engine.QPConfig{MaxSendWR: 20, MaxRecvWR: 4})
	x.ok(a.qp.MoveTo(toRTS, engine.QPAttr{}))
	a.post(a.sends(10)...)
	a.settles(func() bool { return a.counters().CQOverruns != 0 })
	wc := make([]engine.Completion, 20)
	held := 0
	for {
		n, err := a.cq.Poll(wc)
		if err != nil {
			x.want("the end", err, engine.ErrOverrun)
			break
		}
		x.check(n > 0, "neither completions nor an error after %d", held)
		for _, c := range wc[:n] {
			x.check(c.WRID == uint64(held) && c.Status == engine.StatusSuccess, "%+v, want request %d", c, held)
			held++
		}
	}
	x.check(held >= 3 && held < 10, "%d completions were held", held)
	x.check(a.qp.State() == toErr, "state %v", a.qp.State())
	a.event(engine.EventCQErr, func(e engine.AsyncEvent) bool { return e.CQ == a.cq })
	a.noEvent()
	c := a.counters()
	x.check(c.CQOverruns == 1 && c.LostCQEs > 0, "%d overruns, %d lost", c.CQOverruns, c.LostCQEs)
	_, err = a.cq.Poll(wc)
	x.want("again", err, engine.ErrOverrun)
}
