package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

func (a *app) listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "list the ports of this machine",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ports, err := a.list()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.Out).Encode(ports)
			}
			_, err = fmt.Fprint(a.Out, traffic.ListText(ports))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON array")
	return c
}
