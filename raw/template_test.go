package raw_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// oracle is what a field's documentation says of value i, worked out anew.
func oracle(f raw.Field, i uint64) raw.Value {
	var all []raw.Value
	if f.List != nil {
		all = f.List
	} else {
		step := max(f.Step, 1)
		for v := f.Lo; v.Hi < f.Hi.Hi || v.Hi == f.Hi.Hi && v.Lo <= f.Hi.Lo; {
			all = append(all, v)
			lo, carry := bits.Add64(v.Lo, step, 0)
			if v = (raw.Value{Hi: v.Hi + carry, Lo: lo}); v == (raw.Value{}) {
				break
			}
		}
	}
	n := uint64(len(all))
	switch f.Order {
	case raw.Dec:
		return all[n-1-i%n]
	case raw.Random:
		z := f.Seed + i*0x9e3779b97f4a7c15
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb
		z ^= z >> 31
		x, _ := bits.Mul64(z, n)
		return all[x]
	}
	return all[i%n]
}

// apply sets a field of the Spec that gopacket builds from.
func apply(s *frametest.Spec, f raw.Field, v raw.Value) {
	addr := func() netip.Addr {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], v.Hi)
		binary.BigEndian.PutUint64(b[8:], v.Lo)
		if s.Dst.Is4() {
			return netip.AddrFrom4([4]byte(b[12:]))
		}
		return netip.AddrFrom16(b)
	}
	var whole [8]byte
	binary.BigEndian.PutUint64(whole[:], v.Lo)
	switch f.Kind {
	case raw.DstMAC:
		copy(s.DstMAC[:], whole[2:])
	case raw.SrcMAC:
		copy(s.SrcMAC[:], whole[2:])
	case raw.VLANID:
		s.VLANs[0] = s.VLANs[0]&0xf000 | uint16(v.Lo)
	case raw.InnerVLAN:
		s.VLANs[1] = s.VLANs[1]&0xf000 | uint16(v.Lo)
	case raw.SrcAddr:
		s.Src = addr()
	case raw.DstAddr:
		s.Dst = addr()
	case raw.FlowLabel:
		s.FlowLabel = uint32(v.Lo)
	case raw.SrcPort:
		s.SrcPort = uint16(v.Lo)
	case raw.DstPort:
		s.DstPort = uint16(v.Lo)
	case raw.Counter:
		copy(s.Payload[f.Off:f.Off+f.Width], whole[8-f.Width:])
	}
}

// randomField makes a field of few values, so that wraps are frequent.
func randomField(r *rand.Rand, k raw.Kind, version, payload int) raw.Field {
	f := raw.Field{Kind: k, Order: raw.Order(r.IntN(3)), Seed: r.Uint64(), ByFlow: r.IntN(2) == 0, Step: r.Uint64N(4)}
	maxBits := map[raw.Kind]int{raw.DstMAC: 47, raw.SrcMAC: 48, raw.VLANID: 12, raw.InnerVLAN: 12, raw.FlowLabel: 20, raw.SrcPort: 16, raw.DstPort: 16, raw.SrcAddr: 32, raw.DstAddr: 32}[k]
	if k == raw.Counter {
		f.Width = []int{1, 2, 4, 8}[r.IntN(4)]
		f.Off, maxBits = r.IntN(payload-f.Width), 8*f.Width
	}
	value := func() raw.Value {
		if (k == raw.SrcAddr || k == raw.DstAddr) && version == 6 {
			return raw.Value{Hi: 0x20<<56 | r.Uint64()>>8, Lo: r.Uint64() | -r.Uint64N(2)}
		}
		return raw.Num((r.Uint64() | -r.Uint64N(2)) >> (64 - maxBits)) // often the highest
	}
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(5) {
			f.List = append(f.List, value())
		}
		return f
	}
	f.Hi = value()
	f.Lo = f.Hi
	f.Lo.Lo -= min(r.Uint64N(20), f.Hi.Lo)
	return f
}

