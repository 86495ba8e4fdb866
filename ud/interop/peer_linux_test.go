package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/vmtest"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// peerVar makes the test binary our side of a run: a program that can have
// another user than the test.
const peerVar = "BLUERING_INTEROP_PEER"

func TestMain(m *testing.M) {
	if job := os.Getenv(peerVar); job != "" {
		if err := runPeer(strings.Fields(job)); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	vmtest.Main(m)
}

// A job of the peer:
//
//	serve DEVICE GID PROTOCOL echo|sink       until SIGTERM
//	ping  DEVICE GID PROTOCOL HOST SIZE COUNT
//	send  DEVICE GID PROTOCOL HOST SIZE COUNT
func runPeer(job []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dev, err := device.Open(job[1], device.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	gid := engine.GIDFromAddr(netip.MustParseAddr(job[2]))
	ep, err := ud.New(dev, ud.Config{GID: gid, SendDepth: 256, RecvDepth: 2048, PSN: 0xfffff0})
	if err != nil {
		return err
	}
	defer ep.Close()
	p, err := exchange.ByName(job[3])
	if err != nil {
		return err
	}
	if job[0] == "serve" {
		err = serve(ctx, ep, p, job[4] == "echo")
	} else {
		err = client(ctx, ep, p, job)
	}
	c := dev.Counters()
	fmt.Printf("user %d: %+v, %d outstanding, %d by the weak check, drops %v\n", os.Getuid(), ep.Counts(), ep.Outstanding(), c.WeakICRCs, c.Drops)
	return err
}

func serve(ctx context.Context, ep *ud.Endpoint, p exchange.Protocol, answer bool) error {
	l, err := ep.Listen(":"+strconv.Itoa(exchange.Port), ud.ListenConfig{Protocol: p})
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("ready")
	for {
		m, err := ep.Recv(ctx) // sleeping: the machine's processor is emulated and needs ours
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && answer {
			err = m.Reply(m.Data)
		}
		if err == nil {
			m.Release()
			err = ep.Commit()
		}
		if err != nil {
			return err
		}
	}
}

func client(ctx context.Context, ep *ud.Endpoint, p exchange.Protocol, job []string) error {
	size, _ := strconv.Atoi(job[5])
	count, _ := strconv.Atoi(job[6])
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r, err := ep.Dial(ctx, "["+job[4]+"]:"+strconv.Itoa(exchange.Port), p, exchange.Info{})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Session.Sync(ctx); err != nil {
		return err
	}
	pace := time.NewTicker(200 * time.Microsecond) // nobody can refuse a datagram: a slow receiver loses it
	defer pace.Stop()
	lost := 0
	for range count {
		buf, err := ep.Reserve(r.Peer, size)
		if err != nil {
			return err
		}
		for i := range buf {
			buf[i] = 0x7b // as ibv_ud_pingpong fills it
		}
		if err := ep.Commit(); err != nil {
			return err
		}
		if job[0] == "send" {
			ep.Poll(nil)
			<-pace.C
			continue
		}
		soon, cancel := context.WithTimeout(ctx, 10*time.Second)
		m, err := ep.Recv(soon)
		cancel()
		if err != nil {
			lost++
			continue
		}
		if len(m.Data) != size {
			return fmt.Errorf("an answer of %d bytes, want %d", len(m.Data), size)
		}
		m.Release()
	}
	if lost != 0 {
		return fmt.Errorf("%d of %d lost", lost, count)
	}
	return r.Session.Finish(ctx)
}
