// Command udecho measures UD datagrams against any peer: itself,
// ibv_ud_pingpong, perftest. It is a thin shell over package echo.
//
//	udecho serve udp:192.0.2.1
//	udecho ping udp:192.0.2.2 192.0.2.1 -n 100000 --assert loss==0
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/udecho/echo"
)

func main() { os.Exit(execute(cli.Standard(), os.Args[1:])) }

func execute(s cli.Streams, args []string) int {
	root := &cobra.Command{
		Use:   "udecho",
		Short: "measure RDMA UD datagrams against any peer",
		Long: `udecho measures RDMA UD datagrams against any peer.

A DEVICE is a device string: udp:192.0.2.1 (no privilege), packet:eth0, xdp:eth0. The two ends meet over TCP, port 18515:
with --exchange native a udecho, with pingpong ibv_ud_pingpong -g INDEX, with perftest ib_send_lat or ib_send_bw -c UD.
Exit codes: 0 done, 1 failed, 2 bad request or no permission (nothing was sent),
3 an assertion failed, 4 rate not reached (--strict-rate), 130 and 143 a signal (the report is complete).`,
		Version: results.Version(),
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(
		command(s, "serve", "serve DEVICE", "answer datagrams, or count them", 1, echo.Serve),
		command(s, "ping", "ping DEVICE HOST[:PORT]", "one datagram after another, or at a rate, and account for every one", 2, echo.Ping),
		command(s, "bw", "bw DEVICE HOST[:PORT]", "as many datagrams as go, or at a rate, to a peer that counts them", 2, echo.BW),
		command(s, "scan", "scan DEVICE HOST[:PORT]", "a probe stream for each UDP source port: latency and loss by path", 2, echo.Scan),
	)
	return cli.Execute(root, args, s)
}

// kind is what a command runs.
type kind func(context.Context, echo.Config) (*echo.Report, error)

func command(s cli.Streams, name, use, short string, args int, run kind) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args)}
	f := addFlags(c, name)
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		return measure(ctx, s, f, args, run)
	}
	return c
}

// measure reads the flags, checks everything that can be checked before the
// first datagram, runs, writes results, judges.
func measure(ctx context.Context, s cli.Streams, f *flags, args []string, run kind) error {
	signals := cli.CatchSignalsBesideSockets(ctx)
	defer signals.Stop()
	c, err := f.config(args)
	if err != nil {
		return err
	}
	var asserts []results.Assert
	for _, text := range f.asserts {
		a, err := echo.ParseAssert(text)
		if err != nil {
			return err
		}
		asserts = append(asserts, a)
	}
	out, err := openOutputs(s, f)
	if err != nil {
		return err
	}
	out.hook(&c)
	report, err := run(signals, c)
	out.end()
	var usage *results.UsageError
	if report == nil && signals.Caught() != nil && !errors.As(err, &usage) {
		return &cli.CodeError{Code: signals.Caught().Code(), Err: fmt.Errorf("%w; nothing was sent", signals.Caught())}
	}
	if report == nil {
		return err
	}
	for _, a := range asserts {
		report.Judge(a)
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	err = errors.Join(err, out.write(report))
	return verdict(report, err, signals.Caught(), f.strict)
}

// outputs are the places that results go to.
type outputs struct {
	s       cli.Streams
	results echo.Writer
	files   results.Outputs
	rows    int
}

func openOutputs(s cli.Streams, f *flags) (*outputs, error) {
	format, err := results.ParseFormat(f.Of("output"))
	if err != nil {
		return nil, err
	}
	o := &outputs{s: s, results: echo.Writer{W: s.Out, Format: format}}
	if err = results.CheckOutputs([2]string{"report", f.Of("report")}, [2]string{"hdr", f.Of("hdr")}); err != nil {
		return nil, err
	}
	o.files, err = results.OpenOutputs(f.Of("report"), f.Of("hdr"))
	return o, err
}

// hook lets a run tell about itself on stderr.
func (o *outputs) hook(c *echo.Config) {
	c.OnInterval = func(i *echo.Interval) {
		_ = o.results.Interval(i) // the report's error is told
		o.rows++
		if o.s.ErrTerminal {
			fmt.Fprintf(o.s.Err, "\r%s\x1b[K", i.Text())
			return
		}
		fmt.Fprintln(o.s.Err, i.Text())
	}
}

// end closes a line that refreshes.
func (o *outputs) end() {
	if o.s.ErrTerminal && o.rows > 0 {
		fmt.Fprintln(o.s.Err)
	}
}

func (o *outputs) write(r *echo.Report) error {
	return errors.Join(o.results.Report(r), o.files.Commit(r, r.HDRLog))
}

// verdict turns a finished run into an exit code.
func verdict(r *echo.Report, err error, caught *cli.SignalError, strict bool) error {
	var missed error
	if strict && r.RateAskedPPS > 0 && r.RateErrorRatio < -cli.StrictRateRatio {
		missed = fmt.Errorf("rate not reached: asked %.0f pps, got %.0f pps", r.RateAskedPPS, r.TxPPS)
	}
	return cli.Verdict(err, caught, r.Asserts, missed)
}
