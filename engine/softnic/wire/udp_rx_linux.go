package wire

import (
	"encoding/binary"
	"net/netip"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// udpRx receives behind room for the headers:
//
//	0                      udpRxData
//	| (gap) Ethernet, IP, UDP | BTH ... ICRC |
//
// Frames lie in the slots from head to tail. When all are released the slots begin at 0 again, so that few are used
// and those stay in the cache; the queue is the socket's buffer.
//
// UDP_GRO is not asked for: a run that finds no room in the socket's buffer then counts as one drop, however many
// datagrams it holds, and sent would no longer be received and dropped. Without it the kernel cuts runs first.
type udpRx struct {
	mem        []byte
	stride     int
	head, tail int
	guess      bool
	ports      bool // this end sends from other ports, too
	mac        [6]byte
	frames     [udpRxSlots]Frame
	batch      udpBatch
	lone       udpLoneRx
	errors     errorMessage
	own        netip.Addr
}

// udpRxData is where the kernel puts a datagram in a slot. An IPv4 frame then begins at 22, an IPv6 frame at 2.
const udpRxData = 64

func (r *udpRx) init(own netip.Addr, i Info, guess bool) {
	r.own, r.guess, r.mac = own, guess, i.MAC
	room := i.MaxFrame - headerBytes - proto.IPv4Bytes - proto.UDPBytes
	r.stride = int(unitsOf(uint64(udpRxData+room)))*unitBytes + unitBytes
	r.mem = make([]byte, udpRxSlots*r.stride)
	r.batch = newUDPBatch(udpRxSlots, own.Is6(), false)
	r.lone.init(r.mem[udpRxData:][:room])
	for k := range r.frames {
		r.batch.setPiece(uint64(k), r.mem[k*r.stride+udpRxData:][:room])
	}
}

// restart begins at slot 0 again if nothing is held.
func (r *udpRx) restart() {
	if r.head == r.tail {
		r.head, r.tail = 0, 0
	}
}

func (r *udpRx) held() int { return r.tail - r.head }

// udpSource is a socket that datagrams come from.
type udpSource struct {
	fd  int
	to  netip.Addr // the address it is bound to
	ask int        // messages to ask for; 0: one
}

// receive takes datagrams from a socket, with one call. An empty socket is asked for one datagram, one that gave all it
// was asked for is asked for more the next time.
func (r *udpRx) receive(s *udpSource) (int, error) {
	room := len(r.frames) - r.tail
	if room == 0 {
		return 0, nil
	}
	asked := min(max(s.ask, 1), room)
	n, err := r.batch.receive(s.fd, r.tail, asked)
	switch {
	case n <= 0:
		s.ask = 0
		return 0, err
	case n == asked:
		s.ask = min(2*asked, len(r.frames))
	default:
		s.ask = n
	}
	r.lone.forget()
	taken := 0
	for i := r.tail; i < r.tail+n; i++ {
		if r.dress(i, s.to) {
			r.frames[r.tail+taken] = r.frames[i]
			taken++
		}
	}
	r.tail += taken
	return n, nil
}

// dress makes the headers that a datagram came with, as far as they are known: the identification is not, nor the UDP
// checksum, nor the flow label. False for what this very end sent to a group.
func (r *udpRx) dress(slot int, to netip.Addr) bool {
	length, cut, ttl, tos := r.batch.received(slot)
	s := r.mem[slot*r.stride:][:udpRxData+length]
	f := &r.frames[slot]
	*f = Frame{}
	if cut {
		f.Flags = FlagTruncated
	}
	if r.own.Is4() {
		f.Data = s[udpRxData-udpHdr4:]
		if r.guess {
			f.Flags |= FlagIDUnknown
		}
		return r.dress4(slot, f.Data, to, ttl, tos)
	}
	f.Data = s[udpRxData-udpHdr6:]
	return r.dress6(slot, f.Data, to, ttl, tos)
}

func (r *udpRx) dress4(slot int, b []byte, to netip.Addr, ttl, tos uint8) bool {
	ip, dst := b[headerBytes:], to.As4()
	port := r.batch.from(slot, ip[12:16])
	if to != r.own && [4]byte(ip[12:16]) == r.own.As4() && (port == proto.RoCEPort || r.ports) {
		return false
	}
	r.ethernet(b, to, proto.EtherTypeIPv4)
	copy(b[6:], []byte{2, 0, ip[12], ip[13], ip[14], ip[15]})
	length := len(ip)
	ip[0], ip[1] = 0x45, tos
	binary.BigEndian.PutUint16(ip[2:], uint16(length))
	binary.BigEndian.PutUint32(ip[4:], 0x4000) // identification 0, DF
	ip[8], ip[9], ip[10], ip[11] = ttl, proto.ProtoUDP, 0, 0
	copy(ip[16:20], dst[:])
	binary.BigEndian.PutUint16(ip[10:], csum.Finish(csum.Sum(ip[:proto.IPv4Bytes], 0)))
	udpHeader(ip[proto.IPv4Bytes:], port)
	return true
}

func (r *udpRx) dress6(slot int, b []byte, to netip.Addr, ttl, tos uint8) bool {
	ip, dst, own := b[headerBytes:], to.As16(), r.own.As16()
	port := r.batch.from(slot, ip[8:24])
	if to != r.own && [16]byte(ip[8:24]) == own && (port == proto.RoCEPort || r.ports) {
		return false
	}
	r.ethernet(b, to, proto.EtherTypeIPv6)
	mac := udpMAC(netip.AddrFrom16([16]byte(ip[8:24])))
	copy(b[6:], mac[:])
	binary.BigEndian.PutUint32(ip, 6<<28|uint32(tos)<<20)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-proto.IPv6Bytes))
	ip[6], ip[7] = proto.ProtoUDP, ttl
	copy(ip[24:40], dst[:])
	udpHeader(ip[proto.IPv6Bytes:], port)
	return true
}

func (r *udpRx) ethernet(b []byte, to netip.Addr, etherType uint16) {
	mac := r.mac
	if to != r.own {
		mac = udpMAC(to)
	}
	copy(b, mac[:])
	binary.BigEndian.PutUint16(b[12:], etherType)
}

func udpHeader(b []byte, from uint16) {
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], proto.RoCEPort)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b))<<16) // checksum 0: none
}

func (r *udpRx) next(frames []Frame) int { return copy(frames, r.frames[r.head:r.tail]) }

func (r *udpRx) release(n int) (bytes, cut uint64) {
	for i := r.head; i < r.head+n; i++ {
		f := &r.frames[i]
		bytes += uint64(len(f.Data))
		if f.Flags&FlagTruncated != 0 {
			cut++
		}
	}
	r.head += n
	return bytes, cut
}

// nextError takes an entry from a socket's error queue.
func (r *udpRx) nextError(fd int) (icmp, ok bool) { return r.errors.next(fd) }
