// Command asm writes the kernels of package proto, CRC and rows of datagrams: crc_amd64.s and its stubs.
package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// A CRC is the remainder of a polynomial. 64 bits that stand d bits in front of the message's end count x^d times as
// much, so each is multiplied by x^(d+32) modulo the CRC's polynomial, without carries, and the products are added
// where the message ends. All that is short: up to 96 bits, which two more products make 32, by Barrett's reduction.
// (V. Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel 2009.)
//
// Bits are reflected: the lowest is the highest power. A constant of 32 bits then stands one bit further up than
// its product is to be, which is why key shifts.

const poly = 0x04c11db7 // CRC-32 of Ethernet, highest power first and left out

// key is x^n modulo the polynomial as a factor; that of 32 is x^32 itself, a factor that changes nothing.
func key(n int) uint64 {
	if n == 32 {
		return 1
	}
	r := uint32(1)
	for range n {
		top := r >> 31
		r = r<<1 ^ poly&-top
	}
	return uint64(bits.Reverse32(r)) << 1
}

// barrett is the polynomial, and x^64 divided by it, both with their highest power.
func barrett() (p, mu uint64) {
	quotient, rest := uint64(0), uint64(1)<<32 // x^64 in steps: rest is what is left of x^(32+i)
	for i := range 33 {
		quotient <<= 1
		if rest>>32&1 != 0 {
			quotient |= 1
			rest ^= 1<<32 | poly
		}
		if i < 32 {
			rest <<= 1
		}
	}
	return bits.Reverse64(1<<32|poly) >> 31, bits.Reverse64(quotient) >> 31
}

func words(name string, w ...uint64) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range w {
		DATA(8*i, U64(v))
	}
	return m
}

func main() {
	ConstraintExpr("!purego")
	keys := make([]uint64, 8)
	for i := range keys {
		keys[i] = key(64*(7-i) + 32)
	}
	p, mu := barrett()
	fold64 := words("fold64", key(512+32), key(512-32))
	fold256 := words("fold256", key(2048+32), key(2048-32))
	reduce := words("reduce", p, mu)
	last := words("last", key(64), 0)
	ends := words("ends", keys...)
	crc(ends, fold64, fold256, reduce, last)
	c := rowConstants{ends: ends, fold64: fold64, reduce: reduce, last: last, lowest: words("lowest", 1<<32-1, 0), seconds: dwords("seconds", 1, 5, 9, 13)}
	seal(c)
	open(c)
	Generate()
}

// folder moves an accumulator on by a fixed distance and adds what stands there.
type folder struct{ k VecVirtual }

func newFolder(m Mem) folder {
	f := folder{ZMM()}
	VBROADCASTI32X4(m, f.k)
	return f
}

func (f folder) fold(acc VecVirtual, add Op) {
	hi := ZMM()
	VPCLMULQDQ(Imm(0x11), f.k, acc, hi)
	VPCLMULQDQ(Imm(0x00), f.k, acc, acc)
	VPTERNLOGQ(Imm(0x96), add, hi, acc)
}

