package softnic

import (
	"encoding/binary"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// Datagrams travel as RoCE v2:
//
//	Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | BTH 12 | DETH 8 | [ImmDt 4] | payload | pad 0..3 | ICRC 4
//
// IPv4 goes out with DF, identification 0 and no options, and the UDP checksum is 0, as kernel rxe has it.

const (
	defaultPKey = 0xffff // the P_Key table has this one entry
	ipv4Head    = proto.IPv4Bytes + proto.UDPBytes
	ipv6Head    = proto.IPv6Bytes + proto.UDPBytes
	maxHead     = proto.EthernetBytes + ipv6Head
	grhArea     = 40 // in front of each datagram received
)

// qkeyOwn in a request's Q_Key stands for the queue pair's own (D10).
const qkeyOwn = 1 << 31

// way is what frames to one address begin with. It is made of the address part of a WQE, once for as long as that
// is used.
type way struct {
	av    [ring.AVAddrBytes]byte // what it was made of
	where where
	n     uint8         // bytes of head, up to the BTH
	head  [maxHead]byte // lengths and IPv4 checksum are 0
	sum   uint32        // of the IPv4 header's words
	start start
}

// where says how a datagram goes.
type where uint8

const (
	toNowhere where = iota // the address names no own address, or one of another family
	toWire
	toSelf  // an own address: never on the wire (E-25)
	toGroup // on the wire, and to the members here
)

// waysPerQP is how many addresses a queue pair remembers. A power of two.
const waysPerQP = 16

// udSide is what a UD queue pair has beyond a raw one.
type udSide struct {
	qkey, psn   uint32
	blockSelfLB bool
	ways        [waysPerQP]way
	rows        [waysPerQP]proto.Row // what the start of a way says, when its row is set
}

// wayOf gives what frames to the WQE's address begin with, and its place. It stays until the next call.
func (n *NIC) wayOf(q *qp, av *ring.AV) (*way, uint8) {
	addr := av.Addr()
	at := wayPlace(addr)
	w := &q.ud.ways[at]
	if !sameAddr(&w.av, addr) {
		n.makeWay(q, av, w)
	}
	return w, at
}

// wayPlace gives an address's place from bytes that differ between addresses: those of the GID, and the source port.
func wayPlace(addr *[ring.AVAddrBytes]byte) uint8 {
	return (addr[len(addr)-1] ^ addr[3] ^ addr[len(addr)-3]) & (waysPerQP - 1)
}

// makeWay fills w from an address. The source port is the address's, or else the one that kernel rxe gives the
// queue pair; a medium that has one of its own decides.
func (n *NIC) makeWay(q *qp, av *ring.AV, w *way) {
	f := av.Fields()
	*w = way{av: *av.Addr(), where: toNowhere}
	if int(f.SGIDIndex) >= len(n.gids) {
		return
	}
	from, to := proto.GID(n.gids[f.SGIDIndex].GID), proto.GID(f.GID)
	if from.IsIPv4() != to.IsIPv4() || to == (proto.GID{}) {
		return
	}
	switch {
	case to.IsMulticast():
		w.where = toGroup
	case n.ownGID(&f.GID) >= 0:
		w.where = toSelf
	default:
		w.where = toWire
	}
	port := f.SrcPort
	if port == 0 {
		port = proto.QPPort(q.qpn)
	}
	if n.info.SrcPort != 0 {
		port = n.info.SrcPort
	}
	h := w.head[:]
	copy(h, f.MAC[:])
	copy(h[6:], n.info.MAC[:])
	ip := h[proto.EthernetBytes:]
	if to.IsIPv4() {
		binary.BigEndian.PutUint16(h[12:], proto.EtherTypeIPv4)
		ip[0], ip[1] = 0x45, f.TClass
		ip[6] = 0x40 // DF
		ip[8], ip[9] = f.HopLimit, proto.ProtoUDP
		copy(ip[12:], from[12:])
		copy(ip[16:], to[12:])
		for i := 0; i < proto.IPv4Bytes; i += 2 {
			w.sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		ip = ip[proto.IPv4Bytes:]
		w.n = proto.EthernetBytes + ipv4Head
	} else {
		binary.BigEndian.PutUint16(h[12:], proto.EtherTypeIPv6)
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(f.TClass)<<20|f.FlowLabel)
		ip[6], ip[7] = proto.ProtoUDP, f.HopLimit
		copy(ip[8:], from[:])
		copy(ip[24:], to[:])
		ip = ip[proto.IPv6Bytes:]
		w.n = proto.EthernetBytes + ipv6Head
	}
	binary.BigEndian.PutUint16(ip, port)
	binary.BigEndian.PutUint16(ip[2:], proto.RoCEPort)
}

// putHead writes the headers in front of the BTH of a frame of that length.
func (w *way) putHead(h []byte, length int) {
	h = h[:w.n]
	copySmall(h, w.head[:len(h)])
	if w.n == proto.EthernetBytes+ipv4Head {
		total := uint32(length - proto.EthernetBytes)
		sum := w.sum + total
		sum = sum&0xffff + sum>>16
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(h[16:], uint16(total))
		binary.BigEndian.PutUint16(h[24:], ^uint16(sum))
		binary.BigEndian.PutUint16(h[38:], uint16(total-proto.IPv4Bytes))
		return
	}
	total := uint16(length - proto.EthernetBytes - proto.IPv6Bytes)
	binary.BigEndian.PutUint16(h[18:], total)
	binary.BigEndian.PutUint16(h[58:], total)
}

// roceFrame is where the parts of a received RoCE v2 packet stand in its frame.
type roceFrame struct {
	l3, l4, end int // IP header, UDP header, end of the UDP payload
	payload     int
	head        []byte // the IP header
	version     uint8  // of IP
	ud          proto.UD
}

// isRoCE reports whether a frame is RoCE v2 for this NIC: to UDP port 4791, not a fragment, no VLAN tag but a
// priority tag, and sent to the NIC's MAC or a group's. l3 is where its IP header
// begins. Whether it is a good one is for roceFrame.parse to say.
func (n *NIC) isRoCE(frame []byte) (l3 int, ok bool) {
	if len(frame) < ethernetHeader {
		return 0, false
	}
	l3 = proto.EthernetBytes
	et := binary.BigEndian.Uint16(frame[12:])
	if et == proto.EtherTypeVLAN && len(frame) >= l3+proto.VLANBytes && frame[14]&0x0f == 0 && frame[15] == 0 {
		et = binary.BigEndian.Uint16(frame[16:])
		l3 += proto.VLANBytes
	}
	ip := frame[l3:]
	l4 := proto.IPv6Bytes
	switch {
	case et == proto.EtherTypeIPv4 && len(ip) >= ipv4Head:
		l4 = int(ip[0]&15) * 4
		if ip[9] != proto.ProtoUDP || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || l4 < proto.IPv4Bytes || len(ip) < l4+proto.UDPBytes {
			return 0, false
		}
	case et == proto.EtherTypeIPv6 && len(ip) >= ipv6Head:
		if ip[6] != proto.ProtoUDP {
			return 0, false
		}
	default:
		return 0, false
	}
	return l3, binary.BigEndian.Uint16(ip[l4+2:]) == proto.RoCEPort &&
		(frame[0]&1 != 0 || [6]byte(frame[:6]) == n.info.MAC || n.info.UDPOnly)
}

// parse finds the parts of a frame that isRoCE has found, and judges its lengths. A packet that is no datagram
// passes as far as its BTH goes: only the opcode is valid then, and payload is 0.
func (r *roceFrame) parse(frame []byte, l3 int) bool {
	r.l3, r.payload = l3, 0
	ip := frame[l3:]
	total := 0
	switch r.version = ip[0] >> 4; {
	case ip[0] == 0x45 && frame[l3-2] == 0x08:
		total, r.l4 = int(binary.BigEndian.Uint16(ip[2:])), l3+proto.IPv4Bytes
	case r.version == 6 && frame[l3-2] == 0x86:
		total, r.l4 = int(binary.BigEndian.Uint16(ip[4:]))+proto.IPv6Bytes, l3+proto.IPv6Bytes
	default:
		return false
	}
	r.end, r.head = l3+total, frame[l3:r.l4]
	if r.end > len(frame) || r.end-r.l4 < proto.UDPBytes+proto.BTHBytes+proto.ICRCBytes {
		return false
	}
	udp := frame[r.l4:r.end]
	if int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
		return false
	}
	b := udp[proto.UDPBytes : len(udp)-proto.ICRCBytes]
	off, ok := proto.ParseUD(b, &r.ud)
	if !ok {
		return r.ud.Opcode != proto.OpUDSend && r.ud.Opcode != proto.OpUDSendImm && (r.ud.Opcode != proto.OpCNP || len(b) >= cnpBytes)
	}
	r.payload = r.l4 + proto.UDPBytes + off
	return r.payload+int(r.ud.Pad)+proto.ICRCBytes <= r.end
}

