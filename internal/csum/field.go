package csum

import (
	"encoding/binary"
	"math/bits"
)

// Fold64 folds a sum of 16-bit words to 16 bits with end-around carry. It is 0
// only for 0.
func Fold64(s uint64) uint16 {
	// The upper half of x + rotate(x) is both halves plus the carry of the lower addition: the end-around carry.
	s += bits.RotateLeft64(s, 32)
	t := uint32(s >> 32)
	t += bits.RotateLeft32(t, 16)
	return uint16(t >> 16)
}

// Finish makes the checksum field of a sum.
func Finish(s uint32) uint16 { return ^Fold64(uint64(s)) }

// FinishUDP is Finish for UDP, where 0 means that there is no checksum and a
// computed 0 is sent as 0xffff (RFC 768).
func FinishUDP(s uint32) uint16 {
	c := Finish(s)
	if c == 0 {
		return 0xffff
	}
	return c
}

// Pseudo4 sums the IPv4 pseudo header of length bytes of l4Proto (RFC 768).
func Pseudo4(src, dst *[4]byte, l4Proto uint8, length uint32) uint32 {
	s := uint64(binary.BigEndian.Uint32(src[:])) + uint64(binary.BigEndian.Uint32(dst[:]))
	return uint32(Fold64(s + uint64(l4Proto) + uint64(length)))
}

// Pseudo6 sums the IPv6 pseudo header of length bytes of l4Proto (RFC 8200,
// section 8.1).
func Pseudo6(src, dst *[16]byte, l4Proto uint8, length uint32) uint32 {
	return Sum(dst[:], Sum(src[:], uint32(Fold64(uint64(l4Proto)+uint64(length)))))
}
