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
	if err := c.CheckAsserts(asserts, f.str("floor") != "" || f.is("self-test")); err != nil {
		return err
	}
	if err := checkOutputs(f, &c); err != nil {
		return err
	}
	out, err := a.openOutputs(f)
	if err != nil {
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
		[2]string{"floor", f.str("floor")}, [2]string{"port", traffic.RecordingOf(c.TX)}, [2]string{"rx", traffic.RecordingOf(c.RX)},
		[2]string{"report", f.str("report")}, [2]string{"hdr", f.str("hdr")}, [2]string{"tap", c.Tap})
}

// outputs are the places that results go to.
type outputs struct {
	results     *traffic.Writer
	progress    *traffic.Progress
	report, hdr *traffic.OutputFile
}

// openOutputs tries every file before anything is sent.
func (a *app) openOutputs(f *flags) (*outputs, error) {
	format, err := results.ParseFormat(f.str("output"))
	if err != nil {
		return nil, err
	}
	o := &outputs{results: traffic.NewWriter(a.Out, format), progress: traffic.NewProgress(a.Err, a.ErrTerminal)}
	if path := f.str("report"); path != "" {
		if o.report, err = results.OpenOutput("report", path); err != nil {
			return nil, err
		}
	}
	if path := f.str("hdr"); path != "" {
		if o.hdr, err = results.OpenOutput("hdr", path); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *outputs) write(r *traffic.Report) error {
	err := o.results.Report(r)
	if o.report != nil {
		err = errors.Join(err, o.report.CommitJSON(r))
	}
	if o.hdr != nil {
		err = errors.Join(err, o.hdr.Commit(traffic.HDRLog(r)))
	}
	return err
}

// verdict turns a finished run into an exit code. A signal wins, because its
// counts are of a part of the run; then failure, assertions, the rate.
func verdict(r *traffic.Report, err error, caught *cli.SignalError, strictRate bool) error {
	switch {
	case err != nil:
		return &cli.CodeError{Code: cli.Failed, Err: err}
	case caught != nil:
		return &cli.CodeError{Code: caught.Code()}
	case r.SendFailed > 0:
		return fmt.Errorf("%d packets failed to be sent", r.SendFailed)
	}
	for _, a := range r.Asserts {
		if !a.Pass {
			return &cli.CodeError{Code: cli.AssertFails, Err: fmt.Errorf("assertion failed: %s", results.AssertText(a))}
		}
	}
	if strictRate && r.RateAskedPPS > 0 && (r.RateErrorRatio < -cli.StrictRateRatio || r.Unsent > 0) {
		return &cli.CodeError{Code: cli.RateMissed, Err: fmt.Errorf("rate not reached: asked %.0f pps, got %.0f pps, %d unsent", r.RateAskedPPS, r.TxPPS, r.Unsent)}
	}
	return nil
}
