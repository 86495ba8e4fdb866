package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

// A whole run in this process: a thousand frames, none lost.
func ExampleRun() {
	c := traffic.Config{TX: "loop:example-run", RX: "loop:example-run", Count: 1000, Queues: 2,
		Latency: traffic.LatencyMode{EveryN: 1}, Drain: time.Second}
	r, err := traffic.Run(context.Background(), c)
	check(err)
	fmt.Println(r.Outcome, r.Sent, r.Unique, r.Lost, r.Duplicate)
	for _, q := range r.Queues {
		fmt.Println("queue", q.Queue, "sent", q.Sent)
	}
	fmt.Println(r.LatencySamples, "samples:", r.Latency.Min <= r.Latency.P50 && r.Latency.P50 <= r.Latency.Max)
	fmt.Println(r.TX.Kind, "on a known host:", r.Host.CPUs > 0, "stalls told:", r.Stalls.LongestNS >= 0)
	// Output:
	// complete 1000 1000 0 0
	// queue 0 sent 500
	// queue 1 sent 500
	// 1000 samples: true
	// loop on a known host: true stalls told: true
}

// report is one as a run would give it.
func report() *traffic.Report {
	r := traffic.NewReport(plan())
	r.Outcome, r.ElapsedNS = "complete", 1_000_000
	r.Counts = traffic.Counts{Sent: 1000, SentBytes: 64_000, Received: 999, RecvBytes: 63_936, Unique: 999, Lost: 1}
	r.Latency = &traffic.Summary{Min: 900, Mean: 1100, P50: 1000, P90: 1500, P99: 2000, P999: 3000, P9999: 3000, P99999: 3000, Max: 3000}
	r.LatencyOK, r.LatencySamples, r.LatencyFrom = true, 999, "schedule"
	r.Finish()
	return r
}

// A condition on the report is checked before the run for slips, and after it
// for the truth.
func ExampleParseAssert() {
	r := report()
	for _, s := range []string{"loss<0.5%", "p99<1us", "lost_packets==0"} {
		var a traffic.Assert = must(traffic.ParseAssert(s))
		var verdict traffic.AssertResult = a.Check(r)
		fmt.Println(results.AssertText(verdict))
	}
	_, err := traffic.ParseAssert("los<1%")
	var usage *traffic.UsageError
	fmt.Println(errors.As(err, &usage), usage.Thing, usage.Value)
	// Output:
	// PASS loss<0.5%  (loss_ratio is 0.001)
	// FAIL p99<1us  (latency_ns.p99 is 2000)
	// FAIL lost_packets==0  (lost_packets is 1)
	// true assert los<1%
}

// Results for a person; the other formats are json, jsonl, csv and none.
func ExampleNewWriter() {
	var format traffic.Format = must(results.ParseFormat("text"))
	var w *traffic.Writer = traffic.NewWriter(os.Stdout, format)
	check(w.Report(report()))
	// Output:
	// backend=loop (not a wire)  seed=0x7
	// sent 1,000  received 999  lost 1 (0.1 %)  dup 0  reordered 0  foreign 0  late 0  unsent 0
	// rate asked 1.000000 Mpps  got 999.000000 kpps (-0.10000 %)  511.488 Mbit/s L2  671.328 Mbit/s L1
	// latency (every packet, 999 samples, from schedule, in steps of 16 ns)
	//    min 900ns  mean 1.10us  p50 1.00us  p90 1.50us  p99 2.00us  p99.9 3.00us  p99.99 3.00us  p99.999 3.00us  max 3.00us
	// host: 0 stalls, longest 0ns, 0 GC cycles, 0 involuntary switches
}

// Intervals for a person. Rates are the interval's own.
func ExampleProgress() {
	var p *traffic.Progress = traffic.NewProgress(os.Stdout, false)
	counts := traffic.Counts{Sent: 2_000_000, SentBytes: 128_000_000}
	var rates traffic.Rates = traffic.RatesOf(&counts, 1e9)
	p.Show(&traffic.Interval{ElapsedNS: 1e9, Counts: counts, Rates: rates})
	p.End()
	// Output:
	// time    tx Mpps   rx Mpps   L1 Gb/s       lost     dup   reord    late      p50      p99    p99.9      max
	//     1.0s   2.000000  0.000000     1.344          0       0       0       0
}

// What a host takes by itself is put beside what a run measured. self-test
// measures it; here it is given.
func ExampleFloor() {
	f := traffic.Floor{ClockStepNS: 20,
		GapError: &traffic.Summary{P50: 50, P99: 1200, Max: 9000},
		Latency:  &traffic.Summary{Min: 300, P50: 400, P90: 500, P99: 2500, P999: 5000, P9999: 9000, P99999: 9000, Max: 9000}}
	r := report()
	f.Stamp(r)
	for _, note := range r.Notes {
		fmt.Println(note)
	}
	// Output:
	// not trustworthy: single departures: at this rate they are 1.00us apart, and this host's own gap error is 1.20us at p99
	// not trustworthy: latency that is not above this host's own: p99 2.00us (floor 2.50us), p99.9 3.00us (floor 5.00us), p99.99 3.00us (floor 9.00us), p99.999 3.00us (floor 9.00us), max 3.00us (floor 9.00us)
}
