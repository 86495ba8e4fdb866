package proto_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/internal/proto"
)

// golden are RoCEv2 frames whose ICRC was computed by other hands: those over IPv4 with scapy 2.5.0, and tshark 4.0.17
// shows the same header fields in all five.
var golden = []struct {
	name    string
	hex     string
	icrc    uint32
	ud      proto.UD
	payload string
}{
	{"IPv4 ping", "020000000002020000000001080045000038000040004011b6b1c0000201c0000202c12312b7002400006400ffff0000001100001234111111110000001270696e67606f9b8b",
		0x8b9b6f60, proto.UD{Opcode: 0x64}, "ping"},
	{"IPv4 hello with immediate, TTL 1", "020000000002020000000001080045020040000040000111f5a7c0000201c0000202c12312b7002c000065b0ffff00000011000012341111111100000012deadbeef68656c6c6f0000007f6ad486",
		0x86d46a7f, proto.UD{Opcode: 0x65, Pad: 3, Solicited: true, HasImm: true, Imm: 0xdeadbeef}, "hello"},
	{"IPv4 empty", "020000000002020000000001080045000034000040004011b6b5c0000201c0000202c12312b7002000006400ffff00000011000012341111111100000012e702c57f",
		0x7fc502e7, proto.UD{Opcode: 0x64}, ""},
	{"IPv6 ping", "02000000000202000000000186dd600000000024114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002400006400ffff0000001100001234111111110000001270696e670cd413cf",
		0xcf13d40c, proto.UD{Opcode: 0x64}, "ping"},
	{"IPv6 hello with immediate", "02000000000202000000000186dd62012345002c114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002c000065b0ffff00000011000012341111111100000012deadbeef68656c6c6f00000067fc7358",
		0x5873fc67, proto.UD{Opcode: 0x65, Pad: 3, Solicited: true, HasImm: true, Imm: 0xdeadbeef}, "hello"},
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// dullICRC is the ICRC as annex A17 describes it, on a masked copy and a bit at a time.
func dullICRC(l3 []byte, l4 int) uint32 {
	b := append(bytes.Repeat([]byte{0xff}, 8), l3...)
	ip, udp := b[8:], b[8+l4:]
	if ip[0]>>4 == 4 {
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		ip[0] |= 0x0f
		ip[1], ip[2], ip[3], ip[7] = 0xff, 0xff, 0xff, 0xff
	}
	udp[6], udp[7], udp[8+4] = 0xff, 0xff, 0xff
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			crc = crc>>1 ^ 0xedb88320&-(crc&1)
		}
	}
	return ^crc
}

// roceFrame finds the parts of a RoCEv2 frame.
func roceFrame(t testing.TB, frame []byte) (l3 []byte, h proto.Headers, l4Off, end int) {
	if !proto.Parse(frame, &h) || h.Status != proto.OK || h.DstPort != proto.RoCEPort {
		t.Fatalf("not a RoCEv2 frame: %v, port %d", h.Status, h.DstPort)
	}
	return frame[h.L3Off:], h, h.L4Off - h.L3Off, h.PayloadEnd - h.L3Off - proto.ICRCBytes
}

func TestGoldenFramesAreReadAndMadeAgain(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			frame := unhex(t, g.hex)
			want := g.ud
			want.PKey, want.DestQP, want.PSN, want.QKey, want.SrcQP = 0xffff, 0x11, 0x1234, 0x11111111, 0x12
			l3, h, l4, end := roceFrame(t, frame)
			var u proto.UD
			off, ok := proto.ParseUD(frame[h.PayloadOff:h.PayloadEnd], &u)
			if !ok || u != want {
				t.Fatalf("parsed %v %+v, want %+v", ok, u, want)
			}
			payload := frame[h.PayloadOff+off : h.PayloadEnd-proto.ICRCBytes-int(u.Pad)]
			if string(payload) != g.payload {
				t.Fatalf("payload %q, want %q", payload, g.payload)
			}
			if got := proto.ICRC(l3, h.IPVersion, l4, end); got != g.icrc || got != proto.LoadICRC(l3[end:]) {
				t.Fatalf("ICRC %#08x, want %#08x", got, g.icrc)
			}
			remake(t, frame)
		})
	}
}

