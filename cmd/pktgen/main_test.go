package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

// world is an app whose runs are made up: plans are real, nothing is sent.
type world struct {
	app
	out, err bytes.Buffer
	ran      bool
	spoil    func(*traffic.Report) error // shapes the report of a run
	signal   syscall.Signal              // comes during the run
}

func facts(uri string) (*traffic.PortFacts, error) {
	n := byte(1)
	return &traffic.PortFacts{
		Port:   traffic.Port{URI: uri, Name: "loop:", Kind: "loop", MaxFrame: 1518, SpeedBPS: 10e9},
		HWAddr: [6]byte{2, 0, 0, 0, 0, n}, Addr4: netip.AddrFrom4([4]byte{198, 18, 0, n}), Addr6: netip.MustParseAddr("2001:2::1"),
	}, nil
}

func newWorld() *world {
	w := &world{}
	w.Streams = cli.Streams{Out: &w.out, Err: &w.err}
	w.facts, w.probe, w.list = facts, facts, traffic.List
	w.seed = func() uint64 { return 0x5eed }
	w.signals = cli.CatchSignals
	w.run = func(ctx context.Context, c traffic.Config) (*traffic.Report, error) {
		var rx *traffic.PortFacts
		tx, _ := facts(c.TX)
		if c.RX != "" {
			rx, _ = facts(c.RX)
		}
		p, err := traffic.NewPlan(c, tx, rx)
		if err != nil {
			return nil, err
		}
		w.ran = true
		c.OnPlan(p)
		c.OnInterval(&traffic.Interval{Schema: traffic.Schema, Record: "interval", ElapsedNS: 1e9})
		if w.signal != 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Signal(w.signal)
			}
			if err != nil {
				return nil, err
			}
			<-ctx.Done()
		}
		r := traffic.NewReport(p)
		r.Counts = traffic.Counts{Sent: 10, SentBytes: 640, Received: 10, RecvBytes: 640, Unique: 10}
		r.ElapsedNS = 9000
		if w.spoil != nil {
			err = w.spoil(r)
		}
		r.Finish()
		return r, err
	}
	return w
}

