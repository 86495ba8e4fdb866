package echo

import (
	"context"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/ud/exchange"
)

// pathRun is one path's part of a running scan.
type pathRun struct {
	sent, unique uint64
	rtt          *latency.Recorder
}

// Scan sends a probe stream from each of the ports, in turn, at a rate of all
// together. Where paths differ by what switches make of the source port, the
// report shows it.
func Scan(ctx context.Context, c Config) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	switch {
	case len(c.Ports) == 0:
		return nil, results.Usage("ports", "", "is missing; use 49152-49167 or paths:16")
	case c.foreign():
		return nil, results.Usage("exchange", c.Exchange, "has "+lockstep+"; use native")
	case !c.paced():
		return nil, results.Usage("rate", "max", "is no rate for probes; use 10kpps")
	}
	x, err := connect(ctx, "scan", &c, exchange.ModeEcho)
	if err != nil {
		return nil, err
	}
	if err := x.begin(); err != nil {
		return x.finish(err)
	}
	x.r.LossKnown = true
	paths := make([]pathRun, len(c.Ports))
	for i := range paths {
		paths[i].rtt = latency.New(latency.Options{MaxNS: 1e10, Digits: 2})
	}
	err = x.scheduled(paths)
	for i := range paths {
		p := &paths[i]
		rtt := p.rtt.Swap()
		x.r.Paths = append(x.r.Paths, Path{SourcePort: c.Ports[i], Sent: p.sent, Unique: p.unique, Lost: p.sent - p.unique, RTT: results.Summarize(&rtt)})
	}
	return x.finish(err)
}
