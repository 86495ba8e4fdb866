package ud

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// DefaultQKey is the Q_Key of ibv_ud_pingpong and perftest.
const DefaultQKey = 0x11111111

// MulticastQPN is the queue pair number of a datagram to a group.
const MulticastQPN = 0xffffff

// Addr names an endpoint: the port's GID, and the queue pair there with the key
// that it wants to see. It is comparable, and it is a net.Addr. What is behind
// QKey chooses the path and is zero for most.
type Addr struct {
	GID      engine.GID
	QPN      uint32 // 24 bits; MulticastQPN with the GID of a group
	QKey     uint32
	Flow     uint32 // flow label, 20 bits, from which the UDP source port is made
	SrcPort  uint16 // UDP source port itself
	TClass   uint8  // traffic class: DSCP and ECN
	HopLimit uint8  // 0: engine.DefaultHopLimit
}

// GroupAddr is the address of a multicast group.
func GroupAddr(group netip.Addr, qkey uint32) Addr {
	return Addr{GID: engine.GIDFromAddr(group), QPN: MulticastQPN, QKey: qkey}
}

// Network is "ud".
func (a Addr) Network() string { return "ud" }

// String gives IP/QPN/QKEY, then /flow=, /port=, /tclass= and /hops= as far as
// they are not zero. ParseAddr reads it.
func (a Addr) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v/0x%06x/0x%08x", a.GID, a.QPN, a.QKey)
	for _, f := range []struct {
		name  string
		value uint64
	}{{"flow", uint64(a.Flow)}, {"port", uint64(a.SrcPort)}, {"tclass", uint64(a.TClass)}, {"hops", uint64(a.HopLimit)}} {
		if f.value != 0 {
			fmt.Fprintf(&b, "/%s=%d", f.name, f.value)
		}
	}
	return b.String()
}

// ParseAddr reads what Addr.String writes. Numbers may be decimal or, with 0x,
// hexadecimal; without a Q_Key it is DefaultQKey.
func ParseAddr(s string) (a Addr, err error) {
	bad := func(format string, args ...any) (Addr, error) {
		return Addr{}, fmt.Errorf("ud: address %q: %s: %w", s, fmt.Sprintf(format, args...), syscall.EINVAL)
	}
	fields := strings.Split(s, "/")
	if len(fields) < 2 {
		return bad("want IP/QPN, such as 192.0.2.1/0x11")
	}
	ip, err := netip.ParseAddr(fields[0])
	if err != nil {
		return bad("%q is no IP address", fields[0])
	}
	if a.GID, a.QKey = engine.GIDFromAddr(ip), DefaultQKey; a.GID == (engine.GID{}) {
		return bad("%q is the address of nobody", fields[0])
	}
	for i, f := range fields[1:] {
		name, text, named := strings.Cut(f, "=")
		if !named {
			name, text = [...]string{"qpn", "qkey", ""}[min(i, 2)], f
		}
		bits, ok := map[string]int{"qpn": 24, "qkey": 32, "flow": 20, "port": 16, "tclass": 8, "hops": 8}[name]
		if !ok || named && (name == "qpn" || name == "qkey") {
			return bad("%q is not known; known: flow=, port=, tclass=, hops=", f)
		}
		v, err := strconv.ParseUint(text, 0, 64)
		if err != nil || v>>bits != 0 {
			return bad("%s %q is no number of %d bits", name, text, bits)
		}
		switch name {
		case "qpn":
			a.QPN = uint32(v)
		case "qkey":
			a.QKey = uint32(v)
		case "flow":
			a.Flow = uint32(v)
		case "port":
			a.SrcPort = uint16(v)
		case "tclass":
			a.TClass = uint8(v)
		case "hops":
			a.HopLimit = uint8(v)
		}
	}
	return a, nil
}

// dest is where datagrams to the address go.
func (a *Addr) dest(sgid int) engine.Dest {
	return engine.Dest{GID: a.GID, SGIDIndex: sgid, FlowLabel: a.Flow, SrcPort: a.SrcPort, TrafficClass: a.TClass, HopLimit: a.HopLimit}
}
