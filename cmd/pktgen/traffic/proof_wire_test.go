package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
)

// This file proves the accounting over a real loop, whose wire keeps books of its own:
//
//	pktgen ─▶ NIC ─▶ loop ─▶ Impair (wire.Stats) ─▶ meddler ─▶ NIC ─▶ receiver ─▶ Report
//	                         loses, doubles, ...    forges, replays, displaces,
//	                                                and judges by maps (dullTracker)

// meddler stands between a wire and its NIC. It hands on what meddle emits of each frame.
type meddler struct {
	wire.Wire
	meddle func(f wire.Frame)
	idle   func() // nothing has arrived

	in    [64]wire.Frame
	queue []wire.Frame
	room  []byte
}

// emit hands on a copy of the frame.
func (m *meddler) emit(f wire.Frame) {
	if len(m.room) < len(f.Data) {
		m.room = make([]byte, 1<<20)
	}
	n := copy(m.room, f.Data)
	f.Data, m.room = m.room[:n:n], m.room[n:]
	m.queue = append(m.queue, f)
}

func (m *meddler) Next(frames []wire.Frame) int {
	if len(m.queue) == 0 {
		n := m.Wire.Next(m.in[:])
		for _, f := range m.in[:n] {
			m.meddle(f)
		}
		if n == 0 && m.idle != nil {
			m.idle()
		}
		m.Wire.Release(n)
	}
	return copy(frames, m.queue)
}

func (m *meddler) Release(n int) { m.queue = m.queue[n:] }

// proof is a run over a loop of its own.
type proof struct {
	impair  wire.Impairs
	clk     clock.Clock
	between func(wire.Wire) wire.Wire // of the receiving end; nil: nothing
}

// run carries c out and returns the report and the receiving wire's books.
func (p *proof) run(t *testing.T, c Config) (*Report, wire.Stats) {
	t.Helper()
	o := &openedPorts{clk: p.clk}
	defer o.Close()
	opts := wire.LoopOptions{Name: t.Name(), Impair: p.impair, Clock: p.clk}
	open := func(between func(wire.Wire) wire.Wire) (*engine.Device, wire.Wire) {
		w, err := wire.OpenLoop(opts)
		if err != nil {
			t.Fatal(err)
		}
		outer := w
		if between != nil {
			outer = between(w)
		}
		nic, err := softnic.New(outer, softnic.Config{Clock: p.clk})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := engine.NewDevice(nic)
		if err != nil {
			t.Fatal(err)
		}
		return dev, w
	}
	var books wire.Wire
	o.txDev, _ = open(nil)
	o.rxDev, books = open(p.between)
	c.TX, c.RX, c.Latency = "loop:", "loop:", LatencyMode{EveryN: 1}
	o.txFacts, o.rxFacts = factsOf(o.txDev, c.TX), factsOf(o.rxDev, c.RX)
	r, err := o.run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	var s wire.Stats
	books.Stats(&s)
	return r, s
}

