package ring

import (
	"strconv"
)

// SendLimits is what a device demands of the WQEs of one send queue.
type SendLimits struct {
	Kind      Kind
	MinInline int // mandatory inline header of raw packets: 0 or EthInline18
}

// Rule names a reason to refuse a send WQE. The rules are checked before
// anything is executed.
type Rule uint8

// The rules, in the order in which they are checked.
const (
	RuleNone Rule = iota
	RuleSize
	RuleNoWrap
	RulePublished
	RuleIndex
	RuleQPN
	RuleOpmod
	RuleNoSignature
	RuleCtrlReserved
	RuleFence
	RuleCompletion
	RuleOpcode
	RuleEthReserved
	RuleCsumFlags
	RuleInlineHdrRoom
	RuleMinInline
	RuleMSS
	RuleTSOHeader
	RuleTSOPayload
	RuleAVRoom
	RuleAVLong
	RuleAVReserved
	RulePointerLen
	RuleInlineLen
	RuleInlineLast
	RuleTotalLen
	RuleEmptyFrame
	ruleCount
)

// ruleInfo describes each rule. Sources: "FORMAT" is docs/FORMAT.md, which
// says where its statements come from; a name beginning with mlx5 is in the
// C header infiniband/mlx5dv.h.
var ruleInfo = [ruleCount]struct {
	name, source string
	syndrome     Syndrome
}{
	RuleNone:          {"none", "", SynNone},
	RuleSize:          {"size", "FORMAT, control segment: ds is 1..63; a send has a second segment", SynLocalQPOp},
	RuleNoWrap:        {"no-wrap", "FORMAT, profile: a WQE ends before the ring does", SynLocalQPOp},
	RulePublished:     {"published", "FORMAT, doorbells: the record covers whole WQEs", SynLocalQPOp},
	RuleIndex:         {"index", "mlx5_wqe_ctrl_seg.opmod_idx_opcode, bits 23:8", SynLocalQPOp},
	RuleQPN:           {"qpn", "mlx5_wqe_ctrl_seg.qpn_ds, bits 31:8", SynLocalQPOp},
	RuleOpmod:         {"opmod", "mlx5_wqe_ctrl_seg.opmod_idx_opcode, bits 31:24, 0 for sends", SynLocalQPOp},
	RuleNoSignature:   {"no-signature", "FORMAT, profile: no signatures", SynLocalQPOp},
	RuleCtrlReserved:  {"ctrl-reserved", "mlx5_wqe_ctrl_seg.dci_stream_channel_id, 0 off DC; ds bits 7:6", SynLocalQPOp},
	RuleFence:         {"fence", "MLX5_WQE_CTRL_FENCE, or none", SynLocalQPOp},
	RuleCompletion:    {"completion", "MLX5_WQE_CTRL_CQ_UPDATE, or none", SynLocalQPOp},
	RuleOpcode:        {"opcode", "FORMAT, control segment: SEND and TSO on RAW_PACKET, SEND and SEND_IMM on UD", SynLocalQPOp},
	RuleEthReserved:   {"eth-reserved", "FORMAT, profile: no software parser, no metadata", SynLocalQPOp},
	RuleCsumFlags:     {"csum-flags", "MLX5_ETH_WQE_L3_CSUM, L4_CSUM and the INNER ones; the rest is reserved", SynLocalQPOp},
	RuleInlineHdrRoom: {"inline-hdr-room", "mlx5_wqe_eth_seg.inline_hdr_sz lies within ds", SynLocalQPOp},
	RuleMinInline:     {"min-inline", "FORMAT, Ethernet segment: 18 bytes on devices that demand a header", SynLocalQPOp},
	RuleMSS:           {"mss", "mlx5_wqe_eth_seg.mss, set for TSO and only there", SynLocalQPOp},
	RuleTSOHeader:     {"tso-header", "ibv_post_send: a TSO header has at least 14 bytes", SynLocalQPOp},
	RuleTSOPayload:    {"tso-payload", "FORMAT, data: a TSO's payload is in pointers", SynLocalQPOp},
	RuleAVRoom:        {"av-room", "mlx5_wqe_datagram_seg is 48 bytes", SynLocalQPOp},
	RuleAVLong:        {"av-long", "MLX5_EXTENDED_UD_AV", SynLocalQPOp},
	RuleAVReserved:    {"av-reserved", "mlx5_wqe_av: reserved words, and no GRH bit on Ethernet", SynLocalQPOp},
	RulePointerLen:    {"pointer-len", "mlx5_wqe_data_seg.byte_count: 1..2^31-1, empty ones are left out", SynLocalLength},
	RuleInlineLen:     {"inline-len", "mlx5_wqe_inl_data_seg.byte_count fits and fills ds", SynLocalLength},
	RuleInlineLast:    {"inline-last", "FORMAT, profile: pointers or one inline segment, not both", SynLocalQPOp},
	RuleTotalLen:      {"total-len", "ibv_port_attr.max_msg_sz: a message is at most 2^31 bytes", SynLocalLength},
	RuleEmptyFrame:    {"empty-frame", "ibv_post_send: a raw packet without data is EINVAL", SynLocalLength},
}

