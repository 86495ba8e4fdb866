//go:build amd64 && !purego

package clock

// readTSC reads the time stamp counter after all earlier loads are done
// (LFENCE, then RDTSC, as the Linux vDSO does).
//
//go:noescape
func readTSC() uint64

// cpuid executes CPUID.
//
//go:noescape
func cpuid(leaf, sub uint32) (eax, ebx, ecx, edx uint32)

// invariantTSC reports whether the counter runs at one rate in all power
// states: CPUID leaf 0x80000007, EDX bit 8 (Intel SDM volume 3, "Invariant
// TSC"; AMD APM volume 3, appendix E). The cpuid module does not decode this
// bit. The kernel's own verdict, the clock source it chose, comes on top: on a
// machine whose sockets disagree it falls back from the counter, and so do we.
func invariantTSC() bool {
	const extended, power = 0x80000000, 0x80000007
	if top, _, _, _ := cpuid(extended, 0); top < power {
		return false
	}
	_, _, _, edx := cpuid(power, 0)
	return edx&(1<<8) != 0 && kernelTrustsTSC()
}
