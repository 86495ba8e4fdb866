package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
)

const (
	udpTxSlots = 256
	udpRxSlots = 128 // the socket's buffer is the queue; these hold what one owner looks at
	udpTTL     = 64  // that datagrams have without a word about it
	udpSockBuf = 8 << 20
	udpMaxMTU  = proto.MaxRoCEMTU + 80 // RoCE has no larger payload
)

// udp is a wire of RoCEv2 datagrams over ordinary UDP sockets, which needs no privilege:
//
//	Commit ─► slots: Ethernet, IP, UDP | BTH ... ICRC ─► sendmmsg of what stands behind the bar
//	recvmmsg ─► slots: | BTH ... ICRC, headers made anew from the control messages ─► Next
//
// or, of a lone datagram, sendto and recvmsg. The ICRC covers the IPv4 identification, which the kernel chooses: on an
// unconnected socket with path MTU discovery it is 0 with DF. What arrives does not show it; 0 is put there and
// FlagIDUnknown says so.
type udp struct {
	kernelWire[*udpTx]
	addr   netip.Addr // bound to
	rx     udpRx
	source udpSource // by fd, what comes to addr
	armed  bool      // a wait may have ended for an entry in the error queue
	tries  int       // of the message at the head
	vain   uint32    // looks for lone datagrams that found none
	closed bool
	groups udpGroups
}

// OpenUDP opens a wire on an address of this host, an IPv4 or IPv6 address with or without a zone. Port 4791 of that
// address must be free: a kernel rxe device of the same network namespace holds it on all addresses.
func OpenUDP(addr string, o UDPOptions) (Wire, error) {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	w := &udp{}
	w.clk, w.fd, w.tx = o.Clock, -1, new(udpTx)
	w.carrierReturns = true
	w.groups.all = closedWaiter
	w.info = Info{Name: "udp:" + addr, Kind: "udp", NetNS: o.NetNS, UDPOnly: true, SrcPort: proto.RoCEPort}
	a, err := netip.ParseAddr(addr)
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() {
		return nil, fmt.Errorf("%w: udp:%s: want one unicast IPv4 or IPv6 address of this host", ErrParam, addr)
	}
	w.addr = a
	if err := inNetNS(o.NetNS, func() error { return w.open(o) }); err != nil {
		w.Close()
		return nil, fmt.Errorf("wire: udp:%s: %w", addr, err)
	}
	return w, nil
}

// open does all that must happen inside the namespace.
func (w *udp) open(o UDPOptions) error {
	if err := w.describe(); err != nil {
		return err
	}
	fd, err := w.socket()
	if err != nil {
		return err
	}
	w.fd, w.source = fd, udpSource{fd: fd, to: w.addr}
	for _, b := range [2]struct{ opt, size int }{{unix.SO_RCVBUF, o.RecvBuf}, {unix.SO_SNDBUF, o.SendBuf}} {
		if b.size == 0 {
			b.size = udpSockBuf
		}
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, b.opt, b.size) // as much of it as the system allows
	}
	if err := unix.Bind(fd, w.sockaddr(netip.AddrPortFrom(w.addr, proto.RoCEPort))); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: another process has it, or a kernel rxe device in this network namespace", err)
		}
		return fmt.Errorf("bind port %d: %w", proto.RoCEPort, err)
	}
	w.info.SpeedBPS = ethtoolSpeed(fd, w.ifname)
	if err := w.linkState(); err != nil {
		return err
	}
	slots := o.TxSlots
	if slots == 0 {
		slots = udpTxSlots
	}
	gso := o.GSO == GSOOn || o.GSO == GSOAuto && w.addr.IsLoopback()
	w.tx.init(fd, w.addr, w.info.IfIndex, pow2ceil(slots), w.info.MaxFrame, gso)
	w.rx.init(w.addr, w.info, !o.StrictID)
	if w.tx.mostPorts, w.tx.open = o.Ports, w.sourceSocket; o.Ports > 0 {
		w.info.SrcPort, w.rx.ports = 0, true
	}
	return nil
}

