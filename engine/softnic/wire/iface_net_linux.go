package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/proto"
)

// ifaceNet is what a wire on a kernel interface knows of the interface's IP network: it asks the kernel, which has the
// routes and the neighbour table, and answers for the host.
type ifaceNet struct {
	addrs []netip.Addr // without zones

	mu      sync.Mutex // of what follows; any goroutine joins, leaves and holds
	closed  bool
	holds   []int // sockets that hold the RoCE port
	members []memberSocket
	groups  map[netip.Addr]int // by group: the descriptor of the socket that is a member
}

// memberSocket is a socket that exists for its memberships; the kernel bounds their number
// (net.ipv4.igmp_max_memberships).
type memberSocket struct {
	fd     int
	is4    bool
	groups int
}

// Addrs gives the interface's addresses, as they were when the wire was opened.
func (w *iface) Addrs() []netip.Addr { return slices.Clone(w.net.addrs) }

// learn notes addresses, those in Info before all others of their family.
func (n *ifaceNet) learn(first4, first6 netip.Addr, all []netip.Addr) {
	n.addrs = nil
	for _, a := range append([]netip.Addr{first4, first6}, all...) {
		if a = a.WithZone(""); a.IsValid() && !slices.Contains(n.addrs, a) {
			n.addrs = append(n.addrs, a)
		}
	}
}

const (
	// askFirst and askMost bound how long NextHop waits between two looks at the neighbour table.
	askFirst = time.Millisecond
	askMost  = 20 * time.Millisecond
	discard  = 9 // the UDP port of RFC 863, for the datagram that makes the kernel ask
)

// NextHop asks the kernel for the route, and then its neighbour table for the MAC. Who is not in the table is asked
// for by sending a datagram to the discard port; the answer comes when it comes, or not.
func (w *iface) NextHop(ctx context.Context, to netip.Addr) (mac [6]byte, err error) {
	err = inNetNS(w.info.NetNS, func() (err error) {
		mac, err = w.nextHop(ctx, to)
		return err
	})
	if err != nil {
		return mac, fmt.Errorf("wire: %s%s: way to %v: %w", w.info.Name, w.where(), to, err)
	}
	return mac, nil
}

func (w *iface) nextHop(ctx context.Context, to netip.Addr) (mac [6]byte, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return mac, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	hop, local, err := w.route(h, to)
	if err != nil || local {
		return mac, err
	}
	asked := false
	for wait := askFirst; ; wait = min(2*wait, askMost) {
		mac, state, err := w.neighbour(h, hop)
		const known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP
		switch {
		case err != nil || state&known != 0:
			return mac, err
		case asked && state&netlink.NUD_FAILED != 0:
			return mac, fmt.Errorf("%v does not answer: %w", hop, syscall.EHOSTUNREACH)
		case state&netlink.NUD_INCOMPLETE == 0:
			if err := w.ask(hop); err != nil {
				return mac, fmt.Errorf("ask for %v: %w", hop, err)
			}
			asked = true
		}
		select {
		case <-ctx.Done():
			return mac, fmt.Errorf("%v has not answered: %w", hop, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// route gives the neighbour to which packets for an address go; local when they come back to this host by the
// interface itself, as on a loopback.
func (w *iface) route(h *netlink.Handle, to netip.Addr) (hop netip.Addr, local bool, err error) {
	if to.IsLinkLocalUnicast() {
		return to, false, nil
	}
	routes, err := h.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{OifIndex: w.info.IfIndex})
	if err != nil {
		return hop, false, fmt.Errorf("route: %w", err)
	}
	for _, r := range routes {
		if r.Type == unix.RTN_LOCAL {
			if w.info.MAC == [6]byte{} { // of a loopback
				return hop, true, nil
			}
			return hop, false, fmt.Errorf("it is an address of this host, by another interface: %w", syscall.EHOSTUNREACH)
		}
		if gw, ok := netip.AddrFromSlice(r.Gw); ok {
			return gw.Unmap(), false, nil
		}
		if r.Via != nil {
			return hop, false, fmt.Errorf("the gateway %v is of another family: %w", r.Via, syscall.EHOSTUNREACH)
		}
	}
	return to, false, nil
}

// neighbour looks an address up; state is 0 when it is not there.
func (w *iface) neighbour(h *netlink.Handle, hop netip.Addr) (mac [6]byte, state int, err error) {
	family := netlink.FAMILY_V6
	if hop.Is4() {
		family = netlink.FAMILY_V4
	}
	list, err := h.NeighList(w.info.IfIndex, family)
	if err != nil {
		return mac, 0, fmt.Errorf("neighbour table: %w", err)
	}
	for i := range list {
		if ip, _ := netip.AddrFromSlice(list[i].IP); ip.Unmap() == hop {
			copy(mac[:], list[i].HardwareAddr)
			return mac, list[i].State, nil
		}
	}
	return mac, 0, nil
}

// ask makes the kernel ask for a neighbour, by an empty datagram that waits for the answer.
func (w *iface) ask(hop netip.Addr) error {
	fd, sa, err := w.udpSocket(netip.AddrPortFrom(hop, discard))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, w.ifname); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return unix.Sendto(fd, nil, unix.MSG_DONTWAIT, sa)
}

// udpSocket makes a socket of the address's family, bound to nothing.
func (w *iface) udpSocket(a netip.AddrPort) (fd int, sa unix.Sockaddr, err error) {
	family := unix.AF_INET6
	if a.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	return fd, w.sockaddr(a), err
}

// sockaddr is an address as the kernel takes it; one that means something on a link only is of this interface.
func (w *iface) sockaddr(ap netip.AddrPort) unix.Sockaddr {
	a := ap.Addr()
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}
	}
	s := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16()}
	if a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || a.IsInterfaceLocalMulticast() {
		s.ZoneId = uint32(w.info.IfIndex)
	}
	return s
}

