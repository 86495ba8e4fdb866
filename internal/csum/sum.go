package csum

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds the big-endian 16-bit words of b, an odd last byte padded with a
// zero, to init and returns the sum folded to 16 bits. A following piece may be
// added by passing the result as init when len(b) is even.
func Sum(b []byte, init uint32) uint32 {
	// Words of any width and either byte order have the same one's complement sum up to a byte swap (RFC 1071,
	// section 2): eight little-endian words at a time, one swap at the end.
	var sum, carry uint64
	for len(b) >= 64 {
		w := (*[64]byte)(b)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[0:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[8:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[16:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[24:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[32:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[40:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[48:]), carry)
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(w[56:]), carry)
		b = b[64:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.LittleEndian.Uint64(b), carry)
		b = b[8:]
	}
	var last uint64
	if len(b) >= 4 {
		last = uint64(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		last += uint64(binary.LittleEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		last += uint64(b[0])
	}
	sum, carry = bits.Add64(sum, last, carry)
	sum, carry = bits.Add64(sum, 0, carry)
	return uint32(Fold64(uint64(bits.ReverseBytes16(Fold64(sum+carry))) + uint64(init)))
}

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

// Update16 is the checksum after a 16-bit word of the data changed from old to
// new (RFC 1624, equation 3). The word stands at an even offset. For UDP, a
// result of 0 has to be sent as 0xffff.
func Update16(check, old, new uint16) uint16 {
	return ^Fold64(uint64(^check) + uint64(^old) + uint64(new))
}

// Update32 is Update16 for a 32-bit word.
func Update32(check uint16, old, new uint32) uint16 {
	return ^Fold64(uint64(^check) + uint64(^old) + uint64(new))
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
