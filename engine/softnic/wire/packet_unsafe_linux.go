package wire

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadStatus reads tp_status of a slot. The slot is at least 4 bytes long and 16-byte aligned: the kernel's
// TPACKET_ALIGNMENT, which setUp keeps by making slots powers of two.
func loadStatus(slot []byte) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&slot[0])))
}

// storeStatus writes tp_status of a slot, under the conditions of loadStatus.
func storeStatus(slot []byte, status uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&slot[0])), status)
}

// mmsghdr is struct mmsghdr of sys/socket.h.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// mmsgBatch is one message of one piece for each slot of a transmit memory.
type mmsgBatch struct {
	msgs []mmsghdr
	iovs []unix.Iovec
}

// newBatch points the messages at the slots of mem, which the caller keeps reachable.
func newBatch(mem []byte, slots, stride int) mmsgBatch {
	b := mmsgBatch{make([]mmsghdr, slots), make([]unix.Iovec, slots)}
	for i := range b.msgs {
		b.iovs[i].Base = &mem[i*stride]
		b.msgs[i].hdr.Iov = &b.iovs[i]
		b.msgs[i].hdr.SetIovlen(1)
	}
	return b
}

func (b *mmsgBatch) setLen(slot uint64, n int) { b.iovs[slot].SetLen(n) }
func (b *mmsgBatch) len(slot uint64) int       { return int(b.iovs[slot].Len) }

// sendMessages sends messages and returns how many the kernel took; the error is that of the first it did not. The
// pointers in the messages are Go pointers to memory that the caller keeps reachable and that the runtime does not move.
func sendMessages(fd int, msgs []mmsghdr) (int, error) {
	n, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, errno(e)
	}
	return int(n), nil
}

// send sends count messages from first on.
func (b *mmsgBatch) send(fd int, first, count uint64) (int, error) {
	return sendMessages(fd, b.msgs[first:first+count])
}

// gatherBatch is messages of several pieces each, made anew for every call.
type gatherBatch struct {
	msgs []mmsghdr
	iovs []unix.Iovec
	used int // messages
	iov  int // pieces
}

func newGatherBatch(messages, pieces int) gatherBatch {
	return gatherBatch{msgs: make([]mmsghdr, messages), iovs: make([]unix.Iovec, pieces)}
}

func (b *gatherBatch) reset() { b.used, b.iov = 0, 0 }

// add begins a message with its first piece, and more adds to it. Pieces are not empty; the caller keeps them reachable.
func (b *gatherBatch) add(piece []byte) {
	h := &b.msgs[b.used].hdr
	h.Iov = &b.iovs[b.iov]
	h.SetIovlen(0)
	b.used++
	b.more(piece)
}

func (b *gatherBatch) more(piece []byte) {
	v := &b.iovs[b.iov]
	v.Base = &piece[0]
	v.SetLen(len(piece))
	b.iov++
	h := &b.msgs[b.used-1].hdr
	h.SetIovlen(int(h.Iovlen) + 1)
}

// send sends the messages made since reset.
func (b *gatherBatch) send(fd int) (int, error) { return sendMessages(fd, b.msgs[:b.used]) }

// kick makes the kernel look at the transmit ring.
func kick(fd int) error {
	_, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno(e)
}

// ethtoolCmd is struct ethtool_cmd of linux/ethtool.h.
type ethtoolCmd struct {
	cmd, supported, advertising uint32
	speed                       uint16
	_                           [6]byte
	_                           [2]uint32
	speedHi                     uint16
	_                           [14]byte
}

// ethtoolSpeed returns the link's speed, 0 if the driver does not say.
func ethtoolSpeed(fd int, ifname string) uint64 {
	c := ethtoolCmd{cmd: 1} // ETHTOOL_GSET
	if ethtoolIoctl(fd, ifname, unsafe.Pointer(&c)) != nil {
		return 0
	}
	mbps := uint32(c.speed) | uint32(c.speedHi)<<16
	if mbps == 0 || mbps >= 1<<31 || c.speed == 0xffff && c.speedHi == 0 { // SPEED_UNKNOWN
		return 0
	}
	return uint64(mbps) * 1e6
}

// ethtoolIoctl asks the driver. data is a structure of linux/ethtool.h that begins with its command.
func ethtoolIoctl(fd int, ifname string, data unsafe.Pointer) error {
	var r struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq is longer than its pointer
	}
	copy(r.name[:unix.IFNAMSIZ-1], ifname)
	r.data = data
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	return errno(e)
}

// errno is a system call's error; none is nil.
func errno(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}