// cnpBytes is a congestion notification: a BTH and 16 reserved bytes.
const cnpBytes = proto.BTHBytes + 16

// kind gives what a CQE says of the packet.
func (r *roceFrame) kind() uint8 {
	if r.version == 6 {
		return ring.GRHInBuffer | ring.RoCEv2IPv6
	}
	return ring.GRHInBuffer | ring.RoCEv2IPv4
}

// length gives the bytes of the payload.
func (r *roceFrame) length() int { return r.end - proto.ICRCBytes - int(r.ud.Pad) - r.payload }

// dest gives the address that the packet was sent to.
func (r *roceFrame) dest() (g engine.GID) {
	if r.version == 4 {
		return engine.GID{10: 0xff, 11: 0xff, 12: r.head[16], 13: r.head[17], 14: r.head[18], 15: r.head[19]}
	}
	return engine.GID(r.head[24:40])
}

// putGRH writes what stands in front of a datagram received: the IPv6 header, or zeros and the IPv4 header (E-03,
// E-04; the zeros as kernel rxe writes them). ip begins with the header, whose version kind says.
func putGRH(to *[grhArea]byte, ip []byte, kind uint8) {
	if kind == ring.GRHInBuffer|ring.RoCEv2IPv6 {
		copySmall(to[:], ip[:proto.IPv6Bytes])
		return
	}
	*(*[16]byte)(to[0:]) = [16]byte{}
	*(*[4]byte)(to[16:]) = [4]byte{}
	*(*[proto.IPv4Bytes]byte)(to[grhArea-proto.IPv4Bytes:]) = *(*[proto.IPv4Bytes]byte)(ip)
}
