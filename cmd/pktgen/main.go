// Command pktgen offers an exact load of packets on a port and tells what
// became of each: sent, lost, duplicated, reordered, late, and its latency.
// It is a thin shell over package traffic.
//
//	pktgen tx loop: --rx loop: -n 1000000 -r 10mpps --assert loss==0
package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

func main() { os.Exit(realApp(cli.Standard()).execute(os.Args[1:])) }

// app is the command with what it needs of the world.
type app struct {
	cli.Streams
	run      func(context.Context, traffic.Config) (*traffic.Report, error)
	probe    func(uri string) (*traffic.PortFacts, error) // opens the port
	facts    func(uri string) (*traffic.PortFacts, error) // opens no interface
	list     func() ([]traffic.ListedPort, error)
	selfTest func(context.Context, time.Duration) (*traffic.Floor, error)
	signals  func(context.Context) *cli.Signals
	seed     func() uint64 // when none is given
}

func realApp(s cli.Streams) *app {
	return &app{Streams: s, run: traffic.Run, probe: traffic.Probe, facts: traffic.Facts, list: traffic.List, selfTest: traffic.SelfTest, signals: cli.CatchSignals, seed: randomSeed}
}

func (a *app) execute(args []string) int { return cli.Execute(a.root(), args, a.Streams) }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pktgen",
		Short: "send packets at an exact rate and account for every one",
		Long: `pktgen sends packets at an exact rate and accounts for every one.

A PORT is a device string: loop: (in this process, no privilege), packet:eth0, xdp:eth0, pcap:file.
Exit codes: 0 done, 1 failed, 2 bad request or no permission (nothing was sent),
3 an assertion failed, 4 rate not reached (--strict-rate), 130 and 143 a signal (the report is complete).`,
		Version: results.Version(),
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.AddCommand(a.listCommand(), a.probeCommand(), a.planCommand(), a.txCommand(), a.rxCommand(), a.selfTestCommand())
	return root
}
