package engine

import (
	"fmt"
	"net/netip"
)

// Profile says how the points are settled on which public devices disagree.
type Profile uint8

// The profiles.
const (
	ProfileStrict Profile = iota // the specification, and the kernel's verbs checks
	ProfileRXE                   // as kernel rxe
	ProfileMLX5                  // as libmlx5 and a ConnectX
)

// String gives the name that a device string uses.
func (p Profile) String() string {
	switch p {
	case ProfileStrict:
		return "strict"
	case ProfileRXE:
		return "rxe"
	case ProfileMLX5:
		return "mlx5"
	}
	return fmt.Sprintf("profile %d", uint8(p))
}

// Access is what a device may do with registered memory. Reading it for a send
// needs no right.
type Access uint32

// The rights, with the numbers of ibv_access_flags.
const (
	LocalWrite Access = 1 << 0 // receives may write
	ZeroBased  Access = 1 << 5 // addresses are offsets; no device here offers it
)

// QPType is the kind of a queue pair, with the numbers of ibv_qp_type.
type QPType uint8

// The kinds built here.
const (
	UD        QPType = 4
	RawPacket QPType = 8
)

// String gives the name of verbs.
func (t QPType) String() string {
	switch t {
	case UD:
		return "UD"
	case RawPacket:
		return "RAW_PACKET"
	}
	return fmt.Sprintf("QP type %d", uint8(t))
}

// Offload is a set of things that a device does to packets.
type Offload uint32

// The offloads.
const (
	OffloadRawCsum Offload = 1 << iota // checksums of raw sends (RAW_IP_CSUM)
	OffloadUDCsum                      // checksums of UD sends (UD_IP_CSUM)
	OffloadRawTSO                      // segmentation of raw sends
	OffloadRxCsum                      // checksums of raw receives are checked
	OffloadSolicit                     // solicited events
)

// Feature is a set of things that a device has beyond raw packets.
type Feature uint32

// The features.
const (
	FeatureUD          Feature = 1 << iota // datagrams are sent and received
	FeatureSRQ                             // shared receive queues
	FeatureEvents                          // completion channels and asynchronous events
	FeatureRSS                             // a receive hash over several queues
	FeatureTagMatching                     // shared receive queues that match tags
)

// Caps tells what a device is and can do. A limit of 0 means "not told": the
// engine then uses what the ring format allows.
type Caps struct {
	Name    string // as opened, for instance "loop:" or "packet:eth0"
	Kind    string // scheme: "loop", "packet", ...
	Profile Profile
	IsWire  bool // frames leave this process
	Loop    bool // both ends are in this process

	MAC          [6]byte
	Addr4, Addr6 netip.Addr
	MTU          int // 0: unknown
	MinFrame     int // bytes without FCS
	MaxFrame     int // bytes without FCS
	SpeedBPS     uint64
	IfIndex      int
	NetNS        string

	MinInline int // bytes of a raw frame that must stand in the WQE: 0 or 18
	Offloads  Offload
	Features  Feature

	MaxQP, MaxCQ, MaxMR    int
	MaxSRQ, MaxSRQWR       int
	MaxSRQSGE              int
	MaxCQE                 int
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int
	MaxTSO                 int // payload bytes of one segmented send
	MaxTSOHeader           int
	MaxRSSTable            int // queue pairs in the table of a receive hash; 0: there is none
	RSSFields              RSSFields
	FlowPriorities         int // priorities are below; 0: any
	MinRateKbps            uint32
	MaxRateKbps            uint32 // of a raw packet queue pair; 0: rates cannot be limited
	RateBurst              bool   // RateLimit has its bursts and frame sizes
	MaxAH                  int
	MaxDatagram            int  // payload bytes of a UD send: the port's RoCE MTU; 0: no datagrams
	MaxGroups              int  // multicast groups
	MaxGroupQPs            int  // members of one group
	PrivilegedQKey         bool // the process may use Q_Keys with the high bit (B-11)
	Autonomous             bool // runs by itself, without Progress
}

// Has reports whether all these offloads are there.
func (c *Caps) Has(o Offload) bool { return c.Offloads&o == o }
