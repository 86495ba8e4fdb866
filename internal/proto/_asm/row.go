package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The kernels of rows take four frames at a time. Each frame's payload is folded into a vector of its own, and that into
// one lane of 128 bits. The four lanes then stand in one vector, to which the PSNs are added, each moved on to its
// frame's end, and all four are reduced at once. Thus the products, which come late, overlap.

const group = 4

// Where things stand in a Row and in a RowGram.
const (
	rowFirst, rowLast, rowGRH, rowSame, rowAtEnd = 0, 64, 96, 136, 144
	rowLoad, rowStore, rowTail, rowKey           = 152, 160, 168, 176
	rowHead, rowStart, rowPadded, rowCRC         = 184, 192, 200, 216

	gramFrame, gramData, gramBytes = 0, 8, 16
	grhBytes, psnBack              = 40, 12
)

// rowConstants are those of fold for each lane, the mask of a lane's lowest 32 bits, and the places of the seconds.
type rowConstants struct{ ends, fold64, reduce, last, lowest, seconds Mem }

func dwords(name string, d ...uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range d {
		DATA(4*i, U32(v))
	}
	return m
}

// row is what both kernels keep in registers.
type row struct {
	p, grams, n               GPVirtual // arguments; the first is used by begin and until the loop
	head, start, padded, tail GPVirtual // as in Row
	icrc                      GPVirtual // where the ICRC stands in a frame
	frame, data, at, next     GPVirtual
	tmp                       GPVirtual

	first, last              VecVirtual // of Row
	ends, reduce, after, low VecVirtual // constants
	key, crc                 VecVirtual // of Row, in each lane
	psn                      VecVirtual // the words of the four PSNs as they stand in the frames, one in each lane
	acc                      [group]VecVirtual
	by64                     folder
	load, store              Register        // masks of Row
	lanes                    [group]Register // masks of the lowest 32 bits of one lane
}

// begin loads the arguments and what is the same for all frames.
func begin(name, signature, doc string, c rowConstants) *row {
	TEXT(name, NOSPLIT, signature)
	Doc(name + doc)
	Pragma("noescape")
	r := &row{p: GP64(), grams: GP64(), n: GP64()}
	Load(Param("r"), r.p)
	Load(Param("grams"), r.grams)
	Load(Param("groups"), r.n)
	word := func(off int) GPVirtual {
		v := GP64()
		MOVQ(r.of(off), v)
		return v
	}
	r.head, r.start, r.padded, r.tail = word(rowHead), word(rowStart), word(rowPadded), word(rowTail)
	r.icrc, r.frame, r.data, r.at, r.next, r.tmp = GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: r.head, Index: r.padded, Scale: 1}, r.icrc)

	lanes := func(m Mem) VecVirtual {
		v := ZMM()
		VBROADCASTI32X4(m, v)
		return v
	}
	r.first, r.last, r.ends, r.key, r.crc, r.psn = ZMM(), YMM(), ZMM(), ZMM(), ZMM(), ZMM()
	VMOVDQU64(r.of(rowFirst), r.first)
	VMOVDQU64(r.of(rowLast), r.last)
	VMOVDQU64(c.ends, r.ends)
	VPBROADCASTQ(r.of(rowKey), r.key)
	VPBROADCASTD(r.of(rowCRC), r.crc)
	VPXORQ(r.psn, r.psn, r.psn)
	r.reduce, r.after, r.low = lanes(c.reduce), lanes(c.last), lanes(c.lowest)
	r.by64 = newFolder(c.fold64)
	r.load, r.store = r.mask(rowLoad), r.mask(rowStore)
	for i := range r.lanes {
		r.lanes[i], r.acc[i] = K(), ZMM()
		MOVL(U32(1<<(4*i)), r.tmp.As32())
		KMOVW(r.tmp.As32(), r.lanes[i])
	}
	return r
}

// of is a field of the Row.
func (r *row) of(off int) Mem { return Mem{Base: r.p, Disp: off} }

func (r *row) mask(off int) Register {
	k := K()
	KMOVQ(r.of(off), k)
	return k
}

// atFrame points frame to that of gram i, atData data to its data.
func (r *row) atFrame(i int) { MOVQ(Mem{Base: r.grams, Disp: gramBytes*i + gramFrame}, r.frame) }

