package wire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// alarm is a descriptor to wait on: an eventfd, or a timerfd where frames have times. Any goroutine may ring
// it; the rest belongs to its owner.
type alarm struct {
	fd    int
	timer bool
}

func newAlarm(timer bool) (alarm, error) {
	if timer {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
		if err != nil {
			return alarm{fd: -1}, fmt.Errorf("timerfd: %w", err)
		}
		return alarm{fd, true}, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return alarm{fd: -1}, fmt.Errorf("eventfd: %w", err)
	}
	return alarm{fd, false}, nil
}

// ring makes the descriptor readable.
func (a *alarm) ring() {
	if a.timer {
		a.after(1)
		return
	}
	one := [8]byte{1} // not zero in either byte order
	unix.Write(a.fd, one[:])
}

// after makes a timer readable ns from now.
func (a *alarm) after(ns int64) {
	it := unix.ItimerSpec{Value: unix.NsecToTimespec(max(ns, 1))}
	unix.TimerfdSettime(a.fd, 0, &it, nil)
}

// drain makes it unreadable.
func (a *alarm) drain() {
	var b [8]byte
	if a.timer {
		unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{}, nil)
	}
	unix.Read(a.fd, b[:])
}

func (a *alarm) close() {
	if a.fd >= 0 {
		unix.Close(a.fd)
	}
	a.fd = -1
}
