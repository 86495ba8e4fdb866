package wire

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/bluering/bluering/internal/clock"
)

// LoopOptions describes a loop. The zero value is the lossless loop with the empty name.
type LoopOptions struct {
	Name     string
	SpeedBPS uint64  // 0: as fast as memory
	Queue    int     // frames that may wait for the link; more are dropped and counted. 0: the sender waits
	Capacity int     // bytes per direction; 0: 256 KiB
	MTU      int     // 0: 9000
	Drop     bool    // for the NIC: a frame without receive WQE is dropped
	Impair   Impairs // of each direction
	MAC      [2][6]byte
	Addr4    [2]netip.Addr
	Addr6    [2]netip.Addr
	Clock    clock.Clock // nil: clock.System(). Not compared between two opens
}

// Impairs says how a medium is made worse. The zero value does nothing. Probabilities are per frame.
type Impairs struct {
	Delay   time.Duration
	Jitter  time.Duration // added to Delay, evenly between 0 and this; order is kept
	Loss    float64
	Dup     float64
	Reorder float64 // the frame is held back behind the one after it
	Corrupt float64 // one bit is flipped
	Seed    uint64  // the same seed and the same frames give the same faults
}

// Any reports whether anything is impaired.
func (i Impairs) Any() bool {
	i.Seed = 0
	return i != Impairs{}
}

// HardwareDrop reports whether a NIC on this loop drops a frame that finds no receive WQE.
func (o LoopOptions) HardwareDrop() bool { return o.Drop || o.SpeedBPS != 0 || o.Queue != 0 }

// SendMethod is how a packet wire gives frames to the kernel.
type SendMethod uint8

const (
	SendAuto     SendMethod = iota // the faster as measured
	SendMMsg                       // sendmmsg, past the queueing discipline
	SendRing                       // the mapped transmit ring, past the queueing discipline
	SendMMsgQDsc                   // sendmmsg, through the queueing discipline
)

func (m SendMethod) String() string {
	switch m {
	case SendMMsg:
		return "mmsg"
	case SendRing:
		return "ring"
	case SendMMsgQDsc:
		return "qdisc"
	}
	return "auto"
}

// PacketOptions describes a packet wire. The zero value is the default.
type PacketOptions struct {
	NetNS     string // name below /run/netns, or a path; empty: the caller's own
	RingBytes int    // receive ring, rounded up to a power of two; 0: 8 MiB
	RingSlot  int    // bytes of one slot of it, a power of two; 0: what the MTU needs
	Send      SendMethod
	TxSlots   int  // frames that may wait for the kernel, rounded up to a power of two; 0: 256
	NoPromisc bool // do not take promiscuous membership
	SendOnly  bool // open no receive ring
	// GSO gives the kernel what it can cut uncut, and cuts what it gives uncut: see Super. The receive ring then has slots
	// of 128 KiB, 64 MiB of them.
	GSO bool
	// Fanout is a group of wires on one interface, of one or several processes, that share what it receives: each flow goes
	// to one of them. 0: none. Open all before traffic comes.
	Fanout int
	Clock  clock.Clock
}

// GSOMode says when a udp wire gives the kernel several datagrams as one, to be cut where they leave.
type GSOMode uint8

const (
	GSOAuto GSOMode = iota // on a loopback address: everywhere else it depends on hardware and peer
	GSOOff
	GSOOn
)

// UDPOptions describes a udp wire. The zero value is the default.
type UDPOptions struct {
	NetNS    string // name below /run/netns, or a path; empty: the caller's own
	RecvBuf  int    // bytes of the socket's receive buffer, less if the system allows less; 0: 8 MiB
	SendBuf  int    // of its send buffer
	TxSlots  int    // frames that may wait for the kernel, rounded up to a power of two; 0: 256
	GSO      GSOMode
	Ports    int  // UDP source ports beside 4791 that frames may have, each with a socket of its own; 0: none
	StrictID bool // do not mark IPv4 frames FlagIDUnknown: only identification 0 gives a right ICRC
	Clock    clock.Clock
}

