package softnic

import (
	"encoding/binary"

	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// Tunnels whose inner headers a WQE can ask checksums for, by UDP port (RFC 7348, RFC 8926).
const (
	portVXLAN      = 4789
	portGENEVE     = 6081
	tunnelBytes    = 8      // of both headers, GENEVE's without options
	geneveEthernet = 0x6558 // Transparent Ethernet Bridging, the protocol of an Ethernet frame in GENEVE
)

const (
	csumOuter = ring.CsumL3 | ring.CsumL4
	csumInner = ring.CsumInnerL3 | ring.CsumInnerL4
)

// fillChecksums writes the checksums that flags ask for into a frame in the wire's memory, whatever stood there: of
// the IPv4 header, and of TCP or UDP over IPv4 or IPv6 behind VLAN tags, options and extension headers. Fragments,
// frames that are not IP or contradict themselves, and what lies behind a routing header with segments left, whose
// pseudo header is not that of this packet, stay as they are (J-24 to J-27).
//
// Inner headers come first, because an outer UDP checksum is over them.
func fillChecksums(frame []byte, flags uint8) {
	var h proto.Headers
	if !proto.Parse(frame, &h) || !fillable(&h) {
		return
	}
	if flags&csumInner != 0 && h.Status == proto.OK && h.L4Proto == proto.ProtoUDP {
		if inner := innerFrame(frame, &h); inner != nil {
			fillChecksums(inner, flags<<2&csumOuter)
		}
	}
	if flags&ring.CsumL3 != 0 && h.IPVersion == 4 {
		csum.FillIPv4(frame[h.L3Off:h.L4Off])
	}
	if flags&ring.CsumL4 != 0 && h.Status == proto.OK && !h.Routed {
		csum.FillL4(frame, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto)
	}
}

// The inner flags lie two bits below the outer ones.
const _ = uint(csumInner<<2-csumOuter) + uint(csumOuter-csumInner<<2)

// fillable reports whether the frame is an IP packet with a whole header, and no fragment.
func fillable(h *proto.Headers) bool {
	return (h.Status == proto.OK || h.Status == proto.NotL4 || h.Status == proto.BadL4) && !h.Fragment && h.L4Off != 0
}

// innerFrame is the Ethernet frame within a VXLAN or GENEVE packet, nil if it is neither.
func innerFrame(frame []byte, h *proto.Headers) []byte {
	body := frame[h.PayloadOff:h.PayloadEnd]
	if len(body) < tunnelBytes {
		return nil
	}
	skip := tunnelBytes
	switch h.DstPort {
	case portVXLAN:
	case portGENEVE:
		if binary.BigEndian.Uint16(body[2:]) != geneveEthernet {
			return nil
		}
		skip += int(body[0]&0x3f) * 4
	default:
		return nil
	}
	if len(body) < skip+ethernetHeader {
		return nil
	}
	return body[skip:]
}

// judge says of a received frame what a card's CQE does: which headers were found, and which are good. The L4 bit
// means that a checksum was there, was checked, and is right: not without one (UDP over IPv4), not of a fragment, and
// not where the sender left it to hardware that never ran.
func judge(f *wire.Frame) (ok, kind uint8) {
	var h proto.Headers
	if !proto.Parse(f.Data, &h) {
		return 0, 0
	}
	ok = ring.HdrOKL2
	switch h.IPVersion {
	case 4:
		kind = ring.L3IPv4
		if h.PayloadEnd == 0 || !csum.VerifyIPv4(f.Data[h.L3Off:h.L3Off+int(f.Data[h.L3Off]&15)*4]) {
			return ok, kind
		}
	case 6:
		kind = ring.L3IPv6
		if h.Status == proto.BadIP || h.Status == proto.Truncated {
			return ok, kind
		}
	default:
		return ok, 0
	}
	ok |= ring.HdrOKL3
	if h.Status != proto.OK {
		return ok, kind
	}
	none := false
	if h.L4Proto == proto.ProtoTCP {
		kind |= ring.L4TCP
	} else {
		kind |= ring.L4UDP
		none = f.Data[h.L4Off+6]|f.Data[h.L4Off+7] == 0
	}
	if !h.Fragment && !h.Routed && !none && f.Flags&wire.FlagCsumNotReady == 0 &&
		csum.VerifyL4(f.Data, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto) {
		ok |= ring.HdrOKL4
	}
	return ok, kind
}
