package traffic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// stateOf is the operational state that the kernel gives an interface, which says more than up and down.
func stateOf(ifname, otherwise string) string {
	l, err := netlink.LinkByName(ifname)
	if err != nil {
		return otherwise
	}
	return l.Attrs().OperState.String()
}

func driverOf(ifname string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, ifname)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// interfaceFacts reads an interface's facts by netlink.
func interfaceFacts(uri, ifname, ns string) (*PortFacts, error) {
	h, err := handleIn(ns)
	if err != nil {
		return nil, namespaceError(uri, ns, err)
	}
	defer h.Close()
	l, err := h.LinkByName(ifname)
	if err != nil {
		return nil, noInterface(uri, ifname, h)
	}
	at := l.Attrs()
	scheme, _, _ := strings.Cut(uri, ":")
	f := &PortFacts{
		Port:    Port{URI: uri, Name: ifname, Kind: scheme, IsWire: true, MAC: at.HardwareAddr.String(), MaxFrame: at.MTU + ethBytes + vlanBytes},
		IfIndex: at.Index, NetNS: ns,
	}
	copy(f.HWAddr[:], at.HardwareAddr)
	f.Addr4, f.Addr6 = firstAddr(h, l, netlink.FAMILY_V4), firstAddr(h, l, netlink.FAMILY_V6)
	return f, nil
}

// namespaceError tells a namespace that is not there from one that is closed to
// this user.
func namespaceError(uri, ns string, err error) error {
	hint := fmt.Sprintf("cannot enter namespace %q (%v); ", ns, err)
	closed := strings.HasSuffix(err.Error(), unix.EPERM.Error()) // netlink does not wrap it
	if closed || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		hint += "netns= needs CAP_SYS_ADMIN; run as root, or once: sudo setcap cap_net_raw,cap_sys_admin+ep " + executable()
	} else {
		hint += "use a name of `ip netns list` or a path"
	}
	return &UsageError{Thing: "port", Value: uri, Hint: hint, Cause: err}
}

func firstAddr(h *netlink.Handle, l netlink.Link, family int) netip.Addr {
	list, err := h.AddrList(l, family)
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			return ip.Unmap()
		}
	}
	return netip.Addr{}
}

// noInterface is the error for a name that does not exist, with those that do.
func noInterface(uri, ifname string, h *netlink.Handle) error {
	var names []string
	if links, err := h.LinkList(); err == nil {
		for _, l := range links {
			if l.Attrs().Flags&net.FlagLoopback == 0 {
				names = append(names, l.Attrs().Name)
			}
		}
	}
	hint := fmt.Sprintf("no interface %q", ifname)
	if names != nil {
		hint += "; use one of " + strings.Join(names, ", ")
	} else {
		hint += "; there is none here, use loop:"
	}
	return results.Usage("port", uri, hint)
}
