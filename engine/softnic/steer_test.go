package softnic

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine"
)

func eth(dst net.HardwareAddr, t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: macA, DstMAC: dst, EthernetType: t}
}

func l4Frame(t testing.TB, vlan uint16, tcp bool, src, dst string, sport, dport uint16) []byte {
	s, d := net.ParseIP(src), net.ParseIP(dst)
	var l []gopacket.SerializableLayer
	v6 := s.To4() == nil
	inner := layers.EthernetTypeIPv4
	if v6 {
		inner = layers.EthernetTypeIPv6
	}
	if vlan != 0 {
		l = append(l, eth(macB, layers.EthernetTypeDot1Q), &layers.Dot1Q{Priority: uint8(vlan >> 13), VLANIdentifier: vlan & 0xfff, Type: inner})
	} else {
		l = append(l, eth(macB, inner))
	}
	proto := layers.IPProtocolUDP
	if tcp {
		proto = layers.IPProtocolTCP
	}
	var network gopacket.NetworkLayer
	if v6 {
		ip := &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: proto, SrcIP: s, DstIP: d}
		l, network = append(l, ip), ip
	} else {
		ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: proto, SrcIP: s.To4(), DstIP: d.To4()}
		l, network = append(l, ip), ip
	}
	if tcp {
		h := &layers.TCP{SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport)}
		h.SetNetworkLayerForChecksum(network)
		l = append(l, h)
	} else {
		h := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
		h.SetNetworkLayerForChecksum(network)
		l = append(l, h)
	}
	return frameOf(t, append(l, gopacket.Payload(make([]byte, 20)))...)
}

func ip16(s string) (a [16]byte) {
	ip := net.ParseIP(s)
	if v4 := ip.To4(); v4 != nil {
		ip = v4
	}
	copy(a[:], ip)
	return a
}

