package traffic

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Assert is a condition on one number of the report, such as loss==0,
// p99.9<20us, rate_err<0.5% or latency_ns.max<=1ms.
type Assert struct {
	text  string
	key   string // path in the report: keys joined by "/"
	op    string
	value float64 // in the key's unit
	abs   bool    // of the number's absolute value
}

// String is the condition as written.
func (a Assert) String() string { return a.text }

// Short names. Everything else is a key of the report, objects by a dot.
var assertNames = map[string]string{
	"loss": "lost_packets", "lost": "lost_packets", "dup": "duplicate_packets", "duplicates": "duplicate_packets",
	"reorder": "reordered_packets", "reordered": "reordered_packets", "sent": "sent_packets", "received": "received_packets",
	"unique": "unique_packets", "stale": "stale_packets", "foreign": "foreign_packets", "corrupt": "corrupt_packets",
	"fragment": "fragment_packets", "late": "late_packets", "early": "early_packets", "unsent": "unsent_packets",
	"failed": "send_failed_packets", "rate_err": "rate_error_ratio", "rate": "tx_pps",
	"min": "latency_ns/min", "mean": "latency_ns/mean", "max": "latency_ns/max",
	"p50": "latency_ns/p50", "p90": "latency_ns/p90", "p99": "latency_ns/p99", "p99.9": "latency_ns/p99.9",
	"p99.99": "latency_ns/p99.99", "p99.999": "latency_ns/p99.999",
}

const assertWants = `NAME OP VALUE, such as loss==0, p99.9<20us or rate_err<0.5%`

// ParseAssert reads a condition and checks that its name and unit exist, so
// that a slip is found before the run and not after it.
func ParseAssert(s string) (Assert, error) {
	bad := func(why string) (Assert, error) {
		return Assert{}, usage("assert", s, why+"; use "+assertWants)
	}
	at := strings.IndexAny(s, "<>=!")
	if at < 1 {
		return bad("no comparison")
	}
	a := Assert{text: strings.TrimSpace(s)}
	name, rest := strings.TrimSpace(s[:at]), s[at:]
	for _, op := range []string{"<=", ">=", "==", "!=", "<", ">"} {
		if after, ok := strings.CutPrefix(rest, op); ok {
			a.op, rest = op, strings.ToLower(strings.TrimSpace(after))
			break
		}
	}
	if a.op == "" {
		return bad("the comparison is one of == != < <= > >=")
	}
	num, unit := splitNumber(rest)
	val, ok := parseDecimal(num)
	if !ok {
		return bad("no number to compare with")
	}
	a.value, _ = val.Float64()
	if a.key = assertNames[strings.ToLower(name)]; a.key == "" {
		a.key = assertKey(name)
	}
	if name == "loss" && unit == "%" {
		a.key = "loss_ratio"
	}
	if a.key == "" {
		return bad(fmt.Sprintf("the report has no number %q: short names are %s", name, strings.Join(shortNames(), " ")))
	}
	a.abs = a.key == "rate_error_ratio"
	scale, why := unitScale(a.key, unit, a.value)
	if why != "" {
		return bad(why)
	}
	a.value *= scale
	return a, nil
}

func shortNames() (out []string) {
	for name := range assertNames {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// assertKey finds a key of the report written as a.b, where b may itself have
// dots (latency_ns.p99.9, drops_packets.no_peer).
func assertKey(name string) string {
	outer, inner, found := strings.Cut(name, ".")
	if found && outer == "drops_packets" && inner != "" {
		return outer + "/" + inner
	}
	keys := numbers(sampleReport())
	for _, key := range []string{name, outer + "/" + inner} {
		if _, ok := keys[key]; ok {
			return key
		}
	}
	return ""
}

// unitScale turns a written unit into the key's own.
func unitScale(key, unit string, value float64) (scale float64, why string) {
	switch {
	case strings.Contains(key, "_ns"):
		for i, u := range []string{"ns", "us", "ms", "s"} {
			if unit == u {
				return math.Pow(1000, float64(i)), ""
			}
		}
		if unit == "" && value == 0 {
			return 1, ""
		}
		return 0, fmt.Sprintf("%s is a time: its unit is ns, us, ms or s", key)
	case strings.HasSuffix(key, "_ratio"):
		if unit == "%" {
			return 0.01, ""
		}
	case strings.HasSuffix(key, "_pps"), strings.HasSuffix(key, "_bps"):
		scale, rest := cutScale(unit)
		if rest == key[len(key)-3:] {
			return float64(scale), ""
		}
		if unit != "" {
			return 0, fmt.Sprintf("%s is counted in %s", key, key[len(key)-3:])
		}
	case unit != "":
		if scale, rest := cutScale(unit); rest == "" {
			return float64(scale), ""
		}
	}
	if unit != "" {
		return 0, fmt.Sprintf("unit %q does not fit %s", unit, key)
	}
	return 1, ""
}

// Check judges the report. A number that the run did not yield fails.
func (a Assert) Check(r *Report) AssertResult {
	out := AssertResult{Expr: a.text, Key: strings.Replace(a.key, "/", ".", 1)}
	v, ok := numbers(r)[a.key]
	if !ok {
		if strings.HasPrefix(a.key, "drops_packets/") {
			v, ok = 0, true
		} else {
			return out
		}
	}
	if a.key == "rate_error_ratio" && r.RateAskedPPS == 0 {
		return out
	}
	if needsReceiver(a.key) && r.RX == nil {
		return out
	}
	out.Value = &v
	if a.abs {
		v = math.Abs(v)
	}
	switch a.op {
	case "<":
		out.Pass = v < a.value
	case "<=":
		out.Pass = v <= a.value
	case ">":
		out.Pass = v > a.value
	case ">=":
		out.Pass = v >= a.value
	case "==":
		out.Pass = v == a.value
	default:
		out.Pass = v != a.value
	}
	return out
}

// needsReceiver names what a run that only sends cannot know: zero there is
// ignorance, not success.
func needsReceiver(key string) bool {
	switch key {
	case "lost_packets", "loss_ratio", "duplicate_packets", "reordered_packets", "stale_packets",
		"corrupt_packets", "foreign_packets", "received_packets", "unique_packets":
		return true
	}
	return false
}

// CheckAsserts refuses conditions on numbers that no run of c can have, so that
// an hour is not spent on a test that cannot pass. floor tells that the report
// gets a Floor.
func (c *Config) CheckAsserts(list []Assert, floor bool) error {
	for _, a := range list {
		if why := c.cannotHave(a.key, floor); why != "" {
			return usage("assert", a.text, strings.Replace(a.key, "/", ".", 1)+" "+why)
		}
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
	case (part == "rate_error_ratio" || part == "gap_error_ns") && c.Rate.Unit() == RateMax:
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

// numbers flattens a report: every number by its path, levels joined by "/".
func numbers(r *Report) map[string]float64 {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil
	}
	out := make(map[string]float64)
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for k, v := range m {
			switch v := v.(type) {
			case float64:
				out[prefix+k] = v
			case map[string]any:
				walk(prefix+k+"/", v)
			}
		}
	}
	walk("", tree)
	return out
}

// sampleReport has every optional part, so that its keys are all there are.
func sampleReport() *Report {
	return &Report{
		TX: &Port{}, RX: &Port{}, Latency: &Summary{}, GapError: &Summary{}, FloorGapError: &Summary{}, FloorLatency: &Summary{}, FloorClockStepNS: 1,
		Drops: map[string]uint64{}, Queues: []QueueCounts{{}}, Asserts: []AssertResult{{Value: new(float64)}},
	}
}
