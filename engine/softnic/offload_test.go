package softnic

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
	"github.com/bluering/bluering/tso"
)

// postFlags is post of one SEND with checksum flags.
func (h *host) postFlags(wrID uint64, flags uint8, segs ...ring.Seg) {
	h.t.Helper()
	bb := ring.BlocksFor(2 + len(segs))
	w, pi, ok := h.sq.Reserve(bb)
	if !ok {
		h.t.Fatal("no room")
	}
	ring.PutCtrl(&w[0], uint16(pi), ring.OpSend, h.qpn, 2+len(segs), ring.FlagSignaled, 0)
	at := ring.PutEth(w, flags, 0, nil)
	for _, s := range segs {
		ring.PutData(w, at, s)
		at++
	}
	h.sq.Commit(bb, wrID)
}

// through sends a frame with checksum flags, in pieces, and gives what arrives and what its CQE says.
func through(tx, rx *host, frame []byte, flags uint8, cuts ...int) (got []byte, c ring.CQE) {
	tx.t.Helper()
	copy(tx.mem, frame)
	var segs []ring.Seg
	at := 0
	for _, cut := range append(cuts, len(frame)) {
		segs = append(segs, tx.seg(at, cut-at))
		at = cut
	}
	rx.rq.Post([]ring.Seg{rx.seg(0, 2000)}, 1)
	rx.rq.Publish()
	tx.postFlags(1, flags, segs...)
	tx.ring()
	rx.nic.Step(64)
	e, ok := rx.rcq.Peek()
	if !ok {
		tx.t.Fatal("nothing came")
	}
	c = *e
	rx.receives()
	for _, d := range tx.sends() {
		if d.op != ring.CQEReq {
			tx.t.Fatalf("send: %+v", d)
		}
	}
	return rx.mem[:c.ByteLen()], c
}

func checkedPair(t *testing.T) (tx, rx *host) {
	a, b := loopPair(t, "", Config{})
	tx = newHost(t, a, hostConfig{maxBB: 2, access: rw})
	rx = newHost(t, b, hostConfig{access: rw})
	b.findQP(rx.qpn).rxCsum = true
	return tx, rx
}

// spoil overwrites every checksum that the frame has, and says where they are.
func spoil(r *rand.Rand, frame []byte, h *proto.Headers) {
	put := func(at int) { binary.BigEndian.PutUint16(frame[at:], uint16(r.Uint32())) }
	if h.IPVersion == 4 {
		put(h.L3Off + 10)
	}
	switch h.L4Proto {
	case proto.ProtoUDP:
		put(h.L4Off + 6)
	case proto.ProtoTCP:
		put(h.L4Off + 16)
	}
}

// TestChecksumsAreGopackets: whatever stands in the fields, what arrives is what gopacket computes (J-24, J-25, J-28), and
// the receiving side calls it good, of IPv4 in verbs' words (H-07).
func TestChecksumsAreGopackets(t *testing.T) {
	tx, rx := checkedPair(t)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		version, tcp := 4+2*(i&1), i&2 != 0
		s := frametest.Random(r, version, tcp, r.IntN(3), r.IntN(300))
		s.IPOptions, s.Extensions, s.TCPOptions = 4*r.IntN(4), r.IntN(3), 4*r.IntN(4)
		want := s.Build()
		var h proto.Headers
		proto.Parse(want, &h)
		sent := bytes.Clone(want)
		spoil(r, sent, &h)
		got, c := through(tx, rx, sent, ring.CsumL3|ring.CsumL4, 14+r.IntN(20))
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v\n got %x\nwant %x", s, got, want)
		}
		kind := map[bool]uint8{false: ring.L4UDP, true: ring.L4TCP}[tcp] | map[int]uint8{4: ring.L3IPv4, 6: ring.L3IPv6}[version]
		if c.HdrOK() != ring.HdrOKL2|ring.HdrOKL3|ring.HdrOKL4 || c.HdrType() != kind || c.CsumOK() != (version == 4) {
			t.Fatalf("CQE says %#x, %#x, csum ok %v of IPv%d tcp %v", c.HdrOK(), c.HdrType(), c.CsumOK(), version, tcp)
		}
	}
}

