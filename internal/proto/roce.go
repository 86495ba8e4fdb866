package proto

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// RoCEPort is the UDP destination port of RoCEv2 (InfiniBand Architecture Release 1.4, annex A17).
const RoCEPort = 4791

// BTH opcodes. The upper three bits name the transport: those of UD are 0x60.
const (
	OpUDSend    = 0x64 // SEND_ONLY of UD
	OpUDSendImm = 0x65 // SEND_ONLY_WITH_IMMEDIATE of UD
	OpCNP       = 0x81 // congestion notification, RoCEv2 annex A17.9.4
)

// Sizes of RoCEv2 headers and the trailing invariant CRC, in bytes.
const (
	BTHBytes   = 12
	DETHBytes  = 8
	ImmDtBytes = 4
	ICRCBytes  = 4
	MaxRoCEMTU = 4096
	minRoCEMTU = 256
	roceMTUTax = 80 // headers that Linux' rxe takes off the interface's MTU
	low24      = 1<<24 - 1
)

// MulticastQPN is the destination QPN of a datagram to a multicast group.
const MulticastQPN = low24

// UD is the transport header of a UD datagram: BTH, DETH and, with HasImm, ImmDt. QPNs and PSN have 24 bits.
//
//	0      1                 2      4          5     8    9     12     16   17     20     24
//	| op | SE M pad2 ver4 | P_Key | FECN BECN | QPN | Ack | PSN | Q_Key | 0 | srcQP | Imm |
type UD struct {
	Opcode            uint8 // OpUDSend, OpUDSendImm
	Pad               uint8 // bytes of zero between payload and ICRC, 0 to 3
	Version           uint8 // header version, 0
	Solicited, MigReq bool
	HasImm            bool
	PKey              uint16
	DestQP            uint32
	PSN               uint32
	QKey              uint32
	SrcQP             uint32
	Imm               uint32 // as it stands on the wire, read big-endian
}

// Put writes the header into b and returns its length, 20 or 24. FECN, BECN, AckReq and the reserved bits are 0.
func (u *UD) Put(b []byte) int {
	_ = b[BTHBytes+DETHBytes-1]
	flags := u.Pad&3<<4 | u.Version&15
	if u.Solicited {
		flags |= 0x80
	}
	if u.MigReq {
		flags |= 0x40
	}
	binary.BigEndian.PutUint32(b, uint32(u.Opcode)<<24|uint32(flags)<<16|uint32(u.PKey))
	binary.BigEndian.PutUint32(b[4:], u.DestQP&low24)
	binary.BigEndian.PutUint32(b[8:], u.PSN&low24)
	binary.BigEndian.PutUint32(b[12:], u.QKey)
	binary.BigEndian.PutUint32(b[16:], u.SrcQP&low24)
	if !u.HasImm {
		return BTHBytes + DETHBytes
	}
	binary.BigEndian.PutUint32(b[20:], u.Imm)
	return BTHBytes + DETHBytes + ImmDtBytes
}

// ParseUD reads the header at the start of a UDP payload and returns where the datagram's payload begins. With 12
// bytes or more the fields of the BTH are filled; ok is false unless it is one of the two UD opcodes and its headers
// are whole. Version and keys are for the caller to judge, and so is whether pad and ICRC have room behind.
func ParseUD(b []byte, u *UD) (payloadOff int, ok bool) {
	*u = UD{}
	if len(b) < BTHBytes {
		return 0, false
	}
	w := binary.BigEndian.Uint32(b)
	u.Opcode, u.PKey = uint8(w>>24), uint16(w)
	u.Solicited, u.MigReq = w&0x800000 != 0, w&0x400000 != 0
	u.Pad, u.Version = uint8(w>>20)&3, uint8(w>>16)&15
	u.DestQP = binary.BigEndian.Uint32(b[4:]) & low24
	u.PSN = binary.BigEndian.Uint32(b[8:]) & low24
	if u.Opcode != OpUDSend && u.Opcode != OpUDSendImm || len(b) < BTHBytes+DETHBytes {
		return 0, false
	}
	u.QKey = binary.BigEndian.Uint32(b[12:])
	u.SrcQP = binary.BigEndian.Uint32(b[16:]) & low24
	if u.Opcode == OpUDSend {
		return BTHBytes + DETHBytes, true
	}
	if len(b) < BTHBytes+DETHBytes+ImmDtBytes {
		return 0, false
	}
	u.HasImm, u.Imm = true, binary.BigEndian.Uint32(b[20:])
	return BTHBytes + DETHBytes + ImmDtBytes, true
}

// The fields that the ICRC takes as ones, as the machine reads them from the frame.
var (
	maskIPv4Lo = binary.LittleEndian.Uint64([]byte{0, 0xff, 0, 0, 0, 0, 0, 0})       // TOS
	maskIPv4Hi = binary.LittleEndian.Uint64([]byte{0xff, 0, 0xff, 0xff, 0, 0, 0, 0}) // TTL, header checksum
	maskIPv6   = binary.LittleEndian.Uint64([]byte{0x0f, 0xff, 0xff, 0xff, 0, 0, 0, 0xff})
	maskUDP    = binary.LittleEndian.Uint64([]byte{0xff, 0xff, 0, 0, 0, 0, 0xff, 0}) // from the UDP checksum on
)

