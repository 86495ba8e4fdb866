package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
	"github.com/bluering/bluering/ud"
)

func qpns(s string) RoCE { return RoCE{QPN: must(ParseQPNs("qpn", s)), QKey: DefaultQKey} }

// datagramRuns are runs of datagrams of all kinds.
func datagramRuns() map[string]Config {
	imm, padded := qpns("17"), qpns("17,18,0xffffff")
	imm.Imm, padded.Payload, padded.PSN = new(uint32), 18, MaxPSN-5
	return map[string]Config{
		"one size": {Size: must(ParseSize("86")), RoCE: qpns("17")},
		"sizes":    {Size: must(ParseSize("86-300,1518")), RoCE: qpns("17-20"), SPort: must(ParsePorts("sport", "49152-65535:rand")), Queues: 3},
		"flows":    {Flows: 1000, Queues: 3, Size: must(ParseSize("86")), RoCE: qpns("17")},
		"IPv6":     {Size: must(ParseSize("106-126")), Src: must(ParseAddrs("src", "2001:2::/64:rand")), Dst: must(ParseAddrs("dst", "2001:2::9")), RoCE: qpns("17:dec")},
		"pads":     {RoCE: padded, VLAN: must(ParseVLANs("vlan", "1-9"))},
		"hellos":   {Size: must(ParseSize("90")), RoCE: imm, Hello: true, Queues: 2},
	}
}

func TestLoopOfDatagrams(t *testing.T) {
	for name, c := range datagramRuns() {
		t.Run(name, func(t *testing.T) {
			c.Proto, c.Rate, c.Count = RoCEUD, rateOf(t, "max"), 20_011
			r := loopRun(t, c)
			checkClean(t, r, 20_011)
			if r.BadICRC+r.WeakICRC != 0 || c.Hello && r.Hello != 2 {
				t.Errorf("%+v", r.Counts)
			}
		})
	}
}

// One flipped bit makes a frame corrupt, or another kind of frame, or is in the link's header and nobody's business. Most
// are found by the ICRC; the fields that it leaves out, by the IPv4 header's checksum.
func TestLoopFlippedBitsInDatagrams(t *testing.T) {
	r := loopRun(t, Config{
		TX: "loop:" + t.Name() + "?corrupt=0.05&seed=3", Proto: RoCEUD, RoCE: qpns("17"), Size: must(ParseSize("86")),
		Rate: rateOf(t, "max"), Count: 20_000, Drain: time.Millisecond,
	})
	if r.BadICRC < r.Corrupt/2 || r.BadICRC >= r.Corrupt || r.Unique+r.Lost != r.Sent || r.Foreign+r.Corrupt+r.Fragment != r.Lost || r.Foreign == 0 {
		t.Errorf("%+v", r.Counts)
	}
}

