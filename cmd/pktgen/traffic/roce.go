package traffic

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// A datagram of Proto RoCEUD, from the UDP header on; the tag ends its payload:
//
//	| UDP | BTH 12 | DETH 8 | ImmDt 4, with RoCE.Imm | payload | pad 0..3 | ICRC 4 |

// roceHeaderBytes is what stands between the UDP header and the payload.
func (c *Config) roceHeaderBytes() int {
	n := 0
	if c.Proto == RoCEUD {
		n = proto.BTHBytes + proto.DETHBytes
		if c.RoCE.Imm != nil {
			n += proto.ImmDtBytes
		}
	}
	return n
}

// trailerBytes is what stands behind so many bytes of payload.
func (c *Config) trailerBytes(payload int) int {
	if c.Proto != RoCEUD {
		return 0
	}
	return -payload&3 + proto.ICRCBytes
}

// datagram is what gopacket takes for the payload: so many bytes of it, with what RoCE puts around them.
func (c *Config) datagram(payload int) []byte {
	b := make([]byte, c.roceHeaderBytes()+payload+c.trailerBytes(payload))
	if c.Proto != RoCEUD {
		return b
	}
	r := &c.RoCE
	u := proto.UD{Opcode: proto.OpUDSend, Pad: uint8(-payload & 3), PKey: 0xffff, PSN: r.PSN, QKey: r.QKey, SrcQP: r.SrcQPN,
		DestQP: uint32(r.QPN.Uint(0, fieldSeed(c.Seed, "qpn")))}
	if r.Imm != nil {
		u.Opcode, u.HasImm, u.Imm = proto.OpUDSendImm, true, *r.Imm
	}
	u.Put(b)
	return b
}

