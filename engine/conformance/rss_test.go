package conformance

import (
	"net/netip"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/frametest"
)

// hashed are frames with their hash over addresses and TCP ports, under the default key: Microsoft's "Verifying the
// RSS Hash Calculation".
var hashed = []struct {
	dst, src string
	hash     uint32
}{
	{"161.142.100.80:1766", "66.9.149.187:2794", 0x51ccc178},
	{"65.69.140.83:4739", "199.92.111.2:14230", 0xc626b0ea},
	{"12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b394a},
	{"209.142.163.6:2217", "38.27.205.30:48228", 0xafc7327f},
	{"202.188.127.2:1303", "153.39.163.191:44251", 0x10e828a2},
	{"[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x40207d3d},
	{"[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde51bbf},
	{"[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x02d1feef},
}

var _ = register(map[string]func(*trial){
	"J-29": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		x.ok(b.qp.Close())
		spreads(x, a, b)
		refusals(x, b)
	},
})

// spreads judges where the frames of the list go, for tables of several sizes.
func spreads(x *trial, a, b *end) {
	for _, size := range []int{1, 2, 8} {
		var table []*engine.QP
		for range size {
			q := b.raw(engine.QPConfig{MaxRecvWR: 16})
			x.ok(q.MoveTo(engine.StateRTR, engine.QPAttr{}))
			b.receives(q, 8)
			table = append(table, q)
		}
		for _, of := range []engine.RSSFields{engine.RSSIPv4, engine.RSSIPv6} {
			r, err := b.pd.NewRSS(engine.RSSConfig{Fields: of | engine.RSSTCP, Table: table})
			x.ok(err)
			_, err = r.Attach(engine.FlowRule{Kind: engine.FlowAll})
			x.ok(err)
			for _, h := range hashed {
				dst, src := netip.MustParseAddrPort(h.dst), netip.MustParseAddrPort(h.src)
				index := h.hash
				if dst.Addr().Is4() != (of == engine.RSSIPv4) {
					continue
				}
				s := frametest.Spec{DstMAC: [6]byte{2}, Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), DstPort: dst.Port(), TCP: true, Payload: make([]byte, 10)}
				frame := s.Build()
				q := table[index%uint32(size)]
				const ofPorts = engine.WCRSSHash | engine.WCRSSPorts
				for _, c := range a.reaches(b, frame, q) {
					x.check(c.RSSHash == h.hash && c.Flags == ofPorts, "%+v, want the hash 0x%08x over ports", c, h.hash)
				}
				b.receives(q, 1)
			}
			f := a.frame(60, 1) // no IP: the hash is 0
			for _, c := range a.reaches(b, f, table[0]) {
				x.check(c.RSSHash == 0 && c.Flags == 0, "%+v, want no hash", c)
			}
			b.receives(table[0], 1)
			x.want("a queue pair of the table goes", table[0].Close(), syscall.EBUSY)
			x.ok(r.Close())
			x.ok(r.Close())
			a.post(a.send(1, f))
			a.take(1)
			b.quiet()
		}
		for _, q := range table {
			x.ok(q.Close())
		}
	}
	b.dropped(engine.DropNoRule, 6)
}

func refusals(x *trial, b *end) {
	q := b.raw(engine.QPConfig{})
	for _, r := range []struct {
		what string
		c    engine.RSSConfig
		want error
	}{
		{"a field nobody knows", engine.RSSConfig{Fields: engine.RSSIPv4 | 1<<20, Table: []*engine.QP{q}}, syscall.EOPNOTSUPP},
		{"the index of IPsec", engine.RSSConfig{Fields: 1 << 8, Table: []*engine.QP{q}}, syscall.EOPNOTSUPP},
		{"a key of 39 bytes", engine.RSSConfig{Key: make([]byte, 39), Fields: engine.RSSIPv4, Table: []*engine.QP{q}}, syscall.EINVAL},
		{"no table", engine.RSSConfig{Fields: engine.RSSIPv4}, syscall.EINVAL},
		{"a table of three", engine.RSSConfig{Fields: engine.RSSIPv4, Table: []*engine.QP{q, q, q}}, syscall.EINVAL},
		{"a table of two and nothing to hash", engine.RSSConfig{Table: []*engine.QP{q, q}}, syscall.EINVAL},
		{"a table too long", engine.RSSConfig{Fields: engine.RSSIPv4, Table: make([]*engine.QP, 2*b.dev.Caps().MaxRSSTable)}, syscall.EINVAL},
		{"nobody in the table", engine.RSSConfig{Fields: engine.RSSIPv4, Table: []*engine.QP{nil}}, syscall.EINVAL},
		{"a UD queue pair", engine.RSSConfig{Fields: engine.RSSIPv4, Table: []*engine.QP{b.ud()}}, syscall.EINVAL},
	} {
		_, err := b.pd.NewRSS(r.c)
		x.want(r.what, err, r.want)
	}
	for _, two := range []engine.RSSFields{engine.RSSIPv4 | engine.RSSIPv6, engine.RSSIPv4 | engine.RSSTCP | engine.RSSUDP} {
		r, err := b.pd.NewRSS(engine.RSSConfig{Fields: two, Table: []*engine.QP{q, q}})
		if x.profile == mlx5 { // as its kernel driver, in create_rss_raw_qp_tir
			x.want("fields of two protocols", err, syscall.EINVAL)
			continue
		}
		x.ok(err)
		x.ok(r.Close())
	}
	x.ok(q.Close())
}
