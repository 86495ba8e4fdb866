package ring

import "encoding/binary"

// AV is the datagram segment of a UD WQE, struct mlx5_wqe_av. What an address
// handle holds is such an AV with Q_Key and QP number still zero.
type AV [48]byte

const avLong = 1 << 31 // MLX5_EXTENDED_UD_AV: the 48-byte form

// Offsets in an AV.
const (
	avQKey    = 0  // key.qkey.qkey
	avQPN     = 8  // dqp_dct
	avRateSL  = 12 // stat_rate_sl
	avPathML  = 13 // fl_mlid
	avSport   = 14 // rlid; UDP source port on RoCE v2
	avMAC     = 20 // rmac
	avTClass  = 26 // tclass
	avHop     = 27 // hop_limit
	avGIDFlow = 28 // grh_gid_fl
	avGID     = 32 // rgid
)

// AVFields is what an AV says, on Ethernet.
type AVFields struct {
	Rate      uint8 // static rate code, 4 bits
	SL        uint8 // service level, 3 bits
	SrcPort   uint16
	MAC       [6]byte
	TClass    uint8
	HopLimit  uint8
	SGIDIndex uint8
	FlowLabel uint32 // 20 bits
	GID       [16]byte
}

// MakeAV builds the address part for an Ethernet port: the service level is
// shifted by one, the GRH bit stays clear.
func MakeAV(f *AVFields) AV {
	var a AV
	a[avRateSL] = f.Rate<<4 | f.SL<<1&0x0e
	binary.BigEndian.PutUint16(a[avSport:], f.SrcPort)
	copy(a[avMAC:], f.MAC[:])
	a[avTClass] = f.TClass
	a[avHop] = f.HopLimit
	put32(a[avGIDFlow:], uint32(f.SGIDIndex)<<20|f.FlowLabel&0xfffff)
	copy(a[avGID:], f.GID[:])
	put32(a[avQPN:], avLong)
	return a
}

// Fields takes the address apart.
func (a *AV) Fields() AVFields {
	f := AVFields{
		Rate:      a[avRateSL] >> 4,
		SL:        a[avRateSL] >> 1 & 7,
		SrcPort:   binary.BigEndian.Uint16(a[avSport:]),
		TClass:    a[avTClass],
		HopLimit:  a[avHop],
		SGIDIndex: uint8(a.gidFlow() >> 20),
		FlowLabel: a.gidFlow() & 0xfffff,
	}
	copy(f.MAC[:], a[avMAC:])
	copy(f.GID[:], a[avGID:])
	return f
}

// SetSGIDIndex changes the index of the own address.
func (a *AV) SetSGIDIndex(i uint8) {
	put32(a[avGIDFlow:], a.gidFlow()&^(0xff<<20)|uint32(i)<<20)
}

// QKey gives the Q_Key.
func (a *AV) QKey() uint32 { return get32(a[avQKey:]) }

// QPN gives the remote QP number.
func (a *AV) QPN() uint32 { return get32(a[avQPN:]) & 0xffffff }

// Long reports whether the AV is of the 48-byte form, the only one used here.
func (a *AV) Long() bool { return a[avQPN]&0x80 != 0 }

// MAC gives the destination MAC in place.
func (a *AV) MAC() *[6]byte { return (*[6]byte)(a[avMAC:]) }

// AVAddrBytes is the size of the part of an AV that an address handle decides.
const AVAddrBytes = len(AV{}) - avRateSL

// Addr gives the part of an AV that an address handle decides, in place: all
// but Q_Key and QP number.
func (a *AV) Addr() *[AVAddrBytes]byte { return (*[AVAddrBytes]byte)(a[avRateSL:]) }

// GID gives the destination GID in place.
func (a *AV) GID() *[16]byte { return (*[16]byte)(a[avGID:]) }

func (a *AV) gidFlow() uint32 { return get32(a[avGIDFlow:]) }

// SrcPort gives the UDP source port that libmlx5 derives from a non-zero flow
// label (rdma_flow_label_to_udp_sport).
func SrcPort(flowLabel uint32) uint16 {
	fl := flowLabel & 0xfffff
	return 0xc000 | uint16(fl&0x3fff^fl>>14)
}
