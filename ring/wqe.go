package ring

import "encoding/binary"

// Sizes of a send WQE. A WQE is at most MaxDS units of DSBytes, because its
// size field has six bits, and starts on a block.
const (
	BlockBytes  = 64    // WQEBB, MLX5_SEND_WQE_BB
	DSBytes     = 16    // MLX5_SEND_WQE_DS
	MaxDS       = 63    // six bits in the control segment
	MaxWQEBB    = 16    // blocks of a WQE of MaxDS
	MaxSlots    = 32768 // largest send ring; half of what a 16-bit counter tells apart
	MaxSegs     = 61    // pointers behind a control and a 16-byte Ethernet segment
	segSlots    = 64    // MaxSegs rounded up, so that indexing needs no check
	dsPerBlock  = BlockBytes / DSBytes
	inlineFlag  = 1 << 31 // MLX5_INLINE_SEG
	inlineHead  = 4       // bytes in front of inline data, struct mlx5_wqe_inl_data_seg
	ethSegFixed = 14      // bytes of the Ethernet segment in front of the inline header
)

// Block is one slot of a send ring.
type Block [BlockBytes]byte

// Offsets in the control segment, struct mlx5_wqe_ctrl_seg.
const (
	OffOpmod    = 0  // opmod_idx_opcode, bits 31:24
	OffIndex    = 1  // opmod_idx_opcode, bits 23:8
	OffOpcode   = 3  // opmod_idx_opcode, bits 7:0
	OffQPN      = 4  // qpn_ds, bits 31:8
	OffDS       = 7  // qpn_ds, bits 5:0
	OffSig      = 8  // signature
	OffFMCESE   = 11 // fm_ce_se
	OffImm      = 12 // imm
	OffSegments = 16 // end of the control segment
)

// Offsets in a RAW_PACKET WQE, struct mlx5_wqe_eth_seg behind the control
// segment.
const (
	OffSWP       = 16 // software parser offsets, written as zero
	OffCsumFlags = 20 // cs_flags
	OffSWPFlags  = 21 // swp_flags, written as zero
	OffMSS       = 22 // mss
	OffMetadata  = 24 // flow_table_metadata, written as zero
	OffInlineLen = 28 // inline_hdr_sz
	OffInlineHdr = 30 // inline_hdr_start
)

// Bits of fm_ce_se.
const (
	FlagFence     = 0x80 // MLX5_WQE_CTRL_FENCE
	FlagSignaled  = 0x08 // MLX5_WQE_CTRL_CQ_UPDATE: a CQE is written in any case
	FlagSolicited = 0x02 // MLX5_WQE_CTRL_SOLICITED
	maskFence     = 0xe0
	maskCE        = 0x0c
)

// Checksum flags of the Ethernet segment.
const (
	CsumL3 = 0x40 // MLX5_ETH_WQE_L3_CSUM
	CsumL4 = 0x80 // MLX5_ETH_WQE_L4_CSUM

	// Of the headers within a tunnel; verbs have no way to ask for them.
	CsumInnerL3 = 0x10 // MLX5_ETH_WQE_L3_INNER_CSUM, in the Linux driver's header
	CsumInnerL4 = 0x20 // MLX5_ETH_WQE_L4_INNER_CSUM, there too
)

// EthInline18 is the number of frame bytes that older devices, and those with
// an e-switch, want in the WQE itself: what the fields inline_hdr_start and
// inline_hdr of struct mlx5_wqe_eth_seg hold.
const EthInline18 = 18

// Seg is one piece of memory as WQEs name it: struct mlx5_wqe_data_seg.
type Seg struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// BlocksFor gives the number of blocks that ds units take.
func BlocksFor(ds int) int { return (ds + dsPerBlock - 1) / dsPerBlock }

// EthDS gives the units of an Ethernet segment with an inline header of n bytes.
func EthDS(n int) int {
	if n <= 2 {
		return 1
	}
	return (ethSegFixed + n + DSBytes - 1) / DSBytes
}

// InlineDS gives the units of an inline data segment of n bytes; 0 for none.
func InlineDS(n int) int {
	if n == 0 {
		return 0
	}
	return (inlineHead + n + DSBytes - 1) / DSBytes
}

// PutCtrl writes the control segment: two whole words. ds is the size of the
// whole WQE; imm is a number, its bytes go out in network order.
func PutCtrl(w *Block, pi uint16, op Opcode, qpn uint32, ds int, fmCeSe uint8, imm uint32) {
	put64(w[0:8], uint64(pi)<<40|uint64(op)<<32|uint64(qpn&0xffffff)<<8|uint64(ds&0x3f))
	put64(w[8:16], uint64(fmCeSe)<<32|uint64(imm))
}

// PutNOP makes the block a NOP of one unit without completion.
func PutNOP(w *Block, pi uint16, qpn uint32) { PutCtrl(w, pi, OpNOP, qpn, 1, 0, 0) }