// kindsFor lists what a frame has.
func kindsFor(version, vlans int) []raw.Kind {
	out := []raw.Kind{raw.DstMAC, raw.SrcMAC, raw.SrcAddr, raw.DstAddr, raw.SrcPort, raw.DstPort, raw.Counter}
	if version == 6 {
		out = append(out, raw.FlowLabel)
	}
	return append(out, []raw.Kind{raw.VLANID, raw.InnerVLAN}[:vlans]...)
}

// template builds from layers or bytes, as coin says, with fields and sizes.
func template(t testing.TB, s frametest.Spec, coin bool, fields []raw.Field, sizes *raw.Sizes) *raw.Template {
	var tmpl *raw.Template
	var err error
	if coin {
		tmpl, err = raw.NewTemplate(s.Layers()...)
	} else {
		tmpl, err = raw.NewTemplateBytes(s.Build())
	}
	if err == nil {
		err = shape(tmpl, fields, sizes)
	}
	if err != nil {
		t.Fatalf("%+v, %+v: %v", s, fields, err)
	}
	return tmpl
}

// shape has a template vary in fields, and in its size unless sizes is nil.
func shape(tmpl *raw.Template, fields []raw.Field, sizes *raw.Sizes) (err error) {
	if sizes != nil {
		err = tmpl.SetSizes(*sizes)
	}
	for _, f := range fields {
		if err == nil {
			err = tmpl.Vary(f)
		}
	}
	return err
}

// expected builds packet i with gopacket.
func expected(s frametest.Spec, fields []raw.Field, sizes *raw.Sizes, i uint64, flow uint32) []byte {
	s.VLANs = append([]uint16(nil), s.VLANs...)
	s.Payload = append([]byte(nil), s.Payload...)
	if sizes != nil {
		size := sizes.List[i%uint64(len(sizes.List))]
		if sizes.Random {
			size = int(oracle(raw.Field{List: numbers(sizes.List), Order: raw.Random, Seed: sizes.Seed}, i).Lo)
		}
		headers := len(s.Build()) - len(s.Payload)
		s.Payload = append(s.Payload, make([]byte, max(0, size-headers-len(s.Payload)))...)[:size-headers]
	}
	for _, f := range fields {
		x := i
		if f.ByFlow {
			x = uint64(flow)
		}
		apply(&s, f, oracle(f, x))
	}
	return s.Build()
}

func numbers(list []int) (out []raw.Value) {
	for _, n := range list {
		out = append(out, raw.Num(uint64(n)))
	}
	return out
}

func check(t *testing.T, tmpl *raw.Template, s frametest.Spec, fields []raw.Field, sizes *raw.Sizes, i uint64, flow uint32) {
	t.Helper()
	buf := bytes.Repeat([]byte{0xa5}, 2000)
	n := tmpl.Write(buf, i, flow)
	want := expected(s, fields, sizes, i, flow)
	if sizes == nil && n == 60 && len(want) < 60 {
		want = append(want, make([]byte, 60-len(want))...)
	}
	if !bytes.Equal(buf[:n], want) {
		t.Fatalf("packet %d flow %d of %+v\n with %+v\n got  %x\n want %x", i, flow, s, fields, buf[:n], want)
	}
}

func TestEachFieldEqualsGopacketsSerialisation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, version := range []int{4, 6} {
		for _, tcp := range []bool{false, true} {
			for vlans := range 3 {
				for _, k := range kindsFor(version, vlans) {
					t.Run(fmt.Sprintf("IPv%d/tcp=%v/vlans=%d/%v", version, tcp, vlans, k), func(t *testing.T) {
						for range 12 {
							s := frametest.Random(r, version, tcp, vlans, 9+r.IntN(40))
							fields := []raw.Field{randomField(r, k, version, len(s.Payload))}
							tmpl := template(t, s, r.IntN(2) == 0, fields, nil)
							for i := range uint64(25) {
								check(t, tmpl, s, fields, nil, i, r.Uint32()>>8)
							}
							check(t, tmpl, s, fields, nil, ^uint64(0), 1<<24-1)
						}
					})
				}
			}
		}
	}
}

