package ud

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/ud/exchange"
)

// childVar makes the test binary an echo server on a device.
const childVar = "BLUERING_UD_CHILD"

func init() {
	if uri := os.Getenv(childVar); uri != "" {
		fmt.Println("error:", runChild(uri))
		os.Exit(1)
	}
}

func runChild(uri string) error {
	d, err := device.Open(uri, device.Options{})
	if err != nil {
		return err
	}
	e, err := New(d, Config{})
	if err != nil {
		return err
	}
	l, err := e.Listen("127.0.0.1:0", ListenConfig{})
	if err != nil {
		return err
	}
	fmt.Println("listening", l.Addr())
	for {
		m, err := e.Recv(context.Background())
		if err != nil {
			return err
		}
		if err = m.Reply(m.Data); err == nil {
			err = e.Commit()
		}
		if err != nil && !errors.Is(err, ErrUnresolved) {
			return err
		}
	}
}

// startChild starts an echo server and gives where it listens, and how to kill it.
func startChild(t *testing.T, uri string) (addr string, kill func()) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), childVar+"="+uri)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	check(t, err)
	runtime.LockOSThread() // the child dies with this thread
	check(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if !ok {
		t.Fatalf("the other side said %q, %v", line, err)
	}
	kill = sync.OnceFunc(func() {
		check(t, c.Process.Kill())
		_ = c.Wait() // it was killed
		runtime.UnlockOSThread()
	})
	t.Cleanup(kill)
	return addr, kill
}

// A side that dies takes nothing with it: datagrams to it are lost, and the
// endpoint talks to the next one.
func TestTheOtherSideIsKilled(t *testing.T) {
	e := newEndpoint(t, openDevice(t, "udp:127.0.0.1"), Config{SendDepth: 8, RecvDepth: 8})
	ctx, cancel := context.WithTimeout(context.Background(), 3*within)
	defer cancel()
	for range 3 {
		addr, kill := startChild(t, "udp:127.0.0.2")
		r, err := e.Dial(ctx, addr, nil, exchange.Info{})
		check(t, err)
		for range 50 {
			check(t, e.Send(r.Peer, []byte("alive?")))
			for answered := false; !answered; {
				m, err := e.RecvSpin(within)
				check(t, err)
				switch string(m.Data) {
				case "alive?":
					answered = true
				case "in flight": // from the one before
				default:
					t.Fatalf("answer %q", m.Data)
				}
				m.Release()
			}
		}
		for range 5 {
			check(t, e.Send(r.Peer, []byte("in flight")))
		}
		kill()
		for range 200 { // more than there are slots: what is sent to nobody is sent
			if err := e.Send(r.Peer, []byte("anybody?")); err != nil {
				t.Fatalf("a send after the other side died: %v", err)
			}
		}
		for err := error(nil); err == nil; { // answers that were on their way
			var m Msg
			if m, err = e.RecvSpin(5 * time.Millisecond); err != nil {
				wantErr(t, err, ErrTimeout)
			}
			m.Release()
		}
		check(t, e.Err())
		check(t, r.Close())
	}
	if c := e.Counts(); c.SendErrors != 0 || c.RecvErrors != 0 {
		t.Errorf("counts %+v", c)
	}
}
