package wire

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// waiter joins descriptors, of which one may change from wait to wait, and a timer into one that is readable when any
// has something.
type waiter struct {
	fd      int // -1: closed
	timer   alarm
	watched int // the descriptor that may change and what is watched of it, as told to the kernel
	events  uint32
}

// closedWaiter is one that may be closed, though it was not opened.
var closedWaiter = waiter{fd: -1, timer: alarm{fd: -1}}

func (w *waiter) open() error {
	*w = closedWaiter
	w.watched = -1
	a, err := newAlarm(true)
	if err != nil {
		return err
	}
	w.timer = a
	if w.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		err = fmt.Errorf("epoll: %w", err)
	} else {
		err = w.add(a.fd)
	}
	if err != nil {
		w.close()
	}
	return err
}

// add makes a descriptor one that is waited for until remove. Any goroutine may call either.
func (w *waiter) add(fd int) error {
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (w *waiter) remove(fd int) error { return unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// arm prepares for a wait: also for fd to be readable, with out writable too, or for the time to pass. -1: none;
// math.MaxInt64: no time.
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
	if w.fd >= 0 {
		unix.Close(w.fd)
	}
	w.fd = -1
}
