package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
	"github.com/bluering/bluering/engine/device"
)

// pktgen runs the command with nothing made up.
func pktgen(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = realApp(cli.Streams{Out: &out, Err: &err}).execute(args)
	return code, out.String(), err.String()
}

// TestBadPorts: what opening a port finds is told as plainly as a bad flag.
func TestBadPorts(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ args, begins, has string }{
		{"tx foo:", `port "foo:": unknown scheme "foo"`, "loop:, packet:, xdp:, udp:, pcap:"},
		{"tx loop", `port "loop": unknown scheme "loop"`, "loop:, packet:, xdp:, udp:, pcap:"},
		{"tx udp:127.0.0.1", `port "udp:127.0.0.1": carries RoCE v2 datagrams only`, "packet:INTERFACE"},
		{"tx loop: --rx udp:127.0.0.1?gso=0", `port "udp:127.0.0.1?gso=0": carries RoCE v2 datagrams only`, "--proto roce-ud"},
		{"tx udp:127.0.0.1 --proto roce-ud --qpn 17 -s 86", `dst: udp:127.0.0.1 has no other end`, "--rx udp:ADDRESS"},
		{"tx udp:127.0.0.1 --rx udp:127.0.0.2 --proto roce-ud --qpn 17 -s 86 --src 127.0.0.3", `src "127.0.0.3": udp:127.0.0.1 sends from its own address`, "leave --src out"},
		{"tx udp:127.0.0.1 --rx udp:127.0.0.2 --proto roce-ud --qpn 17 -s 86 --vlan 7", `vlan "7": udp:127.0.0.1 leaves Ethernet and IP headers to the kernel`, "packet:INTERFACE"},
		{"tx udp:127.0.0.1 --rx udp:127.0.0.2 --proto roce-ud --qpn 17 -s 86 --sport 49152", `sport "49152": udp:127.0.0.1 sends from port 4791`, "?ports=N"},
		{"tx udp:127.0.0.1?ports=2 --rx udp:127.0.0.2 --proto roce-ud --qpn 17 -s 86 --sport 49152-49154", `sport "49152-49154": udp:127.0.0.1?ports=2 sends from port 4791 and 2 others`, "?ports=N"},
		{"tx udp:127.0.0.1 --rx udp:127.0.0.2 --proto roce-ud --qpn 17 -s 86 --flows 2", `flows "2": the fields take only 1 different values`, "widen"},
		{"tx udp:127.0.0.1 --rx udp:::1 --proto roce-ud --qpn 17 -s 86", `dst "::1": and --src 127.0.0.1 are of two IP versions`, "use one"},
		{"probe foo:", `port "foo:": unknown scheme "foo"`, "loop:"},
		{"plan foo:", `port "foo:": unknown scheme "foo"`, "loop:"},
		{"tx loop:?spede=1gbps", `port "loop:?spede=1gbps": knows no parameter "spede"`, "speed"},
		{"tx loop:?speed=fast", `port "loop:?speed=fast": speed="fast"`, "100gbps"},
		{"tx loop: --rx foo:", `port "foo:": unknown scheme "foo"`, "loop:"},
		{"tx loop: -s 9100", `size "9100": loop: takes frames of at most 9018 bytes`, "-s 9018"},
		{"tx loop: -r 20%", `rate "20%": the port's speed is unknown`, "loop:?speed="},
		{"rx loop:", "run: ", "--run TOKEN"},
		{"tx loop: --run nonsense", `run "nonsense": `, "1.RUNID.START.BOOT.FLOWS"},
		{"tx loop: --count=", "count: is empty", "--count"},
		{"tx loop: --rx=", "rx: is empty", "--rx"},
		{"tx loop: --report=", "report: is empty", "--report"},
		{"tx pcap:" + dir + "/x.pcap --dst 8.8.8.8", `dst "8.8.8.8": is a public address`, "--yes-public"},
		{"tx loop: --tap " + dir + "/no/t.pcapng", `tap "` + dir + `/no/t.pcapng": cannot write there`, "no such file or directory"},
		{"tx loop: -s 9100 --tap " + dir + "/t.pcapng", `size "9100": `, "-s 9018"},
		{"tx pcap:" + dir + "/no/x.pcap", `port "pcap:` + dir + `/no/x.pcap": `, "no such file or directory"},
	} {
		code, out, err := pktgen(strings.Fields(tc.args)...)
		if code != cli.Usage || out != "" || strings.Count(err, "\n") != 1 || !strings.HasPrefix(err, "pktgen: "+tc.begins) || !strings.Contains(err, tc.has) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want one line that begins %q and has %q", tc.args, code, out, err, tc.begins, tc.has)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestLoopCountsAreExact, in all outputs at once.
func TestLoopCountsAreExact(t *testing.T) {
	for _, queues := range []int{1, 2, 3, 7} {
		dir := t.TempDir()
		report, hdr := filepath.Join(dir, "r.json"), filepath.Join(dir, "h.hlog")
		code, out, stderr := pktgen("tx", "loop:", "--rx", "loop:", "-n", "100003", "-q", strconv.Itoa(queues), "--flows", "70", "--drain", "10s",
			"-s", "imix", "-o", "jsonl", "-i", "0", "--report", report, "--hdr", hdr, "--seed", "7",
			"--assert", "loss==0", "--assert", "sent==100003", "--assert", "received==100003", "--assert", "dup==0", "--assert", "reordered==0")
		if code != 0 {
			t.Fatalf("%d queues: exit code %d: %s", queues, code, stderr)
		}
		var fromFile, fromOut traffic.Report
		raw, err := os.ReadFile(report)
		if err == nil {
			err = json.Unmarshal(raw, &fromFile)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out), &fromOut); err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for _, q := range fromFile.Queues {
			sum += q.Sent
		}
		if fromFile.Sent != 100003 || fromOut.Sent != 100003 || sum != 100003 || len(fromFile.Queues) != queues || fromFile.Seed != "0x7" {
			t.Errorf("%d queues: sent %d in the file, %d on stdout, %d over the queues", queues, fromFile.Sent, fromOut.Sent, sum)
		}
		if fromFile.TX.IsWire || fromFile.LatencySamples != 100003 || fromFile.Foreign+fromFile.Corrupt > 0 {
			t.Errorf("%d queues: wire %v, %d samples, foreign %d, corrupt %d", queues, fromFile.TX.IsWire, fromFile.LatencySamples, fromFile.Foreign, fromFile.Corrupt)
		}
		if log, err := os.ReadFile(hdr); err != nil {
			t.Error(err)
		} else if h, err := hdrhistogram.NewHistogramLogReader(bytes.NewReader(log)).NextIntervalHistogram(); err != nil || h == nil || h.TotalCount() != 100003 {
			t.Errorf("HDR log: %v\n%.300s", err, log)
		}
	}
}

