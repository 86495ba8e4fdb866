package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/bluering/bluering/ring"
)

// GID is a port's address: an IPv6 address, or an IPv4 address a.b.c.d as
// ::ffff:a.b.c.d (RoCE v2).
type GID [16]byte

// GIDFromAddr makes the GID of an address; its zone is dropped. Of the zero Addr
// it is the zero GID.
func GIDFromAddr(a netip.Addr) GID {
	if !a.IsValid() {
		return GID{}
	}
	return a.As16()
}

// Addr gives the address, an IPv4 one as such; the zero Addr of the zero GID.
func (g GID) Addr() netip.Addr {
	if g == (GID{}) {
		return netip.Addr{}
	}
	if g.Is4() {
		return netip.AddrFrom4([4]byte(g[12:]))
	}
	return netip.AddrFrom16(g)
}

// Is4 reports whether packets of this GID go over IPv4: the GID is
// ::ffff:a.b.c.d or, for a group, ff0e::ffff:a.b.c.d (ipv6_addr_v4mapped of
// libibverbs).
func (g GID) Is4() bool {
	head, mid := binary.BigEndian.Uint64(g[:]), binary.BigEndian.Uint32(g[8:])
	return mid == 0xffff && (head == 0 || head == 0xff0e<<48)
}

// IsMulticast reports whether the GID names a group: an IPv6 multicast address,
// or an IPv4 one mapped.
func (g GID) IsMulticast() bool {
	if g.Is4() {
		return g[12]>>4 == 0xe
	}
	return g[0] == 0xff
}

// String gives the address's usual form, "-" for the zero GID.
func (g GID) String() string {
	if g == (GID{}) {
		return "-"
	}
	return g.Addr().String()
}

// GIDEntry is one of a device's own addresses.
type GIDEntry struct {
	Index int // as in AHAttr.SGIDIndex and Dest.SGIDIndex
	GID   GID
}

// maxGIDs is what the eight bits of a WQE's index can name, but for the last,
// which names none.
const (
	maxGIDs = 255
	noGID   = 255
)

// GIDs gives the device's own addresses, as they were when it was opened; the
// entry's position is its index. The caller may keep and change it.
func (d *Device) GIDs() []GIDEntry {
	if d == nil {
		return nil
	}
	return slices.Clone(d.gids)
}

// Dest is a destination before its next hop is known.
type Dest struct {
	GID          GID    // of a port or a group
	SGIDIndex    int    // own address, of the same family; AnyGID: the first that fits
	FlowLabel    uint32 // 20 bits; of IPv6, and the source port is made of it
	HopLimit     uint8  // 0: DefaultHopLimit
	TrafficClass uint8
	SrcPort      uint16 // UDP source port, which chooses the path; 0: made of the flow label, or else of the queue pair's number
}

const (
	// AnyGID as Dest.SGIDIndex lets the device choose its address.
	AnyGID = -1
	// DefaultHopLimit is the hop limit of a Dest that gives none.
	DefaultHopLimit = 64

	maxFlowLabel = 0xfffff
	// resolveTime bounds AHFromCompletion.
	resolveTime = 3 * time.Second
)

// Attr makes the address of a destination whose next hop has that MAC. Without
// a port and a flow label the source port stays 0, for the device to choose.
func (d *Dest) Attr(mac [6]byte) AHAttr {
	a := AHAttr{SrcPort: d.SrcPort, MAC: mac, TClass: d.TrafficClass, HopLimit: d.HopLimit,
		SGIDIndex: uint8(d.SGIDIndex), FlowLabel: d.FlowLabel, GID: d.GID}
	if a.SrcPort == 0 && a.FlowLabel != 0 {
		a.SrcPort = ring.SrcPort(a.FlowLabel)
	}
	return a
}

// ResolveAH makes the address of a destination: Resolve, then NewAH.
func (p *PD) ResolveAH(ctx context.Context, d Dest) (*AH, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	a, err := p.dev.Resolve(ctx, d)
	if err != nil {
		return nil, err
	}
	return p.NewAH(a)
}

