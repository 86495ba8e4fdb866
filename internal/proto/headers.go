package proto

import "encoding/binary"

// EtherTypes.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
	EtherTypeVLAN = 0x8100 // 802.1Q
	EtherTypeQinQ = 0x88a8 // 802.1ad
	etherTypeOldQ = 0x9100 // QinQ before 802.1ad
)

// IP protocol numbers, those of IPv6 extension headers among them.
const (
	ProtoHopByHop = 0
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoAH       = 51
	ProtoDestOpts = 60
	protoMobility = 135
	protoHIP      = 139
	protoShim6    = 140
)

// Sizes of headers without options, in bytes.
const (
	EthernetBytes = 14
	VLANBytes     = 4
	IPv4Bytes     = 20
	IPv6Bytes     = 40
	UDPBytes      = 8
	TCPBytes      = 20
	maxVLANs      = 8
)

// Status says how far Parse came.
type Status uint8

// The ways a frame can be understood. Only OK has ports and a payload.
const (
	OK        Status = iota // TCP or UDP whole; of a fragment only the first is
	Short                   // no whole link header
	NotIP                   // another EtherType
	BadIP                   // an IP header that is cut or contradicts itself
	Truncated               // the IP length passes the frame's end
	NotL4                   // IP, but neither TCP nor UDP, or not the first fragment
	BadL4                   // a TCP or UDP header that is cut or contradicts itself
)

var statusNames = [...]string{"ok", "short", "not IP", "bad IP", "truncated", "not TCP or UDP", "bad TCP or UDP"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}

// Headers is what Parse found. Offsets count from the frame's start and are 0
// where there is nothing.
type Headers struct {
	L2Len      int // Ethernet header with VLAN tags
	L3Off      int // IP header; equals L2Len
	L4Off      int // behind the IP header and its extensions
	PayloadOff int // behind the TCP or UDP header
	PayloadEnd int // where the IP length says; set for every good IP header

	SrcOff, DstOff, AddrLen int // addresses in the frame, 4 or 16 bytes

	EtherType        uint16    // behind the last VLAN tag
	VLAN             [2]uint16 // tag control words, the outermost first
	VLANs            int       // how many tags; two are kept
	SrcPort, DstPort uint16    // of TCP, UDP
	IPVersion        uint8     // 4, 6, or 0
	L4Proto          uint8     // behind IPv6 extension headers
	Fragment         bool      // a part of a datagram, the first part too
	Routed           bool      // IPv6 routing header with segments left: the checksum's address is not in DstOff
	Status           Status
}

// Parse fills all of h from an Ethernet frame without FCS. False means that
// there is not even a link header; h.Status says how far it came otherwise.
func Parse(frame []byte, h *Headers) bool {
	return parseUsual(frame, h) || parse(frame, h)
}

// What parse finds in the usual frames, but for lengths, ports, and what differs in TCP: no VLAN tag, no IP options or
// extension headers, no fragment. Written whole, it costs a third of the fields one by one.
var (
	usualIPv4 = Headers{L2Len: 14, L3Off: 14, L4Off: 34, PayloadOff: 42, SrcOff: 26, DstOff: 30, AddrLen: 4,
		EtherType: EtherTypeIPv4, IPVersion: 4, L4Proto: ProtoUDP, Status: OK}
	usualIPv6 = Headers{L2Len: 14, L3Off: 14, L4Off: 54, PayloadOff: 62, SrcOff: 22, DstOff: 38, AddrLen: 16,
		EtherType: EtherTypeIPv6, IPVersion: 6, L4Proto: ProtoUDP, Status: OK}
)

// parseUsual is parse for the usual frames, and says whether this is one.
func parseUsual(frame []byte, h *Headers) bool {
	if len(frame) < 42 {
		return false
	}
	var end, l4 int
	var next uint8
	switch w := binary.BigEndian.Uint64(frame[12:]); { // EtherType, version, and the IP header on to its byte 5
	case w>>40 == EtherTypeIPv4<<8|0x45 && binary.BigEndian.Uint16(frame[20:])&0x3fff == 0:
		end, l4, next = 14+int(uint16(w>>16)), 34, frame[23]
	case w>>44 == EtherTypeIPv6<<4|6:
		end, l4, next = 54+int(binary.BigEndian.Uint16(frame[18:])), 54, frame[20]
	default:
		return false
	}
	if end > len(frame) || end < l4+UDPBytes {
		return false
	}
	ports := binary.BigEndian.Uint32(frame[l4:])
	switch {
	case next == ProtoUDP:
		if l4 == 34 {
			*h = usualIPv4
		} else {
			*h = usualIPv6
		}
	case next == ProtoTCP && end >= l4+TCPBytes:
		n := int(frame[l4+12]>>4) * 4
		if n < TCPBytes || n > end-l4 {
			return false
		}
		if *h = usualIPv4; l4 != 34 {
			*h = usualIPv6
		}
		h.L4Proto, h.PayloadOff = ProtoTCP, l4+n
	default:
		return false
	}
	h.PayloadEnd, h.SrcPort, h.DstPort = end, uint16(ports>>16), uint16(ports)
	return true
}