// XDPMode is where in the kernel an XDP program is put.
type XDPMode uint8

const (
	XDPAuto    XDPMode = iota // native, or where the driver cannot do that, generic
	XDPNative                 // in the driver
	XDPGeneric                // behind the driver, where the kernel has made a packet of its own already
)

func (m XDPMode) String() string {
	switch m {
	case XDPNative:
		return "native"
	case XDPGeneric:
		return "generic"
	}
	return "auto"
}

// ZeroCopy says whether the driver may, or must, use the wire's memory itself.
type ZeroCopy uint8

const (
	ZeroCopyAuto ZeroCopy = iota // if the driver can
	ZeroCopyOff                  // the kernel copies every frame
	ZeroCopyOn                   // or the wire does not open
)

func (z ZeroCopy) String() string {
	switch z {
	case ZeroCopyOff:
		return "off"
	case ZeroCopyOn:
		return "on"
	}
	return "auto"
}

// XDPOptions describes an AF_XDP wire. The zero value is the default: it takes all the interface receives.
type XDPOptions struct {
	NetNS      string // name below /run/netns, or a path; empty: the caller's own
	FirstQueue int    // of the interface's receive queues; frames leave by the first
	Queues     int    // how many of them; 0: all from FirstQueue on
	Mode       XDPMode
	ZeroCopy   ZeroCopy
	BusyPoll   time.Duration   // how long a look at an empty queue may drive the device; 0: interrupts do
	RxFrames   int             // that may wait in one queue, rounded up to a power of two; 0: 4096
	TxSlots    int             // frames that may be on their way out, rounded up to a power of two; 0: 512
	Lend       int             // bytes of packet memory to lend; 0: 4 MiB, below 0: none
	Context    context.Context // ends the wait for a carrier; nil: only its limit does
	Clock      clock.Clock
}

// PCAPOptions describes a pcap wire.
type PCAPOptions struct {
	Read  bool // a receiver: Next replays the file; otherwise a sender: it is created and written
	Clock clock.Clock
}

// params reads url.Values, remembers which names it knows, and keeps the first error.
type params struct {
	scheme string
	v      url.Values
	known  []string
	err    error
}

func (p *params) fail(name, value, want string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s %s=%q: %s", ErrParam, p.scheme, name, value, want)
	}
}

// get returns the parameter's one value.
func (p *params) get(name string) (string, bool) {
	p.known = append(p.known, name)
	all, ok := p.v[name]
	if !ok {
		return "", false
	}
	if len(all) != 1 {
		p.fail(name, strings.Join(all, ","), "must be given once")
		return "", false
	}
	return all[0], true
}

func (p *params) probability(name string) float64 {
	s, ok := p.get(name)
	if !ok {
		return 0
	}
	scale := 1.0
	num := s
	if strings.HasSuffix(s, "%") {
		num, scale = s[:len(s)-1], 100
	}
	f, err := strconv.ParseFloat(num, 64)
	if f /= scale; err != nil || math.IsNaN(f) || f < 0 || f > 1 {
		p.fail(name, s, "must be a probability, 0 to 1 or 0% to 100%")
		return 0
	}
	return f
}

func (p *params) duration(name string) time.Duration {
	s, ok := p.get(name)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Minute {
		p.fail(name, s, "must be a duration with a unit, such as 5us, at most 60s")
		return 0
	}
	return d
}