// anyCase draws a template of several fields and sizes from r and checks it.
func anyCase(t *testing.T, r *rand.Rand) {
	version, vlans := 4+2*r.IntN(2), r.IntN(3)
	s := frametest.Random(r, version, r.IntN(2) == 0, vlans, 9+r.IntN(60))
	s.IPOptions, s.Extensions, s.TCPOptions = 4*r.IntN(3), r.IntN(2), 4*r.IntN(3)
	var fields []raw.Field
	for _, k := range kindsFor(version, vlans) {
		if r.IntN(2) == 0 {
			fields = append(fields, randomField(r, k, version, len(s.Payload)))
		}
	}
	var sizes *raw.Sizes
	if r.IntN(2) == 0 {
		sizes = &raw.Sizes{Random: r.IntN(2) == 0, Seed: r.Uint64()}
		for range 1 + r.IntN(5) {
			sizes.List = append(sizes.List, len(s.Build())+r.IntN(200))
		}
	}
	tmpl := template(t, s, r.IntN(2) == 0, fields, sizes)
	start := r.Uint64()
	for i := range uint64(12) {
		check(t, tmpl, s, fields, sizes, start+i, r.Uint32()>>8)
	}
}

func TestManyFieldsAndSizesEqualGopacket(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 400 {
		anyCase(t, r)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { anyCase(t, rand.New(rand.NewPCG(a, b))) })
}

func FuzzTemplateBytes(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, version := range []int{4, 6} {
		s := frametest.Random(r, version, version == 4, 1, 20)
		f.Add(s.Build(), uint8(4), uint16(100))
		f.Add(randomGram(r, version, version/6, 21).frame(), uint8(raw.DestQPN), uint16(130))
	}
	f.Fuzz(func(t *testing.T, frame []byte, kind uint8, size uint16) {
		tmpl, err := raw.NewTemplateBytes(frame)
		if err != nil {
			return
		}
		isRoCE := tmpl.SetRoCE() == nil
		_ = tmpl.SetSizes(raw.Sizes{List: []int{int(size), len(frame)}})
		_ = tmpl.Vary(raw.Field{Kind: raw.Kind(kind), Hi: raw.Num(5), Width: 2, Off: int(size) % 100})
		buf := make([]byte, 1<<16)
		for i := range uint64(3) {
			n := tmpl.Write(buf, i, 7)
			if n != len(frame) && n != int(size) {
				t.Fatalf("%d bytes", n)
			}
			var h proto.Headers
			if proto.Parse(buf[:n], &h); isRoCE {
				end := h.PayloadEnd - proto.ICRCBytes
				if want := proto.ICRC(buf[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, end-h.L3Off); proto.LoadICRC(buf[end:]) != want {
					t.Fatalf("packet %d: no ICRC %#x in %x", i, want, buf[:n])
				}
			}
		}
	})
}

// A computed UDP checksum of 0 is sent as 0xffff, a TCP one as 0.
func TestComputedZeroChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, tcp := range []bool{false, true} {
		s := frametest.Random(r, 4, tcp, 0, 20)
		f := raw.Field{Kind: raw.SrcPort, Hi: raw.Num(65535)}
		tmpl := template(t, s, false, []raw.Field{f}, nil)
		buf, at, seen := make([]byte, 100), 40, false
		if tcp {
			at = 50
		}
		for i := range uint64(65536) {
			tmpl.Write(buf, i, 0)
			c := binary.BigEndian.Uint16(buf[at:])
			if c == 0 && !tcp {
				t.Fatal("a UDP checksum of 0")
			}
			if want := map[bool]uint16{false: 0xffff, true: 0}[tcp]; c == want {
				seen = true
				check(t, tmpl, s, []raw.Field{f}, nil, i, 0)
			}
		}
		if !seen {
			t.Errorf("tcp=%v: no checksum was 0", tcp)
		}
	}
}

