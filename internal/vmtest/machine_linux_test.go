package vmtest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// One machine proves the harness: commands with their exit codes and time
// limits, and kernel rxe talking to itself. The wire has carried IPv4 and IPv6 when Start returns.
func TestMachine(t *testing.T) {
	m := Start(t, Config{Tap: true, RXE: true})
	t.Run("commands have exit codes and limited time", func(t *testing.T) {
		if out, exit, err := m.Spawn(step, "sh", "-c", "echo out; echo err >&2; exit 7").Wait(); exit != 7 || err != nil || !strings.Contains(out, "out") || !strings.Contains(out, "err") {
			t.Errorf("%q, exit %d, %v", out, exit, err)
		}
		if _, exit, err := m.Spawn(time.Second, "sleep", "1000").Wait(); exit != -1 || err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("a sleeper ended with %d, %v", exit, err)
		}
		if _, exit, err := m.Spawn(step, "no-such-program").Wait(); exit != -1 || err == nil {
			t.Errorf("a program that is not there ended with %d, %v", exit, err)
		}
		if _, _, err := m.ask(request{Port: 1, Argv: []string{"port 1"}, Timeout: 50}).Wait(); err == nil {
			t.Error("somebody listens to port 1")
		}
		p := m.Spawn(step, "sh", "-c", "echo here; sleep 1000")
		if !p.WaitOutput("here") {
			t.Error("no output")
		}
		p.Kill()
		if _, exit, err := p.Wait(); exit != -1 || err == nil {
			t.Errorf("a killed command ended with %d, %v", exit, err)
		}
	})
	t.Run("rxe talks to itself", func(t *testing.T) {
		for _, a := range []string{GuestAddr4, GuestAddr6} {
			args := []string{"ibv_ud_pingpong", "-d", "rxe0", "-g", fmt.Sprint(m.GIDIndex(t, "rxe0", a)), "-e", "-n", "10", "-s", "64"}
			before := m.RXECounters(t, "rxe0")["rcvd_pkts"]
			server := m.Spawn(step, args...)
			client := append(args, GuestAddr4)
			m.AwaitListener(t, step, server, 18515)
			if out := m.Run(t, step, client...); !strings.Contains(out, "10 iters in") {
				t.Errorf("client said %q", out)
			}
			if out, exit, err := server.Wait(); exit != 0 || !strings.Contains(out, "10 iters in") {
				t.Errorf("server: exit %d, %v: %q", exit, err, out)
			}
			if n := m.RXECounters(t, "rxe0")["rcvd_pkts"] - before; n != 20 {
				t.Errorf("rxe received %d packets, want 20", n)
			}
		}
	})
}