func (r *row) atData(i int) { MOVQ(Mem{Base: r.grams, Disp: gramBytes*i + gramData}, r.data) }

// vectors writes body for each vector behind the first, at counting up to where the pad ends. mask, if any, is then that
// of the vector's payload.
func (r *row) vectors(name string, mask Register, body func()) {
	LEAQ(Mem{Base: r.start, Disp: 64}, r.at)
	CMPQ(r.at, r.padded)
	JE(LabelRef(name + "Done"))
	Label(name)
	LEAQ(Mem{Base: r.at, Disp: 64}, r.next)
	if mask != nil {
		MOVQ(I32(-1), r.tmp)
		CMPQ(r.next, r.padded)
		CMOVQEQ(r.tail, r.tmp)
		KMOVQ(r.tmp, mask)
	}
	body()
	MOVQ(r.next, r.at)
	CMPQ(r.at, r.padded)
	JNE(LabelRef(name))
	Label(name + "Done")
}

// there is a place behind a pointer.
func there(base GPVirtual, index Register) Mem { return Mem{Base: base, Index: index, Scale: 1} }

// multiply is a product without carries of one half of the lanes of a with one of those of b.
func multiply(halves uint8, b, a VecVirtual) VecVirtual {
	v := ZMM()
	VPCLMULQDQ(Imm(uint64(halves)), b, a, v)
	return v
}

func shuffle(order uint8, b, a VecVirtual) VecVirtual {
	v := ZMM()
	VSHUFI32X4(Imm(uint64(order)), b, a, v)
	return v
}

// finish gives the ICRCs of the four frames in the second 32 bits of the lanes.
func (r *row) finish() VecVirtual {
	for _, a := range r.acc {
		hi := multiply(0x11, r.ends, a)
		VPCLMULQDQ(Imm(0x00), r.ends, a, a)
		VPXORQ(hi, a, a)
	}
	var pairs [2]VecVirtual // lanes 0 and 1 are of one frame
	for i := range pairs {
		a, b := r.acc[2*i], r.acc[2*i+1]
		pairs[i] = shuffle(0x44, b, a)
		VPXORQ(shuffle(0xee, b, a), pairs[i], pairs[i])
	}
	t := shuffle(0x88, pairs[1], pairs[0])
	VPTERNLOGQ(Imm(0x96), shuffle(0xdd, pairs[1], pairs[0]), multiply(0x00, r.key, r.psn), t)
	low := multiply(0x00, r.after, r.lowest(t))
	VPSRLDQ(Imm(4), t, t)
	VPXORQ(low, t, t)
	low = multiply(0x10, r.reduce, r.lowest(t))
	low = multiply(0x00, r.reduce, r.lowest(low))
	VPTERNLOGQ(Imm(0x96), r.crc, low, t)
	return t
}

// lowest is the lowest 32 bits of each lane alone.
func (r *row) lowest(v VecVirtual) VecVirtual {
	low := ZMM()
	VPANDD(r.low, v, low)
	return low
}