func TestUDPWithoutChecksumStaysSo(t *testing.T) {
	s := frametest.Random(rand.New(rand.NewPCG(5, 5)), 4, false, 0, 20)
	frame := s.Build()
	frame[40], frame[41] = 0, 0
	tmpl, err := raw.NewTemplateBytes(frame)
	if err != nil {
		t.Fatal(err)
	}
	if err := tmpl.Vary(raw.Field{Kind: raw.DstAddr, Hi: raw.Num(5)}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if tmpl.Write(buf, 3, 0); buf[40]|buf[41] != 0 {
		t.Errorf("checksum %x", buf[40:42])
	}
}

func TestTemplateRefuses(t *testing.T) {
	s := frametest.Random(rand.New(rand.NewPCG(6, 6)), 4, false, 0, 20)
	tmpl := template(t, s, false, nil, nil)
	for name, f := range map[string]raw.Field{
		"no VLAN":          {Kind: raw.VLANID, Hi: raw.Num(1)},
		"no flow label":    {Kind: raw.FlowLabel, Hi: raw.Num(1)},
		"unknown kind":     {Kind: 99},
		"unknown order":    {Kind: raw.SrcPort, Order: 9},
		"range backwards":  {Kind: raw.SrcPort, Lo: raw.Num(2), Hi: raw.Num(1)},
		"too wide":         {Kind: raw.SrcPort, Hi: raw.Num(65536)},
		"wide in a list":   {Kind: raw.SrcMAC, List: []raw.Value{{Hi: 1}}},
		"counter of 3":     {Kind: raw.Counter, Width: 3},
		"counter outside":  {Kind: raw.Counter, Width: 8, Off: 13},
		"counter negative": {Kind: raw.Counter, Width: 8, Off: -1},
	} {
		if err := tmpl.Vary(f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ok := raw.Field{Kind: raw.Counter, Width: 8, Off: 12}
	if err := tmpl.Vary(ok); err != nil {
		t.Error(err)
	}
	if err := tmpl.Vary(ok); err == nil {
		t.Error("the same bytes vary twice")
	}
	for _, bad := range []raw.Sizes{{}, {List: []int{41}}, {List: []int{61}}, {List: []int{70000}}, raw.SizeRange(100, 99)} {
		if err := tmpl.SetSizes(bad); err == nil {
			t.Errorf("sizes %v: no error", bad.List)
		}
	}
	if n := tmpl.Write(make([]byte, 61), 0, 0); n != 0 {
		t.Errorf("Write to 61 bytes gave %d", n)
	}
	if _, err := raw.NewTemplateBytes(make([]byte, 13)); err == nil {
		t.Error("13 bytes are a template")
	}
}

func TestWriteAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	s := frametest.Random(r, 6, false, 1, 40)
	var fields []raw.Field
	for _, k := range kindsFor(6, 1) {
		fields = append(fields, randomField(r, k, 6, 40))
	}
	tmpl := template(t, s, true, fields, &raw.Sizes{List: []int{120, 1514}})
	buf, i := make([]byte, 1600), uint64(0)
	if n := testing.AllocsPerRun(100, func() { tmpl.Write(buf, i, uint32(i)); i++ }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	s := frametest.Random(rand.New(rand.NewPCG(8, 8)), 4, false, 0, 18)
	f := raw.Field{Kind: raw.SrcPort, Lo: raw.Num(1024), Hi: raw.Num(65535)}
	b.Run("template/size=60", func(b *testing.B) {
		tmpl := template(b, s, true, []raw.Field{f}, nil)
		buf, i := make([]byte, 64), uint64(0)
		b.ReportAllocs()
		for b.Loop() {
			tmpl.Write(buf, i, 0)
			i++
		}
	})
	b.Run("gopacket/size=60", func(b *testing.B) {
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			s.SrcPort = uint16(i)
			if _, err := frametest.Serialize(s.Layers()...); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}
