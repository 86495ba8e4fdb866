package traffic

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
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

// NewPlan makes c exact for the opened ports; tx is nil for a receiver alone,
// rx when nothing is received. All errors are *UsageError but for impossible
// ones.
func NewPlan(c Config, tx, rx *PortFacts) (*Plan, error) {
	if err := c.fill(tx, rx); err != nil {
		return nil, err
	}
	p := &Plan{Config: c, TX: tx, RX: rx, Count: c.Count, Queues: c.Queues, Flows: c.Flows, Tagged: !c.NoTag, mix: c.Size.mix(c.Seed)}
	byFlow := c.Flows > 0
	if !byFlow {
		p.Flows = c.Queues
	}
	if tx == nil {
		return p, nil
	}
	if err := checkTargets(&c); err != nil {
		return nil, err
	}
	var err error
	if p.Rate, err = c.Rate.PPS(c.Size.Mean(), tx.SpeedBPS); err != nil {
		return nil, err
	}
	if err := checkSizes(&c, tx, rx); err != nil {
		return nil, err
	}
	for _, size := range c.Size.Distinct() {
		f, err := buildFrame(&c, size, 0, byFlow)
		if err != nil {
			return nil, err
		}
		p.Frames = append(p.Frames, f)
	}
	return p, nil
}

// Check finds what is wrong with c whatever its ports are, so that a bad request
// opens nothing: a capture file, say, is not even made.
func (c Config) Check() error {
	if c.TX == "" {
		return c.fill(nil, nil)
	}
	unknown := &PortFacts{Port: Port{URI: c.TX, SpeedBPS: 1}}
	_, err := NewPlan(c, unknown, nil)
	return err
}

// fill puts the defaults in and checks what does not need a frame.
func (c *Config) fill(tx, rx *PortFacts) error {
	c.TTL = max(c.TTL, 1)
	c.Queues = max(c.Queues, 1)
	if err := checkKinds(c); err != nil {
		return err
	}
	if err := c.checkRoCE(); err != nil {
		return err
	}
	switch {
	case c.TTL > 255:
		return results.Usage("ttl", strconv.Itoa(c.TTL), "use 1 to 255")
	case c.Queues > MaxQueues:
		return results.Usage("queues", strconv.Itoa(c.Queues), fmt.Sprintf("use 1 to %d", MaxQueues))
	case c.Burst < 0 || c.Burst > MaxBurst:
		return results.Usage("burst", strconv.Itoa(c.Burst), fmt.Sprintf("use 1 to %d frames, or 0 for the default", MaxBurst))
	case c.Flows < 0 || c.Flows > MaxFlows:
		return results.Usage("flows", strconv.Itoa(c.Flows), fmt.Sprintf("the tag numbers at most %d flows", MaxFlows))
	case c.Flows > 0 && c.Flows < c.Queues:
		return results.Usage("flows", strconv.Itoa(c.Flows), fmt.Sprintf("a flow belongs to one queue; use at least %d, one for each of --queues", c.Queues))
	case c.Hello && c.NoTag:
		return results.Usage("hello", "", "marks frames by a tag, and --no-tag leaves tags out; use one of the two")
	case c.Drain > MaxDrain:
		return results.Usage("drain", c.Drain.String(), "the tag's clock wraps; use at most 60s")
	}
	if tx == nil {
		return nil
	}
	if err := c.fillAddresses(tx, rx); err != nil {
		return err
	}
	if err := c.fillPorts(); err != nil {
		return err
	}
	if err := c.fillMACs(tx, rx); err != nil {
		return err
	}
	return c.fillSize()
}

// fillSize derives the frame sizes from what else is asked. None asked is the least that fits, 64 at least.
func (c *Config) fillSize() error {
	if len(c.Size.entries) == 0 {
		c.Size = oneSize(max(minFrameSize, MinSize(c)))
	}
	if c.Proto == RoCEUD {
		c.fillRoCE()
		return nil
	}
	return c.fillTSO()
}

// checkKinds refuses ports that no frame of the run can pass, or pass between.
func checkKinds(c *Config) error {
	for _, uri := range []string{c.TX, c.RX} {
		if _, ok := udpPort(uri); ok && c.TX != "" && c.Proto != RoCEUD {
			return results.Usage("port", uri, "carries RoCE v2 datagrams only; use --proto roce-ud, or packet:INTERFACE or xdp:INTERFACE")
		}
	}
	from, fromLoop := loopName(c.TX)
	to, toLoop := loopName(c.RX)
	if fromLoop && toLoop && from != to {
		return results.Usage("rx", c.RX, fmt.Sprintf("is another loop than %s, whose frames stay on it; use --rx loop:%s", c.TX, from))
	}
	return nil
}

// loopName is the name of a loop, which may be empty; false: another port.
func loopName(uri string) (string, bool) {
	rest, ok := strings.CutPrefix(uri, "loop:")
	name, _, _ := strings.Cut(rest, "?")
	return name, ok
}

