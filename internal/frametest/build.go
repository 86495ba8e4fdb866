package frametest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Spec describes an Ethernet frame with an IP packet in it.
type Spec struct {
	DstMAC, SrcMAC   [6]byte
	VLANs            []uint16   // tag control words, the outermost first
	Src, Dst         netip.Addr // both IPv4 or both IPv6
	FlowLabel        uint32     // IPv6
	IPOptions        int        // IPv4: bytes of options, a multiple of 4
	Extensions       int        // IPv6: that many destination options headers of 8 bytes
	TCP              bool       // else UDP
	TCPOptions       int        // bytes, a multiple of 4
	SrcPort, DstPort uint16
	Payload          []byte
}

// Layers lists the headers for gopacket, the payload last. The Ethernet layer
// is the first.
func (s *Spec) Layers() []gopacket.SerializableLayer {
	eth := &layers.Ethernet{DstMAC: s.DstMAC[:], SrcMAC: s.SrcMAC[:]}
	out := []gopacket.SerializableLayer{eth}
	inner := &eth.EthernetType
	for _, tci := range s.VLANs {
		*inner = layers.EthernetTypeDot1Q
		tag := &layers.Dot1Q{Priority: uint8(tci >> 13), DropEligible: tci&0x1000 != 0, VLANIdentifier: tci & 0xfff}
		out, inner = append(out, tag), &tag.Type
	}
	next := layers.IPProtocolUDP
	if s.TCP {
		next = layers.IPProtocolTCP
	}
	var ip gopacket.NetworkLayer
	if s.Dst.Is4() {
		*inner = layers.EthernetTypeIPv4
		h := &layers.IPv4{Version: 4, TTL: 1, Protocol: next, Flags: layers.IPv4DontFragment, SrcIP: s.Src.AsSlice(), DstIP: s.Dst.AsSlice()}
		for range s.IPOptions {
			h.Options = append(h.Options, layers.IPv4Option{OptionType: 1, OptionLength: 1})
		}
		ip, out = h, append(out, h)
	} else {
		*inner = layers.EthernetTypeIPv6
		h := &layers.IPv6{Version: 6, HopLimit: 1, FlowLabel: s.FlowLabel, NextHeader: next, SrcIP: s.Src.AsSlice(), DstIP: s.Dst.AsSlice()}
		ip, out = h, append(out, h)
		field := &h.NextHeader
		for range s.Extensions {
			*field = layers.IPProtocolIPv6Destination
			e := &layers.IPv6Destination{Options: []*layers.IPv6DestinationOption{{OptionType: 1, OptionLength: 4, OptionData: make([]byte, 4)}}} // PadN
			e.NextHeader = next
			out, field = append(out, e), &e.NextHeader
		}
	}
	return append(out, s.transport(ip), gopacket.Payload(s.Payload))
}

func (s *Spec) transport(ip gopacket.NetworkLayer) gopacket.SerializableLayer {
	if !s.TCP {
		h := &layers.UDP{SrcPort: layers.UDPPort(s.SrcPort), DstPort: layers.UDPPort(s.DstPort)}
		_ = h.SetNetworkLayerForChecksum(ip) // fails for neither IP version
		return h
	}
	h := &layers.TCP{SrcPort: layers.TCPPort(s.SrcPort), DstPort: layers.TCPPort(s.DstPort), Seq: 1, Ack: 1, ACK: true, Window: 65535}
	for range s.TCPOptions {
		h.Options = append(h.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
	}
	_ = h.SetNetworkLayerForChecksum(ip)
	return h
}

// Build serialises the frame without FCS and without Ethernet padding.
func (s *Spec) Build() []byte {
	frame, err := Serialize(s.Layers()...)
	if err != nil {
		panic(fmt.Sprintf("frametest: %v", err)) // a Spec that cannot be
	}
	return frame
}

// Serialize is gopacket's SerializeLayers with lengths fixed and checksums
// computed, but without the padding that it adds to small frames.
func Serialize(ls ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls[1:]...); err != nil {
		return nil, err
	}
	behind := len(buf.Bytes())
	if err := ls[0].SerializeTo(buf, opts); err != nil {
		return nil, err
	}
	b := buf.Bytes()
	return append([]byte(nil), b[:min(len(b), behind+14)]...), nil
}

// Random is a Spec of version 4 or 6 with random values from r.
func Random(r *rand.Rand, version int, tcp bool, vlans, payload int) Spec {
	s := Spec{TCP: tcp, SrcPort: uint16(r.Uint32()), DstPort: uint16(r.Uint32()), FlowLabel: r.Uint32() >> 12}
	fill(r, s.DstMAC[:])
	fill(r, s.SrcMAC[:])
	s.DstMAC[0] &^= 1
	for range vlans {
		s.VLANs = append(s.VLANs, uint16(r.Uint32()))
	}
	var a, b [16]byte
	fill(r, a[:])
	fill(r, b[:])
	if version == 4 {
		s.Src, s.Dst = netip.AddrFrom4([4]byte(a[:4])), netip.AddrFrom4([4]byte(b[:4]))
	} else {
		a[0], b[0] = 0x20, 0x20 // not IPv4 in IPv6
		s.Src, s.Dst = netip.AddrFrom16(a), netip.AddrFrom16(b)
	}
	s.Payload = make([]byte, payload)
	fill(r, s.Payload)
	return s
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}