// parse is Parse for every frame.
func parse(frame []byte, h *Headers) bool {
	*h = Headers{}
	h.Status = Short
	if len(frame) < EthernetBytes {
		return false
	}
	off := EthernetBytes
	et := binary.BigEndian.Uint16(frame[12:])
	for (et == EtherTypeVLAN || et == EtherTypeQinQ || et == etherTypeOldQ) && h.VLANs < maxVLANs {
		if len(frame) < off+VLANBytes {
			return false
		}
		if h.VLANs < len(h.VLAN) {
			h.VLAN[h.VLANs] = binary.BigEndian.Uint16(frame[off:])
		}
		h.VLANs++
		et = binary.BigEndian.Uint16(frame[off+2:])
		off += VLANBytes
	}
	h.EtherType, h.L2Len, h.L3Off = et, off, off
	switch et {
	case EtherTypeIPv4:
		h.parseIPv4(frame)
	case EtherTypeIPv6:
		h.parseIPv6(frame)
	default:
		h.Status = NotIP
	}
	return true
}

// Payload is the L4 payload of a whole TCP or UDP datagram. False for all
// else, fragments included.
func (h *Headers) Payload(frame []byte) ([]byte, bool) {
	if h.Status != OK || h.Fragment || h.PayloadOff > h.PayloadEnd || h.PayloadEnd > len(frame) {
		return nil, false
	}
	return frame[h.PayloadOff:h.PayloadEnd], true
}

func (h *Headers) parseIPv4(frame []byte) {
	h.Status = BadIP
	ip := frame[h.L3Off:]
	if len(ip) < IPv4Bytes || ip[0]>>4 != 4 {
		return
	}
	ihl, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ihl < IPv4Bytes || total < ihl || len(ip) < ihl {
		return
	}
	h.IPVersion, h.L4Proto = 4, ip[9]
	h.SrcOff, h.DstOff, h.AddrLen = h.L3Off+12, h.L3Off+16, 4
	h.PayloadEnd = h.L3Off + total
	if total > len(ip) {
		h.PayloadEnd, h.Status = 0, Truncated
		return
	}
	flags := binary.BigEndian.Uint16(ip[6:])
	h.Fragment = flags&0x3fff != 0 // more fragments, or an offset
	if flags&0x1fff != 0 {
		h.Status = NotL4
		return
	}
	h.parseL4(frame, h.L3Off+ihl)
}

func (h *Headers) parseIPv6(frame []byte) {
	h.Status = BadIP
	ip := frame[h.L3Off:]
	if len(ip) < IPv6Bytes || ip[0]>>4 != 6 {
		return
	}
	end := h.L3Off + IPv6Bytes + int(binary.BigEndian.Uint16(ip[4:]))
	h.IPVersion, h.L4Proto = 6, ip[6]
	h.SrcOff, h.DstOff, h.AddrLen = h.L3Off+8, h.L3Off+24, 16
	if end > len(frame) {
		h.Status = Truncated
		return
	}
	h.PayloadEnd = end
	off := h.L3Off + IPv6Bytes
	for {
		b := frame[off:end]
		length := 0
		switch h.L4Proto {
		case ProtoHopByHop, ProtoRouting, ProtoDestOpts, protoMobility, protoHIP, protoShim6:
			if len(b) >= 8 {
				length = 8 + 8*int(b[1])
				h.Routed = h.Routed || h.L4Proto == ProtoRouting && b[3] != 0
			}
		case ProtoAH:
			if len(b) >= 8 {
				length = 8 + 4*int(b[1])
			}
		case ProtoFragment:
			if len(b) >= 8 {
				length = 8
				h.Fragment = h.Fragment || binary.BigEndian.Uint16(b[2:])&0xfff9 != 0
			}
		default:
			h.parseL4(frame, off)
			return
		}
		if length == 0 || length > len(b) {
			return // BadIP
		}
		next := b[0]
		if h.L4Proto == ProtoFragment && binary.BigEndian.Uint16(b[2:])>>3 != 0 {
			h.L4Proto, h.Status = next, NotL4
			return
		}
		h.L4Proto = next
		off += length
	}
}

func (h *Headers) parseL4(frame []byte, off int) {
	h.L4Off = off
	l4 := frame[off:h.PayloadEnd]
	switch h.L4Proto {
	case ProtoUDP:
		h.Status = BadL4
		if len(l4) < UDPBytes {
			return
		}
		h.PayloadOff = off + UDPBytes
	case ProtoTCP:
		h.Status = BadL4
		if len(l4) < TCPBytes {
			return
		}
		n := int(l4[12]>>4) * 4
		if n < TCPBytes || n > len(l4) && !h.Fragment {
			return
		}
		h.PayloadOff = off + n
	default:
		h.Status = NotL4
		return
	}
	h.SrcPort, h.DstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	h.Status = OK
}
