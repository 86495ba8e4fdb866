package engine

import (
	"fmt"
	"syscall"
)

// RSSKeyBytes is the length of a hash key: enough for the addresses and ports of IPv6.
const RSSKeyBytes = 40

// DefaultRSSKey is the key of the verification suite that every RSS implementation is judged by.
var DefaultRSSKey = [RSSKeyBytes]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// RSSFields is a set of packet fields that a hash is over, with the numbers of ibv_rx_hash_fields.
type RSSFields uint32

// The fields. What a packet does not have is not hashed: a fragment has no ports, and of a frame without any of the
// fields the hash is 0, without WCRSSHash.
const (
	RSSSrcIPv4 RSSFields = 1 << iota
	RSSDstIPv4
	RSSSrcIPv6
	RSSDstIPv6
	RSSSrcPortTCP
	RSSDstPortTCP
	RSSSrcPortUDP
	RSSDstPortUDP
)

// Sets of fields that are often wanted.
const (
	RSSIPv4 = RSSSrcIPv4 | RSSDstIPv4
	RSSIPv6 = RSSSrcIPv6 | RSSDstIPv6
	RSSTCP  = RSSSrcPortTCP | RSSDstPortTCP
	RSSUDP  = RSSSrcPortUDP | RSSDstPortUDP
)

// RSSConfig describes a receive hash. The low bits of a packet's hash are the place in Table of the queue pair that
// gets it.
type RSSConfig struct {
	Key    []byte // RSSKeyBytes; nil: DefaultRSSKey
	Fields RSSFields
	// Table has raw packet queue pairs, a power of two of them, up to Caps.MaxRSSTable. One may stand in it often.
	Table []*QP
}

// RSS spreads received packets over queue pairs: it is what verbs calls a queue pair with an indirection table. It has
// no queues of its own. Flow rules bring it packets; the queue pairs in its table need none.
type RSS struct {
	pd     *PD
	b      RSSBackend
	qpn    uint32
	table  []*QP
	closed bool
}

// RSSBackend is what a Backend with FeatureRSS does too.
type RSSBackend interface {
	// NewRSS makes a receive hash and gives it a queue pair's number, which Attach takes.
	NewRSS(RSSSpec) (qpn uint32, err error)
	// DestroyRSS ends it; its flow rules go with it.
	DestroyRSS(qpn uint32) error
}

// RSSSpec is a receive hash as the engine orders it.
type RSSSpec struct {
	Key    [RSSKeyBytes]byte
	Fields RSSFields
	Table  []uint32 // numbers of queue pairs, a power of two of them
}

// NewRSS makes a receive hash. Fields that the device does not hash are EOPNOTSUPP. In profile mlx5 a hash is over
// one version of IP and over one of TCP and UDP.
func (p *PD) NewRSS(c RSSConfig) (*RSS, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	d := p.dev
	b, ok := d.b.(RSSBackend)
	if !ok || d.caps.Features&FeatureRSS == 0 {
		return nil, fmt.Errorf("engine: %s: new RSS: the device has no receive hash: %w", d.caps.Name, syscall.EOPNOTSUPP)
	}
	spec := RSSSpec{Key: DefaultRSSKey, Fields: c.Fields, Table: make([]uint32, len(c.Table))}
	if err := c.check(d); err != nil {
		return nil, fmt.Errorf("engine: %s: new RSS: %w", d.caps.Name, err)
	}
	if c.Key != nil {
		spec.Key = [RSSKeyBytes]byte(c.Key)
	}
	r := &RSS{pd: p, b: b, table: append([]*QP(nil), c.Table...)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || p.closed {
		return nil, closed("protection domain")
	}
	for i, q := range c.Table {
		if q.closed.Load() {
			return nil, closed("queue pair")
		}
		spec.Table[i] = q.qpn
		q.hashed.Store(true) // for good: its CQ may hold completions when the hash is gone
	}
	var err error
	if r.qpn, err = b.NewRSS(spec); err != nil {
		return nil, fmt.Errorf("engine: %s: new RSS: %w", d.caps.Name, err)
	}
	p.users++
	for _, q := range r.table {
		q.tables++
	}
	return r, nil
}

func (c *RSSConfig) check(d *Device) error {
	l := &d.caps
	if unknown := c.Fields &^ l.RSSFields; unknown != 0 {
		return fmt.Errorf("the device does not hash fields 0x%x: %w", uint32(unknown), syscall.EOPNOTSUPP)
	}
	if c.Key != nil && len(c.Key) != RSSKeyBytes {
		return fmt.Errorf("a key of %d bytes, want %d: %w", len(c.Key), RSSKeyBytes, syscall.EINVAL)
	}
	n := len(c.Table)
	if n == 0 || n&(n-1) != 0 || n > l.MaxRSSTable {
		return fmt.Errorf("a table of %d, want a power of two up to %d: %w", n, l.MaxRSSTable, syscall.EINVAL)
	}
	if c.Fields == 0 && n > 1 {
		return fmt.Errorf("a table of %d and no field to hash: %w", n, syscall.EINVAL)
	}
	if l.Profile == ProfileMLX5 && (c.Fields&RSSIPv4 != 0 && c.Fields&RSSIPv6 != 0 || c.Fields&RSSTCP != 0 && c.Fields&RSSUDP != 0) {
		return fmt.Errorf("fields 0x%x are of two protocols, mlx5 hashes one: %w", uint32(c.Fields), syscall.EINVAL)
	}
	for i, q := range c.Table {
		switch {
		case q.usable() != nil:
			return fmt.Errorf("queue pair %d of the table is missing or closed: %w", i, syscall.EINVAL)
		case q.dev != d:
			return fmt.Errorf("queue pair %d of the table is of another device: %w", i, syscall.EINVAL)
		case q.typ != RawPacket:
			return fmt.Errorf("queue pair %d of the table is %v, want %v: %w", i, q.typ, RawPacket, syscall.EINVAL)
		}
	}
	return nil
}

// Attach makes a rule whose frames the hash spreads.
func (r *RSS) Attach(rule FlowRule) (*Flow, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	d := r.pd.dev
	if err := rule.check(&d.caps); err != nil {
		return nil, err
	}
	id, err := d.b.Attach(r.qpn, rule)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: attach a flow rule to RSS 0x%x: %w", d.caps.Name, r.qpn, err)
	}
	return &Flow{dev: d, to: r, id: id}, nil
}

func (r *RSS) usable() error {
	if r == nil || r.pd == nil {
		return closed("receive hash")
	}
	d := r.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.closed || d.closed.Load() {
		return closed("receive hash")
	}
	return nil
}

// Close ends the hash and its rules. The queue pairs of its table stay, and may be closed from then on. A second Close
// does nothing.
func (r *RSS) Close() error {
	if r == nil || r.pd == nil {
		return nil
	}
	d := r.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.closed || d.closed.Load() {
		return nil
	}
	r.closed = true
	r.pd.users--
	for _, q := range r.table {
		q.tables--
	}
	if err := r.b.DestroyRSS(r.qpn); err != nil {
		return fmt.Errorf("engine: %s: destroy RSS 0x%x: %w", d.caps.Name, r.qpn, err)
	}
	return nil
}
