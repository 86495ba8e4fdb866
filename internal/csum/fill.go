package csum

import "encoding/binary"

// FillIPv4 writes the checksum of header, an IPv4 header with its options and
// nothing behind, whatever stood there. A header of less than 20 bytes stays.
func FillIPv4(header []byte) {
	if len(header) < 20 {
		return
	}
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], Finish(Sum(header, 0)))
}

// FillL4 writes the TCP or UDP checksum of the segment frame[l4Off:end],
// whatever stood there, and reports whether there is one to write: what is not
// TCP or UDP, is cut, or has a length of its own that passes end, stays. The
// rest is as VerifyL4 says; a UDP checksum of 0 is written as 0xffff.
func FillL4(frame []byte, l3Off, l4Off, end int, l4Proto uint8) bool {
	if l3Off < 0 || l4Off < l3Off+20 || end < l4Off+8 || end > len(frame) {
		return false
	}
	ip, segment := frame[l3Off:l4Off], frame[l4Off:end]
	at := 6
	switch l4Proto {
	case protoUDP:
		n := int(binary.BigEndian.Uint16(segment[4:]))
		if n < 8 || n > len(segment) {
			return false
		}
		segment = segment[:n]
	case protoTCP:
		if len(segment) < 20 {
			return false
		}
		at = 16
	default:
		return false
	}
	pseudo, ok := pseudoOf(ip, l4Proto, uint32(len(segment)))
	if !ok {
		return false
	}
	segment[at], segment[at+1] = 0, 0
	c := Finish(Sum(segment, pseudo))
	if c == 0 && l4Proto == protoUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(segment[at:], c)
	return true
}

// pseudoOf sums the pseudo header of an IPv4 or IPv6 header.
func pseudoOf(ip []byte, l4Proto uint8, length uint32) (sum uint32, ok bool) {
	switch {
	case ip[0]>>4 == 4:
		return Pseudo4((*[4]byte)(ip[12:]), (*[4]byte)(ip[16:]), l4Proto, length), true
	case ip[0]>>4 == 6 && len(ip) >= 40:
		return Pseudo6((*[16]byte)(ip[8:]), (*[16]byte)(ip[24:]), l4Proto, length), true
	}
	return 0, false
}
