package engine

import (
	"encoding/binary"

	"github.com/bluering/bluering/ring"
)

// quick names the loop that writes a queue pair's common requests.
type quick uint8

const (
	quickNone quick = iota // the long way for all
	quickUD
	quickRaw0  // raw, nothing inline
	quickRaw18 // raw, 18 bytes inline
)

const (
	noRef       = ^uint64(0) // no region's reference
	ethHeader   = 14
	flagsByte   = 8 * (ring.OffFMCESE - 8) // bit position of fm_ce_se in the second word, read little-endian
	maxMessage  = 1 << 31
	commonFlags = Signaled | Solicited
	allFlags    = Fence | Signaled | Solicited | Inline | IPCsum
)

// encoder turns requests into WQEs. It has what the loops need in one place.
type encoder struct {
	mrs       *mrTable
	word      uint64 // opcode SEND, QP number and size of a common WQE, as in its first word
	second    uint64 // its second word, little-endian, for a request without Signaled
	always    uint8  // FlagSignaled when every request is signaled
	quick     quick
	open      bool // the state takes sends
	profile   Profile
	raw       bool
	minInline int
	minFrame  uint64
	maxSGE    int
	maxInline int
	maxHeader int
	maxTSO    uint64
	csum      bool
	qpn       uint32
	pd        *PD
}

func (e *encoder) init(q *QP, sigAll bool) {
	c := &q.dev.caps
	*e = encoder{
		mrs: q.dev.mrs, word: uint64(ring.OpSend)<<32 | uint64(q.qpn)<<8, profile: c.Profile,
		raw: q.typ == RawPacket, minInline: c.MinInline, minFrame: ethHeader,
		maxSGE: q.cap.MaxSendSGE, maxInline: q.cap.MaxInline, maxHeader: q.cap.MaxTSOHeader,
		maxTSO: uint64(c.MaxTSO), qpn: q.qpn, pd: q.pd,
	}
	if sigAll {
		e.always = ring.FlagSignaled
	}
	e.second = uint64(e.always) << flagsByte
	if c.Profile == ProfileMLX5 {
		e.minFrame = 1
	}
	if !e.raw {
		e.minInline, e.csum = 0, c.Has(OffloadUDCsum)
		e.word |= gramDS
		e.quick = quickUD
		return
	}
	e.minFrame = max(e.minFrame, uint64(c.MinInline))
	e.csum = c.Has(OffloadRawCsum)
	e.quick = quickRaw0
	e.word |= uint64(2 + ring.EthDS(e.minInline))
	if e.minInline != 0 {
		e.quick = quickRaw18
	}
}

// run0 writes requests of the common kind: a frame in one piece, no flag but
// Signaled, nothing inline. It stops at the first that is not, and leaves it to
// the long way to find out what it is. A region is looked up once for a run of
// requests on it.
func (e *encoder) run0(w []ring.Block, wrs []SendWR, ids []uint64, pi uint32) int {
	ref := noRef
	mrs, second := e.mrs, e.second
	first := e.word | uint64(uint16(pi))<<40 // no run crosses the ring's edge, so 16 bits do not wrap within one
	w, ids = w[:len(wrs)], ids[:len(wrs)]
	for i := range wrs {
		wr := &wrs[i]
		if wr.special() || len(wr.SGEs) != 1 {
			return i
		}
		s := &wr.SGEs[0]
		if s.Len-ethHeader >= maxMessage-ethHeader {
			return i
		}
		if s.MR.ref != ref {
			if mrs.find(s.MR.ref) == nil {
				return i
			}
			ref = s.MR.ref
		}
		b := &w[i]
		binary.BigEndian.PutUint64(b[0:8], first+uint64(i)<<40)
		binary.LittleEndian.PutUint64(b[8:16], second|uint64(wr.Flags&Signaled)<<(flagsByte+2))
		*(*[16]byte)(b[16:32]) = [16]byte{}
		binary.BigEndian.PutUint64(b[32:40], uint64(s.Len)<<32|uint64(s.MR.lkey))
		binary.BigEndian.PutUint64(b[40:48], s.MR.addr+uint64(s.Off))
		*(*[16]byte)(b[48:64]) = [16]byte{}
		ids[i] = wr.ID
	}
	return len(wrs)
}

// special reports whether the request is not for the loops: tests that hardly
// ever say yes, folded into one branch.
func (wr *SendWR) special() bool {
	return (int(wr.Opcode)^int(OpSend))|int(wr.Flags&^commonFlags)|len(wr.Inline) != 0
}