// TestOneFlagMakesOneChecksum: L3 alone leaves the transport's, L4 alone the IP header's.
func TestOneFlagMakesOneChecksum(t *testing.T) {
	tx, rx := checkedPair(t)
	r := rand.New(rand.NewPCG(3, 4))
	s := frametest.Random(r, 4, false, 0, 20)
	want := s.Build()
	for _, flags := range []uint8{ring.CsumL3, ring.CsumL4} {
		sent := bytes.Clone(want)
		binary.BigEndian.PutUint16(sent[24:], 0x1111)
		binary.BigEndian.PutUint16(sent[40:], 0x2222)
		got, c := through(tx, rx, sent, flags)
		l3, l4 := bytes.Equal(got[24:26], want[24:26]), bytes.Equal(got[40:42], want[40:42])
		if l3 != (flags == ring.CsumL3) || l4 != (flags == ring.CsumL4) || c.CsumOK() {
			t.Errorf("flags %#x: IP good %v, UDP good %v, CQE ok %v", flags, l3, l4, c.CsumOK())
		}
	}
}

// TestOtherFramesAreLeftAlone (J-26).
func TestOtherFramesAreLeftAlone(t *testing.T) {
	tx, rx := checkedPair(t)
	r := rand.New(rand.NewPCG(5, 6))
	four := func(edit func(b []byte)) []byte {
		s := frametest.Random(r, 4, false, 0, 20)
		b := s.Build()
		edit(b)
		return b
	}
	fragment6 := func(offset uint16) []byte {
		s := frametest.Random(r, 6, false, 0, 20)
		b := s.Build()
		b[20] = proto.ProtoFragment
		binary.BigEndian.PutUint16(b[18:], binary.BigEndian.Uint16(b[18:])+8)
		head := append(bytes.Clone(b[:54]), proto.ProtoUDP, 0, byte(offset>>8), byte(offset), 0, 0, 0, 9)
		return append(head, b[54:]...)
	}
	for name, frame := range map[string][]byte{
		"ARP":                  four(func(b []byte) { b[12], b[13] = 8, 6 }),
		"first fragment":       four(func(b []byte) { b[20], b[24] = 0x20, 0x55 }),
		"later fragment":       four(func(b []byte) { b[20], b[21], b[24] = 0, 3, 0x55 }),
		"IPv6 first fragment":  fragment6(1),
		"IPv6 later fragment":  fragment6(8),
		"version 5":            four(func(b []byte) { b[14] = 0x55 }),
		"IP longer than frame": four(func(b []byte) { b[16], b[24] = 9, 0x55 }),
		"IPv4 header cut":      four(func(b []byte) { b[14], b[24] = 0x4f, 0x55 })[:60-14],
		"Ethernet only":        four(func([]byte) {})[:14],
	} {
		got, c := through(tx, rx, frame, ring.CsumL3|ring.CsumL4)
		if !bytes.Equal(got, frame) {
			t.Errorf("%s\n got %x\nwant %x", name, got, frame)
		}
		if c.HdrOK()&ring.HdrOKL4 != 0 || c.CsumOK() {
			t.Errorf("%s: CQE says %#x", name, c.HdrOK())
		}
	}
	// ICMP, and UDP cut by its own length: the IP header's checksum is made, nothing else.
	icmp := four(func(b []byte) { b[23], b[24], b[25] = 1, 0x12, 0x34 })
	got, c := through(tx, rx, icmp, ring.CsumL3|ring.CsumL4)
	if bytes.Equal(got[24:26], icmp[24:26]) || !bytes.Equal(got[34:], icmp[34:]) || c.HdrOK() != ring.HdrOKL2|ring.HdrOKL3 || c.CsumOK() {
		t.Errorf("ICMP: %x, CQE %#x", got, c.HdrOK())
	}
}

