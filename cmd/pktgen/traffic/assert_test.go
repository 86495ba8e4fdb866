package traffic

import (
	"strings"
	"testing"

	"github.com/bluering/bluering/cmd/internal/results"
)

func TestAsserts(t *testing.T) {
	r := fullReport(t)
	r.RateAskedPPS, r.RateErrorRatio = 100, -0.004
	for expr, pass := range map[string]bool{
		"loss==1": true, "loss == 0": false, "lost<=1": true, "loss<21%": true, "LOSS<21%": true, "LOSS<20%": false, "loss<20%": false,
		"p99.9<20us": true, "p99.9<195ns": false, "p99.9<=195ns": true, "max<1ms": true, "mean>0.15us": true, "max>0": true,
		"rate_err<0.5%": true, "rate_err<0.3%": false, "rate_err<0.005": true,
		"dup==0": true, "reordered!=0": false, "sent==5": true, "received>=4": true, "sent<1k": true,
		"latency_ns.p99.9<20us": true, "drops_packets.no_peer==1": true, "drops_packets.other==0": true,
		"tx_pps<1kpps": true, "stalls.gc_cycles_count>=0": true, "elapsed_ns==4s": true, "gap_error_ns.max<1us": true,
	} {
		a, err := ParseAssert(expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if got := a.Check(r); got.Pass != pass || got.Expr != expr {
			t.Errorf("%s: %s, want pass %v", expr, results.AssertText(got), pass)
		}
	}
}

func TestWhatARunDidNotYieldFails(t *testing.T) {
	r := fullReport(t)
	r.RX, r.Latency, r.RateAskedPPS = nil, nil, 0
	for _, expr := range []string{"loss==0", "dup==0", "p99<1s", "rate_err<1%"} {
		if got := must(ParseAssert(expr)).Check(r); got.Pass || got.Value != nil {
			t.Errorf("%s: %s", expr, results.AssertText(got))
		}
	}
}

func TestAssertsThatCannotHoldAreRefused(t *testing.T) {
	paced := must(results.ParseRate("1kpps"))
	both := Config{TX: "loop:", RX: "loop:", Rate: paced, Latency: LatencyMode{1}}
	with := func(f func(c *Config)) Config {
		c := both
		f(&c)
		return c
	}
	sendOnly, receiveOnly := with(func(c *Config) { c.RX = "" }), with(func(c *Config) { c.TX, c.Rate = "", Rate{} })
	atMax, off := with(func(c *Config) { c.Rate = Rate{} }), with(func(c *Config) { c.Latency = LatencyMode{} })
	bare := with(func(c *Config) { c.NoTag = true })
	for _, tc := range []struct {
		c     Config
		exprs string
		want  string // empty: accepted
	}{
		{both, "loss==0 p99<1s rate_err<1% gap_error_ns.max<1s dup==0 early==0 rx_pps>0 rx.speed_bps>0 drops_packets.wire==0", ""},
		{both, "floor_latency_ns.p99<1us", "--floor FILE"},
		{sendOnly, "sent==1 rate_err<1% gap_error_ns.p50<1us failed==0 drops_packets.no_peer==0 stalls.stalls_count==0", ""},
		{sendOnly, "loss==0 loss<1% p99<1s dup==0 latency_samples_count>0 rx_pps>0 corrupt==0 rx.max_frame_bytes>0", "--rx PORT"},
		{receiveOnly, "loss==0 p99<1s dup==0 received==1", ""},
		{receiveOnly, "sent==1 rate_err<1% rate>0 loss<1% late==0 gap_error_ns.p50<1us", "use it with tx"},
		{atMax, "loss==0 p99<1s rate>1kpps", ""},
		{atMax, "rate_err<1% gap_error_ns.max<1us", "use -r"},
		{off, "loss==0", ""},
		{off, "p99<1s latency_samples_count>0 max<1s", "--latency all"},
		{bare, "loss==0 received==1", ""},
		{bare, "dup==0 reordered==0 p99<1s", "without --no-tag"},
		{with(func(c *Config) { c.NoTag, c.TX = true, "" }), "loss==0", "without --no-tag"},
	} {
		for _, expr := range strings.Fields(tc.exprs) {
			err := tc.c.CheckAsserts([]Assert{must(ParseAssert(expr))}, false)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), `assert "`+expr+`": `)) {
				t.Errorf("tx %q rx %q: %s: %v, want %q", tc.c.TX, tc.c.RX, expr, err, tc.want)
			}
		}
	}
}

func TestBadAsserts(t *testing.T) {
	for expr, want := range map[string]string{
		"loss": "no comparison", "==0": "no comparison", "loss=0": "one of ==", "loss==": "no number", "loss==x": "no number",
		"nope==0": "no number \"nope\"", "p99<20": "is a time", "p99<20%": "is a time", "loss==0us": "does not fit", "rate<5gbps": "counted in pps",
	} {
		_, err := ParseAssert(expr)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", expr, err, want)
		}
	}
}
