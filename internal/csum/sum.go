package csum

import (
	"encoding/binary"
	"math/bits"
)

// Sum adds the big-endian 16-bit words of b, an odd last byte padded with a
// zero, to init and returns the sum folded to 16 bits. A following piece may be
// added by passing the result as init when len(b) is even.
func Sum(b []byte, init uint32) uint32 {
	if kernel != generic && len(b) >= leastSum {
		if kernel == avx512 && len(b) <= chunk {
			return finishLE(sumAVX512(&b[0], len(b)), init) // one call less than the general way
		}
		return finishLE(sumKernel(b), init)
	}
	// Little-endian 64-bit words, the carry going round.
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
	if len(b) > 0 {
		sum, carry = bits.Add64(sum, tail(b), carry)
	}
	sum, carry = bits.Add64(sum, 0, carry)
	return finishLE(sum+carry, init)
}

// Copy is Sum of src, which it copies to the front of dst on the way. dst is at
// least as long, and the two do not overlap. It panics, having copied nothing,
// when dst is shorter.
func Copy(dst, src []byte, init uint32) uint32 {
	dst = dst[:len(src)]
	if kernel != generic && len(src) >= leastCopy {
		if kernel == avx512 && len(src) <= chunk {
			return finishLE(copyAVX512(&dst[0], &src[0], len(src)), init)
		}
		return finishLE(copyKernel(dst, src), init)
	}
	return finishLE(copyWords(dst, src), init)
}

// Join adds the sum of a piece, as Sum gives it for init 0, to that of what
// stands before it. odd says that an odd number of bytes does.
func Join(before, piece uint32, odd bool) uint32 {
	if odd {
		piece = uint32(bits.ReverseBytes16(uint16(piece)))
	}
	return uint32(Fold64(uint64(before) + uint64(piece)))
}

// finishLE makes the result of a sum of little-endian words. Words of any width
// and either byte order have the same one's complement sum up to a byte swap
// (RFC 1071, section 2): the swap comes once, here.
func finishLE(sum uint64, init uint32) uint32 {
	return uint32(Fold64(uint64(bits.ReverseBytes16(Fold64(sum))) + uint64(init)))
}

// copyWords copies, and sums little-endian words.
func copyWords(dst, src []byte) uint64 {
	var sum, carry uint64
	for len(src) >= 32 && len(dst) >= 32 {
		d, s := (*[32]byte)(dst), (*[32]byte)(src)
		a, b := binary.LittleEndian.Uint64(s[0:]), binary.LittleEndian.Uint64(s[8:])
		e, f := binary.LittleEndian.Uint64(s[16:]), binary.LittleEndian.Uint64(s[24:])
		sum, carry = bits.Add64(sum, a, carry)
		sum, carry = bits.Add64(sum, b, carry)
		sum, carry = bits.Add64(sum, e, carry)
		sum, carry = bits.Add64(sum, f, carry)
		binary.LittleEndian.PutUint64(d[0:], a)
		binary.LittleEndian.PutUint64(d[8:], b)
		binary.LittleEndian.PutUint64(d[16:], e)
		binary.LittleEndian.PutUint64(d[24:], f)
		dst, src = dst[32:], src[32:]
	}
	for len(src) >= 8 && len(dst) >= 8 {
		a := binary.LittleEndian.Uint64(src)
		sum, carry = bits.Add64(sum, a, carry)
		binary.LittleEndian.PutUint64(dst, a)
		dst, src = dst[8:], src[8:]
	}
	copy(dst, src)
	sum, carry = bits.Add64(sum, tail(src), carry)
	sum, carry = bits.Add64(sum, 0, carry)
	return sum + carry
}

// tail sums less than 8 bytes.
func tail(b []byte) (last uint64) {
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
	return last
}
