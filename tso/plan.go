package tso

import (
	"encoding/binary"
	"fmt"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// Cause says why a packet is not cut.
type Cause uint8

// The causes. Value and Limit of a Refusal are what they name.
const (
	CauseShort    Cause = iota // header bytes; what its parts need
	CauseMSS                   // MSS; 1 at least
	CausePayload               // payload bytes below 0
	CauseType                  // EtherType that is not IP
	CauseVersion               // IP version that contradicts the EtherType
	CauseFragment              // fragment word of an IPv4 header, or an IPv6 fragment header
	CauseProtocol              // protocol that is not TCP or UDP, or an extension header that is not passed
	CauseRouted                // segments left of an IPv6 routing header
	CauseOffset                // bytes of a TCP header by its own word; 20 at least
	CauseTrailing              // header bytes; where the TCP or UDP header ends
	CauseLength                // a segment's IP length; what the field holds
	CauseFlags                 // TCP flags that stand for one segment only: SYN, RST, URG
	numCauses
)

var causeText = [numCauses]string{
	"header of %d bytes, want %d",
	"MSS %d, want at least %d",
	"payload of %d bytes, want at least %d",
	"EtherType 0x%04x is not IP",
	"IP version %d, want %d",
	"a fragment (0x%04x)",
	"protocol %d, want TCP or UDP",
	"an IPv6 routing header with %d segments left",
	"a TCP header of %d bytes, want at least %d",
	"header of %d bytes, the TCP or UDP header ends at %d",
	"a segment of %d bytes, IP holds %d",
	"TCP flags 0x%02x in more than one segment",
}

// Refusal is the error of a packet that is not cut: it names value and limit.
type Refusal struct {
	Cause        Cause
	Value, Limit int
}

// Error says what was wrong, with value and limit.
func (r *Refusal) Error() string {
	if r.Cause >= numCauses {
		return fmt.Sprintf("tso: cause %d", r.Cause)
	}
	switch r.Cause {
	case CauseType, CauseFragment, CauseProtocol, CauseRouted, CauseFlags:
		return "tso: " + fmt.Sprintf(causeText[r.Cause], r.Value)
	}
	return "tso: " + fmt.Sprintf(causeText[r.Cause], r.Value, r.Limit)
}

const (
	maxIPBytes = 65535
	etherOldQ  = 0x9100
	maxTags    = 8

	flagFIN, flagPSH, flagCWR = 0x01, 0x08, 0x80
	flagsOnce                 = 0x02 | 0x04 | 0x20 // SYN, RST, URG
)

// Plan is a packet proven segmentable. The zero Plan has no segments. Any number
// of goroutines may use a made Plan.
type Plan struct {
	// KeepL3 and KeepL4, set after Make, leave the IPv4 header's checksum and the
	// TCP or UDP checksum as the header has them: stale, as a card leaves them that
	// was not asked for checksums.
	KeepL3, KeepL4 bool

	v6, udp bool
	word    uint16 // TCP: data offset and flags
	id      uint16 // IPv4
	header  int
	l3, l4  int
	payload int
	mss     int
	count   int
	seq     uint32
	ipSum   uint32 // of the IPv4 header without length, identification, checksum
	l4Sum   uint32 // of addresses, protocol and L4 header without what differs from segment to segment

	// Of the segments between first and last: the header, if it is that short, and
	// ipSum and l4Sum with all that is the same in them.
	inner            [128]byte
	innerIP, innerL4 uint32
}

// Make judges header, the Ethernet, IP and TCP or UDP header of a packet without
// its payload, for a payload of that many bytes in pieces of mss. The lengths and
// checksums in the header are of no account. header is not kept. An error is a
// *Refusal, and the Plan then has no segments.
func (p *Plan) Make(header []byte, payload, mss int) error {
	*p = Plan{header: len(header), payload: payload, mss: mss}
	r := p.make(header)
	if r.Limit < 0 {
		p.ready(header)
		return nil
	}
	p.count = 0
	err := new(Refusal) // not &r, which would allocate in every call
	*err = r
	return err
}

// fine is the Refusal of what is not refused.
var fine = Refusal{Limit: -1}

func (p *Plan) make(header []byte) Refusal {
	switch {
	case p.mss < 1:
		return Refusal{CauseMSS, p.mss, 1}
	case p.payload < 0:
		return Refusal{CausePayload, p.payload, 0}
	case len(header) < proto.EthernetBytes:
		return Refusal{CauseShort, len(header), proto.EthernetBytes}
	}
	p.count = max(1, (p.payload-1)/p.mss+1)
	etherType, off := binary.BigEndian.Uint16(header[12:]), proto.EthernetBytes
	for tags := 0; tags < maxTags && (etherType == proto.EtherTypeVLAN || etherType == proto.EtherTypeQinQ || etherType == etherOldQ); tags++ {
		if len(header) < off+proto.VLANBytes {
			return Refusal{CauseShort, len(header), off + proto.VLANBytes}
		}
		etherType = binary.BigEndian.Uint16(header[off+2:])
		off += proto.VLANBytes
	}
	p.l3 = off
	var next uint8
	var r Refusal
	switch etherType {
	case proto.EtherTypeIPv4:
		next, r = p.takeIPv4(header)
	case proto.EtherTypeIPv6:
		next, r = p.takeIPv6(header)
	default:
		return Refusal{CauseType, int(etherType), 0}
	}
	if r.Limit >= 0 {
		return r
	}
	switch next {
	case proto.ProtoTCP:
		return p.takeTCP(header)
	case proto.ProtoUDP:
		return p.takeUDP(header)
	}
	return Refusal{CauseProtocol, int(next), 0}
}

func (p *Plan) takeIPv4(header []byte) (next uint8, r Refusal) {
	ip := header[p.l3:]
	if len(ip) < proto.IPv4Bytes {
		return 0, Refusal{CauseShort, len(header), p.l3 + proto.IPv4Bytes}
	}
	if v := ip[0] >> 4; v != 4 {
		return 0, Refusal{CauseVersion, int(v), 4}
	}
	size := int(ip[0]&15) * 4
	if size < proto.IPv4Bytes || len(ip) < size {
		return 0, Refusal{CauseShort, len(header), p.l3 + max(size, proto.IPv4Bytes)}
	}
	if w := binary.BigEndian.Uint16(ip[6:]); w&0x3fff != 0 {
		return 0, Refusal{CauseFragment, int(w), 0}
	}
	p.l4, p.id, next = p.l3+size, binary.BigEndian.Uint16(ip[4:]), ip[9]
	addresses := uint64(binary.BigEndian.Uint32(ip[12:])) + uint64(binary.BigEndian.Uint32(ip[16:]))
	others := uint64(binary.BigEndian.Uint16(ip)) + uint64(binary.BigEndian.Uint16(ip[6:])) + uint64(binary.BigEndian.Uint16(ip[8:]))
	p.ipSum = csum.Sum(ip[20:size], uint32(csum.Fold64(addresses+others)))
	p.l4Sum = uint32(csum.Fold64(addresses + uint64(next)))
	return next, p.checkLength(header, p.l3)
}

func (p *Plan) takeIPv6(header []byte) (next uint8, r Refusal) {
	ip := header[p.l3:]
	if len(ip) < proto.IPv6Bytes {
		return 0, Refusal{CauseShort, len(header), p.l3 + proto.IPv6Bytes}
	}
	if v := ip[0] >> 4; v != 6 {
		return 0, Refusal{CauseVersion, int(v), 6}
	}
	p.v6, next = true, ip[6]
	p.l4 = p.l3 + proto.IPv6Bytes
	for next == proto.ProtoHopByHop || next == proto.ProtoRouting || next == proto.ProtoDestOpts {
		x := header[p.l4:]
		if len(x) < 8 || len(x) < 8+8*int(x[1]) {
			return 0, Refusal{CauseShort, len(header), p.l4 + 8}
		}
		if next == proto.ProtoRouting && x[3] != 0 {
			return 0, Refusal{CauseRouted, int(x[3]), 0} // the checksum's destination is the last one's
		}
		next = x[0]
		p.l4 += 8 + 8*int(x[1])
	}
	if next == proto.ProtoFragment {
		return 0, Refusal{CauseFragment, int(next), 0}
	}
	p.l4Sum = csum.Sum(ip[8:40], uint32(next))
	return next, p.checkLength(header, p.l3+proto.IPv6Bytes)
}

// checkLength checks that the longest segment's IP length, which counts from from, fits its field.
func (p *Plan) checkLength(header []byte, from int) Refusal {
	if n := len(header) - from + min(p.mss, p.payload); n > maxIPBytes {
		return Refusal{CauseLength, n, maxIPBytes}
	}
	return fine
}

func (p *Plan) takeTCP(header []byte) Refusal {
	if len(header) < p.l4+proto.TCPBytes {
		return Refusal{CauseShort, len(header), p.l4 + proto.TCPBytes}
	}
	t := header[p.l4:]
	p.word, p.seq = binary.BigEndian.Uint16(t[12:]), binary.BigEndian.Uint32(t[4:])
	size := int(t[12]>>4) * 4
	switch {
	case size < proto.TCPBytes:
		return Refusal{CauseOffset, size, proto.TCPBytes}
	case len(t) < size:
		return Refusal{CauseShort, len(header), p.l4 + size}
	case len(t) > size:
		return Refusal{CauseTrailing, len(header), p.l4 + size}
	case p.count > 1 && p.word&flagsOnce != 0:
		return Refusal{CauseFlags, int(p.word & 0xff), 0}
	}
	stays := uint64(binary.BigEndian.Uint32(t)) + uint64(binary.BigEndian.Uint32(t[8:])) + // ports, acknowledgement,
		uint64(binary.BigEndian.Uint16(t[14:])) + uint64(binary.BigEndian.Uint16(t[18:])) // window, urgent pointer
	p.l4Sum = csum.Sum(t[20:], uint32(csum.Fold64(uint64(p.l4Sum)+stays)))
	return fine
}

func (p *Plan) takeUDP(header []byte) Refusal {
	end := p.l4 + proto.UDPBytes
	switch {
	case len(header) < end:
		return Refusal{CauseShort, len(header), end}
	case len(header) > end:
		return Refusal{CauseTrailing, len(header), end}
	}
	p.udp = true
	p.l4Sum = uint32(csum.Fold64(uint64(p.l4Sum) + uint64(binary.BigEndian.Uint32(header[p.l4:]))))
	return fine
}

// Segments is how many there are: one even without payload.
func (p *Plan) Segments() int { return p.count }

// MaxFrame is the length of the longest segment's frame, without FCS.
func (p *Plan) MaxFrame() int { return p.header + min(p.mss, p.payload) }

// FrameBytes is the sum of the lengths of all frames.
func (p *Plan) FrameBytes() int { return p.count*p.header + p.payload }
