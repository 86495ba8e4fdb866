package traffic

import (
	"fmt"
	"net"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
)

// NewReport starts the report of a plan: everything that is known before the
// first frame.
func NewReport(p *Plan) *Report {
	c := &p.Config
	r := &Report{
		Schema: Schema, Record: "report", Tool: "pktgen", Version: results.Version(), Command: "rx", Outcome: "complete",
		StartTime: time.Now().UTC().Format(time.RFC3339Nano), Seed: fmt.Sprintf("%#x", c.Seed), RunToken: c.Run,
		Host: results.ThisHost(), Config: p.echo(),
		LatencyResolutionNS: 16, LatencyFrom: "none",
		Drops: map[string]uint64{}, Queues: []QueueCounts{}, Asserts: []AssertResult{},
	}
	if p.Rate.Num > 0 {
		r.RateAskedPPS = float64(p.Rate.Num) / float64(p.Rate.Den)
	}
	if p.TX != nil {
		port := p.TX.Port
		r.Command, r.TX = "tx", &port
	}
	if p.RX != nil {
		port := p.RX.Port
		r.RX = &port
	}
	return r
}

// Finish computes what follows from the counts: rates over ElapsedNS, the
// errors and ratios. From the first departure to the last there are Sent-1
// gaps, so that is what a send rate counts.
func (r *Report) Finish() {
	r.Rates = RatesOf(&r.Counts, r.ElapsedNS)
	if r.Sent > 0 {
		gaps := float64(r.Sent-1) / float64(r.Sent)
		r.TxPPS, r.TxL2BPS, r.TxL1BPS = r.TxPPS*gaps, r.TxL2BPS*gaps, r.TxL1BPS*gaps
	}
	r.LossRatio, r.RateErrorRatio = 0, 0
	if r.Sent > 0 {
		r.LossRatio = float64(r.Lost) / float64(r.Sent)
	}
	if r.RateAskedPPS > 0 && r.ElapsedNS > 0 {
		r.RateErrorRatio = (r.TxPPS - r.RateAskedPPS) / r.RateAskedPPS
	}
}

// RatesOf divides counts by a time.
func RatesOf(c *Counts, elapsedNS int64) Rates {
	if elapsedNS <= 0 {
		return Rates{}
	}
	s := float64(elapsedNS) / 1e9
	l1 := func(bytes, frames uint64) float64 { return float64(bytes+frames*results.L1OverheadBytes) * 8 / s }
	return Rates{
		TxPPS: float64(c.Sent) / s, TxL2BPS: float64(c.SentBytes) * 8 / s, TxL1BPS: l1(c.SentBytes, c.Sent),
		RxPPS: float64(c.Received) / s, RxL2BPS: float64(c.RecvBytes) * 8 / s, RxL1BPS: l1(c.RecvBytes, c.Received),
	}
}

// echo repeats the plan's Config in the words of the command line, defaults
// filled in.
func (p *Plan) echo() ConfigEcho {
	c := &p.Config
	echo := ConfigEcho{
		TX: c.TX, RX: c.RX, Rate: c.Rate.String(), Count: c.Count, DurationNS: int64(c.Duration), Size: c.Size.String(),
		Proto: c.Proto.String(), Src: c.Src.String(), Dst: c.Dst.String(), SPort: c.SPort.String(), DPort: c.DPort.String(),
		SMAC: c.SMAC.String(), DMAC: c.DMAC.String(), VLAN: c.VLAN.String(), FlowLabel: c.FlowLabel.String(), TTL: c.TTL,
		Flows: p.Flows, Queues: p.Queues, Burst: c.Burst, Latency: c.Latency.String(), DrainNS: int64(c.Drain),
		OnLate: c.OnLate.String(), Tag: !c.NoTag, Hello: c.Hello,
		Csum: c.Csum.String(), TSOMSS: c.TSO.MSS, TSOPayload: c.TSO.Payload,
	}
	if r := &c.RoCE; c.Proto == RoCEUD {
		echo.QPN, echo.QKey, echo.SrcQPN = r.QPN.String(), hexText(r.QKey), hexText(r.SrcQPN)
		echo.PSN, echo.Payload = hexText(r.PSN), r.Payload
		if r.Imm != nil {
			echo.Imm = hexText(*r.Imm)
		}
	}
	return echo
}

func hexText(v uint32) string { return fmt.Sprintf("%#x", v) }

// macText formats a port's address; all zero is empty.
func macText(m [6]byte) string {
	if m == [6]byte{} {
		return ""
	}
	return net.HardwareAddr(m[:]).String()
}
