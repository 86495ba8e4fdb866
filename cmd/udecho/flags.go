package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/udecho/echo"
	"github.com/bluering/bluering/ud/exchange"
)

// flagSpec is one row of the table of flags: on names the commands that have it.
type flagSpec struct{ on, name, short, value, usage string }

const (
	clients = "ping bw scan"
	all     = clients + " serve"
)

var flagTable = []flagSpec{
	{"serve", "listen", "", ":18515", "where clients of the exchange come, HOST:PORT"},
	{all, "exchange", "", "native", "what the two ends speak to meet: native, pingpong or perftest"},
	{all, "gid-index", "", "0", "own address: an index of the device's GIDs"},
	{all, "qkey", "", "0x11111111", "Q_Key that datagrams to this end carry; both ends have the same"},
	{clients, "size", "s", "64", "payload bytes, 0 to the path MTU"},
	{clients, "count", "n", "0", "datagrams in all; 0: no limit with a duration, else 1000 (bw 1,000,000)"},
	{"serve", "count", "n", "0", "clients to serve in all; 0: no limit"},
	{all, "duration", "d", "0", "10s, 2m; a bare number is seconds; 0: no limit"},
	{clients, "rate", "r", "", "datagrams a second, such as 100kpps, or max (default max; of scan 10kpps); of ping and scan only with --exchange native"},
	{clients, "timeout", "", "500ms", "a datagram without an answer for so long is lost"},
	{all, "inline", "", "0", "datagrams up to so many bytes travel in the request itself"},
	{all, "signal-every", "", "0", "ask for a completion of every so many sends; 0: chosen"},
	{all, "depth", "", "1024", "sends and receives that are posted"},
	{"ping bw", "port", "", "", "UDP source port, which chooses the path; udp: is to be opened with ?ports=1 for one"},
	{"scan", "ports", "", "paths:16", "UDP source ports: 49152-49167, a list, or paths:N from 49152 on; udp: is to be opened with ?ports=N for them"},
	{"serve", "mode", "", "echo", "what clients of pingpong and perftest get: echo or sink"},
	{"serve", "limit", "", "2m", "datagrams a second that each client is answered"},
	{"serve", "clients", "", "256", "clients at a time"},
	{"serve", "clients-per-source", "", "0", "of them, from one IPv4 address or IPv6 /64, loopback too; 0: a quarter of --clients, at least 1"},
	{"serve", "idle", "", "60s", "a client that is silent for so long is forgotten; one that keeps its connection, when another wants its place; then one that keeps none, after 1s"},
	{clients, "interval", "i", "1s", "time between progress records; 0: none"},
	{all, "output", "o", "text", "results on stdout: text, json, jsonl, csv or none"},
	{all, "report", "", "", "write the JSON report to this file, whole or not at all"},
	{clients, "hdr", "", "", "write the round trips' histogram to this file (HdrHistogram log)"},
}

// flags holds a command's flags by name.
type flags struct {
	*cli.Texts
	command string
	event   bool
	srq     bool
	strict  bool
	asserts []string
}

func addFlags(c *cobra.Command, command string) *flags {
	f := &flags{Texts: cli.NewTexts(c), command: command}
	for _, s := range flagTable {
		if strings.Contains(" "+s.on+" ", " "+command+" ") {
			f.Add(s.name, s.short, s.value, s.usage)
		}
	}
	c.Flags().BoolVar(&f.event, "event", false, "sleep while there is nothing to do, in place of looking all the time")
	c.Flags().BoolVar(&f.srq, "srq", false, "receive through a shared receive queue")
	c.Flags().StringArrayVar(&f.asserts, "assert", nil, "fail (exit 3) unless it holds: loss==0, p99<20us (full round trip), half_rtt_ns.p99<10us, any number of the report; repeatable")
	if command != "serve" {
		c.Flags().BoolVar(&f.strict, "strict-rate", false, "fail (exit 4) when the rate asked was missed by more than 0.1%")
	}
	c.Flags().SortFlags = false
	return f
}

// config reads all flags; the first wrong one is the error.
func (f *flags) config(args []string) (c echo.Config, err error) {
	c.Device, c.Event, c.SRQ = args[0], f.event, f.srq
	if len(args) > 1 {
		c.Server = args[1]
	}
	if err := f.Each(func(name, text string) error { return setField(&c, name, text) }); err != nil {
		return c, err
	}
	if f.command == "scan" && f.Of("rate") == "" {
		c.Rate, _ = results.ParseRate("10kpps")
	}
	if f.command != "serve" && c.Count == 0 && c.Duration == 0 {
		c.Count = map[string]uint64{"bw": 1_000_000}[f.command]
		if c.Count == 0 {
			c.Count = 1000
		}
	}
	if f.command == "serve" {
		c.OnSession = func(text string) { fmt.Fprintln(os.Stderr, text) }
		c.OnReady = func(a net.Addr) { fmt.Fprintln(os.Stderr, "listening on", a) }
	}
	return c, nil
}

// setField parses one flag's text into its field.
func setField(c *echo.Config, name, s string) (err error) {
	switch name {
	case "listen":
		c.Listen = s
	case "exchange":
		c.Exchange = s
	case "gid-index":
		c.GIDIndex, err = results.ParseInt(name, s, 0, 255)
	case "qkey":
		var n uint64
		if n, err = strconv.ParseUint(s, 0, 32); err != nil || n == 0 { // in a Config 0 means the default
			err = results.Usage(name, s, "not a Q_Key; use a number of 32 bits but 0, such as 0x11111111")
		}
		c.QKey = uint32(n)
	case "size":
		c.Size, err = results.ParseInt(name, s, 0, echo.MaxSize)
	case "count":
		c.Count, err = results.ParseCount(name, s, 1<<62)
	case "duration":
		c.Duration, err = results.ParseDuration(name, s)
	case "rate":
		c.Rate, err = results.ParsePPS(s)
	case "timeout":
		c.Timeout, err = someTime(name, s)
	case "inline":
		c.Inline, err = results.ParseInt(name, s, 0, echo.MaxSize)
	case "signal-every":
		c.SignalEvery, err = results.ParseInt(name, s, 0, echo.MaxDepth)
	case "depth":
		c.Depth, err = results.ParseInt(name, s, 2, echo.MaxDepth)
	case "port", "ports":
		c.Ports, err = echo.ParsePorts(name, s)
	case "mode":
		switch s {
		case "echo":
		case "sink":
			c.Mode = exchange.ModeSink
		default:
			err = results.Usage(name, s, "not a mode; use echo or sink")
		}
	case "limit":
		var n int
		n, err = results.ParseInt(name, s, 1, 1e9)
		c.Limit = uint64(n)
	case "clients":
		c.MaxClients, err = results.ParseInt(name, s, 1, echo.MaxClients)
	case "clients-per-source":
		c.MaxOfSource, err = results.ParseInt(name, s, 0, echo.MaxClients)
	case "idle":
		c.Idle, err = someTime(name, s)
	case "interval":
		c.Interval, err = results.ParseDuration(name, s)
	}
	return err
}

// someTime is a duration that is not 0, which means the default in a Config.
func someTime(name, s string) (time.Duration, error) {
	d, err := results.ParseDuration(name, s)
	if err == nil && d == 0 {
		err = results.Usage(name, s, "is no time; use 10s, 500ms or a number of seconds, from 1ns up")
	}
	return d, err
}
