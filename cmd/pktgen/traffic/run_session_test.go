package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// pretendNet is both ports and the network between them, in virtual time. It
// keeps its own books, which the report must equal.
type pretendNet struct {
	clk                                *clock.Virtual
	rng                                *rand.Rand
	plan                               *Plan
	key, helloKey                      proto.TagKey
	queues                             []txQueue
	flight                             []flying
	handed                             int
	loss, dup, flip                    float64
	delay, jitter, pollNS              int64
	failAt                             uint64
	sent, lost, dups, flipped, foreign uint64
	err                                error
}

type flying struct {
	at      int64
	data    []byte
	corrupt bool
}

type pretendQueue struct {
	net *pretendNet
	q   int
	j   uint64
}

func newPretendNet(p *Plan, token Token, clk *clock.Virtual, seed uint64) *pretendNet {
	n := &pretendNet{clk: clk, rng: rand.New(rand.NewPCG(seed, 1)), plan: p, key: proto.NewTagKey(token.RunID), helloKey: proto.NewTagKey(token.RunID ^ helloKeyMix), failAt: ^uint64(0)}
	for q := range p.Queues {
		n.queues = append(n.queues, &pretendQueue{net: n, q: q})
	}
	return n
}

func (q *pretendQueue) Send(n int, times []uint32) (int, error) {
	net := q.net
	n = min(n, net.rng.IntN(70))
	for i := range n {
		if net.sent == net.failAt {
			net.err = errors.New("carrier lost")
			return i, net.err
		}
		frame := make([]byte, 60)
		per := uint64(net.plan.PerFlow(q.q))
		net.key.Put(frame[44:], net.plan.FlowAt(q.q, q.j), q.j/per, times[min(i, len(times)-1)])
		q.j++
		net.sent++
		net.carry(frame)
	}
	return n, nil
}

func (n *pretendNet) carry(frame []byte) {
	copies := 1
	if n.rng.Float64() < n.dup {
		copies, n.dups = 2, n.dups+1
	}
	if n.rng.Float64() < n.loss {
		if copies--; copies == 0 {
			n.lost++
		} else {
			n.dups--
		}
	}
	for range copies {
		at := n.clk.Now() + n.delay
		if n.jitter > 0 {
			at += n.rng.Int64N(n.jitter)
		}
		n.flight = append(n.flight, flying{at: at, data: frame})
	}
	if n.rng.Float64() < n.flip { // an extra frame nobody can read
		bad := slices.Clone(frame)
		bad[n.rng.IntN(16)+44] ^= 1 << n.rng.IntN(8)
		isCorrupt := n.rng.IntN(2) == 0
		n.flight = append(n.flight, flying{at: n.clk.Now(), data: bad, corrupt: isCorrupt})
		if isCorrupt {
			n.flipped++
		} else {
			n.foreign++
		}
	}
}

func (n *pretendNet) Queues() []txQueue              { return n.queues }
func (n *pretendNet) SentBytes() uint64              { return n.sent * 64 }
func (n *pretendNet) Failed() (frames, bytes uint64) { return 0, 0 }
func (n *pretendNet) Pending() int                   { return 0 }
func (n *pretendNet) Err() error                     { return n.err }

func (n *pretendNet) Hello(kind uint32, total uint64) error {
	frame := make([]byte, 60)
	n.helloKey.Put(frame[44:], kind, total, 0)
	n.flight = append(n.flight, flying{at: n.clk.Now(), data: frame})
	return nil
}

func (n *pretendNet) Poll(frames []raw.RxFrame) (int, error) {
	n.clk.Advance(n.pollNS)
	slices.SortStableFunc(n.flight, func(a, b flying) int { return int(a.at - b.at) })
	got := 0
	for got < len(frames) && got < len(n.flight) && n.flight[got].at <= n.clk.Now() {
		f := n.flight[got]
		frames[got] = raw.RxFrame{Data: f.data, TimeNS: f.at}
		if f.corrupt {
			frames[got].VLAN = pretendCorrupt
		}
		got++
	}
	n.handed = got
	return got, nil
}