func TestLossIsCountedAndFailsItsAssertion(t *testing.T) {
	code, out, stderr := pktgen("tx", "loop:?loss=0.01&seed=3", "--rx", "loop:", "-n", "20000", "-o", "json", "-i", "0", "--drain", "10ms", "--assert", "loss==0", "--assert", "loss<5%")
	var r traffic.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if code != cli.AssertFails || r.Lost == 0 || r.Lost != r.Sent-r.Unique || !r.Asserts[1].Pass || !strings.Contains(stderr, "FAIL loss==0") {
		t.Errorf("exit code %d, lost %d of %d, unique %d, stderr %s", code, r.Lost, r.Sent, r.Unique, stderr)
	}
}

// TestFullDiskSendsNothing: a recording counts what the file has.
func TestFullDiskSendsNothing(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	for _, count := range []string{"10", "100000"} {
		code, out, stderr := pktgen("tx", "pcap:/dev/full", "-n", count, "-o", "json", "-i", "0")
		var r traffic.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if code != cli.Failed || r.Outcome != "failed" || r.Sent != 0 || r.SentBytes != 0 || r.SendFailed == 0 || len(r.Notes) > 0 {
			t.Errorf("exit code %d, %q, sent %d (%d bytes), failed %d, notes %v", code, r.Outcome, r.Sent, r.SentBytes, r.SendFailed, r.Notes)
		}
		if last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]; strings.Count(last, "no space left") != 1 {
			t.Errorf("not said once: %s", last)
		}
	}
}