// socket makes a socket with all options that matter before bind.
func (w *udp) socket() (int, error) {
	family, level := unix.AF_INET, unix.IPPROTO_IP
	type option struct {
		name       string
		opt, value int
	}
	options := []option{
		{"IP_MTU_DISCOVER", unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
		{"IP_RECVTTL", unix.IP_RECVTTL, 1},
		{"IP_RECVTOS", unix.IP_RECVTOS, 1},
		{"IP_RECVERR", unix.IP_RECVERR, 1},
		{"IP_TTL", unix.IP_TTL, udpTTL},
		{"IP_MULTICAST_TTL", unix.IP_MULTICAST_TTL, udpTTL},
		{"IP_MULTICAST_ALL", unix.IP_MULTICAST_ALL, 0},
	}
	if w.addr.Is6() {
		family, level = unix.AF_INET6, unix.IPPROTO_IPV6
		options = []option{
			{"IPV6_V6ONLY", unix.IPV6_V6ONLY, 1},
			{"IPV6_MTU_DISCOVER", unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
			{"IPV6_DONTFRAG", unix.IPV6_DONTFRAG, 1},
			{"IPV6_RECVHOPLIMIT", unix.IPV6_RECVHOPLIMIT, 1},
			{"IPV6_RECVTCLASS", unix.IPV6_RECVTCLASS, 1},
			{"IPV6_RECVERR", unix.IPV6_RECVERR, 1},
			{"IPV6_UNICAST_HOPS", unix.IPV6_UNICAST_HOPS, udpTTL},
			{"IPV6_MULTICAST_HOPS", unix.IPV6_MULTICAST_HOPS, udpTTL},
			{"IPV6_AUTOFLOWLABEL", unix.IPV6_AUTOFLOWLABEL, 0},
			{"IPV6_MULTICAST_IF", unix.IPV6_MULTICAST_IF, w.info.IfIndex},
			{"IPV6_MULTICAST_ALL", unix.IPV6_MULTICAST_ALL, 0},
		}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, level, o.opt, o.value); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	what := "IP_MULTICAST_IF"
	if w.addr.Is4() {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Address: w.addr.As4(), Ifindex: int32(w.info.IfIndex)})
	} else { // rxe sends no UDP checksum, which the kernel would not take over IPv6
		what = "UDP_NO_CHECK6_RX"
		err = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", what, err)
	}
	return fd, nil
}

// sourceSocket makes a socket that only sends, from another port than RoCE's.
func (w *udp) sourceSocket(port uint16) (fd int, err error) {
	err = inNetNS(w.info.NetNS, func() error {
		if fd, err = w.socket(); err != nil {
			return err
		}
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, udpSockBuf)
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0) // the least there is: nobody reads
		if err := unix.Bind(fd, w.sockaddr(netip.AddrPortFrom(w.addr, port))); err != nil {
			unix.Close(fd)
			return fmt.Errorf("bind port %d: %w", port, err)
		}
		return nil
	})
	return fd, err
}

// describe finds the interface that has the address, or has it in a prefix that is all its own, as lo has 127/8.
func (w *udp) describe() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	var known []string
	index, zone := 0, w.addr.Zone()
	for _, x := range addrs {
		ip, _ := netip.AddrFromSlice(x.IP)
		bits, _ := x.Mask.Size()
		ip = ip.Unmap()
		known = append(known, ip.String())
		same := ip == w.addr.WithZone("") || w.addr.IsLoopback() && w.addr.Is4() && netip.PrefixFrom(ip, bits).Contains(w.addr)
		if !same || index != 0 && !w.addr.IsLoopback() && zone == "" {
			continue
		}
		l, err := h.LinkByIndex(x.LinkIndex)
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		if a := l.Attrs(); zone == "" || zone == a.Name {
			index, w.ifname = a.Index, a.Name
			w.info.MTU = min(a.MTU, udpMaxMTU)
		}
	}
	if index == 0 {
		return fmt.Errorf("%w with address %v%s; there are: %s", ErrNoDevice, w.addr, w.where(), strings.Join(known, ", "))
	}
	w.info.IfIndex, w.info.MaxFrame = index, w.info.MTU+headerBytes
	w.info.MAC = udpMAC(w.addr)
	if w.addr.Is4() {
		w.info.Addr4 = w.addr
	} else {
		w.info.Addr6 = w.addr.WithZone("")
	}
	return nil
}

// udpMAC is the Ethernet address that stands for an IP address on a medium that has none: locally administered,
// 02:00 and the IPv4 address, or 06: and five bytes that all sixteen of an IPv6 address went into; of a group what
// Ethernet would use.
func udpMAC(a netip.Addr) (m [6]byte) {
	if a.IsMulticast() {
		return proto.MulticastMAC(proto.GIDFromAddr(a))
	}
	if a.Is4() {
		b := a.As4()
		return [6]byte{2, 0, b[0], b[1], b[2], b[3]}
	}
	m[0] = 6
	for i, x := range a.As16() {
		m[1+(i+4)%5] ^= x // the last five bytes in order
	}
	return m
}