// Rearm rewrites the one word of a WQE that must change when its bytes are
// sent again from the same place: index and opcode.
func Rearm(w *Block, pi uint16, op Opcode) {
	put32(w[0:4], uint32(pi)<<8|uint32(op))
}

// SetFlags rewrites fm_ce_se in a WQE that exists.
func SetFlags(w *Block, fmCeSe uint8) { w[OffFMCESE] = fmCeSe }

// PutEth0 writes the Ethernet segment of a device that wants no inline header;
// data follows at unit 2.
func PutEth0(w *Block, csum uint8) {
	put64(w[16:24], uint64(csum)<<24)
	put64(w[24:32], 0)
}

// PutEth18 writes the Ethernet segment with the first 18 bytes of the frame;
// data follows at unit 3.
func PutEth18(w *Block, csum uint8, hdr *[EthInline18]byte) {
	put64(w[16:24], uint64(csum)<<24)
	put64(w[24:32], EthInline18<<16|uint64(binary.BigEndian.Uint16(hdr[0:2])))
	*(*[16]byte)(w[32:48]) = *(*[16]byte)(hdr[2:18])
}

// PutEth writes an Ethernet segment with an inline header of any length and
// returns the unit at which data follows. mss is 0 but for TSO. The segment's
// padding is zeroed. w must have room for it.
func PutEth(w []Block, csum uint8, mss uint16, hdr []byte) (ds int) {
	b := &w[0]
	put64(b[16:24], uint64(csum)<<24|uint64(mss))
	put64(b[24:32], uint64(uint16(len(hdr)))<<16)
	ds = 1 + EthDS(len(hdr))
	flat := Flatten(w)
	end := OffInlineHdr + copy(flat[OffInlineHdr:], hdr)
	if end < ds*DSBytes {
		clear(flat[end : ds*DSBytes])
	}
	return ds
}

// PutDatagram writes the datagram segment of a UD WQE: the address as it was
// made once, patched with Q_Key and QP number. Data follows at unit 4.
func PutDatagram(w *Block, av *AV, qkey, qpn uint32) {
	put64(w[16:24], uint64(qkey)<<32)
	put32(w[24:28], avLong|qpn&0xffffff)
	*(*[4]byte)(w[28:32]) = *(*[4]byte)(av[12:16]) // in pieces, because one copy would be a call
	*(*[16]byte)(w[32:48]) = *(*[16]byte)(av[16:32])
	*(*[16]byte)(w[48:64]) = *(*[16]byte)(av[32:48])
}

// PutData writes a pointer at unit ds.
func PutData(w []Block, ds int, s Seg) {
	b := (*[DSBytes]byte)(w[ds/dsPerBlock][ds%dsPerBlock*DSBytes:])
	put64(b[0:8], uint64(s.Len)<<32|uint64(s.LKey))
	put64(b[8:16], s.Addr)
}

// PutInline writes one inline segment with data at unit ds, zeroes its padding
// and returns the unit behind it. Empty data writes nothing.
func PutInline(w []Block, ds int, data []byte) int {
	if len(data) == 0 {
		return ds
	}
	end := PutInlineHead(w, ds, len(data))
	copy(Flatten(w)[ds*DSBytes+inlineHead:], data)
	return end
}

// PutInlineHead writes the length word of an inline segment of n bytes at unit
// ds, zeroes the segment's padding and returns the unit behind it. The caller
// copies the bytes to offset InlineOff(ds) of Flatten(w).
func PutInlineHead(w []Block, ds, n int) int {
	flat := Flatten(w)
	off := ds * DSBytes
	end := ds + InlineDS(n)
	put32(flat[off:off+4], inlineFlag|uint32(n))
	if pad := off + inlineHead + n; pad < end*DSBytes {
		clear(flat[pad : end*DSBytes])
	}
	return end
}

// ShortInline is the longest inline segment that PutShortInline writes.
const ShortInline = BlockBytes - inlineHead

// PutShortInline makes the block one inline segment of up to ShortInline bytes,
// and zeros behind it: what PutInline and PutTail would write.
func PutShortInline(b *Block, data []byte) {
	*b = Block{}
	put32(b[0:4], inlineFlag|uint32(len(data)))
	copy(b[inlineHead:], data)
}

// InlineOff gives the byte offset in a WQE of the data of an inline segment
// that starts at unit ds.
func InlineOff(ds int) int { return ds*DSBytes + inlineHead }

// PutTail zeroes the units from ds to the end of its block, so that nothing
// stale stands in a WQE's last block.
func PutTail(w []Block, ds int) {
	if r := ds % dsPerBlock; r != 0 {
		clear(w[ds/dsPerBlock][r*DSBytes:])
	}
}

const _ = uint(BlockBytes-len(Block{})) + uint(len(Block{})-BlockBytes) // Block is 64 bytes
