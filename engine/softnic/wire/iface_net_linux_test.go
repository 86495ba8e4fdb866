package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/internal/proto"
)

// twoHosts makes a veth pair with an IPv4 and an IPv6 address at each end: a has .1, b has .2.
func twoHosts(t *testing.T) (a, b, ns string) {
	t.Helper()
	a, b, ns = nstest.Veth(t)
	for i, e := range []struct{ ns, name string }{{"", a}, {ns, b}} {
		addresses(t, e.ns, e.name, fmt.Sprintf("192.0.2.%d/24", i+1), fmt.Sprintf("2001:db8::%d/64", i+1))
	}
	return a, b, ns
}

func addresses(t *testing.T, ns, name string, list ...string) {
	t.Helper()
	nstest.Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("0"), 0); err != nil {
			return err
		}
		for _, s := range list {
			addr, err := netlink.ParseAddr(s)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := h.AddrAdd(l, addr); err != nil {
				return err
			}
		}
		return nil
	})
}

func linkMAC(t *testing.T, ns, name string) (mac [6]byte) {
	t.Helper()
	nstest.Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error {
		copy(mac[:], l.Attrs().HardwareAddr)
		return nil
	})
	return mac
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestTheKernelKnowsTheNextHop(t *testing.T) {
	nstest.Need(t)
	a, b, ns := twoHosts(t)
	w, err := OpenPacket(a, PacketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	nstest.Link(t, "", a, func(h *netlink.Handle, l netlink.Link) error {
		_, far, _ := net.ParseCIDR("198.51.100.0/24")
		return h.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: far, Gw: net.IPv4(192, 0, 2, 2)})
	})
	nextHops(t, NetworkOf(w), linkMAC(t, ns, b), "192.0.2.2", "2001:db8::2", "198.51.100.9", "192.0.2.2")
	n := NetworkOf(w)
	want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	if got := n.Addrs(); !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	_, err = n.NextHop(within(t, 50*time.Millisecond), netip.MustParseAddr("192.0.2.77"))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "192.0.2.77") {
		t.Errorf("nobody: %v", err)
	}
	if _, err = n.NextHop(within(t, -1), netip.MustParseAddr("192.0.2.78")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at once: %v", err)
	}
	addresses(t, "", "lo", "192.0.2.200/32")
	defer nstest.Link(t, "", "lo", func(h *netlink.Handle, l netlink.Link) error { // which stays, and -count comes here again
		addr, err := netlink.ParseAddr("192.0.2.200/32")
		if err != nil {
			return err
		}
		return h.AddrDel(l, addr)
	})
	if _, err = n.NextHop(context.Background(), netip.MustParseAddr("192.0.2.200")); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("an address of this host: %v", err)
	}
}

// nextHops wants that MAC for each address.
func nextHops(t *testing.T, n Network, mac [6]byte, to ...string) {
	t.Helper()
	for _, s := range to {
		got, err := n.NextHop(within(t, 10*time.Second), netip.MustParseAddr(s))
		if err != nil || got != mac {
			t.Errorf("%s: %x, %v; want %x", s, got, err, mac)
		}
	}
}

// The kernel gives up after three seconds, and so does NextHop without a deadline of its own.
func TestNobodyAnswers(t *testing.T) {
	nstest.Need(t)
	a, _, _ := twoHosts(t)
	for name, value := range map[string]string{"mcast_solicit": "1", "retrans_time_ms": "100"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/neigh/"+a+"/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	w, err := OpenPacket(a, PacketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = NetworkOf(w).NextHop(context.Background(), netip.MustParseAddr("192.0.2.77"))
	if !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("%v", err)
	}
}

// snmp reads one of the kernel's counters of the test's own namespace.
func snmp(t *testing.T, table, name string) (value int) {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != table+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		if _, err := fmt.Sscan(f[slices.Index(names, name)], &value); err != nil {
			t.Fatal(err)
		}
	}
	return value
}

