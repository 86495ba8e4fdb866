package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/udecho/echo"
	"github.com/bluering/bluering/ud/exchange"
)

// start starts the command in a process of its own.
func start(t *testing.T, args ...string) (c *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c = exec.Command(self)
	c.Env = append(os.Environ(), "UDECHO_ARGS="+strings.Join(args, "\n"))
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	c.Stdout, c.Stderr = out, errs
	t.Cleanup(func() {
		if c.ProcessState == nil && c.Process != nil {
			c.Process.Kill()
			c.Wait()
		}
	})
	return c, out, errs
}

// server starts serve and waits until it listens.
func server(t *testing.T, device, host string, args ...string) *exec.Cmd {
	t.Helper()
	c, _, _ := start(t, append([]string{"serve", device, "--listen", host + ":18515", "--event"}, args...)...)
	c.Stderr = nil
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 256)
	n, err := pipe.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "listening on") {
		t.Fatalf("%v: %s", err, line[:n])
	}
	go io.Copy(io.Discard, pipe)
	return c
}

func host(n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 192+os.Getpid()>>8&31, os.Getpid()&255, n)
}

func runs(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(cli.Streams{Out: &o, Err: &e}, args)
	return code, o.String(), e.String()
}

func TestTwoProcesses(t *testing.T) {
	srv := server(t, "udp:"+host(1), host(1))
	dir := t.TempDir()
	report, hdr := filepath.Join(dir, "run.json"), filepath.Join(dir, "run.hdr")
	code, out, errs := runs(t, "ping", "udp:"+host(2), host(1), "-n", "500", "--timeout", "5s", "--event", "-o", "json", "--report", report, "--hdr", hdr, "--assert", "loss==0", "--assert", "half_rtt_ns.p50<1s")
	if code != cli.OK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, raw := range [][]byte{[]byte(out), read(t, report)} {
		var r echo.Report
		if err := json.Unmarshal(raw, &r); err != nil || r.Sent != 500 || r.Unique != 500 || r.Schema != echo.Schema || len(r.Asserts) != 2 {
			t.Errorf("%v: %s", err, raw)
		}
	}
	if !bytes.Contains(read(t, hdr), []byte("Histogram log format")) {
		t.Errorf("%s", read(t, hdr))
	}
	if code, _, errs := runs(t, "ping", "udp:"+host(2), host(1), "--timeout", "5s", "--event", "-o", "none", "--assert", "max<1ns"); code != cli.AssertFails || !strings.Contains(errs, "assertion failed") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, out, _ := runs(t, "bw", "udp:"+host(2), host(1), "-n", "1000", "-r", "20kpps", "--event"); code != cli.OK || !strings.Contains(out, "sent 1,000") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	srv.Wait()
	if code := srv.ProcessState.ExitCode(); code != 143 {
		t.Errorf("the server ended with %d", code)
	}
	out = srv.Stdout.(*bytes.Buffer).String()
	if !strings.Contains(out, "sessions 3") || !strings.Contains(out, "interrupted") {
		t.Errorf("%s", out)
	}
}

// TestASignalBeforeTheFirstDatagram ends with its code: a server that takes connections and says nothing is waited for.
func TestASignalBeforeTheFirstDatagram(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, out, errs := start(t, "ping", "udp:"+host(13), l.Addr().String(), "--report", filepath.Join(t.TempDir(), "r"))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept() // it listens to signals by now
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if got := c.ProcessState.ExitCode(); got != want || out.Len() != 0 || errs.String() != fmt.Sprintf("udecho: stopped by %v; nothing was sent\n", sig) {
			t.Errorf("%v: exit code %d: %s%s", sig, got, out, errs)
		}
	}
}

