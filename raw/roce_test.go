package raw_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// plainICRC is the ICRC by annex A17 of the InfiniBand specification, on a masked copy of the packet, for the frame of
// a Spec without options or extensions.
func plainICRC(l3 []byte) uint32 {
	b := append(bytes.Repeat([]byte{0xff}, 8), l3[:len(l3)-proto.ICRCBytes]...)
	ip, l4 := b[8:], proto.IPv4Bytes
	if ip[0]>>4 == 4 {
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		l4 = proto.IPv6Bytes
		ip[0] |= 0x0f
		ip[1], ip[2], ip[3], ip[7] = 0xff, 0xff, 0xff, 0xff
	}
	ip[l4+6], ip[l4+7], ip[l4+8+4] = 0xff, 0xff, 0xff
	return crc32.ChecksumIEEE(b)
}

// gram is a datagram as it should be.
type gram struct {
	s  frametest.Spec // its Payload is the datagram's
	ud proto.UD
}

func randomGram(r *rand.Rand, version, vlans, payload int) gram {
	g := gram{s: frametest.Random(r, version, false, vlans, payload)}
	g.s.DstPort = proto.RoCEPort
	g.ud = proto.UD{Opcode: proto.OpUDSend, PKey: 0xffff, Pad: uint8(-payload & 3), Solicited: r.IntN(2) == 0,
		DestQP: r.Uint32() >> 8, PSN: r.Uint32() >> 8, QKey: r.Uint32(), SrcQP: r.Uint32() >> 8}
	if r.IntN(2) == 0 {
		g.ud.Opcode, g.ud.HasImm, g.ud.Imm = proto.OpUDSendImm, true, r.Uint32()
	}
	return g
}

// frame builds it by gopacket and plainICRC.
func (g gram) frame() []byte {
	body := make([]byte, 24)
	body = append(body[:g.ud.Put(body)], g.s.Payload...)
	g.s.Payload = append(body, make([]byte, int(g.ud.Pad)+proto.ICRCBytes)...)
	f := g.s.Build()
	l3 := f[proto.EthernetBytes+proto.VLANBytes*len(g.s.VLANs):]
	udp := l3[len(l3)-len(g.s.Payload)-proto.UDPBytes:]
	clear(udp[6:8])
	proto.PutICRC(f[len(f)-proto.ICRCBytes:], plainICRC(l3))
	return f
}

// template makes the template, with a wrong ICRC in it.
func (g gram) template(t testing.TB, fields []raw.Field, sizes *raw.Sizes) *raw.Template {
	t.Helper()
	f := g.frame()
	f[len(f)-1] ^= 1
	tmpl, err := raw.NewTemplateBytes(f)
	if err == nil {
		err = tmpl.SetRoCE()
	}
	if err == nil {
		err = shape(tmpl, fields, sizes)
	}
	if err != nil {
		t.Fatalf("%+v, %+v, %+v: %v", g, fields, sizes, err)
	}
	return tmpl
}

// packet is packet i.
func (g gram) packet(fields []raw.Field, sizes *raw.Sizes, i uint64, flow uint32) gram {
	g.s.VLANs = bytesOf(g.s.VLANs)
	g.s.Payload = bytesOf(g.s.Payload)
	g.ud.PSN = (g.ud.PSN + uint32(i)) & 0xffffff
	if sizes != nil {
		room := sizes.List[i%uint64(len(sizes.List))] - (len(g.frame()) - len(g.s.Payload) - int(g.ud.Pad))
		g.s.Payload = append(g.s.Payload, make([]byte, max(0, room-len(g.s.Payload)))...)[:room]
		g.ud.Pad = 0
	}
	for _, f := range fields {
		x := i
		if f.ByFlow {
			x = uint64(flow)
		}
		if v := oracle(f, x); f.Kind == raw.DestQPN {
			g.ud.DestQP = uint32(v.Lo)
		} else {
			apply(&g.s, f, v)
		}
	}
	return g
}

func bytesOf[T any](s []T) []T { return append([]T(nil), s...) }

