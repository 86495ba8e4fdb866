//go:build !linux

package traffic

// involuntarySwitches is not known here.
func involuntarySwitches() uint64 { return 0 }
