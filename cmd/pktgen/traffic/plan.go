package traffic

import (
	"net/netip"

	"github.com/bluering/bluering/internal/clock"
)

// PortFacts is what a plan needs to know of an open port.
type PortFacts struct {
	Port
	HWAddr       [6]byte
	Addr4, Addr6 netip.Addr
	IfIndex      int    // 0: no kernel interface
	NetNS        string // name or path; empty: the process's own
}

// Plan is a Config made exact: rational rate, finished frames, the order of
// sizes, flows and queues. Same Config and facts, same Plan.
//
// Frame k of the run (k from 0) leaves at schedule time k, on queue k mod
// Queues, as that queue's frame j = k div Queues. It has size Frames[SizeAt(k)]
// and flow FlowAt(queue, j). A Plan is read only.
type Plan struct {
	Config Config     // with defaults filled in
	TX, RX *PortFacts // nil: no such port
	Rate   clock.Rate // frames per second; Num 0: max
	Frames []Frame    // one for each distinct size, in order of size
	Count  uint64     // frames in all; 0: until Duration or a signal
	Queues int
	Flows  int // tag flow numbers are 0..Flows-1
	Tagged bool

	mix sizeMix
}

// Frame is a finished frame of one size: what is sent when nothing varies,
// with the tag's 16 bytes zero.
type Frame struct {
	SizeBytes int    // FCS included, as -s has it
	Bytes     []byte // without FCS, checksums right
	TagOff    int    // offset of the tag, the last 16 bytes of the L4 payload; -1: none
	Vary      []Vary // fields that are not the same in every frame
}

// Vary is one varying header field of a frame.
type Vary struct {
	Name      string // as the flag: "src", "sport", "vlan", ...
	Off       int    // first byte, from the frame's start
	LenBytes  int    // bytes that hold the field
	MaskBits  int    // low bits of those bytes that belong to it (12 of a VLAN tag, 20 of a flow label)
	Values    Values
	ByFlow    bool // index is the flow number; else the frame number k
	Seed      uint64
	InHeaders bool // covered by an IP or L4 checksum
}

// PerFlow reports how many flows queue q carries: q, q+Queues, q+2*Queues, ...
func (p *Plan) PerFlow(q int) int { return (p.Flows - q + p.Queues - 1) / p.Queues }

// FlowAt is the flow of queue q's frame j. Its sequence within the flow is
// j div PerFlow(q).
func (p *Plan) FlowAt(q int, j uint64) uint32 {
	return uint32(q + p.Queues*int(j%uint64(p.PerFlow(q))))
}

// SizeAt is the index in Frames of frame k.
func (p *Plan) SizeAt(k uint64) int { return p.mix.at(k) }
