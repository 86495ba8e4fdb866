package wire

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/proto"
)

// udpBatch is messages for sendmmsg or recvmmsg with a name and control messages each, and pieces of memory. All its
// pointers are Go pointers to memory that the batch and its owner keep reachable and that the runtime does not move.
type udpBatch struct {
	six   bool
	msgs  []mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrInet6 // struct sockaddr_in has its port in the same place, its address before that of in6
	ctl   []byte
}

// The control messages of a message, each an int or shorter in the room of one: TTL or hop limit, TOS or traffic
// class, and when sending UDP_SEGMENT.
var (
	cmsgRoom = unix.CmsgSpace(4)
	cmsgData = unix.CmsgLen(0)
	ctlBytes = 3 * cmsgRoom
)

// newUDPBatch makes messages of one piece each. Those for sending have their control messages already.
func newUDPBatch(n int, six, send bool) udpBatch {
	b := udpBatch{six: six, msgs: make([]mmsghdr, n), iovs: make([]unix.Iovec, n), names: make([]unix.RawSockaddrInet6, n), ctl: make([]byte, n*ctlBytes)}
	for i := range b.msgs {
		h := &b.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
		h.Control = &b.ctl[i*ctlBytes]
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		if !send {
			continue
		}
		levels := [3][2]int32{{unix.IPPROTO_IP, unix.IP_TTL}, {unix.IPPROTO_IP, unix.IP_TOS}, {unix.SOL_UDP, unix.UDP_SEGMENT}}
		h.Namelen = unix.SizeofSockaddrInet4
		if six {
			levels[0], levels[1] = [2]int32{unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}, [2]int32{unix.IPPROTO_IPV6, unix.IPV6_TCLASS}
			h.Namelen = unix.SizeofSockaddrInet6
		}
		for k, l := range levels {
			c := (*unix.Cmsghdr)(unsafe.Pointer(&b.ctl[i*ctlBytes+k*cmsgRoom]))
			c.Level, c.Type = l[0], l[1]
			c.SetLen(unix.CmsgLen(4))
			if k == 2 {
				c.SetLen(unix.CmsgLen(2))
			}
		}
	}
	return b
}

// setPiece makes a piece the bytes of p, which the caller keeps reachable.
func (b *udpBatch) setPiece(slot uint64, p []byte) {
	b.iovs[slot].Base = unsafe.SliceData(p)
	b.iovs[slot].SetLen(len(p))
}

// setMessage makes message m the datagram in a piece.
func (b *udpBatch) setMessage(m, slot uint64, r *udpRun, ifindex uint32) {
	name := &b.names[m]
	if b.six {
		name.Family, name.Addr, name.Scope_id = unix.AF_INET6, r.dst, 0
		if proto.GID(r.dst).IsLinkScope() {
			name.Scope_id = ifindex
		}
	} else {
		name.Family = unix.AF_INET
		(*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr = [4]byte(r.dst[:])
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], proto.RoCEPort)
	c := b.ctl[int(m)*ctlBytes:][:ctlBytes]
	binary.NativeEndian.PutUint32(c[cmsgData:], uint32(r.ttl))
	binary.NativeEndian.PutUint32(c[cmsgRoom+cmsgData:], uint32(r.tos))
	h := &b.msgs[m].hdr
	h.Iov = &b.iovs[slot]
	h.SetIovlen(1)
	h.Control, h.Controllen = nil, 0 // the kernel allocates memory for as much as two of them
	if r.ttl != udpTTL || r.tos != 0 {
		h.Control = &c[0]
		h.SetControllen(2 * cmsgRoom)
	}
}

// setRun makes message m the pieces from its first on, each a datagram of so many bytes, the last perhaps shorter.
func (b *udpBatch) setRun(m uint64, pieces, payload uint16) {
	h := &b.msgs[m].hdr
	h.SetIovlen(int(pieces))
	h.Control = &b.ctl[int(m)*ctlBytes]
	h.SetControllen(3 * cmsgRoom)
	binary.NativeEndian.PutUint16(b.ctl[int(m)*ctlBytes+2*cmsgRoom+cmsgData:], payload)
}

// shortCall is how many messages a call may have that the scheduler is not told of: it does not sleep, and ends within
// some microseconds, for which a stop of the world can wait.
const shortCall = 8

// call is SYS_SENDMMSG or SYS_RECVMMSG of messages, as sendMessages does it.
func call(number uintptr, fd int, msgs []mmsghdr) (int, error) {
	do := unix.Syscall6
	if len(msgs) <= shortCall {
		do = unix.RawSyscall6
	}
	n, _, e := do(number, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, errno(e)
	}
	return int(n), nil
}