// sealDatagram takes the UDP checksum away, as RoCE devices send none, and writes the ICRC.
func (c *Config) sealDatagram(frame []byte) {
	var h proto.Headers
	proto.Parse(frame, &h)
	clear(frame[h.L4Off+6 : h.L4Off+8])
	end := h.PayloadEnd - proto.ICRCBytes
	proto.PutICRC(frame[end:], proto.ICRC(frame[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, end-h.L3Off))
}

// configOf is the plan's Config as frame j of queue q is made by it.
func (p *Plan) configOf(q int, j uint64) *Config {
	c := p.Config
	c.RoCE.SrcQPN += uint32(q)
	c.RoCE.PSN = (c.RoCE.PSN + uint32(j)) & MaxPSN
	return &c
}

// roceText is what a plan's summary says of the datagrams.
func (c *Config) roceText() string {
	if c.Proto != RoCEUD {
		return ""
	}
	return fmt.Sprintf("  qpn %s  qkey %#x", c.RoCE.QPN, c.RoCE.QKey)
}

// checkRoCE finds what contradicts RoCE v2 whatever the ports are.
func (c *Config) checkRoCE() error {
	r := &c.RoCE
	if c.Proto != RoCEUD {
		if !r.QPN.IsZero() {
			return results.Usage("qpn", r.QPN.String(), "is of RoCE v2 datagrams; use --proto roce-ud")
		}
		return nil
	}
	if r.SrcQPN == 0 {
		r.SrcQPN = DefaultSrcQPN
	}
	senders := c.Queues
	if c.Hello {
		senders++
	}
	switch {
	case c.TX != "" && r.QPN.IsZero():
		return results.Usage("qpn", "", "RoCE v2 datagrams are for a queue pair; use --qpn N, its number as the receiving program tells it (any, where pktgen itself receives)")
	case c.Csum == CsumOffload:
		return results.Usage("csum", c.Csum.String(), "RoCE v2 datagrams have no UDP checksum, and the device would make one; use --csum software")
	case c.TSO.MSS != 0:
		return results.Usage("tso", strconv.Itoa(c.TSO.MSS), "a RoCE v2 datagram is one frame, and no device cuts it; use --proto udp or tcp, or leave --tso out")
	case !c.DPort.IsZero() && (c.DPort.Len() != 1 || c.DPort.Uint(0, 0) != proto.RoCEPort):
		return results.Usage("dport", c.DPort.String(), fmt.Sprintf("RoCE v2 is UDP port %d; leave --dport out", proto.RoCEPort))
	case r.SrcQPN < 2 || int(r.SrcQPN)+senders-1 >= MaxQPN:
		return results.Usage("src-qpn", hexText(r.SrcQPN), fmt.Sprintf("is the first of %d that send; use %#x to %#x", senders, 2, MaxQPN-senders))
	case r.PSN > MaxPSN:
		return results.Usage("psn", hexText(r.PSN), fmt.Sprintf("use 0 to %#x", MaxPSN))
	case r.Payload < 0 || r.Payload > MaxDatagram:
		return results.Usage("payload", strconv.Itoa(r.Payload), fmt.Sprintf("use 1 to %d bytes, the largest MTU of RoCE v2", MaxDatagram))
	case r.Payload > 0 && r.Payload < tagBytes && !c.NoTag:
		return results.Usage("payload", strconv.Itoa(r.Payload), fmt.Sprintf("cannot hold a tag; use %d or more, or --no-tag for counts only", tagBytes))
	}
	return nil
}

// fillRoCE derives the size from the payload, or leaves of ranges of sizes those that a datagram can have.
func (c *Config) fillRoCE() {
	if n := c.RoCE.Payload; n > 0 {
		c.Size = oneSize(headerBytes(c) + n + c.trailerBytes(n) + fcsBytes)
		return
	}
	var fit []sizeEntry
	for _, e := range c.Size.list() {
		if !e.ranged || c.oddSize(e.size) == 0 {
			fit = append(fit, e)
		}
	}
	if fit != nil {
		c.Size.entries = fit
	}
}

// oddSize is by how much a frame is longer than one that a datagram fills: they are padded to multiples of 4.
func (c *Config) oddSize(size int) int { return (size - fcsBytes - headerBytes(c)) & 3 }

// checkRoCESizes refuses sizes that no datagram has.
func (c *Config) checkRoCESizes() error {
	if c.RoCE.Payload > 0 {
		return nil
	}
	most := headerBytes(c) + MaxDatagram + c.trailerBytes(0) + fcsBytes
	for _, size := range c.Size.Distinct() {
		if odd := c.oddSize(size); odd != 0 {
			return results.Usage("size", c.Size.String(), fmt.Sprintf("RoCE v2 pads datagrams to multiples of 4, so that no frame of them has %d bytes; use -s %d or %d, or --payload", size, size-odd, size-odd+4))
		}
		if size > most {
			return results.Usage("size", c.Size.String(), fmt.Sprintf("a RoCE v2 datagram has at most %d bytes of payload; use -s %d or less", MaxDatagram, most))
		}
	}
	return nil
}

// udpURI is a port "udp:ADDRESS?..." taken apart.
type udpURI struct {
	addr    netip.Addr
	netns   string
	ports   int  // other source ports than RoCE's that it may send from
	guessID bool // it receives what has the right ICRC for any IPv4 identification
}

// udpPort takes such a port apart; ok is false for other ports. What is wrong with it is left to the opening, which
// says so.
func udpPort(uri string) (u udpURI, ok bool) {
	rest, ok := strings.CutPrefix(uri, "udp:")
	addr, query, _ := strings.Cut(rest, "?")
	u.addr, _ = netip.ParseAddr(addr)
	if params, err := url.ParseQuery(query); ok && err == nil {
		u.netns = params.Get("netns")
		u.ports, _ = strconv.Atoi(params.Get("ports"))
		u.guessID = params.Get("weakicrc") != "0" && u.addr.Is4()
	}
	return u, ok
}

// guessesID reports whether a receiver does not know the identifications of IPv4 packets.
func guessesID(uri string) bool {
	u, ok := udpPort(uri)
	return ok && u.guessID
}

// fillUDPAddresses gives udp: ports their own addresses. What the kernel writes into their headers cannot be chosen.
func (c *Config) fillUDPAddresses() error {
	if to, ok := udpPort(c.RX); ok && c.Dst.IsZero() && to.addr.IsValid() {
		c.Dst = oneAddr(to.addr.WithZone(""))
	}
	from, ok := udpPort(c.TX)
	if !ok || !from.addr.IsValid() {
		return nil
	}
	for _, f := range []struct {
		name string
		v    Values
	}{{"smac", c.SMAC}, {"dmac", c.DMAC}, {"vlan", c.VLAN}, {"flow-label", c.FlowLabel}} {
		if !f.v.IsZero() {
			return results.Usage(f.name, f.v.String(), fmt.Sprintf("%s leaves Ethernet and IP headers to the kernel; leave --%s out, or use packet:INTERFACE", c.TX, f.name))
		}
	}
	own := oneAddr(from.addr.WithZone(""))
	if !c.Src.IsZero() && (c.Src.Len() != 1 || c.Src.Addr(0, 0) != from.addr.WithZone("")) {
		return results.Usage("src", c.Src.String(), fmt.Sprintf("%s sends from its own address, which the ICRC covers; leave --src out", c.TX))
	}
	if c.Src = own; c.Dst.IsZero() {
		return results.Usage("dst", "", fmt.Sprintf("%s has no other end; use --dst ADDRESS or --rx udp:ADDRESS", c.TX))
	}
	return nil
}

// RoCE v2 uses the dynamic ports as source ports.
const (
	rocePortFirst = 0xc000
	rocePorts     = 1<<16 - rocePortFirst
)

// rocePorts is the first source port of datagrams, and how many there may be. A udp: port has those it was given.
func (c *Config) rocePorts() (first, most uint64, err error) {
	u, ok := udpPort(c.TX)
	if !ok {
		return rocePortFirst, rocePorts, nil
	}
	first, most = proto.RoCEPort, 1
	if u.ports > 0 {
		first, most = rocePortFirst, uint64(u.ports)
	}
	own := c.SPort.Len() == 1 && c.SPort.Uint(0, 0) == proto.RoCEPort
	if s := c.SPort; !own && s.Len() > uint64(u.ports) {
		has := fmt.Sprintf("sends from port %d", proto.RoCEPort)
		if u.ports > 0 {
			has += fmt.Sprintf(" and %d others", u.ports)
		}
		return 0, 0, results.Usage("sport", s.String(), fmt.Sprintf("%s %s; use ?ports=N for N other source ports", c.TX, has))
	}
	return first, most, nil
}

// plainDatagram is plainUDP for RoCE v2: a datagram with neither UDP checksum nor immediate data, whose IPv4 header and
// ICRC are right. end is where its payload ends. ok means that describeDatagram would find nothing wrong either.
func plainDatagram(b []byte) (end int, ok bool) {
	const (
		l3    = proto.EthernetBytes
		l4    = l3 + proto.IPv4Bytes
		bth   = l4 + proto.UDPBytes
		least = bth + proto.BTHBytes + proto.DETHBytes + proto.TagBytes + proto.ICRCBytes
	)
	if len(b) < least {
		return 0, false
	}
	h := (*[least]byte)(b)
	length := int(binary.BigEndian.Uint16(h[l4+4:]))
	icrc, pad := l4+length-proto.ICRCBytes, int(h[bth+1]>>4&3)
	odd := binary.BigEndian.Uint16(h[l4+2:]) ^ proto.RoCEPort | binary.BigEndian.Uint16(h[l4+6:]) | uint16(h[bth]^proto.OpUDSend)
	if odd != 0 || oddHeaders((*[l4]byte)(b), length) != 0 || icrc-pad < least-proto.ICRCBytes || icrc+proto.ICRCBytes > len(b) {
		return 0, false
	}
	ip, c := bits.Add64(binary.LittleEndian.Uint64(h[l3:]), uint64(binary.LittleEndian.Uint32(h[l3+8:])), 0)
	ip, c = bits.Add64(ip, binary.LittleEndian.Uint64(h[l3+12:]), c)
	if !allOnes(ip, c) || proto.ICRC(b[l3:], 4, proto.IPv4Bytes, icrc-l3) != proto.LoadICRC(b[icrc:]) {
		return 0, false
	}
	return icrc - pad, true
}

// describeDatagram describes a RoCE v2 datagram of the UD transport, parsed up to UDP; false: it is none. The device
// vouches for no ICRC.
func (r *rawIn) describeDatagram(in *raw.RxFrame, a *arrival) bool {
	h := &r.head
	body, ok := h.Payload(in.Data)
	if !ok {
		return false
	}
	off, ok := proto.ParseUD(body, &r.ud)
	behind := int(r.ud.Pad) + proto.ICRCBytes
	if !ok || h.Routed || len(body) < off+behind {
		return false
	}
	if in.Flags&engine.WCCsumOK == 0 {
		sum := in.Data[h.L4Off+6]|in.Data[h.L4Off+7] != 0 // with IPv6 too, RoCE has none
		a.Corrupt = hasWrongIPv4(in.Data, h) || sum && !csum.VerifyL4(in.Data, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto)
	}
	l3, end := in.Data[h.L3Off:], h.PayloadEnd-h.L3Off-proto.ICRCBytes
	got, want := proto.ICRC(l3, h.IPVersion, h.L4Off-h.L3Off, end), proto.LoadICRC(l3[end:])
	if got != want && r.guessID && h.IPVersion == 4 {
		_, a.WeakICRC = proto.ICRCAnyID(l3, end, got, want)
	}
	a.BadICRC = got != want && !a.WeakICRC
	a.Corrupt = a.Corrupt || a.BadICRC
	a.TagEnd = h.PayloadEnd - behind
	return true
}
