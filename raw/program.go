package raw

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// program is a compiled template: what stays, in frames with partial sums, and
// what varies, with its places.
//
//	checksum = complement of fold( sum of all that stays + the varying values + the tag )
//
// so that no old byte has to be read. The ICRC of a RoCE v2 datagram, see roce.go, likewise.
type program struct {
	variants []variant // one for each distinct size
	order    sizeOrder
	fields   []field
	ipCheck  int  // offset of the IPv4 header's checksum; 0: none, or the device's business
	l4Check  int  // offset of the TCP or UDP checksum; 0 likewise
	ipVaries bool // some field is in the IPv4 header
	udp      bool // a checksum of 0 is written as 0xffff
	tag      bool
	roce     *roceProgram // nil: none

	firstLength int // offset of the first length field, which varies with the size
}

// variant is the frame of one size. Varying fields, checksums that are made
// per packet, and the tag are zero in it.
type variant struct {
	frame   []byte
	ipSum   uint64 // of the IPv4 header as in frame
	l4Sum   uint64 // of pseudo header and segment as in frame
	tagOff  int    // 0: no tag
	tagSwap bool   // the tag ends at an odd place
	roceVariant
}

// packet says what patch has to write of a packet.
type packet struct {
	index  uint64
	flow   uint32
	psn    uint32 // counted from the template's
	w0, w1 uint64 // the tag
}

func newProgram(t *Template, tag, offload bool) (*program, error) {
	p := &program{tag: tag}
	var sizes []int
	var err error
	if p.order, sizes, err = t.sizes.compile(); err != nil {
		return nil, err
	}
	h := &t.head
	whole := h.Status == proto.OK && !h.Fragment && !h.Routed
	if !whole && (tag || t.resized) {
		return nil, fmt.Errorf("raw: sizes and tags need a whole TCP or UDP packet, the template is: %v", h.Status)
	}
	if h.IPVersion == 4 {
		p.ipCheck = h.L3Off + 10
	}
	if p.firstLength = h.L3Off + 2; h.IPVersion == 6 {
		p.firstLength = h.L3Off + 4
	}
	if p.udp = whole && h.L4Proto == proto.ProtoUDP; p.udp {
		p.l4Check = h.L4Off + 6
		if (h.IPVersion == 4 || t.roce.on()) && t.frame[p.l4Check]|t.frame[p.l4Check+1] == 0 {
			p.l4Check = 0 // the sender wants none
		}
	} else if whole {
		p.l4Check = h.L4Off + 16
	}
	if offload {
		p.ipCheck, p.l4Check = 0, 0
	}
	payloadEnd := len(t.frame)
	for _, n := range sizes {
		if err := t.checkRoCESize(n); err != nil {
			return nil, err
		}
		payloadEnd = min(payloadEnd, t.payloadEnd(n))
	}
	if tag {
		payloadEnd -= proto.TagBytes
	}
	if short := t.payloadOff() - payloadEnd; short > 0 {
		return nil, fmt.Errorf("raw: frames of %d bytes are %d bytes too short for headers%s", slices.Min(sizes), short,
			map[bool]string{true: " and tag"}[tag])
	}
	if err := p.placeFields(t, whole, payloadEnd); err != nil {
		return nil, err
	}
	for _, n := range sizes {
		p.variants = append(p.variants, p.newVariant(t, n))
	}
	if t.roce.on() {
		p.layICRC(t, slices.Min(sizes))
	}
	return p, nil
}

// payloadOff is where the payload begins, behind the last header known.
func (t *Template) payloadOff() int {
	if t.roce.on() {
		return t.roce.payloadOff
	}
	if t.head.Status == proto.OK {
		return t.head.PayloadOff
	}
	return t.head.L2Len
}

// segmentEnd is where what the IP header counts of a frame of n bytes ends.
func (t *Template) segmentEnd(n int) int {
	if t.resized || t.head.Status != proto.OK {
		return n
	}
	return t.head.PayloadEnd // there may be padding behind it
}

// payloadEnd is where its payload ends.
func (t *Template) payloadEnd(n int) int { return t.segmentEnd(n) - t.trailer() }

func (p *program) newVariant(t *Template, n int) variant {
	h := &t.head
	v := variant{frame: make([]byte, n)}
	copy(v.frame, t.frame)
	end := t.segmentEnd(n)
	if t.resized {
		if h.IPVersion == 4 {
			binary.BigEndian.PutUint16(v.frame[h.L3Off+2:], uint16(end-h.L3Off))
		} else {
			binary.BigEndian.PutUint16(v.frame[h.L3Off+4:], uint16(end-h.L3Off-proto.IPv6Bytes))
		}
		if p.udp {
			binary.BigEndian.PutUint16(v.frame[h.L4Off+4:], uint16(end-h.L4Off))
		}
		clear(v.frame[min(h.PayloadEnd-t.roce.trailer(), n):]) // the template's padding is no payload
	}
	if p.tag {
		v.tagOff = t.payloadEnd(n) - proto.TagBytes
		v.tagSwap = (v.tagOff-h.L4Off)%2 == 1
		clear(v.frame[v.tagOff:][:proto.TagBytes])
	}
	for i := range p.fields {
		f := &p.fields[i]
		f.store(v.frame, Value{Lo: f.fixed})
	}
	if p.ipCheck != 0 {
		binary.BigEndian.PutUint16(v.frame[p.ipCheck:], 0)
		header := v.frame[h.L3Off : h.L3Off+int(v.frame[h.L3Off]&15)*4]
		v.ipSum = uint64(csum.Sum(header, 0))
		binary.BigEndian.PutUint16(v.frame[p.ipCheck:], csum.Finish(uint32(v.ipSum)))
	}
	if p.l4Check != 0 {
		binary.BigEndian.PutUint16(v.frame[p.l4Check:], 0)
		length := uint32(end - h.L4Off)
		if p.udp {
			length = uint32(binary.BigEndian.Uint16(v.frame[h.L4Off+4:]))
		}
		pseudo := csum.Sum(v.frame[h.SrcOff:h.SrcOff+2*h.AddrLen], uint32(h.L4Proto)+length)
		v.l4Sum = uint64(csum.Sum(v.frame[h.L4Off:end], pseudo))
		c := csum.Finish(uint32(v.l4Sum)) // right as it stands, if nothing varies
		if c == 0 && p.udp {
			c = 0xffff
		}
		binary.BigEndian.PutUint16(v.frame[p.l4Check:], c)
	}
	return v
}

