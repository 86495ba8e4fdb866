package acceptance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/cmd/pktgen/traffic"
	"github.com/bluering/bluering/internal/nstest"
)

var pktgen string // the built program

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bluering-acceptance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pktgen = filepath.Join(dir, "pktgen")
	if built := os.Getenv("BLUERING_PKTGEN"); built != "" {
		pktgen = built // the process in the namespaces uses what the first one built
	} else if out, err := exec.Command("go", "build", "-o", pktgen, "..").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build pktgen: %v\n%s", err, out)
		os.Exit(1)
	}
	os.Setenv("BLUERING_PKTGEN", pktgen)
	nstest.Main(m)
}

// result is what one run of the program left.
type result struct {
	code           int
	stdout, stderr string
	file           string          // of the JSON report
	report         *traffic.Report // nil: there is no such file
}

// run runs pktgen to its end with a JSON report.
func run(t *testing.T, args ...string) result {
	t.Helper()
	c, r := command(t, args...)
	r.finish(t, c, c.Run())
	return *r
}

// command prepares a run whose report is read by finish.
func command(t *testing.T, args ...string) (*exec.Cmd, *result) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	c := exec.Command(pktgen, append(args, "--report", file, "-o", "none", "-i", "0")...)
	c.Stdout, c.Stderr = new(bytes.Buffer), &output{first: make(chan struct{})}
	return c, &result{file: file}
}

func (r *result) finish(t *testing.T, c *exec.Cmd, err error) {
	t.Helper()
	r.stdout = c.Stdout.(*bytes.Buffer).String()
	r.stderr = c.Stderr.(*output).all.String()
	r.code = c.ProcessState.ExitCode()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	b, err := os.ReadFile(r.file)
	if err != nil {
		return
	}
	r.report = new(traffic.Report)
	if err := json.Unmarshal(b, r.report); err != nil {
		t.Fatalf("%s: %v", r.file, err)
	}
}

// clean fails unless the run succeeded and lost, doubled and reordered nothing.
func (r result) clean(t *testing.T, count uint64) {
	t.Helper()
	if r.code != 0 || r.report == nil {
		t.Fatalf("exit status %d, report %v\n%s", r.code, r.report != nil, r.stderr)
	}
	p := r.report
	if p.RingDrops > 0 {
		t.Fatalf("inconclusive: the receive ring dropped %d frames", p.RingDrops)
	}
	if p.Sent != count || p.Received != count || p.Unique != count || p.Lost+p.Duplicate+p.Reordered+p.Foreign+p.Corrupt+p.Stale > 0 {
		t.Fatalf("want %d sent and received once: %+v", count, p.Counts)
	}
	if p.Outcome != "complete" || p.LatencySamples != count || p.Latency == nil || p.Latency.Min < 0 {
		t.Fatalf("outcome %q, %d latency samples of %d: %+v", p.Outcome, p.LatencySamples, count, p.Latency)
	}
}

func TestLoopCountsAreExactForAnyNumberOfQueues(t *testing.T) {
	for _, queues := range []string{"1", "2", "3", "7"} {
		for _, rate := range []string{"max", "300kpps"} {
			t.Run("queues="+queues+"/rate="+rate, func(t *testing.T) {
				run(t, "tx", "loop:", "--rx", "loop:", "-n", "100003", "-r", rate, "--queues", queues,
					"--assert", "loss==0").clean(t, 100003)
			})
		}
	}
}

func TestPacketPutsExactlyTheCountOnTheInterface(t *testing.T) {
	putsExactly(t, "packet:", 1000003, "200kpps")
}

// putsExactly sends so many frames of the smallest size, and has the kernel count them at both ends.
func putsExactly(t *testing.T, scheme string, count uint64, rate string) {
	t.Helper()
	a, b, nsB := nstest.Veth(t)
	sent, seen := nstest.Count(t, "", a), nstest.Count(t, nsB, b)
	r := run(t, "tx", scheme+a, "-n", strconv.FormatUint(count, 10), "-r", rate, "-s", "64", "--dmac", "02:00:00:00:00:99")
	if r.code != 0 || r.report == nil || r.report.Sent != count {
		t.Fatalf("exit status %d\n%s", r.code, r.stderr)
	}
	sent, seen = nstest.Count(t, "", a).Sub(sent), nstest.Count(t, nsB, b).Sub(seen)
	if sent.TxFrames != count || seen.RxFrames != count {
		t.Fatalf("the kernel counted %d out of %s and %d into %s", sent.TxFrames, a, seen.RxFrames, b)
	}
	if want := count * 60; sent.TxBytes != want {
		t.Fatalf("the kernel counted %d bytes, want %d", sent.TxBytes, want)
	}
}

func TestPacketBothEndsLoseNothing(t *testing.T) {
	a, b, nsB := nstest.Veth(t)
	run(t, "tx", "packet:"+a, "--rx", "packet:"+b+"?netns="+nsB, "-n", "100003", "-r", "50kpps",
		"--latency", "all", "--assert", "loss==0").clean(t, 100003)
}

func TestPacketQueuesShareOneExactCount(t *testing.T) {
	a, b, nsB := nstest.Veth(t)
	for _, queues := range []string{"2", "3", "7"} {
		before := nstest.Count(t, "", a)
		run(t, "tx", "packet:"+a, "--rx", "packet:"+b+"?netns="+nsB, "-n", "20011", "-r", "50kpps",
			"--queues", queues).clean(t, 20011)
		if n := nstest.Count(t, "", a).Sub(before).TxFrames; n != 20011 {
			t.Fatalf("%s queues: the kernel counted %d", queues, n)
		}
	}
}