func (p *params) integer(name string, low, high uint64) uint64 {
	s, ok := p.get(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n < low || n > high {
		p.fail(name, s, fmt.Sprintf("must be an integer from %d to %d", low, high))
		return 0
	}
	return n
}

func (p *params) boolean(name string, absent bool) bool {
	s, ok := p.get(name)
	if !ok {
		return absent
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		p.fail(name, s, "must be 0 or 1")
	}
	return b
}

// bytes reads a size: plain bytes, or with KiB, MiB or GiB.
func (p *params) bytes(name string, low, high int) int {
	s, ok := p.get(name)
	if !ok {
		return 0
	}
	num, scale := s, 1
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if strings.HasSuffix(s, suffix) {
			num, scale = strings.TrimSuffix(s, suffix), 1<<(10*(i+1))
		}
	}
	n, err := strconv.Atoi(num)
	if err != nil || n < 0 || n > math.MaxInt/scale || n*scale < low || n*scale > high {
		p.fail(name, s, fmt.Sprintf("must be bytes, such as 512KiB or 64MiB, from %d to %d", low, high))
		return 0
	}
	return n * scale
}

// speed reads a bit rate with a unit.
func (p *params) speed(name string) uint64 {
	s, ok := p.get(name)
	if !ok {
		return 0
	}
	low := strings.ToLower(s)
	for _, u := range []struct {
		suffix string
		scale  float64
	}{{"gbps", 1e9}, {"mbps", 1e6}, {"kbps", 1e3}, {"bps", 1}} {
		num, ok := strings.CutSuffix(low, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(num, 64)
		if bps := math.Round(f * u.scale); err == nil && bps >= 1000 && bps <= 1e13 {
			return uint64(bps)
		}
		break
	}
	p.fail(name, s, "must be a bit rate with a unit, such as 100gbps, from 1kbps to 10000gbps")
	return 0
}

// pair splits "a" or "a,b".
func (p *params) pair(name string) []string {
	s, ok := p.get(name)
	if !ok {
		return nil
	}
	parts := strings.Split(s, ",")
	if len(parts) > 2 {
		p.fail(name, s, "must be one value for port 0, or two with a comma between them")
		return nil
	}
	return parts
}

func (p *params) macs(name string, out *[2][6]byte) {
	for i, s := range p.pair(name) {
		m, err := net.ParseMAC(s)
		if err != nil || len(m) != 6 || m[0]&1 != 0 {
			p.fail(name, s, "must be a unicast MAC address such as 02:00:00:00:00:01")
			return
		}
		copy(out[i][:], m)
	}
}

func (p *params) addrs(name string, is6 bool, out *[2]netip.Addr) {
	for i, s := range p.pair(name) {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Is6() != is6 || a.Zone() != "" {
			p.fail(name, s, "must be an address of its family")
			return
		}
		out[i] = a
	}
}

// finish returns the first error; a name nobody asked for is one.
func (p *params) finish() error {
	known := make(map[string]bool, len(p.known))
	for _, k := range p.known {
		known[k] = true
	}
	unknown := make([]string, 0, len(p.v))
	for k := range p.v {
		if !known[k] {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		sort.Strings(p.known)
		return fmt.Errorf("%w: %s knows no parameter %q; it knows %s", ErrNoParam, p.scheme, unknown[0], strings.Join(p.known, ", "))
	}
	return p.err
}

// ParseLoop reads the parameters of a loop: device string. The caller has taken those it knows itself.
func ParseLoop(name string, v url.Values) (LoopOptions, error) {
	p := params{scheme: "loop:" + name, v: v}
	o := LoopOptions{
		Name:     name,
		SpeedBPS: p.speed("speed"),
		Queue:    int(p.integer("queue", 1, 1<<24)),
		Capacity: p.bytes("capacity", 4<<10, 1<<30),
		MTU:      int(p.integer("mtu", 68, maxFrameLen-headerBytes-vlanTagBytes)),
		Drop:     p.boolean("drop", false),
		Impair: Impairs{
			Delay:   p.duration("delay"),
			Jitter:  p.duration("jitter"),
			Loss:    p.probability("loss"),
			Dup:     p.probability("dup"),
			Reorder: p.probability("reorder"),
			Corrupt: p.probability("corrupt"),
			Seed:    p.integer("seed", 0, math.MaxUint64),
		},
	}
	p.macs("mac", &o.MAC)
	p.addrs("ip4", false, &o.Addr4)
	p.addrs("ip6", true, &o.Addr6)
	return o, p.finish()
}

// ParsePacket reads the parameters of a packet: device string.
func ParsePacket(name string, v url.Values) (PacketOptions, error) {
	p := params{scheme: "packet:" + name, v: v}
	o := PacketOptions{
		RingBytes: p.bytes("ring", 64<<10, 1<<30),
		RingSlot:  p.bytes("slot", 256, 128<<10),
		TxSlots:   int(p.integer("txslots", 1, 1<<14)),
		Fanout:    int(p.integer("fanout", 1, 1<<16-1)),
	}
	o.NetNS, _ = p.get("netns")
	o.NoPromisc = !p.boolean("promisc", true)
	if o.RingSlot&(o.RingSlot-1) != 0 {
		p.fail("slot", strconv.Itoa(o.RingSlot), "must be a power of two")
	}
	o.Send = one(&p, "send", SendAuto, SendMMsg, SendRing, SendMMsgQDsc)
	if s, ok := p.get("gso"); ok {
		if o.GSO = s == "auto"; !o.GSO && s != "off" {
			p.fail("gso", s, "must be auto or off")
		}
	}
	return o, p.finish()
}

// one reads a parameter that has one of a few values, each under its String; the first stands for an absent one.
func one[T fmt.Stringer](p *params, name string, values ...T) T {
	s, ok := p.get(name)
	if !ok {
		return values[0]
	}
	names := make([]string, len(values))
	for i, v := range values {
		if names[i] = v.String(); s == names[i] {
			return v
		}
	}
	p.fail(name, s, "must be one of "+strings.Join(names, ", "))
	return values[0]
}

// ParseXDP reads the parameters of an xdp: device string.
func ParseXDP(name string, v url.Values) (XDPOptions, error) {
	p := params{scheme: "xdp:" + name, v: v}
	o := XDPOptions{
		Mode:     one(&p, "mode", XDPAuto, XDPNative, XDPGeneric),
		ZeroCopy: one(&p, "zerocopy", ZeroCopyAuto, ZeroCopyOff, ZeroCopyOn),
		BusyPoll: p.duration("busypoll"),
		RxFrames: int(p.integer("frames", 64, 1<<16)),
		TxSlots:  int(p.integer("txslots", 1, 1<<14)),
	}
	if o.Lend = p.bytes("lend", 0, 1<<30); o.Lend == 0 && v.Has("lend") {
		o.Lend = -1
	}
	o.NetNS, _ = p.get("netns")
	if s, ok := p.get("queue"); ok {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 16)
		b, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || b < a {
			p.fail("queue", s, "must be a queue such as 0, or a range such as 0-3")
		}
		o.FirstQueue, o.Queues = int(a), int(b-a)+1
	}
	return o, p.finish()
}

// ParseUDP reads the parameters of a udp: device string.
func ParseUDP(addr string, v url.Values) (UDPOptions, error) {
	p := params{scheme: "udp:" + addr, v: v}
	o := UDPOptions{
		RecvBuf: p.bytes("rcvbuf", 4<<10, 1<<30),
		SendBuf: p.bytes("sndbuf", 4<<10, 1<<30),
		TxSlots: int(p.integer("txslots", 1, 1<<14)),
		Ports:   int(p.integer("ports", 1, 256)),
	}
	o.NetNS, _ = p.get("netns")
	o.StrictID = !p.boolean("weakicrc", true)
	on := p.boolean("gso", false)
	if _, given := v["gso"]; given {
		o.GSO = GSOOff
	}
	if on {
		o.GSO = GSOOn
	}
	return o, p.finish()
}

// ParsePCAP reads the parameters of a pcap: device string.
func ParsePCAP(path string, v url.Values) (PCAPOptions, error) {
	p := params{scheme: "pcap:" + path, v: v}
	var o PCAPOptions
	switch s, ok := p.get("mode"); {
	case !ok || s == "write":
	case s == "read":
		o.Read = true
	default:
		p.fail("mode", s, "must be write or read")
	}
	return o, p.finish()
}