func TestEveryICRCIsRightWhateverVaries(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	for range 300 {
		version, vlans := 4+2*r.IntN(2), r.IntN(3)
		g := randomGram(r, version, vlans, 9+r.IntN(60))
		var fields []raw.Field
		for _, k := range append(kindsFor(version, vlans), raw.DestQPN) {
			if r.IntN(2) == 0 {
				continue
			}
			f := raw.Field{Kind: k, Lo: raw.Num(uint64(r.Uint32() >> 9)), Order: raw.Random, Seed: r.Uint64(), Step: 1 << 18}
			if f.Hi = raw.Num(f.Lo.Lo + 1<<22); k != raw.DestQPN {
				f = randomField(r, k, version, len(g.s.Payload))
			}
			fields = append(fields, f)
		}
		var sizes *raw.Sizes
		if r.IntN(2) == 0 {
			sizes = &raw.Sizes{}
			for range 1 + r.IntN(5) {
				sizes.List = append(sizes.List, len(g.frame())+4*r.IntN(200))
			}
		}
		tmpl := g.template(t, fields, sizes)
		buf := make([]byte, 2000)
		start := r.Uint64()
		for i := start; i != start+12; i++ {
			for k := range buf {
				buf[k] = 0xa5
			}
			flow := r.Uint32() >> 8
			n := tmpl.Write(buf, i, flow)
			if want := g.packet(fields, sizes, i, flow).frame(); !bytes.Equal(buf[:n], want) {
				t.Fatalf("packet %d of %+v with %+v, sizes %+v\n got  %x\n want %x", i, g, fields, sizes, buf[:n], want)
			}
		}
	}
}

// The recording is of two kernel rxe devices: what a template of each of its frames writes is that frame.
func TestTemplatesMakeFramesOfLinuxAgain(t *testing.T) {
	f, err := os.Open("../internal/proto/testdata/rxe-ud.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	for ; ; frames++ {
		frame, _, err := p.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		spoilt := bytes.Clone(frame)
		copy(spoilt[len(spoilt)-4:], "none")
		tmpl, err := raw.NewTemplateBytes(spoilt)
		if err == nil {
			err = tmpl.SetRoCE()
		}
		if err != nil {
			t.Fatalf("frame %d: %v", frames+1, err)
		}
		got := make([]byte, len(frame))
		if n := tmpl.Write(got, 0, 0); n != len(frame) || !bytes.Equal(got, frame) {
			t.Fatalf("frame %d:\n got  %x\n want %x", frames+1, got, frame)
		}
	}
	if frames != 172 {
		t.Fatalf("%d frames, want 172", frames)
	}
}

// streamed sends packets of a stream over a loop and checks PSNs, ICRCs and tags of what arrives.
func streamed(t *testing.T, g gram, fields []raw.Field, sizes *raw.Sizes, query string) {
	t.Helper()
	streamedOf(t, g, fields, sizes, query, 3, 200, 0)
}

// streamedOf sends count packets of so many flows, the first at a time in ticks.
func streamedOf(t *testing.T, g gram, fields []raw.Field, sizes *raw.Sizes, query string, flows, count int, from uint32) {
	t.Helper()
	tx, rx := pair(t, query, raw.PortConfig{TxDepth: 64, RxQueues: -1}, raw.PortConfig{TxQueues: -1, RxDepth: 256})
	c := raw.StreamConfig{Tag: true, Key: proto.NewTagKey(77), Flows: uint32(flows), First: 5, Step: 2}
	st, err := tx.Tx(0).NewStream(g.template(t, fields, sizes), c)
	if err != nil {
		t.Fatal(err)
	}
	frames, got := make([]raw.RxFrame, 64), 0
	times := make([]uint32, 50)
	for sent := 0; got < count; {
		for i := range times {
			times[i] = from + 3*uint32(sent+i)
		}
		n, err := st.Send(min(len(times), count-sent), times)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		k := rx.Rx(0).Poll(frames)
		for _, f := range frames[:k] {
			seen := g.packet(fields, sizes, c.First+2*uint64(got), uint32(got%flows))
			seen.ud.PSN = (g.ud.PSN + uint32(got)) & 0xffffff
			tag := seen.s.Payload[len(seen.s.Payload)-proto.TagBytes:]
			c.Key.Put(tag, uint32(got%flows), uint64(got/flows), from+3*uint32(got))
			if want := seen.frame(); !bytes.Equal(f.Data, want) {
				t.Fatalf("packet %d\n got  %x\n want %x", got, f.Data, want)
			}
			got++
		}
		rx.Rx(0).Release(k)
	}
}

