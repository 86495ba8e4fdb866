package conformance

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutNetRaw runs f on a thread of its own that has no CAP_NET_RAW.
func withoutNetRaw(t *testing.T, f func()) {
	done := make(chan error, 1)
	go func() {
		ended := false
		defer func() {
			if !ended {
				close(done) // f ended the goroutine by Fatal
			}
		}()
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var d [2]unix.CapUserData
		err := unix.Capget(&h, &d[0])
		if err == nil {
			d[0].Effective &^= 1 << unix.CAP_NET_RAW
			err = unix.Capset(&h, &d[0])
		}
		if err == nil {
			f()
		}
		ended = true
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