// pretendCorrupt marks a frame whose checksum is wrong: none has the bytes of one.
const pretendCorrupt = 1

func (n *pretendNet) Describe(f *raw.RxFrame, a *arrival) {
	*a = arrival{Data: f.Data, Corrupt: f.VLAN == pretendCorrupt, TagEnd: len(f.Data)}
}

func (n *pretendNet) Release(k int) error {
	if k != n.handed {
		return fmt.Errorf("released %d of %d", k, n.handed)
	}
	n.flight = slices.Delete(n.flight, 0, k)
	return nil
}

// pretendPlan is a plan without ports.
func pretendPlan(queues, flows int, count uint64, rate clock.Rate) *Plan {
	c := Config{Count: count, Queues: queues, Drain: 100 * time.Millisecond, Latency: LatencyMode{EveryN: 1}}
	tx := &PortFacts{Port: Port{URI: "pretend:a"}}
	rx := &PortFacts{Port: Port{URI: "pretend:b"}}
	return &Plan{Config: c, TX: tx, RX: rx, Rate: rate, Count: count, Queues: queues, Flows: flows, Tagged: true}
}

func runPretend(t *testing.T, ctx context.Context, p *Plan, seed uint64, shape func(*pretendNet)) (*Report, *pretendNet, error) {
	t.Helper()
	clk := new(clock.Virtual)
	clk.Set(1_000_000)
	token := Token{RunID: 77, StartNS: 900_000, Flows: p.Flows}
	net := newPretendNet(p, token, clk, seed)
	if shape != nil {
		shape(net)
	}
	r, err := execute(ctx, p, token, runPorts{out: net, in: net}, clk)
	if r == nil {
		t.Fatal(err)
	}
	return r, net, err
}

// slowPort hands out one frame in a millisecond, and when there is none, one that is not ours.
type slowPort struct {
	*pretendNet
	noise, noisy uint64
}

func (s *slowPort) Poll(frames []raw.RxFrame) (int, error) {
	s.clk.Advance(1_000_000)
	n, err := s.pretendNet.Poll(frames[:1])
	if s.noisy = 0; n == 0 {
		frames[0] = raw.RxFrame{Data: make([]byte, 60), TimeNS: s.clk.Now()}
		s.noisy = 1
		s.noise++
	}
	return 1, err
}

func (s *slowPort) Release(n int) error { return s.pretendNet.Release(n - int(s.noisy)) }

// TestVirtualSlowReceiverIsWaitedFor: what has arrived is read to the end, however long that takes, on a network that is
// never silent too; what is not ours is not waited for.
func TestVirtualSlowReceiverIsWaitedFor(t *testing.T) {
	const count = 3_000
	p := pretendPlan(1, 1, count, clock.Rate{})
	clk := new(clock.Virtual)
	clk.Set(1_000_000)
	token := Token{RunID: 77, StartNS: 900_000, Flows: 1}
	net := newPretendNet(p, token, clk, 1)
	net.loss = 0.01 // so that the end is not known by the count
	slow := &slowPort{pretendNet: net}
	r, err := execute(context.Background(), p, token, runPorts{out: net, in: slow}, clk)
	if err != nil {
		t.Fatal(err)
	}
	checkCount(t, "lost", r.Lost, net.lost)
	checkCount(t, "unique", r.Unique, count-net.lost)
	checkCount(t, "foreign", r.Foreign, slow.noise)
	if net.lost == 0 || slow.noise < 900 || slow.noise > 1_200 { // a second and the drain
		t.Errorf("%d lost, %d frames of noise", net.lost, slow.noise)
	}
}