// run18 is run0 for devices that want the first 18 bytes in the WQE.
func (e *encoder) run18(w []ring.Block, wrs []SendWR, ids []uint64, pi uint32) int {
	ref := noRef
	var mem []byte
	second := e.second
	first := e.word | uint64(uint16(pi))<<40
	w, ids = w[:len(wrs)], ids[:len(wrs)]
	for i := range wrs {
		wr := &wrs[i]
		if wr.special() || len(wr.SGEs) != 1 {
			return i
		}
		s := &wr.SGEs[0]
		if s.Len-(ring.EthInline18+1) >= maxMessage-(ring.EthInline18+1) {
			return i
		}
		if s.MR.ref != ref {
			r := e.mrs.find(s.MR.ref)
			if r == nil {
				return i
			}
			ref, mem = s.MR.ref, r.mem
		}
		if uint64(len(mem)) < uint64(s.Off)+ring.EthInline18 {
			return i
		}
		b := &w[i]
		binary.BigEndian.PutUint64(b[0:8], first+uint64(i)<<40)
		binary.LittleEndian.PutUint64(b[8:16], second|uint64(wr.Flags&Signaled)<<(flagsByte+2))
		ring.PutEth18(b, 0, (*[ring.EthInline18]byte)(mem[s.Off:]))
		binary.BigEndian.PutUint64(b[48:56], uint64(s.Len-ring.EthInline18)<<32|uint64(s.MR.lkey))
		binary.BigEndian.PutUint64(b[56:64], s.MR.addr+uint64(s.Off)+ring.EthInline18)
		ids[i] = wr.ID
	}
	return len(wrs)
}

// ce moves Signaled to its place in the control segment.
func ce(f SendFlags) uint8 { return uint8(f&Signaled) << 2 }

const _ = uint(ring.FlagSignaled-uint8(Signaled)<<2) + uint(uint8(Signaled)<<2-ring.FlagSignaled)

// plan is what a WQE will look like.
type plan struct {
	op     ring.Opcode
	ds     int
	header int    // bytes of the inline header
	inline int    // bytes of the inline segment
	total  uint64 // bytes of data
	head   [ring.EthInline18]byte
}

// ringOpcodes are the WQE opcodes of work requests. Those outside the profile
// are written for profile mlx5 only, which leaves their refusal to the device.
var ringOpcodes = [numOpcodes]ring.Opcode{
	OpWrite: ring.OpWrite, OpWriteImm: ring.OpWriteImm, OpSend: ring.OpSend, OpSendImm: ring.OpSendImm,
	OpRead: ring.OpRead, OpCmpSwap: ring.OpCmpSwap, OpFetchAdd: ring.OpFetchAdd, OpLocalInv: ring.OpUMR,
	OpBindMW: ring.OpUMR, OpSendInval: ring.OpSendInval, OpTSO: ring.OpTSO,
}

// plan judges a request (items C, D, K) and sizes its WQE.
func (e *encoder) plan(wr *SendWR, p *plan) Cause {
	if cause := e.checkOpcode(wr); cause != CauseNone {
		return cause
	}
	if cause := e.checkFlags(wr); cause != CauseNone {
		return cause
	}
	if len(wr.SGEs) > e.maxSGE {
		return CauseSGECount
	}
	p.op = ringOpcodes[wr.Opcode]
	segs, cause := e.checkPieces(wr, p)
	if cause != CauseNone {
		return cause
	}
	p.total += uint64(len(wr.Inline))
	if p.total >= maxMessage {
		return CauseLength
	}
	p.ds, p.inline = 4, len(wr.Inline)
	switch {
	case wr.Opcode == OpTSO:
		cause = e.planTSO(wr, p)
	case e.raw:
		segs, cause = e.planRaw(wr, p, segs)
	case wr.AH == nil || wr.AH.pd == nil:
		cause = CauseNoAH
	case wr.AH.pd != e.pd && (e.profile == ProfileStrict || wr.AH.pd.dev != e.pd.dev):
		cause = CauseAHDomain
	}
	p.ds += segs + ring.InlineDS(p.inline)
	return cause
}

func (e *encoder) checkOpcode(wr *SendWR) Cause {
	switch op := wr.Opcode; {
	case op >= numOpcodes:
		return CauseOpcode
	case op == OpSend, op == OpTSO && e.raw, op == OpSendImm && !e.raw:
		return CauseNone
	case e.profile == ProfileMLX5 && op != OpTSO:
		return CauseNone // D4: the device completes it with LOC_QP_OP_ERR
	}
	return CauseOpcode
}

func (e *encoder) checkFlags(wr *SendWR) Cause {
	f := wr.Flags
	strict := e.profile == ProfileStrict
	switch {
	case strict && f&^allFlags != 0, strict && f&Fence != 0:
		return CauseFlags
	case f&Inline != 0 && (wr.Opcode == OpTSO || len(wr.SGEs) != 0):
		return CauseFlags
	case f&Inline == 0 && len(wr.Inline) != 0:
		return CauseFlags
	case f&Inline != 0 && len(wr.Inline) > e.maxInline:
		return CauseInline
	case f&IPCsum != 0 && !e.csum && (e.raw || strict):
		return CauseCsum
	}
	return CauseNone
}

