package ring

import (
	"encoding/binary"
	"fmt"

	"github.com/bluering/bluering/internal/barrier"
)

// Kind is what a send queue carries; it decides the second segment.
type Kind uint8

// The kinds of send queue.
const (
	RawPacket Kind = iota // Ethernet segment
	UD                    // datagram segment
)

// Fetch is what DevSQ.Fetch found.
type Fetch uint8

// The results of a fetch. NOPs are stepped over and never reported.
const (
	FetchEmpty Fetch = iota // nothing published
	FetchOK                 // the WQE is decoded and valid
	FetchBad                // it is refused; Syndrome and Rule say why
)

// SendWQE is a decoded send WQE. Its slices point into the ring: valid until
// Advance has been called and the completion published. After FetchBad only
// Index, Opcode, DS, BB, Signaled, Solicited, Syndrome and Rule are valid.
type SendWQE struct {
	Index     uint16 // counter of the first slot, from the ring's position
	Opcode    Opcode
	DS        uint8
	BB        uint8 // blocks
	Signaled  bool
	Solicited bool
	Fence     bool
	CsumFlags uint8 // CsumL3, CsumL4, CsumInnerL3, CsumInnerL4
	Syndrome  Syndrome
	Rule      Rule
	MSS       uint16
	Imm       uint32
	QKey      uint32 // UD
	RemoteQPN uint32 // UD
	Bytes     uint32 // inline header, inline data and pointers together
	InlineHdr []byte // RawPacket
	Inline    []byte
	AV        *AV // UD
	NSeg      int
	Segs      [segSlots]Seg // the first NSeg, at most MaxSegs
}

// DevSQ is the device half of a send queue. The NIC's goroutine owns it.
//
//	Pending ... Fetch -> execute -> Advance
type DevSQ struct {
	blocks []Block
	mask   uint32
	rec    Record
	qpn    uint32
	limits SendLimits
	pi     uint32 // what the record said last
	ci     uint32 // next slot
	bb     uint32 // blocks of the WQE that Fetch decoded last
}

// NewDevSQ makes the device half over the same ring as NewSQ, for raw packets
// without a mandatory inline header; SetLimits changes that.
func NewDevSQ(blocks []Block, rec Record, qpn uint32) (*DevSQ, error) {
	switch n := len(blocks); {
	case !isPow2(n) || n > MaxSlots:
		return nil, fmt.Errorf("ring: send ring of %d slots, want a power of two up to %d", n, MaxSlots)
	case !rec.Valid():
		return nil, fmt.Errorf("ring: send queue without a record")
	case qpn > 0xffffff:
		return nil, fmt.Errorf("ring: QP number %#x has more than 24 bits", qpn)
	}
	return apart(DevSQ{blocks: blocks, mask: uint32(len(blocks) - 1), rec: rec, qpn: qpn}), nil
}

// SetLimits says what the queue carries and what its device demands.
func (d *DevSQ) SetLimits(l SendLimits) { d.limits = l }

// Pending gives the slots published and not taken. It reads the record once,
// which acquires the WQEs; partner: SQ.Publish. A record that claims more than
// the ring holds counts as a full ring, whose WQEs then fail their own check.
func (d *DevSQ) Pending() int {
	n := uint32(uint16(d.rec.LoadSend() - d.ci))
	barrier.FromDevice() // the record before the WQEs
	n = min(n, d.mask+1)
	d.pi = d.ci + n
	return int(n)
}

// Fetch decodes and validates the WQE at the consumer counter, without
// stepping over it. NOPs in front of it are stepped over. The record is read
// only when no published slot is known of.
func (d *DevSQ) Fetch(v *SendWQE) Fetch {
	for {
		if d.pi == d.ci && d.Pending() == 0 {
			d.bb = 0
			return FetchEmpty
		}
		slot := d.ci & d.mask
		edge := uint32(len(d.blocks)) - slot
		room := min(d.pi-d.ci, edge)
		w := d.blocks[slot : slot+room]
		if isPad(&w[0], uint16(d.ci), d.qpn) {
			d.ci++
			continue
		}
		v.Index = uint16(d.ci)
		rule := decodeSend(w, v, d.qpn, &d.limits)
		d.bb = max(1, min(uint32(v.BB), d.pi-d.ci))
		if rule == RulePublished && uint32(v.BB) > edge {
			rule = RuleNoWrap
		}
		if rule != RuleNone {
			v.Rule, v.Syndrome = rule, rule.Syndrome()
			return FetchBad
		}
		v.Rule, v.Syndrome = RuleNone, SynNone
		return FetchOK
	}
}

