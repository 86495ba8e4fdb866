package bench

import (
	"math"
	"testing"
	"time"
)

// contest is one benchmark: ours against a baseline, in turns.
type contest struct {
	packets         int    // in one chunk
	ours            func() // timed
	between         func() // untimed, after each chunk of ours; nil: nothing
	baseline        func() // timed; nil: there is none
	betweenBaseline func() // untimed, after each chunk of the baseline; nil: nothing
}

// run reports ns/pkt of both, their ratio, and both of the best chunk, which a busy machine disturbs least. One iteration
// of the benchmark is one chunk of each.
func (c contest) run(b *testing.B) {
	b.Helper()
	turn(c.ours, c.between) // warm: pages touched, branches learned
	turn(c.baseline, c.betweenBaseline)
	var ours, baseline time.Duration
	best, baselineBest := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		took := turn(c.ours, c.between)
		ours += took
		best = min(best, took)
		took = turn(c.baseline, c.betweenBaseline)
		baseline += took
		baselineBest = min(baselineBest, took)
	}
	packets := float64(b.N) * float64(c.packets)
	b.ReportMetric(0, "ns/op") // a chunk is nobody's unit
	b.ReportMetric(float64(ours.Nanoseconds())/packets, "ns/pkt")
	b.ReportMetric(float64(best.Nanoseconds())/float64(c.packets), "best-ns/pkt")
	if c.baseline != nil {
		b.ReportMetric(float64(baseline.Nanoseconds())/packets, "baseline-ns/pkt")
		b.ReportMetric(float64(baselineBest.Nanoseconds())/float64(c.packets), "baseline-best-ns/pkt")
		b.ReportMetric(float64(ours)/float64(baseline), "ratio")
	}
}

// turn times f, and then runs after.
func turn(f, after func()) (took time.Duration) {
	if f == nil {
		return 0
	}
	start := time.Now()
	f()
	took = time.Since(start)
	if after != nil {
		after()
	}
	return took
}
