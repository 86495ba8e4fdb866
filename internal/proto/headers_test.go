package proto_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestParseFindsWhatGopacketBuilt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		version := 4 + 2*r.IntN(2)
		s := frametest.Random(r, version, r.IntN(2) == 0, r.IntN(3), r.IntN(100))
		s.IPOptions, s.Extensions, s.TCPOptions = 4*r.IntN(3), r.IntN(3), 4*r.IntN(4)
		frame := s.Build()
		end := len(frame)
		frame = append(frame, make([]byte, r.IntN(20))...) // Ethernet padding
		var h proto.Headers
		if !proto.Parse(frame, &h) || h.Status != proto.OK {
			t.Fatalf("%+v: %v", s, h.Status)
		}
		payload, ok := h.Payload(frame)
		if !ok || !bytes.Equal(payload, s.Payload) || h.PayloadEnd != end {
			t.Fatalf("%+v: payload %v at %d..%d", s, ok, h.PayloadOff, h.PayloadEnd)
		}
		if int(h.IPVersion) != version || h.SrcPort != s.SrcPort || h.DstPort != s.DstPort || h.VLANs != len(s.VLANs) || h.Fragment {
			t.Fatalf("%+v: %+v", s, h)
		}
		for i, tci := range s.VLANs {
			if h.VLAN[i] != tci {
				t.Fatalf("VLAN %d is %#x, want %#x", i, h.VLAN[i], tci)
			}
		}
		if !bytes.Equal(frame[h.DstOff:h.DstOff+h.AddrLen], s.Dst.AsSlice()) || !bytes.Equal(frame[h.SrcOff:h.SrcOff+h.AddrLen], s.Src.AsSlice()) {
			t.Fatalf("%+v: addresses at %d, %d", s, h.SrcOff, h.DstOff)
		}
		if !csum.VerifyL4(frame, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto) {
			t.Fatalf("%+v: checksum", s)
		}
	}
}

func TestParseSaysHowFarItCame(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	v4 := frametest.Random(r, 4, false, 0, 8)
	v6 := frametest.Random(r, 6, true, 1, 8)
	edit := func(s frametest.Spec, f func(b []byte) []byte) []byte { return f(s.Build()) }
	cases := []struct {
		name  string
		frame []byte
		ok    bool
		want  proto.Status
	}{
		{"empty", nil, false, proto.Short},
		{"13 bytes", make([]byte, 13), false, proto.Short},
		{"cut VLAN tag", edit(v6, func(b []byte) []byte { return b[:16] }), false, proto.Short},
		{"ARP", edit(v4, func(b []byte) []byte { b[12], b[13] = 8, 6; return b }), true, proto.NotIP},
		{"IPv4 header cut", edit(v4, func(b []byte) []byte { return b[:33] }), true, proto.BadIP},
		{"IPv4 header length 16", edit(v4, func(b []byte) []byte { b[14] = 0x44; return b }), true, proto.BadIP},
		{"IPv4 with version 5", edit(v4, func(b []byte) []byte { b[14] = 0x55; return b }), true, proto.BadIP},
		{"IPv4 total length 19", edit(v4, func(b []byte) []byte { b[16], b[17] = 0, 19; return b }), true, proto.BadIP},
		{"IPv4 longer than the frame", edit(v4, func(b []byte) []byte { return b[:len(b)-1] }), true, proto.Truncated},
		{"IPv6 longer than the frame", edit(v6, func(b []byte) []byte { return b[:len(b)-1] }), true, proto.Truncated},
		{"later fragment", edit(v4, func(b []byte) []byte { b[21] = 1; return b }), true, proto.NotL4},
		{"first fragment", edit(v4, func(b []byte) []byte { b[20] = 0x20; return b }), true, proto.OK},
		{"ICMP", edit(v4, func(b []byte) []byte { b[23] = 1; return b }), true, proto.NotL4},
		{"UDP header cut", edit(v4, func(b []byte) []byte { b[17] = 27; return b }), true, proto.BadL4},
		{"TCP header length 16", edit(v6, func(b []byte) []byte { b[18+40+12] = 0x40; return b }), true, proto.BadL4},
		{"TCP header length past the end", edit(v6, func(b []byte) []byte { b[18+40+12] = 0xf0; return b }), true, proto.BadL4},
		{"extension header cut", edit(v6, func(b []byte) []byte { b[18+6] = 60; b[18+41] = 200; return b }), true, proto.BadIP},
	}
	for _, c := range cases {
		h := proto.Headers{SrcPort: 9, VLANs: 7}
		if ok := proto.Parse(c.frame, &h); ok != c.ok || h.Status != c.want {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, ok, h.Status, c.ok, c.want)
		}
		if _, ok := h.Payload(c.frame); ok {
			t.Errorf("%s has a payload", c.name)
		}
	}
}

