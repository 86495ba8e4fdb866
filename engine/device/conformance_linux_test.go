package device_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/internal/nstest"
)

// TestConformanceOverAWire judges the software NIC over Linux interfaces, by the suite that judges it over loop:, but
// for what only a wire of ours can be made to do.
func TestConformanceOverAWire(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	address(t, "", a, "198.18.0.1/24")
	address(t, ns, b, "198.18.0.2/24")
	suite := filepath.Join(t.TempDir(), "conformance.test")
	if out, err := exec.Command("go", "test", "-c", "-o", suite, "../conformance").CombinedOutput(); err != nil {
		t.Fatalf("the suite does not build: %v\n%s", err, out)
	}
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