// fillTSO derives the frame sizes from the pieces.
func (c *Config) fillTSO() error {
	t := &c.TSO
	if t.MSS == 0 {
		if t.Payload != 0 {
			return results.Usage("payload", strconv.Itoa(t.Payload), "is what --tso cuts; give --tso MSS")
		}
		return nil
	}
	if t.Payload == 0 {
		t.Payload = DefaultPayload
	}
	n, least := t.segments(), MinPiece(c)
	switch {
	case t.MSS < least || t.MSS > maxFrameSize:
		return results.Usage("tso", strconv.Itoa(t.MSS), fmt.Sprintf("use %d to %d bytes", least, maxFrameSize))
	case t.Payload < least || t.Payload > MaxPayload:
		return results.Usage("payload", strconv.Itoa(t.Payload), fmt.Sprintf("use %d to %d bytes", least, MaxPayload))
	case n > MaxSegments:
		return results.Usage("tso", strconv.Itoa(t.MSS), fmt.Sprintf("%d bytes make %d frames, at most %d leave together; use --tso %d or more, or a shorter --payload", t.Payload, n, MaxSegments, (t.Payload-1)/MaxSegments+1))
	case t.rest() < least:
		return results.Usage("payload", strconv.Itoa(t.Payload), fmt.Sprintf("leaves a last piece of %d bytes, which cannot hold a tag; use %d", t.rest(), (n-1)*t.MSS))
	case c.Queues > 1 && t.rest() != t.MSS:
		return results.Usage("queues", strconv.Itoa(c.Queues), fmt.Sprintf("payloads for several queues are whole multiples of the MSS; use --payload %d or --queues 1", n*t.MSS))
	}
	head := headerBytes(c) + fcsBytes
	c.Size = Sizes{text: strconv.Itoa(head + t.MSS)}
	for range n - 1 {
		c.Size.entries = append(c.Size.entries, sizeEntry{size: head + t.MSS, weight: 1})
	}
	c.Size.entries = append(c.Size.entries, sizeEntry{size: head + t.rest(), weight: 1})
	if t.rest() != t.MSS {
		c.Size.text = fmt.Sprintf("%dx%d,%d", n-1, head+t.MSS, head+t.rest())
	}
	return nil
}

// Default addresses are of the ranges reserved for benchmarks (RFC 2544, RFC
// 5180); a port's own are taken when they lie in them.
var (
	bench4 = netip.MustParsePrefix("198.18.0.0/15")
	bench6 = netip.MustParsePrefix("2001:2::/48")
)

func (c *Config) fillAddresses(tx, rx *PortFacts) error {
	if err := c.fillUDPAddresses(); err != nil {
		return err
	}
	is6 := c.Src.Is6() || c.Dst.Is6() || !c.FlowLabel.IsZero()
	own := func(f *PortFacts, fallback4, fallback6 string) Values {
		text, safe, a := fallback4, bench4, netip.Addr{}
		if is6 {
			text, safe = fallback6, bench6
		}
		if f != nil && is6 {
			a = f.Addr6
		} else if f != nil {
			a = f.Addr4
		}
		if !a.IsValid() || !safe.Contains(a) {
			a = netip.MustParseAddr(text)
		}
		return oneAddr(a)
	}
	if c.Src.IsZero() {
		c.Src = own(tx, "198.18.0.1", "2001:2::1")
	}
	if c.Dst.IsZero() {
		c.Dst = own(rx, "198.18.0.2", "2001:2::2")
	}
	if !c.FlowLabel.IsZero() && !(c.Src.Is6() && c.Dst.Is6()) {
		return results.Usage("flow-label", c.FlowLabel.String(), "IPv4 has no flow label; use IPv6 addresses")
	}
	if c.Src.Is6() != c.Dst.Is6() {
		return results.Usage("dst", c.Dst.String(), fmt.Sprintf("and --src %s are of two IP versions; use one", c.Src))
	}
	return nil
}

// Defaults of the ports. 9 is discard; flows count up from flowPortFirst.
const (
	defaultDPort  = 9
	flowPortFirst = 1024
	flowPorts     = 65536 - flowPortFirst
)