// TestBadRequests: exit code 2, one line that names the thing, the value and
// what would work, nothing on stdout, nothing sent.
func TestBadRequests(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ args, line string }{
		{"tx loop: -r 10", `rate "10": no unit; use a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max`},
		{"tx loop: -r 0", `rate "0": no unit; use a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max`},
		{"tx loop: -r 0pps", `rate "0pps": must be more than 0; use a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max`},
		{"tx loop: -r 150%", `rate "150%": more than the whole link; use a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max`},
		{"tx loop: -r 10furlongs", `rate "10furlongs": unknown unit; use a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max`},
		{"tx loop: -r -5mpps", `rate "-5mpps": must be more than 0; use a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max`},
		{"tx loop: -s 63", `size "63": the smallest Ethernet frame is 64; use bytes with FCS from 64 up: 64, 64-1518, 64,128,256 or imix (28x64, 16x594, 4x1518), :rand for a random order`},
		{"tx loop: -s 1519", `size "1519": loop: takes frames of at most 1518 bytes with FCS (its MTU); use -s 1518 or less, or raise the MTU`},
		{"tx loop: -s big", `size "big": "big" is not a size; use bytes with FCS from 64 up: 64, 64-1518, 64,128,256 or imix (28x64, 16x594, 4x1518), :rand for a random order`},
		{"tx loop: -d -5s", `duration "-5s": is negative; use 10s, 2m, 500ms or a number of seconds, from 0 up`},
		{"tx loop: -d soon", `duration "soon": not a duration; use 10s, 2m, 500ms or a number of seconds, from 0 up`},
		{"tx loop: -n -1", `count "-1": out of range; use a whole number such as 1000, 10k or 2m, at most 4611686018427387904`},
		{"tx loop: --queues 0.5", `queues "0.5": out of range; use 1 to 256`},
		{"tx loop: --queues 0", `queues "0": must be more than 0; use 1 to 256`},
		{"tx loop:a --rx loop:b?drop=1", `rx "loop:b?drop=1": is another loop than loop:a, whose frames stay on it; use --rx loop:a`},
		{"plan loop: --rx loop:b", `rx "loop:b": is another loop than loop:, whose frames stay on it; use --rx loop:`},
		{"tx loop: --tso 0", `tso "0": must be more than 17; use 18 to 65535`},
		{"tx loop: --tso 0 --proto tcp", `tso "0": must be more than 15; use 16 to 65535`},
		{"tx loop: --tso 17", `tso "17": must be more than 17; use 18 to 65535`},
		{"tx loop: --tso 100 --payload 15", `payload "15": must be more than 17; use 18 to 65536`},
		{"tx loop: --no-tag --hello", `hello: marks frames by a tag, and --no-tag leaves tags out; use one of the two`},
		{"tx loop: --ttl 0", `ttl "0": must be more than 0; use 1 to 255`},
		{"tx loop: --flows 10 --src 10.0.0.0/8:rand --sport 7", `flows "10": the fields take only 1 different values; widen --src, --dst, --sport or --dport to at least as many (all of them step together, so their numbers should have no common divisor; one with :rand does not count, its values may repeat)`},
		{"tx loop: --flows 17m", `flows "17m": out of range; use 0 to 16777216`},
		{"tx loop: --dst 8.8.8.8", `dst "8.8.8.8": is a public address; use 198.18.0.0/15, 2001:2::/48 or a private range, or --yes-public if it is yours to load`},
		{"tx loop: --dst example.net", `dst "example.net": "example.net" is not one; use an address, a range a-b, a prefix 198.18.0.0/24, a list, each with :inc, :dec or :rand`},
		{"tx loop: --sport 70000", `sport "70000": "70000" is not one; use 0-65535: a port, a range 1000-2000, a list, each with :inc, :dec or :rand`},
		{"tx loop: --vlan 4095", `vlan "4095": "4095" is not one; use 0-4094: an id, a range 100-200, a list, each with :inc, :dec or :rand`},
		{"tx loop: --dmac nope", `dmac "nope": "nope" is not one; use aa:bb:cc:dd:ee:ff, a range a-b, a list a,b,c, each with :inc, :dec or :rand`},
		{"tx loop: --latency some", `latency "some": not a mode; use all, sample:N (every N-th packet of a flow) or off`},
		{"tx loop: --proto sctp", `proto "sctp": not a protocol; use udp, tcp or roce-ud`},
		{"tx loop: --proto roce-ud", `qpn: RoCE v2 datagrams are for a queue pair; use --qpn N, its number as the receiving program tells it (any, where pktgen itself receives)`},
		{"tx loop: --proto roce-ud --qpn 17 -s 64", `size "64": IPv4/RoCE v2 UD frames with the tag need at least 86 bytes; use -s 86, or --no-tag for counts only`},
		{"tx loop: --proto roce-ud --qpn 17 -s 106 --imm 1 --dst 2001:2::2", `size "106": IPv6/RoCE v2 UD frames with the tag need at least 110 bytes; use -s 110, or --no-tag for counts only`},
		{"tx loop: --proto roce-ud --qpn 17 -s 128", `size "128": RoCE v2 pads datagrams to multiples of 4, so that no frame of them has 128 bytes; use -s 126 or 130, or --payload`},
		{"tx loop: --proto roce-ud --qpn 17 -s 90 --payload 20", `size "90": follows from --payload; leave one of them out`},
		{"tx loop: --proto roce-ud --qpn 17 --payload 15", `payload "15": cannot hold a tag; use 16 or more, or --no-tag for counts only`},
		{"tx loop: --proto roce-ud --qpn 17 --payload 4097", `payload "4097": out of range; use 1 to 4096`},
		{"tx loop: --proto roce-ud --qpn 17 --payload 1449", `size "1522": loop: takes frames of at most 1518 bytes with FCS (its MTU); use -s 1518 or less, or raise the MTU`},
		{"tx loop: --proto roce-ud --qpn 17 --tso 1000", `tso "1000": a RoCE v2 datagram is one frame, and no device cuts it; use --proto udp or tcp, or leave --tso out`},
		{"tx loop: --proto roce-ud --qpn 17 -s 90 --csum offload", `csum "offload": RoCE v2 datagrams have no UDP checksum, and the device would make one; use --csum software`},
		{"tx loop: --proto roce-ud --qpn 17 -s 90 --dport 9", `dport "9": RoCE v2 is UDP port 4791; leave --dport out`},
		{"tx loop: --proto roce-ud --qpn 1-5 -s 90", `qpn "1-5": queue pairs 0 and 1 manage the device; use 2-16777215 (0xffffff names a group): a number, a range, a list, each with :inc, :dec or :rand`},
		{"tx loop: --proto roce-ud --qpn 7,0 -s 90", `qpn "7,0": queue pairs 0 and 1 manage the device; use 2-16777215 (0xffffff names a group): a number, a range, a list, each with :inc, :dec or :rand`},
		{"tx loop: --proto roce-ud --qpn 0x1000000 -s 90", `qpn "0x1000000": "0x1000000" is not one; use 2-16777215 (0xffffff names a group): a number, a range, a list, each with :inc, :dec or :rand`},
		{"tx loop: --proto roce-ud --qpn 17 --qkey 0x100000000", `qkey "0x100000000": use a number such as 17 or 0x11, at most 0xffffffff`},
		{"tx loop: --proto roce-ud --qpn 17 --psn 0x1000000", `psn "0x1000000": use a number such as 17 or 0x11, at most 0xffffff`},
		{"tx loop: --proto roce-ud --qpn 17 -s 90 --src-qpn 1", `src-qpn "0x1": is the first of 1 that send; use 0x2 to 0xfffffe`},
		{"tx loop: --proto roce-ud --qpn 17 -s 90 -q 4 --hello --src-qpn 0xfffffb", `src-qpn "0xfffffb": is the first of 5 that send; use 0x2 to 0xfffffa`},
		{"tx loop: --proto roce-ud --qpn 17 -s 90 --flows 16385", `flows "16385": the fields take only 16384 different values; widen --src, --dst, --sport or --dport to at least as many (all of them step together, so their numbers should have no common divisor; one with :rand does not count, its values may repeat)`},
		{"tx loop: --qpn 17", `qpn "17": is of RoCE v2 datagrams; use --proto roce-ud`},
		{"tx loop: --qkey 17", `qkey "17": is of RoCE v2 datagrams; use --proto roce-ud`},
		{"tx loop: --imm 17 --proto tcp", `imm "17": is of RoCE v2 datagrams; use --proto roce-ud`},
		{"tx udp:127.0.0.1 --proto udp", `port "udp:127.0.0.1": carries RoCE v2 datagrams only; use --proto roce-ud, or packet:INTERFACE or xdp:INTERFACE`},
		{"tx loop: --on-late never", `on-late "never": not a policy; use burst (catch up by 64 frames, then slip), skip (catch up by 64, leave out the rest) or slip`},
		{"tx loop: --drain 2m", `drain "2m0s": the tag's clock wraps; use at most 60s`},
		{"tx loop: -o xml", `output "xml": not a format; use text, json, jsonl, csv or none`},
		{"tx loop: --seed x", `seed "x": not a seed; use a number such as 7 or 0x5eed`},
		{"tx loop: --assert loss", `assert "loss": no comparison; use NAME OP VALUE, such as loss==0, p99.9<20us or rate_err<0.5%`},
		{"tx loop: --assert p99<20", `assert "p99<20": latency_ns.p99 is a time: its unit is ns, us, ms or s; use NAME OP VALUE, such as loss==0, p99.9<20us or rate_err<0.5%`},
		{"tx loop: --assert loss==0", `assert "loss==0": lost_packets needs a port that receives; use --rx PORT`},
		{"tx loop: --rx loop: --latency off --assert p99<20us", `assert "p99<20us": latency_ns.p99 is not recorded with --latency off; use --latency all or sample:N`},
		{"tx loop: --assert rate_err<1%", `assert "rate_err<1%": rate_error_ratio needs a rate to be held; use -r with one that is not max`},
		{"tx loop: --report " + dir, `report "` + dir + `": is a directory; use a file name`},
		{"tx loop: --report " + dir + "/no/r.json", `report "` + dir + `/no/r.json": cannot write there (no such file or directory); use a file in an existing, writable directory`},
		{"tx loop: --hdr " + dir + "/no/h.hlog", `hdr "` + dir + `/no/h.hlog": cannot write there (no such file or directory); use a file in an existing, writable directory`},
		{"tx loop: --hdr " + dir + "/h.hlog", `hdr "` + dir + `/h.hlog": latency needs a port that receives; use --rx PORT`},
		{"tx loop: --rx loop: --latency off --hdr " + dir + "/h.hlog", `hdr "` + dir + `/h.hlog": latency is not recorded with --latency off; use --latency all or sample:N`},
		{"tx loop: --rx loop: --no-tag --latency all", `latency "all": is read from the tag; use it without --no-tag`},
		{"tx", "accepts 1 arg(s), received 0; see pktgen tx --help"},
		{"tx loop: --nope", "unknown flag: --nope; see pktgen tx --help"},
		{"send loop:", `unknown command "send" for "pktgen"; see pktgen --help`},
		{"plan loop: -o csv", `output "csv": a plan has no rows; use text, json or jsonl`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			w := newWorld()
			code := w.execute(strings.Fields(tc.args))
			if code != cli.Usage {
				t.Errorf("exit code %d, want 2", code)
			}
			if got := w.err.String(); got != "pktgen: "+tc.line+"\n" {
				t.Errorf("stderr\n got %swant pktgen: %s", got, tc.line)
			}
			if w.out.Len() > 0 || w.ran {
				t.Errorf("stdout %q, ran %v", w.out.String(), w.ran)
			}
		})
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		args  string
		spoil func(*traffic.Report) error
		code  int
		line  string
	}{
		{"done", "", nil, cli.OK, ""},
		{"assertions hold", "--assert loss==0 --assert sent==10", nil, cli.OK, ""},
		{"an assertion fails", "--assert loss==0 --assert sent>10", nil, cli.AssertFails, "pktgen: assertion failed: FAIL sent>10 (sent_packets is 10)\n"},
		{"a port failed", "--assert sent>10", func(r *traffic.Report) error { return errors.New("the port is gone") }, cli.Failed, "pktgen: the port is gone\n"},
		{"a packet failed", "", func(r *traffic.Report) error { r.SendFailed = 2; return nil }, cli.Failed, "pktgen: 2 packets failed to be sent\n"},
		{"rate missed", "--strict-rate -r 2mpps", nil, cli.RateMissed, "pktgen: rate not reached: asked 2000000 pps, got 1000000 pps, 0 unsent\n"},
		{"rate missed, not strict", "-r 2mpps", nil, cli.OK, ""},
		{"rate reached", "--strict-rate -r 1mpps", nil, cli.OK, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.spoil = tc.spoil
			file := filepath.Join(t.TempDir(), "r.json")
			args := append([]string{"tx", "loop:", "--rx", "loop:", "-i", "0", "--report", file}, strings.Fields(tc.args)...)
			if code := w.execute(args); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !strings.HasSuffix(w.err.String(), tc.line) {
				t.Errorf("stderr %q, want its end %q", w.err.String(), tc.line)
			}
			var r traffic.Report
			raw, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(raw, &r)
			}
			if err != nil || r.Sent != 10 || r.Seed != "0x5eed" {
				t.Errorf("report %v: sent %d, seed %s", err, r.Sent, r.Seed)
			}
		})
	}
}