func TestMatchFields(t *testing.T) {
	ones := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	udp4 := l4Frame(t, 0, false, "198.18.0.1", "198.18.1.2", 1000, 2000)
	tcp4 := l4Frame(t, 0, true, "198.18.0.1", "198.18.1.2", 1000, 2000)
	udp6 := l4Frame(t, 0, false, "2001:2::1", "2001:2::2", 1000, 2000)
	vlan5 := l4Frame(t, 3<<13|5, false, "198.18.0.1", "198.18.1.2", 1000, 2000)
	arp := frameOf(t, eth(macB, layers.EthernetTypeARP), gopacket.Payload(make([]byte, 46)))
	later := append([]byte(nil), udp4...) // not the first fragment: no ports
	later[20], later[21] = 0, 8
	cases := []struct {
		name    string
		m       engine.Match
		yes, no [][]byte
	}{
		{"nothing", engine.Match{}, [][]byte{udp4, udp6, vlan5, arp}, nil},
		{"destination MAC", engine.MatchDstMAC([6]byte(macB)), [][]byte{udp4, arp}, nil},
		{"other MAC", engine.MatchDstMAC([6]byte(macA)), nil, [][]byte{udp4, arp}},
		{"one bit of the MAC", engine.Match{DstMAC: [6]byte{5: 2}, DstMACMask: [6]byte{5: 2}}, [][]byte{udp4}, nil},
		{"source MAC's last byte", engine.Match{SrcMAC: [6]byte{5: 1}, SrcMACMask: [6]byte{5: 0xff}}, [][]byte{udp4}, nil},
		{"source MAC", engine.Match{SrcMAC: [6]byte(macB), SrcMACMask: ones}, nil, [][]byte{udp4}},
		{"EtherType behind the tag", engine.Match{EtherType: 0x0800, EtherTypeMask: 0xffff}, [][]byte{udp4, vlan5}, [][]byte{udp6, arp}},
		{"EtherType ARP", engine.Match{EtherType: 0x0806, EtherTypeMask: 0xffff}, [][]byte{arp}, [][]byte{udp4}},
		{"tagged", engine.Match{Tagged: true}, [][]byte{vlan5}, [][]byte{udp4, arp}},
		{"VLAN 5", engine.Match{VLAN: 5, VLANMask: 0xfff}, [][]byte{vlan5}, [][]byte{udp4}},
		{"VLAN 4", engine.Match{VLAN: 4, VLANMask: 0xfff}, nil, [][]byte{vlan5, udp4}},
		{"priority 3", engine.Match{VLAN: 3 << 13, VLANMask: 7 << 13}, [][]byte{vlan5}, [][]byte{udp4}},
		{"VLAN 0 needs a tag", engine.Match{VLAN: 0, VLANMask: 0xfff}, nil, [][]byte{udp4}},
		{"IPv4", engine.Match{IPVersion: 4}, [][]byte{udp4, vlan5, later}, [][]byte{udp6, arp}},
		{"IPv6", engine.Match{IPVersion: 6}, [][]byte{udp6}, [][]byte{udp4, arp}},
		{"UDP of either", engine.Match{Proto: 17, ProtoMask: 0xff}, [][]byte{udp4, udp6}, [][]byte{tcp4, arp}},
		{"prefix", engine.Match{IPVersion: 4, Dst: ip16("198.18.0.0"), DstMask: ip16("255.254.0.0")}, [][]byte{udp4, tcp4, later}, [][]byte{udp6}},
		{"odd mask", engine.Match{IPVersion: 4, Dst: ip16("0.0.1.0"), DstMask: ip16("0.0.1.0")}, [][]byte{udp4}, nil},
		{"other source", engine.Match{IPVersion: 4, Src: ip16("198.18.0.2"), SrcMask: ip16("255.255.255.255")}, nil, [][]byte{udp4}},
		{"IPv6 address", engine.Match{IPVersion: 6, Src: ip16("2001:2::1"), SrcMask: ip16("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}, [][]byte{udp6}, [][]byte{udp4}},
		{"IPv6 last byte", engine.Match{IPVersion: 6, Dst: ip16("::2"), DstMask: ip16("::ff")}, [][]byte{udp6}, nil},
		{"port", engine.Match{DstPort: 2000, DstPortMask: 0xffff}, [][]byte{udp4, tcp4, udp6, vlan5}, [][]byte{arp, later}},
		{"5-tuple", engine.Match{IPVersion: 4, Proto: 6, ProtoMask: 0xff, Src: ip16("198.18.0.1"), SrcMask: ip16("255.255.255.255"),
			Dst: ip16("198.18.1.2"), DstMask: ip16("255.255.255.255"), SrcPort: 1000, SrcPortMask: 0xffff, DstPort: 2000, DstPortMask: 0xffff},
			[][]byte{tcp4}, [][]byte{udp4, udp6, later}},
		{"low bits of a port", engine.Match{SrcPort: 1000 & 7, SrcPortMask: 7}, [][]byte{udp4}, nil},
		{"values outside the mask", engine.Match{DstPort: 0xffff, DstPortMask: 0}, [][]byte{udp4, arp}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var s steering
			s.nextID = 1
			q := &qp{}
			if _, err := s.attach(q, &s.rules, rule{match: compile(&c.m)}); err != nil {
				t.Fatal(err)
			}
			var out [maxTargets]*qp
			for i, f := range c.yes {
				if s.steer(f, &out) != 1 {
					t.Errorf("frame %d of those that match does not", i)
				}
			}
			for i, f := range c.no {
				if s.steer(f, &out) != 0 {
					t.Errorf("frame %d of those that do not match does", i)
				}
			}
		})
	}
}

func TestRulesInTheirOrder(t *testing.T) {
	var s steering
	s.nextID = 1
	q := [6]*qp{{qpn: 1}, {qpn: 2}, {qpn: 3}, {qpn: 4}, {qpn: 5}, {qpn: 6}}
	add := func(q *qp, r engine.FlowRule) uint64 {
		t.Helper()
		id, err := s.attach(q, s.list(r.Kind), rule{priority: int(r.Priority), match: compile(&r.Match)})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	udp := l4Frame(t, 0, false, "198.18.0.1", "198.18.1.2", 1000, 2000)
	cast := frameOf(t, eth(net.HardwareAddr{1, 0, 0x5e, 1, 2, 3}, layers.EthernetTypeARP), gopacket.Payload(make([]byte, 46)))
	expect := func(what string, frame []byte, want ...*qp) {
		t.Helper()
		var out [maxTargets]*qp
		n := s.steer(frame, &out)
		if n != len(want) {
			t.Fatalf("%s: %d targets, want %d", what, n, len(want))
		}
		for i := range want {
			if out[i] != want[i] {
				t.Fatalf("%s: target %d is QP %d, want %d", what, i, out[i].qpn, want[i].qpn)
			}
		}
	}
	expect("no rules", udp) // J-01
	all := add(q[0], engine.FlowRule{Kind: engine.FlowAll})
	if s.only != q[0] {
		t.Fatal("one all rule is not the fast path")
	}
	expect("all", udp, q[0])
	expect("all takes multicast", cast, q[0])
	add(q[1], engine.FlowRule{Kind: engine.FlowMulticast})
	expect("multicast before all", cast, q[1])
	expect("multicast leaves unicast", udp, q[0])
	port := engine.Match{DstPort: 2000, DstPortMask: 0xffff}
	add(q[2], engine.FlowRule{Priority: 7, Match: port})
	expect("match before all", udp, q[2])
	add(q[3], engine.FlowRule{Priority: 3, Match: engine.Match{IPVersion: 4}})
	expect("lower number wins", udp, q[3])
	high := add(q[4], engine.FlowRule{Priority: 1, Match: port})
	add(q[5], engine.FlowRule{Priority: 1, Match: port})
	expect("equal rules: both", udp, q[4], q[5])
	if _, err := s.attach(q[4], &s.rules, rule{priority: 1, match: compile(&port)}); !errors.Is(err, syscall.EEXIST) {
		t.Fatalf("the same rule twice: %v", err) // J-12
	}
	if s.remove(func(r *rule) bool { return r.id == high }) != 1 {
		t.Fatal("rule not found")
	}
	expect("one left", udp, q[5])
	s.remove(func(r *rule) bool { return r.q == q[5] || r.q == q[3] || r.q == q[2] || r.q == q[1] })
	expect("all again", udp, q[0])
	s.remove(func(r *rule) bool { return r.id == all })
	expect("none again", udp)
}

func TestCopiesAreAccountedFor(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	tx := newHost(t, a, hostConfig{})
	one := newHost(t, b, hostConfig{access: rw})
	two := newHost(t, b, hostConfig{access: rw})
	one.rq.Post1(one.seg(0, 100), 1)
	one.rq.Publish()
	tx.post(1, true, nil, nil, tx.seg(0, 60))
	tx.ring()
	if b.Step(8) != 0 || len(one.receives()) != 0 {
		t.Fatal("a copy was delivered before all could be")
	}
	two.rq.Post1(two.seg(0, 100), 2)
	two.rq.Publish()
	b.Step(8)
	if len(one.receives()) != 1 || len(two.receives()) != 1 || b.counters.RxCopies != 1 || b.counters.RxFrames != 2 {
		t.Fatalf("%+v", b.counters)
	}
	account(t, a, b)
}

func TestFramesForNobody(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	tx := newHost(t, a, hostConfig{})
	rx := newHost(t, b, hostConfig{access: rw, noRule: true})
	send := func() {
		tx.post(1, true, nil, nil, tx.seg(0, 60))
		tx.ring()
		b.Step(8)
		tx.sends()
	}
	send()
	_, err := b.Attach(rx.qpn, engine.FlowRule{Kind: engine.FlowAll})
	rx.ok(err)
	rx.ok(b.SetState(rx.qpn, engine.StateErr, engine.QPAttr{}))
	send()
	rx.ok(b.DestroyQP(rx.qpn)) // and its rule with it
	send()
	if b.counters.Drops[engine.DropNoRule] != 2 || b.counters.Drops[engine.DropState] != 1 {
		t.Fatalf("%+v", b.counters)
	}
	account(t, a, b)
}