// TestLossIsTheSumOfTheNamedDrops, frames that are still delayed when the drain ends included.
func TestLossIsTheSumOfTheNamedDrops(t *testing.T) {
	for _, how := range []string{"delay=20s", "delay=20s&loss=0.1&dup=0.1&reorder=0.1&seed=3", "loss=0.1&seed=3", "speed=1mbps", "speed=1mbps&queue=16"} {
		_, out, stderr := pktgen("tx", "loop:?"+how, "--rx", "loop:", "-n", "1000", "-r", "1mpps", "-o", "json", "-i", "0", "--drain", "5ms")
		var r traffic.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(how, err, stderr)
		}
		sum := uint64(0)
		for _, n := range r.Drops {
			sum += n
		}
		if r.Sent != 1000 || r.Lost == 0 || sum != r.Lost {
			t.Errorf("%s: lost %d of %d, drops %v", how, r.Lost, r.Sent, r.Drops)
		}
	}
}

// TestReceiverAloneTakesWhatItIsAskedFor, and all of a recording by itself.
func TestReceiverAloneTakesWhatItIsAskedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcap")
	if code, _, stderr := pktgen("tx", "pcap:"+file, "-n", "1000", "-i", "0", "-o", "none"); code != 0 {
		t.Fatal(stderr)
	}
	for _, tc := range []struct {
		args string
		want uint64
	}{{"-n 77", 77}, {"-n 64", 64}, {"-n 1", 1}, {"-n 1000", 1000}, {"", 1000}, {"-n 5000", 1000}, {"-d 60s", 1000}} {
		code, out, stderr := pktgen(append([]string{"rx", "pcap:" + file, "--no-tag", "-o", "json", "-i", "0"}, strings.Fields(tc.args)...)...)
		var r traffic.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Fatalf("%s: %v, exit code %d: %s", tc.args, err, code, stderr)
		}
		if r.Received != tc.want || r.Unique != tc.want || r.RecvBytes != 64*tc.want || r.Outcome != "complete" {
			t.Errorf("rx %s: received %d (%d bytes), %s, want %d", tc.args, r.Received, r.RecvBytes, r.Outcome, tc.want)
		}
	}
}

// TestListHasEveryDevice: those that can be opened by name, and the recording, whose name is the user's.
func TestListHasEveryDevice(t *testing.T) {
	code, out, stderr := pktgen("list", "--json")
	var ports []traffic.ListedPort
	if err := json.Unmarshal([]byte(out), &ports); err != nil || code != 0 {
		t.Fatalf("%v, exit code %d: %s", err, code, stderr)
	}
	got, want := []string{}, []string{"pcap:FILE"}
	for _, p := range ports {
		got = append(got, p.URI)
	}
	for _, e := range must(device.List()) {
		want = append(want, e.URI)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestALoopWithoutAnotherEnd: what was sent there did not leave the process, and the run failed.
func TestALoopWithoutAnotherEnd(t *testing.T) {
	for _, more := range []string{"", "--hello", "-r 100kpps", "--no-tag"} {
		code, out, stderr := pktgen(append([]string{"tx", "loop:nobody", "-n", "10", "-i", "0"}, strings.Fields(more)...)...)
		want := "nobody has the other port of loop:nobody, and all frames were dropped (no_peer): a loop lives within one process; use --rx loop:nobody\n"
		if code != cli.Failed || !strings.HasSuffix(stderr, want) || !strings.Contains(out, "failed: nobody has") {
			t.Errorf("%s: exit code %d: %s%s", more, code, out, stderr)
		}
	}
}

// TestBothHellosAreReceived by the receiver of the same process.
func TestBothHellosAreReceived(t *testing.T) {
	for _, port := range []string{"loop:", "loop:?delay=1ms", "loop:?mode=goroutine"} {
		code, out, stderr := pktgen("tx", port, "--rx", "loop:", "-n", "1000", "--hello", "-o", "json", "-i", "0", "--drain", "10s", "--assert", "loss==0")
		var r traffic.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Fatalf("%s: %v, exit code %d: %s", port, err, code, stderr)
		}
		if r.Hello != 2 || r.Sent != 1000 || r.Received != 1000 || r.SentBytes != 64000 {
			t.Errorf("%s: %d hellos, %+v", port, r.Hello, r.Counts)
		}
	}
}

// TestTapRecordsEveryFrame: gopacket reads the recording.
func TestTapRecordsEveryFrame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.pcapng")
	code, _, stderr := pktgen("tx", "loop:", "--rx", "loop:", "-n", "300", "--flows", "3", "-o", "none", "--tap", file)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	ports := map[byte]int{}
	for {
		raw, _, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ports[raw[35]]++ // the source port's low byte
	}
	if len(ports) != 3 || ports[0] != 100 || ports[1] != 100 || ports[2] != 100 {
		t.Errorf("frames by flow: %v", ports)
	}
}