// Resolve finds what an address of the destination is made of: it asks for the
// MAC of the next hop, and waits for the answer as long as ctx lasts (F-09).
// HopLimit 0 is 64. Any goroutine may call it, and nothing is to be closed.
func (d *Device) Resolve(ctx context.Context, t Dest) (AHAttr, error) {
	if err := d.usable(); err != nil {
		return AHAttr{}, err
	}
	err := d.complete(&t)
	if err == nil {
		var a AHAttr
		if a, err = d.b.Resolve(ctx, t); err == nil {
			return a, nil
		}
	}
	return AHAttr{}, fmt.Errorf("engine: %s: destination %v: %w", d.caps.Name, t.GID, err)
}

// complete checks a destination and replaces what was left to the device.
func (d *Device) complete(t *Dest) error {
	if t.HopLimit == 0 {
		t.HopLimit = DefaultHopLimit
	}
	if t.GID == (GID{}) {
		return fmt.Errorf("no GID given: %w", syscall.EINVAL) // F-01
	}
	if t.FlowLabel > maxFlowLabel {
		return fmt.Errorf("flow label 0x%x, at most 0x%x: %w", t.FlowLabel, maxFlowLabel, syscall.EINVAL)
	}
	if t.SGIDIndex < 0 {
		t.SGIDIndex = d.sourceFor(t.GID)
		if t.SGIDIndex < 0 {
			return fmt.Errorf("the device has no address of its family: %w", syscall.EADDRNOTAVAIL)
		}
	}
	if t.SGIDIndex >= len(d.gids) {
		return fmt.Errorf("GID index %d, the table has %d: %w", t.SGIDIndex, len(d.gids), syscall.EINVAL) // F-03
	}
	if own := d.gids[t.SGIDIndex].GID; own.Is4() != t.GID.Is4() {
		return fmt.Errorf("own address %v (index %d) is of another family: %w", own, t.SGIDIndex, syscall.EINVAL)
	}
	return nil
}

// sourceFor gives the index of the first own address of the family, and of the
// scope if there is one; -1: none.
func (d *Device) sourceFor(to GID) int {
	best := -1
	for i := range d.gids {
		switch g := d.gids[i].GID; {
		case g.Is4() != to.Is4():
		case g.linkLocal() == to.linkLocal():
			return i
		case best < 0:
			best = i
		}
	}
	return best
}

func (g GID) linkLocal() bool {
	return g[0] == 0xfe && g[1]&0xc0 == 0x80 || g[0] == 0xff && g[1]&0xf == 2
}

// AHFromCompletion makes an address that answers a received datagram: grh is the
// first 40 bytes of its buffer (F-10). It waits for the next hop's MAC, three
// seconds at most; to wait otherwise, take DestFromCompletion and ResolveAH.
func (p *PD) AHFromCompletion(wc *Completion, grh []byte) (*AH, error) {
	d, err := p.DestFromCompletion(wc, grh)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	return p.ResolveAH(ctx, d)
}

// What is wrong with a completion that gives no destination. They are made once,
// so that DestFromCompletion allocates nothing.
var (
	errNoGRH       = fmt.Errorf("engine: no received datagram with its first 40 bytes: %w", syscall.EINVAL)
	errGRHKind     = fmt.Errorf("engine: the first 40 bytes hold no IPv4 or IPv6 header of a datagram: %w", syscall.EPROTONOSUPPORT)
	errToMulticast = fmt.Errorf("engine: the datagram went to a group: %w", syscall.EINVAL)
	errNotToUs     = fmt.Errorf("engine: the datagram went to none of the device's addresses: %w", syscall.EINVAL)
)

// Offsets in the 40 bytes in front of a datagram.
const (
	grhBytes   = 40
	grhIPv4    = 20 // an IPv4 header stands in the last 20 bytes
	protoUDP   = 17
	ipv4Header = 20
)

