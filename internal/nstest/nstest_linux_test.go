package nstest

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestVethIsSilentAndSeparate(t *testing.T) {
	a, b, ns := Veth(t)
	if c := Count(t, "", a); c != (Counters{}) {
		t.Errorf("%s: %+v before anything was sent", a, c)
	}
	if c := Count(t, ns, b); c != (Counters{}) {
		t.Errorf("%s: %+v before anything was sent", b, c)
	}
	if out := Run(t, "", "ip", "-o", "link"); strings.Contains(out, b) || !strings.Contains(out, a) || strings.Contains(out, "eth0") {
		t.Errorf("own namespace: %s", out)
	}
	if out := Run(t, ns, "ip", "-o", "link"); strings.Contains(out, a+":") || !strings.Contains(out, b) {
		t.Errorf("namespace %s: %s", ns, out)
	}
}

func TestNamespacesVanishWithTheTest(t *testing.T) {
	var ns string
	t.Run("inner", func(t *testing.T) { ns = Namespace(t) })
	if _, err := os.Stat("/run/netns/" + ns); ns != "" && !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", ns, err)
	}
}
