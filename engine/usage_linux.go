package engine

import "golang.org/x/sys/unix"

// threadSwitches gives how often the calling thread slept, and how often the
// kernel took the processor away from it, since it began. The caller is locked
// to its thread.
func threadSwitches() (voluntary, involuntary uint64) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0, 0
	}
	return uint64(u.Nvcsw), uint64(u.Nivcsw)
}