func TestStreamsOfDatagrams(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 2))
	port := raw.Field{Kind: raw.SrcPort, Lo: raw.Num(0xfe00), Hi: raw.Num(0xffff), Step: 7}
	random := raw.Field{Kind: raw.SrcPort, Lo: raw.Num(0xffc0), Hi: raw.Num(0xffff), Order: raw.Random, Seed: 3}
	addr := raw.Field{Kind: raw.SrcAddr, Lo: raw.Num(0xc6120000), Hi: raw.Num(0xc6120020), ByFlow: true}
	label := raw.Field{Kind: raw.FlowLabel, Hi: raw.Num(1<<20 - 1), Step: 12345 * 4}
	qpn := raw.Field{Kind: raw.DestQPN, List: numbers([]int{2, 1 << 23, 77})}
	mac := raw.Field{Kind: raw.DstMAC, Lo: raw.Num(0x020000000000), Hi: raw.Num(0x02000000000f)}
	for _, version := range []int{4, 6} {
		for pad := range 4 {
			for _, query := range []string{"", "?inline=18"} {
				last := label
				if version == 4 {
					last = addr
				}
				for k, fields := range [][]raw.Field{nil, {port}, {random}, {qpn}, {last}, {mac}, {port, last, qpn, mac}} {
					g := randomGram(r, version, pad%3, 40-pad)
					size := len(g.frame())
					name := fmt.Sprintf("IPv%d/pad=%d/inline=%t/%d", version, pad, query != "", k)
					t.Run(name+"/one size", func(t *testing.T) { streamed(t, g, fields, nil, query) })
					t.Run(name+"/sizes", func(t *testing.T) {
						streamed(t, g, fields, &raw.Sizes{List: []int{size + 120, size, size + 4}}, query)
					})
				}
			}
		}
	}
}

// TestUntaggedStreamsOfDatagrams: PSN and ICRC vary like those of all others, although but a port varies.
func TestUntaggedStreamsOfDatagrams(t *testing.T) {
	g := randomGram(rand.New(rand.NewPCG(11, 6)), 4, 0, 40)
	fields := []raw.Field{{Kind: raw.SrcPort, Lo: raw.Num(0xc000), Hi: raw.Num(0xc020)}}
	tmpl := g.template(t, fields, nil)
	tx, rx := pair(t, "", raw.PortConfig{TxDepth: 64, RxQueues: -1}, raw.PortConfig{TxQueues: -1, RxDepth: 256})
	st, err := tx.Tx(0).NewStream(tmpl, raw.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := st.Send(50, nil); n != 50 || err != nil {
		t.Fatal(n, err)
	}
	k := 0
	receive(t, tx.Tx(0), rx.Rx(0), 50, func(data []byte) {
		seen := g.packet(fields, nil, uint64(k), 0)
		seen.ud.PSN = (g.ud.PSN + uint32(k)) & 0xffffff
		if want := seen.frame(); !bytes.Equal(data, want) {
			t.Fatalf("packet %d\n got  %x\n want %x", k, data, want)
		}
		k++
	})
}

// PSN, sequence, time and the field pass over each of their bytes, and PSN and time over their end.
func TestStreamsOfDatagramsCount(t *testing.T) {
	g := randomGram(rand.New(rand.NewPCG(11, 5)), 4, 0, 40)
	for name, at := range map[string]struct{ psn, time uint32 }{"end": {0xffff00, 0xfffffc00}, "middle": {0x00ff80, 0x00fffe00}} {
		for _, flows := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/flows=%d", name, flows), func(t *testing.T) {
				g.ud.PSN = at.psn
				port := raw.Field{Kind: raw.SrcPort, Lo: raw.Num(0xc0fe), Hi: raw.Num(0xc102)}
				streamedOf(t, g, []raw.Field{port}, nil, "", flows, 1100, at.time)
			})
		}
	}
}

func TestSetRoCERefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 3))
	at := func(g gram) int { return len(g.frame()) - proto.ICRCBytes - len(g.s.Payload) - 20 } // of the BTH
	for _, c := range []struct {
		spoil func(g *gram, f []byte) []byte
		want  string
	}{
		{func(g *gram, f []byte) []byte { binary.BigEndian.PutUint16(f[at(*g)-6:], 4790); return f }, "port 4790"},
		{func(g *gram, f []byte) []byte { f[at(*g)] = 0x04; return f }, "opcode 0x4"},
		{func(g *gram, f []byte) []byte { f[at(*g)+1] = 0x30; return f[:len(f)-len(g.s.Payload)] }, "want a multiple of 4, and at least 27"},
		{func(g *gram, f []byte) []byte { return f[:len(f)-1] }, "a datagram of 47 bytes"},
		{func(g *gram, f []byte) []byte { return f[:at(*g)+12] }, "12 bytes of UDP payload"},
	} {
		g := randomGram(r, 4, 0, 24)
		g.ud.Opcode, g.ud.HasImm = proto.OpUDSend, false
		f := c.spoil(&g, g.frame())
		binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
		binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
		tmpl, err := raw.NewTemplateBytes(f)
		if err != nil {
			t.Fatal(err)
		}
		before := make([]byte, 200)
		n := tmpl.Write(before, 1, 0)
		if err = tmpl.SetRoCE(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		after := make([]byte, 200)
		if m := tmpl.Write(after, 1, 0); m != n || !bytes.Equal(after, before) {
			t.Errorf("%s: a refusal changes the template", c.want)
		}
		if err := tmpl.Vary(raw.Field{Kind: raw.DestQPN, Hi: raw.Num(5)}); err == nil {
			t.Errorf("%s: a destination QPN without RoCE", c.want)
		}
	}
	g := randomGram(r, 4, 0, 24)
	size := len(g.frame())
	tmpl := g.template(t, nil, nil)
	if err := tmpl.SetSizes(raw.Sizes{List: []int{size, size + 2}}); err == nil || !strings.Contains(err.Error(), "does not fill a frame") {
		t.Errorf("an odd size: %v", err)
	}
	if err := tmpl.Vary(raw.Field{Kind: raw.DestQPN, Hi: raw.Num(1 << 24)}); err == nil {
		t.Error("a QPN of 25 bits")
	}
	if err := tmpl.Vary(raw.Field{Kind: raw.Counter, Width: 8, Off: 17}); err == nil {
		t.Error("a counter in the ICRC")
	}
}

func TestDatagramsAllocateNothing(t *testing.T) {
	g := randomGram(rand.New(rand.NewPCG(11, 4)), 4, 0, 40)
	field := raw.Field{Kind: raw.SrcPort, Hi: raw.Num(100)}
	size := len(g.frame())
	for name, sizes := range map[string]*raw.Sizes{"one size": nil, "sizes": {List: []int{size, size + 64}}} {
		t.Run(name, func(t *testing.T) {
			tx, rx := pair(t, "", raw.PortConfig{TxDepth: 64, RxQueues: -1}, raw.PortConfig{TxQueues: -1, RxDepth: 256})
			tmpl := g.template(t, []raw.Field{field}, sizes)
			st, err := tx.Tx(0).NewStream(tmpl, raw.StreamConfig{Tag: true})
			if err != nil {
				t.Fatal(err)
			}
			buf, frames, times, i := make([]byte, 300), make([]raw.RxFrame, 64), []uint32{7}, uint64(0)
			if n := testing.AllocsPerRun(200, func() {
				_, _ = st.Send(16, times)
				_, _ = st.Send(1000, times) // full
				rx.Rx(0).Release(rx.Rx(0).Poll(frames))
				tmpl.Write(buf, i, 0)
				i++
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}
