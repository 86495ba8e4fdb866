package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/proto"
)

var _ = register(map[string]func(*trial){
	"F-01": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		_, err := a.pd.NewAH(engine.AHAttr{MAC: [6]byte{2}, HopLimit: 64})
		x.want("an address without GID", err, syscall.EINVAL)
		_, err = a.pd.ResolveAH(context.Background(), engine.Dest{})
		x.want("a destination without GID", err, syscall.EINVAL)
	},
	"F-03": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		n := len(a.dev.GIDs())
		for i := range n + 3 {
			attr := engine.AHAttr{GID: a.gid(4), SGIDIndex: uint8(i)}
			if i < n {
				_, err := a.pd.NewAH(attr)
				x.ok(err)
				continue
			}
			_, err := a.pd.NewAH(attr)
			x.want("an address", err, syscall.EINVAL)
			_, err = a.pd.ResolveAH(context.Background(), engine.Dest{GID: a.gid(4), SGIDIndex: i})
			x.want("a destination", err, syscall.EINVAL)
		}
	},
	"F-05": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for rate := range uint8(20) {
			_, err := a.pd.NewAH(engine.AHAttr{GID: a.gid(4), Rate: rate})
			if rate == 0 || rate >= 7 && rate <= 15 { // 2.5 to 120 Gbit/s
				x.ok(err)
			} else {
				x.want("a rate", err, syscall.EINVAL)
			}
		}
	},
	"F-06": func(x *trial) {
		d := x.limited(func(c *engine.Caps) { c.MaxAH = 3 })
		pd, attr := d.NewPD(), engine.AHAttr{GID: d.GIDs()[0].GID}
		var last *engine.AH
		for range 3 {
			var err error
			last, err = pd.NewAH(attr)
			x.ok(err)
		}
		_, err := pd.NewAH(attr)
		x.want("one more", err, syscall.ENOMEM)
		x.ok(last.Close())
		_, err = pd.NewAH(attr)
		x.ok(err)
	},
	"F-07": func(x *trial) {
		a, b, qa, qb := x.udPair()
		buf := b.buffer(qb, 1, 100)
		x.ok(qa.Modify(engine.StateSQD, engine.QPAttr{}, 0))
		ah := a.to(b, 4)
		a.postTo(qa, a.gram(1, ah, qb.QPN(), message(9, 1)))
		x.ok(ah.Close())
		x.ok(qa.Modify(engine.StateRTS, engine.QPAttr{}, 0))
		a.one(1, engine.StatusSuccess)
		b.got(1, buf, message(9, 1))
	},
	"F-08": comeAndGo,
	"F-09": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		if a.dev.Caps().Kind == "udp" {
			x.Skip("the kernel finds the next hop, later")
		}
		nobody := engine.Dest{GID: group("198.18.0.77"), SGIDIndex: engine.AnyGID}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := a.pd.ResolveAH(ctx, nobody)
		x.check(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.EHOSTUNREACH), "%v", err)
		x.check(time.Since(start) < 20*time.Second, "it took %v", time.Since(start))
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = a.pd.ResolveAH(gone, nobody)
		x.check(err != nil, "resolved")
	},
	"F-10": func(x *trial) {
		for _, family := range []int{4, 6} {
			answer(x, family)
			x.close()
		}
	},
	"F-11": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		wc := engine.Completion{Recv: true, Flags: engine.WCGRH, ByteLen: 44}
		grh := make([]byte, grhLen)
		grh[0] = 0x60 // left by whatever stood there
		grh[6] = 17
		grh[20], grh[28], grh[29] = 0x45, 5, 17
		own := a.gid(4)
		copy(grh[32:], []byte{198, 18, 0, 2})
		copy(grh[36:], own[12:]) // its checksum stays 0
		d, err := a.pd.DestFromCompletion(&wc, grh)
		x.ok(err)
		x.check(d.GID == group("198.18.0.2") && d.HopLimit == 5, "%+v", d)
	},
	"F-12": func(x *trial) {
		a, b, qa, qb := x.udPair()
		g := group("239.1.1.1")
		x.ok(qb.AttachMulticast(g))
		buf := b.buffer(qb, 1, 100)
		a.postTo(qa, a.gram(1, a.resolve(engine.Dest{GID: g}), proto.MulticastQPN, message(9, 1)))
		c := b.got(1, buf, message(9, 1))
		_, err := b.pd.AHFromCompletion(&c, buf.mem[:grhLen])
		x.want("an answer to a group", err, syscall.EINVAL)
	},
	"F-13": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		x.want("raw", a.qp.AttachMulticast(group("239.1.1.1")), syscall.EINVAL)
		x.want("no group", a.udQP(engine.QPConfig{}).AttachMulticast(a.gid(4)), syscall.EINVAL)
	},
	"F-14": func(x *trial) {
		a, b, qa, qb := x.udPair()
		g := group("239.1.1.1")
		x.ok(qb.AttachMulticast(g))
		x.ok(qb.AttachMulticast(g))
		buf := b.buffer(qb, 1, 100)
		b.buffer(qb, 2, 100)
		a.postTo(qa, a.gram(1, a.resolve(engine.Dest{GID: g}), proto.MulticastQPN, message(9, 1)))
		b.got(1, buf, message(9, 1))
		b.quiet()
		x.ok(qb.DetachMulticast(g))
		x.want("a second time", qb.DetachMulticast(g), syscall.EINVAL)
	},
	"F-15": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		q := a.udQP(engine.QPConfig{})
		x.want("never joined", q.DetachMulticast(group("239.1.1.1")), syscall.EINVAL)
		x.ok(q.AttachMulticast(group("239.1.1.1")))
		x.want("another group", q.DetachMulticast(group("239.1.1.2")), syscall.EINVAL)
	},
	"F-16": crowd,
	"F-17": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		for g, mac := range map[string][6]byte{
			"239.129.2.3":         {1, 0, 0x5e, 1, 2, 3},
			"224.0.0.1":           {1, 0, 0x5e, 0, 0, 1},
			"ff0e::ffff:ef01:203": {1, 0, 0x5e, 1, 2, 3},
			"ff02::1:ff00:1234":   {0x33, 0x33, 0xff, 0, 0x12, 0x34},
		} {
			if !group(g).Is4() {
				a.gid(6)
			}
			got := a.resolve(engine.Dest{GID: group(g)}).Attr().MAC
			x.check(got == mac, "%s: %x, want %x", g, got, mac)
		}
		x.close()
		ipv4GroupOnAnyMAC(x)
	},
	"F-18": func(x *trial) {
		a, b, _, qb := x.udPair()
		g := group("239.1.1.1")
		q, beside := a.udQP(engine.QPConfig{BlockSelfLB: true}), a.udQP(engine.QPConfig{})
		for _, m := range []*engine.QP{q, beside, qb} {
			x.ok(m.AttachMulticast(g))
		}
		a.buffer(q, 1, 100)
		its, far := a.buffer(beside, 2, 100), b.buffer(qb, 3, 100)
		a.postTo(q, a.gram(9, a.resolve(engine.Dest{GID: g}), proto.MulticastQPN, message(9, 1)))
		a.one(9, engine.StatusSuccess)
		a.got(2, its, message(9, 1))
		b.got(3, far, message(9, 1))
		a.quiet()
	},
})