// checkPieces adds up the pieces that are not empty; of the others not even the
// key is looked at (D-11).
func (e *encoder) checkPieces(wr *SendWR, p *plan) (segs int, cause Cause) {
	ref := noRef
	for i := range wr.SGEs {
		s := &wr.SGEs[i]
		if s.Len == 0 {
			continue
		}
		if s.MR.ref != ref {
			if e.mrs.find(s.MR.ref) == nil {
				return 0, CauseKey
			}
			ref = s.MR.ref
		}
		p.total += uint64(s.Len)
		segs++
	}
	return segs, CauseNone
}

// planRaw sizes a raw send and gathers the inline header. Pieces that lie in it
// whole are not written.
func (e *encoder) planRaw(wr *SendWR, p *plan, segs int) (int, Cause) {
	switch {
	case p.total == 0:
		return 0, CauseNoData
	case p.total < e.minFrame:
		return 0, CauseShort
	}
	p.header = e.minInline
	p.ds = 1 + ring.EthDS(p.header)
	if p.header == 0 {
		return segs, CauseNone
	}
	if wr.Flags&Inline != 0 {
		copy(p.head[:], wr.Inline)
		p.inline -= p.header
		return segs, CauseNone
	}
	got := 0
	for i := 0; i < len(wr.SGEs) && got < p.header; i++ {
		s := &wr.SGEs[i]
		if s.Len == 0 {
			continue
		}
		r := e.mrs.find(s.MR.ref)
		if r.mem == nil {
			return 0, CauseForeignKey
		}
		take := uint64(min(uint32(p.header-got), s.Len))
		if uint64(s.Off)+take > uint64(len(r.mem)) {
			return 0, CauseBounds
		}
		got += copy(p.head[got:], r.mem[s.Off:uint64(s.Off)+take])
		if take == uint64(s.Len) {
			segs--
		}
	}
	return segs, CauseNone
}

// planTSO sizes a segmented send (K-01..K-07). One without payload is a frame of
// the header.
func (e *encoder) planTSO(wr *SendWR, p *plan) Cause {
	n := len(wr.TSOHeader)
	switch {
	case n < ethHeader, n > e.maxHeader:
		return CauseTSOHeader
	case wr.MSS == 0 && e.profile != ProfileMLX5:
		return CauseTSOMSS
	case e.maxTSO != 0 && p.total > e.maxTSO:
		return CauseTSOLength
	}
	p.header = n
	p.ds = 1 + ring.EthDS(n)
	return CauseNone
}

// write encodes a request that plan has passed.
func (e *encoder) write(w []ring.Block, pi uint32, wr *SendWR, p *plan) {
	fm := e.always | ce(wr.Flags)
	if wr.Flags&Fence != 0 {
		fm |= ring.FlagFence
	}
	imm := uint32(0)
	if !e.raw {
		if wr.Flags&Solicited != 0 {
			fm |= ring.FlagSolicited
		}
		if wr.Opcode == OpSendImm {
			imm = wr.Imm
		}
	}
	ring.PutCtrl(&w[0], uint16(pi), p.op, e.qpn, p.ds, fm, imm)
	ds := 4
	csum := uint8(0)
	if wr.Flags&IPCsum != 0 {
		csum = ring.CsumL3 | ring.CsumL4
	}
	switch {
	case !e.raw:
		ring.PutDatagram(&w[0], &wr.AH.av, wr.RemoteQKey, wr.RemoteQPN)
		if wr.AH.pd != e.pd && e.profile == ProfileRXE { // C-29: for the device to refuse; a WQE names no domain
			(*ring.AV)(w[0][16:64]).SetSGIDIndex(noGID)
		}
	case wr.Opcode == OpTSO:
		ds = ring.PutEth(w, csum, wr.MSS, wr.TSOHeader)
	default:
		ds = ring.PutEth(w, csum, 0, p.head[:p.header])
	}
	if wr.Flags&Inline != 0 {
		ds = ring.PutInline(w, ds, wr.Inline[len(wr.Inline)-p.inline:])
	} else {
		skip := uint32(p.header)
		if wr.Opcode == OpTSO {
			skip = 0
		}
		ds = putPieces(w, ds, wr.SGEs, skip)
	}
	ring.PutTail(w, ds)
}

// putPieces writes pointers to the pieces but for their first skip bytes.
func putPieces(w []ring.Block, ds int, sges []SGE, skip uint32) int {
	for i := range sges {
		s := &sges[i]
		cut := min(skip, s.Len)
		skip -= cut
		if s.Len == cut {
			continue
		}
		ring.PutData(w, ds, ring.Seg{Addr: s.MR.addr + uint64(s.Off) + uint64(cut), Len: s.Len - cut, LKey: s.MR.lkey})
		ds++
	}
	return ds
}
