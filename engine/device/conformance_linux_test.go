package device_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/internal/nstest"
)

// suiteVar has the path of the built suite, for the process in the namespaces, where the go command reaches nobody.
const suiteVar = "BLUERING_CONFORMANCE"

func TestMain(m *testing.M) {
	flag.Parse()
	run := flag.Lookup("test.run").Value.String()
	inside := os.Getenv("BLUERING_NSTEST") != "" // there everybody is root
	if os.Getenv(suiteVar) == "" && !inside && os.Geteuid() == 0 && (run == "" || strings.Contains(run, "Conformance")) {
		if err := buildSuite(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	nstest.Main(m)
}

func buildSuite() error {
	dir, err := os.MkdirTemp("", "bluering-conformance-")
	if err != nil {
		return err
	}
	suite := filepath.Join(dir, "conformance.test")
	if out, err := exec.Command("go", "test", "-c", "-o", suite, "../conformance").CombinedOutput(); err != nil {
		return fmt.Errorf("build the conformance suite: %w\n%s", err, out)
	}
	return os.Setenv(suiteVar, suite)
}

// TestConformanceOverAWire judges the software NIC over Linux interfaces, by the suite that judges it over loop:, but
// for what only a wire of ours can be made to do.
func TestConformanceOverAWire(t *testing.T) {
	suite := os.Getenv(suiteVar)
	if suite == "" {
		t.Skip("needs root: the suite is not built for an ordinary user, whose go command may know no module yet")
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(suite)) })
	a, b, ns := nstest.Veth(t)
	address(t, "", a, "198.18.0.1/24")
	address(t, ns, b, "198.18.0.2/24")
	c := exec.Command(suite, "-test.run", "TestConformance/[A-DGHI]", "-test.timeout", "2m", "-profile", "strict",
		"-device", "packet:"+a, "-peer", "packet:"+b+"?netns="+ns)
	c.Dir = "../conformance"
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func address(t *testing.T, ns, name, prefix string) {
	t.Helper()
	nstest.Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error {
		addr, err := netlink.ParseAddr(prefix)
		if err != nil {
			return err
		}
		return h.AddrAdd(l, addr)
	})
}