// HoldRoCE binds a socket that takes nothing to the RoCE port of each own address, so that the kernel does not answer
// datagrams with ICMP port unreachable. Where somebody else has the port, the kernel does not answer either.
func (w *iface) HoldRoCE() error {
	n := &w.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.holds != nil {
		return nil
	}
	return inNetNS(w.info.NetNS, func() error {
		for _, a := range n.addrs {
			fd, err := w.hold(a)
			if err != nil {
				return fmt.Errorf("wire: %s%s: hold UDP port %d of %v: %w", w.info.Name, w.where(), proto.RoCEPort, a, err)
			}
			if fd >= 0 {
				n.holds = append(n.holds, fd)
			}
		}
		return nil
	})
}

// hold gives -1 when somebody else has the port.
func (w *iface) hold(a netip.Addr) (int, error) {
	fd, sa, err := w.udpSocket(netip.AddrPortFrom(a, proto.RoCEPort))
	if err != nil {
		if errors.Is(err, unix.EAFNOSUPPORT) {
			return -1, nil
		}
		return -1, err
	}
	if a.Is4() { // an address that is not there yet, because its uniqueness is being looked into, will be
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	} else {
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	none := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}} // return 0: keep nothing
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &none); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("filter: %w", err)
	}
	switch err := unix.Bind(fd, sa); {
	case errors.Is(err, unix.EADDRINUSE):
		unix.Close(fd)
		return -1, nil
	case err != nil:
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Join makes the host a member of a group on the interface, so that switches and routers send it here.
func (w *iface) Join(group netip.Addr) error { return w.membership(group, true) }

// Leave ends a membership.
func (w *iface) Leave(group netip.Addr) error { return w.membership(group, false) }

func (w *iface) membership(group netip.Addr, join bool) error {
	group = group.Unmap()
	n := &w.net
	n.mu.Lock()
	defer n.mu.Unlock()
	_, member := n.groups[group]
	if n.closed || member == join {
		return nil
	}
	var err error
	if !join {
		err = w.leave(group)
	} else {
		err = inNetNS(w.info.NetNS, func() error { return w.join(group) })
	}
	if err != nil {
		return fmt.Errorf("wire: %s%s: group %v: %w", w.info.Name, w.where(), group, err)
	}
	return nil
}

// join takes a socket that has room, or a new one.
func (w *iface) join(group netip.Addr) error {
	n := &w.net
	if n.groups == nil {
		n.groups = map[netip.Addr]int{}
	}
	for i := range n.members {
		s := &n.members[i]
		if s.is4 != group.Is4() {
			continue
		}
		err := w.setMember(s.fd, group, true)
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) {
			continue // full
		}
		if err == nil {
			s.groups++
			n.groups[group] = s.fd
		}
		return err
	}
	fd, _, err := w.udpSocket(netip.AddrPortFrom(group, 0))
	if err != nil {
		return err
	}
	if err := w.setMember(fd, group, true); err != nil {
		unix.Close(fd)
		return err
	}
	n.members = append(n.members, memberSocket{fd, group.Is4(), 1})
	n.groups[group] = fd
	return nil
}

func (w *iface) leave(group netip.Addr) error {
	n := &w.net
	fd := n.groups[group]
	delete(n.groups, group)
	i := slices.IndexFunc(n.members, func(s memberSocket) bool { return s.fd == fd })
	if n.members[i].groups--; n.members[i].groups > 0 {
		return w.setMember(fd, group, false)
	}
	n.members = slices.Delete(n.members, i, i+1)
	return unix.Close(fd) // which leaves, too
}

// setMember makes a socket a member of a group on the interface, or ends that.
func (w *iface) setMember(fd int, group netip.Addr, join bool) error {
	if group.Is4() {
		opt := unix.IP_ADD_MEMBERSHIP
		if !join {
			opt = unix.IP_DROP_MEMBERSHIP
		}
		m := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(w.info.IfIndex)}
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, opt, &m)
	}
	opt := unix.IPV6_ADD_MEMBERSHIP
	if !join {
		opt = unix.IPV6_DROP_MEMBERSHIP
	}
	m := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(w.info.IfIndex)}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, opt, &m)
}

// close lets everything go.
func (n *ifaceNet) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	var errs []error
	for _, fd := range n.holds {
		errs = append(errs, unix.Close(fd))
	}
	for _, s := range n.members {
		errs = append(errs, unix.Close(s.fd))
	}
	n.holds, n.members, n.groups = nil, nil, nil
	return errors.Join(errs...)
}