// TestTheClientSaysWhyItWasRefused: one of its address has the share already.
func TestTheClientSaysWhyItWasRefused(t *testing.T) {
	server(t, "udp:"+host(11), host(11), "--clients-per-source", "1")
	c, err := net.Dial("tcp", host(11)+":18515")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mine := exchange.Info{QPN: 0x99, QKey: exchange.DefaultQKey, GID: [16]byte(net.ParseIP("127.0.0.1").To16()), MTU: 1024}
	if _, err := (exchange.Native{}).Client(t.Context(), c, mine); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runs(t, "ping", "udp:"+host(12), host(11))
	if want := "refused by the peer: no room: 127.0.0.1 has 1 of the 1 places of a source (the server's --clients-per-source)"; code != cli.Failed || out != "" || !strings.Contains(errs, want) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBadRequestsSendNothing(t *testing.T) {
	for _, c := range [][2]string{
		{"ping udp:" + host(6), "accepts 2 arg(s)"},
		{"ping udp:192.0.2.77 127.0.0.1:1", `device "udp:192.0.2.77": no such interface with address 192.0.2.77`},
		{"ping udp:127.0.0.1?foo=1 127.0.0.1:1", `device "udp:127.0.0.1?foo=1": knows no parameter "foo"`},
		{"ping tape: 127.0.0.1:1", "unknown scheme"},
		{"ping loop:main 127.0.0.1:1 -s 70000", "size"},
		{"ping loop:main 127.0.0.1:1 -s 5000", "size"},
		{"ping loop:main 127.0.0.1:1 -r 5", `rate "5": no unit; use a number with pps, such as 100kpps, or max`},
		{"ping loop:main 127.0.0.1:1 -r 5gbps", "pps"},
		{"ping loop:main 127.0.0.1:1 -r 10kpps --exchange pingpong", `rate "10kpps": is for an open loop, and --exchange pingpong has servers that answer in lockstep`},
		{"ping loop:main 127.0.0.1:1 -r 10kpps --exchange perftest", "use --exchange native, or leave the rate out"},
		{"scan loop:main 127.0.0.1:1 --exchange perftest", `exchange "perftest": has servers that answer in lockstep`},
		{"ping loop:main 127.0.0.1:1 -n x", "not a count"},
		{"ping loop:main 127.0.0.1:1 --exchange ftp", "native, pingpong or perftest"},
		{"ping loop:main 127.0.0.1:1 --assert loss", "no comparison"},
		{"ping loop:main 127.0.0.1:1 --assert p99<20", "its unit is"},
		{"ping loop:main 127.0.0.1:1 --qkey 0x1ffffffff", "Q_Key"},
		{"ping loop:main 127.0.0.1:1 --qkey 0", "Q_Key"},
		{"ping loop:main 127.0.0.1:1 -o xml", "not a format"},
		{"ping loop:main 127.0.0.1:1 --report /nosuch/dir/x", "cannot write there"},
		{"ping loop:main 127.0.0.1:1 --port 0", `port "0": not ports`},
		{"ping loop:main 127.0.0.1:1 --depth 16385", `depth "16385": out of range; use 2 to 16384`},
		{"ping loop:main 127.0.0.1:1 --depth 0", "use 2 to 16384"},
		{"bw loop:main 127.0.0.1:1 --timeout 0", "from 1ns up"},
		{"ping loop:main 127.0.0.1:1 -s 4097", "use 0 to 4096"},
		{"ping loop:main 127.0.0.1:65536", "port"},
		{"ping loop:main :18515", "no host"},
		{"serve loop:main --clients 0", "use 1 to 2048"},
		{"serve loop:main --clients-per-source 2049", `clients-per-source "2049": out of range; use 0 to 2048`},
		{"serve loop:main --limit 0", "use 1 to 1000000000"},
		{"scan loop:main 127.0.0.1:1 --ports paths:5000", "paths"},
		{"serve loop:main --listen 192.0.2.77:1", `listen "192.0.2.77:1": bind: cannot assign requested address`},
		{"serve loop:main --mode drop", "echo or sink"},
		{"serve loop:main --clients 0x", "not a count"},
		{"fly", "unknown command"},
	} {
		code, out, errs := runs(t, strings.Fields(c[0])...)
		if code != cli.Usage || out != "" || !strings.Contains(errs, c[1]) || strings.Count(errs, "\n") != 1 {
			t.Errorf("udecho %s: exit code %d, %q, %q", c[0], code, out, errs)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if code, _, errs := runs(t, "ping", "loop:main", addr); code != cli.Failed || !strings.Contains(errs, "refused; a loop: lives within one process") {
		t.Errorf("nobody there: exit code %d: %s", code, errs)
	}
}
