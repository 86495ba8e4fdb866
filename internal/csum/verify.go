package csum

import "encoding/binary"

// Protocol numbers whose checksum is known here, and where it stands in their headers.
const (
	protoTCP, tcpChecksum = 6, 16
	protoUDP, udpChecksum = 17, 6
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
	segment, pseudo, ok := segmentOf(frame, l3Off, l4Off, end, l4Proto)
	if !ok {
		return false
	}
	if l4Proto == protoUDP && segment[udpChecksum]|segment[udpChecksum+1] == 0 {
		return frame[l3Off]>>4 == 4
	}
	return Sum(segment, pseudo) == 0xffff
}

// segmentOf finds the bytes that a TCP or UDP checksum covers, and the sum of
// the pseudo header; false for what has no such checksum, or is cut.
func segmentOf(frame []byte, l3Off, l4Off, end int, l4Proto uint8) (segment []byte, pseudo uint32, ok bool) {
	if l3Off < 0 || l4Off < l3Off+20 || end < l4Off+8 || end > len(frame) {
		return nil, 0, false
	}
	ip, segment := frame[l3Off:l4Off], frame[l4Off:end]
	switch l4Proto {
	case protoUDP:
		n := int(binary.BigEndian.Uint16(segment[4:]))
		if n < 8 || n > len(segment) {
			return nil, 0, false
		}
		segment = segment[:n]
	case protoTCP:
		if len(segment) < 20 {
			return nil, 0, false
		}
	default:
		return nil, 0, false
	}
	length := uint32(len(segment))
	switch {
	case ip[0]>>4 == 4:
		return segment, Pseudo4((*[4]byte)(ip[12:]), (*[4]byte)(ip[16:]), l4Proto, length), true
	case ip[0]>>4 == 6 && len(ip) >= 40:
		return segment, Pseudo6((*[16]byte)(ip[8:]), (*[16]byte)(ip[24:]), l4Proto, length), true
	}
	return nil, 0, false
}
