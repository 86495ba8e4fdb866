package traffic

import (
	"bytes"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/internal/clock"
)

// loopFacts are those of port n (1 or 2) of a 10 Gbit/s loop with an MTU of 1500.
func loopFacts(n byte) *PortFacts {
	mac := [6]byte{2, 0, 0, 0, 0, n}
	return &PortFacts{
		Port:   Port{URI: "loop:", Name: "loop:", Kind: "loop", MAC: macText(mac), SpeedBPS: 10e9, MaxFrame: 1518},
		HWAddr: mac,
		Addr4:  netip.AddrFrom4([4]byte{198, 18, 0, n}), Addr6: netip.MustParseAddr(fmt.Sprintf("2001:2::%d", n)),
	}
}

func mustPlan(t *testing.T, c Config) *Plan {
	t.Helper()
	p, err := NewPlan(c, loopFacts(1), loopFacts(2))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRateIsExact(t *testing.T) {
	for _, tc := range []struct {
		rate, size string
		speed      uint64
		want       clock.Rate
	}{
		{"10mpps", "64", 0, clock.Rate{Num: 10e6, Den: 1}},
		{"10MPPS", "64", 0, clock.Rate{Num: 10e6, Den: 1}},
		{"1.5kpps", "64", 0, clock.Rate{Num: 1500, Den: 1}},
		{"0.1pps", "64", 0, clock.Rate{Num: 1, Den: 10}},
		{"5.12gbps", "64", 0, clock.Rate{Num: 10e6, Den: 1}},
		{"6.72gbpsl1", "64", 0, clock.Rate{Num: 10e6, Den: 1}},
		{"20%", "64", 10e9, clock.Rate{Num: 62500000, Den: 21}}, // 2.976190 Mpps
		{"100%", "1518", 10e9, clock.Rate{Num: 625000000, Den: 769}},
		{"1gbps", "imix", 0, clock.Rate{Num: 750000000, Den: 2171}}, // mean 4342/12 bytes
		{"max", "64", 10e9, clock.Rate{}},
	} {
		r, err := results.ParseRate(tc.rate)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.PPS(must(ParseSize(tc.size)).Mean(), tc.speed)
		if err != nil || got != tc.want {
			t.Errorf("%s at %s B: %v %v, want %v", tc.rate, tc.size, got, err, tc.want)
		}
	}
	if got := results.PPS(62500000.0 / 21); got != "2.976190 Mpps" {
		t.Errorf("20%% of 10 Gbit/s at 64 B is shown as %s", got)
	}
}

func TestImixIsSevenFourOne(t *testing.T) {
	s := must(ParseSize("imix"))
	m := s.mix(1)
	counts := map[int]int{}
	for k := range uint64(48) {
		counts[s.Distinct()[m.at(k)]]++
	}
	if counts[64] != 28 || counts[594] != 16 || counts[1518] != 4 {
		t.Errorf("48 frames of imix: %v", counts)
	}
	if s.Mean().Cmp(big.NewRat(4342, 12)) != 0 {
		t.Errorf("mean %v", s.Mean())
	}
}

func TestSizesInOrder(t *testing.T) {
	for spec, want := range map[string][]int{
		"64": {64, 64, 64}, "64-66": {64, 65, 66, 64}, "256,64,128": {256, 64, 128, 256},
	} {
		s := must(ParseSize(spec))
		m, distinct := s.mix(1), s.Distinct()
		for k, size := range want {
			if got := distinct[m.at(uint64(k))]; got != size {
				t.Errorf("%s: frame %d has %d bytes, want %d", spec, k, got, size)
			}
		}
	}
	s := must(ParseSize("64-1518:rand"))
	a, b := s.mix(1), s.mix(2)
	same := 0
	for k := range uint64(1000) {
		if a.at(k) == b.at(k) {
			same++
		}
	}
	if same > 20 {
		t.Errorf("two seeds agree on %d of 1000 sizes", same)
	}
}

func TestValues(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"10.0.0.1", "10.0.0.1 10.0.0.1"},
		{"10.0.0.254-10.0.1.1", "10.0.0.254 10.0.0.255 10.0.1.0 10.0.1.1 10.0.0.254"},
		{"10.0.0.0/30:dec", "10.0.0.3 10.0.0.2 10.0.0.1 10.0.0.0 10.0.0.3"},
		{"10.0.0.9,10.0.0.1-10.0.0.2", "10.0.0.9 10.0.0.1 10.0.0.2 10.0.0.9"},
		{"fd00::fffe-fd00::1:1:inc", "fd00::fffe fd00::ffff fd00::1:0 fd00::1:1 fd00::fffe"},
		{"fd00:1:2:3:4:5:6:0dec", "fd00:1:2:3:4:5:6:dec"},
		{"2001:2::dec", "2001:2::dec"},
	} {
		v, err := ParseAddrs("src", tc.spec)
		if err != nil {
			t.Errorf("%s: %v", tc.spec, err)
			continue
		}
		var got []string
		for i := range strings.Fields(tc.want) {
			got = append(got, v.Addr(uint64(i), 0).String())
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.spec, got, tc.want)
		}
	}
	r := must(ParsePorts("sport", "1000-1999:rand"))
	seen := map[uint64]bool{}
	for i := range uint64(5000) {
		x := r.Uint(i, 42)
		if x < 1000 || x > 1999 || x != r.Uint(i, 42) {
			t.Fatalf("value %d is %d", i, x)
		}
		seen[x] = true
	}
	if len(seen) < 950 {
		t.Errorf("5000 random ports hit %d of 1000", len(seen))
	}
	m := must(ParseMACs("smac", "02:00:00:00:00:ff-02:00:00:00:01:01:dec"))
	if m.Len() != 3 || m.Uint(0, 0) != 0x020000000101 || m.Mode() != Dec {
		t.Errorf("MAC range: %d values, first %#x", m.Len(), m.Uint(0, 0))
	}
	if v := must(ParseAddrs("src", "2001:2::/48:rand")); v.Len() != ^uint64(0) {
		t.Errorf("a /48 has %d values", v.Len())
	}
}

