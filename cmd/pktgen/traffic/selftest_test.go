package traffic

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/clock"
)

func TestSelfTestFollowsTheSchema(t *testing.T) {
	f, err := SelfTest(context.Background(), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	s := loadSchema(t)
	for _, bad := range s.Defs["floor"].check(s, "floor", asTree(t, f)) {
		t.Error(bad)
	}
	if f.Sent == 0 || f.ClockStepNS <= 0 || f.ClockReadNS <= 0 || f.Latency.Max <= 0 || f.Host.Clock == "" {
		t.Errorf("%+v", f)
	}
	if f.Sent+f.Unsent > 1000 {
		t.Errorf("%d sent and %d unsent, of the 1000 slots that 10 ms have", f.Sent, f.Unsent)
	}
	if text := FloorText(f); !strings.Contains(text, "clock="+f.Host.Clock) || !strings.Contains(text, "latency floor  min ") {
		t.Error(text)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f, err := SelfTest(ctx, time.Second); f != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, %v", f, err)
	}
}

// TestFloorTellsWhatWasLate: a floor that was measured at less than its rate says so.
func TestFloorTellsWhatWasLate(t *testing.T) {
	f := &Floor{RatePPS: selfTestRate}
	f.take(&Report{Counts: Counts{Sent: 29_525, Late: 70_442, Unsent: 70_475}, ElapsedNS: 1e9, GapError: &Summary{}, Latency: &Summary{}})
	if text := FloorText(f); !strings.Contains(text, "29,525 frames in 1s, asked for 100.000000 kpps  late 70,442  unsent 70,475\n") {
		t.Error(text)
	}
}

// tickClock steps by 7 ns at every third reading.
type tickClock struct{ n int64 }

func (c *tickClock) Now() int64 { c.n++; return c.n / 3 * 7 }

var _ clock.Clock = (*tickClock)(nil)

func TestClockStepsAreTheLeastSeen(t *testing.T) {
	if step, mean := clockSteps(&tickClock{}, 3000); step != 7 || mean < 2.3 || mean > 2.4 {
		t.Errorf("step %d, mean %v", step, mean)
	}
}

// TestStampNamesWhatIsBelowTheFloor and leaves alone what is above it.
func TestStampNamesWhatIsBelowTheFloor(t *testing.T) {
	f := &Floor{
		GapError: &Summary{P99: 200}, ClockStepNS: 5,
		Latency: &Summary{Min: 100, P50: 200, P90: 300, P99: 400, P999: 500, P9999: 600, P99999: 700, Max: 800},
	}
	above := &Summary{Min: 101, P50: 201, P90: 301, P99: 401, P999: 501, P9999: 601, P99999: 701, Max: 801}
	mixed := &Summary{Min: 101, P50: 200, P90: 301, P99: 399, P999: 501, P9999: 601, P99999: 701, Max: 801}
	for name, c := range map[string]struct {
		r     *Report
		notes []string
	}{
		"above":                  {&Report{RateAskedPPS: 4_000_000, Latency: above, LatencyOK: true}, nil},
		"at the floor and below": {&Report{Latency: mixed, LatencyOK: true}, []string{"not trustworthy: latency that is not above this host's own: p50 200ns (floor 200ns), p99 399ns (floor 400ns)"}},
		"of another clock":       {&Report{Latency: mixed}, nil},
		"departures too near":    {&Report{RateAskedPPS: 5_000_000}, []string{"not trustworthy: single departures: at this rate they are 200ns apart, and this host's own gap error is 200ns at p99"}},
	} {
		f.Stamp(c.r)
		if !slices.Equal(c.r.Notes, c.notes) {
			t.Errorf("%s: %q", name, c.r.Notes)
		}
		if c.r.FloorGapError != f.GapError || c.r.FloorLatency != f.Latency || c.r.FloorClockStepNS != 5 {
			t.Errorf("%s: the floor is not in the report", name)
		}
	}
}
