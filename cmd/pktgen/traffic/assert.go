package traffic

import (
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// assertKeys has short names for what is asked most. Everything else is a key of
// the report, objects by a dot.
var assertKeys = &results.Keys{
	Short: map[string]string{
		"loss": "lost_packets", "lost": "lost_packets", "dup": "duplicate_packets", "duplicates": "duplicate_packets",
		"reorder": "reordered_packets", "reordered": "reordered_packets", "sent": "sent_packets", "received": "received_packets",
		"unique": "unique_packets", "stale": "stale_packets", "foreign": "foreign_packets", "corrupt": "corrupt_packets",
		"fragment": "fragment_packets", "late": "late_packets", "early": "early_packets", "unsent": "unsent_packets",
		"failed": "send_failed_packets", "rate_err": "rate_error_ratio", "rate": "tx_pps",
		"min": "latency_ns/min", "mean": "latency_ns/mean", "max": "latency_ns/max",
		"p50": "latency_ns/p50", "p90": "latency_ns/p90", "p99": "latency_ns/p99", "p99.9": "latency_ns/p99.9",
		"p99.99": "latency_ns/p99.99", "p99.999": "latency_ns/p99.999",
	},
	Percent: map[string]string{"loss": "loss_ratio"},
	Abs:     "rate_error_ratio",
	Open:    "drops_packets",
	Report:  sampleReport(),
	Wants:   `NAME OP VALUE, such as loss==0, p99.9<20us or rate_err<0.5%`,
}

// Assert is a condition on one number of the report, such as loss==0,
// p99.9<20us, rate_err<0.5% or latency_ns.max<=1ms.
type Assert struct{ results.Assert }

// ParseAssert reads a condition and checks that its name and unit exist, so
// that a slip is found before the run and not after it.
func ParseAssert(s string) (Assert, error) {
	a, err := assertKeys.Parse(s)
	return Assert{a}, err
}

// Check judges the report. A number that the run did not yield fails.
func (a Assert) Check(r *Report) AssertResult {
	if a.Key() == "rate_error_ratio" && r.RateAskedPPS == 0 || needsReceiver(a.Key()) && r.RX == nil {
		return a.Unknown()
	}
	return a.Judge(r)
}

// needsReceiver names what a run that only sends cannot know: zero there is
// ignorance, not success.
func needsReceiver(key string) bool {
	switch key {
	case "lost_packets", "loss_ratio", "duplicate_packets", "reordered_packets", "stale_packets",
		"corrupt_packets", "foreign_packets", "received_packets", "unique_packets", "bad_icrc_packets", "weak_icrc_packets":
		return true
	}
	return false
}

// CheckAsserts refuses conditions on numbers that no run of c can have, so that
// an hour is not spent on a test that cannot pass. floor tells that the report
// gets a Floor.
func (c *Config) CheckAsserts(list []Assert, floor bool) error {
	for _, a := range list {
		if why := c.cannotHave(a.Key(), floor); why != "" {
			return results.Usage("assert", a.String(), strings.Replace(a.Key(), "/", ".", 1)+" "+why)
		}
	}
	return nil
}

// CheckHDR refuses a histogram of a run that records no latency.
func (c *Config) CheckHDR(path string) error {
	if why := c.cannotHave("latency_ns/max", false); path != "" && why != "" {
		return results.Usage("hdr", path, "latency "+why)
	}
	return nil
}

// cannotHave says why a run of c has no such number, and what would give it one.
func (c *Config) cannotHave(key string, floor bool) string {
	part, _, _ := strings.Cut(key, "/")
	switch {
	case c.RX == "" && (needsReceiver(key) || isLatency(key) || isReceived(key)):
		return "needs a port that receives; use --rx PORT"
	case c.TX == "" && (isSent(key) || part == "tx" || key == "loss_ratio"):
		return "is the sender's to know; use it with tx"
	case isLatency(key) && c.NoTag:
		return "is read from the tag; use it without --no-tag"
	case isLatency(key) && c.Latency.EveryN == 0:
		return "is not recorded with --latency off; use --latency all or sample:N"
	case c.NoTag && (needsTag(key) || key == "lost_packets" && c.TX == ""):
		return "is found by the tag; use it without --no-tag"
	case (part == "rate_error_ratio" || part == "gap_error_ns") && c.Rate.Unit() == results.RateMax:
		return "needs a rate to be held; use -r with one that is not max"
	case strings.HasPrefix(key, "floor_") && !floor:
		return "needs a floor; use --floor FILE or --self-test"
	}
	return ""
}

func isLatency(key string) bool {
	return strings.HasPrefix(key, "latency_ns/") || key == "latency_samples_count"
}

// isReceived and isSent name what only one side counts.
func isReceived(key string) bool {
	switch key {
	case "received_bytes", "fragment_packets", "hello_packets", "early_packets", "rx_ring_drops_packets",
		"rx_pps", "rx_l2_bps", "rx_l1_bps", "reorder_extent_max_packets", "flow_window_packets":
		return true
	}
	return strings.HasPrefix(key, "rx/")
}

func isSent(key string) bool {
	switch key {
	case "sent_packets", "sent_bytes", "late_packets", "unsent_packets", "send_failed_packets", "rate_error_ratio", "rate_asked_pps",
		"tx_pps", "tx_l2_bps", "tx_l1_bps", "longest_unplanned_burst_packets":
		return true
	}
	return strings.HasPrefix(key, "gap_error_ns/")
}

// needsTag names what only the tag tells.
func needsTag(key string) bool {
	switch key {
	case "duplicate_packets", "reordered_packets", "stale_packets", "early_packets", "hello_packets",
		"reorder_extent_max_packets", "flow_window_packets":
		return true
	}
	return false
}

// sampleReport has every optional part, so that its keys are all there are.
func sampleReport() *Report {
	return &Report{
		TX: &Port{}, RX: &Port{}, Latency: &Summary{}, GapError: &Summary{}, FloorGapError: &Summary{}, FloorLatency: &Summary{}, FloorClockStepNS: 1,
		Drops: map[string]uint64{}, Queues: []QueueCounts{{}}, Asserts: []AssertResult{{Value: new(float64)}},
	}
}
