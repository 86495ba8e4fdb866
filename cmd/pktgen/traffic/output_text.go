package traffic

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PlanText is the summary printed before the first frame: at most three lines.
func PlanText(p *Plan) string {
	var b strings.Builder
	c := &p.Config
	port := p.TX
	if port == nil {
		port = p.RX
	}
	fmt.Fprintf(&b, "pktgen %s  backend=%s  link=%s  queues=%d  seed=%#x\n", Version(), backendText(&port.Port), speedText(port.SpeedBPS), p.Queues, c.Seed)
	if p.TX == nil {
		return b.String()
	}
	mean, _ := c.Size.Mean().Float64()
	fmt.Fprintf(&b, "plan: %s B (%s on wire) x %s, %s flows, %s\n", c.Size, trimFloat(mean+l1OverheadBytes, 1)+" B", p.rateText(), group(uint64(p.Flows)), p.limitText())
	fmt.Fprintf(&b, "%s -> %s  %s  dmac %s  run %s\n", c.Src, c.Dst, protoName(c), c.DMAC, orDash(c.Run))
	return b.String()
}

// rateText is the offered load in all its units.
func (p *Plan) rateText() string {
	if p.Rate.Num == 0 {
		return "max"
	}
	pps := float64(p.Rate.Num) / float64(p.Rate.Den)
	mean, _ := p.Config.Size.Mean().Float64()
	l1 := pps * (mean + l1OverheadBytes) * 8
	s := fmt.Sprintf("%s = %s L2, %s L1", ppsText(pps), bpsText(pps*mean*8), bpsText(l1))
	if p.TX.SpeedBPS > 0 {
		s += fmt.Sprintf(" (%.2f %%)", l1/float64(p.TX.SpeedBPS)*100)
	}
	return s
}

func (p *Plan) limitText() string {
	c := &p.Config
	var parts []string
	if p.Count > 0 {
		parts = append(parts, group(p.Count)+" packets")
	}
	if c.Duration > 0 {
		parts = append(parts, c.Duration.String())
	}
	if parts == nil {
		return "until a signal"
	}
	return strings.Join(parts, " or ")
}

