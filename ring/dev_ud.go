package ring

import "encoding/binary"

// Gram is a decoded send WQE of the commonest shapes of a datagram: SEND or
// SEND_IMM of one pointer, or of up to 60 bytes inline. AV and Inline point into
// the ring: they are valid until the WQE's completion is published.
type Gram struct {
	Seg              // of the pointer; Len is the length of inline data, too
	Inline    []byte // nil: a pointer
	AV        *AV
	QKey      uint32
	QPN       uint32
	Imm       uint32 // SEND_IMM
	Index     uint16
	Signaled  bool
	Solicited bool
}

const (
	gramDS = 5 // control, datagram segment, pointer
	gramBB = 2
)

// FetchGrams decodes and validates up to len(out) WQEs from the consumer counter
// on, without stepping over them, as long as they are of the shape of a Gram and
// have the opcode of the first. All others, NOPs and those that break a rule
// among them, end the run and are left to Fetch: what is given here passes each
// rule that Fetch applies. The record is read only when fewer slots are known of.
func (d *DevSQ) FetchGrams(out []Gram) (n int, op Opcode) {
	if d.limits.Kind != UD {
		return 0, 0
	}
	if int(d.pi-d.ci) < gramBB*len(out) {
		d.Pending()
	}
	ci, blocks := d.ci, d.blocks
	out = out[:min(len(out), int(d.pi-ci)/gramBB)]
	if len(out) == 0 || len(blocks) < gramBB {
		return 0, 0
	}
	op = OpSend
	if get64(blocks[int(ci)&(len(blocks)-1)][0:8])>>32&0xff == uint64(OpSendImm) {
		op = OpSendImm
	}
	want := uint64(op)<<32 | uint64(d.qpn)<<8 | gramDS
	for i := range out {
		slot := int(ci) & (len(blocks) - 1)
		if slot+1 >= len(blocks) {
			return i, op
		}
		w, data := &blocks[slot], &blocks[slot+1]
		c0, c1 := get64(w[0:8]), get64(w[8:16])
		av := (*AV)(w[16:64])
		key, dest := get64(av[0:8]), get32(av[8:12])
		head := get64(data[0:8])
		size := uint32(head >> 32)
		c0 ^= want | uint64(uint16(ci))<<40
		if c1>>32&^(FlagSignaled|FlagSolicited) != 0 ||
			uint32(key) != 0 || dest>>24 != avLong>>24 || get32(av[16:20])|av.gidFlow()>>28 != 0 {
			return i, op
		}
		g := &out[i]
		g.Inline = nil
		if c0 != 0 || size-1 >= inlineFlag-1 {
			if size -= inlineFlag; size-1 >= ShortInline || c0 != gramDS^uint64(4+InlineDS(int(size))) {
				return i, op
			}
			g.Inline = data[inlineHead : inlineHead+size]
		}
		g.Addr = get64(data[8:16])
		g.Len, g.LKey = size, uint32(head)
		g.AV, g.QKey, g.QPN, g.Imm = av, uint32(key>>32), dest&0xffffff, uint32(c1)
		g.Index, g.Signaled, g.Solicited = uint16(ci), c1>>32&FlagSignaled != 0, c1>>32&FlagSolicited != 0
		ci += gramBB
	}
	return len(out), op
}