// limited opens a loop whose limits are others.
func (x *trial) limited(change func(*engine.Caps)) *engine.Device {
	x.Helper()
	w, err := wire.OpenLoop(wire.LoopOptions{Name: x.T.Name()})
	x.ok(err)
	nic, err := softnic.New(w, softnic.Config{Profile: Profiles[x.profile]})
	x.ok(err)
	d, err := engine.NewDevice(otherCaps{nic, change})
	x.ok(err)
	x.Cleanup(func() { x.ok(d.Close()) })
	return d
}

type otherCaps struct {
	engine.Backend
	change func(*engine.Caps)
}

func (o otherCaps) Caps() engine.Caps {
	c := o.Backend.Caps()
	o.change(&c)
	return c
}

// comeAndGo makes and ends addresses in several goroutines while datagrams are sent.
func comeAndGo(x *trial) {
	a, b, qa, qb := x.udPair()
	ah := a.to(b, 4)
	attr := ah.Attr()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				h, err := a.pd.NewAH(attr)
				if err == nil {
					err = h.Close()
				}
				if err != nil {
					x.Error(err)
				}
			}
		})
	}
	for id := range uint64(50) {
		buf := b.buffer(qb, id, 100)
		own, err := a.pd.NewAH(attr)
		x.ok(err)
		a.postTo(qa, a.gram(id, own, qb.QPN(), message(9, byte(id))))
		x.ok(own.Close())
		a.one(id, engine.StatusSuccess)
		b.got(id, buf, message(9, byte(id)))
	}
	all.Wait()
	x.ok(ah.Close())
	x.ok(qa.Close())
	x.ok(a.qp.Close())
	x.ok(a.pool.Close())
}

