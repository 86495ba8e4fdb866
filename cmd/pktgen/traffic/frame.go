package traffic

import (
	"fmt"
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Header lengths, and the tag that ends the payload.
const (
	ethBytes  = 14
	vlanBytes = 4
	ip4Bytes  = 20
	ip6Bytes  = 40
	udpBytes  = 8
	tcpBytes  = 20
	tagBytes  = 16
)

// headerBytes is the length of all headers in front of the payload of c's frames.
func headerBytes(c *Config) int {
	n := ethBytes + ip4Bytes + udpBytes
	if !c.VLAN.IsZero() {
		n += vlanBytes
	}
	if c.Dst.Is6() {
		n += ip6Bytes - ip4Bytes
	}
	if c.Proto == TCP {
		n += tcpBytes - udpBytes
	}
	return n + c.roceHeaderBytes()
}

// MinPiece is the smallest TSO.MSS of c: room for a tag, in no frame below the
// smallest.
func MinPiece(c *Config) int { return max(tagBytes, minFrameSize-fcsBytes-headerBytes(c)) }

// MinSize is the smallest -s, FCS included, that holds the headers of c's
// frames and, unless NoTag, the tag.
func MinSize(c *Config) int {
	n := headerBytes(c) + c.trailerBytes(0) + fcsBytes
	if !c.NoTag {
		n += tagBytes
	}
	return n
}

// protoName is what a user would call c's frames: "IPv6/TCP".
func protoName(c *Config) string {
	s := "IPv4/"
	if c.Dst.Is6() {
		s = "IPv6/"
	}
	s += map[Proto]string{UDP: "UDP", TCP: "TCP", RoCEUD: "RoCE v2 UD"}[c.Proto]
	if !c.VLAN.IsZero() {
		s += " with a VLAN tag"
	}
	return s
}

// buildFrame makes the frame of one size, piece of a TSO payload or 0, with value 0 of every field. gopacket
// writes the headers and checksums: a second opinion on what ours must be.
func buildFrame(c *Config, sizeBytes, piece int, byFlow bool) (Frame, error) {
	f := Frame{SizeBytes: sizeBytes, TagOff: -1, Vary: varyingFields(c, byFlow)}
	length := sizeBytes - fcsBytes - headerBytes(c) - c.trailerBytes(c.RoCE.Payload)
	payload := c.datagram(length)
	stack, err := frameLayers(c, piece)
	if err != nil {
		return f, err
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append(stack, gopacket.Payload(payload))...); err != nil {
		return f, fmt.Errorf("pktgen: build a frame of %d bytes: %w", sizeBytes, err)
	}
	f.Bytes = append([]byte(nil), buf.Bytes()...)
	if c.Proto == RoCEUD {
		c.sealDatagram(f.Bytes)
	}
	if !c.NoTag {
		f.TagOff = headerBytes(c) + length - tagBytes
	}
	return f, nil
}

// frameLayers lists the headers from the outside in.
func frameLayers(c *Config, piece int) ([]gopacket.SerializableLayer, error) {
	seed := c.Seed
	eth := &layers.Ethernet{SrcMAC: macOf(c.SMAC, seed), DstMAC: macOf(c.DMAC, seed), EthernetType: layers.EthernetTypeIPv4}
	if c.Dst.Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
	}
	stack := []gopacket.SerializableLayer{eth}
	if !c.VLAN.IsZero() {
		tag := &layers.Dot1Q{VLANIdentifier: uint16(c.VLAN.Uint(0, fieldSeed(seed, "vlan"))), Type: eth.EthernetType}
		eth.EthernetType = layers.EthernetTypeDot1Q
		stack = append(stack, tag)
	}
	next := map[Proto]layers.IPProtocol{UDP: layers.IPProtocolUDP, TCP: layers.IPProtocolTCP, RoCEUD: layers.IPProtocolUDP}[c.Proto]
	src := c.Src.Addr(0, fieldSeed(seed, "src")).AsSlice()
	dst := c.Dst.Addr(0, fieldSeed(seed, "dst")).AsSlice()
	var ip gopacket.NetworkLayer
	if c.Dst.Is6() {
		h := &layers.IPv6{Version: 6, HopLimit: uint8(c.TTL), NextHeader: next, SrcIP: src, DstIP: dst}
		if !c.FlowLabel.IsZero() {
			h.FlowLabel = uint32(c.FlowLabel.Uint(0, fieldSeed(seed, "flow-label")))
		}
		ip, stack = h, append(stack, h)
	} else {
		h := &layers.IPv4{Version: 4, IHL: 5, Id: uint16(piece), TTL: uint8(c.TTL), Flags: layers.IPv4DontFragment, Protocol: next, SrcIP: src, DstIP: dst}
		ip, stack = h, append(stack, h)
	}
	sport := uint16(c.SPort.Uint(0, fieldSeed(seed, "sport")))
	dport := uint16(c.DPort.Uint(0, fieldSeed(seed, "dport")))
	if c.Proto == TCP {
		h := &layers.TCP{SrcPort: layers.TCPPort(sport), DstPort: layers.TCPPort(dport), Seq: uint32(1 + piece*c.TSO.MSS), Ack: 1, ACK: true, Window: 65535}
		return append(stack, h), h.SetNetworkLayerForChecksum(ip)
	}
	h := &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}
	return append(stack, h), h.SetNetworkLayerForChecksum(ip)
}