// fillPorts gives every flow its own tuple: fields that vary do so by flow
// number, and the source port is the default one.
func (c *Config) fillPorts() error {
	dport, first, most := uint64(defaultDPort), uint64(flowPortFirst), uint64(flowPorts)
	if c.Proto == RoCEUD {
		dport = proto.RoCEPort
		var err error
		if first, most, err = c.rocePorts(); err != nil {
			return err
		}
	}
	if c.DPort.IsZero() {
		c.DPort = oneValue(kindPort, u128{0, dport}, strconv.FormatUint(dport, 10))
	}
	tuples := c.tuples()
	if c.SPort.IsZero() {
		n := uint64(1)
		if c.Flows > 1 && tuples < uint64(c.Flows) {
			n = min(uint64(c.Flows), most)
		}
		c.SPort = Values{kind: kindPort, first: u128{0, first}, count: n, text: strconv.FormatUint(first, 10)}
		if n > 1 {
			c.SPort.text = fmt.Sprintf("%d-%d", first, first+n-1)
		}
		tuples = c.tuples()
	}
	if c.Flows > 1 && tuples < uint64(c.Flows) {
		return results.Usage("flows", strconv.Itoa(c.Flows), fmt.Sprintf("the fields take only %d different values; widen --src, --dst, --sport or --dport to at least as many (all of them step together, so their numbers should have no common divisor; one with :rand does not count, its values may repeat)", tuples))
	}
	return nil
}

// tuples is how many different frames the fields make when all of them step
// together: the least common multiple of their lengths.
func (c *Config) tuples() uint64 {
	n := uint64(1)
	for _, v := range []Values{c.Src, c.Dst, c.SPort, c.DPort, c.VLAN, c.FlowLabel, c.SMAC, c.DMAC, c.RoCE.QPN} {
		l := v.Len()
		if l < 2 || v.Mode() == Rand {
			continue
		}
		if l >= MaxFlows || n >= MaxFlows {
			return MaxFlows
		}
		n = n / uint64(gcd(int(n), int(l))) * l
	}
	return n
}

func (c *Config) fillMACs(tx, rx *PortFacts) error {
	if c.SMAC.IsZero() {
		c.SMAC = oneMAC(tx.HWAddr)
	}
	if !c.DMAC.IsZero() {
		return nil
	}
	switch {
	case rx != nil && rx.URI != tx.URI && rx.Kind != "udp": // whose address no Ethernet knows
		c.DMAC = oneMAC(rx.HWAddr)
	case rx != nil && rx.Kind == "loop":
		c.DMAC = oneMAC(rx.HWAddr)
	case tx.IfIndex == 0, tx.Kind == "udp": // no kernel interface, so no neighbours: the loop's second port
		c.DMAC = oneMAC([6]byte{2, 0, 0, 0, 0, 2})
	case tx.HWAddr == [6]byte{}: // the kernel's loopback, where all that is sent comes back
		c.DMAC = oneMAC(tx.HWAddr)
	default:
		mac, err := neighbour(tx, c.Dst.Addr(0, fieldSeed(c.Seed, "dst")))
		if err != nil {
			return err
		}
		c.DMAC = oneMAC(mac)
	}
	return nil
}

// checkSizes holds the sizes against the headers and the ports.
func checkSizes(c *Config, tx, rx *PortFacts) error {
	sizes := c.Size.Distinct()
	if low, need := sizes[0], MinSize(c); low < need {
		hint := fmt.Sprintf("%s frames with the tag need at least %d bytes; use -s %d, or --no-tag for counts only", protoName(c), need, need)
		if c.NoTag {
			hint = fmt.Sprintf("%s frames need at least %d bytes; use -s %d", protoName(c), need, need)
		}
		return results.Usage("size", c.Size.String(), hint)
	}
	if c.Proto == RoCEUD {
		if err := c.checkRoCESizes(); err != nil {
			return err
		}
	}
	for _, f := range []*PortFacts{tx, rx} {
		if f == nil || f.MaxFrame <= 0 {
			continue
		}
		limit := f.MaxFrame + fcsBytes
		if c.VLAN.IsZero() && f.Kind != "udp" { // which has no room for a tag
			limit -= vlanBytes
		}
		if most := limit - headerBytes(c) - fcsBytes; c.TSO.MSS > most {
			return results.Usage("tso", strconv.Itoa(c.TSO.MSS), fmt.Sprintf("%s takes frames of at most %d bytes with FCS (its MTU); use --tso %d or less, or raise the MTU", f.URI, limit, most))
		}
		if sizes[len(sizes)-1] > limit {
			return results.Usage("size", c.Size.String(), fmt.Sprintf("%s takes frames of at most %d bytes with FCS (its MTU); use -s %d or less, or raise the MTU", f.URI, limit, limit))
		}
	}
	return nil
}

// PerFlow reports how many flows queue q carries: q, q+Queues, q+2*Queues, ...
func (p *Plan) PerFlow(q int) int { return (p.Flows - q + p.Queues - 1) / p.Queues }

// FlowAt is the flow of queue q's frame j. Its sequence within the flow is
// j div PerFlow(q). The frames of one TSO payload are of one flow: those of
// payload s, from 0, have the sequences (s div PerFlow(q)) * segments and on.
func (p *Plan) FlowAt(q int, j uint64) uint32 {
	s := j / uint64(p.Config.TSO.segments())
	return uint32(q + p.Queues*int(s%uint64(p.PerFlow(q))))
}

// SizeAt is the index in Frames of frame k.
func (p *Plan) SizeAt(k uint64) int { return p.mix.at(k) }
