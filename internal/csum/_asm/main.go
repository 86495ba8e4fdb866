// Command asm writes the checksum kernels of package csum: sum_amd64.s and its stubs.
//
// Each kernel returns the sum of the little-endian 16-bit words of n bytes, an odd last byte padded with a zero,
// unfolded. Nothing outside the n bytes is read or written.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	avx2("sumAVX2", false)
	avx2("copyAVX2", true)
	ones, tops := word("ones", 0x0001), word("tops", 0x8000)
	avx512("sumAVX512", false, ones, tops)
	avx512("copyAVX512", true, ones, tops)
	Generate()
}

// word is a constant of two equal 16-bit words.
func word(name string, v uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	DATA(0, U32(v<<16|v))
	return m
}

// source is what every kernel begins with.
type source struct {
	src, dst GPVirtual
	n        GPVirtual
	copies   bool
}

func begin(name string, copies bool, limit string) source {
	s := source{copies: copies}
	if copies {
		TEXT(name, NOSPLIT, "func(dst, src *byte, n int) uint64")
		Doc(name + " copies n bytes, at most " + limit + ", from src to dst, which do not overlap, and sums them.")
		Pragma("noescape")
		s.dst = Load(Param("dst"), GP64()).(GPVirtual)
	} else {
		TEXT(name, NOSPLIT, "func(src *byte, n int) uint64")
		Doc(name + " sums n bytes, at most " + limit + ".")
		Pragma("noescape")
	}
	s.src = Load(Param("src"), GP64()).(GPVirtual)
	s.n = Load(Param("n"), GP64()).(GPVirtual)
	return s
}

func (s *source) at(off int) Mem { return Mem{Base: s.src, Disp: off} }

func (s *source) to(off int) Mem { return Mem{Base: s.dst, Disp: off} }

func (s *source) advance(n int) {
	ADDQ(Imm(uint64(n)), s.src)
	if s.copies {
		ADDQ(Imm(uint64(n)), s.dst)
	}
	SUBQ(Imm(uint64(n)), s.n)
}

