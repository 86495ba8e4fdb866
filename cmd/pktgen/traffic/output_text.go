package traffic

import (
	"fmt"
	"strings"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
)

// PlanText is the summary printed before the first frame: at most three lines.
func PlanText(p *Plan) string {
	var b strings.Builder
	c := &p.Config
	port := p.TX
	if port == nil {
		port = p.RX
	}
	fmt.Fprintf(&b, "pktgen %s  backend=%s  link=%s  queues=%d  seed=%#x\n", results.Version(), backendText(&port.Port), results.Speed(port.SpeedBPS), p.Queues, c.Seed)
	if p.TX == nil {
		return b.String()
	}
	mean, _ := c.Size.Mean().Float64()
	fmt.Fprintf(&b, "plan: %s B (%s on wire) x %s, %s flows, %s\n", c.Size, results.Trim(mean+results.L1OverheadBytes, 1)+" B", p.rateText(), results.Group(uint64(p.Flows)), p.limitText())
	fmt.Fprintf(&b, "%s -> %s  %s%s  dmac %s  run %s\n", c.Src, c.Dst, protoName(c), c.roceText(), c.DMAC, results.OrDash(c.Run))
	return b.String()
}

// rateText is the offered load in all its units.
func (p *Plan) rateText() string {
	if p.Rate.Num == 0 {
		return "max"
	}
	pps := float64(p.Rate.Num) / float64(p.Rate.Den)
	mean, _ := p.Config.Size.Mean().Float64()
	l1 := pps * (mean + results.L1OverheadBytes) * 8
	s := fmt.Sprintf("%s = %s L2, %s L1", results.PPS(pps), results.BPS(pps*mean*8), results.BPS(l1))
	if p.TX.SpeedBPS > 0 {
		s += fmt.Sprintf(" (%.2f %%)", l1/float64(p.TX.SpeedBPS)*100)
	}
	return s
}

func (p *Plan) limitText() string {
	c := &p.Config
	var parts []string
	if p.Count > 0 {
		parts = append(parts, results.Group(p.Count)+" packets")
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
		fmt.Fprintf(&b, "%s%s\n", r.Outcome, results.Prefixed(": ", r.Error))
	}
	if r.TX != nil {
		fmt.Fprintf(&b, "backend=%s  seed=%s\n", backendText(r.TX), r.Seed)
	} else if r.RX != nil {
		fmt.Fprintf(&b, "backend=%s\n", backendText(r.RX))
	}
	writeCounts(&b, r)
	writeRates(&b, r)
	writeLatency(&b, r)
	for _, key := range results.SortedKeys(r.Drops) {
		if r.Drops[key] > 0 {
			fmt.Fprintf(&b, "dropped %s: %s\n", results.Group(r.Drops[key]), key)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	writeStalls(&b, &r.Stalls)
	for _, a := range r.Asserts {
		fmt.Fprintf(&b, "  %s\n", results.AssertText(a))
	}
	return b.String()
}

func writeStalls(b *strings.Builder, s *Stalls) {
	fmt.Fprintf(b, "host: %d stalls, longest %s, %d GC cycles, %d involuntary switches\n",
		s.Count, results.NS(float64(s.LongestNS)), s.GCCycles, s.Involuntary)
}

func writeCounts(b *strings.Builder, r *Report) {
	if r.RX == nil {
		fmt.Fprintf(b, "sent %s  unsent %s  failed %s  late %s  in %s\n",
			results.Group(r.Sent), results.Group(r.Unsent), results.Group(r.SendFailed), results.Group(r.Late), time.Duration(r.ElapsedNS).Round(time.Microsecond))
		return
	}
	lost := results.Group(r.Lost)
	if r.TX != nil {
		fmt.Fprintf(b, "sent %s  ", results.Group(r.Sent))
	}
	if r.Sent > 0 {
		lost += fmt.Sprintf(" (%s %%)", results.Trim(r.LossRatio*100, 6))
	}
	fmt.Fprintf(b, "received %s  lost %s  dup %s  reordered %s  foreign %s", results.Group(r.Received), lost, results.Group(r.Duplicate), results.Group(r.Reordered), results.Group(r.Foreign))
	if r.TX != nil {
		fmt.Fprintf(b, "  late %s  unsent %s", results.Group(r.Late), results.Group(r.Unsent))
	}
	fmt.Fprintln(b)
	var odd []string
	for _, x := range []struct {
		n    uint64
		name string
	}{{r.Stale, "stale"}, {r.Corrupt, "corrupt"}, {r.BadICRC, "of them by their ICRC"}, {r.WeakICRC, "by the weak check of the ICRC"}, {r.Fragment, "fragments"}, {r.Early, "early"}, {r.SendFailed, "failed to send"}, {r.RingDrops, "receive ring drops"}, {r.Hello, "hello"}} {
		if x.n > 0 {
			odd = append(odd, results.Group(x.n)+" "+x.name)
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
				results.PPS(r.RateAskedPPS), results.PPS(r.TxPPS), r.RateErrorRatio*100, results.BPS(r.TxL2BPS), results.BPS(r.TxL1BPS))
		} else {
			fmt.Fprintf(b, "rate asked max  got %s  %s L2  %s L1\n", results.PPS(r.TxPPS), results.BPS(r.TxL2BPS), results.BPS(r.TxL1BPS))
		}
		if g := r.GapError; g != nil {
			fmt.Fprintf(b, "gap error p50 %s p99 %s max %s  longest burst to catch up %s\n",
				results.NS(float64(g.P50)), results.NS(float64(g.P99)), results.NS(float64(g.Max)), results.Group(r.LongestBurst))
		}
	} else {
		fmt.Fprintf(b, "rate got %s  %s L2  %s L1\n", results.PPS(r.RxPPS), results.BPS(r.RxL2BPS), results.BPS(r.RxL1BPS))
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
	fmt.Fprintf(b, "latency (%s, %s samples, from %s, in steps of %d ns)\n", which, results.Group(r.LatencySamples), results.OrDash(r.LatencyFrom), r.LatencyResolutionNS)
	fmt.Fprintf(b, "   min %s  mean %s  p50 %s  p90 %s  p99 %s  p99.9 %s  p99.99 %s  p99.999 %s  max %s\n",
		results.NS(float64(l.Min)), results.NS(l.Mean), results.NS(float64(l.P50)), results.NS(float64(l.P90)), results.NS(float64(l.P99)),
		results.NS(float64(l.P999)), results.NS(float64(l.P9999)), results.NS(float64(l.P99999)), results.NS(float64(l.Max)))
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
