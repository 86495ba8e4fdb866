package softnic

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

const (
	maxRSSTable = 1024
	rssFields   = engine.RSSIPv4 | engine.RSSIPv6 | engine.RSSTCP | engine.RSSUDP
	rssInput    = 2*16 + 2*2 // bytes that a hash can be over
)

// rss is a receive hash: Toeplitz, and a table of queue pairs.
//
// The hash of an input is the exclusive or of 32-bit windows of the key, one for each bit that is 1: the window
// begins at the bit's own place. So a byte's part is one of 256 values for each place, made beforehand.
type rss struct {
	part   [rssInput][256]uint32
	fields engine.RSSFields
	table  []*qp
}

func newRSS(s *engine.RSSSpec) *rss {
	r := &rss{fields: s.Fields}
	for place := range r.part {
		var key [8]byte // a window of every bit of this byte begins in the first of these
		copy(key[:], s.Key[place:])
		window := binary.BigEndian.Uint64(key[:])
		for value := range r.part[place] {
			for bit := range 8 {
				if value>>(7-bit)&1 != 0 {
					r.part[place][value] ^= uint32(window << bit >> 32)
				}
			}
		}
	}
	return r
}

// rssHash is a frame's hash as a CQE tells it. kind is 0 for frames that have none of the fields.
type rssHash struct {
	sum  uint32
	kind uint8 // what it is over, with the bits of ring.RSSIPv4 and others
}

// hash is over the chosen fields that the packet has: source and destination address, then the ports.
func (r *rss) hash(frame []byte, h *proto.Headers) rssHash {
	var src, dst, srcPort, dstPort bool
	kind, l4 := uint8(0), uint8(0)
	switch f := r.fields; h.IPVersion {
	case 4:
		src, dst, kind = f&engine.RSSSrcIPv4 != 0, f&engine.RSSDstIPv4 != 0, ring.RSSIPv4
	case 6:
		src, dst, kind = f&engine.RSSSrcIPv6 != 0, f&engine.RSSDstIPv6 != 0, ring.RSSIPv6
	default:
		return rssHash{}
	}
	if !src && !dst {
		kind = 0
	}
	if h.Status == proto.OK && !h.Fragment {
		switch f := r.fields; h.L4Proto {
		case proto.ProtoTCP:
			srcPort, dstPort, l4 = f&engine.RSSSrcPortTCP != 0, f&engine.RSSDstPortTCP != 0, ring.RSSTCP
		case proto.ProtoUDP:
			srcPort, dstPort, l4 = f&engine.RSSSrcPortUDP != 0, f&engine.RSSDstPortUDP != 0, ring.RSSUDP
		}
	}
	if srcPort || dstPort {
		kind |= l4
	}
	sum, place := uint32(0), 0
	if src {
		sum, place = r.over(sum, place, frame[h.SrcOff:h.SrcOff+h.AddrLen])
	}
	if dst {
		sum, place = r.over(sum, place, frame[h.DstOff:h.DstOff+h.AddrLen])
	}
	if srcPort {
		sum, place = r.over(sum, place, frame[h.L4Off:h.L4Off+2])
	}
	if dstPort {
		sum, _ = r.over(sum, place, frame[h.L4Off+2:h.L4Off+4])
	}
	return rssHash{sum, kind}
}

func (r *rss) over(sum uint32, place int, field []byte) (uint32, int) {
	for _, b := range field {
		sum ^= r.part[place][b]
		place++
	}
	return sum, place
}

// spread replaces the receive hashes among the targets of a frame by the queue pairs that they choose, and notes what
// they were. One that gets the frame already gets it once.
func (s *steering) spread(frame []byte, targets []*qp) int {
	count := 0
	for _, q := range targets {
		hash := rssHash{}
		if q.rss != nil {
			if !s.parse { // else steer did
				s.parsed = proto.Parse(frame, &s.headers)
			}
			if s.parsed {
				hash = q.rss.hash(frame, &s.headers)
			}
			q = q.rss.table[hash.sum&uint32(len(q.rss.table)-1)]
		}
		if !has(targets[:count], q) {
			targets[count], s.hashes[count] = q, hash
			count++
		}
	}
	return count
}

func has(targets []*qp, q *qp) bool {
	for _, t := range targets {
		if t == q {
			return true
		}
	}
	return false
}

// NewRSS makes a receive hash under a queue pair's number.
func (n *NIC) NewRSS(s engine.RSSSpec) (qpn uint32, err error) {
	err = n.control(func() error {
		r := newRSS(&s)
		for _, number := range s.Table {
			q := n.findQP(number)
			if q == nil {
				return unknownQP(number)
			}
			r.table = append(r.table, q)
		}
		if k := len(r.table); k == 0 || k&(k-1) != 0 || k > maxRSSTable || s.Fields&^rssFields != 0 {
			return fmt.Errorf("softnic: RSS table of %d, fields 0x%x: %w", k, uint32(s.Fields), syscall.EINVAL)
		}
		number, slot, ok := nextNumber(n.lastQP, maxQP, func(i uint32) bool { return n.qps[i] == nil })
		if !ok {
			return fmt.Errorf("softnic: all %d queue pairs are in use: %w", maxQP, syscall.ENOMEM)
		}
		n.lastQP, qpn = number, number
		n.qps[slot] = &qp{qpn: number, kind: engine.RawPacket, rss: r}
		return nil
	})
	return qpn, err
}

// DestroyRSS ends a receive hash and its flow rules.
func (n *NIC) DestroyRSS(qpn uint32) error {
	return n.control(func() error {
		q := n.findTarget(qpn)
		if q == nil || q.rss == nil {
			return unknownQP(qpn)
		}
		n.remove(func(r *rule) bool { return r.q == q })
		n.qps[qpn%maxQP] = nil
		return nil
	})
}
