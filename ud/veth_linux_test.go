package ud

import (
	"testing"

	"github.com/bluering/bluering/internal/nstest"
)

// veth makes a veth pair and gives the two devices.
func veth(t testing.TB) (a, b string) {
	t.Helper()
	near, far, ns := nstest.VethIPv4(t)
	return "packet:" + near, "packet:" + far + "?netns=" + ns
}
