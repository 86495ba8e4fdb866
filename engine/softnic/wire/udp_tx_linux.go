package wire

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/bluering/bluering/internal/proto"
)

// Where things stand in a frame of RoCEv2 without VLAN tags.
const (
	udpOff4 = headerBytes + proto.IPv4Bytes
	udpOff6 = headerBytes + proto.IPv6Bytes
	udpHdr4 = udpOff4 + proto.UDPBytes // of all headers that the kernel makes
	udpHdr6 = udpOff6 + proto.UDPBytes

	// A message of several datagrams: UDP_MAX_SEGMENTS of older kernels, and what an IP length can say.
	gsoSegments = 64
	gsoBytes    = 65535 - proto.IPv6Bytes - proto.UDPBytes
)

// udpTx sends what stands behind the UDP header of frames in its slots. Counters run on while there are frames to
// send; when there are none they begin at 0 again, so that few slots are used and those stay in the cache.
//
//	sent         built          tail
//	 │ messages   │  committed   │
//
// A message is one datagram, or with GSO a run of datagrams of one length to one place, the last of which may be
// shorter. The kernel numbers the packets of a run 0, 1, 2, ..., and the ICRC, made for 0, covers that number. On a
// loopback interface a run stays whole until a socket takes it, and no number exists.
type udpTx struct {
	txSlots
	fd      int
	addr    netip.Addr
	source  [16]byte // addr as it stands in a header
	ifindex uint32
	gso     bool
	// unnumbered: no packet has an identification that the ICRC could cover.
	unnumbered bool
	tail       uint64
	built      uint64
	sent       uint64
	reserved   int
	lens       []int32  // of the slots' frames
	ids        []uint16 // that the slots' ICRCs were made for
	unfit      string   // what was wrong with the last frame that build refused

	// Sockets of other source ports, opened when a frame has one.
	ports     []udpPort
	mostPorts int
	open      func(port uint16) (fd int, err error)

	lone  udpLoneTx
	batch udpBatch // messages and their pieces, a piece for each slot
	runs  []udpRun // of the messages
	head  uint64   // first message not sent
	next  uint64   // first free one
	shift idShift
}

// udpPort is the socket of a source port.
type udpPort struct {
	port uint16
	fd   int
}

// udpRun is what a message consists of.
type udpRun struct {
	dst     [16]byte
	tos     uint8
	ttl     uint8
	port    uint16 // source port
	whole   bool   // no more may join
	frames  uint16 // in it
	payload uint16 // of its first
	total   int32  // of all
	bytes   uint64 // of the frames with their headers
	upto    uint64 // the slot counter behind its last frame
}

func (t *udpTx) init(fd int, addr netip.Addr, ifindex, slots, longest int, gso bool) {
	t.fd, t.addr, t.ifindex, t.gso = fd, addr, uint32(ifindex), gso
	t.unnumbered = addr.Is6() || addr.IsLoopback()
	t.txSlots = newTxSlots(slots, longest)
	t.lens, t.ids, t.runs = make([]int32, slots), make([]uint16, slots), make([]udpRun, slots)
	t.batch = newUDPBatch(slots, addr.Is6(), true)
	copy(t.source[:], addr.AsSlice())
}

func (t *udpTx) reserve(lens []int32, bufs [][]byte) int {
	if t.sent == t.tail {
		t.sent, t.built, t.tail = 0, 0, 0
	}
	n := t.give(t.tail, t.count()-(t.tail-t.sent), lens, bufs)
	for i, length := range lens[:n] {
		t.lens[(t.tail+uint64(i))&t.mask] = length
	}
	t.reserved = n
	return n
}

func (t *udpTx) commit(n int) {
	t.tail += uint64(min(n, t.reserved))
	t.reserved = 0
}

func (t *udpTx) pending() int { return int(t.tail - t.sent) }
func (t *udpTx) unsent() int  { return int(t.next - t.head) }

