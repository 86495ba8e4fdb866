package vmtest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/nstest"
)

const step = time.Minute // for what takes less than a second

// The MACs of the two ends of the machine's eth0.
const hostMAC, guestMAC = "02:b1:00:00:00:01", "02:b1:00:00:00:02"

// setUp gives the machine its addresses and its RDMA device.
func (m *Machine) setUp(t testing.TB, c Config) {
	t.Helper()
	m.Run(t, step, "ip", "link", "set", "lo", "up")
	if !c.Tap {
		return
	}
	m.Run(t, step, "ip", "link", "set", "eth0", "up")
	m.Run(t, step, "ip", "addr", "add", GuestAddr4+"/24", "dev", "eth0")
	m.Run(t, step, "ip", "addr", "add", GuestAddr6+"/64", "dev", "eth0", "nodad")
	for _, a := range []string{HostAddr4, HostAddr6} {
		m.Run(t, step, "busybox", "ping", "-c", "1", "-W", "30", a)
	}
	m.settle(t)
	if c.RXE {
		m.Run(t, step, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
		m.GIDIndex(t, "rxe0", GuestAddr4)
		m.GIDIndex(t, "rxe0", GuestAddr6)
	}
}

// settle makes the neighbours of both ends permanent, now that they have found each other. Datagrams confirm no neighbour,
// so that the kernels would ask again all the time, over IPv6 at least, where no TCP does it for them; and where a busy
// machine does not answer three times, a datagram is lost that the C programs wait for in vain.
func (m *Machine) settle(t testing.TB) {
	t.Helper()
	for _, a := range [][2]string{{HostAddr4, GuestAddr4}, {HostAddr6, GuestAddr6}} {
		m.Run(t, step, "ip", "neigh", "replace", a[0], "lladdr", hostMAC, "dev", "eth0", "nud", "permanent")
		nstest.Run(t, "", "ip", "neigh", "replace", a[1], "lladdr", guestMAC, "dev", m.Tap, "nud", "permanent")
	}
}

// GIDIndex finds the index of an address in the GID table of an RDMA device of
// the machine. The kernel fills the table a little after the device comes up,
// and leaves it as it is then.
func (m *Machine) GIDIndex(t testing.TB, device, addr string) int {
	t.Helper()
	m.mu.Lock()
	index, known := m.gids[device+addr]
	m.mu.Unlock()
	if known {
		return index
	}
	a := netip.MustParseAddr(addr).As16()
	var want []string
	for i := 0; i < 16; i += 2 {
		want = append(want, fmt.Sprintf("%02x%02x", a[i], a[i+1]))
	}
	gid := strings.Join(want, ":")
	script := fmt.Sprintf(`cd /sys/class/infiniband/%s/ports/1/gids || exit 1
		for try in $(seq 100); do grep -lx %s * && exit; sleep 0.1; done; exit 1`, device, gid)
	index, err := strconv.Atoi(strings.TrimSpace(m.Run(t, step, "sh", "-c", script)))
	if err != nil {
		t.Fatalf("vmtest: GID %s of %s: %v", gid, device, err)
	}
	m.mu.Lock()
	m.gids[device+addr] = index
	m.mu.Unlock()
	return index
}

// RXECounters reads the counters of an RDMA device of the machine.
func (m *Machine) RXECounters(t testing.TB, device string) map[string]uint64 {
	t.Helper()
	counters, err := m.rxeCounters(device)
	if err != nil {
		t.Fatalf("vmtest: counters of %s: %v", device, err)
	}
	return counters
}

func (m *Machine) rxeCounters(device string) (map[string]uint64, error) {
	out, exit, err := m.Spawn(step, "sh", "-c", "cd /sys/class/infiniband/"+device+"/ports/1/hw_counters && grep . *").Wait()
	if exit != 0 || err != nil {
		return nil, fmt.Errorf("exit %d, %w: %s", exit, err, out)
	}
	counters := map[string]uint64{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		counters[name] = n
	}
	return counters, nil
}