// Name gives the rule's short name.
func (r Rule) Name() string { return r.info().name }

// Source says who demands it.
func (r Rule) Source() string { return r.info().source }

// Syndrome gives what the completion of a WQE that breaks the rule reports.
func (r Rule) Syndrome() Syndrome { return r.info().syndrome }

// String gives name and source.
func (r Rule) String() string { return r.Name() + " (" + r.Source() + ")" }

func (r Rule) info() (i struct {
	name, source string
	syndrome     Syndrome
}) {
	if r < ruleCount {
		return ruleInfo[r]
	}
	i.name, i.syndrome = "rule "+strconv.Itoa(int(r)), SynLocalQPOp
	return i
}

// maxMessage is the largest message of a verbs port, 2^31 bytes.
const maxMessage = 1 << 31

// DecodeSend decodes and validates the WQE at the start of w as the device
// would at counter v.Index. w is what is published and contiguous. It reads
// nothing beyond w, allocates nothing and never panics.
func DecodeSend(w []Block, v *SendWQE, qpn uint32, l *SendLimits) Rule {
	if len(w) == 0 {
		v.DS, v.BB = 0, 0
		return RulePublished
	}
	return decodeSend(w, v, qpn, l)
}

func decodeSend(w []Block, v *SendWQE, qpn uint32, l *SendLimits) Rule {
	b := &w[0]
	c0 := get64(b[0:8])
	c1 := get64(b[8:16])
	ds := int(c0 & 0x3f)
	v.Opcode = Opcode(c0 >> 32)
	v.DS, v.BB = uint8(ds), uint8(BlocksFor(ds))
	v.Signaled = c1>>32&maskCE == FlagSignaled
	v.Solicited = c1>>32&FlagSolicited != 0
	v.Fence = c1>>32&FlagFence != 0
	v.Imm = uint32(c1)
	// The usual control segment passes in one comparison; checkCtrl finds out
	// what is wrong with another, or that it is unusual only.
	if c0&^(0xff<<32|0x3f) != uint64(v.Index)<<40|uint64(qpn)<<8 || ds < 2 || int(v.BB) > len(w) ||
		c1>>32&^(FlagSignaled|FlagSolicited) != 0 {
		if r := checkCtrl(c0, c1, v.Index, qpn, len(w), ds); r != RuleNone {
			return r
		}
	}
	v.InlineHdr, v.Inline, v.AV = nil, nil, nil
	v.CsumFlags, v.MSS, v.NSeg, v.Bytes = 0, 0, 0, 0
	next, r := 0, RuleNone
	if l.Kind == UD {
		next, r = v.decodeUD(b, ds)
	} else {
		next, r = v.decodeEth(w, ds, l.MinInline)
	}
	if r != RuleNone {
		return r
	}
	if r := v.decodeData(w, next, ds); r != RuleNone {
		return r
	}
	return v.checkWhole(l.Kind)
}