// TestFlippedBitsAreSeen: the receive side calls no damaged packet good, and none without a checksum.
func TestFlippedBitsAreSeen(t *testing.T) {
	tx, rx := checkedPair(t)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 300 {
		s := frametest.Random(r, 4+2*(i&1), i&2 != 0, 0, 40)
		frame := s.Build()
		at := 14 + r.IntN(len(frame)-14)
		frame[at] ^= 1 << r.IntN(8)
		if _, c := through(tx, rx, frame, 0); c.CsumOK() {
			t.Fatalf("byte %d of %x was flipped, and the CQE says good", at, frame)
		}
	}
	s := frametest.Random(r, 4, false, 0, 40)
	frame := s.Build()
	frame[40], frame[41] = 0, 0
	if _, c := through(tx, rx, frame, 0); c.CsumOK() || c.HdrOK()&ring.HdrOKL4 != 0 {
		t.Error("UDP without a checksum was called checked")
	}
	s = frametest.Random(r, 4, false, 0, 40)
	ok, _ := judge(&wire.Frame{Data: s.Build(), Flags: wire.FlagCsumNotReady})
	if ok != ring.HdrOKL2|ring.HdrOKL3 {
		t.Errorf("a checksum left to hardware: %#x", ok)
	}
}

// TestQueuePairsThatDidNotAskAreToldNothing (H-07).
func TestQueuePairsThatDidNotAskAreToldNothing(t *testing.T) {
	tx, rx := checkedPair(t)
	rx.nic.findQP(rx.qpn).rxCsum = false
	s := frametest.Random(rand.New(rand.NewPCG(9, 9)), 4, false, 0, 40)
	if _, c := through(tx, rx, s.Build(), 0); c.HdrOK() != 0 || c.CsumOK() {
		t.Errorf("CQE says %#x", c.HdrOK())
	}
}

// tunnelled puts inner into VXLAN or GENEVE, and gives where it begins.
func tunnelled(t *testing.T, inner []byte, port uint16, options int) (frame []byte, at int) {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP, SrcIP: []byte{198, 18, 0, 1}, DstIP: []byte{198, 18, 0, 2}}
	udp := &layers.UDP{SrcPort: 50000, DstPort: layers.UDPPort(port)}
	_ = udp.SetNetworkLayerForChecksum(ip)
	head := append([]byte{8, 0, 0, 0, 0, 0, 7, 0}, make([]byte, options)...)
	if port == portGENEVE {
		head = append([]byte{byte(options / 4), 0, 0x65, 0x58, 0, 0, 7, 0}, make([]byte, options)...)
	}
	eth := &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: layers.EthernetTypeIPv4}
	frame, err := frametest.Serialize(eth, ip, udp, gopacket.Payload(append(head, inner...)))
	if err != nil {
		t.Fatal(err)
	}
	return frame, len(frame) - len(inner)
}

// TestInnerChecksumsAreMadeWhereTheFlagsAsk, and the outer one is over them.
func TestInnerChecksumsAreMadeWhereTheFlagsAsk(t *testing.T) {
	tx, rx := checkedPair(t)
	r := rand.New(rand.NewPCG(11, 12))
	const all = ring.CsumL3 | ring.CsumL4 | ring.CsumInnerL3 | ring.CsumInnerL4
	for i := range 100 {
		port, options := uint16(portVXLAN), 0
		if i&1 != 0 {
			port, options = portGENEVE, 4*r.IntN(8)
		}
		s := frametest.Random(r, 4+2*(i>>1&1), i&4 != 0, i>>3&1, 60)
		want, at := tunnelled(t, s.Build(), port, options)
		var outer, inner proto.Headers
		proto.Parse(want, &outer)
		proto.Parse(want[at:], &inner)
		sent := bytes.Clone(want)
		spoil(r, sent[at:], &inner)
		stale := bytes.Clone(sent[at:])
		spoil(r, sent, &outer)
		if got, _ := through(tx, rx, sent, all); !bytes.Equal(got, want) {
			t.Fatalf("port %d, options %d, inner %+v\n got %x\nwant %x", port, options, s, got, want)
		}
		if got, _ := through(tx, rx, sent, ring.CsumL3|ring.CsumL4); !bytes.Equal(got[at:], stale) {
			t.Fatalf("port %d: inner checksums were made unasked", port)
		}
	}
	// What is no tunnel has no inner headers.
	plain, _ := tunnelled(t, udpFrame(t, 1, 20), 4788, 0)
	ipInGENEVE, _ := tunnelled(t, udpFrame(t, 1, 20), portGENEVE, 0)
	ipInGENEVE[44], ipInGENEVE[45] = 8, 0
	for _, frame := range [][]byte{plain, ipInGENEVE, plain[:46]} {
		if got, _ := through(tx, rx, frame, ring.CsumInnerL3|ring.CsumInnerL4); !bytes.Equal(got, frame) {
			t.Errorf("changed to %x", got)
		}
	}
}