// reportText is the report for a reader.
func reportText(r *Report) string {
	var b strings.Builder
	if r.Outcome != "complete" {
		fmt.Fprintf(&b, "%s%s\n", r.Outcome, prefixed(": ", r.Error))
	}
	if r.TX != nil {
		fmt.Fprintf(&b, "backend=%s  seed=%s\n", backendText(r.TX), r.Seed)
	} else if r.RX != nil {
		fmt.Fprintf(&b, "backend=%s\n", backendText(r.RX))
	}
	writeCounts(&b, r)
	writeRates(&b, r)
	writeLatency(&b, r)
	for _, key := range sortedKeys(r.Drops) {
		if r.Drops[key] > 0 {
			fmt.Fprintf(&b, "dropped %s: %s\n", group(r.Drops[key]), key)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	writeStalls(&b, &r.Stalls)
	for _, a := range r.Asserts {
		fmt.Fprintf(&b, "  %s\n", AssertText(a))
	}
	return b.String()
}

func writeStalls(b *strings.Builder, s *Stalls) {
	fmt.Fprintf(b, "host: %d stalls, longest %s, %d GC cycles, %d involuntary switches\n",
		s.Count, nsText(float64(s.LongestNS)), s.GCCycles, s.Involuntary)
}

func writeCounts(b *strings.Builder, r *Report) {
	if r.RX == nil {
		fmt.Fprintf(b, "sent %s  unsent %s  failed %s  late %s  in %s\n",
			group(r.Sent), group(r.Unsent), group(r.SendFailed), group(r.Late), time.Duration(r.ElapsedNS).Round(time.Microsecond))
		return
	}
	lost := group(r.Lost)
	if r.TX != nil {
		fmt.Fprintf(b, "sent %s  ", group(r.Sent))
	}
	if r.Sent > 0 {
		lost += fmt.Sprintf(" (%s %%)", trimFloat(r.LossRatio*100, 6))
	}
	fmt.Fprintf(b, "received %s  lost %s  dup %s  reordered %s  foreign %s", group(r.Received), lost, group(r.Duplicate), group(r.Reordered), group(r.Foreign))
	if r.TX != nil {
		fmt.Fprintf(b, "  late %s  unsent %s", group(r.Late), group(r.Unsent))
	}
	fmt.Fprintln(b)
	var odd []string
	for _, x := range []struct {
		n    uint64
		name string
	}{{r.Stale, "stale"}, {r.Corrupt, "corrupt"}, {r.Fragment, "fragments"}, {r.Early, "early"}, {r.SendFailed, "failed to send"}, {r.RingDrops, "receive ring drops"}, {r.Hello, "hello"}} {
		if x.n > 0 {
			odd = append(odd, group(x.n)+" "+x.name)
		}
	}
	if odd != nil {
		fmt.Fprintf(b, "also %s\n", strings.Join(odd, ", "))
	}
}

func writeRates(b *strings.Builder, r *Report) {
	if r.TX != nil {
		if r.RateAskedPPS > 0 {
			fmt.Fprintf(b, "rate asked %s  got %s (%+.5f %%)  %s L2  %s L1\n",
				ppsText(r.RateAskedPPS), ppsText(r.TxPPS), r.RateErrorRatio*100, bpsText(r.TxL2BPS), bpsText(r.TxL1BPS))
		} else {
			fmt.Fprintf(b, "rate asked max  got %s  %s L2  %s L1\n", ppsText(r.TxPPS), bpsText(r.TxL2BPS), bpsText(r.TxL1BPS))
		}
		if g := r.GapError; g != nil {
			fmt.Fprintf(b, "gap error p50 %s p99 %s max %s  longest unplanned burst %s\n",
				nsText(float64(g.P50)), nsText(float64(g.P99)), nsText(float64(g.Max)), group(r.LongestBurst))
		}
	} else {
		fmt.Fprintf(b, "rate got %s  %s L2  %s L1\n", ppsText(r.RxPPS), bpsText(r.RxL2BPS), bpsText(r.RxL1BPS))
	}
}

func writeLatency(b *strings.Builder, r *Report) {
	l := r.Latency
	if l == nil {
		if r.RX != nil {
			fmt.Fprintf(b, "latency: none recorded\n")
		}
		return
	}
	which := "every packet"
	if mode := r.Config.Latency; mode != "all" {
		which = mode
	}
	if !r.LatencyOK {
		which += ", variation only: the clocks differ"
	}
	fmt.Fprintf(b, "latency (%s, %s samples, from %s, in steps of %d ns)\n", which, group(r.LatencySamples), orDash(r.LatencyFrom), r.LatencyResolutionNS)
	fmt.Fprintf(b, "   min %s  mean %s  p50 %s  p90 %s  p99 %s  p99.9 %s  p99.99 %s  p99.999 %s  max %s\n",
		nsText(float64(l.Min)), nsText(l.Mean), nsText(float64(l.P50)), nsText(float64(l.P90)), nsText(float64(l.P99)),
		nsText(float64(l.P999)), nsText(float64(l.P9999)), nsText(float64(l.P99999)), nsText(float64(l.Max)))
}

// AssertText is a verdict in a line: PASS loss==0 (lost_packets is 0).
func AssertText(a AssertResult) string {
	verdict := "FAIL"
	if a.Pass {
		verdict = "PASS"
	}
	value := "no value"
	if a.Value != nil {
		value = strconv.FormatFloat(*a.Value, 'g', 10, 64)
	}
	return fmt.Sprintf("%s %s  (%s is %s)", verdict, a.Expr, a.Key, value)
}

func backendText(p *Port) string {
	if !p.IsWire {
		return p.Kind + " (not a wire)"
	}
	if strings.HasPrefix(p.Name, p.Kind+":") {
		return p.Name
	}
	return p.Kind + ":" + p.Name
}

func speedText(bps uint64) string {
	if bps == 0 {
		return "unknown"
	}
	return siText(float64(bps), 0) + "bit/s"
}

func ppsText(pps float64) string {
	switch {
	case pps >= 1e6:
		return fmt.Sprintf("%.6f Mpps", pps/1e6)
	case pps >= 1e3:
		return fmt.Sprintf("%.6f kpps", pps/1e3)
	case pps > 0 && pps < 1e-3: // a frame in a quarter of an hour or more: digits that say something
		return fmt.Sprintf("%.6g pps", pps)
	}
	return fmt.Sprintf("%.6f pps", pps)
}

func bpsText(bps float64) string { return siText(bps, 3) + "bit/s" }

// siText scales by powers of 1000: "5.120 G".
func siText(x float64, digits int) string {
	for _, p := range []struct {
		scale float64
		name  string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= p.scale {
			return fmt.Sprintf("%.*f %s", digits, x/p.scale, p.name)
		}
	}
	if x > 0 && x < 1e-3 {
		return fmt.Sprintf("%.4g ", x)
	}
	return fmt.Sprintf("%.*f ", digits, x)
}

// nsText gives a time three significant digits and its unit.
func nsText(ns float64) string {
	scale, unit := 1.0, "ns"
	switch a := math.Abs(ns); {
	case a >= 1e9:
		scale, unit = 1e9, "s"
	case a >= 1e6:
		scale, unit = 1e6, "ms"
	case a >= 1e3:
		scale, unit = 1e3, "us"
	default:
		return trimFloat(ns, 1) + unit
	}
	digits := 2
	if math.Abs(ns/scale) >= 100 {
		digits = 0
	} else if math.Abs(ns/scale) >= 10 {
		digits = 1
	}
	return strconv.FormatFloat(ns/scale, 'f', digits, 64) + unit
}

// trimFloat has at most that many digits and no trailing zeros.
func trimFloat(x float64, digits int) string {
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// group writes thousands with commas.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func sortedKeys(m map[string]uint64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
