package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/udecho/echo"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/nstest"
)

// path is what two processes have between them.
type path struct {
	name      string
	far, near string // devices
	meet      string // the server's host for the exchange
	garbage   string // where the datagrams of anybody come to the far device
	heard     func() uint64
}

// paths are loopback, and a veth whose far end is in another namespace. The exchange is over loopback on both.
func paths(t *testing.T) []path {
	near, far, ns := nstest.VethIPv4(t)
	meet := host(3)
	return []path{
		{"udp", "udp:" + meet, "udp:" + host(4), meet, meet + ":4791", func() uint64 { return udpIn(t) }},
		{"packet", "packet:" + far + "?netns=" + ns, "packet:" + near, meet, nstest.Far4 + ":4791",
			func() uint64 { return nstest.Count(t, "", near).RxFrames }},
	}
}

// await waits until datagrams come back.
func (p *path) await(t *testing.T) {
	t.Helper()
	before := p.heard()
	for deadline := time.Now().Add(20 * time.Second); p.heard() < before+20; {
		if time.Now().After(deadline) {
			t.Fatal("no datagrams within 20 s")
		}
	}
}

// udpIn is how many datagrams this namespace has received.
func udpIn(t *testing.T) (n uint64) {
	t.Helper()
	for line := range strings.SplitSeq(string(read(t, "/proc/net/snmp")), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Udp:" && f[1] != "InDatagrams" {
			fmt.Sscan(f[1], &n)
		}
	}
	return n
}

// TestEveryDatagramIsAccountedFor: as many datagrams as go, and what was sent is what came and what was dropped by name,
// to the unit, by the reports of both processes. make million has a million of them.
func TestEveryDatagramIsAccountedFor(t *testing.T) {
	count := uint64(50_000)
	if text := os.Getenv("BLUERING_DATAGRAMS"); text != "" {
		var err error
		if count, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			srv := server(t, p.far, p.meet, "-o", "json")
			r := reportOf(t, "bw", p.near, p.meet, "-n", fmt.Sprint(count), "-i", "0", "--timeout", "2s") // which it waits for the last
			if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			srv.Wait() // with 143
			s := new(echo.Report)
			if err := json.Unmarshal(srv.Stdout.(*bytes.Buffer).Bytes(), s); err != nil {
				t.Fatal(err)
			}
			delete(s.Drops, engine.DropNoRule.String()) // of others: the kernel's own frames
			dropped := uint64(0)
			for _, drops := range []map[string]uint64{r.Drops, s.Drops} {
				for _, n := range drops {
					dropped += n
				}
			}
			if r.Sent != count || s.Received+dropped != r.Sent || r.Unique != s.Received || s.ServerTotal.Sunk != s.Received {
				t.Errorf("%d asked for, %d sent, %d came, %d by what the server told, dropped %v and %v", count, r.Sent, s.Received, r.Unique, r.Drops, s.Drops)
			}
			t.Logf("%d sent = %d received + %d dropped: %v %v", r.Sent, s.Received, dropped, r.Drops, s.Drops)
		})
	}
}

// reportOf runs the command to its good end.
func reportOf(t *testing.T, args ...string) *echo.Report {
	t.Helper()
	code, out, errs := runs(t, append(args, "-o", "json")...)
	r := new(echo.Report)
	if err := json.Unmarshal([]byte(out), r); err != nil || code != cli.OK {
		t.Fatalf("udecho %s: exit code %d, %v\n%s%s", strings.Join(args, " "), code, err, out, errs)
	}
	return r
}

// TestKilledPeers: whichever end is killed, and whatever comes to a server, the other is well.
func TestKilledPeers(t *testing.T) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) {
			srv := server(t, p.far, p.meet)
			endless := []string{"ping", p.near, p.meet, "-n", "100000000", "--timeout", "50ms", "-i", "0", "--event"}
			lossless := []string{"ping", p.near, p.meet, "-n", "200", "--timeout", "5s", "--event", "--assert", "loss==0"}
			client, _, _ := start(t, endless...)
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			p.await(t)
			client.Process.Kill()
			client.Wait()
			if code, _, errs := runs(t, lossless...); code != cli.OK {
				t.Errorf("after a client was killed: exit code %d: %s", code, errs)
			}
			flood(t, p.garbage)
			if code, _, errs := runs(t, lossless...); code != cli.OK {
				t.Errorf("after a flood: exit code %d: %s", code, errs)
			}
			ended := make(chan string, 1)
			go func() {
				code, out, errs := runs(t, endless...)
				ended <- fmt.Sprint(code, out, errs)
			}()
			p.await(t)
			srv.Process.Kill()
			srv.Wait()
			select {
			case got := <-ended:
				if !strings.HasPrefix(got, "1failed: the peer is gone") {
					t.Errorf("%s", got)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the client is still there")
			}
		})
	}
}

// TestADeviceThatGoes: a client says so, and not what its queues make of it.
func TestADeviceThatGoes(t *testing.T) {
	for _, mode := range [][]string{{"ping", "--event"}, {"ping", "-r", "2kpps"}} {
		p := paths(t)[1]
		server(t, p.far, p.meet)
		ended := make(chan string, 1)
		go func() {
			code, _, errs := runs(t, append(mode, p.near, p.meet, "-n", "100000000", "-i", "0", "--timeout", "200ms", "-o", "none")...)
			ended <- fmt.Sprint(code, " ", errs)
		}()
		p.await(t)
		nstest.Delete(t, "", strings.TrimPrefix(p.near, "packet:"))
		want := regexp.MustCompile(fmt.Sprintf(`^1 udecho: device %q: interface (is down|vanished)( \([a-z ]+\))?\n$`, p.near)) // it goes down, then it vanishes
		if got := <-ended; !want.MatchString(got) {
			t.Errorf("%v: %s, want %s", mode, got, want)
		}
	}
}

// TestLoopbackInterfaces: the kernel takes no datagrams from 127.0.0.1 that did not come from its own sockets.
func TestLoopbackInterfaces(t *testing.T) {
	nstest.Need(t)
	for _, args := range []string{"serve packet:lo --listen 127.0.0.1:0", "ping packet:lo 127.0.0.1:1"} {
		want := `device "packet:lo": 127.0.0.1 is a loopback address, and the kernel takes such datagrams from its own sockets only; use udp:127.0.0.1`
		if code, out, errs := runs(t, strings.Fields(args)...); code != cli.Usage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
}

// flood sends 20,000 datagrams of chance, half of which begin as RoCE does.
func flood(t *testing.T, to string) {
	t.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 1400)
	for range 20_000 {
		n := 20 + rng.IntN(len(buf)-20)
		for k := range buf[:n] {
			buf[k] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 {
			copy(buf, []byte{0x64, 0x40, 0xff, 0xff, 0, 0, 0, 0x40})
		}
		_, _ = c.Write(buf[:n]) // a kernel that has no room says so
	}
}

// TestSilentConnectionsShutNobodyOut: more of them than a server has places, from the client's own address, and who comes
// then is served at once.
func TestSilentConnectionsShutNobodyOut(t *testing.T) {
	p := paths(t)[0]
	server(t, p.far, p.meet)
	for range 600 {
		c, err := net.Dial("tcp", p.meet+":18515")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if code, _, errs := runs(t, "ping", p.near, p.meet, "-n", "200", "--timeout", "5s", "--event", "--assert", "loss==0"); code != cli.OK {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