// TestVirtualReceiverAloneReadsWhatHasArrived: a signal and the end of its time find a backlog, which the kernel has
// counted; what comes later is not waited for.
func TestVirtualReceiverAloneReadsWhatHasArrived(t *testing.T) {
	for outcome, duration := range map[string]time.Duration{"interrupted": 0, "complete": time.Microsecond} {
		t.Run(outcome, func(t *testing.T) {
			const backlog, rest = 1_000, 100
			clk := new(clock.Virtual)
			clk.Set(1_000_000)
			p := pretendPlan(1, 1, backlog+rest, clock.Rate{})
			token := Token{RunID: 77, StartNS: 900_000, Flows: 1}
			net := newPretendNet(p, token, clk, 1)
			for net.sent < backlog+rest {
				if net.sent == backlog {
					net.delay = 10_000_000_000
				}
				limit := backlog - net.sent
				if net.sent >= backlog {
					limit = backlog + rest - net.sent
				}
				if _, err := net.queues[0].Send(int(limit), make([]uint32, limit)); err != nil {
					t.Fatal(err)
				}
			}
			clk.Advance(1_000_000)
			net.pollNS = 1_000
			p.Count, p.Config.Count, p.Config.Duration = 0, 0, duration
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if duration == 0 {
				cancel()
			}
			r, err := execute(ctx, p, token, runPorts{in: net}, clk)
			if err != nil || r.Outcome != outcome {
				t.Fatal(r.Outcome, err)
			}
			checkCount(t, "received", r.Received, backlog)
		})
	}
}

func TestVirtualRunIsExact(t *testing.T) {
	for name, rate := range map[string]clock.Rate{"max": {}, "paced": {Num: 1_000_000, Den: 1}} {
		for _, queues := range []int{1, 2, 3, 7} {
			t.Run(fmt.Sprintf("%s/queues=%d", name, queues), func(t *testing.T) {
				p := pretendPlan(queues, queues*3, 10_007, rate)
				r, _, err := runPretend(t, context.Background(), p, 1, func(n *pretendNet) { n.delay = 5_000 })
				if err != nil || r.Outcome != "complete" {
					t.Fatal(r.Outcome, err)
				}
				if r.Sent != 10_007 || r.Unique != 10_007 || r.Received != 10_007 || r.Lost+r.Duplicate+r.Reordered+r.Foreign+r.Corrupt+r.Early+r.Stale+r.Unsent != 0 {
					t.Errorf("counts %+v", r.Counts)
				}
				if !r.LatencyOK || r.LatencySamples != 10_007 || r.Latency.Min < 5_000-16 {
					t.Errorf("latency %+v of %d", r.Latency, r.LatencySamples)
				}
				if len(r.Queues) != queues {
					t.Errorf("queues %v", r.Queues)
				}
			})
		}
	}
}