func checkCount(t *testing.T, what string, got, want uint64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// checkSane wants no number of the report below zero, nor one that has wrapped.
func checkSane(t *testing.T, r *Report) {
	t.Helper()
	for key, v := range results.Numbers(r) {
		if (v < 0 || v > 1e14) && key != "rate_error_ratio" {
			t.Errorf("%s is %v", key, v)
		}
	}
	checkCount(t, "unique and lost", r.Unique+r.Lost, r.Sent)
	checkCount(t, "received", r.Received, r.Unique+r.Duplicate+r.Stale)
	checkCount(t, "latency samples", r.LatencySamples, r.Unique)
	for key, n := range map[string]uint64{"early": r.Early, "fragments": r.Fragment, "failed": r.SendFailed, "ring drops": r.RingDrops, "unsent": r.Unsent} {
		checkCount(t, key, n, 0)
	}
}

// TestProofAtFullRate: at the highest rate the report's books are the wire's, to the unit.
func TestProofAtFullRate(t *testing.T) {
	for _, flows := range []int{1, manyFlows} {
		for name, how := range map[string]wire.Impairs{
			"a little of all":       {Loss: .01, Dup: .01, Reorder: .02, Corrupt: .005, Delay: 20 * time.Microsecond, Jitter: 5 * time.Microsecond, Seed: 11},
			"twice as many as lost": {Loss: .2, Dup: .5, Seed: 12},
		} {
			t.Run(fmt.Sprintf("flows=%d/%s", flows, name), func(t *testing.T) {
				const count = fullCount
				p := proof{impair: how, clk: clock.System()}
				r, s := p.run(t, Config{
					Count: count, Flows: flows, Queues: 2 - flows%2, Drain: 20 * time.Millisecond, Interval: 5 * time.Millisecond,
					OnInterval: func(i *Interval) { // what is on its way is not lost, and nothing is below zero
						if i.Sent > count || i.Lost > i.Sent || i.Unique > i.Received || i.Corrupt+i.Duplicate+i.Reordered > count {
							t.Errorf("interval: %+v", i.Counts)
						}
					},
				})
				checkSane(t, r)
				checkCount(t, "sent", r.Sent, count)
				checkCount(t, "corrupt", r.Corrupt, s.ImpairCorrupted)
				checkCount(t, "lost", r.Lost, s.ImpairLost+s.ImpairCorrupted)
				checkCount(t, "duplicate", r.Duplicate, s.ImpairDuplicated)
				checkCount(t, "foreign and stale", r.Foreign+r.Stale, 0)
				want := uint64(0) // by one or two places only: of many flows none is out of its own order
				if flows == 1 {
					want = s.ImpairReordered
				}
				checkCount(t, "reordered", r.Reordered, want)
				if s.ImpairLost == 0 || s.ImpairDuplicated == 0 || how.Reorder > 0 && s.ImpairReordered == 0 || how.Corrupt > 0 && s.ImpairCorrupted == 0 {
					t.Errorf("nothing was injected: %+v", s)
				}
			})
		}
	}
}

// TestProofFlipsAreCorrupt: whatever bit of which protocol is flipped, the frame counts as corrupt and as nothing else.
func TestProofFlipsAreCorrupt(t *testing.T) {
	for name, c := range map[string]Config{
		"IPv4 UDP": {}, "IPv4 TCP": configOf(t, "198.18.0.1", "198.18.0.2", "90", "tcp"),
		"IPv6 UDP": configOf(t, "2001:2::1", "2001:2::2", "82", "udp"), "IPv6 TCP": configOf(t, "2001:2::1", "2001:2::2", "94", "tcp"),
	} {
		t.Run(name, func(t *testing.T) {
			clk := new(clock.Virtual)
			clk.Set(1000)
			p := proof{clk: clk, impair: wire.Impairs{Corrupt: .9, Seed: 3}}
			c.Count, c.Drain = 10_007, 50*time.Millisecond
			r, s := p.run(t, c)
			checkSane(t, r)
			checkCount(t, "corrupt", r.Corrupt, s.ImpairCorrupted)
			checkCount(t, "lost", r.Lost, s.ImpairCorrupted)
			checkCount(t, "foreign", r.Foreign, 0)
			if s.ImpairCorrupted < 8_000 {
				t.Errorf("%d corrupted", s.ImpairCorrupted)
			}
		})
	}
}

// configOf is a Config with these words of the command line.
func configOf(t *testing.T, src, dst, size, transport string) (c Config) {
	t.Helper()
	var errs [4]error
	c.Src, errs[0] = ParseAddrs("src", src)
	c.Dst, errs[1] = ParseAddrs("dst", dst)
	c.Size, errs[2] = ParseSize(size)
	c.Proto, errs[3] = ParseProto(transport)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return c
}

// forger is a meddler that adds what is not ours, or not any more, and keeps the books.
type forger struct {
	meddler
	flows, count    uint64
	key, other      proto.TagKey
	dull            *dullTracker
	seen, expected  uint64 // frames from the wire; of ours emitted, replays included
	foreign, replay uint64
	old             []wire.Frame // emitted before, in order
	held            []heldFrame
	heldAll         int
}

type heldFrame struct {
	due uint64
	f   wire.Frame
}

// tagOf reads a whole frame of this run, by its place alone.
func (g *forger) tagOf(f wire.Frame) (proto.Tag, bool) {
	if n := len(f.Data); sumsRight(f.Data) {
		return g.key.Get(f.Data[n-16:])
	}
	return proto.Tag{}, false
}

// sumsRight verifies an IPv4 UDP frame without padding by its one's complement sums.
func sumsRight(b []byte) bool {
	sum := func(s uint32, b []byte) uint32 {
		for i := 0; i+1 < len(b); i += 2 {
			s += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			s += uint32(b[len(b)-1]) << 8
		}
		return s
	}
	right := func(s uint32) bool {
		for s>>16 != 0 {
			s = s>>16 + s&0xffff
		}
		return s == 0xffff
	}
	return right(sum(0, b[14:34])) && right(sum(sum(17+uint32(len(b)-34), b[26:34]), b[34:]))
}

// ours emits a frame of the run and judges it.
func (g *forger) ours(f wire.Frame) {
	if tag, ok := g.tagOf(f); ok {
		g.dull.see(tag.Flow, tag.Seq)
		g.expected++
	}
	g.emit(f)
}

// forge emits a frame like f with a tag of the caller's choice, and no UDP checksum.
func (g *forger) forge(f wire.Frame, change func(tag []byte)) {
	b := slices.Clone(f.Data)
	binary.BigEndian.PutUint16(b[40:], 0)
	change(b[len(b)-16:])
	g.emit(wire.Frame{Data: b, TimeNS: f.TimeNS})
	g.foreign++
}

func (g *forger) take(f wire.Frame) {
	g.seen++
	tag, ok := g.tagOf(f)
	hold := ok && g.seen%501 == 0 && g.seen < g.count*3/4
	if hold {
		f.Data = slices.Clone(f.Data)
		g.held = append(g.held, heldFrame{due: g.seen + 1 + g.seen*7919%60_000, f: f})
		g.heldAll++
	} else {
		g.ours(f)
	}
	for i := 0; i < len(g.held); i++ {
		if g.held[i].due <= g.seen {
			g.held[i].f.TimeNS = f.TimeNS
			g.ours(g.held[i].f)
			g.held = slices.Delete(g.held, i, i+1)
			i--
		}
	}
	if !ok || hold || g.seen%97 != 0 {
		return
	}
	if len(g.old) < 8 {
		g.old = append(g.old, wire.Frame{Data: slices.Clone(f.Data)})
	}
	switch g.seen / 97 % 6 {
	case 0: // the right shape and a wrong check
		g.forge(f, func(b []byte) { b[g.seen%16] ^= 1 << (g.seen % 8) })
	case 1: // another run's
		g.forge(f, func(b []byte) { g.other.Put(b, tag.Flow, tag.Seq, tag.Time) })
	case 2: // a flow that there is not
		g.forge(f, func(b []byte) { g.key.Put(b, uint32(g.flows)+tag.Flow, tag.Seq, tag.Time) })
	case 3: // a sequence that was not sent
		g.forge(f, func(b []byte) { g.key.Put(b, tag.Flow, g.count+tag.Seq, tag.Time) })
	case 4: // no IP at all
		g.emit(wire.Frame{Data: []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x09\x88\xb5 sixteen bytes of, and more, up to sixty"), TimeNS: f.TimeNS})
		g.foreign++
	case 5: // ours from long ago: beyond the window if the flow has moved on so far, else a duplicate
		g.replay++
		g.ours(wire.Frame{Data: g.old[g.seen%uint64(len(g.old))].Data, TimeNS: f.TimeNS})
	}
}

// flush lets go what is still held once the wire has given out everything.
func (g *forger) flush() {
	var s wire.Stats
	g.Wire.Stats(&s)
	if s.RxFrames+s.ImpairLost-s.ImpairDuplicated < g.count {
		return
	}
	for _, h := range g.held {
		g.ours(h.f)
	}
	g.held = nil
}

// TestProofAmongLookAlikes: with frames that are almost ours, replays of old ones and some that come far too late, but
// within the window of one flow: the report has the books of the wire, of the forger and of a model made of maps.
func TestProofAmongLookAlikes(t *testing.T) {
	virtual := new(clock.Virtual)
	virtual.Set(5_000_000)
	for name, clk := range map[string]clock.Clock{"virtual": virtual, "real": clock.System()} {
		for _, flows := range []int{1, manyFlows} {
			t.Run(fmt.Sprintf("clock=%s/flows=%d", name, flows), func(t *testing.T) { amongLookAlikes(t, clk, flows) })
		}
	}
}

func amongLookAlikes(t *testing.T, clk clock.Clock, flows int) {
	const count = amongCount
	token := Token{RunID: 0xb1ce, StartNS: clk.Now(), Flows: flows}
	g := &forger{
		flows: uint64(flows), count: count, key: proto.NewTagKey(token.RunID), other: proto.NewTagKey(token.RunID + 1),
		dull: &dullTracker{window: windowOf(flows), seen: map[uint32]map[uint64]bool{}, highest: map[uint32]uint64{}},
	}
	g.meddle, g.idle = g.take, g.flush
	p := proof{clk: clk, impair: wire.Impairs{Loss: .01, Dup: .01, Reorder: .01, Corrupt: .01, Delay: 30 * time.Microsecond, Seed: 5}, between: func(w wire.Wire) wire.Wire {
		g.Wire = w
		return g
	}}
	r, s := p.run(t, Config{Count: count, Flows: flows, Drain: 50 * time.Millisecond, Run: token.String()})
	checkSane(t, r)
	checkCount(t, "sent", r.Sent, count)
	checkCount(t, "corrupt", r.Corrupt, s.ImpairCorrupted)
	checkCount(t, "lost", r.Lost, s.ImpairLost+s.ImpairCorrupted)
	checkCount(t, "foreign", r.Foreign, g.foreign)
	checkCount(t, "received", r.Received, g.expected)
	checkCount(t, "duplicate and stale", r.Duplicate+r.Stale, s.ImpairDuplicated+g.replay)
	checkCount(t, "unique in the model", r.Unique, g.dull.unique)
	checkCount(t, "duplicate in the model", r.Duplicate, g.dull.duplicate)
	checkCount(t, "reordered in the model", r.Reordered, g.dull.reordered)
	checkCount(t, "extent in the model", r.ReorderExtentMaxSeqs, g.dull.extentMax)
	checkCount(t, "stale in the model", r.Stale, g.dull.stale)
	if g.heldAll < 100 || len(g.held) > 0 || r.Reordered == 0 || g.replay < 100 || r.Stale == 0 && flows == 1 {
		t.Errorf("too little was tried: %d held, %d replayed, %+v", g.heldAll, g.replay, r.Counts)
	}
}

// TestProofTagsSurviveRewriting: what a switch or a NAT does to a frame, by gopacket's hand, leaves it ours.
func TestProofTagsSurviveRewriting(t *testing.T) {
	for name, c := range map[string]struct{ src, dst, size, proto string }{
		"IPv4 UDP": {"198.18.0.1", "198.18.0.2", "64", "udp"}, "IPv4 TCP": {"198.18.0.1", "198.18.0.2", "90", "tcp"},
		"IPv6 UDP": {"2001:2::1", "2001:2::2", "131", "udp"}, "IPv6 TCP": {"2001:2::1", "2001:2::2", "1518", "tcp"},
	} {
		for _, fixed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/fixed=%v", name, fixed), func(t *testing.T) {
				m := &meddler{}
				m.meddle = func(f wire.Frame) { m.emit(wire.Frame{Data: rewritten(t, f.Data, fixed), TimeNS: f.TimeNS}) }
				clk := new(clock.Virtual)
				clk.Set(1000)
				p := proof{clk: clk, between: func(w wire.Wire) wire.Wire { m.Wire = w; return m }}
				cfg := configOf(t, c.src, c.dst, c.size, c.proto)
				cfg.Count, cfg.Flows, cfg.Drain = 1_009, 7, 50*time.Millisecond
				r, _ := p.run(t, cfg)
				checkSane(t, r)
				if fixed {
					checkClean(t, r, cfg.Count)
				} else {
					checkCount(t, "corrupt", r.Corrupt, cfg.Count)
					checkCount(t, "lost", r.Lost, cfg.Count)
				}
			})
		}
	}
}

