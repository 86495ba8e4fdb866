package traffic

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// handleIn opens netlink in the namespace of that name or path; empty is the
// process's own.
func handleIn(name string) (*netlink.Handle, error) {
	if name == "" {
		return netlink.NewHandle()
	}
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join("/run/netns", name)
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	return netlink.NewHandleAt(ns)
}

// interfaceOf is the name of the interface that has an address; empty: none has.
func interfaceOf(addr netip.Addr, ns string) (ifname string, err error) {
	h, err := handleIn(ns)
	if err != nil {
		return "", err
	}
	defer h.Close()
	list, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return "", err
	}
	for _, a := range list {
		ip, _ := netip.AddrFromSlice(a.IP)
		if ip.Unmap() != addr.WithZone("") {
			continue
		}
		link, err := h.LinkByIndex(a.LinkIndex)
		if err != nil {
			return "", err
		}
		if name := link.Attrs().Name; addr.Zone() == "" || addr.Zone() == name {
			return name, nil
		}
	}
	return "", nil
}

func carriesDefaultRoute(ifname, ns string) (bool, error) {
	h, err := handleIn(ns)
	if err != nil {
		return false, err
	}
	defer h.Close()
	link, err := h.LinkByName(ifname)
	if err != nil {
		return false, err
	}
	routes, err := h.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return false, err
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if r.LinkIndex == link.Attrs().Index {
			return true, nil
		}
		for _, hop := range r.MultiPath {
			if hop.LinkIndex == link.Attrs().Index {
				return true, nil
			}
		}
	}
	return false, nil
}

// neighbour looks up dst, or the gateway on the way to it, in the port's
// neighbour table.
func neighbour(tx *PortFacts, dst netip.Addr) (mac [6]byte, err error) {
	missing := results.Usage("dmac", "", fmt.Sprintf("%s has no neighbour entry for %s; use --dmac MAC, --rx PORT, or ping it first", tx.URI, dst))
	h, err := handleIn(tx.NetNS)
	if err != nil {
		return mac, missing
	}
	defer h.Close()
	want := []netip.Addr{dst}
	if routes, err := h.RouteGet(dst.AsSlice()); err == nil {
		for _, r := range routes {
			if gw, ok := netip.AddrFromSlice(r.Gw); ok && r.LinkIndex == tx.IfIndex {
				want = append(want, gw.Unmap())
			}
		}
	}
	family := netlink.FAMILY_V4
	if dst.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := h.NeighList(tx.IfIndex, family)
	if err != nil {
		return mac, missing
	}
	for _, addr := range want {
		for _, n := range list {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == addr && len(n.HardwareAddr) == 6 {
				return [6]byte(n.HardwareAddr), nil
			}
		}
	}
	return mac, missing
}
