package ring

import "encoding/binary"

// CQEBytes is the size of a completion queue entry.
const CQEBytes = 64

// CQE is one completion, struct mlx5_cqe64. Its last word decides whose it is
// and is accessed atomically by CQ and DevCQ; all else is plain memory.
type CQE [CQEBytes]byte

// Offsets in a CQE, with the members of struct mlx5_cqe64 and mlx5_err_cqe.
const (
	cqeTunnel   = 0  // outer_l3_tunneled, in the Linux driver's header
	cqeRSSHash  = 12 // rx_hash_res, in the Linux driver's header
	cqeRSSType  = 16 // rx_hash_type, there too
	cqePath     = 17 // ml_path
	cqeChecksum = 20 // check_sum, there too
	cqeSLID     = 22 // slid
	cqeFlagsQP  = 24 // flags_rqpn
	cqeHdrOK    = 28 // hds_ip_ext
	cqeHdrType  = 29 // l4_hdr_type_etc
	cqeVLAN     = 30 // vlan_info
	cqeUserIdx  = 33 // srqn_uidx, its low 24 bits
	cqeImm      = 36 // imm_inval_pkey
	cqeByteLen  = 44 // byte_cnt
	cqeTime     = 48 // timestamp
	cqeVendor   = 54 // mlx5_err_cqe.vendor_err_synd
	cqeSyndrome = 55 // mlx5_err_cqe.syndrome
	cqeLast     = 56 // first byte of the last word
	cqeWQEOp    = 56 // sop_drop_qpn, bits 31:24
	cqeQPN      = 57 // sop_drop_qpn, bits 23:0
	cqeCounter  = 60 // wqe_counter
	cqeSig      = 62 // signature
	cqeOpOwn    = 63 // op_own
)

// Bits of a CQE.
const (
	HdrOKL2 = 1 << 0 // hds_ip_ext: the L2 header was good
	HdrOKL3 = 1 << 1 // hds_ip_ext: the IP header was good
	HdrOKL4 = 1 << 2 // hds_ip_ext: the TCP or UDP checksum was good

	L3IPv6       = 1 << 2 // l4_hdr_type_etc, bits 3:2
	L3IPv4       = 2 << 2
	L4TCP        = 1 << 4 // l4_hdr_type_etc, bits 6:4
	L4UDP        = 2 << 4
	VLANStripped = 1 << 0 // l4_hdr_type_etc

	// What a receive hash is over: CQE_RSS_HTYPE_IP and CQE_RSS_HTYPE_L4 of
	// linux/mlx5/device.h.
	RSSIPv4 = 1 << 2 // rx_hash_type, bits 3:2
	RSSIPv6 = 2 << 2
	RSSTCP  = 1 << 6 // rx_hash_type, bits 7:6
	RSSUDP  = 2 << 6
	RSSL4   = 3 << 6 // either

	// RoCE kinds and GRH, bits of the byte at flags_rqpn.
	GRHInBuffer = 1 << 4
	RoCEv1      = 0
	RoCEv2IPv6  = 1
	RoCEv2IPv4  = 2

	OpOwnSolicited = 1 << 1 // op_own, bit 1
	opOwnOwner     = 1 << 0
	opOwnInvalid   = 0xf0 // MLX5_CQE_INVALID << 4: an entry never written
)

// Op gives the kind of the completion.
func (c *CQE) Op() CQEOpcode { return CQEOpcode(c[cqeOpOwn] >> 4) }

// OpOwn gives the last byte: kind, format, solicited, owner.
func (c *CQE) OpOwn() uint8 { return c[cqeOpOwn] }

// Format gives bits 3:2 of the last byte: 0 in the profile.
func (c *CQE) Format() uint8 { return c[cqeOpOwn] >> 2 & 3 }

// Solicited reports whether the sender asked for an event.
func (c *CQE) Solicited() bool { return c[cqeOpOwn]&OpOwnSolicited != 0 }

// QPN gives the QP number; of a flow-steered receive it is the flow tag.
func (c *CQE) QPN() uint32 { return get32(c[cqeWQEOp:]) & 0xffffff }

// WQEOpcode gives the opcode of the send WQE that is done.
func (c *CQE) WQEOpcode() Opcode { return Opcode(c[cqeWQEOp]) }

// Counter gives the counter of the WQE's first slot, or an SRQ entry's index.
func (c *CQE) Counter() uint16 { return binary.BigEndian.Uint16(c[cqeCounter:]) }

// UserIndex gives the number that the driver chose at QP creation, 24 bits.
func (c *CQE) UserIndex() uint32 { return get32(c[cqeUserIdx-1:]) & 0xffffff }

// ByteLen gives the number of bytes received; with UD the 40 bytes for the
// GRH are among them.
func (c *CQE) ByteLen() uint32 { return get32(c[cqeByteLen:]) }

// Imm gives the immediate data as a number; without immediate its low 16 bits
// are the P_Key index.
func (c *CQE) Imm() uint32 { return get32(c[cqeImm:]) }

// SrcQP gives the sender's QP number.
func (c *CQE) SrcQP() uint32 { return get32(c[cqeFlagsQP:]) & 0xffffff }

// SL gives bits 3:0 of the byte before the source QP number. On Ethernet they
// are the RoCE kind, not a service level.
func (c *CQE) SL() uint8 { return c[cqeFlagsQP] & 0x0f }

