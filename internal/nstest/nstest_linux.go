package nstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	insideVar = "BLUERING_NSTEST" // set in the process that Main starts
	namesDir  = "/run/netns"
)

var (
	errUnavailable = errors.New("TestMain does not call nstest.Main")
	names          atomic.Uint32
)

// Main runs the tests of a package in a process with own network and mount namespaces, and exits.
func Main(m *testing.M) {
	if os.Getenv(insideVar) != "" {
		errUnavailable = settle()
		os.Exit(m.Run())
	}
	code, err := again()
	if err == nil {
		os.Exit(code)
	}
	errUnavailable = err
	os.Exit(m.Run())
}

// again runs this binary in new namespaces and returns its exit code. An error means that it did not start.
func again() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // the parent's death is signalled when this thread ends
	defer runtime.UnlockOSThread()
	c := exec.Command(self, os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), insideVar+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	err = c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// settle prepares the new process's namespaces. Loopback comes first: the tests that need no more run without the rest.
func settle() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("tmpfs on /run: %w", err)
	}
	return os.Mkdir(namesDir, 0o755)
}

// Need skips the test where there are no namespaces.
func Need(t testing.TB) {
	t.Helper()
	if errUnavailable != nil {
		t.Skipf("needs netns: %v", errUnavailable)
	}
}

// Root skips the test where it is not root of the whole machine, as programs of the kernel (BPF) demand.
func Root(t testing.TB) {
	t.Helper()
	Need(t)
	ids, err := os.ReadFile("/proc/self/uid_map")
	if f := strings.Fields(string(ids)); err == nil && os.Geteuid() == 0 && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295" {
		return
	}
	t.Skip("needs root: of the whole machine")
}

// Namespace makes a named network namespace that lives until the test ends.
func Namespace(t testing.TB) string {
	t.Helper()
	Need(t)
	name := fmt.Sprintf("bt%d", names.Add(1))
	path := filepath.Join(namesDir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := elsewhere(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Unmount(path, unix.MNT_DETACH)
		os.Remove(path)
	})
	return name
}

// Forget removes the namespace's name. The kernel ends the namespace, and every interface in it, when nothing
// else holds it: no process, no open socket.
func Forget(t testing.TB, ns string) {
	t.Helper()
	path := filepath.Join(namesDir, ns)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Fatalf("forget namespace %q: %v", ns, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatalf("forget namespace %q: %v", ns, err)
	}
}

// Last watches an interface of the test's own namespace. The function it returns waits, at most 10 s, until the
// interface is deleted, and gives the counters that the kernel announced with that: its last.
func Last(t testing.TB, name string) func() Counters {
	t.Helper()
	Need(t)
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		t.Fatalf("watch %s: %v", name, err)
	}
	t.Cleanup(func() { close(done) })
	return func() Counters {
		t.Helper()
		timeout := time.After(10 * time.Second)
		for {
			select {
			case u, ok := <-updates:
				if !ok {
					t.Fatalf("watch %s: the kernel's news ended", name)
				}
				s := u.Link.Attrs().Statistics
				if u.Header.Type == unix.RTM_DELLINK && u.Link.Attrs().Name == name && s != nil {
					return Counters{s.TxPackets, s.TxBytes, s.TxDropped, s.RxPackets, s.RxBytes, s.RxDropped}
				}
			case <-timeout:
				t.Fatalf("%s was not deleted within 10 s", name)
			}
		}
	}
}

// Do runs f on a thread in the namespace; "" is the test's own. Processes that f starts are in it too.
// f must not call t.Fatal.
func Do(t testing.TB, ns string, f func() error) {
	t.Helper()
	if ns == "" {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		return
	}
	err := elsewhere(func() error {
		fd, err := unix.Open(filepath.Join(namesDir, ns), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
		unix.Close(fd)
		if err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatalf("in namespace %q: %v", ns, err)
	}
}

// elsewhere runs f on a thread that f may take to another network namespace. The thread comes back, or, if
// that is impossible, ends with its goroutine.
func elsewhere(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer unix.Close(home)
		err = f()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Link runs f with the interface's present state and a netlink handle of its namespace.
func Link(t testing.TB, ns, name string, f func(h *netlink.Handle, l netlink.Link) error) {
	t.Helper()
	Do(t, ns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return f(h, l)
	})
}

// Veth makes a veth pair: a in the test's own namespace, b in a new one. Both are up, have a carrier, and have
// never sent a frame: they have no IPv6. They vanish with the test.
func Veth(t testing.TB) (a, b, nsB string) { return VethQueues(t, 1) }

// VethQueues is Veth with that many receive and transmit queues at each end. The kernel brings what leaves by one to
// the one of the same number at the other end.
func VethQueues(t testing.TB, queues int) (a, b, nsB string) {
	t.Helper()
	nsB = Namespace(t)
	n := names.Add(1)
	a, b = fmt.Sprintf("va%d", n), fmt.Sprintf("vb%d", n)
	fd, err := os.Open(filepath.Join(namesDir, nsB))
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: b, PeerNamespace: netlink.NsFd(fd.Fd())}
	v.Name, v.NumTxQueues, v.NumRxQueues = a, queues, queues
	v.PeerNumTxQueues, v.PeerNumRxQueues = uint32(queues), uint32(queues)
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatalf("veth: %v", err)
	}
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(a); err == nil {
			netlink.LinkDel(l)
		}
	})
	Silence(t, "", a)
	Silence(t, nsB, b)
	Up(t, "", a)
	Up(t, nsB, b)
	Carrier(t, "", a)
	Carrier(t, nsB, b)
	return a, b, nsB
}

