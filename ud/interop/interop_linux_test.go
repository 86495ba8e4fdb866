package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/vmtest"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

const (
	iterations = 1000
	runTime    = 2 * time.Minute // of one program, on a machine that does much else
	size       = 64
)

func TestMain(m *testing.M) { vmtest.Main(m) }

// program is one of the C programs on kernel rxe.
type program struct {
	name     string
	protocol exchange.Protocol
	args     []string
	echo     bool
}

// programs all exchange their addresses, and those of their datagrams, over IPv4.
func programs(t *testing.T, vm *vmtest.Machine) []program {
	index, n := fmt.Sprint(vm.GIDIndex(t, "rxe0", vmtest.GuestAddr4)), fmt.Sprint(iterations)
	common := []string{"-d", "rxe0", "-e", "-n", n, "-s", fmt.Sprint(size)}
	perftest := append(common[:len(common):len(common)], "-c", "UD", "-F", "-x", index)
	return []program{
		{"ibv_ud_pingpong", exchange.Pingpong{}, append(common[:len(common):len(common)], "-g", index, "-r", "500"), true},
		{"ib_send_lat", exchange.Perftest{}, perftest, true},
		{"ib_send_bw", exchange.Perftest{}, append(perftest[:len(perftest):len(perftest)], "-r", n), false},
	}
}

// start starts the program as a server, or as a client of host.
func (p *program) start(vm *vmtest.Machine, host ...string) *vmtest.Process {
	line := append([]string{"stdbuf", "-oL", p.name}, p.args...) // what a killed one has printed counts
	return vm.Spawn(runTime, append(line, host...)...)
}

// ended fails the test unless the program ended well, which none of them does without its last datagram.
func (p *program) ended(t *testing.T, run *vmtest.Process, explain func() string) {
	t.Helper()
	out, exit, err := run.Wait()
	said := fmt.Sprintf("%d iters in", iterations)
	if p.name != "ibv_ud_pingpong" {
		said = fmt.Sprintf(" %d ", iterations)
	}
	if exit != 0 || err != nil || !strings.Contains(out, said) {
		t.Errorf("%s: exit %d, %v, want %q: %s\n%s", p.name, exit, err, said, out, explain())
	}
}

// Listen and Dial of this module's endpoints meet the C programs as Listen and Dial of their own kind, across the wrap
// of the packet sequence number, and nothing is lost. The command's test has devices, address families and sizes.
func TestKernelRXE(t *testing.T) {
	vm := vmtest.Start(t, vmtest.Config{Tap: true, RXE: true})
	dev, err := device.Open("packet:"+vm.Tap, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, p := range programs(t, vm) {
		ep, err := ud.New(dev, ud.Config{SendDepth: 256, RecvDepth: 2048, PSN: 0xfffff0})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(p.name+"/client", func(t *testing.T) {
			l, err := ep.Listen(fmt.Sprint(":", exchange.Port), ud.ListenConfig{Protocol: p.protocol})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			explain := vm.Watch(t, "rxe0")
			run := p.start(vm, vmtest.HostAddr4)
			received, sent := serve(t, ep, p.echo)
			p.ended(t, run, func() string { return explain(sent, received) })
		})
		t.Run(p.name+"/server", func(t *testing.T) {
			run := p.start(vm)
			vm.AwaitListener(t, runTime, run, exchange.Port)
			explain := vm.Watch(t, "rxe0")
			sent, received, err := ask(ep, p.protocol, p.echo)
			if err != nil {
				t.Errorf("%v\n%s", err, explain(sent, received))
				run.Kill()
			}
			p.ended(t, run, func() string { return explain(sent, received) })
		})
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
}

// serve takes, and answers, what a client sends.
func serve(t *testing.T, ep *ud.Endpoint, echo bool) (received, sent uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	for n := range iterations {
		m, err := ep.Recv(ctx) // sleeping: the machine's processor is emulated and needs ours
		if err == nil && echo {
			err = m.Reply(m.Data)
		}
		if err != nil {
			t.Errorf("datagram %d of %d: %v", n, iterations, err)
			return received, sent
		}
		m.Release()
		received++
		if err := ep.Commit(); err != nil {
			t.Error(err)
			return received, sent
		}
		if echo {
			sent++
		}
	}
	return received, sent
}

// ask sends to a server, and waits for each answer.
func ask(ep *ud.Endpoint, p exchange.Protocol, echo bool) (sent, received uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	r, err := ep.Dial(ctx, fmt.Sprintf("%s:%d", vmtest.GuestAddr4, exchange.Port), p, exchange.Info{})
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	if err := r.Session.Sync(ctx); err != nil {
		return 0, 0, err
	}
	pace := time.NewTicker(200 * time.Microsecond) // nobody can refuse a datagram: a slow receiver loses it
	defer pace.Stop()
	for n := range iterations {
		buf, err := ep.Reserve(r.Peer, size)
		if err != nil {
			return sent, received, err
		}
		for i := range buf {
			buf[i] = 0x7b // as ibv_ud_pingpong fills it
		}
		if err := ep.Commit(); err != nil {
			return sent, received, err
		}
		sent++
		if !echo {
			ep.Poll(nil)
			<-pace.C
			continue
		}
		m, err := ep.Recv(ctx)
		if err != nil {
			return sent, received, fmt.Errorf("answer %d of %d: %w", n, iterations, err)
		}
		received++
		if len(m.Data) != size {
			return sent, received, fmt.Errorf("answer %d has %d bytes, want %d", n, len(m.Data), size)
		}
		m.Release()
	}
	return sent, received, errors.Join(r.Session.Finish(ctx), r.Close())
}
