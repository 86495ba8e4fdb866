//go:build !amd64 || purego

package clock

// readTSC stands in for the counter where there is no assembly: one tick is one
// nanosecond of the monotonic clock. System does not use it (invariantTSC says
// no); the tests run the segments' arithmetic on it.
func readTSC() uint64 { return uint64(nanotime()) }

func invariantTSC() bool { return false }