// build makes messages of the frames committed since. It returns how many it refused, and unfit says why.
func (t *udpTx) build() (refused int) {
	if t.head == t.next {
		t.head, t.next = 0, 0
	}
	for ; t.built != t.tail; t.built++ {
		slot := t.built & t.mask
		if !t.add(slot, t.frame(slot, int(t.lens[slot]))) {
			refused++
		}
	}
	if t.head == t.next {
		t.sent = t.built // all were refused
	}
	return refused
}

// add makes a frame a message, or lets it join the last.
func (t *udpTx) add(slot uint64, f []byte) bool {
	var r udpRun
	t.ids[slot] = 0
	off, end, unfit := t.parse(f, &r)
	if unfit != "" {
		t.unfit = unfit
		return false
	}
	payload := f[off:end]
	t.batch.setPiece(slot, payload)
	if t.gso && t.joins(slot, &r, payload) {
		return true
	}
	m := t.next & t.mask
	r.frames, r.payload, r.total, r.bytes, r.upto = 1, uint16(len(payload)), int32(len(payload)), uint64(end), t.built+1
	t.runs[m] = r
	t.batch.setMessage(m, slot, &r, t.ifindex)
	t.next++
	return true
}

// joins adds a datagram to the last message if it is one of the same kind and the slots are neighbours.
func (t *udpTx) joins(slot uint64, r *udpRun, payload []byte) bool {
	if t.next == t.head || slot == 0 {
		return false
	}
	m := (t.next - 1) & t.mask
	p := &t.runs[m]
	if p.whole || p.upto != t.built || p.frames == gsoSegments || len(payload) > int(p.payload) || len(payload) == 0 ||
		int(p.total)+len(payload) > gsoBytes || p.dst != r.dst || p.tos != r.tos || p.ttl != r.ttl || p.port != r.port {
		return false
	}
	t.number(slot, payload, p.frames)
	p.whole = len(payload) < int(p.payload)
	p.frames++
	p.total += int32(len(payload))
	p.bytes += uint64(t.lens[slot])
	p.upto = t.built + 1
	t.batch.setRun(m, p.frames, p.payload)
	return true
}

// number makes a datagram's ICRC that of a packet with another identification.
func (t *udpTx) number(slot uint64, payload []byte, id uint16) {
	if t.unnumbered || len(payload) < proto.ICRCBytes || t.ids[slot] == id {
		return
	}
	icrc := payload[len(payload)-proto.ICRCBytes:]
	proto.PutICRC(icrc, proto.LoadICRC(icrc)^t.shift.of(t.ids[slot]^id, len(payload)))
	t.ids[slot] = id
}

// idShift gives what an identification changes in the ICRC of a datagram of one length, of which it remembers the
// last: bit by bit, since a CRC is linear.
type idShift struct {
	payload int
	bits    [8]uint32 // of the low bits; runs are shorter than 256
}

func (s *idShift) of(id uint16, payload int) (d uint32) {
	if s.payload != payload {
		s.payload = payload
		s.bits = proto.ICRCIDBits(proto.IPv4Bytes + proto.UDPBytes + payload - proto.ICRCBytes)
	}
	for i := range s.bits {
		d ^= s.bits[i] & -uint32(id>>i&1)
	}
	return d
}

// parse finds the UDP payload of a frame whose headers the kernel will make just so. unfit says why it will not.
func (t *udpTx) parse(f []byte, r *udpRun) (off, end int, unfit string) {
	var udp int
	if t.addr.Is4() {
		udp, off = udpOff4, udpHdr4
		if len(f) < off || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != proto.ProtoUDP {
			return 0, 0, "no UDP over IPv4 without options and VLAN tags"
		}
		end = headerBytes + int(binary.BigEndian.Uint16(f[16:]))
		if binary.BigEndian.Uint32(f[18:]) != 0x4000 {
			return 0, 0, "an IPv4 identification that is not 0, or no DF: the ICRC covers them"
		}
		if [4]byte(f[26:30]) != [4]byte(t.source[:]) {
			return 0, 0, "another source address than the socket's, which the ICRC covers"
		}
		copy(r.dst[:], f[30:34])
		r.tos, r.ttl = f[15], f[22]
	} else {
		udp, off = udpOff6, udpHdr6
		if len(f) < off || f[12] != 0x86 || f[13] != 0xdd || f[14]>>4 != 6 || f[20] != proto.ProtoUDP {
			return 0, 0, "no UDP over IPv6 without extensions and VLAN tags"
		}
		end = headerBytes + proto.IPv6Bytes + int(binary.BigEndian.Uint16(f[18:]))
		if !bytes.Equal(f[22:38], t.source[:]) {
			return 0, 0, "another source address than the socket's, which the ICRC covers"
		}
		copy(r.dst[:], f[38:54])
		r.tos, r.ttl = f[14]<<4|f[15]>>4, f[21]
	}
	if end < off || end > len(f) || int(binary.BigEndian.Uint16(f[udp+4:])) != end-udp {
		unfit = "lengths of IP and UDP that contradict each other"
	} else if r.port = binary.BigEndian.Uint16(f[udp:]); binary.BigEndian.Uint16(f[udp+2:]) != proto.RoCEPort || r.port != proto.RoCEPort && t.mostPorts == 0 {
		unfit = "other ports than 4791 to 4791; ?ports=N allows N other source ports"
	}
	return off, end, unfit
}

