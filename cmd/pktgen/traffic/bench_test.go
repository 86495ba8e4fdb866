package traffic

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/raw"
)

// BenchmarkLoop runs pktgen's own loop, sender and receiver in one goroutine, over loop: at the rate it reaches, and in
// turns with it the baseline: an untagged stream re-armed over a loop of its own, each frame with both completions, which
// nobody looks at. rate is ours in parts of the baseline's.
func BenchmarkLoop(b *testing.B) {
	for _, c := range []struct {
		name   string
		config Config
	}{
		{"tag=no", Config{NoTag: true}},
		{"tag=yes/latency=off", Config{}},
		{"tag=yes/latency=all", Config{Latency: LatencyMode{EveryN: 1}}},
		{"tag=yes/latency=all/proto=roce-ud", Config{Latency: LatencyMode{EveryN: 1}, Proto: RoCEUD, RoCE: qpns("17"), Size: must(ParseSize("86"))}},
		{"tag=yes/latency=off/flows=10000", Config{Flows: 10_000}},
		{"tag=yes/latency=all/flows=10000", Config{Flows: 10_000, Latency: LatencyMode{EveryN: 1}}},
	} {
		size := "size=" + c.config.Size.String() + "/"
		b.Run(size+c.name, func(b *testing.B) {
			ours, plain := newBenchSession(b, c.config), newPlainLoop(b)
			const steps = 64
			var spent [2]time.Duration
			var best [2]time.Duration
			var packets [2]int
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				for k, f := range []func() int{ours, plain} {
					n, start := 0, time.Now()
					for range steps {
						n += f()
					}
					took := time.Since(start)
					spent[k] += took
					packets[k] += n
					if n == steps*benchBurst && (best[k] == 0 || took < best[k]) {
						best[k] = took
					}
				}
			}
			perPacket := func(k int) float64 { return float64(spent[k].Nanoseconds()) / float64(packets[k]) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(perPacket(0), "ns/pkt")
			b.ReportMetric(perPacket(1), "baseline-ns/pkt")
			b.ReportMetric(perPacket(1)/perPacket(0), "rate")
			b.ReportMetric(float64(best[0].Nanoseconds())/(steps*benchBurst), "best-ns/pkt")
			b.ReportMetric(float64(best[1])/float64(best[0]), "best-rate")
		})
	}
}

const benchBurst = 64

var benchLoops int

func benchName() string {
	benchLoops++
	return fmt.Sprintf("loop:traffic-bench%d", benchLoops)
}

// newBenchSession gives one round of the loop of a session without an end, which returns how many packets arrived.
func newBenchSession(b *testing.B, c Config) func() int {
	b.Helper()
	c.TX = benchName()
	c.RX = c.TX
	ports, err := openPorts(&c, clock.System())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := ports.Close(); err != nil {
			b.Error(err)
		}
	})
	if !c.NoTag {
		if c.SPort, err = ParsePorts("sport", "1024-65535"); err != nil {
			b.Fatal(err)
		}
	}
	plan, err := NewPlan(c, ports.txFacts, ports.rxFacts)
	if err != nil {
		b.Fatal(err)
	}
	token, err := plan.token(ports.clk.Now())
	if err != nil {
		b.Fatal(err)
	}
	if err := ports.prepare(plan, token); err != nil {
		b.Fatal(err)
	}
	x, err := newSession(plan, token, ports.runPorts, ports.clk)
	if err != nil {
		b.Fatal(err)
	}
	x.send.pacer.begin(ports.clk.Now(), token.StartNS)
	b.Cleanup(func() {
		for x.receiveStep() > 0 {
		}
		if n := x.send.pacer.sent; x.recv.unique() != n || x.recv.received != n || x.recvErr != nil || x.send.err != nil {
			b.Errorf("sent %d, received %d, %d different: %v, %v", n, x.recv.received, x.recv.unique(), x.send.err, x.recvErr)
		}
	})
	return func() int {
		now := ports.clk.Now()
		x.sendStep(now)
		return x.receiveStep()
	}
}

// newPlainLoop gives one round of the baseline.
func newPlainLoop(b *testing.B) func() int {
	b.Helper()
	name := benchName()
	var ports [2]*raw.Port
	for i, c := range []raw.PortConfig{{RxQueues: -1}, {TxQueues: -1}} {
		d, err := device.Open(name, device.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if ports[i], err = raw.NewPort(d, c); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := d.Close(); err != nil {
				b.Error(err)
			}
		})
		b.Cleanup(func() {
			if err := ports[i].Close(); err != nil {
				b.Error(err)
			}
		})
	}
	frame := make([]byte, 60)
	src, dst := ports[0].Caps().MAC, ports[1].Caps().MAC
	copy(frame, append(append(append([]byte(nil), dst[:]...), src[:]...), 0x88, 0xb5))
	t, err := raw.NewTemplateBytes(frame)
	if err != nil {
		b.Fatal(err)
	}
	stream, err := ports[0].Tx(0).NewStream(t, raw.StreamConfig{})
	if err != nil {
		b.Fatal(err)
	}
	rx, frames := ports[1].Rx(0), make([]raw.RxFrame, benchBurst)
	b.Cleanup(func() {
		for n := rx.Poll(frames); n > 0; n = rx.Poll(frames) {
			rx.Release(n)
		}
		if got := rx.Counts().Frames; got != stream.Sent() {
			b.Errorf("sent %d, received %d", stream.Sent(), got)
		}
	})
	return func() int {
		if _, err := stream.Send(benchBurst, nil); err != nil {
			b.Fatal(err)
		}
		n := rx.Poll(frames)
		rx.Release(n)
		return n
	}
}