// patch writes what a packet differs in from v.frame, which is in frame already.
func (p *program) patch(frame []byte, v *variant, pk *packet) {
	l4, ip, head := v.l4Sum, v.ipSum, uint32(0)
	for k := range p.fields {
		f := &p.fields[k]
		x := pk.index
		if f.byFlow {
			x = uint64(pk.flow)
		}
		val := f.at(x)
		f.store(frame, val)
		if f.inL4 {
			l4 += f.sum(val)
		}
		if f.inIP {
			ip += f.sum(val)
		}
		if f.icrc != nil {
			head ^= f.inICRC(val)
		}
	}
	if v.tagOff != 0 {
		binary.BigEndian.PutUint64(frame[v.tagOff:], pk.w0)
		binary.BigEndian.PutUint64(frame[v.tagOff+8:], pk.w1)
		l4 += wordSum(pk.w0, pk.w1, v.tagSwap)
	}
	if p.roce != nil {
		p.roce.patch(frame, v, pk, head)
	}
	if p.ipVaries {
		binary.BigEndian.PutUint16(frame[p.ipCheck:], ^csum.Fold64(ip))
	}
	if p.l4Check != 0 {
		c := ^csum.Fold64(l4)
		if c == 0 && p.udp {
			c = 0xffff
		}
		binary.BigEndian.PutUint16(frame[p.l4Check:], c)
	}
}

// placeFields finds each field's bytes. payloadEnd bounds the counters.
func (p *program) placeFields(t *Template, whole bool, payloadEnd int) error {
	used := map[int]Kind{}
	for i := range t.fields {
		f := &t.fields[i]
		off, width, maxBits, err := t.place(f, whole)
		if err != nil {
			return err
		}
		c, err := f.compile(maxBits)
		if err != nil {
			return err
		}
		c.off, c.width = off, width
		switch f.Kind {
		case VLANID, InnerVLAN:
			c.fixed = uint64(binary.BigEndian.Uint16(t.frame[off:]) &^ 0xfff)
		case FlowLabel:
			c.fixed = uint64(binary.BigEndian.Uint32(t.frame[off:]) &^ 0xfffff)
		case SrcAddr, DstAddr:
			c.inIP, c.inL4 = width == 4 && p.ipCheck != 0, whole
			p.ipVaries = p.ipVaries || c.inIP
		case SrcPort, DstPort:
			c.inL4 = whole
		case DestQPN:
			c.fixed = uint64(t.frame[off]) << 24
		case Counter:
			if f.Off < 0 || off+width > payloadEnd {
				return fmt.Errorf("raw: a counter of %d bytes at %d is not inside the payload, %d bytes", width, f.Off, payloadEnd-t.payloadOff())
			}
			c.inL4, c.swap = whole, (off+width-t.head.L4Off)%2 == 1
		}
		for b := off; b < off+width; b++ {
			if other, taken := used[b]; taken {
				return fmt.Errorf("raw: %v overlaps %v", f.Kind, other)
			}
			used[b] = f.Kind
		}
		p.fields = append(p.fields, c)
	}
	return nil
}

// place gives a field's bytes and how many bits its values have.
func (t *Template) place(f *Field, whole bool) (off, width, maxBits int, err error) {
	h := &t.head
	switch k := f.Kind; {
	case k == DstMAC:
		return 0, 6, 48, nil
	case k == SrcMAC:
		return 6, 6, 48, nil
	case k == VLANID && h.VLANs > 0:
		return proto.EthernetBytes, 2, 12, nil
	case k == InnerVLAN && h.VLANs > 1:
		return proto.EthernetBytes + proto.VLANBytes, 2, 12, nil
	case k == SrcAddr && (whole || h.IPVersion == 4 && !h.Fragment):
		return h.SrcOff, h.AddrLen, 8 * h.AddrLen, nil
	case k == DstAddr && (whole || h.IPVersion == 4 && !h.Fragment):
		return h.DstOff, h.AddrLen, 8 * h.AddrLen, nil
	case k == FlowLabel && h.IPVersion == 6:
		return h.L3Off, 4, 20, nil
	case k == SrcPort && whole:
		return h.L4Off, 2, 16, nil
	case k == DstPort && whole:
		return h.L4Off + 2, 2, 16, nil
	case k == DestQPN && t.roce.on():
		return h.PayloadOff + destQPNOff, 4, 24, nil
	case k == Counter:
		switch f.Width {
		case 1, 2, 4, 8:
			return t.payloadOff() + f.Off, f.Width, 8 * f.Width, nil
		}
		return 0, 0, 0, fmt.Errorf("raw: a counter has 1, 2, 4 or 8 bytes, not %d", f.Width)
	}
	return 0, 0, 0, fmt.Errorf("raw: the template has no %v that could vary", f.Kind)
}