func TestSignalsEndWithTheirCodeAndACompleteReport(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		w := newWorld()
		w.signal = sig
		w.spoil = func(r *traffic.Report) error { r.Outcome = "interrupted"; return nil }
		file := filepath.Join(t.TempDir(), "r.json")
		if got := w.execute([]string{"tx", "loop:", "--report", file}); got != code {
			t.Errorf("%v: exit code %d, want %d", sig, got, code)
		}
		if raw, err := os.ReadFile(file); err != nil || !json.Valid(raw) {
			t.Errorf("%v: report %v", sig, err)
		}
		if !strings.Contains(w.out.String(), "interrupted\n") {
			t.Errorf("%v: stdout %q", sig, w.out.String())
		}
	}
}

// TestSignalsAreHeardBeforeAnythingIsTried: one that comes while the request is
// still looked at ends a run that has sent nothing, with its report.
func TestSignalsAreHeardBeforeAnythingIsTried(t *testing.T) {
	w := newWorld()
	heard := false
	w.signals = func(ctx context.Context) *cli.Signals {
		heard = true
		return cli.CatchSignals(ctx)
	}
	if code := w.execute([]string{"tx", "loop:", "-r", "nonsense"}); code != cli.Usage || !heard {
		t.Errorf("exit code %d, signals heard %v", code, heard)
	}

	dir := t.TempDir()
	app := realApp(cli.Streams{Out: io.Discard, Err: io.Discard})
	app.signals = func(ctx context.Context) *cli.Signals {
		s := cli.CatchSignals(ctx)
		self := must(os.FindProcess(os.Getpid()))
		if err := self.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-s.Done()
		return s
	}
	file := filepath.Join(dir, "r.json")
	if code := app.execute([]string{"tx", "loop:", "--rx", "loop:", "--report", file, "-i", "0"}); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	var r traffic.Report
	if err := json.Unmarshal(must(os.ReadFile(file)), &r); err != nil || r.Outcome != "interrupted" || r.Sent != 0 {
		t.Errorf("%v: outcome %q, sent %d", err, r.Outcome, r.Sent)
	}
	if left := must(os.ReadDir(dir)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestResultsOnStdoutProgressOnStderr, in each format.
func TestResultsOnStdoutProgressOnStderr(t *testing.T) {
	for format, lines := range map[string]int{"json": -1, "jsonl": 2, "csv": 3, "none": 0} {
		w := newWorld()
		if code := w.execute([]string{"tx", "loop:", "--rx", "loop:", "-o", format}); code != 0 {
			t.Fatalf("%s: exit code %d: %s", format, code, w.err.String())
		}
		out := w.out.String()
		if got := strings.Count(out, "\n"); lines >= 0 && got != lines {
			t.Errorf("%s: %d lines on stdout, want %d:\n%s", format, got, lines, out)
		}
		if format == "json" && !json.Valid([]byte(out)) {
			t.Errorf("json: %s", out)
		}
		for _, want := range []string{"seed=0x5eed", "plan: 64 B", "tx Mpps", "1.0s"} {
			if !strings.Contains(w.err.String(), want) {
				t.Errorf("%s: no %q on stderr: %s", format, want, w.err.String())
			}
		}
	}
}

func TestShortFlagsDoNotClash(t *testing.T) {
	names, shorts := map[string]bool{}, map[string]string{"h": "help", "v": "version"}
	for _, f := range flagTable {
		if names[f.name] {
			t.Errorf("--%s stands twice in the table", f.name)
		}
		names[f.name] = true
		if f.short == "" {
			continue
		}
		if was, ok := shorts[f.short]; ok {
			t.Errorf("-%s is --%s and --%s", f.short, was, f.name)
		}
		shorts[f.short] = f.name
	}
}

// TestEveryFlagIsRead: a flag that reaches nothing would be accepted in silence.
func TestEveryFlagIsRead(t *testing.T) {
	read := []string{"rx", "run", "tap", "no-tag", "hello", "allow-mgmt", "yes-public", // by config
		"output", "report", "hdr", "assert", "strict-rate", "floor", "self-test"} // by measure
	for _, f := range flagTable {
		if slices.Contains(read, f.name) {
			continue
		}
		var a, b traffic.Config
		other := map[string]string{
			"rate": "1pps", "size": "65", "proto": "tcp", "src": "10.0.0.1", "dst": "10.0.0.1", "smac": "02:00:00:00:00:01",
			"dmac": "02:00:00:00:00:01", "latency": "all", "on-late": "slip", "csum": "offload", "tso": "100", "payload": "100",
		}[f.name]
		if other == "" {
			other = "3"
		}
		if err := setField(&a, f.name, other); err != nil {
			t.Errorf("--%s %s: %v", f.name, other, err)
		}
		if string(must(json.Marshal(echoOf(a)))) == string(must(json.Marshal(echoOf(b)))) {
			t.Errorf("--%s changes nothing", f.name)
		}
	}
}

// echoOf shows a Config's fields as text.
func echoOf(c traffic.Config) []any {
	return []any{c.Rate.String(), c.Count, c.Duration, c.Size.String(), c.Proto, c.Src.String(), c.Dst.String(), c.SPort.String(),
		c.DPort.String(), c.SMAC.String(), c.DMAC.String(), c.VLAN.String(), c.FlowLabel.String(), c.TTL, c.Flows, c.Seed,
		c.Queues, c.Burst, c.Latency, c.Drain, c.OnLate, c.Interval, c.Csum, c.TSO, c.RoCE, c.RoCE.QPN.String()}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestPlanListProbeVersionCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"plan loop: --rx loop: -r 20% -n 2":  "2.976190 Mpps",
		"plan loop: -o json -n 1":            `"schema": "bluering.pktgen.plan/1"`,
		"list":                               "loop:",
		"list --json":                        `"uri":"loop:"`,
		"probe loop:":                        "loop: ready\n  backend loop (not a wire)",
		"probe loop: --json":                 `"is_wire":false`,
		"--version":                          "pktgen version ",
		"completion bash":                    "pktgen",
		"tx --help":                          "--strict-rate",
		"plan loop: -s imix --flows 1k -q 3": "flows: 1,000, queues: 3",
		"plan loop: --dst 2001:2::7 -s 82":   "IPv6/UDP",
		"plan loop: --src 10.0.0.0/24:rand":  "varies: src 10.0.0.0/24:rand, 256 values, by packet",
		"plan loop: --proto tcp -s 74":       "TCP {",
		"plan loop: --vlan 7 -s 66":          "VLANIdentifier=7",
		"plan loop: --proto roce-ud --qpn 5-6 -s 86-1518 -n 2":    "DestQP=0x6 SrcQP=0x11 PSN=1 Q_Key=0x11111111 P_Key=0xffff Imm=0x0 Pad=0 ICRC=",
		"plan loop: --proto roce-ud --qpn 5 --payload 17 --imm 9": "Opcode=0x65 DestQP=0x5 SrcQP=0x11 PSN=0 Q_Key=0x11111111 P_Key=0xffff Imm=0x9 Pad=3 ICRC=",
		"plan loop: --no-tag --proto tcp":                         "IPv4/TCP",
		"help tx":                                                 "--strict-rate",
		"plan loop: -r 0.0000001pps":                              "x 1e-07 pps = 5.12e-05 bit/s L2",
		"plan loop: -r 3pps -n 4":                                 "0 333333333 666666666 1000000000",
		"plan loop: --dst 8.8.8.8 --yes-public":                   "8.8.8.8",
	} {
		w := newWorld()
		if code := w.execute(strings.Fields(args)); code != 0 {
			t.Errorf("%s: exit code %d: %s", args, code, w.err.String())
		}
		if !strings.Contains(w.out.String(), want) {
			t.Errorf("%s: no %q in\n%s", args, want, w.out.String())
		}
		if w.ran {
			t.Errorf("%s sent something", args)
		}
	}
}