// plain tells whether a message has no control messages.
func (b *udpBatch) plain(m uint64) bool { return b.msgs[m].hdr.Controllen == 0 }

// send sends count messages from first on and returns how many the kernel took; the error is that of the
// first it did not. A lone datagram goes by sendto, which has less to copy.
func (b *udpBatch) send(fd int, first, count uint64) (int, error) {
	if h := &b.msgs[first].hdr; count == 1 && h.Controllen == 0 {
		_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(h.Iov.Base)), uintptr(h.Iov.Len), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(h.Name)), uintptr(h.Namelen))
		if e != 0 {
			return 0, errno(e)
		}
		return 1, nil
	}
	return call(unix.SYS_SENDMMSG, fd, b.msgs[first:first+count])
}

// receive receives up to count messages into those from first on. One is asked for by recvmsg, which has less to copy,
// also of nothing.
func (b *udpBatch) receive(fd, first, count int) (int, error) {
	for i := first; i < first+count; i++ {
		h := &b.msgs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(ctlBytes)
	}
	if count == 1 {
		m := &b.msgs[first]
		n, _, e := unix.RawSyscall6(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_DONTWAIT, 0, 0, 0)
		if e != 0 {
			return 0, errno(e)
		}
		m.len = uint32(n)
		return 1, nil
	}
	return call(unix.SYS_RECVMMSG, fd, b.msgs[first:first+count])
}

// received tells how long a received message is, whether it was longer than its piece, and what the control messages
// say.
func (b *udpBatch) received(i int) (length int, cut bool, ttl, tos uint8) {
	m := &b.msgs[i]
	c := b.ctl[i*ctlBytes:][:min(int(m.hdr.Controllen), ctlBytes)]
	for len(c) >= cmsgData {
		h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(c)))
		n := int(h.Len)
		if n < cmsgData || n > len(c) {
			break
		}
		v := uint32(0)
		if n == cmsgData+1 {
			v = uint32(c[cmsgData])
		} else if n >= cmsgData+4 {
			v = binary.NativeEndian.Uint32(c[cmsgData:])
		}
		switch {
		case b.six && h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_HOPLIMIT, !b.six && h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TTL:
			ttl = uint8(v)
		case b.six && h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS, !b.six && h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS:
			tos = uint8(v)
		}
		c = c[min(len(c), unix.CmsgSpace(n-cmsgData)):]
	}
	return int(m.len), m.hdr.Flags&unix.MSG_TRUNC != 0, ttl, tos
}

// from gives where a received message came from; port is in host order.
func (b *udpBatch) from(i int, addr []byte) (port uint16) {
	name := &b.names[i]
	if b.six {
		copy(addr, name.Addr[:])
	} else {
		copy(addr, (*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr[:])
	}
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:])
}

// errorMessage is room for an entry of a socket's error queue.
type errorMessage struct {
	hdr  unix.Msghdr
	iov  unix.Iovec
	data [8]byte // of the datagram that is spoken of
	name unix.RawSockaddrInet6
	ctl  [256]byte
}

// next takes an entry from the error queue; icmp tells whether another host made it. False: there is none.
func (m *errorMessage) next(fd int) (icmp, ok bool) {
	m.iov.Base = &m.data[0]
	m.iov.SetLen(len(m.data))
	m.hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&m.name)), Namelen: unix.SizeofSockaddrInet6, Iov: &m.iov, Control: &m.ctl[0]}
	m.hdr.SetIovlen(1)
	m.hdr.SetControllen(len(m.ctl))
	_, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if e != 0 {
		return false, false
	}
	for c := m.ctl[:min(int(m.hdr.Controllen), len(m.ctl))]; len(c) >= cmsgData; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(c)))
		n := int(h.Len)
		if n < cmsgData || n > len(c) {
			break
		}
		if h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR {
			origin := c[cmsgData+4] // ee_origin of struct sock_extended_err
			icmp = n > cmsgData+4 && (origin == unix.SO_EE_ORIGIN_ICMP || origin == unix.SO_EE_ORIGIN_ICMP6)
		}
		c = c[min(len(c), unix.CmsgSpace(n-cmsgData)):]
	}
	return icmp, true
}

// socketDrops is how many datagrams the kernel dropped at a socket, most for want of room in its buffer: what
// SO_RXQ_OVFL tells with the next datagram, told at once.
func socketDrops(fd int) uint32 {
	var mem [9]uint32 // SK_MEMINFO_VARS, of which the last is SK_MEMINFO_DROPS
	size := uint32(unsafe.Sizeof(mem))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&mem)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return 0
	}
	return mem[8]
}
