package main

import "github.com/spf13/cobra"

func (a *app) rxCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rx PORT",
		Short: "count and measure what arrives, with the --run token that a sender printed",
		Args:  cobra.ExactArgs(1),
	}
	f := addFlags(c, onRX)
	c.RunE = func(c *cobra.Command, args []string) error { return a.measure(c.Context(), f, "", args[0]) }
	return c
}
