//go:build !linux && amd64 && !purego

package clock

func kernelTrustsTSC() bool { return true }