// icrcStart is the CRC of the eight bytes of ones that stand for the masked LRH.
const icrcStart = 0x2144df1c

// ICRC is the invariant CRC of a RoCEv2 packet: the CRC-32 of Ethernet over eight bytes of ones and over l3[:end],
// with the fields that routers change taken as ones (TOS or traffic class and flow label, TTL or hop limit, IPv4
// header checksum, UDP checksum, the BTH's byte of congestion bits). l3 begins at the IP header, l4Off is where the
// UDP header stands in it, end where the ICRC does, at least l4Off+20. PutICRC and LoadICRC know its byte order.
//
// The fields are masked in l3 itself and put back before ICRC returns: nobody else may look at it meanwhile.
func ICRC(l3 []byte, ipVersion uint8, l4Off, end int) uint32 {
	var lo, hi uint64
	l4 := l3[l4Off+6 : l4Off+14]
	mid := binary.LittleEndian.Uint64(l4)
	ip := l3[:16]
	lo, hi = binary.LittleEndian.Uint64(ip), binary.LittleEndian.Uint64(ip[8:])
	if ipVersion == 6 {
		binary.LittleEndian.PutUint64(ip, lo|maskIPv6)
	} else {
		binary.LittleEndian.PutUint64(ip, lo|maskIPv4Lo)
		binary.LittleEndian.PutUint64(ip[8:], hi|maskIPv4Hi)
	}
	binary.LittleEndian.PutUint64(l4, mid|maskUDP)
	crc := update(icrcStart, l3[:end])
	binary.LittleEndian.PutUint64(l4, mid)
	binary.LittleEndian.PutUint64(ip, lo)
	binary.LittleEndian.PutUint64(ip[8:], hi)
	return crc
}

// ICRCRest goes on with an ICRC whose first part was ICRC over l3 up to an earlier end, behind the masked fields. b is
// what follows there; its length is a multiple of 4, as those of all parts of a RoCEv2 packet are.
//
// Without a kernel the bulk goes to hash/crc32, which takes 16 bytes at once from 64 on; it would take what is left byte
// by byte.
func ICRCRest(crc uint32, b []byte) uint32 {
	if kernel && len(b) >= leastKernel {
		return ^crcAVX512(^crc, &b[0], len(b))
	}
	return icrcRest(crc, b)
}

func icrcRest(crc uint32, b []byte) uint32 {
	if n := len(b) &^ 15; n >= 64 {
		crc = crc32.Update(crc, crc32.IEEETable, b[:n])
		b = b[n:]
	}
	crc = ^crc
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b) ^ uint64(crc)
		crc = behind[7][v&0xff] ^ behind[6][v>>8&0xff] ^ behind[5][v>>16&0xff] ^ behind[4][v>>24&0xff] ^
			behind[3][v>>32&0xff] ^ behind[2][v>>40&0xff] ^ behind[1][v>>48&0xff] ^ behind[0][v>>56]
		b = b[8:]
	}
	if len(b) >= 4 {
		crc ^= binary.LittleEndian.Uint32(b)
		crc = behind[3][crc&0xff] ^ behind[2][crc>>8&0xff] ^ behind[1][crc>>16&0xff] ^ behind[0][crc>>24]
	}
	return ^crc
}

// ICRCOfPSN is what a PSN adds to the ICRC of a packet that was counted with PSN 0 and as far as the end of its DETH: a
// CRC is linear.
func ICRCOfPSN(psn uint32) uint32 {
	const k = DETHBytes
	return behind[k][psn&0xff] ^ behind[k+1][psn>>8&0xff] ^ behind[k+2][psn>>16&0xff]
}

// behind[k][v] is the CRC's state after byte v and k bytes of zero.
var behind = tablesBehind()

func tablesBehind() (t [DETHBytes + 3][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for v, c := range t[k-1] {
			t[k][v] = c>>8 ^ t[0][c&0xff]
		}
	}
	return t
}

// PutICRC writes an ICRC as it goes over the wire, the least significant byte first.
func PutICRC(b []byte, icrc uint32) { binary.LittleEndian.PutUint32(b, icrc) }