func macOf(v Values, seed uint64) net.HardwareAddr {
	b := make(net.HardwareAddr, 6)
	v.put(b, 48, 0, seed)
	return b
}

// fieldSeed keeps the random orders of two fields apart.
func fieldSeed(seed uint64, name string) uint64 {
	for _, c := range name {
		seed = mix64(seed ^ uint64(c))
	}
	return seed
}

// varyingFields lists the fields that take more than one value, with their
// places.
func varyingFields(c *Config, byFlow bool) []Vary {
	l3 := ethBytes
	if !c.VLAN.IsZero() {
		l3 += vlanBytes
	}
	l4, src, dst, addrBytes := l3+ip4Bytes, l3+12, l3+16, 4
	if c.Dst.Is6() {
		l4, src, dst, addrBytes = l3+ip6Bytes, l3+8, l3+24, 16
	}
	all := []Vary{
		{Name: "dmac", Off: 0, LenBytes: 6, MaskBits: 48, Values: c.DMAC},
		{Name: "smac", Off: 6, LenBytes: 6, MaskBits: 48, Values: c.SMAC},
		{Name: "vlan", Off: ethBytes, LenBytes: 2, MaskBits: 12, Values: c.VLAN},
		{Name: "flow-label", Off: l3, LenBytes: 4, MaskBits: 20, Values: c.FlowLabel},
		{Name: "src", Off: src, LenBytes: addrBytes, MaskBits: addrBytes * 8, Values: c.Src, InHeaders: true},
		{Name: "dst", Off: dst, LenBytes: addrBytes, MaskBits: addrBytes * 8, Values: c.Dst, InHeaders: true},
		{Name: "sport", Off: l4, LenBytes: 2, MaskBits: 16, Values: c.SPort, InHeaders: true},
		{Name: "dport", Off: l4 + 2, LenBytes: 2, MaskBits: 16, Values: c.DPort, InHeaders: true},
		{Name: "qpn", Off: l4 + udpBytes + 4, LenBytes: 4, MaskBits: 24, Values: c.RoCE.QPN, InHeaders: true},
	}
	var out []Vary
	for _, v := range all {
		if !v.Values.IsZero() && v.Values.Len() > 1 {
			v.ByFlow, v.Seed = byFlow, fieldSeed(c.Seed, v.Name)
			out = append(out, v)
		}
	}
	return out
}

// FrameAt is frame k of the run as it leaves, checksums right, the tag's bytes
// zero: what plan shows, and what a test compares the wire with.
func (p *Plan) FrameAt(k uint64) ([]byte, error) {
	f := p.Frames[p.SizeAt(k)]
	c := *p.configOf(int(k%uint64(p.Queues)), k/uint64(p.Queues))
	for _, v := range f.Vary {
		x := v.Values.at(p.valueIndex(v, k), v.Seed)
		one := oneValue(v.Values.kind, x, "")
		switch v.Name {
		case "dmac":
			c.DMAC = one
		case "smac":
			c.SMAC = one
		case "vlan":
			c.VLAN = one
		case "flow-label":
			c.FlowLabel = one
		case "src":
			c.Src = one
		case "dst":
			c.Dst = one
		case "sport":
			c.SPort = one
		case "dport":
			c.DPort = one
		case "qpn":
			c.RoCE.QPN = one
		}
	}
	piece := k / uint64(p.Queues) % uint64(c.TSO.segments())
	out, err := buildFrame(&c, f.SizeBytes, int(piece), false)
	return out.Bytes, err
}

// valueIndex is the index of field v in frame k.
func (p *Plan) valueIndex(v Vary, k uint64) uint64 {
	q := k % uint64(p.Queues)
	if !v.ByFlow {
		return k/uint64(p.Queues)/uint64(p.Config.TSO.segments())*uint64(p.Queues) + q
	}
	return uint64(p.FlowAt(int(q), k/uint64(p.Queues)))
}