func TestTheHostDoesNotAnswerForTheRoCEPort(t *testing.T) {
	nstest.Need(t)
	a, _, ns := twoHosts(t)
	w, err := OpenPacket(a, PacketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	knock := func() {
		nstest.Do(t, ns, func() error {
			c, err := net.Dial("udp4", fmt.Sprintf("192.0.2.1:%d", proto.RoCEPort))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("hello"))
			return err
		})
	}
	until := func(name string, value int) {
		for deadline := time.Now().Add(10 * time.Second); snmp(t, "Udp", name) != value; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("Udp %s is %d, want %d", name, snmp(t, "Udp", name), value)
			}
		}
	}
	answers, noPorts, errs := snmp(t, "Icmp", "OutDestUnreachs"), snmp(t, "Udp", "NoPorts"), snmp(t, "Udp", "InErrors")
	knock() // as long as nobody holds the port, it answers
	until("NoPorts", noPorts+1)
	if got := snmp(t, "Icmp", "OutDestUnreachs"); got != answers+1 {
		t.Fatalf("%d answers without a holder, want 1", got-answers)
	}
	if err := NetworkOf(w).HoldRoCE(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		knock()
	}
	until("InErrors", errs+5) // what the holder's filter refuses
	if got := snmp(t, "Icmp", "OutDestUnreachs"); got != answers+1 {
		t.Errorf("%d answers with a holder", got-answers-1)
	}
	other, err := OpenUDP("127.0.0.1", UDPOptions{})
	if err != nil {
		t.Errorf("the port of another address is taken: %v", err)
	} else {
		other.Close()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	knock()
	until("NoPorts", noPorts+2)
}

func TestTheHostJoinsGroups(t *testing.T) {
	nstest.Need(t)
	a, _, _ := twoHosts(t)
	w, err := OpenPacket(a, PacketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n := NetworkOf(w)
	joined := func() (set map[string]bool) {
		i, err := net.InterfaceByName(a)
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := i.MulticastAddrs()
		if err != nil {
			t.Fatal(err)
		}
		set = map[string]bool{}
		for _, m := range addrs {
			set[m.(*net.IPAddr).IP.String()] = true
		}
		return set
	}
	var all []netip.Addr
	for i := range 50 { // more than a socket's memberships
		all = append(all, netip.AddrFrom4([4]byte{239, 1, 2, byte(i)}))
	}
	all = append(all, netip.MustParseAddr("ff1e::77"))
	for _, g := range all {
		for range 2 { // the second time changes nothing
			if err := n.Join(g); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, g := range all {
		if !joined()[g.String()] {
			t.Errorf("%v is not joined", g)
		}
	}
	for _, g := range all {
		if err := n.Leave(g); err != nil {
			t.Fatal(err)
		}
		if joined()[g.String()] {
			t.Errorf("%v is not left", g)
		}
	}
	if err := n.Leave(all[0]); err != nil {
		t.Error(err)
	}
	if err := n.Join(all[0]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || joined()[all[0].String()] {
		t.Errorf("still joined, %v", err)
	}
	if err := n.Join(netip.MustParseAddr("192.0.2.9")); err != nil {
		t.Errorf("a closed wire: %v", err)
	}
}

// Both hosts are behind AF_XDP, and each asks for the other.
func TestTheKernelIsAskedPastXDP(t *testing.T) {
	nstest.Root(t)
	a, b, ns := twoHosts(t)
	wa, err := OpenXDP(a, XDPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer wa.Close()
	wb, err := OpenXDP(b, XDPOptions{NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer wb.Close()
	_, err = NetworkOf(wa).NextHop(within(t, 50*time.Millisecond), netip.MustParseAddr("192.0.2.2"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("b answers though its kernel sees nothing: %v", err) // it takes all frames, as for raw ones alone
	}
	if err := NetworkOf(wb).HoldRoCE(); err != nil {
		t.Fatal(err)
	}
	nextHops(t, NetworkOf(wa), linkMAC(t, ns, b), "192.0.2.2", "2001:db8::2")
	nextHops(t, NetworkOf(wb), linkMAC(t, "", a), "192.0.2.1", "2001:db8::1")
}
