package wire

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// udpLoneTx is how the last frame that went alone began, and where it went to.
type udpLoneTx struct {
	length  int32 // of the frame; 0: there was none
	off     int32 // where the UDP payload stands
	size    uint32
	namelen uint32
	bytes   uint64
	name    unix.RawSockaddrInet6
	head    [udpHdr6]byte
}

// remember notes message m of a batch, a frame of the default TTL and TOS that went to the medium.
func (t *udpLoneTx) remember(b *udpBatch, m uint64, frame []byte, end uint64) {
	h := &b.msgs[m].hdr
	t.length, t.off, t.bytes = int32(len(frame)), udpHdr4, end
	if b.six {
		t.off = udpHdr6
	}
	t.size, t.name, t.namelen = uint32(h.Iov.Len), b.names[m], h.Namelen
	copy(t.head[:], frame[:t.off])
}

// sends reports whether a frame that begins slot has the headers of the last one.
func (t *udpLoneTx) sends(slot []byte, length int32) bool {
	if length != t.length {
		return false
	}
	const first = 12 // MAC addresses are not looked at
	a, b := slot[:udpHdr6], &t.head
	if t.off == udpHdr4 {
		return differ(a[first:], b[first:])|differ(a[first+8:], b[first+8:])|differ(a[first+16:], b[first+16:])|
			differ(a[udpHdr4-8:], b[udpHdr4-8:]) == 0
	}
	return differ(a[first:], b[first:])|differ(a[first+8:], b[first+8:])|differ(a[first+16:], b[first+16:])|
		differ(a[first+24:], b[first+24:])|differ(a[first+32:], b[first+32:])|differ(a[first+40:], b[first+40:])|
		differ(a[udpHdr6-8:], b[udpHdr6-8:]) == 0
}

// differ has the bits in which the first eight bytes differ.
func differ(a, b []byte) uint64 { return binary.NativeEndian.Uint64(a) ^ binary.NativeEndian.Uint64(b) }

// send sends what stands behind the headers in slot.
func (t *udpLoneTx) send(fd int, slot []byte) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&slot[t.off])), uintptr(t.size), unix.MSG_DONTWAIT,
		uintptr(unsafe.Pointer(&t.name)), uintptr(t.namelen))
	return e
}

// loneControl is the room for what a lone datagram comes with, in words: TTL and TOS, each in three.
const loneControl = 6

// udpLoneRx is a message for recvmsg, in few lines, and what the last one came with.
type udpLoneRx struct {
	hdr   unix.Msghdr
	iov   unix.Iovec
	name  [4]uint64
	ctl   [loneControl]uint64
	known struct {
		name  [4]uint64
		ctl   [loneControl]uint64
		len   int // 0: nothing
		flags int32
	}
}

// receive asks for a datagram. The memory is the first slot's, which a wire keeps reachable.
func (r *udpLoneRx) receive(fd int) (n int, e syscall.Errno) {
	h := &r.hdr
	h.Namelen, h.Controllen = unix.SizeofSockaddrInet6, loneControl*8
	got, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), unix.MSG_DONTWAIT)
	return int(got), e
}

// init gives the message the memory for a datagram.
func (r *udpLoneRx) init(data []byte) {
	r.iov.Base = unsafe.SliceData(data)
	r.iov.SetLen(len(data))
	r.hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&r.name)), Iov: &r.iov, Control: (*byte)(unsafe.Pointer(&r.ctl))}
	r.hdr.SetIovlen(1)
}

// same reports whether a received datagram of n bytes came as the last one did.
func (r *udpLoneRx) same(n int) bool {
	k := &r.known
	return n == k.len && r.hdr.Flags == k.flags && r.hdr.Controllen == loneControl*8 &&
		(r.name[0]^k.name[0])|(r.name[1]^k.name[1])|(r.name[2]^k.name[2])|(r.name[3]^k.name[3])|
			(r.ctl[0]^k.ctl[0])|(r.ctl[1]^k.ctl[1])|(r.ctl[2]^k.ctl[2])|
			(r.ctl[3]^k.ctl[3])|(r.ctl[4]^k.ctl[4])|(r.ctl[5]^k.ctl[5]) == 0
}

// tell makes a received datagram of n bytes the first message of a batch, which has the same memory, and remembers how
// it came.
func (r *udpLoneRx) tell(b *udpBatch, n int) {
	k := &r.known
	k.name, k.ctl, k.len, k.flags = r.name, r.ctl, n, r.hdr.Flags
	m := &b.msgs[0]
	m.len, m.hdr.Flags = uint32(n), r.hdr.Flags
	m.hdr.SetControllen(copy(b.ctl, unsafe.Slice((*byte)(unsafe.Pointer(&r.ctl)), min(int(r.hdr.Controllen), loneControl*8))))
	b.names[0] = *(*unix.RawSockaddrInet6)(unsafe.Pointer(&r.name))
}

// forget is for who makes other headers in the first slot.
func (r *udpLoneRx) forget() { r.known.len = 0 }