// remake writes transport header, payload, pad and ICRC of a frame anew into a buffer full of garbage.
func remake(t *testing.T, frame []byte) {
	t.Helper()
	_, h, l4, end := roceFrame(t, frame)
	var u proto.UD
	off, ok := proto.ParseUD(frame[h.PayloadOff:h.PayloadEnd], &u)
	if !ok {
		t.Fatalf("opcode %#x is not UD", u.Opcode)
	}
	payload := frame[h.PayloadOff+off : h.L3Off+end-int(u.Pad)]
	made := bytes.Repeat([]byte{0xa5}, len(frame))
	copy(made, frame[:h.PayloadOff])
	at := h.PayloadOff + u.Put(made[h.PayloadOff:])
	at += copy(made[at:], payload)
	clear(made[at : at+int(u.Pad)])
	proto.PutICRC(made[at+int(u.Pad):], proto.ICRC(made[h.L3Off:], h.IPVersion, l4, end))
	if !bytes.Equal(made, frame) {
		t.Fatalf("made  %x\nwant %x", made, frame)
	}
}

// rxeFrames are the frames between two rxe devices of Linux 6.1 (Debian 12): ibv_ud_pingpong and perftest over IPv4
// and IPv6, recorded in a virtual machine with tcpdump.
func rxeFrames(t testing.TB) [][]byte {
	f, err := os.Open("testdata/rxe-ud.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for {
		frame, _, err := r.ReadPacketData()
		if err == io.EOF {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
}

func TestFramesOfLinuxAreReadAndMadeAgain(t *testing.T) {
	frames := rxeFrames(t)
	seen := map[string]int{}
	for i, frame := range frames {
		l3, h, l4, end := roceFrame(t, frame)
		before := bytes.Clone(frame)
		got, want := proto.ICRC(l3, h.IPVersion, l4, end), proto.LoadICRC(l3[end:])
		if got != want || got != dullICRC(l3[:end], l4) {
			t.Fatalf("frame %d: ICRC %#08x, it carries %#08x, bit by bit it is %#08x", i+1, got, want, dullICRC(l3[:end], l4))
		}
		if !bytes.Equal(frame, before) {
			t.Fatalf("frame %d: ICRC did not put the masked fields back", i+1)
		}
		remake(t, frame)
		if h.IPVersion == 4 {
			id := binary.BigEndian.Uint16(l3[4:])
			l3[4], l3[5] = 0, 0 // as behind a UDP socket
			found, ok := proto.ICRCAnyID(l3, end, proto.ICRC(l3, 4, l4, end), want)
			if !ok || found != id {
				t.Fatalf("frame %d: identification %d, %v, want %d", i+1, found, ok, id)
			}
		}
		var u proto.UD
		proto.ParseUD(frame[h.PayloadOff:], &u)
		seen[fmt.Sprintf("IPv%d pad %d", h.IPVersion, u.Pad)]++
	}
	if len(frames) != 172 || len(seen) != 8 {
		t.Fatalf("%d frames, kinds %v; want 172 of 8 kinds", len(frames), seen)
	}
}

func TestICRCIgnoresWhatRoutersChangeAndNothingElse(t *testing.T) {
	for _, g := range golden {
		frame := unhex(t, g.hex)
		l3, h, l4, end := roceFrame(t, frame)
		masked := map[int]byte{l4 + 6: 0xff, l4 + 7: 0xff, l4 + 12: 0xff}
		if h.IPVersion == 4 {
			masked[1], masked[8], masked[10], masked[11] = 0xff, 0xff, 0xff, 0xff
		} else {
			masked[0], masked[1], masked[2], masked[3], masked[7] = 0x0f, 0xff, 0xff, 0xff, 0xff
		}
		for bit := range 8 * end {
			l3[bit/8] ^= 1 << (bit % 8)
			got := proto.ICRC(l3, h.IPVersion, l4, end)
			if free := masked[bit/8]&(1<<(bit%8)) != 0; free != (got == g.icrc) {
				t.Fatalf("%s: byte %d bit %d: covered %v", g.name, bit/8, bit%8, got != g.icrc)
			}
			l3[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestAnyIDFindsEveryIDAndRefusesDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for _, n := range []int{48, 63, 64, 65, 127, 128, 1072, 4144, 65531} {
		l3 := make([]byte, n+4)
		for i := range l3 {
			l3[i] = byte(r.Uint32())
		}
		l3[0] = 0x45
		l3[4], l3[5] = byte(r.Uint32()), byte(r.Uint32())
		computed := proto.ICRC(l3, 4, 20, n)
		step := 1 + (n-48)*7
		for id := 0; id < 65536; id += step {
			other := bytes.Clone(l3)
			binary.BigEndian.PutUint16(other[4:], uint16(id))
			if found, ok := proto.ICRCAnyID(l3, n, computed, proto.ICRC(other, 4, 20, n)); !ok || int(found) != id {
				t.Fatalf("%d bytes: identification %d found as %d, %v", n, id, found, ok)
			}
		}
		for bit := range min(8*n, 4000) { // every single flipped bit in what is covered
			if at := bit / 8; at == 1 || at == 4 || at == 5 || at == 8 || at == 10 || at == 11 || at == 26 || at == 27 || at == 32 {
				continue
			}
			l3[bit/8] ^= 1 << (bit % 8)
			if _, ok := proto.ICRCAnyID(l3, n, proto.ICRC(l3, 4, 20, n), computed); ok {
				t.Fatalf("%d bytes: flipped bit %d passed", n, bit)
			}
			l3[bit/8] ^= 1 << (bit % 8)
		}
	}
	l3 := make([]byte, 52)
	passed := 0
	const tries = 1 << 21
	for range tries {
		if _, ok := proto.ICRCAnyID(l3, 48, 0, r.Uint32()); ok {
			passed++
		}
	}
	if passed == 0 || passed > 2*tries>>16 {
		t.Errorf("%d of %d random ICRCs passed, expected about %d", passed, tries, tries>>16)
	}
}

func TestIDBitsTellWhatAnIDChanges(t *testing.T) {
	for _, n := range []int{48, 67, 68, 1072, 4144} {
		l3 := bytes.Repeat([]byte{0x45, 7, 1}, n)[:n+4]
		l3[4], l3[5] = 0, 0
		zero := proto.ICRC(l3, 4, 20, n)
		bits := proto.ICRCIDBits(n)
		for id := range 256 {
			var got uint32
			for i := range bits {
				got ^= bits[i] & -uint32(id>>i&1)
			}
			l3[5] = byte(id)
			if want := proto.ICRC(l3, 4, 20, n) ^ zero; got != want {
				t.Fatalf("%d bytes, identification %d: %#x, want %#x", n, id, got, want)
			}
		}
	}
}

func TestParseUDSaysWhatIsNotUD(t *testing.T) {
	whole := make([]byte, 24)
	u := proto.UD{Opcode: proto.OpUDSendImm, HasImm: true, PKey: 0xffff, DestQP: 0xffffff, PSN: 0xfedcba, QKey: 1 << 31, SrcQP: 0xabcdef, Pad: 2, Version: 5, MigReq: true, Imm: 7}
	if n := u.Put(whole); n != 24 {
		t.Fatalf("wrote %d bytes", n)
	}
	for n := range 24 {
		if _, ok := proto.ParseUD(whole[:n], &u); ok {
			t.Errorf("%d bytes of a header with immediate passed", n)
		}
	}
	for op := range 256 {
		whole[0] = byte(op)
		off, ok := proto.ParseUD(whole, &u)
		if want := op == 0x64 || op == 0x65; ok != want || u.Opcode != byte(op) || u.DestQP != 0xffffff || u.Version != 5 {
			t.Errorf("opcode %#x: %d %v %+v", op, off, ok, u)
		}
	}
}

func TestGIDs(t *testing.T) {
	for _, c := range []struct {
		gid   string // as IPv6
		addr  string
		group bool
		mac   [6]byte
	}{
		{"::ffff:192.0.2.1", "192.0.2.1", false, [6]byte{}},
		{"::ffff:239.129.2.3", "239.129.2.3", true, [6]byte{1, 0, 0x5e, 1, 2, 3}},
		{"ff0e::ffff:239.129.2.3", "239.129.2.3", true, [6]byte{1, 0, 0x5e, 1, 2, 3}},
		{"ff02::1:ff00:42", "ff02::1:ff00:42", true, [6]byte{0x33, 0x33, 0xff, 0, 0, 0x42}},
		{"ff0e::1:ffff:efff:1", "ff0e::1:ffff:efff:1", true, [6]byte{0x33, 0x33, 0xef, 0xff, 0, 1}},
		{"2001:db8::1", "2001:db8::1", false, [6]byte{}},
		{"fe80::1", "fe80::1", false, [6]byte{}},
	} {
		g := proto.GID(netip.MustParseAddr(c.gid).As16())
		if g.Addr().String() != c.addr || g.IsMulticast() != c.group {
			t.Errorf("%s: address %s, group %v", c.gid, g.Addr(), g.IsMulticast())
		}
		if c.group && proto.MulticastMAC(g) != c.mac {
			t.Errorf("%s: MAC %x, want %x", c.gid, proto.MulticastMAC(g), c.mac)
		}
		if back := proto.GIDFromAddr(g.Addr()); back != g && c.gid[:4] != "ff0e" {
			t.Errorf("%s came back as %x", c.gid, back)
		}
	}
	if proto.GIDFromAddr(netip.MustParseAddr("10.0.0.1")) != proto.GID(netip.MustParseAddr("::ffff:10.0.0.1").As16()) {
		t.Error("an IPv4 address is not mapped")
	}
}

func TestSourcePortsAndMTUs(t *testing.T) {
	// What rxe sent in the recording: one source port for each sending QP.
	for i, frame := range rxeFrames(t) {
		_, h, _, _ := roceFrame(t, frame)
		var u proto.UD
		proto.ParseUD(frame[h.PayloadOff:], &u)
		if got := proto.QPPort(u.SrcQP); got != h.SrcPort {
			t.Fatalf("frame %d: QP %#x gives port %d, rxe took %d", i+1, u.SrcQP, got, h.SrcPort)
		}
	}
	for _, c := range [][2]int{{0, 0}, {335, 0}, {336, 256}, {1500, 1024}, {1104, 1024}, {1103, 512}, {4175, 2048}, {4176, 4096}, {65536, 4096}} {
		if got := proto.RoCEMTU(c[0]); got != c[1] {
			t.Errorf("interface MTU %d: %d, want %d", c[0], got, c[1])
		}
	}
}

func TestRoCEAllocatesNothing(t *testing.T) {
	frame := unhex(t, golden[1].hex)
	l3, h, l4, end := roceFrame(t, frame)
	var u proto.UD
	if n := testing.AllocsPerRun(100, func() {
		proto.ParseUD(frame[h.PayloadOff:], &u)
		u.Put(frame[h.PayloadOff:])
		proto.ICRCAnyID(l3, end, proto.ICRC(l3, 4, l4, end), 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzUD: no input panics, what was read is written again but for the reserved bits, and the ICRC equals the dull one.
func FuzzUD(f *testing.F) {
	for _, g := range golden {
		frame := unhex(f, g.hex)
		f.Add(frame[14:], uint32(0))
	}
	f.Fuzz(func(t *testing.T, l3 []byte, wire uint32) {
		var u proto.UD
		if n, ok := proto.ParseUD(l3, &u); ok {
			b := make([]byte, 24)
			var again proto.UD
			if m := u.Put(b); m != n || n > len(l3) {
				t.Fatalf("read %d bytes of %d, wrote %d", n, len(l3), m)
			}
			if proto.ParseUD(b, &again); again != u {
				t.Fatalf("%+v came back as %+v", u, again)
			}
		}
		l4 := 20
		if len(l3) > 0 && l3[0]>>4 == 6 {
			l4 = 40
		}
		end := len(l3) - proto.ICRCBytes
		if end < l4+20 || l4 == 20 && l3[0]>>4 != 4 {
			return
		}
		before := bytes.Clone(l3)
		icrc := proto.ICRC(l3, l3[0]>>4, l4, end)
		if icrc != dullICRC(l3[:end], l4) || !bytes.Equal(before, l3) {
			t.Fatalf("ICRC %#x, bit by bit %#x", icrc, dullICRC(l3[:end], l4))
		}
		if id, ok := proto.ICRCAnyID(l3, end, icrc, wire); ok && l4 == 20 {
			binary.BigEndian.PutUint16(l3[4:], id)
			if proto.ICRC(l3, 4, 20, end) != wire {
				t.Fatalf("identification %d does not explain %#x", id, wire)
			}
		}
	})
}

// TestICRCGoesOn: going on from any multiple of 4 behind the masked fields gives what ICRC gives at once.
func TestICRCGoesOn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	l3 := make([]byte, 400)
	for i := range l3 {
		l3[i] = byte(rnd.Uint32())
	}
	for end := 48; end <= len(l3); end += 4 {
		want := proto.ICRC(l3, 4, 20, end)
		for from := 36; from <= end; from += 4 {
			if got := proto.ICRCRest(proto.ICRC(l3, 4, 20, from), l3[from:end]); got != want {
				t.Fatalf("%d bytes in two parts, %d and %d: %#x, want %#x", end, from, end-from, got, want)
			}
		}
	}
}

// TestICRCOfPSN: a packet counted with PSN 0 and the rest for its own PSN gives what ICRC gives at once.
func TestICRCOfPSN(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	l3 := make([]byte, 20+8+20+32)
	for range 1000 {
		for i := range l3 {
			l3[i] = byte(rnd.Uint32())
		}
		psn := rnd.Uint32() & 0xffffff
		binary.BigEndian.PutUint32(l3[36:], 0)
		from := proto.ICRC(l3, 4, 20, 48)
		binary.BigEndian.PutUint32(l3[36:], psn)
		if got, want := proto.ICRCRest(from^proto.ICRCOfPSN(psn), l3[48:]), proto.ICRC(l3, 4, 20, len(l3)); got != want {
			t.Fatalf("PSN %#x: %#x, want %#x", psn, got, want)
		}
	}
}

// BenchmarkICRC sets the ICRC beside one hash/crc32 call over the same bytes.
func BenchmarkICRC(b *testing.B) {
	for _, payload := range []int{16, 64, 1024, 4096} {
		l3 := make([]byte, 20+8+20+payload+4)
		l3[0] = 0x45
		end := len(l3) - 4
		b.Run(fmt.Sprintf("crc32/payload=%d", payload), func(b *testing.B) {
			for b.Loop() {
				crc32.ChecksumIEEE(l3[:end])
			}
		})
		b.Run(fmt.Sprintf("icrc/payload=%d", payload), func(b *testing.B) {
			for b.Loop() {
				proto.ICRC(l3, 4, 20, end)
			}
		})
		b.Run(fmt.Sprintf("rest/payload=%d", payload), func(b *testing.B) {
			for b.Loop() {
				proto.ICRCRest(1, l3[36:end])
			}
		})
		b.Run(fmt.Sprintf("anyid/payload=%d", payload), func(b *testing.B) {
			for b.Loop() {
				proto.ICRCAnyID(l3, end, 0x12345678, 0x9abcdef0)
			}
		})
	}
}
