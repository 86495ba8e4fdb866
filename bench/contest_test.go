package bench

import (
	"testing"
	"time"
)

// contest is one benchmark: ours against a baseline, in turns.
type contest struct {
	packets  int    // in one chunk
	ours     func() // the timed part
	baseline func() // the timed part; nil: there is none
	between  func() // untimed, after each chunk of ours; nil: nothing
}

// run reports ns/pkt of both and their ratio. One iteration of the benchmark is one chunk of each.
func (c contest) run(b *testing.B) {
	b.Helper()
	c.turn(c.ours) // warm: pages touched, branches learned
	if c.baseline != nil {
		c.baseline()
	}
	var ours, baseline time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		ours += c.turn(c.ours)
		if c.baseline != nil {
			baseline += timed(c.baseline)
		}
	}
	packets := float64(b.N) * float64(c.packets)
	b.ReportMetric(0, "ns/op") // a chunk is nobody's unit
	b.ReportMetric(float64(ours.Nanoseconds())/packets, "ns/pkt")
	if c.baseline != nil {
		b.ReportMetric(float64(baseline.Nanoseconds())/packets, "baseline-ns/pkt")
		b.ReportMetric(float64(ours)/float64(baseline), "ratio")
	}
}

func (c contest) turn(f func()) time.Duration {
	took := timed(f)
	if c.between != nil {
		c.between()
	}
	return took
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