// avx2 adds 64-bit words twice: whole, where carries out of the top are lost, and their upper halves alone. The
// sum of the lower halves is whole - upper<<32, exactly, because it does not reach 2^64.
func avx2(name string, copies bool) {
	s := begin(name, copies, "2^31")
	whole := [2]VecVirtual{YMM(), YMM()}
	upper := [2]VecVirtual{YMM(), YMM()}
	for i := range whole {
		VPXOR(whole[i], whole[i], whole[i])
		VPXOR(upper[i], upper[i], upper[i])
	}
	add := func(off, i int) {
		v, h := YMM(), YMM()
		VMOVDQU(s.at(off), v)
		if copies {
			VMOVDQU(v, s.to(off))
		}
		VPSRLQ(Imm(32), v, h)
		VPADDQ(v, whole[i], whole[i])
		VPADDQ(h, upper[i], upper[i])
	}
	Label("loop128")
	CMPQ(s.n, Imm(128))
	JL(LabelRef("loop32"))
	for i := range 4 {
		add(32*i, i%2)
	}
	ADDQ(I8(-128), s.n)
	SUBQ(I8(-128), s.src)
	if copies {
		SUBQ(I8(-128), s.dst)
	}
	JMP(LabelRef("loop128"))
	Label("loop32")
	CMPQ(s.n, Imm(32))
	JL(LabelRef("fold"))
	add(0, 0)
	s.advance(32)
	JMP(LabelRef("loop32"))

	Label("fold")
	VPADDQ(whole[1], whole[0], whole[0])
	VPADDQ(upper[1], upper[0], upper[0])
	sum := foldAVX2(whole[0], upper[0])
	s.scalarTail(sum)
	Store(sum, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// foldAVX2 adds the lanes: the four lower halves' sums and the four upper halves'.
func foldAVX2(whole, upper VecVirtual) GPVirtual {
	shifted, half := YMM(), XMM()
	VPSLLQ(Imm(32), upper, shifted)
	VPSUBQ(shifted, whole, whole)
	VPADDQ(upper, whole, whole)
	VEXTRACTI128(Imm(1), whole, half)
	VPADDQ(half, whole.AsX(), whole.AsX())
	VPSRLDQ(Imm(8), whole.AsX(), half)
	VPADDQ(half, whole.AsX(), whole.AsX())
	sum := GP64()
	VMOVQ(whole.AsX(), sum)
	return sum
}

// scalarTail adds what is left, less than 32 bytes, with the carry going round.
func (s *source) scalarTail(sum GPVirtual) {
	w := GP64()
	move := func(load, store func()) {
		load()
		if s.copies {
			store()
		}
		ADDQ(w, sum)
		ADCQ(Imm(0), sum)
	}
	Label("tail8")
	CMPQ(s.n, Imm(8))
	JL(LabelRef("tail4"))
	move(func() { MOVQ(s.at(0), w) }, func() { MOVQ(w, s.to(0)) })
	s.advance(8)
	JMP(LabelRef("tail8"))
	for _, t := range []struct {
		n           uint32
		name, next  string
		load, store func()
	}{
		{4, "tail4", "tail2", func() { MOVL(s.at(0), w.As32()) }, func() { MOVL(w.As32(), s.to(0)) }},
		{2, "tail2", "tail1", func() { MOVWLZX(s.at(0), w.As32()) }, func() { MOVW(w.As16(), s.to(0)) }},
		{1, "tail1", "done", func() { MOVBLZX(s.at(0), w.As32()) }, func() { MOVB(w.As8(), s.to(0)) }},
	} {
		Label(t.name)
		TESTQ(U32(t.n), s.n)
		JZ(LabelRef(t.next))
		move(t.load, t.store)
		if t.n > 1 {
			ADDQ(Imm(uint64(t.n)), s.src)
			if s.copies {
				ADDQ(Imm(uint64(t.n)), s.dst)
			}
		}
	}
	Label("done")
}

// avx512 sums words with VPDPWSSD, which multiplies signed words and adds two products to each 32-bit lane. Flipping
// the top bit makes a word u the signed u - 2^15, so 2^15 for each word of each block of 64 bytes comes back at the
// end. Over all lanes 2^17 bytes stay within 32 bits. The tail is a masked load: bytes that the mask leaves out are not
// touched, whatever page they lie on.
func avx512(name string, copies bool, ones, tops Mem) {
	s := begin(name, copies, "2^17")
	one, top, acc := ZMM(), ZMM(), [4]VecVirtual{}
	blocks := GP64()
	VPBROADCASTD(ones, one)
	VPBROADCASTD(tops, top)
	for i := range acc {
		acc[i] = ZMM()
		VPXORD(acc[i], acc[i], acc[i])
	}
	XORL(blocks.As32(), blocks.As32())
	if copies {
		s.alignAVX512(blocks, func(v VecVirtual) {
			VPXORD(top, v, v)
			VPDPWSSD(one, v, acc[3])
		})
	}
	whole := GP64()
	LEAQ(Mem{Base: s.n, Disp: 63}, whole)
	SHRQ(Imm(6), whole)
	SHLQ(Imm(20), whole)
	ADDQ(whole, blocks)
	add := func(off, i int) {
		v := ZMM()
		if copies {
			VMOVDQU64(s.at(off), v)
			VMOVDQU64(v, s.to(off))
			VPXORD(top, v, v)
		} else {
			VPXORD(s.at(off), top, v)
		}
		VPDPWSSD(one, v, acc[i])
	}
	SUBQ(U32(256), s.n)
	JL(LabelRef("rest"))
	Label("loop256")
	for i := range 4 {
		add(64*i, i)
	}
	ADDQ(U32(256), s.src)
	if copies {
		ADDQ(U32(256), s.dst)
	}
	SUBQ(U32(256), s.n)
	JGE(LabelRef("loop256"))
	Label("rest")
	s.restAVX512(add, func(v VecVirtual) {
		VPXORD(top, v, v)
		VPDPWSSD(one, v, acc[3])
	})
	Label("fold")
	sum := foldAVX512(acc)
	ADDQ(blocks, sum)
	Store(sum, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// alignAVX512 takes bytes until dst is aligned, because a store across two cache lines costs two, and more than the
// masked copy that avoids them all. A dst at an odd address is left alone: bytes would change places in the words.
func (s *source) alignAVX512(blocks GPVirtual, add func(VecVirtual)) {
	off, bits, mask, v := GP64(), GP64(), K(), ZMM()
	CMPQ(s.n, U32(256))
	JL(LabelRef("aligned"))
	MOVQ(s.dst, off)
	NEGQ(off)
	ANDQ(Imm(63), off)
	JZ(LabelRef("aligned"))
	TESTQ(U32(1), off)
	JNZ(LabelRef("aligned"))
	MOVQ(I32(-1), bits)
	BZHIQ(off, bits, bits)
	KMOVQ(bits, mask)
	VMOVDQU8_Z(s.at(0), mask, v)
	VMOVDQU8(v, mask, s.to(0))
	add(v)
	ADDQ(off, s.src)
	ADDQ(off, s.dst)
	SUBQ(off, s.n)
	MOVL(U32(1<<20), blocks.As32())
	Label("aligned")
}

// restAVX512 adds what is left, less than 256 bytes: n is 256 less than that.
func (s *source) restAVX512(add func(off, acc int), last func(VecVirtual)) {
	step := func(n int) {
		SUBQ(I8(-n), s.src)
		if s.copies {
			SUBQ(I8(-n), s.dst)
		}
	}
	TESTQ(U32(128), s.n)
	JZ(LabelRef("rest64"))
	add(0, 0)
	add(64, 1)
	step(128)
	Label("rest64")
	TESTQ(U32(64), s.n)
	JZ(LabelRef("tail"))
	add(0, 2)
	step(64)
	Label("tail")
	ANDQ(Imm(63), s.n)
	JZ(LabelRef("fold"))
	bits, mask, v := GP64(), K(), ZMM()
	MOVQ(I32(-1), bits)
	BZHIQ(s.n, bits, bits)
	KMOVQ(bits, mask)
	VMOVDQU8_Z(s.at(0), mask, v)
	if s.copies {
		VMOVDQU8(v, mask, s.to(0))
	}
	last(v)
}

// foldAVX512 adds all lanes, which are signed.
func foldAVX512(acc [4]VecVirtual) GPVirtual {
	VPADDD(acc[1], acc[0], acc[0])
	VPADDD(acc[3], acc[2], acc[2])
	VPADDD(acc[2], acc[0], acc[0])
	t, half, x := acc[0], YMM(), XMM()
	VEXTRACTI64X4(Imm(1), t, half)
	VPADDD(half, t.AsY(), t.AsY())
	VEXTRACTI128(Imm(1), t.AsY(), x)
	VPADDD(x, t.AsX(), t.AsX())
	VPSRLDQ(Imm(8), t.AsX(), x)
	VPADDD(x, t.AsX(), t.AsX())
	VPSRLDQ(Imm(4), t.AsX(), x)
	VPADDD(x, t.AsX(), t.AsX())
	sum := GP64()
	VMOVD(t.AsX(), sum.As32())
	MOVLQSX(sum.As32(), sum)
	return sum
}
