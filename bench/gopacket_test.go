package bench

import (
	"bytes"
	"fmt"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// datagramLayers are the headers of a UDP datagram, whose checksum gopacket makes.
func datagramLayers(b *testing.B, version int) (*layers.Ethernet, gopacket.NetworkLayer, *layers.UDP) {
	eth := &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.NetworkLayer = &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP,
		SrcIP: net.IPv4(198, 18, 0, 1), DstIP: net.IPv4(198, 18, 0, 2)}
	if version == 6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: layers.IPProtocolUDP,
			SrcIP: net.ParseIP("2001:2::1"), DstIP: net.ParseIP("2001:2::2")}
	}
	udp := &layers.UDP{SrcPort: 1024, DstPort: 9}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		b.Fatal(err)
	}
	return eth, ip, udp
}

// BenchmarkParse finds the headers of datagrams. The baseline is gopacket's fastest way, a DecodingLayerParser with the
// same layers; what it finds is compared first.
func BenchmarkParse(b *testing.B) {
	const frames = 256
	for _, version := range []int{4, 6} {
		b.Run(fmt.Sprintf("ipv%d/udp", version), func(b *testing.B) {
			eth, ip, udp := datagramLayers(b, version)
			slots := make([][]byte, frames)
			for i := range slots {
				udp.SrcPort = layers.UDPPort(1024 + i)
				buf := gopacket.NewSerializeBuffer()
				opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
				if err := gopacket.SerializeLayers(buf, opts, eth, ip.(gopacket.SerializableLayer), udp, gopacket.Payload(make([]byte, 18))); err != nil {
					b.Fatal(err)
				}
				slots[i] = buf.Bytes()
			}
			var e layers.Ethernet
			var ip4 layers.IPv4
			var ip6 layers.IPv6
			var u layers.UDP
			var p gopacket.Payload
			parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &e, &ip4, &ip6, &u, &p)
			decoded := make([]gopacket.LayerType, 0, 8)
			var h proto.Headers
			for i, f := range slots {
				if err := parser.DecodeLayers(f, &decoded); err != nil {
					b.Fatal(err)
				}
				proto.Parse(f, &h)
				if payload, ok := h.Payload(f); !ok || h.SrcPort != uint16(u.SrcPort) || !bytes.Equal(payload, p) {
					b.Fatalf("packet %d: port %d, gopacket's %d; payload %x, gopacket's %x", i, h.SrcPort, u.SrcPort, payload, p)
				}
			}
			contest{
				packets: frames,
				ours: func() {
					for _, f := range slots {
						proto.Parse(f, &h)
					}
				},
				baseline: func() {
					for _, f := range slots {
						if err := parser.DecodeLayers(f, &decoded); err != nil {
							b.Fatal(err)
						}
					}
				},
			}.run(b)
		})
	}
}

// BenchmarkTemplate sends datagrams whose source port varies, checksums and all, from a template laid over a send queue,
// a doorbell for each ring full. The queue is short enough to stay in the first cache, as the baseline's buffer does. The baseline only
// makes them, by gopacket's SerializeLayers into a buffer that it uses again.
func BenchmarkTemplate(b *testing.B) {
	const depth = 256
	for _, version := range []int{4, 6} {
		b.Run(fmt.Sprintf("ipv%d/udp/burst=256", version), func(b *testing.B) {
			eth, ip, udp := datagramLayers(b, version)
			var payload gopacket.SerializableLayer = gopacket.Payload(make([]byte, 22)) // here, or each call allocates one
			l3 := ip.(gopacket.SerializableLayer)
			t, err := raw.NewTemplate(eth, l3, udp, payload)
			if err != nil {
				b.Fatal(err)
			}
			if err := t.Vary(raw.Field{Kind: raw.SrcPort, Lo: raw.Num(1024), Hi: raw.Num(65535)}); err != nil {
				b.Fatal(err)
			}
			ours := newTemplateStream(b, raw.StreamConfig{}, t, depth, depth)
			buf := gopacket.NewSerializeBuffer()
			opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
			contest{
				packets: depth,
				ours:    func() { ours.send(b) },
				between: func() { ours.drain(b) },
				baseline: func() {
					for i := range depth {
						udp.SrcPort = layers.UDPPort(1024 + i)
						if err := gopacket.SerializeLayers(buf, opts, eth, l3, udp, payload); err != nil {
							b.Fatal(err)
						}
					}
				},
			}.run(b)
		})
	}
}
