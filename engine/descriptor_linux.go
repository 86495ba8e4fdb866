package engine

import "golang.org/x/sys/unix"

// descriptor is what others can poll for a channel's events: an eventfd that is
// readable while events wait; of a device that does not run by itself, an epoll
// descriptor over that, the wire's and a timer. It is made when it is asked for.
// The channel's lock guards it.
type descriptor struct {
	made      bool
	event, ep int
	wire      int
	timer     int
}

func (d *descriptor) set() {
	if d.made {
		one := [8]byte{1} // any non-zero count in either byte order
		_, _ = unix.Write(d.event, one[:])
	}
}

func (d *descriptor) clear() {
	if d.made {
		var count [8]byte
		_, _ = unix.Read(d.event, count[:])
	}
}

// fd gives the descriptor. With over, wire is in it, if it is not -1, and it becomes readable after a time that is not.
func (d *descriptor) fd(waiting, over bool, wire int, out bool, afterNS int64) int {
	if !d.made {
		event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return -1
		}
		d.made, d.event, d.ep, d.wire, d.timer = true, event, -1, -1, -1
		if waiting {
			d.set()
		}
	}
	if !over {
		return d.event
	}
	if d.ep < 0 {
		ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return -1
		}
		d.ep = ep
		d.control(unix.EPOLL_CTL_ADD, d.event, unix.EPOLLIN)
	}
	if d.wire >= 0 && d.wire != wire {
		d.control(unix.EPOLL_CTL_DEL, d.wire, 0)
		d.wire = -1
	}
	if wire >= 0 {
		events := uint32(unix.EPOLLIN)
		if out {
			events |= unix.EPOLLOUT
		}
		op := unix.EPOLL_CTL_MOD
		if d.wire < 0 {
			op = unix.EPOLL_CTL_ADD
		}
		if d.control(op, wire, events) == nil {
			d.wire = wire
		}
	}
	d.ring(afterNS)
	return d.ep
}

// ring makes the descriptor readable after a time, or not at all.
func (d *descriptor) ring(afterNS int64) {
	if d.timer < 0 {
		if afterNS < 0 {
			return
		}
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
		if err != nil {
			return
		}
		d.timer = fd
		_ = d.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)
	}
	var it unix.ItimerSpec // zero disarms it, and takes back that it rang
	if afterNS >= 0 {
		it.Value = unix.NsecToTimespec(max(afterNS, 1))
	}
	_ = unix.TimerfdSettime(d.timer, 0, &it, nil)
}

func (d *descriptor) control(op, fd int, events uint32) error {
	return unix.EpollCtl(d.ep, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (d *descriptor) close() {
	if !d.made {
		return
	}
	d.made = false
	unix.Close(d.event)
	if d.ep >= 0 {
		unix.Close(d.ep)
	}
	if d.timer >= 0 {
		unix.Close(d.timer)
	}
}