// rewritten is the frame with two VLAN tags pushed, other addresses and ports, and padding at its end; fixed: with
// checksums made new.
func rewritten(t *testing.T, frame []byte, fixed bool) []byte {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	var out []gopacket.SerializableLayer
	var net gopacket.NetworkLayer
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			outer, inner := &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeDot1Q}, &layers.Dot1Q{VLANIdentifier: 9, Type: l.EthernetType}
			l.SrcMAC[5], l.EthernetType = 0x77, layers.EthernetTypeQinQ
			out = append(out, l, outer, inner)
		case *layers.IPv4:
			l.SrcIP[3], l.DstIP[3], l.TTL, net = 201, 202, 63, l
			out = append(out, l)
		case *layers.IPv6:
			l.SrcIP[15], l.DstIP[15], l.HopLimit, net = 0x31, 0x32, 63, l
			out = append(out, l)
		case *layers.UDP:
			l.SrcPort += 1000
			if err := l.SetNetworkLayerForChecksum(net); err != nil {
				t.Error(err)
			}
			out = append(out, l)
		case *layers.TCP:
			l.SrcPort += 1000
			if err := l.SetNetworkLayerForChecksum(net); err != nil {
				t.Error(err)
			}
			out = append(out, l)
		case *gopacket.Payload:
			out = append(out, l)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: fixed}, out...); err != nil {
		t.Error(err)
	}
	return append(slices.Clone(buf.Bytes()), 0xA5, 0xA5, 0xA5, 0xA5, 0xA5)
}

