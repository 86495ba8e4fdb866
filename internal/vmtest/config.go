package vmtest

import (
	"os"
	"testing"
)

const wantedVar = "BLUERING_VM"

// The addresses of the two ends of the machine's eth0: 192.0.2.0/24 is for
// documentation (RFC 5737), fd00::/8 for private use (RFC 4193).
const (
	HostAddr4, GuestAddr4 = "192.0.2.1", "192.0.2.2"
	HostAddr6, GuestAddr6 = "fd00:b1::1", "fd00:b1::2"
)

// Config says what a machine has.
type Config struct {
	Tap bool // eth0 with both guest addresses, wired to a tap in the test's namespace
	RXE bool // kernel rxe as rxe0 on eth0; needs Tap
}

// Need skips the test where no machine is wanted or can be.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(wantedVar) == "" {
		t.Skipf("boots a virtual machine: only where %s is set, as by make vm", wantedVar)
	}
	if err := unavailable(); err != nil {
		t.Skipf("needs vm: %v", err)
	}
}