// TestFramesDecode lets gopacket read every kind of frame back.
func TestFramesDecode(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
		need int
	}{
		{"IPv4/UDP", Config{}, 62},
		{"IPv4/TCP", Config{Proto: TCP}, 74},
		{"IPv6/UDP", Config{Dst: must(ParseAddrs("dst", "2001:2::5")), Src: must(ParseAddrs("src", "2001:2::1-2001:2::9"))}, 82},
		{"IPv6/TCP", Config{Proto: TCP, FlowLabel: must(ParseFlowLabels("flow-label", "7-9"))}, 94},
		{"IPv4/UDP with a VLAN tag", Config{VLAN: must(ParseVLANs("vlan", "100-102"))}, 66},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.c.Size = must(ParseSize("100,1018"))
			p := mustPlan(t, tc.c)
			if got := MinSize(&p.Config); got != tc.need || protoName(&p.Config) != tc.name {
				t.Errorf("%s needs %d bytes, want %s %d", protoName(&p.Config), got, tc.name, tc.need)
			}
			for k := range uint64(6) {
				checkFrame(t, p, k)
			}
		})
	}
}

// checkFrame rebuilds frame k from what gopacket decodes of it.
func checkFrame(t *testing.T, p *Plan, k uint64) {
	t.Helper()
	raw, err := p.FrameAt(k)
	if err != nil {
		t.Fatal(err)
	}
	if want := p.Frames[p.SizeAt(k)].SizeBytes - fcsBytes; len(raw) != want {
		t.Errorf("frame %d has %d bytes, want %d", k, len(raw), want)
	}
	packet := gopacket.NewPacket(raw, layers.LayerTypeEthernet, gopacket.Default)
	if e := packet.ErrorLayer(); e != nil {
		t.Fatalf("frame %d: %v", k, e.Error())
	}
	var again []gopacket.SerializableLayer
	for _, l := range packet.Layers() {
		if tr, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := tr.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
		}
		if s, ok := l.(gopacket.SerializableLayer); ok {
			again = append(again, s)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}, again...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), raw) {
		t.Errorf("frame %d is not what it decodes to:\n%x\n%x", k, raw, buf.Bytes())
	}
	// Patching the fields into frame 0's bytes gives the same header bytes: Off, LenBytes and MaskBits are right.
	f := p.Frames[p.SizeAt(k)]
	patched := bytes.Clone(f.Bytes)
	for _, v := range f.Vary {
		v.Values.put(patched[v.Off:v.Off+v.LenBytes], v.MaskBits, p.valueIndex(v, k), v.Seed)
	}
	l3 := headerBytes(&p.Config)
	for i := range l3 {
		if patched[i] != raw[i] && !isChecksum(packet, i) {
			t.Errorf("frame %d byte %d: patched %#x, built %#x", k, i, patched[i], raw[i])
		}
	}
}