// LoadICRC reads an ICRC from the wire.
func LoadICRC(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// ipv4IDOff is where the identification stands in an IPv4 header.
const ipv4IDOff = 4

// ICRCAnyID answers for an IPv4 packet whose identification was lost on its way, as a UDP socket loses it: is there
// one that makes the ICRC right? computed is ICRC of the packet as it lies in l3, with any identification in it, wire
// the one that arrived, end what ICRC was given. A CRC is linear, so the difference of the two is that of the
// identifications, moved on by the bytes behind them; it is moved back and must then fit 16 bits. One damaged packet
// in 65,536 passes.
func ICRCAnyID(l3 []byte, end int, computed, wire uint32) (id uint16, ok bool) {
	d := computed ^ wire
	if d != 0 {
		if d = crcMul(d, backward.at(end-ipv4IDOff)); d > 0xffff {
			return 0, false
		}
	}
	return binary.BigEndian.Uint16(l3[ipv4IDOff:]) ^ uint16(d<<8|d>>8), true
}

// ICRCIDBits gives for each of the eight low bits of an IPv4 identification what flipping it changes in the ICRC of a
// packet, end being what ICRC would be given.
func ICRCIDBits(end int) (bits [8]uint32) {
	p := ICRCBehind(1<<15, end-ipv4IDOff) // of the bit 7, the last of the two bytes in the order of this CRC
	for i := len(bits) - 1; i >= 0; i-- {
		bits[i] = p
		p = crcTimesX(p)
	}
	return bits
}

// ICRCBehind is what a difference of two ICRCs becomes when n more bytes, up to 65,535 and the same in both packets,
// stand behind. The ICRC of a packet that differs from another in one place is the other's with this applied.
func ICRCBehind(d uint32, n int) uint32 { return crcMul(d, forward.at(n)) }

// crcPowers holds powers of a polynomial modulo the CRC's, of exponents i and 64*i.
type crcPowers struct {
	small [64]uint32
	large [1024]uint32
}

// at gives the power of an exponent up to 65,535.
func (c *crcPowers) at(n int) uint32 {
	p := c.small[n%len(c.small)]
	if n >= len(c.small) {
		p = crcMul(p, c.large[n/len(c.small)%len(c.large)])
	}
	return p
}

// forward has the powers of x^8, which stands for a byte of zeros put behind, backward those of its inverse.
var forward, backward = powersOf(crcTimesX), powersOf(crcOverX)

func powersOf(bit func(uint32) uint32) *crcPowers {
	c, p := new(crcPowers), uint32(crcOne)
	for i := range c.small {
		c.small[i] = p
		for range 8 {
			p = bit(p)
		}
	}
	c.large[0] = crcOne
	for i := 1; i < len(c.large); i++ {
		c.large[i] = crcMul(c.large[i-1], p)
	}
	return c
}

// crcOne is the polynomial 1 in the reflected order of this CRC: the highest bit is the lowest power.
const crcOne = 1 << 31

func crcTimesX(p uint32) uint32 { return p>>1 ^ crc32.IEEE&-(p&1) }

func crcOverX(p uint32) uint32 {
	if p&crcOne != 0 {
		return (p^crc32.IEEE)<<1 | 1
	}
	return p << 1
}

// crcMul multiplies two polynomials modulo the CRC's.
func crcMul(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & uint32(int32(a)>>31)
		a <<= 1
		b = crcTimesX(b)
	}
	return p
}

// GID is the address of a RoCEv2 port: an IPv6 address, or an IPv4 address a.b.c.d as ::ffff:a.b.c.d.
type GID [16]byte

// GIDFromAddr is the GID of an address; its zone is not part of it.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

// Addr is the GID's address: IPv4 for ::ffff:a.b.c.d, and for the IPv4 multicast spelling ff0e::ffff:a.b.c.d.
func (g GID) Addr() netip.Addr {
	if g.IsIPv4() {
		return netip.AddrFrom4([4]byte(g[12:]))
	}
	return netip.AddrFrom16(g)
}

// IsIPv4 reports whether packets of this GID go over IPv4: the rule of ipv6_addr_v4mapped in libibverbs.
func (g GID) IsIPv4() bool {
	head, mid := binary.BigEndian.Uint64(g[:]), binary.BigEndian.Uint32(g[8:])
	return mid == 0xffff && (head == 0 || head == 0xff0e<<48)
}

// IsMulticast reports whether the GID names a group.
func (g GID) IsMulticast() bool {
	if g.IsIPv4() {
		return g[12]>>4 == 0xe
	}
	return g[0] == 0xff
}

// IsLinkScope reports whether the GID means nothing without an interface: a link-local IPv6 address or group.
func (g GID) IsLinkScope() bool {
	return g[0] == 0xfe && g[1]>>6 == 2 || g[0] == 0xff && (g[1]&15 == 1 || g[1]&15 == 2)
}

// MulticastMAC is the Ethernet address of a group: 01:00:5e and the low 23 bits of an IPv4 group (RFC 1112, 6.4),
// 33:33 and the low 32 bits of an IPv6 one (RFC 2464, 7).
func MulticastMAC(g GID) [6]byte {
	if g.IsIPv4() {
		return [6]byte{1, 0, 0x5e, g[13] & 0x7f, g[14], g[15]}
	}
	return [6]byte{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// QPPort is the UDP source port of a QP whose address handle names no flow, as Linux' rxe chooses it.
func QPPort(qpn uint32) uint16 {
	return uint16(0xc000 + qpn*0x61c88647>>18)
}

// RoCEMTU is the path MTU of an interface, 256 to 4096 bytes of payload in powers of two, as Linux' rxe derives it
// from the interface's MTU; 0: too small for any.
func RoCEMTU(ifMTU int) int {
	for mtu := MaxRoCEMTU; mtu >= minRoCEMTU; mtu /= 2 {
		if ifMTU-roceMTUTax >= mtu {
			return mtu
		}
	}
	return 0
}