// Flush offers the committed frames to the kernel. Those it has no room for stay pending.
func (w *udp) Flush() error {
	if w.sendLone() {
		return nil
	}
	if err := w.err.get(); err != nil {
		return err
	}
	if n := w.tx.build(); n > 0 {
		w.stats.TxErrors += uint64(n)
		w.failed = fmt.Errorf("%w: %s: %s", ErrNotRoCE, w.info.Name, w.tx.unfit)
	}
	err := w.takeFailed()
	for w.tx.unsent() > 0 {
		frames, why := w.push()
		if frames > 0 {
			w.tries = 0
		}
		switch why {
		case nil, unix.EINTR:
			continue
		case unix.EAGAIN, unix.ENOBUFS: // the socket's buffer, the interface's queue: ENOBUFS comes with IP_RECVERR only
			return w.full(why == unix.ENOBUFS, err)
		case unix.EBADF, unix.ENOTSOCK, unix.ENOMEM, unix.EFAULT:
			return w.broken(why)
		}
		w.drainErrors() // a message that an ICMP error of an earlier one has stopped goes the next time
		if w.tries++; w.tries < udpTries {
			continue
		}
		w.tries = 0
		if (why == unix.EIO || why == unix.EINVAL) && w.tx.noGSO() {
			continue // this interface cannot
		}
		to, n := w.tx.skip()
		w.stats.TxErrors += uint64(n)
		err = fmt.Errorf("wire: %s: %d frames to %v: %w", w.info.Name, n, to, why)
	}
	return err
}

// udpTries is how often a message is tried that the kernel refuses: errors of earlier messages are told at the next
// one, each once.
const udpTries = 4

// drainErrors counts and forgets what other hosts said of our datagrams.
func (w *udp) drainErrors() {
	w.drainErrorsOf(w.fd)
	for _, p := range w.tx.ports {
		w.drainErrorsOf(p.fd)
	}
}

func (w *udp) drainErrorsOf(fd int) {
	for range 256 {
		icmp, ok := w.rx.nextError(fd)
		if !ok {
			return
		}
		if icmp {
			w.stats.TxUnreachable++
		}
	}
}

// Next receives with one call, and of groups with one for each.
func (w *udp) Next(frames []Frame) int {
	if w.fd < 0 {
		return 0
	}
	r := &w.rx
	if r.head == r.tail && w.source.ask <= 1 && len(frames) > 0 && w.groups.list.Load() == nil {
		return w.receiveLone(frames)
	}
	if r.restart(); r.held() < len(frames) {
		n, err := r.receive(&w.source)
		if n == 0 {
			w.idle(err)
		}
		if w.groups.list.Load() != nil {
			w.groups.receive(r)
		}
	}
	return r.next(frames)
}

// idle is what there is to do when nothing came.
func (w *udp) idle(err error) {
	if w.armed || err != nil && err != unix.EAGAIN {
		w.armed = false
		w.drainErrors()
	}
	w.look()
}

func (w *udp) Release(n int) {
	w.stats.RxFrames += uint64(n)
	bytes, cut := w.rx.release(n)
	w.stats.RxBytes += bytes
	w.stats.RxTruncated += cut
}

// FD is the socket, or with groups what joins all sockets.
func (w *udp) FD() int {
	w.armed = true
	return w.groups.arm(w.fd, w.Pending() > 0)
}

func (w *udp) Stats(s *Stats) {
	w.readDrops()
	*s = w.stats
}

// readDrops asks the sockets what they dropped for want of room.
func (w *udp) readDrops() {
	if w.fd < 0 {
		return
	}
	w.stats.RxRingDrops = uint64(socketDrops(w.fd)) + w.groups.drops()
}

func (w *udp) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.readDrops()
	if w.fd >= 0 && w.err.get() == nil {
		w.broken(ErrClosed)
	}
	w.groups.close()
	if w.fd < 0 {
		return nil
	}
	for _, p := range w.tx.ports {
		unix.Close(p.fd)
	}
	w.tx.ports = nil
	err := unix.Close(w.fd)
	w.fd = -1
	if err != nil {
		return fmt.Errorf("wire: close %s: %w", w.info.Name, err)
	}
	return nil
}

// Addrs gives the one address.
func (w *udp) Addrs() []netip.Addr { return []netip.Addr{w.addr.WithZone("")} }

// NextHop gives the MAC that stands for an address. The kernel finds the way; an address of the other family has none.
func (w *udp) NextHop(ctx context.Context, to netip.Addr) ([6]byte, error) {
	if err := ctx.Err(); err != nil {
		return [6]byte{}, err
	}
	if to = to.Unmap(); to.Is4() != w.addr.Is4() {
		return [6]byte{}, fmt.Errorf("wire: %s: no way to %v, an address of the other family: %w", w.info.Name, to, syscall.EHOSTUNREACH)
	}
	return udpMAC(to), nil
}

// HoldRoCE does nothing: the socket is the holder.
func (w *udp) HoldRoCE() error { return nil }
