package traffic

import "golang.org/x/sys/unix"

// involuntarySwitches is how often the process's threads lost their processor.
func involuntarySwitches() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return uint64(u.Nivcsw)
}
