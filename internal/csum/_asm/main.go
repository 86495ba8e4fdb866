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
	trainAVX512("trainAVX512", ones, tops)
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
	next     Register // where the next frame goes; nil: unknown
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
	blocks := GP64()
	VPBROADCASTD(ones, one)
	VPBROADCASTD(tops, top)
	for i := range acc {
		VPXORD(acc[i], acc[i], acc[i])
	}
	XORL(blocks.As32(), blocks.As32())
	if copies {
		s.alignAVX512(blocks)
	}
	s.blocksAVX512(blocks)
	sum := foldAVX512()
	ADDQ(blocks, sum)
	Store(sum, ReturnIndex(0))
	RET()
}

// trainAVX512 writes frames that lie anywhere: a header each, and behind it the next size bytes of src, copied and
// summed. The cache line in which the header ends and the payload begins is put together and written at once. Then come
// the numbers that count up and the checksums, by the words of v:
//
//	0 place of the IPv4 identification  4 its next value, a number
//	1 of the IPv4 header's checksum     5 sum of that header without identification, a little-endian word
//	2 of the TCP sequence number        6 its next value, a number
//	3 of the TCP or UDP checksum        7 sum of what it covers without sequence number and payload, likewise
//	                                    8 what a checksum of 0 is written as
//
// A place of 0 is none. v is left as the frames behind these need it.
func trainAVX512(name string, ones, tops Mem) {
	TEXT(name, NOSPLIT, "func(frames *[]byte, count int, head *byte, headLen int, src *byte, size int, v *[9]uint64)")
	Doc(name+" writes count frames, at least one, of a header of headLen bytes, an even number below 128, and size bytes",
		"of src each, 64 to 2^17. Nothing overlaps.")
	Pragma("noescape")
	frames, count := Load(Param("frames"), GP64()).(GPVirtual), Load(Param("count"), GP64()).(GPVirtual)
	next := GP64()
	s := source{copies: true, src: Load(Param("src"), GP64()).(GPVirtual), dst: GP64(), n: GP64(), next: next}
	VPBROADCASTD(ones, one)
	VPBROADCASTD(tops, top)
	ofHead, ofPayload := K(), K()
	headEnd(ofHead, ofPayload)

	Label("frame")
	for i := range acc {
		VPXORD(acc[i], acc[i], acc[i])
	}
	MOVQ(Mem{Base: frames}, s.dst)
	MOVQ(s.dst, next)
	CMPQ(count, Imm(1))
	JE(LabelRef("last"))
	MOVQ(Mem{Base: frames, Disp: 24}, next) // fetched into the cache meanwhile
	Label("last")
	Load(Param("size"), s.n)
	blocks := GP64()
	XORL(blocks.As32(), blocks.As32())
	s.headAVX512(blocks, ofPayload)
	s.blocksAVX512(blocks)
	ADDQ(s.n, s.src) // its last bytes
	sum := foldAVX512()
	ADDQ(blocks, sum)
	frame := s.dst
	MOVQ(Mem{Base: frames}, frame)
	fields(frame, sum)
	ADDQ(Imm(24), frames)
	DECQ(count)
	JNE(LabelRef("frame"))
	RET()
}

// headEnd loads the last bytes of the header, as many as do not fill 64, and masks of them and of the others.
func headEnd(ofHead, ofPayload OpmaskVirtual) {
	head, n, r, bits := GP64(), GP64(), GP64(), GP64()
	Load(Param("head"), head)
	Load(Param("headLen"), n)
	MOVQ(n, r)
	ANDQ(Imm(63), r)
	SUBQ(r, n)
	ADDQ(n, head)
	MOVQ(I32(-1), bits)
	BZHIQ(r, bits, bits)
	KMOVQ(bits, ofHead)
	KNOTQ(ofHead, ofPayload)
	VMOVDQU8_Z(Mem{Base: head}, ofHead, headTail)
}