func FuzzFillChecksums(f *testing.F) {
	f.Add(udpFrame(f, 1, 30), uint8(0xf0))
	inner, _ := func() ([]byte, int) { return udpFrame(f, 1, 30), 0 }()
	f.Add(append(udpFrame(f, 1, 0)[:42], append([]byte{8, 0, 0, 0, 0, 0, 7, 0}, inner...)...), uint8(0xf0))
	f.Fuzz(func(t *testing.T, b []byte, flags uint8) {
		frame := bytes.Clone(b)
		fillChecksums(frame, flags)
		var h proto.Headers
		if !proto.Parse(b, &h) {
			return
		}
		if !fillable(&h) && !bytes.Equal(frame, b) {
			t.Fatalf("changed:\n%x\n%x", b, frame)
		}
		ok, _ := judge(&wire.Frame{Data: frame})
		if flags&0xc0 == 0xc0 && h.Status == proto.OK && h.IPVersion == 4 && !h.Fragment && ok&ring.HdrOKL3 == 0 {
			t.Fatalf("judged %#x after the checksums were made: %x", ok, frame)
		}
	})
}

// postTSO writes one TSO WQE.
func (h *host) postTSO(wrID uint64, flags uint8, mss uint16, header []byte, segs ...ring.Seg) {
	h.t.Helper()
	ds := 1 + ring.EthDS(len(header)) + len(segs)
	bb := ring.BlocksFor(ds)
	w, pi, ok := h.sq.Reserve(bb)
	if !ok {
		h.t.Fatal("no room")
	}
	ring.PutCtrl(&w[0], uint16(pi), ring.OpTSO, h.qpn, ds, ring.FlagSignaled, 0)
	at := ring.PutEth(w, flags, mss, header)
	for _, s := range segs {
		ring.PutData(w, at, s)
		at++
	}
	h.sq.Commit(bb, wrID)
}

// cut is what package tso makes of the same.
func cut(t testing.TB, header, payload []byte, mss int) (frames [][]byte) {
	t.Helper()
	var p tso.Plan
	if err := p.Make(header, len(payload), mss); err != nil {
		t.Fatal(err)
	}
	s := p.Segmenter(header)
	for {
		b := make([]byte, p.MaxFrame())
		n := s.Write(b, payload)
		if n == 0 {
			return frames
		}
		frames = append(frames, b[:n])
	}
}

