package softnic

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
)

// verification is Microsoft's "Verifying the RSS Hash Calculation": destination, source, the hash over addresses and
// over addresses and TCP ports, under DefaultRSSKey.
var verification = []struct {
	dst, src      string
	addrs, withL4 uint32
}{
	{"161.142.100.80:1766", "66.9.149.187:2794", 0x323e8fc2, 0x51ccc178},
	{"65.69.140.83:4739", "199.92.111.2:14230", 0xd718262a, 0xc626b0ea},
	{"12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0a5de, 0x5c2b394a},
	{"209.142.163.6:2217", "38.27.205.30:48228", 0x82989176, 0xafc7327f},
	{"202.188.127.2:1303", "153.39.163.191:44251", 0x5d1809c5, 0x10e828a2},
	{"[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc18cd5, 0x40207d3d},
	{"[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c461c, 0xdde51bbf},
	{"[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x4b61e985, 0x02d1feef},
}

func hashOf(t *testing.T, f engine.RSSFields, frame []byte) rssHash {
	t.Helper()
	var h proto.Headers
	if !proto.Parse(frame, &h) {
		t.Fatalf("%x", frame)
	}
	return newRSS(&engine.RSSSpec{Key: engine.DefaultRSSKey, Fields: f}).hash(frame, &h)
}

func TestRSSHashIsTheVerificationSuites(t *testing.T) {
	const addrs, tcp, udp = engine.RSSIPv4 | engine.RSSIPv6, engine.RSSTCP, engine.RSSUDP
	for _, v := range verification {
		dst, src := netip.MustParseAddrPort(v.dst), netip.MustParseAddrPort(v.src)
		for _, vlans := range [][]uint16{nil, {5}, {1, 2}} {
			for _, options := range []int{0, 8} {
				for _, isTCP := range []bool{true, false} {
					s := frametest.Spec{VLANs: vlans, Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), DstPort: dst.Port(), TCP: isTCP, Payload: make([]byte, 30)}
					if dst.Addr().Is4() {
						s.IPOptions = options
					} else {
						s.Extensions = options / 8
					}
					frame := s.Build()
					mine, other := tcp, udp
					if !isTCP {
						mine, other = udp, tcp
					}
					for f, want := range map[engine.RSSFields]uint32{
						addrs: v.addrs, addrs | mine: v.withL4, addrs | tcp | udp: v.withL4, addrs | other: v.addrs, 0: 0,
					} {
						want := rssHash{want, kindOf(f, dst.Addr().Is4(), isTCP)}
						if got := hashOf(t, f, frame); got != want {
							t.Errorf("%s to %s, fields %x: %x, want %x", v.src, v.dst, uint32(f), got, want)
						}
					}
					// The dullest form: one bit of the key for one bit of what is chosen.
					one := addrs&(engine.RSSSrcIPv4|engine.RSSSrcIPv6) | (tcp|udp)&(engine.RSSDstPortTCP|engine.RSSDstPortUDP)
					input := append(src.Addr().AsSlice(), byte(dst.Port()>>8), byte(dst.Port()))
					if got, want := hashOf(t, one, frame).sum, dullToeplitz(input); got != want {
						t.Errorf("%s to %s, source address and destination port: %08x, want %08x", v.src, v.dst, got, want)
					}
				}
			}
		}
	}
}

// kindOf is the hash type of a mlx5 CQE, by the comments at CQE_RSS_HTYPE_IP and CQE_RSS_HTYPE_L4 of Linux: bits 3:2 tell
// IPv4 and IPv6, bits 7:6 TCP and UDP, by numbers from 1.
func kindOf(f engine.RSSFields, is4, isTCP bool) (kind uint8) {
	for _, c := range []struct {
		has    bool
		fields engine.RSSFields
		kind   uint8
	}{{is4, engine.RSSIPv4, 0x04}, {!is4, engine.RSSIPv6, 0x08}, {isTCP, engine.RSSTCP, 0x40}, {!isTCP, engine.RSSUDP, 0x80}} {
		if c.has && f&c.fields != 0 {
			kind |= c.kind
		}
	}
	return kind
}

func dullToeplitz(input []byte) (sum uint32) {
	bit := func(k int) uint32 { return uint32(engine.DefaultRSSKey[k/8]>>(7-k%8)) & 1 }
	for i := range 8 * len(input) {
		if input[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		for k := range 32 {
			sum ^= bit(i+k) << (31 - k)
		}
	}
	return sum
}

// TestRSSHashesWhatIsThere: a fragment has addresses only, and what is no IP has nothing.
func TestRSSHashesWhatIsThere(t *testing.T) {
	const all = rssFields
	v := verification[0]
	dst, src := netip.MustParseAddrPort(v.dst), netip.MustParseAddrPort(v.src)
	s := frametest.Spec{Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), DstPort: dst.Port(), TCP: true, Payload: make([]byte, 30)}
	frame := s.Build()
	first, later, cut := append([]byte(nil), frame...), append([]byte(nil), frame...), frame[:40]
	first[20] |= 0x20
	later[21] = 8
	for name, c := range map[string]struct {
		frame []byte
		want  rssHash
	}{
		"first fragment": {first, rssHash{v.addrs, 0x04}}, "later fragment": {later, rssHash{v.addrs, 0x04}}, "cut": {cut, rssHash{v.addrs, 0x04}},
		"ARP": {frameOf(t, eth(macB, layers.EthernetTypeARP), gopacket.Payload(make([]byte, 46))), rssHash{}},
	} {
		if got := hashOf(t, all, c.frame); got != c.want {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
	}
}

func TestRSSAllocatesNothing(t *testing.T) {
	frame := (&frametest.Spec{Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), Payload: make([]byte, 30)}).Build()
	r := newRSS(&engine.RSSSpec{Key: engine.DefaultRSSKey, Fields: rssFields})
	r.table = []*qp{{qpn: 1}, {qpn: 2}}
	var s steering
	if _, err := s.attach(&qp{rss: r}, &s.all, rule{}); err != nil {
		t.Fatal(err)
	}
	var out [maxTargets]*qp
	if n := testing.AllocsPerRun(100, func() {
		if s.targets(frame, &out) != 1 || out[0].rss != nil {
			t.Fatal("no target")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRSS is the hash of a UDP frame over addresses and ports, parsing included.
func BenchmarkRSS(b *testing.B) {
	frame := (&frametest.Spec{Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), Payload: make([]byte, 18)}).Build()
	r := newRSS(&engine.RSSSpec{Key: engine.DefaultRSSKey, Fields: rssFields})
	var h proto.Headers
	sum := uint32(0)
	for b.Loop() {
		proto.Parse(frame, &h)
		sum += r.hash(frame, &h).sum
	}
	_ = sum
}
