package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

func (a *app) probeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "probe PORT",
		Short: "tell whether a port can be opened and what it is; exit 0 or 2",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := a.probe(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.Out).Encode(p.Port)
			}
			_, err = fmt.Fprint(a.Out, traffic.PortText(p))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return c
}