// TestSegmentsComeWholeThroughAFullWire sends TSO requests among plain ones through a wire of any size: the segments are
// those of package tso, in order, each once; one completion for each request.
func TestSegmentsComeWholeThroughAFullWire(t *testing.T) {
	for _, capacity := range []string{"capacity=4KiB&mtu=1500", "capacity=8KiB&mtu=1500", ""} {
		for seed := range uint64(12) {
			r := rand.New(rand.NewPCG(seed, 3))
			a, b := loopPair(t, capacity, Config{})
			tx := newHost(t, a, hostConfig{sendWR: 6, maxBB: 5, access: rw})
			rx := newHost(t, b, hostConfig{recvWR: 8, access: rw})
			var want [][]byte
			var got [][]byte
			requests, completed, next := 0, 0, uint64(0)
			off := 0
			for round := 0; completed < requests || requests < 12 || len(got) < len(want); round++ {
				if round > 20000 {
					t.Fatalf("seed %d: stuck with %d of %d frames, %d of %d requests", seed, len(got), len(want), completed, requests)
				}
				for rx.rq.Outstanding() < 1+r.IntN(8) {
					rx.rq.Post([]ring.Seg{rx.seg(int(next%8)*2048, 2048)}, next)
					next++
				}
				rx.rq.Publish()
				if requests < 12 && tx.sq.Outstanding() < 4 && r.IntN(3) == 0 {
					size := r.IntN(12000)
					if requests == 3 {
						size = 0
					}
					off = requests % 4 * 13000
					payload := tx.mem[off : off+size]
					for i := range payload {
						payload[i] = byte(r.Uint32())
					}
					if r.IntN(4) == 0 {
						f := udpFrame(t, uint64(requests), 100)
						copy(tx.mem[off:], f)
						tx.postFlags(uint64(requests), 0, tx.seg(off, len(f)))
						want = append(want, f)
					} else {
						s := frametest.Random(r, 4+2*r.IntN(2), r.IntN(2) == 0, r.IntN(2), 0)
						s.TCPOptions = 4 * r.IntN(10)
						header, mss := s.Build(), 100+r.IntN(1300)
						var segs []ring.Seg
						for at := 0; at < size; {
							n := min(size-at, 1+r.IntN(4000))
							if len(segs) == 9 {
								n = size - at
							}
							segs = append(segs, tx.seg(off+at, n))
							at += n
						}
						tx.postTSO(uint64(requests), 0, uint16(mss), header, segs...)
						want = append(want, cut(t, header, payload, mss)...)
					}
					requests++
					tx.ring()
				}
				a.Step(1 + r.IntN(40))
				b.Step(1 + r.IntN(40))
				for _, d := range rx.receives() {
					got = append(got, bytes.Clone(rx.mem[int(d.wrID%8)*2048:][:d.bytes]))
				}
				for _, d := range tx.sends() {
					if d.op != ring.CQEReq || d.wrID != uint64(completed) || d.retired != 1 {
						t.Fatalf("seed %d: completion %d: %+v", seed, completed, d)
					}
					completed++
				}
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("seed %d, %q: frame %d\n got %x\nwant %x", seed, capacity, i, got[i], want[i])
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%d frames, want %d", len(got), len(want))
			}
			account(t, a, b)
		}
	}
}

// TestSegmentedSendsThatAreWrong complete with an error, and nothing of them leaves.
func TestSegmentedSendsThatAreWrong(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	s := frametest.Random(r, 4, true, 0, 0)
	header := s.Build()
	tagless := bytes.Clone(header)
	for name, c := range map[string]struct {
		header []byte
		mss    uint16
		segs   func(h *host) []ring.Seg
		want   ring.Syndrome
	}{
		"a header that is not IP":      {append(bytes.Clone(header[:12]), 0x88, 0xb5, 0, 0, 0, 0), 100, nil, ring.SynLocalQPOp},
		"a fragment":                   {func() []byte { b := bytes.Clone(header); b[20] = 0x20; return b }(), 100, nil, ring.SynLocalQPOp},
		"segments longer than a frame": {tagless, 1461, nil, ring.SynLocalLength},
		"a key that names nothing": {header, 100, func(h *host) []ring.Seg {
			g := h.seg(0, 2000)
			g.LKey ^= 1
			return []ring.Seg{h.seg(0, 50), g}
		}, ring.SynLocalProt},
		"more than the device segments": {header, 1400, func(h *host) []ring.Seg {
			return []ring.Seg{h.seg(0, 1<<17), h.seg(0, 1<<17), h.seg(0, 1)}
		}, ring.SynLocalLength},
	} {
		a, _ := loopPair(t, "mtu=1500", Config{})
		tx := newHost(t, a, hostConfig{maxBB: 3, access: rw, memBytes: 1 << 18})
		segs := []ring.Seg{tx.seg(0, 3000)}
		if c.segs != nil {
			segs = c.segs(tx)
		}
		tx.postTSO(9, 0, c.mss, c.header, segs...)
		tx.ring()
		d := tx.sends()
		if len(d) != 1 || d[0].syndrome != c.want || d[0].wrID != 9 || a.counters.TxFrames != 0 || a.counters.TxErrors != 1 {
			t.Errorf("%s: %+v, %d frames left", name, d, a.counters.TxFrames)
		}
	}
}

