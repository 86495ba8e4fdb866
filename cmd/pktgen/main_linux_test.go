package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/internal/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

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

// TestPipesByNameAreRefused: nobody may be reading them.
func TestPipesByNameAreRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, flag := range []string{"report", "hdr"} {
		want := `pktgen: ` + flag + ` "` + pipe + `": is a pipe, a socket or a disk; use a file name, /dev/null or /dev/stdout`
		if got := refused(t, "tx", "loop:", "--"+flag, pipe); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	for _, args := range []string{"--tap " + pipe, "--rx loop: --tap " + pipe} {
		code, _, stderr := pktgen(append([]string{"tx", "loop:", "-n", "1"}, strings.Fields(args)...)...)
		if code != cli.Usage || !strings.Contains(stderr, "is a pipe") {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}

// TestFullDisks: the run fails, and says once what could not be written and why.
func TestFullDisks(t *testing.T) {
	for args, want := range map[string]string{
		"tx loop: --rx loop: -n 1 --report /dev/full":  "pktgen: write report /dev/full: no space left on device\n",
		"tx loop: --rx loop: -n 1 --hdr /dev/full":     "pktgen: write hdr /dev/full: no space left on device\n",
		"tx loop: --rx loop: -n 1 --tap /dev/full":     "pktgen: write /dev/full: no space left on device\n",
		"tx loop: --rx loop: -n 50000 --tap /dev/full": "pktgen: recording of loop:: write /dev/full: no space left on device\n",
		"tx pcap:/dev/full -n 50000":                   "pktgen: run ended early: port \"pcap:/dev/full\": no space left on device\n",
	} {
		if code, _, stderr := pktgen(append(strings.Fields(args), "-i", "0", "-o", "none")...); code != cli.Failed || !strings.HasSuffix(stderr, "\n"+want) {
			t.Errorf("%s: exit code %d: %s, want %s", args, code, stderr, want)
		}
	}
}

// TestOpenFilesAreWrittenInPlace: /dev/stdout is often a link to a file, and stays one, as any other link.
func TestOpenFilesAreWrittenInPlace(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "out"), filepath.Join(dir, "link")
	f := must(os.Create(file))
	defer f.Close()
	if _, err := f.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := pktgen("tx", "loop:", "--rx", "loop:", "-n", "1", "-i", "0", "--report", fmt.Sprintf("/dev/fd/%d", f.Fd())); code != 0 {
		t.Fatal(stderr)
	}
	if got := string(must(os.ReadFile(file))); !strings.HasPrefix(got, "before\n{") || !strings.HasSuffix(got, "}\n") {
		t.Errorf("%.200s", got)
	}
	if err := os.Symlink("out", link); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := pktgen("tx", "loop:", "--rx", "loop:", "-n", "1", "-i", "0", "--report", link); code != 0 {
		t.Fatal(stderr)
	}
	info := must(os.Lstat(link))
	if got := string(must(os.ReadFile(file))); info.Mode()&os.ModeSymlink == 0 || !strings.HasPrefix(got, "{") {
		t.Errorf("the link is %v: %.200s", info.Mode(), got)
	}
	if left := must(os.ReadDir(dir)); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
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
	want = `pktgen: port "udp:198.18.0.1": ` + a + `, which has that address, carries the default route; use another address, or --allow-mgmt if losing this machine's network is acceptable`
	if got := refused(t, "tx", "udp:198.18.0.1", "--proto", "roce-ud", "--qpn", "17", "-s", "86", "--dst", "198.18.0.2"); got != want {
		t.Errorf("udp:\n got %s\nwant %s", got, want)
	}
}

func TestTheKernelsLoopbackNeedsNoNeighbour(t *testing.T) {
	nstest.Need(t)
	code, out, stderr := pktgen("tx", "packet:lo", "--rx", "packet:lo", "-n", "10", "-i", "0", "--assert", "loss==0")
	if code != 0 || !strings.Contains(out, "sent 10  received 10  lost 0") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
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
