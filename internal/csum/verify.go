package csum

import "encoding/binary"

// Protocol numbers whose checksum VerifyL4 knows.
const (
	protoTCP = 6
	protoUDP = 17
)

// VerifyIPv4 reports whether header, an IPv4 header with its options and
// nothing behind, has the right checksum.
func VerifyIPv4(header []byte) bool {
	return len(header) >= 20 && Sum(header, 0) == 0xffff
}

// VerifyL4 reports whether the TCP or UDP checksum of the segment
// frame[l4Off:end] is right; the IP header at l3Off gives the addresses. A UDP
// checksum of 0 means none in IPv4, which is right, and is wrong in IPv6. Other
// protocols, and offsets outside the frame, are not right. A UDP segment is as
// long as its own length field says, which may not pass end. The segment must
// not be a fragment, nor on its way through an IPv6 routing header.
func VerifyL4(frame []byte, l3Off, l4Off, end int, l4Proto uint8) bool {
	if l3Off < 0 || l4Off < l3Off+20 || end < l4Off+8 || end > len(frame) {
		return false
	}
	ip, segment := frame[l3Off:l4Off], frame[l4Off:end]
	none := false
	switch l4Proto {
	case protoUDP:
		n := int(binary.BigEndian.Uint16(segment[4:]))
		if n < 8 || n > len(segment) {
			return false
		}
		segment = segment[:n]
		none = segment[6]|segment[7] == 0
	case protoTCP:
		if len(segment) < 20 {
			return false
		}
	default:
		return false
	}
	if none {
		return ip[0]>>4 == 4
	}
	pseudo, ok := pseudoOf(ip, l4Proto, uint32(len(segment)))
	return ok && Sum(segment, pseudo) == 0xffff
}
