package wire

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// xring is one of the rings that an AF_XDP socket shares with the kernel. Its counters are free-running, 32 bits
// wide, each written by one side: prod by who puts entries in, cons by who takes them out. The entries are descs in
// the receive and transmit rings, addrs in the fill and completion rings.
type xring struct {
	mem   []byte
	prod  *uint32
	cons  *uint32
	flags *uint32
	mask  uint32
	descs []unix.XDPDesc
	addrs []uint64
}

// mapXRing maps a ring of that many entries, a power of two. o is what XDP_MMAP_OFFSETS says of this ring; the kernel
// aligns what it points at.
func mapXRing(fd int, pgoff int64, o unix.XDPRingOffset, entries int, descs bool) (r xring, err error) {
	each := uint64(unsafe.Sizeof(uint64(0)))
	if descs {
		each = uint64(unsafe.Sizeof(unix.XDPDesc{}))
	}
	r.mem, err = unix.Mmap(fd, pgoff, int(o.Desc+uint64(entries)*each), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return r, fmt.Errorf("map a ring of %d entries: %w", entries, err)
	}
	r.mask = uint32(entries - 1)
	r.prod = (*uint32)(unsafe.Pointer(&r.mem[o.Producer]))
	r.cons = (*uint32)(unsafe.Pointer(&r.mem[o.Consumer]))
	r.flags = (*uint32)(unsafe.Pointer(&r.mem[o.Flags]))
	if first := unsafe.Pointer(&r.mem[o.Desc]); descs {
		r.descs = unsafe.Slice((*unix.XDPDesc)(first), entries)
	} else {
		r.addrs = unsafe.Slice((*uint64)(first), entries)
	}
	return r, nil
}

// needsWakeup reports whether the kernel sleeps until a system call wakes it.
func (r *xring) needsWakeup() bool {
	return atomic.LoadUint32(r.flags)&unix.XDP_RING_NEED_WAKEUP != 0
}

func (r *xring) unmap() error {
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	*r = xring{}
	return unix.Munmap(mem)
}

// setXDP sets an option of an AF_XDP socket from a structure of linux/if_xdp.h.
func setXDP[T any](fd, opt int, v *T) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt), uintptr(unsafe.Pointer(v)), unsafe.Sizeof(*v), 0)
	return errno(e)
}

// getXDP reads an option of an AF_XDP socket into a structure of linux/if_xdp.h. An older kernel may fill less of it.
func getXDP[T any](fd, opt int, v *T) error {
	size := uint32(unsafe.Sizeof(*v))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt), uintptr(unsafe.Pointer(v)), uintptr(unsafe.Pointer(&size)), 0)
	return errno(e)
}

// registerUMEM declares memory to be packet memory, in chunks. The memory is a mapping: it does not move.
func registerUMEM(fd int, mem []byte, chunk int, flags uint32) error {
	r := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&mem[0]))), Len: uint64(len(mem)), Size: uint32(chunk), Flags: flags}
	return setXDP(fd, unix.XDP_UMEM_REG, &r)
}

// placeIn finds a part in the whole. It compares addresses and reads nothing; neither moves, being a mapping or not a
// part of one.
func placeIn(whole, part []byte) (at uint64, ok bool) {
	at = uint64(uintptr(unsafe.Pointer(&part[0])) - uintptr(unsafe.Pointer(&whole[0])))
	size := uint64(len(whole))
	return at, at < size && uint64(len(part)) <= size-at
}

// sendXDP makes the kernel look at the transmit ring, of which it takes 32 frames at most. It never sleeps, so Go's scheduler
// need not be told, which takes half as long as entering the kernel does.
func sendXDP(fd int) error {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno(e)
}

// drive makes the kernel receive: it is a read of nothing.
func drive(fd int) error {
	_, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno(e)
}

// rxQueues returns how many receive queues an interface has: 1 if its driver does not say.
func rxQueues(fd int, ifname string) int {
	// struct ethtool_channels of linux/ethtool.h
	c := struct{ cmd, maxRx, maxTx, maxOther, maxCombined, rx, tx, other, combined uint32 }{cmd: 0x3c} // ETHTOOL_GCHANNELS
	if ethtoolIoctl(fd, ifname, unsafe.Pointer(&c)) != nil {
		return 1
	}
	return max(int(c.rx+c.combined), 1)
}
