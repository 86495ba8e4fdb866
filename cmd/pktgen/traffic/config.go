package traffic

import (
	"log/slog"
	"time"
)

// Config is one run as asked for. Its zero value is not runnable: TX or RX
// must name a port. NewPlan turns it into exact numbers once the ports are
// open; Run does both.
//
// A Config is read only after it was handed to Run.
type Config struct {
	// TX and RX are device strings such as "loop:" or "packet:eth0". With both,
	// one process sends, receives and matches. With RX alone it only receives.
	TX, RX string

	Rate     Rate          // offered load; the zero value is max
	Count    uint64        // frames in all, over all queues; 0: no limit
	Duration time.Duration // 0: no limit. The first limit reached wins
	Size     Sizes         // frame sizes, FCS included

	Proto     Proto  // UDP, TCP or RoCEUD
	Src, Dst  Values // addresses; empty: defaults of the safe ranges
	SPort     Values
	DPort     Values
	SMAC      Values // empty: the port's own
	DMAC      Values // empty: the RX port's, else from the neighbour table
	VLAN      Values // empty: untagged
	FlowLabel Values // IPv6 only
	TTL       int    // TTL or hop limit; 0 means 1

	Flows  int    // 0: one flow per queue
	Seed   uint64 // every random choice comes from it; printed always
	Queues int    // 0 means 1
	Burst  int    // frames per doorbell at most; 0: the runtime chooses

	Latency LatencyMode
	Drain   time.Duration // how long to wait for late frames after the last send
	OnLate  OnLate
	NoTag   bool   // frames carry no tag: counts only
	Run     string // run token (run id, start, boot id, flows); empty: made up
	Hello   bool   // marked frames before and after the run

	RoCE RoCE     // what datagrams of Proto RoCEUD carry
	Csum CsumMode // who makes the checksums
	TSO  TSO      // payloads that the device cuts; the zero value: none

	Interval time.Duration // progress records; 0: none
	Tap      string        // pcapng file that records what passes; empty: none

	AllowMgmt bool // permit the interface that carries the default route
	YesPublic bool // permit destinations outside private and test ranges

	Log        *slog.Logger    // nil: silent
	OnPlan     func(*Plan)     // called once, before the first frame
	OnInterval func(*Interval) // called about every Interval, never from a hot path
}

// Proto is the transport of the frames.
type Proto uint8

// The transports. The zero value is UDP.
const (
	UDP Proto = iota
	TCP
	RoCEUD // datagrams of RDMA's UD transport, RoCE v2
)

// String names the transport as --proto takes it.
func (p Proto) String() string { return [...]string{"udp", "tcp", "roce-ud"}[p%3] }

// RoCE is what datagrams carry in BTH and DETH, so that a UD queue pair takes
// them. Each queue sends as a queue pair of its own, numbered SrcQPN and the
// queue's number, with PSNs from PSN on; a hello as the one behind them. The
// P_Key is 0xffff.
type RoCE struct {
	QPN     Values  // of the queue pair that they are for, or several
	QKey    uint32  // that it has
	SrcQPN  uint32  // 0: DefaultSrcQPN
	PSN     uint32  // of each queue's first datagram
	Imm     *uint32 // immediate data; nil: none
	Payload int     // bytes of payload, 1 to MaxDatagram, in place of Config.Size; 0: the size says
}

// Defaults and limits of RoCE.
const (
	DefaultQKey   = 0x11111111 // what the examples of libibverbs and perftest use
	DefaultSrcQPN = 0x11
	MaxDatagram   = 4096 // the largest MTU of RoCE v2
	MaxQPN        = 1<<24 - 1
	MaxPSN        = 1<<24 - 1
)

// CsumMode says who makes the IPv4, TCP and UDP checksums of what is sent.
type CsumMode uint8

// The modes. The zero value is software.
const (
	CsumSoftware CsumMode = iota // pktgen, from what varies
	CsumOffload                  // the device
)

// String names the mode as --csum takes it.
func (m CsumMode) String() string {
	if m == CsumOffload {
		return "offload"
	}
	return "software"
}

// TSO is segmentation as a load shape: payloads of Payload bytes, each handed to
// the device with one header and cut by it into frames of MSS payload bytes. All
// counts, sequences and tags are of frames: each has a tag at the end of its
// payload, so that the last piece has none or at least 16 bytes. A payload's
// frames are of one flow and leave together, when the last of them is due. The
// device makes their checksums whatever Config.Csum says.
type TSO struct {
	MSS     int // 0: no segmentation
	Payload int // 0: DefaultPayload
}

// Limits and default of TSO.
const (
	DefaultPayload = 64000
	MaxPayload     = 65536
	MaxSegments    = maxCatchUp // of one payload
)

// segments is how many frames a payload makes; 1 without segmentation.
func (t TSO) segments() int {
	if t.MSS == 0 {
		return 1
	}
	return (t.Payload-1)/t.MSS + 1
}

// rest is the payload of the last of them.
func (t TSO) rest() int { return t.Payload - (t.segments()-1)*t.MSS }

// LatencyMode says which packets' latency is recorded: every N-th of a flow,
// all for 1, none for 0.
type LatencyMode struct{ EveryN uint64 }

// OnLate says what a sender does with slots of the schedule it has missed.
type OnLate uint8

// The three ways. LateBurst, the default, sends up to 64 missed frames at once,
// whatever Config.Burst is, and moves the rest of the schedule; LateSkip sends as
// many, leaves out the slots beyond and counts them unsent; LateSlip moves the
// schedule for each frame missed.
const (
	LateBurst OnLate = iota
	LateSkip
	LateSlip
)

// String names the policy as --on-late takes it.
func (o OnLate) String() string { return [...]string{"burst", "skip", "slip"}[o%3] }

// Limits of the tag and of the schedule.
const (
	MaxFlows  = 1 << 24          // the tag's flow field
	MaxQueues = 256              // what a port is asked for at most
	MaxDrain  = 60 * time.Second // the tag's time window is 67 s
	MaxBurst  = 1024
)
