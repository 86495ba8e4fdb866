package main

import (
	"math"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

// flagSpec is one row of the table of flags. All flags of all commands are in
// it, so that a short name cannot mean two things.
type flagSpec struct {
	name, short, value, usage string
	on                        commandSet
	boolean                   bool
	repeat                    bool
}

type commandSet uint8

const (
	onTX commandSet = 1 << iota
	onRX
	onPlan

	onRun  = onTX | onRX
	onSend = onTX | onPlan
	onAll  = onTX | onRX | onPlan
)

var flagTable = []flagSpec{
	{name: "rx", value: "", usage: "port that receives what is sent", on: onSend},
	{name: "rate", short: "r", value: "max", usage: "10mpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max", on: onSend},
	{name: "count", short: "n", value: "0", usage: "frames in all, exactly; 0: no limit", on: onAll},
	{name: "duration", short: "d", value: "0", usage: "10s, 2m; a bare number is seconds; 0: no limit", on: onAll},
	{name: "size", short: "s", usage: "frame bytes with FCS: 64, 64-1518, 64,128,256 or imix (28x64, 16x594, 4x1518); :rand for a random order; roce-ud has 86, 90, ... (IPv6: 106, ...), of a range those (default 64, or the least that fits)", on: onSend},
	{name: "proto", value: "udp", usage: "udp, tcp or roce-ud (RDMA datagrams for --qpn); IPv6 when the addresses are", on: onSend},
	{name: "src", usage: "source address: value, a-b, prefix, a,b,c; with :inc, :dec or :rand (default the port's own or 198.18.0.1)", on: onSend},
	{name: "dst", usage: "destination address, as --src (default the --rx port's or 198.18.0.2)", on: onSend},
	{name: "sport", usage: "source port, as --src (default 1024, roce-ud: 49152; with --flows one for each)", on: onSend},
	{name: "dport", usage: "destination port, as --src (default 9; roce-ud: 4791)", on: onSend},
	{name: "smac", usage: "source MAC, as --src (default the port's own)", on: onSend},
	{name: "dmac", usage: "destination MAC, as --src (default the --rx port's, else from the neighbour table)", on: onSend},
	{name: "vlan", usage: "VLAN id, as --src (default untagged)", on: onSend},
	{name: "flow-label", usage: "IPv6 flow label, as --src", on: onSend},
	{name: "qpn", usage: "roce-ud: queue pair that the datagrams are for, or several, as --src", on: onSend},
	{name: "qkey", value: "0x11111111", usage: "roce-ud: its Q_Key", on: onSend},
	{name: "src-qpn", value: "0x11", usage: "roce-ud: queue pair that they come from; of each further queue the next", on: onSend},
	{name: "psn", value: "0", usage: "roce-ud: sequence number of each queue's first packet", on: onSend},
	{name: "imm", usage: "roce-ud: immediate data, 32 bits", on: onSend},
	{name: "ttl", value: "1", usage: "TTL or hop limit", on: onSend},
	{name: "flows", value: "0", usage: "flows, each with a tuple of its own; 0: one for each queue", on: onSend},
	{name: "seed", usage: "seed of every random choice (default a new one, printed)", on: onAll},
	{name: "csum", value: "software", usage: "who makes the checksums: software, or offload (the device)", on: onSend},
	{name: "tso", usage: "MSS: send payloads that the device cuts into frames of so many payload bytes; counts are of frames", on: onSend},
	{name: "payload", usage: "bytes of a payload that --tso cuts (default 64k, which is 64000), or of a roce-ud datagram, in place of --size", on: onSend},
	{name: "queues", short: "q", value: "1", usage: "send queues that share one schedule", on: onSend},
	{name: "burst", value: "0", usage: "frames for each doorbell at most; 0: chosen; to catch up, several ring at once", on: onSend},
	{name: "latency", value: "all", usage: "all, sample:N (every N-th packet of a flow) or off", on: onAll},
	{name: "drain", value: "100ms", usage: "wait for late frames after the last one sent, at most 60s", on: onSend},
	{name: "on-late", value: "burst", usage: "missed departures: burst (catch up by 64, whatever --burst says, then slip), skip (catch up by 64, leave out the rest) or slip", on: onSend},
	{name: "no-tag", usage: "frames carry no tag: counts only; to send, smaller ones", on: onAll, boolean: true},
	{name: "run", usage: "run token that tx and a separate rx share (tx prints it)", on: onAll},
	{name: "hello", usage: "add marked frames before and after the run, the last with totals", on: onSend, boolean: true},
	{name: "interval", short: "i", value: "1s", usage: "time between progress records; 0: none", on: onRun},
	{name: "output", short: "o", value: "text", usage: "results on stdout: text, json, jsonl, csv or none", on: onAll},
	{name: "report", usage: "write the JSON report to this file, whole or not at all", on: onRun},
	{name: "hdr", usage: "write the latency histogram to this file (HdrHistogram log)", on: onRun},
	{name: "assert", usage: "fail (exit 3) unless it holds: loss==0, p99.9<20us, rate_err<0.5%, any number of the report; repeatable", on: onRun, repeat: true},
	{name: "strict-rate", usage: "fail (exit 4) when the rate asked was missed by more than 0.1%", on: onTX, boolean: true},
	{name: "floor", usage: "note which results are not above this host's own, as self-test -o json wrote it in this file", on: onTX},
	{name: "self-test", usage: "the same, measured for a second before the run", on: onTX, boolean: true},
	{name: "tap", usage: "record what passes the receiving port (without one, the sending port) in this pcapng file", on: onRun},
	{name: "allow-mgmt", usage: "permit the interface of the default route", on: onAll, boolean: true},
	{name: "yes-public", usage: "permit public destinations", on: onSend, boolean: true},
}

// flags holds a command's flags by name.
type flags struct {
	*cli.Texts
	truth   map[string]*bool
	asserts []string
}

func addFlags(c *cobra.Command, on commandSet) *flags {
	f := &flags{Texts: cli.NewTexts(c), truth: map[string]*bool{}}
	for _, s := range flagTable {
		if s.on&on == 0 {
			continue
		}
		switch {
		case s.boolean:
			f.truth[s.name] = c.Flags().BoolP(s.name, s.short, false, s.usage)
		case s.repeat:
			c.Flags().StringArrayVarP(&f.asserts, s.name, s.short, nil, s.usage)
		default:
			f.Add(s.name, s.short, s.value, s.usage)
		}
	}
	c.Flags().SortFlags = false
	return f
}

func (f *flags) is(name string) bool {
	p := f.truth[name]
	return p != nil && *p
}

// config reads all flags; the first wrong one is the error.
func (f *flags) config(newSeed func() uint64) (c traffic.Config, err error) {
	c.RX, c.Run, c.Tap = f.Of("rx"), f.Of("run"), f.Of("tap")
	c.NoTag, c.Hello, c.AllowMgmt, c.YesPublic = f.is("no-tag"), f.is("hello"), f.is("allow-mgmt"), f.is("yes-public")
	if err := f.Each(func(name, text string) error { return setField(&c, name, text) }); err != nil {
		return c, err
	}
	if c.Proto == traffic.RoCEUD && f.Of("payload") != "" && f.Given("size") {
		return c, results.Usage("size", f.Of("size"), "follows from --payload; leave one of them out")
	}
	for _, name := range []string{"qkey", "src-qpn", "psn", "imm"} {
		if c.Proto != traffic.RoCEUD && f.Given(name) {
			return c, results.Usage(name, f.Of(name), "is of RoCE v2 datagrams; use --proto roce-ud")
		}
	}
	if f.Of("tso") != "" && f.Given("size") {
		return c, results.Usage("size", f.Of("size"), "the sizes follow from --tso and --payload; leave --size out")
	}
	if c.NoTag && f.Given("latency") && c.Latency.EveryN != 0 {
		return c, results.Usage("latency", f.Of("latency"), "is read from the tag; use it without --no-tag")
	}
	if f.Of("seed") == "" {
		c.Seed = newSeed()
	}
	return c, nil
}

// setField parses one flag's text into its field.
func setField(c *traffic.Config, name, s string) (err error) {
	switch name {
	case "rate":
		c.Rate, err = results.ParseRate(s)
	case "count":
		c.Count, err = results.ParseCount(name, s, 1<<62)
	case "duration":
		c.Duration, err = results.ParseDuration(name, s)
	case "size":
		c.Size, err = traffic.ParseSize(s)
	case "proto":
		c.Proto, err = traffic.ParseProto(s)
	case "src":
		c.Src, err = traffic.ParseAddrs(name, s)
	case "dst":
		c.Dst, err = traffic.ParseAddrs(name, s)
	case "sport":
		c.SPort, err = traffic.ParsePorts(name, s)
	case "dport":
		c.DPort, err = traffic.ParsePorts(name, s)
	case "smac":
		c.SMAC, err = traffic.ParseMACs(name, s)
	case "dmac":
		c.DMAC, err = traffic.ParseMACs(name, s)
	case "vlan":
		c.VLAN, err = traffic.ParseVLANs(name, s)
	case "flow-label":
		c.FlowLabel, err = traffic.ParseFlowLabels(name, s)
	case "ttl":
		c.TTL, err = results.ParseInt(name, s, 1, 255)
	case "csum":
		c.Csum, err = traffic.ParseCsum(s)
	case "tso":
		c.TSO.MSS, err = results.ParseInt(name, s, traffic.MinPiece(c), 1<<16-1) // the table has what that depends on before this
	case "payload":
		if c.Proto == traffic.RoCEUD {
			c.RoCE.Payload, err = results.ParseInt(name, s, 1, traffic.MaxDatagram)
			break
		}
		c.TSO.Payload, err = results.ParseInt(name, s, traffic.MinPiece(c), traffic.MaxPayload)
	case "flows":
		c.Flows, err = results.ParseInt(name, s, 0, traffic.MaxFlows)
	case "queues":
		c.Queues, err = results.ParseInt(name, s, 1, traffic.MaxQueues)
	case "burst":
		c.Burst, err = results.ParseInt(name, s, 0, traffic.MaxBurst)
	case "seed":
		c.Seed, err = results.ParseSeed(s)
	case "latency":
		c.Latency, err = traffic.ParseLatency(s)
	case "drain":
		c.Drain, err = results.ParseDuration(name, s)
	case "interval":
		c.Interval, err = results.ParseDuration(name, s)
	case "on-late":
		c.OnLate, err = traffic.ParseOnLate(s)
	default:
		err = setDatagramField(&c.RoCE, name, s)
	}
	return err
}

// setDatagramField is setField for what only RoCE v2 datagrams have.
func setDatagramField(r *traffic.RoCE, name, s string) (err error) {
	switch name {
	case "qpn":
		r.QPN, err = traffic.ParseQPNs(name, s)
	case "qkey":
		r.QKey, err = results.ParseID(name, s, math.MaxUint32)
	case "src-qpn":
		r.SrcQPN, err = results.ParseID(name, s, traffic.MaxQPN)
	case "psn":
		r.PSN, err = results.ParseID(name, s, traffic.MaxPSN)
	case "imm":
		r.Imm = new(uint32)
		*r.Imm, err = results.ParseID(name, s, math.MaxUint32)
	}
	return err
}

func randomSeed() uint64 { return rand.Uint64() >> 32 } // short enough to type
