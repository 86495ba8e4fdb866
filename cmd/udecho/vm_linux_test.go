package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/udecho/echo"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/vmtest"
)

const (
	vmCount = 1000
	vmTime  = 2 * time.Minute // of one program, on a machine that does much else
)

// TestPeersInAMachine: the programs on kernel rxe as the command's clients and servers. Package ud/interop has all sizes
// and both address families; this is the command.
func TestPeersInAMachine(t *testing.T) {
	vm := vmtest.Start(t, vmtest.Config{Tap: true, RXE: true})
	for _, device := range []string{"udp:" + vmtest.HostAddr4, "packet:" + vm.Tap} {
		for _, p := range []struct {
			program, protocol, command, mode, rate string
			size                                   int
		}{
			{"ibv_ud_pingpong", "pingpong", "ping", "echo", "max", 1024},
			{"ib_send_lat", "perftest", "ping", "echo", "max", 64},
			{"ib_send_bw", "perftest", "bw", "sink", "1kpps", 1024}, // it waits for all, so none may be lost in the machine
		} {
			index := fmt.Sprint(vm.GIDIndex(t, "rxe0", vmtest.GuestAddr4))
			theirs := []string{p.program, "-d", "rxe0", "-s", fmt.Sprint(p.size), "-n", fmt.Sprint(vmCount)}
			ours := []string{"--exchange", p.protocol, "--event", "-o", "json"}
			if p.protocol == "pingpong" {
				theirs = append(theirs, "-g", index)
			} else {
				theirs = append(theirs, "-c", "UD", "-x", index, "-F", "-r", fmt.Sprint(vmCount))
			}
			t.Run(fmt.Sprintf("%s %s size %d", device, p.program, p.size), func(t *testing.T) {
				t.Run("client", func(t *testing.T) {
					ended := make(chan *echo.Report, 1)
					go func() {
						ended <- reportOf(t, append([]string{"serve", device, "-n", "1", "--idle", "2s", "--mode", p.mode}, ours...))
					}()
					awaitListener(t)
					vm.Run(t, vmTime, append(theirs, vmtest.HostAddr4)...)
					r := <-ended
					delete(r.Drops, engine.DropNoRule.String()) // what the kernel says to the machine, which a packet socket sees
					if s := r.ServerTotal; r.Received != vmCount || p.mode == "echo" && s.Answered != vmCount || s.Strangers != 0 || len(r.Drops) != 0 {
						t.Errorf("%s", r.Text())
					}
				})
				t.Run("server", func(t *testing.T) {
					server := vm.Spawn(vmTime, theirs...)
					const script = "for i in $(seq 1000); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.05; done; exit 1"
					if _, exit, err := vm.Spawn(vmTime, "sh", "-c", script).Wait(); exit != 0 || err != nil {
						t.Fatalf("the program does not listen: exit %d, %v", exit, err)
					}
					r := reportOf(t, append([]string{p.command, device, vmtest.GuestAddr4, "-s", fmt.Sprint(p.size), "-n", fmt.Sprint(vmCount), "-i", "0", "-r", p.rate, "--timeout", "10s"}, ours...))
					if r.Sent != vmCount || p.command == "ping" && (r.Unique != vmCount || r.Foreign != 0) {
						t.Errorf("%s", r.Text())
					}
					if out, exit, err := server.Wait(); exit != 0 || err != nil {
						t.Errorf("exit %d, %v: %s", exit, err, out)
					}
				})
			})
		}
	}
}

// reportOf runs the command to its end.
func reportOf(t *testing.T, args []string) *echo.Report {
	t.Helper()
	code, out, errs := runs(t, args...)
	r := new(echo.Report)
	if err := json.Unmarshal([]byte(out), r); err != nil || code != cli.OK {
		t.Errorf("udecho %s: exit code %d, %v\n%s%s", strings.Join(args, " "), code, err, out, errs)
		r.ServerTotal = new(echo.ServerTotals)
	}
	return r
}

// awaitListener waits until the exchange's port is listened to.
func awaitListener(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			for line := range strings.SplitSeq(string(read(t, file)), "\n") {
				if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], ":4853") && f[3] == "0A" {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("udecho does not listen")
		}
	}
}
