package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

// measure is tx and rx: read the flags, check everything that can be checked
// before the first frame, run, write results, judge.
func (a *app) measure(ctx context.Context, f *flags, tx, rx string) error {
	if ctx == nil {
		ctx = context.Background()
	}
	signals := a.signals(ctx) // before any file is tried: a signal leaves a report, and nothing else behind
	defer signals.Stop()

	c, err := f.config(a.seed)
	if err != nil {
		return err
	}
	c.TX = tx
	if rx != "" {
		c.RX = rx
	}
	asserts, err := parseAsserts(f.asserts)
	if err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	if err := c.CheckAsserts(asserts, f.Of("floor") != "" || f.is("self-test")); err != nil {
		return err
	}
	if err := checkOutputs(f, &c); err != nil {
		return err
	}
	out, err := a.openOutputs(f)
	if err != nil {
		return err
	}
	if err := c.CheckHDR(f.Of("hdr")); err != nil {
		return err
	}
	for _, port := range []string{c.TX, c.RX} {
		if err := traffic.CheckPort(port, c.AllowMgmt); err != nil {
			return err
		}
	}
	a.hook(&c, out)
	floor, err := a.floor(signals, f)
	if err != nil {
		return err
	}
	report, err := a.run(signals, c)
	out.progress.End()
	if report == nil { // nothing was sent
		return &cli.CodeError{Code: cli.Usage, Err: err}
	}
	if floor != nil {
		floor.Stamp(report)
	}
	for _, as := range asserts {
		report.Asserts = append(report.Asserts, as.Check(report))
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	err = errors.Join(err, out.write(report))
	return verdict(report, err, signals.Caught(), f.is("strict-rate"))
}

func parseAsserts(list []string) (out []traffic.Assert, err error) {
	for _, s := range list {
		a, err := traffic.ParseAssert(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// hook lets the run tell about itself: the plan and progress on stderr, interval
// records on stdout.
func (a *app) hook(c *traffic.Config, out *outputs) {
	c.Log = slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c.OnPlan = func(p *traffic.Plan) { fmt.Fprint(a.Err, traffic.PlanText(p)) }
	c.OnInterval = func(i *traffic.Interval) {
		out.progress.Show(i)
		out.results.Interval(i)
	}
}

// checkOutputs refuses files that are written twice, or written while they are
// read.
func checkOutputs(f *flags, c *traffic.Config) error {
	return results.CheckOutputs(
		[2]string{"floor", f.Of("floor")}, [2]string{"port", traffic.RecordingOf(c.TX)}, [2]string{"rx", traffic.RecordingOf(c.RX)},
		[2]string{"report", f.Of("report")}, [2]string{"hdr", f.Of("hdr")}, [2]string{"tap", c.Tap})
}

// outputs are the places that results go to.
type outputs struct {
	results  *traffic.Writer
	progress *traffic.Progress
	files    results.Outputs
}

// openOutputs tries every file before anything is sent.
func (a *app) openOutputs(f *flags) (*outputs, error) {
	format, err := results.ParseFormat(f.Of("output"))
	if err != nil {
		return nil, err
	}
	o := &outputs{results: traffic.NewWriter(a.Out, format), progress: traffic.NewProgress(a.Err, a.ErrTerminal)}
	o.files, err = results.OpenOutputs(f.Of("report"), f.Of("hdr"))
	return o, err
}

func (o *outputs) write(r *traffic.Report) error {
	return errors.Join(o.results.Report(r), o.files.Commit(r, func() []byte { return traffic.HDRLog(r) }))
}

// verdict turns a finished run into an exit code.
func verdict(r *traffic.Report, err error, caught *cli.SignalError, strictRate bool) error {
	if err == nil && caught == nil && r.SendFailed > 0 {
		err = fmt.Errorf("%d packets failed to be sent", r.SendFailed)
	}
	var missed error
	if strictRate && r.RateAskedPPS > 0 && (r.RateErrorRatio < -cli.StrictRateRatio || r.Unsent > 0) {
		missed = fmt.Errorf("rate not reached: asked %.0f pps, got %.0f pps, %d unsent", r.RateAskedPPS, r.TxPPS, r.Unsent)
	}
	return cli.Verdict(err, caught, r.Asserts, missed)
}
