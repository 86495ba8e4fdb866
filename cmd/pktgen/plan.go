package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

func (a *app) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan PORT [--rx PORT]",
		Short: "show what tx would send, and send nothing",
		Args:  cobra.ExactArgs(1),
	}
	f := addFlags(c, onPlan)
	c.RunE = func(_ *cobra.Command, args []string) error { return a.plan(f, args[0]) }
	return c
}

func (a *app) plan(f *flags, port string) error {
	c, err := f.config(a.seed)
	if err != nil {
		return err
	}
	format, err := results.ParseFormat(f.Of("output"))
	if err != nil {
		return err
	}
	c.TX = port
	p, err := a.makePlan(c)
	if err != nil {
		return err
	}
	switch format {
	case results.None:
		return nil
	case results.Text:
		text, err := p.Show()
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(a.Out, text)
		return err
	case results.CSV:
		return results.Usage("output", "csv", "a plan has no rows; use text, json or jsonl")
	}
	record, err := p.Record()
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a.Out)
	if format == results.JSON {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(record)
}

// makePlan looks the ports up without sending.
func (a *app) makePlan(c traffic.Config) (*traffic.Plan, error) {
	if err := traffic.CheckPort(c.TX, c.AllowMgmt); err != nil {
		return nil, err
	}
	tx, err := a.facts(c.TX)
	if err != nil {
		return nil, err
	}
	var rx *traffic.PortFacts
	if c.RX != "" {
		if rx, err = a.facts(c.RX); err != nil {
			return nil, err
		}
	}
	return traffic.NewPlan(c, tx, rx)
}