// Advance steps over the WQE that Fetch decoded, good or bad. After FetchEmpty
// it does nothing.
func (d *DevSQ) Advance() {
	d.ci += d.bb
	d.bb = 0
}

// MaxRun is the most WQEs that FetchRun decodes at a time: what signaled has
// bits for.
const MaxRun = 64

// FetchRun decodes and validates up to len(out), at most MaxRun, send WQEs of
// the commonest shape from the consumer counter on, without stepping over them:
// raw packets of one block that are one pointer, with no inline header and no
// offloads. out gets the pointers; bit i of signaled says that WQE i wants its
// completion; their counters go up by one from first. All others, NOPs and those
// that break a rule among them, end the run and are left to Fetch: what is given
// here passes each rule that Fetch applies. The record is read only when fewer
// slots are known of.
func (d *DevSQ) FetchRun(out []Seg) (n int, first uint16, signaled uint64) {
	first = uint16(d.ci)
	if d.limits != (SendLimits{Kind: RawPacket}) {
		return 0, first, 0
	}
	if int(d.pi-d.ci) < len(out) {
		d.Pending()
	}
	ci := d.ci
	out = out[:min(len(out), MaxRun, int(d.pi-ci))]
	blocks := d.blocks
	if len(blocks) == 0 {
		return 0, first, 0
	}
	want := uint64(OpSend)<<32 | uint64(d.qpn)<<8 | shortDS
	for i := range out {
		w := &blocks[int(ci)&(len(blocks)-1)]
		c0 := get64(w[0:8]) ^ (want | uint64(uint16(ci))<<40)
		c1 := get64(w[8:16]) >> 32 // the immediate is of no account
		c0 |= c1 &^ (FlagSignaled | FlagSolicited)
		c0 |= binary.NativeEndian.Uint64(w[16:24]) | binary.NativeEndian.Uint64(w[24:32])
		head := get64(w[32:40])
		if c0 != 0 || uint32(head>>32)-1 >= inlineFlag-1 {
			return i, first, signaled
		}
		s := &out[i]
		s.Addr = get64(w[40:48])
		s.Len, s.LKey = uint32(head>>32), uint32(head)
		signaled |= c1 / FlagSignaled & 1 << (uint(i) % MaxRun)
		ci++
	}
	return len(out), first, signaled
}

// shortDS is the size of those WQEs: control, Ethernet segment, pointer.
const shortDS = 3

// AdvanceRun steps over the first n WQEs that FetchRun decoded.
func (d *DevSQ) AdvanceRun(n int) {
	d.ci += min(uint32(n), d.pi-d.ci)
	d.bb = 0
}

// Flush steps over everything published without looking at it and calls f, if
// not nil, for each WQE that is not a NOP. A WQE whose size makes no sense
// counts as one block.
func (d *DevSQ) Flush(f func(index uint16, op Opcode)) {
	for n := uint32(d.Pending()); n > 0; {
		w := &d.blocks[d.ci&d.mask]
		bb := uint32(1)
		if !isPad(w, uint16(d.ci), d.qpn) {
			bb = max(1, min(n, uint32(BlocksFor(int(w[OffDS]&0x3f)))))
			if f != nil {
				f(uint16(d.ci), Opcode(w[OffOpcode]))
			}
		}
		d.ci += bb
		n -= bb
	}
	d.bb = 0
}

// More reports whether slots are known of that were published and not taken.
func (d *DevSQ) More() bool { return d.pi != d.ci }

// CI gives the counter of the next slot.
func (d *DevSQ) CI() uint32 { return d.ci }

// QPN gives the queue's QP number.
func (d *DevSQ) QPN() uint32 { return d.qpn }

// Reset returns the counters to zero.
func (d *DevSQ) Reset() { d.pi, d.ci, d.bb = 0, 0, 0 }

// isPad reports whether the block is a NOP as Reserve writes it.
func isPad(w *Block, pi uint16, qpn uint32) bool {
	return get64(w[0:8]) == uint64(pi)<<40|uint64(qpn)<<8|1 &&
		get64(w[8:16]) == 0
}