// Addresses of the ends of VethIPv4, of those that are for documentation (RFC 5737).
const Near4, Far4 = "192.0.2.1", "192.0.2.2"

// VethIPv4 is Veth whose ends have the addresses Near4 and Far4 and know each other for good, so that no frame passes
// but what the test sends.
func VethIPv4(t testing.TB) (a, b, nsB string) {
	t.Helper()
	a, b, nsB = Veth(t)
	mac := func(ns, name string) (m net.HardwareAddr) {
		Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error {
			m = l.Attrs().HardwareAddr
			return nil
		})
		return m
	}
	macA, macB := mac("", a), mac(nsB, b)
	for _, end := range []struct {
		ns, name, own, other string
		mac                  net.HardwareAddr
	}{{"", a, Near4, Far4, macB}, {nsB, b, Far4, Near4, macA}} {
		Link(t, end.ns, end.name, func(h *netlink.Handle, l netlink.Link) error {
			addr, err := netlink.ParseAddr(end.own + "/24")
			if err != nil {
				return err
			}
			if err := h.AddrAdd(l, addr); err != nil {
				return err
			}
			return h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.ParseIP(end.other), HardwareAddr: end.mac})
		})
	}
	return a, b, nsB
}

// Silence keeps the kernel from sending IPv6 frames of its own on an interface that is still down.
func Silence(t testing.TB, ns, name string) {
	t.Helper()
	Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil // a kernel without IPv6
		}
		if err != nil {
			return err
		}
		return h.LinkSetIP6AddrGenMode(l, 1) // IN6_ADDR_GEN_MODE_NONE
	})
}

// Up sets an interface up, Down down.
func Up(t testing.TB, ns, name string) {
	t.Helper()
	Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetUp(l) })
}

// Down sets an interface down.
func Down(t testing.TB, ns, name string) {
	t.Helper()
	Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetDown(l) })
}

// Delete removes an interface, and with a veth its peer.
func Delete(t testing.TB, ns, name string) {
	t.Helper()
	Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error { return h.LinkDel(l) })
}

// Carrier waits until an interface is operational. The kernel gets there by a worker of its own.
func Carrier(t testing.TB, ns, name string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		up := false
		Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error {
			up = l.Attrs().OperState == netlink.OperUp
			return nil
		})
		if up {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no carrier after 10 s", name)
		}
		runtime.Gosched()
	}
}

// Counters are the kernel's own of one interface.
type Counters struct {
	TxFrames, TxBytes, TxDropped uint64
	RxFrames, RxBytes, RxDropped uint64
}

// Sub returns what was counted since the earlier reading.
func (c Counters) Sub(earlier Counters) Counters {
	return Counters{
		c.TxFrames - earlier.TxFrames, c.TxBytes - earlier.TxBytes, c.TxDropped - earlier.TxDropped,
		c.RxFrames - earlier.RxFrames, c.RxBytes - earlier.RxBytes, c.RxDropped - earlier.RxDropped,
	}
}

// Count reads the kernel's counters.
func Count(t testing.TB, ns, name string) (c Counters) {
	t.Helper()
	Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error {
		s := l.Attrs().Statistics
		if s == nil {
			return fmt.Errorf("%s has no statistics", name)
		}
		c = Counters{s.TxPackets, s.TxBytes, s.TxDropped, s.RxPackets, s.RxBytes, s.RxDropped}
		return nil
	})
	return c
}

// Find gives a program's path, and skips the test where the machine has none.
func Find(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil {
		t.Skipf("needs %s: %v", filepath.Base(program), err)
	}
	return path
}

// Judges skips the test where a program that judges captures is missing: tshark, or scapy for /usr/bin/python3.
func Judges(t testing.TB) {
	t.Helper()
	Find(t, "tshark")
	if _, err := os.Stat("/usr/lib/python3/dist-packages/scapy"); err != nil {
		t.Skipf("needs scapy: %v", err)
	}
}

// Run runs a command in the namespace and returns what it printed. A missing program skips the test.
func Run(t testing.TB, ns, program string, args ...string) string {
	t.Helper()
	path := Find(t, program)
	var out []byte
	Do(t, ns, func() (err error) {
		if out, err = exec.Command(path, args...).CombinedOutput(); err != nil {
			err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
		}
		return err
	})
	return string(out)
}

// NoOffload turns checksum and segmentation offload of the sender off, without which a veth delivers whatever
// the checksum field holds.
func NoOffload(t testing.TB, ns, name string) {
	t.Helper()
	Run(t, ns, "ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off")
}
