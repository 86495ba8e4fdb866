package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/internal/clock"
)

// FloorSchema names the layout of Floor, as Schema does that of Report.
const FloorSchema = "bluering.pktgen.floor/1"

// Floor is what this host's pacing and timestamping take by themselves: frames
// at a moderate rate through the process's own switch, with no network and no
// other machine. What a run measures below that is not the network's.
type Floor struct {
	Schema    string `json:"schema"`
	Record    string `json:"record"` // "floor"
	Version   string `json:"version"`
	StartTime string `json:"start_time"` // RFC 3339
	Host      Host   `json:"host"`       // its clock is the clock kind

	ClockStepNS int64   `json:"clock_step_ns"` // least time between two readings that differ: the timer's resolution
	ClockReadNS float64 `json:"clock_read_ns"` // mean time of a reading

	RatePPS   float64  `json:"rate_pps"`
	Sent      uint64   `json:"sent_packets"`
	Late      uint64   `json:"late_packets"`   // as a Report's: slots missed by more than may be caught up
	Unsent    uint64   `json:"unsent_packets"` // slots given up
	ElapsedNS int64    `json:"elapsed_ns"`
	GapError  *Summary `json:"gap_error_ns"` // departure minus schedule
	Latency   *Summary `json:"latency_ns"`   // schedule to arrival
	Stalls    Stalls   `json:"stalls"`
}

// selfTestRate is far below what any machine's loop: takes, so that what is
// late is the host's doing.
const selfTestRate = 100_000

// SelfTest measures the floor for about d; 0 means a second.
func SelfTest(ctx context.Context, d time.Duration) (*Floor, error) {
	if d == 0 {
		d = time.Second
	}
	f := &Floor{
		Schema: FloorSchema, Record: "floor", Version: results.Version(), StartTime: time.Now().UTC().Format(time.RFC3339Nano),
		Host: results.ThisHost(), RatePPS: selfTestRate,
	}
	f.ClockStepNS, f.ClockReadNS = clockSteps(clock.System(), 200_000)
	rate, err := results.ParseRate(fmt.Sprintf("%dpps", selfTestRate))
	if err != nil {
		return nil, err
	}
	r, err := Run(ctx, Config{
		TX: "loop:pktgen-self-test", RX: "loop:pktgen-self-test", Rate: rate, Duration: d,
		Latency: LatencyMode{EveryN: 1}, Drain: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	if r.GapError == nil || r.Latency == nil || r.Lost > 0 {
		return nil, fmt.Errorf("self-test: %s, %d frames sent and %d lost: nothing to tell", r.Outcome, r.Sent, r.Lost)
	}
	f.take(r)
	return f, nil
}

// take fills in what a run measured.
func (f *Floor) take(r *Report) {
	f.Sent, f.Late, f.Unsent, f.ElapsedNS = r.Sent, r.Late, r.Unsent, r.ElapsedNS
	f.GapError, f.Latency, f.Stalls = r.GapError, r.Latency, r.Stalls
}

// clockSteps reads c so often and returns the least step seen and the mean
// time of a reading.
func clockSteps(c clock.Clock, readings int) (least int64, mean float64) {
	first := c.Now()
	last := first
	for range readings {
		now := c.Now()
		if step := now - last; step > 0 && (least == 0 || step < least) {
			least = step
		}
		last = now
	}
	return least, float64(last-first) / float64(readings)
}

// ReadFloor reads a floor that self-test wrote on this machine, as it is now.
func ReadFloor(path string) (*Floor, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, &UsageError{Thing: "floor", Value: path, Hint: fmt.Sprintf("cannot be read (%v); write it with pktgen self-test -o json", err), Cause: err}
	}
	f := new(Floor)
	if err := json.Unmarshal(raw, f); err != nil || f.Schema != FloorSchema || f.GapError == nil || f.Latency == nil {
		return nil, results.Usage("floor", path, "is not a floor; write it with pktgen self-test -o json")
	}
	if f.Host != results.ThisHost() {
		return nil, results.Usage("floor", path, "is another machine's, or this one's with another kernel, Go or number of processors; measure it anew with pktgen self-test -o json")
	}
	return f, nil
}

// Stamp puts the floor into a report and notes what lies beyond it: latencies
// that are not above what the host takes by itself, and departures nearer to
// each other than the host's own error.
func (f *Floor) Stamp(r *Report) {
	r.FloorGapError, r.FloorLatency, r.FloorClockStepNS = f.GapError, f.Latency, f.ClockStepNS
	if gap := gapNS(r); gap > 0 && gap <= float64(f.GapError.P99) {
		r.Notes = append(r.Notes, fmt.Sprintf("not trustworthy: single departures: at this rate they are %s apart, and this host's own gap error is %s at p99",
			results.NS(gap), results.NS(float64(f.GapError.P99))))
	}
	if r.Latency == nil || !r.LatencyOK {
		return
	}
	var below []string
	own, host := quantiles(r.Latency), quantiles(f.Latency)
	for i, q := range own {
		if q.ns <= host[i].ns {
			below = append(below, fmt.Sprintf("%s %s (floor %s)", q.name, results.NS(float64(q.ns)), results.NS(float64(host[i].ns))))
		}
	}
	if below != nil {
		r.Notes = append(r.Notes, "not trustworthy: latency that is not above this host's own: "+strings.Join(below, ", "))
	}
}

// gapNS is the time from one departure to the next as asked; 0: no rate was.
func gapNS(r *Report) float64 {
	if r.RateAskedPPS <= 0 {
		return 0
	}
	return 1e9 / r.RateAskedPPS
}

type quantile struct {
	name string
	ns   int64
}

func quantiles(s *Summary) []quantile {
	return []quantile{
		{"min", s.Min}, {"p50", s.P50}, {"p90", s.P90}, {"p99", s.P99}, {"p99.9", s.P999}, {"p99.99", s.P9999},
		{"p99.999", s.P99999}, {"max", s.Max},
	}
}

// FloorText is the floor for a reader.
func FloorText(f *Floor) string {
	var b strings.Builder
	line := func(name string, s *Summary) {
		fmt.Fprintf(&b, "%s floor", name)
		for _, q := range quantiles(s) {
			fmt.Fprintf(&b, "  %s %s", q.name, results.NS(float64(q.ns)))
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "pktgen %s  backend=loop (not a wire)  clock=%s  resolution %s  a reading %s\n",
		f.Version, f.Host.Clock, results.NS(float64(f.ClockStepNS)), results.NS(f.ClockReadNS))
	fmt.Fprintf(&b, "%s frames in %s, asked for %s  late %s  unsent %s\n",
		results.Group(f.Sent), time.Duration(f.ElapsedNS).Round(time.Millisecond), results.PPS(f.RatePPS), results.Group(f.Late), results.Group(f.Unsent))
	line("gap error", f.GapError)
	line("latency", f.Latency)
	writeStalls(&b, &f.Stalls)
	return b.String()
}
