package softnic

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/proto"
)

// The GID table has the wire's addresses, as they were when it was opened: IPv4 first, then IPv6, those of the
// link last. So index 0 is what most peers reach.

// maxGIDs is what the index in a WQE can name, but for its last value.
const maxGIDs = 255

// makeGIDs fills the table.
func (n *NIC) makeGIDs() {
	addrs := []netip.Addr{n.info.Addr4, n.info.Addr6}
	if n.network = wire.NetworkOf(n.wire); n.network != nil {
		addrs = n.network.Addrs()
	}
	kind := func(a netip.Addr) int {
		switch {
		case a.Is4() || a.Is4In6():
			return 0
		case a.IsLinkLocalUnicast():
			return 2
		}
		return 1
	}
	for want := range 3 {
		for _, a := range addrs {
			if a.IsValid() && kind(a) == want && len(n.gids) < maxGIDs {
				n.gids = append(n.gids, engine.GIDEntry{Index: len(n.gids), GID: engine.GIDFromAddr(a)})
			}
		}
	}
}

// GIDs gives the device's own addresses.
func (n *NIC) GIDs() []engine.GIDEntry { return n.gids }

// ownGID gives the index of an own address, -1 if it is none.
func (n *NIC) ownGID(g *[16]byte) int {
	for i := range n.gids {
		if n.gids[i].GID == *g {
			return i
		}
	}
	return -1
}

// Resolve finds the next hop of a destination: this NIC itself for its own addresses, the group's MAC, else what
// the wire's network says.
func (n *NIC) Resolve(ctx context.Context, d engine.Dest) (a engine.AHAttr, err error) {
	if err := ctx.Err(); err != nil {
		return a, err
	}
	if p := n.info.SrcPort; p != 0 && d.SrcPort != 0 && d.SrcPort != p {
		return a, fmt.Errorf("softnic: source port %d: the wire sends from port %d only: %w", d.SrcPort, p, syscall.EINVAL)
	}
	switch g := [16]byte(d.GID); {
	case d.GID.IsMulticast():
		return d.Attr(proto.MulticastMAC(proto.GID(d.GID))), nil
	case n.ownGID(&g) >= 0:
		return d.Attr(n.info.MAC), nil
	case n.network != nil:
		mac, err := n.network.NextHop(ctx, d.GID.Addr())
		return d.Attr(mac), err
	case n.info.HasPeer:
		return d.Attr(n.info.PeerMAC), nil
	}
	return a, fmt.Errorf("softnic: %s knows no way to %v: %w", n.info.Name, d.GID, syscall.EHOSTUNREACH)
}