func crc(ends, fold64, fold256, reduce, last Mem) {
	TEXT("crcAVX512", NOSPLIT, "func(state uint32, src *byte, n int) uint32")
	Doc("crcAVX512 moves the state of a CRC on by n bytes, a multiple of 4 and at least 4. Nothing else is read.")
	Pragma("noescape")
	state := Load(Param("state"), GP32()).(GPVirtual)
	src := Load(Param("src"), GP64()).(GPVirtual)
	n := Load(Param("n"), GP64()).(GPVirtual)
	acc := head(state, src, n)
	JZ(LabelRef("end"))
	bulk(acc, src, n, fold64, fold256)
	Label("end")
	out := fold(acc, ends, reduce, last)
	Store(out, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// head reads the bytes that are too many for whole vectors into the upper part of one: zeros in front of a message change
// nothing. The state is added to its first four bytes. It steps over them, and sets the zero flag when there are no more.
func head(state, src, n GPVirtual) VecVirtual {
	more, skip := GP64(), GP64()
	LEAQ(Mem{Base: n, Disp: -1}, more)
	ANDQ(Imm(63), more) // one less than they are
	MOVQ(U32(63), skip)
	SUBQ(more, skip)
	SHRQ(Imm(2), skip)
	mask, first := GP32(), GP32()
	MOVL(U32(0xffff), mask)
	SHLXL(skip.As32(), mask, mask)
	MOVL(U32(1), first)
	SHLXL(skip.As32(), first, first)
	kMask, kFirst := K(), K()
	KMOVW(mask, kMask)
	KMOVW(first, kFirst)
	start, acc := ZMM(), ZMM()
	VPBROADCASTD_Z(state, kFirst, start)
	VMOVDQU32_Z(Mem{Base: src, Index: more, Scale: 1, Disp: -63}, kMask, acc)
	VPXORD(start, acc, acc)
	LEAQ(Mem{Base: src, Index: more, Scale: 1, Disp: 1}, src)
	SUBQ(more, n)
	DECQ(n)
	return acc
}

// bulk folds n bytes, a multiple of 64, into acc: four vectors side by side as far as they go.
func bulk(acc VecVirtual, src, n GPVirtual, fold64, fold256 Mem) {
	by64 := newFolder(fold64)
	CMPQ(n, U32(256))
	JL(LabelRef("loop64"))
	by256 := newFolder(fold256)
	a := [4]VecVirtual{ZMM(), ZMM(), ZMM(), acc}
	for i := range 3 {
		VPXORD(a[i], a[i], a[i])
	}
	Label("loop256")
	for i := range a {
		by256.fold(a[i], Mem{Base: src, Disp: 64 * i})
	}
	ADDQ(U32(256), src)
	SUBQ(U32(256), n)
	CMPQ(n, U32(256))
	JGE(LabelRef("loop256"))
	for i := range 3 {
		by64.fold(a[0], a[i+1])
	}
	VMOVDQA64(a[0], acc)
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("loop64")
	by64.fold(acc, Mem{Base: src})
	ADDQ(Imm(64), src)
	SUBQ(Imm(64), n)
	JNZ(LabelRef("loop64"))
}

// fold brings the eight parts of the last vector to the message's end: 96 bits. Their lower 32 go on by 64, and those of
// what that makes are reduced.
func fold(acc VecVirtual, ends, reduce, last Mem) GPVirtual {
	k, hi, half, x := ZMM(), ZMM(), YMM(), XMM()
	VMOVDQU64(ends, k)
	VPCLMULQDQ(Imm(0x11), k, acc, hi)
	VPCLMULQDQ(Imm(0x00), k, acc, acc)
	VPXORQ(hi, acc, acc)
	VEXTRACTI64X4(Imm(1), acc, half)
	VPXOR(half, acc.AsY(), acc.AsY())
	VEXTRACTI128(Imm(1), acc.AsY(), x)
	t, low, r := acc.AsX(), XMM(), XMM()
	VPXOR(x, t, t)
	VPCLMULQDQ(Imm(0x00), last, lowest(t), low)
	VPSRLDQ(Imm(4), t, t)
	VPXOR(low, t, t)
	VMOVDQU(reduce, r)
	VPCLMULQDQ(Imm(0x10), r, lowest(t), low)
	VPCLMULQDQ(Imm(0x00), r, lowest(low), low)
	VPXOR(low, t, t)
	out := GP32()
	VPEXTRD(Imm(1), t, out)
	return out
}

// lowest is the lowest 32 bits of v alone.
func lowest(v Op) VecVirtual {
	zero, out := XMM(), XMM()
	VPXOR(zero, zero, zero)
	VPBLENDD(Imm(1), v, zero, out)
	return out
}