// answer sends a datagram back to where one came from.
func answer(x *trial, family int) {
	x.Helper()
	a, b, qa, qb := x.udPair()
	buf := b.buffer(qb, 1, 100)
	d := engine.Dest{GID: b.gid(family), HopLimit: 7, TrafficClass: 0x20}
	if family == 6 {
		d.FlowLabel = 0x54321
	}
	a.postTo(qa, a.gram(1, a.resolve(d), qb.QPN(), message(9, 1)))
	a.one(1, engine.StatusSuccess)
	c := b.got(1, buf, message(9, 1))
	back, err := b.pd.AHFromCompletion(&c, buf.mem[:grhLen])
	x.ok(err)
	at := back.Attr()
	x.check(engine.GID(at.GID) == a.gid(family) && at.HopLimit == 7 && at.TClass == 0x20 && at.FlowLabel == d.FlowLabel &&
		b.dev.GIDs()[at.SGIDIndex].GID == b.gid(family), "%+v", at)
	home := a.buffer(qa, 5, 100)
	b.postTo(qb, b.gram(2, back, c.SrcQP, message(11, 2)))
	b.one(2, engine.StatusSuccess)
	a.got(5, home, message(11, 2))
	for what, grh := range map[string][]byte{"another version": make([]byte, grhLen), "too short": buf.mem[:grhLen-1]} {
		_, err := b.pd.AHFromCompletion(&c, grh)
		x.check(err != nil, "%s: an address was made", what)
	}
	_, err = b.pd.AHFromCompletion(&c, make([]byte, grhLen))
	x.want("neither version", err, syscall.EPROTONOSUPPORT)
	c.Flags = 0
	_, err = b.pd.AHFromCompletion(&c, buf.mem[:grhLen])
	x.want("no header", err, syscall.EINVAL)
}

func crowd(x *trial) {
	a := x.lone(engine.QPConfig{})
	caps := a.dev.Caps()
	x.check(caps.MaxGroups > 0 && caps.MaxGroupQPs > 0, "no limits: %+v", caps)
	g := group("239.1.1.1")
	for range caps.MaxGroupQPs {
		x.ok(a.udReset(engine.QPConfig{}).AttachMulticast(g))
	}
	q := a.udReset(engine.QPConfig{})
	x.want("one member more", q.AttachMulticast(g), syscall.ENOMEM)
	for i := 1; i < caps.MaxGroups; i++ {
		if err := q.AttachMulticast(numbered(i)); caps.Loop || i < 32 || !errors.Is(err, syscall.ENOMEM) {
			x.ok(err) // a wire's network may have room for less
		} else {
			break
		}
	}
	x.want("one group more", q.AttachMulticast(numbered(0)), syscall.ENOMEM)
	x.ok(q.DetachMulticast(numbered(1)))
	x.ok(q.AttachMulticast(numbered(0)))
}

func numbered(i int) engine.GID {
	b := [4]byte{239, 2}
	binary.BigEndian.PutUint16(b[2:], uint16(i))
	return engine.GIDFromAddr(netip.AddrFrom4(b))
}

// ipv4GroupOnAnyMAC: kernel rxe joins the IPv6 form of the MAC address for IPv4 groups, too.
func ipv4GroupOnAnyMAC(x *trial) {
	x.Helper()
	a, b, _, qb := x.udPair()
	x.ok(a.qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	g := group("239.1.2.3")
	x.ok(qb.AttachMulticast(g))
	u := good(qb)
	u.DestQP = proto.MulticastQPN
	for _, mac := range [][6]byte{{1, 0, 0x5e, 1, 2, 3}, {0x33, 0x33, 239, 1, 2, 3}} {
		buf := b.buffer(qb, 1, 100)
		a.inject(roceTo(a.dev.Caps().MAC, mac, a.gid(4), g, u, message(10, 1)))
		b.got(1, buf, message(10, 1))
	}
}