// headAVX512 writes the header, and with its last bytes the first of the payload, which it sums.
func (s *source) headAVX512(blocks GPVirtual, ofPayload OpmaskVirtual) {
	r, head := GP64(), GP64()
	Load(Param("headLen"), r)
	TESTQ(U32(64), r)
	JZ(LabelRef("short"))
	Load(Param("head"), head)
	VMOVDQU64(Mem{Base: head}, data[0])
	VMOVDQU64(data[0], s.to(0))
	SUBQ(I8(-64), s.dst)
	Label("short")
	ANDQ(Imm(63), r)
	JZ(LabelRef("payload"))
	SUBQ(r, s.src)
	VMOVDQU8_Z(s.at(0), ofPayload, data[1])
	VPORQ(headTail, data[1], data[0])
	VMOVDQU64(data[0], s.to(0))
	VPXORD(top, data[1], data[1])
	VPDPWSSD(one, data[1], acc[3])
	SUBQ(I8(-64), s.src)
	SUBQ(I8(-64), s.dst)
	LEAQ(Mem{Base: s.n, Index: r, Scale: 1, Disp: -64}, s.n)
	MOVL(U32(1<<20), blocks.As32())
	Label("payload")
}

// fields writes what counts up in the frame, and its checksums; sum is the payload's, in little-endian words.
func fields(frame, sum GPVirtual) {
	v, off, x, y := GP64(), GP64(), GP64(), GP64()
	Load(Param("v"), v)
	word := func(i int) Mem { return Mem{Base: v, Disp: 8 * i} }
	place := Mem{Base: frame, Index: off, Scale: 1}
	fold16 := func(x GPVirtual) { // 32 bits to 16, with the carry going round
		MOVL(x.As32(), y.As32())
		SHRL(Imm(16), y.As32())
		ADDW(y.As16(), x.As16())
		ADCW(Imm(0), x.As16())
		NOTL(x.As32())
	}
	MOVQ(word(0), off)
	TESTQ(off, off)
	JZ(LabelRef("noID"))
	MOVQ(word(4), x)
	LEAQ(Mem{Base: x, Disp: 1}, y)
	MOVQ(y, word(4))
	ROLW(Imm(8), x.As16())
	MOVW(x.As16(), place)
	MOVQ(word(1), off)
	TESTQ(off, off)
	JZ(LabelRef("noID"))
	MOVWLZX(x.As16(), x.As32())
	ADDQ(word(5), x)
	fold16(x)
	MOVW(x.As16(), place)
	Label("noID")

	MOVQ(word(2), off)
	TESTQ(off, off)
	JZ(LabelRef("noSeq"))
	MOVQ(word(6), x)
	Load(Param("size"), y)
	ADDQ(x, y)
	MOVQ(y, word(6))
	BSWAPL(x.As32())
	MOVL(x.As32(), place)
	ADDQ(x, sum)
	Label("noSeq")

	MOVQ(word(3), off)
	TESTQ(off, off)
	JZ(LabelRef("noSum"))
	ADDQ(word(7), sum)
	MOVQ(sum, x)
	SHRQ(Imm(32), x)
	ADDL(x.As32(), sum.As32())
	ADCL(Imm(0), sum.As32())
	fold16(sum)
	MOVQ(word(8), x)
	TESTW(sum.As16(), sum.As16())
	CMOVWEQ(x.As16(), sum.As16())
	MOVW(sum.As16(), place)
	Label("noSum")
}

// blocksAVX512 sums, and copies, all of s but for the adding of lanes; n is left as the bytes behind the last 64, and src
// points at them. blocks grows by what each block's flipped bits are.
func (s *source) blocksAVX512(blocks GPVirtual) {
	whole := GP64()
	LEAQ(Mem{Base: s.n, Disp: 63}, whole)
	SHRQ(Imm(6), whole)
	SHLQ(Imm(20), whole)
	ADDQ(whole, blocks)
	SUBQ(U32(256), s.n)
	JL(LabelRef("rest"))
	Label("loop256")
	s.add256()
	ADDQ(U32(256), s.src)
	if s.copies {
		ADDQ(U32(256), s.dst)
	}
	SUBQ(U32(256), s.n)
	JGE(LabelRef("loop256"))
	Label("rest")
	s.restAVX512()
	Label("fold")
}

