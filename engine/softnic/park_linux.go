package softnic

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bell is an event that one side rings and the other waits for, together with a wire's descriptor.
type bell struct{ fd int }

func newBell() (bell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return bell{-1}, fmt.Errorf("softnic: eventfd: %w", err)
	}
	return bell{fd}, nil
}

func (b bell) ring() {
	one := [8]byte{1} // any non-zero count in either byte order
	unix.Write(b.fd, one[:])
}

func (b bell) close() {
	if b.fd >= 0 {
		unix.Close(b.fd)
	}
}

// wait returns when the bell rang, when the descriptor (-1: none) is readable or, with out, writable, or
// after the timeout. A signal may end it early: callers look again anyway.
func (b bell) wait(fd int, out bool, timeout time.Duration) error {
	events := int16(unix.POLLIN)
	if out {
		events |= unix.POLLOUT
	}
	fds := [2]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	ts := unix.NsecToTimespec(int64(timeout))
	_, err := unix.Ppoll(fds[:], &ts, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("softnic: poll: %w", err)
	}
	if fds[0].Revents != 0 {
		var count [8]byte
		unix.Read(b.fd, count[:])
	}
	return nil
}
