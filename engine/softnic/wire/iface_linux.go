package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// carrierWait is how long an interface that was just set up may take to find its carrier.
	carrierWait = 2 * time.Second
	// healthEvery bounds how often an idle wire asks after its interface.
	healthEvery = int64(100 * time.Millisecond)
)

// iface is the kernel's interface that a wire stands on.
type iface struct {
	ifname string
	info   Info
	fd     int // a socket of the interface's namespace, for questions
	net    ifaceNet
	// carrierReturns: a lost carrier is no error, since the wire's sockets outlive it.
	carrierReturns bool
}

// inNetNS runs f on a thread in that namespace. The thread comes back, or is never used again.
func inNetNS(name string, f func() error) error {
	if name == "" {
		return f()
	}
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join("/run/netns", name)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		back, err := enterNetNS(path, f)
		if back {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func enterNetNS(path string, f func() error) (back bool, err error) {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, fmt.Errorf("own network namespace: %w", err)
	}
	defer unix.Close(home)
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, fmt.Errorf("network namespace %s: %w", path, err)
	}
	err = unix.Setns(there, unix.CLONE_NEWNET)
	unix.Close(there)
	switch {
	case errors.Is(err, unix.EPERM):
		return true, fmt.Errorf("network namespace %s: no privilege to enter it: %w; run as root, or: %s", path, err, setcapLine("cap_net_raw,cap_sys_admin"))
	case err != nil:
		return true, fmt.Errorf("network namespace %s: %w", path, err)
	}
	err = f()
	return unix.Setns(home, unix.CLONE_NEWNET) == nil, err
}

// setcapLine is the command that gives this program what it lacks.
func setcapLine(caps string) string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return "setcap " + caps + "+ep " + self
}

// describe fills the info from netlink: sysfs may show another namespace.
func (w *iface) describe() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	l, err := h.LinkByName(w.ifname)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return fmt.Errorf("%w %q%s; there are: %s", ErrNoDevice, w.ifname, w.where(), linkNames(h))
	}
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	a := l.Attrs()
	if a.EncapType != "ether" && a.EncapType != "loopback" {
		return fmt.Errorf("%w %q of Ethernet frames: it is %s", ErrNoDevice, w.ifname, a.EncapType)
	}
	w.info.IfIndex, w.info.MTU = a.Index, min(a.MTU, maxFrameLen-headerBytes-vlanTagBytes)
	w.info.MaxFrame = w.info.MTU + headerBytes + vlanTagBytes
	copy(w.info.MAC[:], a.HardwareAddr)
	addrs, err := h.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	all := make([]netip.Addr, len(addrs))
	for i, x := range addrs {
		ip, _ := netip.AddrFromSlice(x.IP)
		all[i] = ip.Unmap()
		switch ip = ip.Unmap(); {
		case ip.Is4() && !w.info.Addr4.IsValid():
			w.info.Addr4 = ip
		case ip.Is6() && (!w.info.Addr6.IsValid() || w.info.Addr6.IsLinkLocalUnicast()):
			w.info.Addr6 = ip
		}
	}
	w.net.learn(w.info.Addr4, w.info.Addr6, all)
	return nil
}

func (w *iface) where() string {
	if w.info.NetNS == "" {
		return ""
	}
	return " in network namespace " + w.info.NetNS
}

func linkNames(h *netlink.Handle) string {
	links, err := h.LinkList()
	if err != nil {
		return err.Error()
	}
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Attrs().Name
	}
	return strings.Join(names, ", ")
}

// awaitCarrier refuses an interface that is down, and gives one that is up some time, at most the context's.
func (w *iface) awaitCarrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, carrierWait)
	defer cancel()
	for {
		err := w.linkState()
		if !errors.Is(err, ErrNoCarrier) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// linkState asks the kernel after the interface.
func (w *iface) linkState() error {
	r, err := unix.NewIfreq(w.ifname)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(w.fd, unix.SIOCGIFFLAGS, r); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return ErrVanished
		}
		return fmt.Errorf("interface flags: %w", err)
	}
	switch flags := r.Uint16(); {
	case flags&unix.IFF_UP == 0:
		return ErrDown
	case flags&unix.IFF_RUNNING == 0 && !w.carrierReturns:
		return ErrNoCarrier
	}
	return nil
}

// lost makes the error of a wire whose interface failed it: the state the interface is in says more than the number.
func (w *iface) lost(why error) error {
	if why == unix.ENETDOWN || why == unix.ENXIO || why == unix.ENODEV {
		state := w.linkState()
		if state == nil {
			state = ErrDown // it was
		}
		why = fmt.Errorf("%w (%w)", state, why)
	}
	if strings.HasPrefix(why.Error(), "wire: ") { // an error of this package has said that
		return fmt.Errorf("%w: %s%s", why, w.info.Name, w.where())
	}
	return fmt.Errorf("wire: %s%s: %w", w.info.Name, w.where(), why)
}