// checkCtrl checks the control segment. room is the number of blocks at hand.
func checkCtrl(c0, c1 uint64, index uint16, qpn uint32, room, ds int) Rule {
	fmCeSe := uint8(c1 >> 32)
	switch {
	case ds < 2:
		return RuleSize
	case BlocksFor(ds) > room:
		return RulePublished
	case uint16(c0>>40) != index:
		return RuleIndex
	case uint32(c0>>8)&0xffffff != qpn:
		return RuleQPN
	case c0>>56 != 0:
		return RuleOpmod
	case c1>>56 != 0:
		return RuleNoSignature
	case c0&0xc0 != 0 || c1>>40&0xffff != 0 || fmCeSe&0x11 != 0:
		return RuleCtrlReserved
	case fmCeSe&maskFence != 0 && fmCeSe&maskFence != FlagFence:
		return RuleFence
	case fmCeSe&maskCE != 0 && fmCeSe&maskCE != FlagSignaled:
		return RuleCompletion
	}
	return RuleNone
}

// decodeEth reads the Ethernet segment and gives the unit behind it.
func (v *SendWQE) decodeEth(w []Block, ds, minInline int) (next int, r Rule) {
	if v.Opcode != OpSend && v.Opcode != OpTSO {
		return 0, RuleOpcode
	}
	b := &w[0]
	e0 := get64(b[16:24])
	e1 := get64(b[24:32])
	v.CsumFlags, v.MSS = uint8(e0>>24), uint16(e0)
	h := int(e1 >> 16 & 0xffff)
	next = 1 + EthDS(h)
	switch {
	case e0>>32 != 0 || e0>>16&0xff != 0 || e1>>32 != 0:
		return 0, RuleEthReserved
	case v.CsumFlags&^(CsumL3|CsumL4|CsumInnerL3|CsumInnerL4) != 0:
		return 0, RuleCsumFlags
	case next > ds:
		return 0, RuleInlineHdrRoom
	case h < minInline && v.Opcode != OpTSO:
		return 0, RuleMinInline
	case (v.MSS != 0) != (v.Opcode == OpTSO):
		return 0, RuleMSS
	case v.Opcode == OpTSO && h < 14:
		return 0, RuleTSOHeader
	}
	if h != 0 {
		v.InlineHdr = Flatten(w)[OffInlineHdr : OffInlineHdr+h]
		v.Bytes = uint32(h)
	}
	return next, RuleNone
}

// decodeUD reads the datagram segment and gives the unit behind it.
func (v *SendWQE) decodeUD(b *Block, ds int) (next int, r Rule) {
	if v.Opcode != OpSend && v.Opcode != OpSendImm {
		return 0, RuleOpcode
	}
	if ds < 4 {
		return 0, RuleAVRoom
	}
	av := (*AV)(b[16:64])
	switch {
	case !av.Long():
		return 0, RuleAVLong
	case get32(av[4:8]) != 0 || av[8]&0x7f != 0 ||
		get32(av[16:20]) != 0 || av.gidFlow()>>28 != 0:
		return 0, RuleAVReserved
	}
	v.AV, v.QKey, v.RemoteQPN = av, av.QKey(), av.QPN()
	return 4, RuleNone
}

// decodeData reads what follows, from unit next to ds: pointers, or one inline
// segment.
func (v *SendWQE) decodeData(w []Block, next, ds int) Rule {
	total := uint64(v.Bytes)
	n := 0
	for ; next < ds; next++ {
		p := (*[DSBytes]byte)(w[next/dsPerBlock][next%dsPerBlock*DSBytes:])
		head := get64(p[0:8])
		size := uint32(head >> 32)
		if size&inlineFlag != 0 {
			size &^= inlineFlag
			if n != 0 {
				return RuleInlineLast
			}
			if size == 0 || size > MaxDS*DSBytes || next+InlineDS(int(size)) != ds {
				return RuleInlineLen
			}
			off := InlineOff(next)
			v.Inline = Flatten(w)[off : off+int(size)]
			total += uint64(size)
			break
		}
		if size == 0 {
			return RulePointerLen
		}
		v.Segs[n%segSlots] = Seg{Addr: get64(p[8:16]), Len: size, LKey: uint32(head)}
		n++
		total += uint64(size)
	}
	v.NSeg = n
	if total > maxMessage {
		return RuleTotalLen
	}
	v.Bytes = uint32(total)
	return RuleNone
}

// checkWhole checks what needs all segments.
func (v *SendWQE) checkWhole(k Kind) Rule {
	switch {
	case k == RawPacket && v.Bytes == 0:
		return RuleEmptyFrame
	case v.Opcode == OpTSO && len(v.Inline) != 0:
		return RuleTSOPayload
	}
	return RuleNone
}
