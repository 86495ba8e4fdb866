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
	segment, pseudo, ok := segmentOf(frame, l3Off, l4Off, end, l4Proto)
	if !ok {
		return false
	}
	at := tcpChecksum
	if l4Proto == protoUDP {
		at = udpChecksum
	}
	segment[at], segment[at+1] = 0, 0
	c := Finish(Sum(segment, pseudo))
	if c == 0 && l4Proto == protoUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(segment[at:], c)
	return true
}