// Every frame on the wire is the plan's, with the tag in its place: each queue sends as a queue pair of its own, whose
// PSNs follow one another.
func TestDatagramsOnTheWireAreThePlans(t *testing.T) {
	for name, c := range datagramRuns() {
		t.Run(name, func(t *testing.T) {
			c.Proto, c.Rate, c.Count, c.Seed = RoCEUD, rateOf(t, "max"), 1000, 99
			c.Tap, c.Run = filepath.Join(t.TempDir(), "t.pcapng"), NewToken(0, max(c.Flows, c.Queues, 1)).String()
			checkClean(t, loopRun(t, c), c.Count)
			tx := loopFacts(1)
			tx.MaxFrame = 9018
			p, err := NewPlan(c, tx, loopFacts(2))
			if err != nil {
				t.Fatal(err)
			}
			key := proto.NewTagKey(must(ParseToken(c.Run)).RunID)
			next := make([]uint64, p.Queues)
			for _, frame := range recorded(t, c.Tap) {
				var h proto.Headers
				var u proto.UD
				proto.Parse(frame, &h)
				proto.ParseUD(frame[h.PayloadOff:h.PayloadEnd], &u)
				q := int(u.SrcQP) - DefaultSrcQPN
				if q == p.Queues {
					continue // a hello
				}
				k := next[q]*uint64(p.Queues) + uint64(q)
				next[q]++
				want := must(p.FrameAt(k))
				end := len(want) - proto.ICRCBytes - int(u.Pad)
				tag, ok := key.Get(frame[end-tagBytes:])
				if !ok || tag.Flow != p.FlowAt(q, next[q]-1) {
					t.Fatalf("frame %d: tag %+v, %t", k, tag, ok)
				}
				copy(want[end-tagBytes:], frame[end-tagBytes:end])
				proto.PutICRC(want[len(want)-proto.ICRCBytes:], proto.ICRC(want[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, len(want)-h.L3Off-proto.ICRCBytes))
				if !bytes.Equal(frame, want) {
					t.Fatalf("frame %d:\n got  %x\n want %x", k, frame, want)
				}
			}
			for q, n := range next {
				if n != (c.Count+uint64(p.Queues-1-q))/uint64(p.Queues) {
					t.Errorf("queue %d: %d frames", q, n)
				}
			}
		})
	}
}

// A UD queue pair of this module takes every datagram, and none with another Q_Key or for another queue pair.
func TestQueuePairTakesDatagrams(t *testing.T) {
	for _, v := range []struct{ name, dst string }{{"IPv4", "198.18.0.1"}, {"IPv6", "2001:2::1"}} {
		t.Run(v.name, func(t *testing.T) {
			dev, err := device.Open("loop:"+t.Name()+"?mode=goroutine", device.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ep, err := ud.New(dev, ud.Config{QKey: 0x8001, GID: engine.GIDFromAddr(netip.MustParseAddr(v.dst)), RecvDepth: 8192})
			if err != nil {
				t.Fatal(err)
			}
			const count = 4000
			run := func(qpn, qkey uint32, payload int) *Report {
				r := qpns(fmt.Sprint(qpn))
				r.QKey, r.Payload = qkey, payload
				report, err := Run(context.Background(), Config{
					TX: "loop:" + t.Name(), Proto: RoCEUD, RoCE: r, Count: count, Rate: rateOf(t, "max"), Dst: must(ParseAddrs("dst", v.dst)),
					DMAC: oneMAC(dev.Caps().MAC), SPort: must(ParsePorts("sport", "49152-65535:rand")), Drain: time.Second,
				})
				if err != nil || report.Sent != count {
					t.Fatalf("%v: %+v", err, report)
				}
				return report
			}
			for _, payload := range []int{16, 17, 18, 19, 1024} {
				before := ep.Counts()
				run(ep.QP().QPN(), 0x8001, payload)
				for ep.Counts().Received < before.Received+count && dev.Err() == nil {
					for m := range ep.Messages {
						m.Release()
					}
				}
				if c := ep.Counts(); c.ReceivedBytes-before.ReceivedBytes != uint64(count*payload) {
					t.Errorf("%d bytes of payload: %+v", payload, c)
				}
			}
			run(ep.QP().QPN(), 0x8002, 16)
			run(ep.QP().QPN()+1, 0x8001, 16)
			for sum := uint64(0); sum < 2*count && dev.Err() == nil; {
				sum = 0
				for _, n := range dev.Counters().Drops {
					sum += n
				}
			}
			want := map[engine.DropReason]uint64{engine.DropQKey: count, engine.DropUnknownQP: count}
			for why, n := range dev.Counters().Drops {
				if n != want[engine.DropReason(why)] {
					t.Errorf("%d drops for %v, want %d", n, engine.DropReason(why), want[engine.DropReason(why)])
				}
			}
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// datagramOf is a datagram of RoCE v2 with a Spec's payload, sometimes with immediate data or a UDP checksum.
func datagramOf(rng *rand.Rand, s frametest.Spec) []byte {
	u := proto.UD{Opcode: proto.OpUDSend, Pad: uint8(-len(s.Payload) & 3), PKey: 0xffff, DestQP: 17, PSN: rng.Uint32() >> 8}
	if u.HasImm = rng.IntN(8) == 0; u.HasImm {
		u.Opcode = proto.OpUDSendImm
	}
	body := make([]byte, 24)
	body = append(body[:u.Put(body)], s.Payload...)
	s.DstPort, s.Payload = proto.RoCEPort, append(body, make([]byte, int(u.Pad)+proto.ICRCBytes)...)
	frame := s.Build()
	new(Config).sealDatagram(frame)
	if rng.IntN(8) == 0 {
		var h proto.Headers
		proto.Parse(frame, &h)
		csum.FillL4(frame, h.L3Off, h.L4Off, h.PayloadEnd, proto.ProtoUDP)
	}
	return frame
}

// What plainDatagram finds good, the general way finds good, with the same end; and it finds good all that it is for.
func FuzzPlainDatagramIsNeverLaxer(f *testing.F) {
	for n := range 24 {
		for at := 0; at < 110; at += 3 {
			f.Add(uint64(n), uint8(0), uint8(16+n), uint8(0), uint8(at), uint16(1<<(at%16)))
		}
		f.Add(uint64(n), uint8(0), uint8(n), uint8(n), uint8(0), uint16(0))
		f.Add(uint64(n), uint8(n), uint8(n), uint8(n), uint8(0), uint16(0))
	}
	f.Fuzz(func(t *testing.T, seed uint64, kind, payload, padding, at uint8, flip uint16) {
		rng := rand.New(rand.NewPCG(seed, 1))
		spec := frametest.Random(rng, 4+int(kind&1)*2, false, int(kind>>2&1), int(payload))
		spec.IPOptions = int(kind>>3&1) * 4
		frame := append(datagramOf(rng, spec), make([]byte, padding)...)
		if v := int(at) % (len(frame) - 1); flip != 0 {
			binary.BigEndian.PutUint16(frame[v:], binary.BigEndian.Uint16(frame[v:])^flip)
		}
		before := bytes.Clone(frame)
		end, ok := plainDatagram(frame)
		var a arrival
		new(rawIn).Describe(&raw.RxFrame{Data: frame}, &a)
		odd := frame[40]|frame[41] != 0 || frame[42] != proto.OpUDSend // a UDP checksum, immediate data
		switch {
		case !bytes.Equal(frame, before):
			t.Errorf("changed to %x: %x", frame, before)
		case ok && (a.Corrupt || a.Fragment || end != a.TagEnd):
			t.Errorf("plainDatagram says %d, the general way %+v: %x", end, a, frame)
		case !ok && flip == 0 && kind&13 == 0 && payload >= proto.TagBytes && !odd:
			t.Errorf("plainDatagram does not take %x", frame)
		}
	})
}

// What is no whole datagram is described as what it is: UDP, by its last bytes; anything may come.
func FuzzDescribeDatagram(f *testing.F) {
	f.Add(uint64(1), uint8(60), uint8(0x64), uint16(1))
	f.Add(uint64(2), uint8(20), uint8(0x65), uint16(0))
	f.Fuzz(func(t *testing.T, seed uint64, payload, opcode uint8, flip uint16) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := frametest.Random(rng, 4+2*int(seed&1), false, int(seed>>1&1), int(payload))
		if s.DstPort = proto.RoCEPort; payload > 0 {
			s.Payload[0] = opcode
		}
		frame := s.Build()
		if at := int(flip>>4) % len(frame); flip != 0 {
			frame[at] ^= 1 << (flip & 7)
		}
		before := bytes.Clone(frame)
		var a arrival
		r := rawIn{guessID: seed&4 != 0}
		r.Describe(&raw.RxFrame{Data: frame}, &a)
		if !bytes.Equal(frame, before) || a.TagEnd < 0 || a.TagEnd > len(frame) || a.BadICRC && !a.Corrupt {
			t.Fatalf("%+v of %x", a, before)
		}
	})
}

func TestReceivingDatagramsAllocatesNothing(t *testing.T) {
	c := Config{Proto: RoCEUD, RoCE: qpns("17"), Size: must(ParseSize("86")), Queues: 1}
	p := mustPlan(t, c)
	key := proto.NewTagKey(7)
	frame := must(p.FrameAt(0))
	r, err := newReceiver(receiverConfig{Token: Token{RunID: 7, StartNS: 1000, Flows: 1}, Tagged: true, EveryN: 1}, &rawIn{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	frames := make([]raw.RxFrame, 32)
	for i := range frames {
		frames[i].Data = bytes.Clone(frame)
	}
	seq := uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		for i := range frames {
			key.Put(frames[i].Data[p.Frames[0].TagOff:], 0, seq, 0)
			seq++
			p.Config.sealDatagram(frames[i].Data)
		}
		r.takeAll(frames, 2000)
	}); n != 0 || r.unique() != seq || r.foreign+r.corrupt != 0 {
		t.Errorf("%v allocations; %d of %d, %d foreign, %d corrupt", n, r.unique(), seq, r.foreign, r.corrupt)
	}
}
