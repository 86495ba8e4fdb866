package traffic

import (
	"strings"
	"testing"
)

func TestAsserts(t *testing.T) {
	r := fullReport(t)
	r.RateAskedPPS, r.RateErrorRatio = 100, -0.004
	for expr, pass := range map[string]bool{
		"loss==1": true, "loss == 0": false, "lost<=1": true, "loss<21%": true, "loss<20%": false,
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
			t.Errorf("%s: %s, want pass %v", expr, AssertText(got), pass)
		}
	}
}

func TestWhatARunDidNotYieldFails(t *testing.T) {
	r := fullReport(t)
	r.RX, r.Latency, r.RateAskedPPS = nil, nil, 0
	for _, expr := range []string{"loss==0", "dup==0", "p99<1s", "rate_err<1%"} {
		if got := must(ParseAssert(expr)).Check(r); got.Pass || got.Value != nil {
			t.Errorf("%s: %s", expr, AssertText(got))
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
