package raw

import (
	"encoding/binary"
	"fmt"

	"github.com/bluering/bluering/internal/proto"
	"github.com/gopacket/gopacket"
)

// Template describes packets that look alike: one frame, and the fields and
// sizes that vary. Build it, call Vary and SetSizes, then use it in as many
// streams as you like, or write packets with Write. Write may be called from
// several goroutines once Vary and SetSizes are done.
type Template struct {
	frame   []byte // as built, checksums as given
	head    proto.Headers
	fields  []Field
	sizes   Sizes
	plain   *program // without a tag
	resized bool     // SetSizes was called: the payload fills the frame
	roce    roce     // not zero: a RoCE v2 datagram
}

// NewTemplate builds the frame from layers, the outermost first. gopacket
// fixes lengths and checksums, and pads the frame to 60 bytes.
func NewTemplate(layers ...gopacket.SerializableLayer) (*Template, error) {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, layers...); err != nil {
		return nil, fmt.Errorf("raw: build a template: %w", err)
	}
	return NewTemplateBytes(buf.Bytes())
}

// NewTemplateBytes takes a finished Ethernet frame, without FCS, and copies
// it. Its IPv4, TCP and UDP checksums are made right, but a UDP checksum of 0
// in IPv4 stays none.
func NewTemplateBytes(frame []byte) (*Template, error) {
	t := &Template{frame: append([]byte(nil), frame...), sizes: Sizes{List: []int{len(frame)}}}
	if !proto.Parse(t.frame, &t.head) {
		return nil, fmt.Errorf("raw: a template of %d bytes has no whole Ethernet header", len(frame))
	}
	if h := &t.head; h.Status == proto.OK && h.L4Proto == proto.ProtoUDP && !h.Fragment {
		if n := int(binary.BigEndian.Uint16(t.frame[h.L4Off+4:])); n != h.PayloadEnd-h.L4Off {
			return nil, fmt.Errorf("raw: the template's UDP length is %d, its IP length says %d", n, h.PayloadEnd-h.L4Off)
		}
	}
	if err := t.compile(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Template) compile() error {
	p, err := newProgram(t, false, false)
	if err == nil {
		t.plain = p
	}
	return err
}

// Vary makes a field vary. Each field varies once; two payload counters may
// not overlap.
func (t *Template) Vary(f Field) error {
	t.fields = append(t.fields, f)
	if err := t.compile(); err != nil {
		t.fields = t.fields[:len(t.fields)-1]
		return err
	}
	return nil
}

// SetSizes makes the size vary: the payload is cut, or zeros are added, and
// the lengths and checksums follow. The frame must be whole TCP or UDP. A
// RoCE v2 datagram fills its frame without pad bytes, or is refused.
func (t *Template) SetSizes(s Sizes) error {
	old, resized := t.sizes, t.resized
	t.resized = true
	t.sizes = Sizes{List: append([]int(nil), s.List...), Random: s.Random, Seed: s.Seed}
	if err := t.compile(); err != nil {
		t.sizes, t.resized = old, resized
		return err
	}
	return nil
}

// MaxFrame is the largest size of the template's frames.
func (t *Template) MaxFrame() int {
	n := 0
	for _, s := range t.sizes.List {
		n = max(n, s)
	}
	return n
}

// Write writes packet i, of flow flow, to dst and returns its length, or 0
// when dst is too short. There is no tag; a stream adds it.
func (t *Template) Write(dst []byte, i uint64, flow uint32) int {
	p := t.plain
	v := &p.variants[p.order.at(i)]
	if len(dst) < len(v.frame) {
		return 0
	}
	copy(dst, v.frame)
	p.patch(dst, v, &packet{index: i, flow: flow, psn: uint32(i)})
	return len(v.frame)
}
