package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

func (a *app) selfTestCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "self-test",
		Short: "measure what this host's pacing and timestamping take by themselves",
		Long: `self-test sends through the process's own switch and tells the gap error and the latency that this host has
without any network, the resolution of its clock and which clock that is. tx --floor FILE then says which of its
results are not above that.`,
		Example: `  pktgen self-test
  pktgen self-test -o json > floor.json && pktgen tx packet:eth1 --rx packet:eth2 -r 200kpps -d 10s --floor floor.json`,
		Args: cobra.NoArgs,
	}
	duration := c.Flags().StringP("duration", "d", "1s", "how long to send")
	output := c.Flags().StringP("output", "o", "text", "result on stdout: text or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.selfTestAndTell(c.Context(), *duration, *output)
	}
	return c
}

func (a *app) selfTestAndTell(ctx context.Context, duration, output string) error {
	d, err := results.ParseDuration("duration", duration)
	if err != nil {
		return err
	}
	format, err := results.ParseFormat(output)
	if err != nil {
		return err
	}
	if format != results.Text && format != results.JSON {
		return results.Usage("output", output, "a floor is one record; use text or json")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	signals := a.signals(ctx)
	defer signals.Stop()
	floor, err := a.selfTest(signals, d)
	if caught := signals.Caught(); caught != nil {
		return &cli.CodeError{Code: caught.Code()}
	}
	if err != nil {
		return err
	}
	if format == results.Text {
		_, err = fmt.Fprint(a.Out, traffic.FloorText(floor))
		return err
	}
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	return enc.Encode(floor)
}

// floor is what tx compares its results with: read from --floor, measured for
// --self-test, or nil.
func (a *app) floor(ctx context.Context, f *flags) (*traffic.Floor, error) {
	path := f.Of("floor")
	switch {
	case path != "" && f.is("self-test"):
		return nil, results.Usage("floor", path, "is read or measured; use --floor or --self-test, not both")
	case path != "":
		return traffic.ReadFloor(path)
	case !f.is("self-test"):
		return nil, nil
	}
	floor, err := a.selfTest(ctx, 0)
	if errors.Is(err, context.Canceled) {
		return nil, nil // the run ends at once too, and says so
	}
	return floor, err
}
