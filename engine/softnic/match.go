package softnic

import (
	"encoding/binary"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
)

// matcher is a compiled match: a field counts where its mask has a bit. Values are masked already, so equal
// matches are equal structs.
type matcher struct {
	mac, macMask       [2]uint64 // frame bytes 0..7 and 4..11
	etherType, etMask  uint16    // behind the last VLAN tag (J-11)
	vlan, vlanMask     uint16    // tag control word of the outermost tag
	tagged             bool      // a tag must be there
	version            uint8     // 4 or 6; 0: any, or no IP at all
	l4Proto, l4Mask    uint8
	ports, portsMask   uint32    // source<<16 | destination
	addr, addrMask     [4]uint64 // source, destination; IPv4 in the first four bytes of each
	needParsed, needIP bool
}

// compile makes a matcher of a match that the engine has checked.
func compile(m *engine.Match) matcher {
	var c matcher
	var mac, mask [12]byte
	copy(mac[:6], m.DstMAC[:])
	copy(mac[6:], m.SrcMAC[:])
	copy(mask[:6], m.DstMACMask[:])
	copy(mask[6:], m.SrcMACMask[:])
	c.macMask[0] = binary.BigEndian.Uint64(mask[:])
	c.mac[0] = binary.BigEndian.Uint64(mac[:]) & c.macMask[0]
	c.macMask[1] = binary.BigEndian.Uint64(mask[4:]) & 0xffffffff // the upper half stands in the first word
	c.mac[1] = binary.BigEndian.Uint64(mac[4:]) & c.macMask[1]
	c.etMask, c.etherType = m.EtherTypeMask, m.EtherType&m.EtherTypeMask
	c.vlanMask, c.vlan = m.VLANMask, m.VLAN&m.VLANMask
	c.tagged = m.Tagged || m.VLANMask != 0
	c.version = m.IPVersion
	c.l4Mask, c.l4Proto = m.ProtoMask, m.Proto&m.ProtoMask
	c.portsMask = uint32(m.SrcPortMask)<<16 | uint32(m.DstPortMask)
	c.ports = (uint32(m.SrcPort)<<16 | uint32(m.DstPort)) & c.portsMask
	for i := range c.addr {
		from, of := &m.Src, &m.SrcMask
		if i >= 2 {
			from, of = &m.Dst, &m.DstMask
		}
		c.addrMask[i] = binary.BigEndian.Uint64(of[i%2*8:])
		c.addr[i] = binary.BigEndian.Uint64(from[i%2*8:]) & c.addrMask[i]
	}
	c.needIP = c.version != 0 || c.l4Mask != 0 || c.portsMask != 0 || c.addrMask != [4]uint64{}
	c.needParsed = c.needIP || c.etMask != 0 || c.tagged
	return c
}

// matches is asked only for frames of at least 14 bytes.
func (m *matcher) matches(frame []byte, s *steering) bool {
	_ = frame[13]
	if (binary.BigEndian.Uint64(frame)^m.mac[0])&m.macMask[0] != 0 ||
		(binary.BigEndian.Uint64(frame[4:])^m.mac[1])&m.macMask[1] != 0 {
		return false
	}
	return !m.needParsed || s.parsed && m.matchesParsed(frame, &s.headers)
}

func (m *matcher) matchesParsed(frame []byte, h *proto.Headers) bool {
	if (h.EtherType^m.etherType)&m.etMask != 0 || m.tagged && h.VLANs == 0 || (h.VLAN[0]^m.vlan)&m.vlanMask != 0 {
		return false
	}
	if !m.needIP {
		return true
	}
	if h.IPVersion == 0 || m.version != 0 && h.IPVersion != m.version || (h.L4Proto^m.l4Proto)&m.l4Mask != 0 {
		return false
	}
	if m.portsMask != 0 { // of a fragment only the first has ports
		ports := uint32(h.SrcPort)<<16 | uint32(h.DstPort)
		if h.Status != proto.OK || (ports^m.ports)&m.portsMask != 0 {
			return false
		}
	}
	var a [32]byte
	copy(a[:16], frame[h.SrcOff:h.SrcOff+h.AddrLen])
	copy(a[16:], frame[h.DstOff:h.DstOff+h.AddrLen])
	for i := range m.addr {
		if (binary.BigEndian.Uint64(a[8*i:])^m.addr[i])&m.addrMask[i] != 0 {
			return false
		}
	}
	return true
}
