package engine

import (
	"fmt"
	"syscall"
)

// FlowKind is the kind of a flow rule.
type FlowKind uint8

// The kinds of rule, in the order in which a frame meets them.
const (
	FlowNormal    FlowKind = iota // frames that Match matches
	FlowMulticast                 // multicast and broadcast that no normal rule took
	FlowAll                       // everything that nobody else took
)

// String gives a short name.
func (k FlowKind) String() string {
	switch k {
	case FlowNormal:
		return "normal"
	case FlowMulticast:
		return "multicast"
	case FlowAll:
		return "all"
	}
	return fmt.Sprintf("flow kind %d", uint8(k))
}

// FlowRule selects frames for a queue pair. Lower priorities win.
type FlowRule struct {
	Kind     FlowKind
	Priority uint16
	Match    Match // of a normal rule only
}

// Match compares fields of a frame under masks. A bit counts where its mask is
// 1; a field whose mask is zero always matches. Numbers are in host order.
type Match struct {
	DstMAC, DstMACMask       [6]byte
	SrcMAC, SrcMACMask       [6]byte
	EtherType, EtherTypeMask uint16 // behind the last VLAN tag
	Tagged                   bool   // a VLAN tag must be there; a VLANMask implies it
	VLAN, VLANMask           uint16 // tag control word of the outermost tag
	IPVersion                uint8  // 4, 6, or 0 for either; addresses need one
	Proto, ProtoMask         uint8  // behind the IPv6 extension headers
	Src, SrcMask             [16]byte
	Dst, DstMask             [16]byte // an IPv4 address takes the first four bytes
	SrcPort, SrcPortMask     uint16   // TCP or UDP
	DstPort, DstPortMask     uint16
}

// MatchDstMAC makes a match for one destination address.
func MatchDstMAC(mac [6]byte) Match {
	return Match{DstMAC: mac, DstMACMask: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
}

func (r *FlowRule) check(c *Caps) error {
	switch {
	case r.Kind > FlowAll:
		return fmt.Errorf("engine: %s: flow kind %d is unknown: %w", c.Name, r.Kind, syscall.EINVAL)
	case r.Kind != FlowNormal && r.Match != (Match{}):
		return fmt.Errorf("engine: %s: a flow rule of kind %v has no match: %w", c.Name, r.Kind, syscall.EINVAL)
	case c.FlowPriorities != 0 && int(r.Priority) >= c.FlowPriorities:
		errno := syscall.EINVAL
		if c.Profile == ProfileMLX5 {
			errno = syscall.ENOMEM // J-07
		}
		return fmt.Errorf("engine: %s: flow priority %d, want below %d: %w", c.Name, r.Priority, c.FlowPriorities, errno)
	}
	return r.Match.check(c.Name)
}

func (m *Match) check(device string) error {
	v := m.IPVersion
	if v != 0 && v != 4 && v != 6 {
		return fmt.Errorf("engine: %s: IP version %d in a flow rule, want 0, 4 or 6: %w", device, v, syscall.EINVAL)
	}
	none := [16]byte{}
	if v == 0 && (m.SrcMask != none || m.DstMask != none) {
		return fmt.Errorf("engine: %s: a flow rule on addresses needs an IP version: %w", device, syscall.EINVAL)
	}
	if v == 4 && ([12]byte(m.SrcMask[4:]) != [12]byte{} || [12]byte(m.DstMask[4:]) != [12]byte{}) {
		return fmt.Errorf("engine: %s: an IPv4 mask in a flow rule has more than 4 bytes: %w", device, syscall.EINVAL)
	}
	return nil
}

// Flow is a rule in force. It ends with Close or with its queue pair or receive
// hash.
type Flow struct {
	dev *Device
	to  interface{ usable() error }
	id  uint64
}

// Attach makes a rule for this queue pair.
func (q *QP) Attach(r FlowRule) (*Flow, error) {
	if err := q.usable(); err != nil {
		return nil, err
	}
	if err := r.check(&q.dev.caps); err != nil {
		return nil, err
	}
	id, err := q.dev.b.Attach(q.qpn, r)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: attach a flow rule to QP 0x%x: %w", q.dev.caps.Name, q.qpn, err)
	}
	return &Flow{dev: q.dev, to: q, id: id}, nil
}

// Close ends the rule. A second Close, or one after that of the queue pair or
// receive hash, does nothing.
func (f *Flow) Close() error {
	if f == nil || f.to == nil {
		return nil
	}
	to := f.to
	f.to = nil
	if to.usable() != nil {
		return nil
	}
	return f.dev.b.Detach(f.id)
}