// GRH reports whether a global routing header came along.
func (c *CQE) GRH() bool { return c[cqeFlagsQP]&0x30 != 0 }

// SourceFlags gives the byte before the source QP number: GRHInBuffer and the
// RoCE kind.
func (c *CQE) SourceFlags() uint8 { return c[cqeFlagsQP] }

// SLID gives the source LID, InfiniBand only.
func (c *CQE) SLID() uint16 { return binary.BigEndian.Uint16(c[cqeSLID:]) }

// PathBits gives the destination path bits, InfiniBand only.
func (c *CQE) PathBits() uint8 { return c[cqePath] & 0x7f }

// HdrOK gives the HdrOKL2, HdrOKL3 and HdrOKL4 bits.
func (c *CQE) HdrOK() uint8 { return c[cqeHdrOK] & 7 }

// HdrType gives the byte with the L3 and L4 kind and VLANStripped.
func (c *CQE) HdrType() uint8 { return c[cqeHdrType] }

// CsumOK reports whether libmlx5 would say IBV_WC_IP_CSUM_OK of a raw packet:
// IPv4 only, both checksums good.
func (c *CQE) CsumOK() bool {
	return c[cqeHdrOK]&(HdrOKL3|HdrOKL4) == HdrOKL3|HdrOKL4 && c[cqeHdrType]&0x0c == L3IPv4
}

// VLAN gives the tag control word of a stripped tag.
func (c *CQE) VLAN() uint16 { return binary.BigEndian.Uint16(c[cqeVLAN:]) }

// RSSHash gives the hash over the packet's addresses and ports.
func (c *CQE) RSSHash() uint32 { return get32(c[cqeRSSHash:]) }

// RSSType gives the byte that says what the hash is over; 0: there is none.
func (c *CQE) RSSType() uint8 { return c[cqeRSSType] }

// Tunnelled reports whether the packet had outer headers.
func (c *CQE) Tunnelled() bool { return c[cqeTunnel]&1 != 0 }

// RawChecksum gives the sum over the packet.
func (c *CQE) RawChecksum() uint16 { return binary.BigEndian.Uint16(c[cqeChecksum:]) }

// Time gives the device's time stamp.
func (c *CQE) Time() uint64 { return get64(c[cqeTime:]) }

// Syndrome gives the error of an error CQE.
func (c *CQE) Syndrome() Syndrome { return Syndrome(c[cqeSyndrome]) }

// Vendor gives the vendor's code of an error CQE.
func (c *CQE) Vendor() uint8 { return c[cqeVendor] }

// The Put methods write a whole CQE but for its last byte, which is left zero:
// DevCQ.Seal writes it, because it is what publishes.

// PutReq writes the completion of a send WQE.
func (c *CQE) PutReq(uidx, qpn uint32, op Opcode, counter uint16, time uint64) {
	c.zero32()
	c.putMiddle(uidx, 0, 0, time)
	c.putLast(op, qpn, counter)
}

// PutRecv writes the completion of a receive. What only some receives have is
// added with the Set methods.
func (c *CQE) PutRecv(uidx, qpn, byteLen uint32, counter uint16, time uint64) {
	c.zero32()
	c.putMiddle(uidx, 0, byteLen, time)
	c.putLast(0, qpn, counter)
}

// PutError writes an error completion, of either side. op is 0 for receives.
func (c *CQE) PutError(uidx, qpn uint32, op Opcode, counter uint16, s Syndrome, vendor uint8) {
	c.zero32()
	c.putMiddle(uidx, 0, 0, uint64(vendor)<<8|uint64(s))
	c.putLast(op, qpn, counter)
}

// zero32 clears the first half: as an array it is two wide stores.
func (c *CQE) zero32() { *(*[32]byte)(c[0:32]) = [32]byte{} }

func (c *CQE) putMiddle(uidx, imm, byteLen uint32, time uint64) {
	put64(c[32:40], uint64(uidx&0xffffff)<<32|uint64(imm))
	put64(c[40:48], uint64(byteLen))
	put64(c[48:56], time)
}

func (c *CQE) putLast(op Opcode, qpn uint32, counter uint16) {
	put64(c[56:64], uint64(op)<<56|uint64(qpn&0xffffff)<<32|uint64(counter)<<16)
}

// SetImm writes the immediate data, or the P_Key index.
func (c *CQE) SetImm(imm uint32) { put32(c[cqeImm:], imm) }

// SetSource writes where a datagram came from. flags is GRHInBuffer or 0, with
// the RoCE kind.
func (c *CQE) SetSource(flags uint8, srcQP uint32) {
	put32(c[cqeFlagsQP:], uint32(flags)<<24|srcQP&0xffffff)
}

// SetLink writes the source LID and the destination path bits, InfiniBand only.
func (c *CQE) SetLink(slid uint16, path uint8) {
	binary.BigEndian.PutUint16(c[cqeSLID:], slid)
	c[cqePath] = path
}

// SetHeaders writes what the device found in a raw packet.
func (c *CQE) SetHeaders(hdrOK, hdrType uint8, vlan uint16) {
	put32(c[cqeHdrOK:], uint32(hdrOK)<<24|uint32(hdrType)<<16|uint32(vlan))
}

// SetRSS writes the receive hash and what it is over.
func (c *CQE) SetRSS(hash uint32, kind uint8) {
	put32(c[cqeRSSHash:], hash)
	c[cqeRSSType] = kind
}