// isChecksum reports that byte i belongs to a checksum.
func isChecksum(p gopacket.Packet, i int) bool {
	off := 0
	for _, l := range p.Layers() {
		at := -2
		switch l.LayerType() {
		case layers.LayerTypeIPv4:
			at = off + 10
		case layers.LayerTypeUDP:
			at = off + 6
		case layers.LayerTypeTCP:
			at = off + 16
		}
		if i == at || i == at+1 {
			return true
		}
		off += len(l.LayerContents())
	}
	return false
}

func TestFlowsHaveTheirOwnTuple(t *testing.T) {
	for _, tc := range []struct{ flows, queues int }{{1, 1}, {10, 1}, {10, 3}, {1000, 7}, {16, 16}} {
		p := mustPlan(t, Config{Flows: tc.flows, Queues: tc.queues})
		tuples := map[string]uint32{}
		flows := map[uint32]int{}
		for k := range uint64(tc.flows * 3) {
			q := int(k % uint64(p.Queues))
			flow := p.FlowAt(q, k/uint64(p.Queues))
			raw := must(p.FrameAt(k))
			key := string(raw[:ethBytes+ip4Bytes+4])
			if was, ok := tuples[key]; ok && was != flow {
				t.Fatalf("%d flows, %d queues: flows %d and %d share a tuple", tc.flows, tc.queues, was, flow)
			}
			tuples[key] = flow
			if owner, ok := flows[flow]; ok && owner != q {
				t.Fatalf("flow %d is on queues %d and %d", flow, owner, q)
			}
			flows[flow] = q
		}
		if len(flows) != tc.flows || len(tuples) != tc.flows {
			t.Errorf("%d flows, %d queues: %d flows with %d tuples seen", tc.flows, tc.queues, len(flows), len(tuples))
		}
	}
}

