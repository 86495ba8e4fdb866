//go:build linux && amd64 && !purego

package clock

import (
	"os"
	"strings"
)

// kernelTrustsTSC reports whether the kernel's clock source is the counter, or
// a hypervisor's page built on it. A file that cannot be read does not object.
func kernelTrustsTSC() bool {
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return true
	}
	switch strings.TrimSpace(string(b)) {
	case "tsc", "kvm-clock", "hyperv_clocksource_tsc_page":
		return true
	}
	return false
}
