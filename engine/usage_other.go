//go:build !linux

package engine

// threadSwitches is known on Linux only.
func threadSwitches() (voluntary, involuntary uint64) { return 0, 0 }
