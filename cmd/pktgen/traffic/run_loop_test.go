package traffic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/bluering/bluering/cmd/internal/results"
)

// loopRun runs c over the in-process switch of its own name.
func loopRun(t *testing.T, c Config) *Report {
	t.Helper()
	if c.TX == "" {
		c.TX = "loop:" + t.Name()
	}
	c.RX, c.Latency = "loop:"+t.Name(), LatencyMode{EveryN: 1}
	if c.Drain == 0 {
		c.Drain = 10 * time.Second // ends early when everything has arrived
	}
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func rateOf(t *testing.T, s string) Rate {
	t.Helper()
	r, err := results.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkClean wants count frames sent, each arrived once and in order.
func checkClean(t *testing.T, r *Report, count uint64) {
	t.Helper()
	if r.Outcome != "complete" || r.Sent != count || r.Unique != count || r.Received != count {
		t.Errorf("%s: %+v", r.Outcome, r.Counts)
	}
	if n := r.Lost + r.Duplicate + r.Reordered + r.Stale + r.Foreign + r.Corrupt + r.Fragment + r.Early + r.Unsent + r.SendFailed + r.RingDrops; n != 0 {
		t.Errorf("not clean: %+v", r.Counts)
	}
	if !r.LatencyOK || r.LatencySamples != count {
		t.Errorf("%d latency samples", r.LatencySamples)
	}
}

func TestLoopCountIsExact(t *testing.T) {
	for _, rate := range []string{"max", "2mpps"} {
		for _, queues := range []int{1, 2, 3, 7} {
			for _, burst := range []int{0, 1, 5} {
				t.Run(fmt.Sprintf("%s-%d-%d", rate, queues, burst), func(t *testing.T) {
					r := loopRun(t, Config{Rate: rateOf(t, rate), Count: 10_007, Queues: queues, Burst: burst})
					checkClean(t, r, 10_007)
					var sum uint64
					for _, q := range r.Queues {
						sum += q.Sent
					}
					if sum != r.Sent || len(r.Queues) != queues || r.SentBytes != 64*r.Sent || r.RecvBytes != r.SentBytes {
						t.Errorf("queues %v, %d bytes sent, %d received", r.Queues, r.SentBytes, r.RecvBytes)
					}
				})
			}
		}
	}
}

func TestLoopFlowsSizesAndFields(t *testing.T) {
	parse := func(v Values, err error) Values {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	imix, err := ParseSize("imix")
	if err != nil {
		t.Fatal(err)
	}
	large, err := ParseSize("128")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"flows":  {Flows: 1000, Queues: 3},
		"imix":   {Size: imix, SPort: parse(ParsePorts("sport", "1-999"))},
		"tcp":    {Size: large, Proto: TCP, Dst: parse(ParseAddrs("dst", "198.18.0.0/24:rand"))},
		"ipv6":   {Size: large, Src: parse(ParseAddrs("src", "2001:2::/64:rand")), Dst: parse(ParseAddrs("dst", "2001:2::9"))},
		"vlan":   {Size: large, VLAN: parse(ParseVLANs("vlan", "1-100")), DPort: parse(ParsePorts("dport", "9,99,999:dec"))},
		"hellos": {Hello: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.Rate, c.Count = rateOf(t, "max"), 20_011
			checkClean(t, loopRun(t, c), 20_011)
		})
	}
}

// An impaired switch: what it lost and doubled is what the report says.
func TestLoopImpairedIsAccounted(t *testing.T) {
	r := loopRun(t, Config{
		TX: "loop:" + t.Name() + "?loss=0.01&dup=0.01&seed=3", Rate: rateOf(t, "max"), Count: 50_000, Drain: time.Millisecond,
	})
	if r.Sent != 50_000 || r.Lost == 0 || r.Duplicate == 0 || r.Unique+r.Lost != r.Sent || r.Received != r.Unique+r.Duplicate {
		t.Errorf("%+v", r.Counts)
	}
	if r.Foreign+r.Corrupt+r.Stale+r.Early != 0 {
		t.Errorf("%+v", r.Counts)
	}
}

func TestLoopFlippedBitsAreCorrupt(t *testing.T) {
	r := loopRun(t, Config{
		TX: "loop:" + t.Name() + "?corrupt=0.05&seed=3", Rate: rateOf(t, "max"), Count: 20_000, Drain: time.Millisecond,
	})
	if r.Corrupt == 0 || r.Lost == 0 || r.Unique+r.Lost != r.Sent {
		t.Errorf("%+v", r.Counts)
	}
}

func TestLoopCancelReportsCompletely(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := Config{TX: "loop:" + t.Name(), RX: "loop:" + t.Name(), Rate: rateOf(t, "max"), Drain: 10 * time.Second, Interval: time.Millisecond}
	c.OnInterval = func(*Interval) { cancel() }
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != "interrupted" || r.Sent == 0 || r.Lost != 0 || r.Unique != r.Sent {
		t.Errorf("%s %+v", r.Outcome, r.Counts)
	}
}

func TestLoopWithoutReceiver(t *testing.T) {
	r, err := Run(context.Background(), Config{TX: "loop:" + t.Name(), Rate: rateOf(t, "max"), Count: 5000, Drain: time.Second})
	if err == nil || r.Outcome != "failed" || !strings.Contains(r.Error, "nobody has the other port of loop:"+t.Name()) {
		t.Errorf("%s: %v", r.Outcome, err)
	}
	if r.Sent != 5000 || r.Lost != 0 || r.Drops["no_peer"] != 5000 {
		t.Errorf("%+v %v", r.Counts, r.Drops)
	}
}

func TestBadPortsAreUsageErrors(t *testing.T) {
	for _, c := range []Config{{}, {TX: "lop:"}, {TX: "loop:" + t.Name() + "?nosuch=1"}, {RX: "loop:" + t.Name()}} {
		r, err := Run(context.Background(), c)
		var u *UsageError
		if r != nil || !errors.As(err, &u) {
			t.Errorf("%+v: %v", c.TX, err)
		}
	}
	if f, err := Probe("loop:" + t.Name()); err != nil || f.Kind != "loop" || f.MAC == "" {
		t.Errorf("probe: %+v, %v", f, err)
	}
}

func TestReceiveRingHoldsASecond(t *testing.T) {
	for _, c := range []struct{ rx, rate, want string }{
		{"packet:b", "200kpps", "packet:b?ring=51200000&slot=256"},
		{"packet:b?netns=x", "1kpps", "packet:b?netns=x&ring=8388608&slot=256"},
		{"packet:b", "max", "packet:b?ring=67108864&slot=256"},
		{"packet:b?ring=1MiB", "max", "packet:b?ring=1MiB"},
		{"loop:", "max", "loop:"},
	} {
		got := withRing(&Config{TX: "packet:a", RX: c.rx, Rate: rateOf(t, c.rate)})
		if got != c.want {
			t.Errorf("%s at %s: %s, want %s", c.rx, c.rate, got, c.want)
		}
	}
	pieces := Config{TX: "packet:a", RX: "packet:b", Rate: rateOf(t, "max"), TSO: TSO{MSS: 1448}, Proto: TCP}
	if got, want := withRing(&pieces), "packet:b?ring=67108864&slot=2048"; got != want || pieces.Size.String() != (Sizes{}).String() {
		t.Errorf("frames that the device cuts: %s, want %s", got, want)
	}
	if got, want := withRing(&Config{RX: "packet:b"}), "packet:b?ring=67108864"; got != want {
		t.Errorf("a receiver alone, which does not know the sizes: %s, want %s", got, want)
	}
}

// TestLogTellsOfARun: the caller's logger gets the start and the end of a run, with its counts.
func TestLogTellsOfARun(t *testing.T) {
	var out strings.Builder
	c := Config{Count: 1000, Log: slog.New(slog.NewTextHandler(&out, nil))}
	checkClean(t, loopRun(t, c), 1000)
	for _, want := range []string{`msg="run starts"`, `msg="run ended"`, "sent=1000", "lost=0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// TestPacedReportHasTheGapHistogram: beside its summary, whole, with one value a frame; late, unsent and the stall
// ledger stand in every report, 0 or not.
func TestPacedReportHasTheGapHistogram(t *testing.T) {
	for rate, has := range map[string]bool{"2mpps": true, "max": false} {
		r := loopRun(t, Config{Rate: rateOf(t, rate), Count: 5_003})
		if !has {
			if r.GapError != nil || r.GapErrorHDR != "" {
				t.Errorf("%s: gap error without a schedule: %+v", rate, r.GapError)
			}
		} else if h, err := hdr.Decode([]byte(r.GapErrorHDR)); err != nil || h.TotalCount() != 5_003 || r.GapError == nil || min(max(h.ValueAtPercentile(50), r.GapError.Min), r.GapError.Max) != r.GapError.P50 {
			t.Errorf("%s: %v, %+v", rate, err, r.GapError)
		}
		for _, key := range []string{"late_packets", "unsent_packets", "stalls/stalls_count", "stalls/longest_ns", "stalls/gc_cycles_count", "stalls/involuntary_switches_count"} {
			if _, ok := results.Numbers(r)[key]; !ok {
				t.Errorf("%s: no %s", rate, key)
			}
		}
	}
}