// TestProofCountsAfterTheDrain: what is on its way when the last frame has left is waited for, and what comes after
// the drain is lost.
func TestProofCountsAfterTheDrain(t *testing.T) {
	for drain, lost := range map[time.Duration]uint64{52 * time.Millisecond: 0, 48 * time.Millisecond: 3_001} {
		clk := new(clock.Virtual)
		clk.Set(1000)
		p := proof{clk: clk, impair: wire.Impairs{Delay: 50 * time.Millisecond}}
		r, s := p.run(t, Config{Count: 3_001, Drain: drain})
		checkSane(t, r)
		checkCount(t, "lost", r.Lost, lost)
		checkCount(t, "received", r.Received, s.RxFrames)
	}
}

// TestProofLongForeignFramesAreNoRingDrops: a frame that the wire had no room for is counted under its own name, and
// proves nothing against the run.
func TestProofLongForeignFramesAreNoRingDrops(t *testing.T) {
	m, long := &meddler{}, uint64(0)
	m.meddle = func(f wire.Frame) {
		if m.emit(f); f.Data[len(f.Data)-1]%3 == 0 {
			long++
			m.emit(wire.Frame{Data: make([]byte, 128), TimeNS: f.TimeNS, Flags: wire.FlagTruncated})
		}
	}
	p := proof{clk: clock.System(), between: func(w wire.Wire) wire.Wire { m.Wire = w; return m }}
	r, _ := p.run(t, Config{Count: 10_007, Drain: 10 * time.Second})
	checkClean(t, r, 10_007)
	checkCount(t, "truncated", r.Drops["truncated"], long)
	if long == 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "longer than a slot") || r.Outcome != "complete" {
		t.Errorf("%d truncated, %q", long, r.Notes)
	}
}