// On a perfect network every packet's latency is the delay, to the tag's unit,
// and the send rate is the one asked for.
func TestVirtualLatencyCountsFromTheSchedule(t *testing.T) {
	p := pretendPlan(1, 1, 5000, clock.Rate{Num: 2_000_000_000, Den: 672})
	r, _, err := runPretend(t, context.Background(), p, 1, func(n *pretendNet) { n.delay = 40_000; n.rng = rand.New(always{}) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Latency.Min < 40_000-16 || r.Latency.Max > 40_000+16 || r.GapError.Max != 0 || r.LatencyFrom != "schedule" {
		t.Errorf("latency %+v gap error %+v", r.Latency, r.GapError)
	}
	if r.RateErrorRatio > 1e-6 || r.RateErrorRatio < -1e-6 {
		t.Errorf("rate error %g", r.RateErrorRatio)
	}
}

// always is a source whose numbers are large: no loss, full bursts.
type always struct{}

func (always) Uint64() uint64 { return ^uint64(0) >> 1 }

func TestVirtualRunInAHostileNetwork(t *testing.T) {
	for seed := range uint64(8) {
		p := pretendPlan(3, 30, 8_000, clock.Rate{Num: 3_000_000, Den: 1})
		shape := func(n *pretendNet) {
			n.loss, n.dup, n.flip, n.delay, n.jitter = 0.02, 0.02, 0.01, 10_000, 30_000
		}
		r, net, err := runPretend(t, context.Background(), p, seed, shape)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sent != 8_000 || r.Lost != net.lost || r.Duplicate != net.dups || r.Corrupt != net.flipped || r.Foreign != net.foreign {
			t.Errorf("seed %d: %+v; lost %d dup %d corrupt %d foreign %d", seed, r.Counts, net.lost, net.dups, net.flipped, net.foreign)
		}
		if r.Unique+r.Lost != r.Sent || r.Received != r.Unique+r.Duplicate || r.Reordered == 0 {
			t.Errorf("seed %d: %+v", seed, r.Counts)
		}
		again, _, _ := runPretend(t, context.Background(), p, seed, shape)
		if again.Counts != r.Counts || *again.Latency != *r.Latency || again.LatencyHDR != r.LatencyHDR {
			t.Errorf("seed %d: a second run differs", seed)
		}
	}
}

func TestVirtualCancelReportsCompletely(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := pretendPlan(2, 2, 0, clock.Rate{})
	r, _, err := runPretend(t, ctx, p, 1, nil)
	if err != nil || r.Outcome != "interrupted" || r.Lost != 0 || r.Sent != r.Unique {
		t.Errorf("%s, %v, %+v", r.Outcome, err, r.Counts)
	}
}

func TestVirtualPortFailureReportsCompletely(t *testing.T) {
	p := pretendPlan(2, 2, 10_000, clock.Rate{})
	r, net, err := runPretend(t, context.Background(), p, 1, func(n *pretendNet) { n.failAt = 5000 })
	if !errors.Is(err, net.err) || r.Outcome != "failed" || r.Error == "" || r.Sent != 5000 || r.Lost != 0 {
		t.Errorf("%s, %v, %+v", r.Outcome, err, r.Counts)
	}
}

func TestVirtualRingDropsAreInconclusive(t *testing.T) {
	p := pretendPlan(1, 1, 100, clock.Rate{})
	clk := new(clock.Virtual)
	token := Token{RunID: 1, Flows: 1}
	net := newPretendNet(p, token, clk, 1)
	drops := func(m map[string]uint64) uint64 { m["rx ring"] = 3; return 3 }
	r, err := execute(context.Background(), p, token, runPorts{out: net, in: net, drops: drops}, clk)
	if !errors.Is(err, ErrInconclusive) || r.RingDrops != 3 || len(r.Notes) == 0 || r.Sent != 100 {
		t.Errorf("%v, %+v %q", err, r.Counts, r.Notes)
	}
}

// A receiver in another process: totals come in the last hello.
func TestVirtualReceiverAlone(t *testing.T) {
	for _, hello := range []bool{true, false} {
		p := pretendPlan(1, 4, 0, clock.Rate{})
		p.TX, p.Config.Duration = nil, time.Second
		clk := new(clock.Virtual)
		clk.Set(1_000_000)
		token := Token{RunID: 5, StartNS: 1_000_000, Flows: 4}
		net := newPretendNet(p, token, clk, 1)
		for seq := range uint64(100) {
			for flow := range uint32(4) {
				if seq%10 == 3 || seq >= 98 {
					continue
				}
				frame := make([]byte, 60)
				net.key.Put(frame[44:], flow, seq, uint32(seq*100))
				net.flight = append(net.flight, flying{at: 1_000_000 + int64(seq)*1600 + 320, data: frame})
			}
		}
		if hello {
			net.Hello(helloBefore, 0)
			net.clk.Set(1_200_000)
			net.Hello(helloAfter, 400)
			net.clk = new(clock.Virtual)
			net.clk.Set(1_000_000)
			clk = net.clk
		}
		r, err := execute(context.Background(), p, token, runPorts{in: net}, clk)
		if err != nil {
			t.Fatal(err)
		}
		want := uint64(40) // gaps: the tail cannot be seen
		if hello {
			want = 48
		}
		if r.Lost != want || r.Received != 352 || r.Reordered != 0 {
			t.Errorf("hello %v: %+v", hello, r.Counts)
		}
		if r.LatencyOK { // the token names no boot
			t.Error("latency of an unknown clock is called valid")
		}
		if r.Latency == nil || r.Latency.Max > 16 {
			t.Errorf("latency against the first frame: %+v", r.Latency)
		}
	}
}

func TestVirtualIntervals(t *testing.T) {
	p := pretendPlan(1, 1, 10_000, clock.Rate{Num: 1_000_000, Den: 1})
	p.Config.Interval = time.Millisecond
	var seen []Interval
	p.Config.OnInterval = func(i *Interval) { seen = append(seen, *i) }
	r, _, err := runPretend(t, context.Background(), p, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) == 0 || r.LatencySamples != 10_000 {
		t.Fatalf("%d records, %d samples", len(seen), r.LatencySamples)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].Sent < seen[i-1].Sent || seen[i].StartNS != seen[i-1].ElapsedNS {
			t.Errorf("record %d: %+v after %+v", i, seen[i], seen[i-1])
		}
	}
}

// apartNet is a network between two goroutines.
type apartNet struct {
	mu sync.Mutex
	*pretendNet
}

type apartQueue struct {
	net *apartNet
	q   txQueue
}

func (q apartQueue) Send(n int, times []uint32) (int, error) {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.q.Send(n, times)
}

func (n *apartNet) Poll(frames []raw.RxFrame) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	got, err := n.pretendNet.Poll(frames)
	for i := range frames[:got] {
		frames[i].TimeNS = 0 // the receiver reads the clock
	}
	return got, err
}

