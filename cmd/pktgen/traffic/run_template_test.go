package traffic

import (
	"bytes"
	"testing"
)

// The template writes what the plan, built by gopacket, says of every frame.
func TestTemplateWritesThePlansFrames(t *testing.T) {
	parse := func(v Values, err error) Values {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	size := func(s string) Sizes {
		v, err := ParseSize(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]Config{
		"nothing varies": {},
		"addresses":      {Src: parse(ParseAddrs("src", "198.18.0.0/24")), Dst: parse(ParseAddrs("dst", "198.19.0.1-198.19.0.7:dec"))},
		"random ports":   {SPort: parse(ParsePorts("sport", "1000-2000:rand")), DPort: parse(ParsePorts("dport", "9,10,4000"))},
		"flows":          {Flows: 12, Queues: 3},
		"vlan and macs":  {Size: size("128"), VLAN: parse(ParseVLANs("vlan", "100-110")), DMAC: parse(ParseMACs("dmac", "02:00:00:00:00:01-02:00:00:00:01:00:rand"))},
		"IPv6": {
			Src: parse(ParseAddrs("src", "2001:2::/112:rand")), Dst: parse(ParseAddrs("dst", "2001:2::1:0-2001:2::1:9")),
			FlowLabel: parse(ParseFlowLabels("flow-label", "0-99")), Size: size("82-90"),
		},
		"IPv6 over 64 bits": {Src: parse(ParseAddrs("src", "2001:2::1")), Dst: parse(ParseAddrs("dst", "2001:2::ffff:ffff:ffff:fffe-2001:2:0:1::5")), Size: size("128")},
		"imix":              {Size: size("imix")},
		"random sizes":      {Size: size("64-80:rand"), SPort: parse(ParsePorts("sport", "1-9"))},
		"RoCE v2": {Proto: RoCEUD, Size: size("86,1518,90"), SPort: parse(ParsePorts("sport", "49152-65535:rand")), Src: parse(ParseAddrs("src", "198.18.0.0/24")),
			RoCE: RoCE{QPN: parse(ParseQPNs("qpn", "2,0xffffff,77-80")), QKey: 0x80010000, PSN: MaxPSN - 3}},
		"RoCE v2 over IPv6": {Proto: RoCEUD, Size: size("110-200:rand"), Src: parse(ParseAddrs("src", "2001:2::/112:rand")), Dst: parse(ParseAddrs("dst", "2001:2::1:0-2001:2::1:9")),
			FlowLabel: parse(ParseFlowLabels("flow-label", "0-99")), VLAN: parse(ParseVLANs("vlan", "100-110")), RoCE: RoCE{QPN: parse(ParseQPNs("qpn", "2"))}},
		"padded RoCE v2 with immediate data": {Proto: RoCEUD, SPort: parse(ParsePorts("sport", "49152-65535")),
			RoCE: RoCE{QPN: parse(ParseQPNs("qpn", "5-6:dec")), Payload: 17, Imm: new(uint32)}},
		"TCP": {Proto: TCP, Size: size("74,99,128"), DPort: parse(ParsePorts("dport", "80-90"))},
	} {
		t.Run(name, func(t *testing.T) {
			c.Seed = 42
			port := func(uri string) *PortFacts {
				return &PortFacts{Port: Port{URI: uri, Kind: "loop", MaxFrame: 9000, SpeedBPS: 1e10}, HWAddr: [6]byte{2, 0, 0, 0, 0, 1}}
			}
			p, err := NewPlan(c, port("a"), port("b"))
			if err != nil {
				t.Fatal(err)
			}
			tmpl, err := p.template(0)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 2000)
			for _, first := range []uint64{0, 1<<33 - 20} {
				for k := first; k < first+60; k++ {
					want, err := p.FrameAt(k)
					if err != nil {
						t.Fatal(err)
					}
					q := int(k % uint64(p.Queues))
					n := tmpl.Write(got, k, p.FlowAt(q, k/uint64(p.Queues)))
					if !bytes.Equal(got[:n], want) {
						t.Fatalf("frame %d:\n got %x\nwant %x", k, got[:n], want)
					}
				}
			}
		})
	}
}