// DestFromCompletion gives the destination that answers a received datagram,
// from the first 40 bytes of its buffer: the sender's address, the own address
// that it was sent to, and its hop limit, traffic class and flow label. The
// source port is left open. It allocates nothing, and keeps nothing.
//
// Bytes 0 to 19 mean nothing when the packet was IPv4 (E-03). When the 40 bytes
// look like both kinds, the destination that is in the device's table decides,
// and if that is undecided, too, the IPv4 header's checksum (F-10, F-11).
func (p *PD) DestFromCompletion(wc *Completion, grh []byte) (d Dest, err error) {
	if err := p.usable(); err != nil {
		return d, err
	}
	if wc == nil || wc.Flags&WCGRH == 0 || !wc.Recv || wc.Status != StatusSuccess || len(grh) < grhBytes {
		return d, errNoGRH
	}
	h := (*[grhBytes]byte)(grh)
	is6 := h[0]>>4 == 6 && h[6] == protoUDP
	is4 := h[grhIPv4] == 0x45 && h[grhIPv4+9] == protoUDP
	if is4 && is6 {
		own4, own6 := p.dev.indexOf(dst4(h)) >= 0, p.dev.indexOf(dst6(h)) >= 0
		is4 = own4 && !own6 || own4 == own6 && ipv4CsumGood((*[ipv4Header]byte)(h[grhIPv4:]))
	}
	var to GID
	switch {
	case is4:
		b := h[grhIPv4:]
		d.GID = GID{10: 0xff, 11: 0xff, 12: b[12], 13: b[13], 14: b[14], 15: b[15]}
		d.TrafficClass, d.HopLimit = b[1], b[8]
		to = dst4(h)
	case is6:
		d.GID = GID(h[8:24])
		word := binary.BigEndian.Uint32(h[:])
		d.TrafficClass, d.HopLimit, d.FlowLabel = uint8(word>>20), h[7], word&maxFlowLabel
		to = dst6(h)
	default:
		return d, errGRHKind
	}
	if to.IsMulticast() {
		return Dest{}, errToMulticast // F-12
	}
	if d.SGIDIndex = p.dev.indexOf(to); d.SGIDIndex < 0 {
		return Dest{}, errNotToUs
	}
	return d, nil
}

func dst4(h *[grhBytes]byte) GID {
	return GID{10: 0xff, 11: 0xff, 12: h[36], 13: h[37], 14: h[38], 15: h[39]}
}

func dst6(h *[grhBytes]byte) GID { return GID(h[24:]) }

// ipv4CsumGood reports whether the header's words add up to all ones (RFC 1071).
func ipv4CsumGood(h *[ipv4Header]byte) bool {
	sum := uint32(0)
	for i := 0; i < ipv4Header; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	return sum&0xffff+sum>>16 == 0xffff
}

// indexOf gives the index of an own address, -1 if it is none.
func (d *Device) indexOf(g GID) int {
	for i := range d.gids {
		if d.gids[i].GID == g {
			return i
		}
	}
	return -1
}

// AttachMulticast makes a UD queue pair, in any state, a member of a group: it
// gets one copy of each datagram to the group and QP number 0xffffff that comes
// while it receives. A second attach to the same group changes nothing
// (F-14); too many groups or members are ENOMEM (F-16).
func (q *QP) AttachMulticast(g GID) error { return q.multicast(g, true) }

// DetachMulticast ends a membership; EINVAL when there is none (F-15).
func (q *QP) DetachMulticast(g GID) error { return q.multicast(g, false) }

func (q *QP) multicast(g GID, join bool) error {
	if err := q.usable(); err != nil {
		return err
	}
	d := q.dev
	g = GIDFromAddr(g.Addr()) // the two spellings of an IPv4 group are one
	bad := func(err error) error {
		return fmt.Errorf("engine: %s: QP 0x%x: group %v: %w", d.caps.Name, q.qpn, g, err)
	}
	if q.typ != UD { // F-13
		return bad(fmt.Errorf("a queue pair of type %v has no groups: %w", q.typ, syscall.EINVAL))
	}
	if !g.IsMulticast() {
		return bad(fmt.Errorf("not a multicast address: %w", syscall.EINVAL))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.Index(q.groups, g)
	switch {
	case join && at >= 0:
		return nil
	case !join && at < 0:
		return bad(fmt.Errorf("not a member: %w", syscall.EINVAL))
	case join:
		if err := d.b.AttachMulticast(q.qpn, g); err != nil {
			return bad(err)
		}
		q.groups = append(q.groups, g)
		return nil
	}
	if err := d.b.DetachMulticast(q.qpn, g); err != nil {
		return bad(err)
	}
	q.groups = slices.Delete(q.groups, at, at+1)
	return nil
}