func (n *apartNet) Release(k int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pretendNet.Release(k)
}

func (n *apartNet) SentBytes() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pretendNet.SentBytes()
}

func (n *apartNet) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pretendNet.Err()
}

// Two goroutines and the real clock: the counts are exact whatever the timing,
// and no frame arrives before it was sent.
func TestRunApartIsExact(t *testing.T) {
	for name, rate := range map[string]clock.Rate{"max": {}, "paced": {Num: 1_000_000, Den: 1}} {
		t.Run(name, func(t *testing.T) {
			p := pretendPlan(3, 3, 5_003, rate)
			p.Config.Drain, p.Config.Interval = time.Minute, time.Millisecond
			clk := clock.System()
			token := NewToken(clk.Now(), 3)
			net := &apartNet{pretendNet: newPretendNet(p, token, new(clock.Virtual), 1)}
			for i, q := range net.queues {
				net.queues[i] = apartQueue{net, q}
			}
			r, err := execute(context.Background(), p, token, runPorts{out: net, in: net, apart: true}, clk)
			if err != nil {
				t.Fatal(err)
			}
			if r.Sent != 5_003 || r.Unique != 5_003 || r.Lost+r.Duplicate+r.Reordered+r.Foreign+r.Early != 0 || r.LatencySamples != 5_003 {
				t.Errorf("counts %+v, %d samples", r.Counts, r.LatencySamples)
			}
		})
	}
}

func TestUnwrapWindow(t *testing.T) {
	for _, c := range []struct {
		since     int64
		scheduled uint32
		ns        int64
		early     bool
	}{
		{0, 0, 0, false},
		{160, 5, 80, false},
		{16 * (1 << 32), 1<<32 - 10, 160, false},
		{0, 1, 0, true},
		{0, 1 << 26, 0, true},
		{0, 1<<26 + 1, (1<<32 - 1<<26 - 1) * 16, false},
		{67_000_000_000, 0, 67_000_000_000 / 16 * 16, false},
	} {
		if ns, early := unwrap(c.since, c.scheduled); ns != c.ns || early != c.early {
			t.Errorf("unwrap(%d, %d) = %d, %v; want %d, %v", c.since, c.scheduled, ns, early, c.ns, c.early)
		}
	}
}

