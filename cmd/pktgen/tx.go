package main

import "github.com/spf13/cobra"

func (a *app) txCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tx PORT [--rx PORT]",
		Short: "send; with --rx also receive, match and measure",
		Example: `  pktgen tx loop: --rx loop: -n 1000000
  pktgen tx "loop:?speed=10gbps" --rx loop: -r 20% -d 10s --assert loss==0 --report run.json
  pktgen tx packet:eth1 --rx packet:eth2 -r 200kpps -s imix --flows 1k
  pktgen tx udp:192.0.2.1 --dst 192.0.2.2 --proto roce-ud --qpn 0x11 --payload 64 -r 10kpps -d 10s`,
		Args: cobra.ExactArgs(1),
	}
	f := addFlags(c, onTX)
	c.RunE = func(c *cobra.Command, args []string) error { return a.measure(c.Context(), f, args[0], "") }
	return c
}