func seal(c rowConstants) {
	r := begin("sealAVX512", "func(r, grams *byte, groups int, psn uint32)",
		" writes the frames of so many groups of four grams, as Row.seal does.", c)
	psn := Load(Param("psn"), GP32()).(GPVirtual)
	mask, places := K(), XMM()
	VMOVDQU64(c.seconds, places)
	Label("group")
	for i, acc := range r.acc {
		r.atFrame(i)
		r.atData(i)
		VMOVDQU64(r.first, Mem{Base: r.frame})
		ADDQ(r.head, r.frame)
		VMOVDQU64(r.last, Mem{Base: r.frame, Disp: -32})
		ANDL(U32(1<<24-1), psn)
		MOVL(psn, r.tmp.As32())
		BSWAPL(r.tmp.As32())
		MOVL(r.tmp.As32(), Mem{Base: r.frame, Disp: -psnBack})
		VPBROADCASTD(r.tmp.As32(), r.lanes[i], r.psn)
		INCL(psn)
		VMOVDQU8_Z(there(r.data, r.start), r.load, acc)
		VMOVDQU8(acc, r.store, there(r.frame, r.start))
	}
	r.vectors("vector", mask, func() {
		for i, acc := range r.acc {
			r.atFrame(i)
			r.atData(i)
			ADDQ(r.head, r.frame)
			v := ZMM()
			VMOVDQU8_Z(there(r.data, r.at), mask, v)
			VMOVDQU64(v, there(r.frame, r.at))
			r.by64.fold(acc, v)
		}
	})
	out := r.finish()
	all := ZMM()
	VPERMD(out, places.AsZ(), all)
	for i := range r.acc {
		r.atFrame(i)
		VPEXTRD(Imm(uint64(i)), all.AsX(), there(r.frame, r.icrc))
	}
	ADDQ(Imm(group*gramBytes), r.grams)
	DECQ(r.n)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

func open(c rowConstants) {
	r := begin("openAVX512", "func(r, grams *byte, groups int) int",
		" does as Row.open for so many groups of four grams, and returns how many are before the first that is not all good.", c)
	same, atEnd, grh := ZMM(), YMM(), YMM()
	grhEnd := XMM()
	mask := K()
	KMOVQ(r.of(rowSame), mask)
	VPMOVM2B(mask, same)
	KMOVQ(r.of(rowAtEnd), mask)
	VPMOVM2B(mask, atEnd)
	VMOVDQU64(r.of(rowGRH), grh)
	VMOVQ(r.of(rowGRH+32), grhEnd)
	bad, icrc, groups := ZMM(), ZMM(), GP64()
	VPXORQ(icrc, icrc, icrc)
	XORQ(groups, groups)

	Label("group")
	VPXORQ(bad, bad, bad)
	for i, acc := range r.acc {
		r.atFrame(i)
		x := ZMM()
		VPXORQ(Mem{Base: r.frame}, r.first, x)
		VPTERNLOGQ(Imm(0xf8), x, same, bad) // or what differs and is to be the same
		VPBROADCASTD(there(r.frame, r.icrc), r.lanes[i], icrc)
		ADDQ(r.head, r.frame)
		x = ZMM()
		VPXORQ(Mem{Base: r.frame, Disp: -32}, r.last, x.AsY())
		VPTERNLOGQ(Imm(0xf8), x, atEnd.AsZ(), bad)
		VPBROADCASTD(Mem{Base: r.frame, Disp: -psnBack}, r.lanes[i], r.psn)
		VMOVDQU8_Z(there(r.frame, r.start), r.store, acc)
	}
	r.vectors("vector", nil, func() {
		for i, acc := range r.acc {
			r.atFrame(i)
			ADDQ(r.head, r.frame)
			r.by64.fold(acc, there(r.frame, r.at))
		}
	})
	out := r.finish()
	VPSRLDQ(Imm(4), out, out)
	VPXORQ(icrc, out, out)
	VPTERNLOGQ(Imm(0xf8), out, r.low, bad)
	VPTESTMQ(bad, bad, mask)
	KORTESTB(mask, mask)
	JNZ(LabelRef("end"))

	r.copyOut(grh, grhEnd, mask)
	INCQ(groups)
	CMPQ(groups, r.n)
	JNE(LabelRef("group"))
	Label("end")
	Store(groups, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// copyOut writes what is in front of the payloads, and those, to the receive buffers of a group, and steps over it. One
// frame goes behind the other, because the buffers may overlap.
func (r *row) copyOut(grh, grhEnd VecVirtual, mask Register) {
	left := GP64()
	MOVL(U32(group), left.As32())
	Label("copy")
	r.atFrame(0)
	r.atData(0)
	ADDQ(r.head, r.frame)
	v := ZMM()
	VMOVDQU8_Z(there(r.frame, r.start), r.load, v)
	VMOVDQU64(grh, Mem{Base: r.data})
	VMOVQ(grhEnd, Mem{Base: r.data, Disp: 32})
	ADDQ(Imm(grhBytes), r.data)
	VMOVDQU8(v, r.load, there(r.data, r.start))
	r.vectors("copyVector", mask, func() {
		v := ZMM()
		VMOVDQU64(there(r.frame, r.at), v)
		VMOVDQU8(v, mask, there(r.data, r.at))
	})
	ADDQ(Imm(gramBytes), r.grams)
	DECQ(left)
	JNZ(LabelRef("copy"))
}
