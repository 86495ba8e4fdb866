package conformance

import (
	"testing"

	"golang.org/x/sys/unix"
)

const pollable = true

// readable waits until a descriptor is.
func readable(t *testing.T, fd, timeoutMS int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, timeoutMS)
	for err == unix.EINTR { // the runtime preempts by signals
		n, err = unix.Poll(p, timeoutMS)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n == 1 && p[0].Revents&unix.POLLIN != 0
}