// push gives the kernel as many messages as it takes.
func (t *udpTx) push() (frames int, bytes uint64, err error) {
	first := t.head & t.mask
	count := min(t.next-t.head, t.count()-first) // up to the edge
	fd := t.fd
	if t.mostPorts > 0 {
		port := t.runs[first].port
		for i := range count {
			if t.runs[first+i].port != port {
				count = i
				break
			}
		}
		if fd, err = t.socketOf(port); err != nil {
			return 0, 0, err
		}
	}
	n, err := t.batch.send(fd, first, count)
	if n == 1 && count == 1 && t.sent == 0 && t.tail == 1 && t.mostPorts == 0 && t.batch.plain(first) {
		t.lone.remember(&t.batch, first, t.frame(0, int(t.lens[0])), t.runs[first].bytes)
	}
	for i := range uint64(n) {
		r := &t.runs[first+i]
		frames += int(r.frames)
		bytes += r.bytes
		t.sent = r.upto
	}
	t.head += uint64(n)
	t.settle()
	return frames, bytes, err
}

// socketOf gives the socket that sends from a port.
func (t *udpTx) socketOf(port uint16) (int, error) {
	if port == proto.RoCEPort {
		return t.fd, nil
	}
	for i := range t.ports {
		if t.ports[i].port == port {
			return t.ports[i].fd, nil
		}
	}
	if len(t.ports) >= t.mostPorts {
		return -1, ErrPorts
	}
	fd, err := t.open(port)
	if err != nil {
		return -1, err
	}
	t.ports = append(t.ports, udpPort{port, fd})
	return fd, nil
}

// settle gives the slots of refused frames back that no message follows.
func (t *udpTx) settle() {
	if t.head == t.next {
		t.sent = t.built
	}
}

// skip forgets the message at the head.
func (t *udpTx) skip() (to netip.Addr, frames int) {
	r := &t.runs[t.head&t.mask]
	to = netip.AddrFrom16(r.dst)
	if t.addr.Is4() {
		to = netip.AddrFrom4([4]byte(r.dst[:]))
	}
	t.sent = r.upto
	t.head++
	t.settle()
	return to, int(r.frames)
}

func (t *udpTx) drop() (frames uint64) {
	frames = t.tail - t.sent
	t.sent, t.built, t.head = t.tail, t.tail, t.next
	return frames
}

// noGSO takes the messages apart if the first is a run: one that an interface refuses.
func (t *udpTx) noGSO() bool {
	if !t.gso || t.unsent() == 0 || t.runs[t.head&t.mask].frames == 1 {
		return false
	}
	t.gso = false
	t.built = t.sent
	t.next = t.head
	for k := t.sent; k != t.tail; k++ { // frames that were refused before are refused again, and counted twice: none is
		slot := k & t.mask
		if t.ids[slot] != 0 {
			f := t.frame(slot, int(t.lens[slot]))
			t.number(slot, f[udpHdr4:headerBytes+int(binary.BigEndian.Uint16(f[16:]))], 0)
		}
	}
	t.build()
	return true
}
