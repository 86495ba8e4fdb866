package main

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
	"github.com/bluering/bluering/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// refused runs pktgen with ports looked up for real and returns its one line.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	w := newWorld()
	w.facts = traffic.Facts
	if code := w.execute(args); code != cli.Usage || w.out.Len() > 0 || w.ran {
		t.Errorf("%v: exit code %d, stdout %q, ran %v", args, code, w.out.String(), w.ran)
	}
	line := w.err.String()
	if strings.Count(line, "\n") != 1 {
		t.Errorf("%v: not one line: %q", args, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func TestMissingInterfaceNamesThoseThatExist(t *testing.T) {
	a, _, ns := nstest.Veth(t)
	for _, command := range []string{"tx", "plan"} {
		got := refused(t, command, "packet:nope0")
		if !strings.HasPrefix(got, `pktgen: port "packet:nope0": no interface "nope0"; use one of `) || !strings.Contains(got, a) {
			t.Errorf("%s: %s", command, got)
		}
	}
	if got := refused(t, "tx", "packet:"+a, "--rx", "packet:nope0?netns="+ns); !strings.Contains(got, `no interface "nope0"`) {
		t.Error(got)
	}
	if got := refused(t, "tx", "packet:"+a+"?netns=nowhere"); !strings.Contains(got, `cannot enter namespace "nowhere"`) {
		t.Error(got)
	}
}

func TestDefaultRouteInterfaceIsRefused(t *testing.T) {
	a, _, _ := nstest.Veth(t)
	nstest.Link(t, "", a, func(h *netlink.Handle, l netlink.Link) error {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(198, 18, 0, 1), Mask: net.CIDRMask(15, 32)}}
		if err := h.AddrAdd(l, addr); err != nil {
			return err
		}
		return h.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.IPv4(198, 18, 0, 9)})
	})
	want := `pktgen: port "packet:` + a + `": ` + a + ` carries the default route; use another interface, or --allow-mgmt if losing this machine's network is acceptable`
	for _, command := range []string{"tx", "rx", "plan"} {
		if got := refused(t, command, "packet:"+a); got != want {
			t.Errorf("%s:\n got %s\nwant %s", command, got, want)
		}
	}
	if got := refused(t, "tx", "loop:", "--rx", "packet:"+a); got != want {
		t.Errorf("--rx:\n got %s\nwant %s", got, want)
	}
}

func TestDestinationMACComesFromTheNeighbourTable(t *testing.T) {
	a, _, _ := nstest.Veth(t)
	got := refused(t, "plan", "packet:"+a)
	if want := `pktgen: dmac: packet:` + a + ` has no neighbour entry for 198.18.0.2; use --dmac MAC, --rx PORT, or ping it first`; got != want {
		t.Errorf("without an entry:\n got %s\nwant %s", got, want)
	}
	nstest.Link(t, "", a, func(h *netlink.Handle, l netlink.Link) error {
		return h.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.IPv4(198, 18, 0, 2),
			HardwareAddr: net.HardwareAddr{2, 0xaa, 0, 0, 0, 2},
		})
	})
	w := newWorld()
	w.facts = traffic.Facts
	if code := w.execute([]string{"plan", "packet:" + a}); code != 0 || !strings.Contains(w.out.String(), "dmac 02:aa:00:00:00:02") {
		t.Errorf("exit code %d: %s%s", code, w.err.String(), w.out.String())
	}
}

func TestListShowsInterfaces(t *testing.T) {
	a, _, _ := nstest.Veth(t)
	w := newWorld()
	if code := w.execute([]string{"list"}); code != 0 || !strings.Contains(w.out.String(), "packet:"+a) || !strings.Contains(w.out.String(), "veth") {
		t.Errorf("exit code %d: %s", code, w.out.String())
	}
}