// variations are command lines that between them vary every field pktgen can vary.
var variations = [][]string{
	{"-s", "64-128", "--sport", "1000-1999", "--dport", "9-40:dec"},
	{"-s", "imix", "--src", "198.18.0.1-198.18.0.250", "--dst", "198.19.0.0/24:rand"},
	{"-s", "100", "--smac", "02:00:00:00:01:00-02:00:00:00:01:ff", "--vlan", "1-4094:rand"},
	{"-s", "74", "--proto", "tcp", "--sport", "1-65535:rand", "--dst", "198.19.0.1,198.19.0.7,198.19.3.9"},
	{"-s", "82-90", "--src", "2001:2::1-2001:2::ffff", "--dst", "2001:2:0:1::/64:rand", "--flow-label", "0-1048575:rand"},
	{"-s", "1518", "--proto", "tcp", "--src", "2001:2::1", "--dst", "2001:2::2-2001:2::200:dec", "--dport", "80,443"},
	{"-s", "128", "--flows", "1000", "--vlan", "7"},
}

func TestCapturedVariationsHaveRightChecksums(t *testing.T) {
	nstest.Judges(t)
	a, b, nsB := nstest.Veth(t)
	nstest.NoOffload(t, "", a)
	for i, fields := range variations {
		capture := filepath.Join(t.TempDir(), "seen.pcapng")
		args := append([]string{"tx", "packet:" + a, "--rx", "packet:" + b + "?netns=" + nsB, "-n", "600",
			"-r", "20kpps", "--seed", "7", "--tap", capture, "--dmac", "02:00:00:00:00:99"}, fields...)
		run(t, args...).clean(t, 600)
		frames := judge(t, capture, fields, 0)
		if frames < 600 {
			t.Fatalf("%v: %d frames in the capture", fields, frames)
		}
		if i == 0 {
			flip(t, capture)
			judge(t, capture, fields, 1)
		}
	}
}

// judge asks scapy and tshark for frames with wrong checksums and wants exactly that many from each.
func judge(t *testing.T, capture string, fields []string, wrong int) (frames int) {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "testdata/judge.py", capture).Output()
	if err != nil {
		t.Fatalf("scapy: %v\n%s", err, stderrOf(err))
	}
	var seen struct {
		Frames, IP, Wrong int
		First             string `json:"first_wrong"`
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("scapy printed %q: %v", out, err)
	}
	if seen.Wrong != wrong || seen.IP != seen.Frames {
		t.Fatalf("%v: scapy finds %d wrong of %d IP frames, want %d; %s", fields, seen.Wrong, seen.IP, wrong, seen.First)
	}
	check := exec.Command("tshark", "-n", "-r", capture, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-o", "tcp.check_checksum:TRUE", "-Y", "ip.checksum.status==0 || udp.checksum.status==0 || tcp.checksum.status==0")
	if out, err = check.Output(); err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderrOf(err))
	}
	if n := bytes.Count(out, []byte("\n")); n != wrong {
		t.Fatalf("%v: tshark finds %d wrong, want %d:\n%.2000s", fields, n, wrong, out)
	}
	return seen.Frames
}

// flip inverts one bit of a frame's tag in the capture, which only the UDP checksum covers.
func flip(t *testing.T, capture string) {
	t.Helper()
	b, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte{0x08, 0x00, 0x45}) // the first frame's EtherType and IP version
	if at < 0 || at+60 > len(b) {
		t.Fatal("no IPv4 frame in the capture")
	}
	b[at+2+20+8+4] ^= 0x10 // behind IPv4 and UDP headers
	if err := os.WriteFile(capture, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSignalsLeaveACompleteReport(t *testing.T) {
	for _, s := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		for _, wait := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v/after=%v", s.signal, wait), func(t *testing.T) {
				c, r := command(t, "tx", "loop:", "--rx", "loop:", "-r", "100kpps", "-d", "60s", "--assert", "loss==0")
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				started(t, c)
				<-time.After(wait)
				c.Process.Signal(s.signal)
				r.finish(t, c, c.Wait())
				if r.code != s.code || r.report == nil {
					t.Fatalf("exit status %d, report %v\n%s", r.code, r.report != nil, r.stderr)
				}
				if p := r.report; p.Outcome != "interrupted" || p.Sent != p.Unique || p.Lost != 0 {
					t.Fatalf("outcome %q: %+v", p.Outcome, p.Counts)
				}
			})
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	c, _ := command(t, "tx", "loop:", "--rx", "loop:", "-r", "100kpps", "-d", "60s", "--drain", "50s")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	started(t, c)
	c.Process.Signal(syscall.SIGINT)
	c.Process.Signal(syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		c.Process.Kill()
		t.Fatal("still running 10 s after the second signal")
	}
	if code := c.ProcessState.ExitCode(); code != 130 && code != 143 {
		t.Fatalf("exit status %d", code)
	}
}

// output keeps what a process prints and tells when it began to.
type output struct {
	all   bytes.Buffer
	first chan struct{}
	once  sync.Once
}

func (o *output) Write(p []byte) (int, error) {
	defer o.once.Do(func() { close(o.first) })
	return o.all.Write(p)
}

// started returns when the process has printed its plan, which it does just before the first frame.
func started(t *testing.T, c *exec.Cmd) {
	t.Helper()
	select {
	case <-c.Stderr.(*output).first:
	case <-time.After(20 * time.Second):
		c.Process.Kill()
		t.Fatal("pktgen printed no plan in 20 s")
	}
}

// stderrOf is what a program that failed printed.
func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}