// TestRegionsThatGoAwayUnderASegmentedSend end it at the next look (D-13), and a reset forgets how far it was.
func TestRegionsThatGoAwayUnderASegmentedSend(t *testing.T) {
	a, b := loopPair(t, "capacity=4KiB&mtu=1500", Config{})
	tx := newHost(t, a, hostConfig{maxBB: 3, access: rw})
	rx := newHost(t, b, hostConfig{recvWR: 32, access: rw})
	s := frametest.Random(rand.New(rand.NewPCG(6, 6)), 4, true, 0, 0)
	header := s.Build()
	post := func() {
		tx.postTSO(1, 0, 1000, header, tx.seg(0, 20000))
		tx.ring()
	}
	post()
	if q := a.findQP(tx.qpn); q.cut == 0 || q.cut == 20 {
		t.Fatalf("%d segments left at once, want some", q.cut)
	}
	left := a.counters.TxFrames
	tx.ok(a.Deregister(tx.key))
	for i := range uint64(8) {
		rx.rq.Post([]ring.Seg{rx.seg(int(i)*2048, 2048)}, i)
	}
	rx.rq.Publish()
	b.Step(64)
	a.Step(64)
	if d := tx.sends(); len(d) != 1 || d[0].syndrome != ring.SynLocalProt || a.counters.TxFrames != left {
		t.Fatalf("%+v, %d frames after %d", d, a.counters.TxFrames, left)
	}
	var err error
	tx.key, tx.addr, err = a.Register(testPD, tx.mem, rw)
	tx.ok(err)
	for _, st := range []engine.QPState{engine.StateReset, engine.StateInit, engine.StateRTR, engine.StateRTS} {
		tx.ok(a.SetState(tx.qpn, st, engine.QPAttr{}))
	}
	tx.sq.Reset()
	post()
	if q := a.findQP(tx.qpn); q.cut == 0 {
		t.Error("nothing left after the reset")
	}
	tx.ok(a.SetState(tx.qpn, engine.StateErr, engine.QPAttr{}))
	if d := tx.sends(); len(d) != 1 || d[0].syndrome != ring.SynFlushed {
		t.Errorf("flushed with %+v", d)
	}
	tx.ok(a.SetState(tx.qpn, engine.StateReset, engine.QPAttr{}))
	if q := a.findQP(tx.qpn); q.cut != 0 {
		t.Errorf("%d segments are remembered after a reset", q.cut)
	}
}

// TestOffloadsAllocateNothing measures whole rounds with checksums both ways and with segments.
func TestOffloadsAllocateNothing(t *testing.T) {
	tx, rx := checkedPair(t)
	s := frametest.Random(rand.New(rand.NewPCG(6, 7)), 4, true, 0, 0)
	header := s.Build()
	f := udpFrame(t, 1, 500)
	copy(tx.mem, f)
	one := []ring.Seg{tx.seg(0, len(f))}
	big := []ring.Seg{tx.seg(0, 5001)}
	into := []ring.Seg{rx.seg(0, 2048)}
	round := func() {
		for range 5 {
			rx.rq.Post(into, 0)
		}
		rx.rq.Publish()
		tx.postFlags(0, ring.CsumL3|ring.CsumL4, one...)
		tx.postTSO(1, 0, 1448, header, big...)
		tx.ring()
		tx.nic.Step(64)
		rx.nic.Step(64)
		for range 5 {
			if _, ok := rx.rcq.Peek(); !ok {
				t.Fatal("a frame is missing")
			}
			rx.rq.Take()
			rx.rcq.Consume()
		}
		rx.rcq.Update()
		for range 2 {
			c, ok := tx.scq.Peek()
			if !ok {
				t.Fatal("a completion is missing")
			}
			tx.sq.Retire(c.Counter())
			tx.scq.Consume()
		}
		tx.scq.Update()
	}
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
