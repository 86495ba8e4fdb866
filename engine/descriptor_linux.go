package engine

import "golang.org/x/sys/unix"

// descriptor is what others can poll for a channel's events: an eventfd that is
// readable while events wait; of a device that does not run by itself, an epoll
// descriptor over that and the wire's. It is made when it is asked for. The
// channel's lock guards it.
type descriptor struct {
	made      bool
	event, ep int
	wire      int
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

// fd gives the descriptor, with wire in it if over is set.
func (d *descriptor) fd(waiting, over bool, wire int, out bool) int {
	if !d.made {
		event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return -1
		}
		d.made, d.event, d.ep, d.wire = true, event, -1, -1
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
	return d.ep
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
}
