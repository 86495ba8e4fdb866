package wire

import (
	"math"

	"golang.org/x/sys/unix"
)

// waiter joins a wire's descriptor and a timer into one that is readable when either has something.
type waiter struct {
	fd      int
	timer   alarm
	watched int // the wire's descriptor and what is watched of it, as told to the kernel
	events  uint32
}

func (w *waiter) open() error {
	w.watched = -1
	a, err := newAlarm(true)
	if err != nil {
		return err
	}
	w.timer = a
	if w.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		err = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, a.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(a.fd)})
	}
	if err != nil {
		w.close()
	}
	return err
}

// arm prepares for a wait: for the wire to be readable, with out writable too, or for the time to pass.
func (w *waiter) arm(fd int, out bool, waitNS int64) int {
	events := uint32(unix.EPOLLIN)
	if out {
		events |= unix.EPOLLOUT
	}
	if fd >= 0 && (fd != w.watched || events != w.events) {
		op := unix.EPOLL_CTL_MOD
		if fd != w.watched {
			op = unix.EPOLL_CTL_ADD
		}
		unix.EpollCtl(w.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
		w.watched, w.events = fd, events
	}
	if waitNS != math.MaxInt64 {
		w.timer.after(waitNS)
	}
	return w.fd
}

func (w *waiter) disarm() { w.timer.drain() }

func (w *waiter) close() {
	w.timer.close()
	if w.fd > 0 {
		unix.Close(w.fd)
	}
	w.fd = -1
}