// FetchGramRow is FetchGrams for a row: it decodes the first WQE and gives how many
// there are, up to len(addrs) and MaxRun, that differ from it in counter, Signaled
// and address only, and stand one behind the other up to the ring's edge; 0 when
// they are less than least. addrs gets the address of each pointer or, of inline
// data, its place in Bytes. Bit i of signaled says that WQE i wants its completion.
// There is no row of SEND_IMM. The record is not read.
func (d *DevSQ) FetchGramRow(addrs []uint64, least int) (g Gram, n int, signaled uint64) {
	slot := int(d.ci & d.mask)
	n = min(len(addrs), MaxRun, int(d.pi-d.ci)/gramBB, (len(d.blocks)-slot)/gramBB)
	var one [1]Gram
	if n < max(least, 1) {
		return g, 0, 0
	}
	if got, op := d.FetchGrams(one[:]); got == 0 || op != OpSend {
		return g, 0, 0
	}
	g = one[0]
	row := d.blocks[slot : slot+gramBB*n]
	c0, c1, head, same := get64(row[0][0:8]), get64(row[0][8:16])>>32, get64(row[1][0:8]), ^uint64(0)
	if g.Inline != nil {
		same <<= 32 // the length alone
	}
	av := (*[48]byte)(row[0][16:64])
	a0, a1, a2, a3, a4, a5 := word(av[0:8]), word(av[8:16]), word(av[16:24]), word(av[24:32]), word(av[32:40]), word(av[40:48])
	for i := range addrs[:n] {
		w, data := &row[gramBB*i], &row[gramBB*i+1]
		flags := get64(w[8:16]) >> 32
		x := (get64(w[0:8]) ^ (c0 + uint64(gramBB*i)<<40)) | (flags^c1)&^FlagSignaled | (get64(data[0:8])^head)&same
		x |= (word(w[16:24]) ^ a0) | (word(w[24:32]) ^ a1) | (word(w[32:40]) ^ a2)
		x |= (word(w[40:48]) ^ a3) | (word(w[48:56]) ^ a4) | (word(w[56:64]) ^ a5)
		if x != 0 {
			n = i
			break
		}
		addrs[i] = get64(data[8:16])
		signaled |= flags / FlagSignaled & 1 << (uint(i) % MaxRun)
	}
	if n < least {
		return g, 0, 0
	}
	if g.Inline != nil {
		for i := range addrs[:n] {
			addrs[i] = uint64(slot+gramBB*i+1)*BlockBytes + inlineHead
		}
	}
	return g, n, signaled
}

// word reads eight bytes in the machine's order, to be compared.
func word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// Bytes gives the ring's memory.
func (d *DevSQ) Bytes() []byte { return Flatten(d.blocks) }

// AdvanceGrams steps over the first n WQEs that FetchGrams decoded.
func (d *DevSQ) AdvanceGrams(n int) {
	d.ci += min(gramBB*uint32(n), d.pi-d.ci)
	d.bb = 0
}

// DoneGram is the completion of one received datagram of a burst.
type DoneGram struct {
	Time      uint64
	Bytes     uint32 // with the 40 in front
	Source    uint32 // GRHInBuffer and the RoCE kind in the upper byte, the sender's QP number below
	Imm       uint32
	Counter   uint16
	HasImm    bool
	Solicited bool
}

// PutGram writes and seals the receive completion of one datagram: the bytes that
// Next, PutRecv, SetSource, SetImm and Seal would write. The caller has asked Room.
func (d *DevCQ) PutGram(uidx, qpn uint32, w *DoneGram) {
	c := d.entry(d.pi)
	c.zero32()
	put32(c[cqeFlagsQP:], w.Source)
	op := uint64(CQERecv)
	if w.HasImm {
		op = uint64(CQERecvImm)
	}
	op <<= 4
	if w.Solicited {
		op |= OpOwnSolicited
		d.urgent = true
	}
	c.putMiddle(uidx, w.Imm, w.Bytes, w.Time)
	put64(c[56:64], uint64(qpn&0xffffff)<<32|uint64(w.Counter)<<16|op|uint64(d.pi>>d.lap&1))
	d.pi++
}

// PutGrams is PutGram for each of done, of one queue pair.
func (d *DevCQ) PutGrams(uidx, qpn uint32, done []DoneGram) {
	for i := range done {
		d.PutGram(uidx, qpn, &done[i])
	}
}

// PutGramRow is PutGrams for n datagrams of a row: their counters go up by one, all
// else is as done says, which has no immediate.
func (d *DevCQ) PutGramRow(uidx, qpn uint32, done DoneGram, n int) {
	r := doneRun{
		user: swap64(uint64(uidx&0xffffff) << 32), time: swap64(done.Time),
		last: uint64(qpn&0xffffff)<<32 | uint64(CQERecv)<<4,
	}
	if done.Solicited {
		r.last |= OpOwnSolicited
		d.urgent = true
	}
	for n > 0 {
		part := d.part(n)
		r.last = r.last&^1 | uint64(d.pi>>d.lap&1)
		for i := range part {
			c := &part[i]
			c.putDone(&r, done.Bytes, done.Counter)
			put32(c[cqeFlagsQP:], done.Source)
			done.Counter++
		}
		d.pi += uint32(len(part))
		n -= len(part)
	}
}
