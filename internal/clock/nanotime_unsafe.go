package clock

import _ "unsafe" // for go:linkname

// nanotime is the runtime's monotonic clock: on Linux CLOCK_MONOTONIC through
// the vDSO, with its epoch, without a system call and without an allocation.
// The runtime keeps this name reachable for packages outside it.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64