func TestFragmentsOfIPv6(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, c := range []struct {
		name     string
		word     uint16
		fragment bool
		want     proto.Status
	}{
		{"atomic", 0, false, proto.OK},
		{"first", 1, true, proto.OK},
		{"later", 8, true, proto.NotL4},
	} {
		s := frametest.Random(r, 6, false, 0, 30)
		s.Extensions = 1
		b := s.Build()
		b[14+6] = proto.ProtoFragment
		binary.BigEndian.PutUint16(b[14+40+2:], c.word)
		var h proto.Headers
		if proto.Parse(b, &h); h.Status != c.want || h.Fragment != c.fragment || h.L4Proto != proto.ProtoUDP {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, version := range []int{4, 6} {
		for _, tcp := range []bool{false, true} {
			s := frametest.Random(r, version, tcp, 1, 20)
			s.Extensions, s.IPOptions = 2, 4
			f.Add(s.Build())
		}
	}
	key := proto.NewTagKey(1)
	f.Fuzz(func(t *testing.T, b []byte) {
		var h proto.Headers
		ok := proto.Parse(b, &h)
		if ok && (h.L2Len < 14 || h.L2Len > len(b) || h.L4Off > len(b) || h.PayloadEnd > len(b)) {
			t.Fatalf("%+v of %d bytes", h, len(b))
		}
		if p, whole := h.Payload(b); whole {
			csum.VerifyL4(b, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto)
			if len(p) != h.PayloadEnd-h.PayloadOff {
				t.Fatalf("%+v", h)
			}
		}
		key.FindTag(b, &h)
		agreeWithGopacket(t, b, &h)
		agreeWithTagged(t, b, &h)
	})
}

// agreeWithTagged compares what was found in an untagged IP frame with what is found when a VLAN tag is put in: all the
// same four bytes on. Tagged frames are parsed field by field, the usual untagged ones in one go.
func agreeWithTagged(t *testing.T, b []byte, h *proto.Headers) {
	t.Helper()
	if h.VLANs != 0 || h.EtherType != proto.EtherTypeIPv4 && h.EtherType != proto.EtherTypeIPv6 {
		return
	}
	tagged := append(append(append([]byte(nil), b[:12]...), 0x81, 0, 0, 0), b[12:]...)
	var got proto.Headers
	proto.Parse(tagged, &got)
	want := *h
	want.VLANs = 1
	for _, off := range []*int{&want.L2Len, &want.L3Off, &want.L4Off, &want.PayloadOff, &want.PayloadEnd, &want.SrcOff, &want.DstOff} {
		if *off != 0 {
			*off += proto.VLANBytes
		}
	}
	if got != want {
		t.Fatalf("%x\ntagged: %+v\n  want: %+v", b, got, want)
	}
}

// TestUsualFramesParseLikeTaggedOnes spoils bytes of the headers, too, and cuts frames.
func TestUsualFramesParseLikeTaggedOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	found := map[proto.Status]int{}
	for range 20000 {
		s := frametest.Random(r, 4+2*r.IntN(2), r.IntN(2) == 0, 0, r.IntN(30))
		s.IPOptions, s.Extensions, s.TCPOptions = 4*(r.IntN(8)/7), r.IntN(8)/7, 4*(r.IntN(4)/3)
		frame := s.Build()
		for range r.IntN(3) {
			frame[14+r.IntN(min(len(frame), 76)-14)] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 {
			frame = frame[:14+r.IntN(len(frame)-13)]
		}
		h := proto.Headers{VLANs: 3, SrcPort: 7, Routed: true, Fragment: true}
		proto.Parse(frame, &h)
		agreeWithTagged(t, frame, &h)
		found[h.Status]++
	}
	for _, s := range []proto.Status{proto.OK, proto.BadIP, proto.Truncated, proto.NotL4, proto.BadL4} {
		if found[s] < 50 {
			t.Errorf("%v came %d times", s, found[s])
		}
	}
}

// agreeWithGopacket compares the ports of plain packets: where gopacket knows
// no error and sees UDP right behind IP.
func agreeWithGopacket(t *testing.T, b []byte, h *proto.Headers) {
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy)
	u, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || p.ErrorLayer() != nil || p.Metadata().Truncated || h.Status != proto.OK || len(p.Layers()) > 4 {
		return
	}
	if h.L4Proto == proto.ProtoUDP && (uint16(u.SrcPort) != h.SrcPort || uint16(u.DstPort) != h.DstPort) {
		t.Fatalf("ports %d %d, gopacket %d %d", h.SrcPort, h.DstPort, u.SrcPort, u.DstPort)
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	s := frametest.Random(rand.New(rand.NewPCG(5, 5)), 6, false, 2, 20)
	frame := s.Build()
	key := proto.NewTagKey(3)
	var h proto.Headers
	if n := testing.AllocsPerRun(100, func() {
		proto.Parse(frame, &h)
		key.FindTag(frame, &h)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