// Registers of the AVX-512 kernels. Those from 16 on have no part that older instructions know, so that there is no
// VZEROUPPER to pay for on the way out.
var (
	one, top, data = Z16, Z17, [4]VecPhysical{Z18, Z19, Z20, Z21}
	acc            = [4]VecPhysical{Z22, Z23, Z24, Z25}
	headTail       = Z26
)

// add sums, and copies, the 64 bytes at off.
func (s *source) add(off, i int) {
	v := data[i%len(data)]
	if s.copies {
		VMOVDQU64(s.at(off), v)
		VMOVDQU64(v, s.to(off))
		VPXORD(top, v, v)
	} else {
		VPXORD(s.at(off), top, v)
	}
	VPDPWSSD(one, v, acc[i])
}

// add256 is add four times. The kernel that knows where the next frame goes fetches that into the cache, and what it reads
// itself soon: both are usually in the second one, where this is a fifth of its time.
func (s *source) add256() {
	if s.next == nil {
		for i := range 4 {
			s.add(64*i, i)
		}
		return
	}
	for i := range 4 {
		PREFETCHT0(s.at(1024 + 64*i))
		PREFETCHT0(Mem{Base: s.next, Disp: 64 * i})
	}
	ADDQ(U32(256), s.next)
	for i := range 4 {
		VMOVDQU64(s.at(64*i), data[i])
	}
	for i := range 4 {
		VMOVDQU64(data[i], s.to(64*i))
	}
	for i := range 4 {
		VPXORD(top, data[i], data[i])
		VPDPWSSD(one, data[i], acc[i])
	}
}

// alignAVX512 takes bytes until dst is aligned, because a store across two cache lines costs two, and more than the
// masked copy that avoids them all. A dst at an odd address is left alone: bytes would change places in the words.
func (s *source) alignAVX512(blocks GPVirtual) {
	off, bits, mask, v := GP64(), GP64(), K(), data[3]
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
	VPXORD(top, v, v)
	VPDPWSSD(one, v, acc[3])
	ADDQ(off, s.src)
	ADDQ(off, s.dst)
	SUBQ(off, s.n)
	MOVL(U32(1<<20), blocks.As32())
	Label("aligned")
}

// restAVX512 adds what is left, less than 256 bytes: n is 256 less than that.
func (s *source) restAVX512() {
	step := func(n int) {
		SUBQ(I8(-n), s.src)
		if s.copies {
			SUBQ(I8(-n), s.dst)
		}
	}
	TESTQ(U32(128), s.n)
	JZ(LabelRef("rest64"))
	s.add(0, 0)
	s.add(64, 1)
	step(128)
	Label("rest64")
	TESTQ(U32(64), s.n)
	JZ(LabelRef("tail"))
	s.add(0, 2)
	step(64)
	Label("tail")
	ANDQ(Imm(63), s.n)
	JZ(LabelRef("fold"))
	bits, mask, v := GP64(), K(), data[3]
	MOVQ(I32(-1), bits)
	BZHIQ(s.n, bits, bits)
	KMOVQ(bits, mask)
	VMOVDQU8_Z(s.at(0), mask, v)
	if s.copies {
		VMOVDQU8(v, mask, s.to(0))
	}
	VPXORD(top, v, v)
	VPDPWSSD(one, v, acc[3])
}

// foldAVX512 adds all lanes, which are signed.
func foldAVX512() GPVirtual {
	for n := len(acc) / 2; n > 0; n /= 2 {
		for i := range n {
			VPADDD(acc[n+i], acc[i], acc[i])
		}
	}
	t, u := acc[0], acc[1]
	VEXTRACTI64X4(Imm(1), t, u.AsY())
	VPADDD(u.AsY(), t.AsY(), t.AsY())
	VEXTRACTI32X4(Imm(1), t.AsY(), u.AsX())
	VPADDD(u.AsX(), t.AsX(), t.AsX())
	VPSHUFD(Imm(0x4e), t.AsX(), u.AsX())
	VPADDD(u.AsX(), t.AsX(), t.AsX())
	VPSHUFD(Imm(0xb1), t.AsX(), u.AsX())
	VPADDD(u.AsX(), t.AsX(), t.AsX())
	sum := GP64()
	VMOVD(t.AsX(), sum.As32())
	MOVLQSX(sum.As32(), sum)
	return sum
}
