package wire

import (
	"encoding/binary"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// flipCovered flips one bit of the frame that a checksum covers, so that whoever verifies it must find it. draw
// chooses the bit. What would move the end of what is covered stays: the first byte of an IPv4 header and the UDP
// length. A frame without a checksum that is right has any one bit flipped; on a medium, the FCS would tell.
//
//	Ethernet │ IPv4 (its own checksum) │ UDP or TCP, to the end of its length    │ padding
//	         │ - ■■■■■■■■■■■■■■■■■■■■  │ ■■■■ - - ■■■■■■■■■■■■■■■■■■■■■■■■■■■■■  │
//	Ethernet │ IPv6   │ addresses      │
//	         │        │ ■■■■■■■■■■■■■■ │ ... as above
//
// Of a RoCE v2 frame it is the ICRC that covers, from the source port on, and from the BTH on but for its byte of
// congestion bits.
func flipCovered(frame []byte, h *proto.Headers, draw uint64) {
	var spans [5][2]int
	covered := coveredSpans(frame, h, spans[:0])
	bits := uint64(0)
	for _, s := range covered {
		bits += uint64(s[1]-s[0]) * 8
	}
	if bits == 0 {
		frame[draw/8%uint64(len(frame))] ^= 1 << (draw % 8)
		return
	}
	k := draw % bits
	flipBit(frame, covered, k)
	sum := h.L4Off + 6                                                                  // a UDP checksum's place, where the last span begins if that is covered
	if covered[len(covered)-1][0] == sum && binary.BigEndian.Uint16(frame[sum:]) == 0 { // would mean: none
		flipBit(frame, covered, k)
		flipBit(frame, covered, k^1) // the bit beside it
	}
}

// flipBit flips bit k of the spans.
func flipBit(frame []byte, spans [][2]int, k uint64) {
	for _, s := range spans {
		if n := uint64(s[1]-s[0]) * 8; k >= n {
			k -= n
			continue
		}
		frame[s[0]+int(k/8)] ^= 1 << (k % 8)
		return
	}
}

// coveredSpans appends the byte ranges of the frame that a right checksum covers, in order.
func coveredSpans(frame []byte, h *proto.Headers, spans [][2]int) [][2]int {
	if !proto.Parse(frame, h) || h.IPVersion == 0 {
		return spans
	}
	if h.IPVersion == 4 {
		end := h.L3Off + int(frame[h.L3Off]&15)*4
		if csum.VerifyIPv4(frame[h.L3Off:end]) {
			spans = append(spans, [2]int{h.L3Off + 1, end})
		}
	}
	isUDP := h.L4Proto == proto.ProtoUDP
	switch {
	case h.Status != proto.OK || h.Fragment || h.Routed:
		return spans
	case isUDP && h.DstPort == proto.RoCEPort && goodICRC(frame, h):
		if h.IPVersion == 6 {
			spans = append(spans, [2]int{h.SrcOff, h.SrcOff + 32})
		}
		bth := h.L4Off + proto.UDPBytes
		spans = append(spans, [2]int{h.L4Off, h.L4Off + 2}, [2]int{bth, bth + 4})
		return append(spans, [2]int{bth + 5, h.PayloadEnd})
	case isUDP && binary.BigEndian.Uint16(frame[h.L4Off+6:]) == 0:
		return spans
	case !csum.VerifyL4(frame, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto):
		return spans
	}
	if h.IPVersion == 6 {
		spans = append(spans, [2]int{h.SrcOff, h.SrcOff + 32})
	}
	if isUDP {
		end := h.L4Off + int(binary.BigEndian.Uint16(frame[h.L4Off+4:]))
		return append(spans, [2]int{h.L4Off, h.L4Off + 4}, [2]int{h.L4Off + 6, end})
	}
	return append(spans, [2]int{h.L4Off, h.PayloadEnd})
}

// goodICRC reports whether a UDP datagram ends in the ICRC of what is before.
func goodICRC(frame []byte, h *proto.Headers) bool {
	end := h.PayloadEnd - proto.ICRCBytes
	return end >= h.PayloadOff+proto.BTHBytes && int(binary.BigEndian.Uint16(frame[h.L4Off+4:])) == h.PayloadEnd-h.L4Off &&
		proto.ICRC(frame[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, end-h.L3Off) == proto.LoadICRC(frame[end:])
}