// TestPlanErrors: each line names the thing, the value and what would work.
func TestPlanErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
		want string
	}{
		{"frame over MTU", Config{Size: must(ParseSize("1519"))}, `size "1519": loop: takes frames of at most 1518 bytes with FCS (its MTU); use -s 1518 or less, or raise the MTU`},
		{"tag does not fit", Config{Dst: must(ParseAddrs("dst", "2001:2::2")), Size: must(ParseSize("64"))}, `size "64": IPv6/UDP frames with the tag need at least 82 bytes; use -s 82, or --no-tag for counts only`},
		{"headers do not fit", Config{NoTag: true, Proto: TCP, FlowLabel: must(ParseFlowLabels("", "1")), Size: must(ParseSize("64"))}, `size "64": IPv6/TCP frames need at least 78 bytes; use -s 78`},
		{"public target", Config{Dst: must(ParseAddrs("dst", "8.8.8.8"))}, `dst "8.8.8.8": is a public address; use 198.18.0.0/15, 2001:2::/48 or a private range, or --yes-public if it is yours to load`},
		{"range into the public", Config{Dst: must(ParseAddrs("dst", "10.0.0.0-11.0.0.0"))}, `dst "10.0.0.0-11.0.0.0": is a public address; use 198.18.0.0/15, 2001:2::/48 or a private range, or --yes-public if it is yours to load`},
		{"two IP versions", Config{Src: must(ParseAddrs("src", "10.0.0.1")), Dst: must(ParseAddrs("dst", "fd00::1"))}, `dst "fd00::1": and --src 10.0.0.1 are of two IP versions; use one`},
		{"flow label of IPv4", Config{Src: must(ParseAddrs("src", "10.0.0.1")), FlowLabel: must(ParseFlowLabels("", "1"))}, `flow-label "1": IPv4 has no flow label; use IPv6 addresses`},
		{"fewer flows than queues", Config{Flows: 2, Queues: 3}, `flows "2": a flow belongs to one queue; use at least 3, one for each of --queues`},
		{"too few tuples", Config{Flows: 100, SPort: must(ParsePorts("sport", "7"))}, `flows "100": the fields take only 1 different values; widen --src, --dst, --sport or --dport to at least as many (all of them step together, so their numbers should have no common divisor; one with :rand does not count, its values may repeat)`},
		{"drain past the tag's clock", Config{Drain: 61e9}, `drain "1m1s": the tag's clock wraps; use at most 60s`},
		{"more than a frame a ns", Config{Rate: must(results.ParseRate("1001mpps"))}, `rate "1001mpps": is more than 1 frame a nanosecond; use at most 1000mpps`},
		{"payload that nothing cuts", Config{TSO: TSO{Payload: 5000}}, `payload "5000": is what --tso cuts; give --tso MSS`},
		{"MSS without room for a tag", Config{TSO: TSO{MSS: 17}}, `tso "17": use 18 to 65535 bytes`},
		{"too many pieces", Config{TSO: TSO{MSS: 536}}, `tso "536": 64000 bytes make 120 frames, at most 64 leave together; use --tso 1000 or more, or a shorter --payload`},
		{"last piece too short", Config{TSO: TSO{MSS: 1000, Payload: 5010}}, `payload "5010": leaves a last piece of 10 bytes, which cannot hold a tag; use 5000`},
		{"pieces over MTU", Config{TSO: TSO{MSS: 1473}}, `tso "1473": loop: takes frames of at most 1518 bytes with FCS (its MTU); use --tso 1472 or less, or raise the MTU`},
		{"payload too long", Config{TSO: TSO{MSS: 1448, Payload: 70000}}, `payload "70000": use 18 to 65536 bytes`},
		{"odd payloads on queues", Config{TSO: TSO{MSS: 1000, Payload: 4500}, Queues: 2}, `queues "2": payloads for several queues are whole multiples of the MSS; use --payload 5000 or --queues 1`},
	} {
		_, err := NewPlan(tc.c, loopFacts(1), loopFacts(2))
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.name, err, tc.want)
		}
	}
	slow := loopFacts(1)
	slow.SpeedBPS = 0
	_, err := NewPlan(Config{Rate: must(results.ParseRate("20%"))}, slow, nil)
	if err == nil || !strings.Contains(err.Error(), "speed is unknown") {
		t.Errorf("a share of an unknown speed: %v", err)
	}
}

// TestSizeByDefault: frames for which no size was asked are the smallest that there can be.
func TestSizeByDefault(t *testing.T) {
	six := must(ParseAddrs("dst", "2001:2::2"))
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{}, "64"},
		{Config{Dst: six}, "82"},
		{Config{Dst: six, NoTag: true}, "66"},
		{Config{Dst: six, NoTag: true, Proto: TCP}, "78"},
		{Config{Proto: RoCEUD, RoCE: RoCE{QPN: must(ParseQPNs("qpn", "17"))}}, "86"},
	} {
		p := mustPlan(t, tc.c)
		if got := p.Config.Size.String(); got != tc.want || len(p.Frames[0].Bytes) != p.Config.Size.Distinct()[0]-fcsBytes {
			t.Errorf("%s: %s bytes by default, want %s", protoName(&p.Config), got, tc.want)
		}
	}
}

func TestPlanShowsAndSendsNothing(t *testing.T) {
	p := mustPlan(t, Config{Rate: must(results.ParseRate("20%")), Size: must(ParseSize("imix")), Flows: 10, Count: 3, Seed: 7})
	text, err := p.Show()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"backend=loop (not a wire)", "seed=0x7", "10 flows", "varies: sport 1024-1033", "UDP {", "SrcPort=1026", "nothing was sent", "frame 2:"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "frame 3:") {
		t.Errorf("a frame beyond the count:\n%s", text)
	}
}