// What no sender of this run can have said is foreign, whatever its check says.
func TestImplausibleTagsAreForeign(t *testing.T) {
	token := Token{RunID: 3, StartNS: 0, Flows: 2}
	r, err := newReceiver(receiverConfig{Token: token, Tagged: true, EveryN: 1, Count: 100}, nil, new(clock.Virtual))
	if err != nil {
		t.Fatal(err)
	}
	give := func(flow uint32, seq uint64, ticks uint32, at int64) {
		b := make([]byte, 16)
		r.key.Put(b, flow, seq, ticks)
		r.take(&arrival{Data: b, TagEnd: 16}, at)
	}
	give(2, 0, 0, 1000)    // no such flow
	give(1, 100, 0, 1000)  // beyond the count
	give(1, 0, 1<<31, 100) // from before the start
	if r.foreign != 3 || r.received != 0 {
		t.Fatalf("foreign %d received %d", r.foreign, r.received)
	}
	give(1, 99, 10, 1000)
	if r.foreign != 3 || r.received != 1 {
		t.Fatalf("foreign %d received %d", r.foreign, r.received)
	}
	var junk [16]byte
	binary.LittleEndian.PutUint64(junk[:], 0x1234)
	r.take(&arrival{Data: junk[:], TagEnd: 16}, 1000)
	r.take(&arrival{Data: junk[:8], TagEnd: 8}, 1000)
	if r.foreign != 5 {
		t.Fatalf("foreign %d", r.foreign)
	}
}

// With a clock of its own the fastest frame is the zero, whichever comes first.
func TestUnknownClockGivesVariation(t *testing.T) {
	token := Token{RunID: 3, Flows: 1}
	r, _ := newReceiver(receiverConfig{Token: token, Tagged: true, EveryN: 1, NoEpoch: true}, nil, new(clock.Virtual))
	const far = int64(77_000_000_000_000)
	b := make([]byte, 16)
	for seq, delay := range []int64{5000, 1000, 4000, 1000 + 1600} {
		r.key.Put(b, 0, uint64(seq), uint32(seq*1000))
		r.take(&arrival{Data: b, TagEnd: 16}, far+int64(seq)*16_000+delay)
	}
	s := r.latency.Swap()
	if r.early != 0 || r.foreign != 0 || s.Count() != 4 || s.Max() < 2900 || s.Max() > 3100 || s.Min() != 0 {
		t.Errorf("early %d foreign %d, %d samples from %d to %d", r.early, r.foreign, s.Count(), s.Min(), s.Max())
	}
}

func TestReceiveAllocatesNothing(t *testing.T) {
	token := Token{RunID: 3, Flows: 2}
	r, _ := newReceiver(receiverConfig{Token: token, Tagged: true, EveryN: 1}, nil, new(clock.Virtual))
	b := make([]byte, 16)
	seq := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		r.key.Put(b, 1, seq, uint32(seq))
		r.take(&arrival{Data: b, TagEnd: 16}, int64(seq)*16+500)
		seq++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if r.received == 0 || r.foreign != 0 {
		t.Errorf("received %d foreign %d", r.received, r.foreign)
	}
}

func BenchmarkReceive(b *testing.B) {
	for _, flows := range []int{1, 1000} {
		b.Run(fmt.Sprintf("op/flows=%d", flows), func(b *testing.B) {
			token := Token{RunID: 3, Flows: flows}
			r, _ := newReceiver(receiverConfig{Token: token, Tagged: true, EveryN: 1}, nil, new(clock.Virtual))
			var frames [64][64]byte
			var seq uint64
			for b.Loop() {
				for i := range frames {
					r.key.Put(frames[i][:], uint32(i%flows), seq, uint32(seq))
					r.take(&arrival{Data: frames[i][:], TagEnd: 16}, int64(seq)*16+500)
					if i%flows == flows-1 || flows > 64 && i == 63 {
						seq++
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
		})
	}
}
