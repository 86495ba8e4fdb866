package ud

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/bluering/bluering/ud/exchange"
)

// echo answers everything until stop is called.
func echo(t testing.TB, e *Endpoint) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			for m := range e.Messages {
				if err := m.Reply(m.Data); err != nil {
					t.Errorf("answer: %v", err)
				}
			}
			if err := e.Commit(); err != nil {
				t.Errorf("answers: %v", err)
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestDialAndListenByEachProtocol(t *testing.T) {
	for _, p := range exchange.Protocols() {
		t.Run(p.Name(), func(t *testing.T) {
			eachWire(t, Config{PSN: 5}, Config{}, func(t *testing.T, a, b *Endpoint, _, _ Peer) {
				ctx, cancel := context.WithTimeout(context.Background(), within)
				defer cancel()
				l, err := b.Listen("127.0.0.1:0", ListenConfig{Protocol: p, Counts: func(*Remote) exchange.Counts { return exchange.Counts{Received: 7} }})
				check(t, err)
				defer l.Close()
				defer echo(t, b)()
				r, err := a.Dial(ctx, l.Addr().String(), p, exchange.Info{})
				check(t, err)
				check(t, r.Session.Sync(ctx))
				for range 10 {
					check(t, a.Send(r.Peer, []byte("ping")))
					m, err := a.RecvSpin(within)
					if err != nil || string(m.Data) != "ping" {
						t.Fatalf("%q, %v", m.Data, err)
					}
					m.Release()
				}
				theirs, err := l.Accept(ctx)
				check(t, err)
				if theirs.Addr != a.LocalAddr() || r.Addr != b.LocalAddr() {
					t.Errorf("they are %v, %v", theirs.Addr, r.Addr)
				}
				if c, err := r.Session.Counts(ctx); p.Name() == "native" && c.Received != 7 {
					t.Errorf("counts %+v, %v", c, err)
				}
				check(t, r.Session.Finish(ctx))
				check(t, r.Close())
				check(t, r.Close())
				if p.Name() != "pingpong" {
					<-theirs.Done()
				}
				check(t, l.Close())
				check(t, l.Close())
			})
		})
	}
}

// Clients that say nothing, or nonsense, or vanish, hold nobody up.
func TestAListenerOutlivesItsClients(t *testing.T) {
	a, b, _, _ := pair(t, "loop:TEST", "loop:TEST", Config{}, Config{})
	l, err := b.Listen("127.0.0.1:0", ListenConfig{})
	check(t, err)
	defer l.Close()
	for i := range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		defer c.Close()
		switch i % 3 {
		case 0:
			c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		case 1:
			c.Close()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for range 3 {
		r, err := a.Dial(ctx, l.Addr().String(), nil, exchange.Info{})
		check(t, err)
		check(t, r.Close())
	}
	ended, stop := context.WithTimeout(context.Background(), time.Nanosecond)
	defer stop()
	if _, err := a.Dial(ended, l.Addr().String(), nil, exchange.Info{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	check(t, l.Close())
	if _, err := a.Dial(ctx, l.Addr().String(), nil, exchange.Info{}); err == nil {
		t.Error("a closed listener answers")
	}
	_, err = l.Accept(ctx)
	if err == nil {
		_, err = l.Accept(ctx) // one that waited
	}
	for err == nil {
		_, err = l.Accept(ctx)
	}
	wantErr(t, err, ErrClosed)
}

func TestTwoRemotesOfOneAddressAreCountedApart(t *testing.T) {
	a, b, toB, _ := pair(t, "loop:TEST", "loop:TEST", Config{}, Config{})
	l, err := b.Listen("127.0.0.1:0", ListenConfig{})
	check(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	a.Forget(toB)
	r1, err := a.Dial(ctx, l.Addr().String(), nil, exchange.Info{})
	check(t, err)
	r2, err := a.Dial(ctx, l.Addr().String(), nil, exchange.Info{})
	check(t, err)
	check(t, r1.Close())
	check(t, a.Send(r2.Peer, []byte("still there")))
	check(t, r2.Close())
	wantErr(t, a.Send(r2.Peer, nil), ErrPeer)
}

// patient is a protocol whose server waits for the first byte as long as it takes.
type patient struct{ exchange.Native }

type begun struct {
	net.Conn
	r io.Reader
}

func (b begun) Read(p []byte) (int, error) { return b.r.Read(p) }

func (p patient) Server(ctx context.Context, c net.Conn, accept func(exchange.Info) (exchange.Info, error)) (*exchange.Session, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, err
	}
	return p.Native.Server(ctx, begun{c, io.MultiReader(bytes.NewReader(first), c)}, accept)
}

// More connections than a listener lets in at a time, and never a word on any of them.
func TestSilentConnectionsHoldNobodyUp(t *testing.T) {
	a, b, _, _ := pair(t, "loop:"+t.Name(), "loop:"+t.Name(), Config{}, Config{})
	l, err := b.Listen("127.0.0.1:0", ListenConfig{Protocol: patient{}})
	check(t, err)
	defer l.Close()
	for range 600 {
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := a.Dial(ctx, l.Addr().String(), nil, exchange.Info{})
	check(t, err)
	check(t, r.Close())
}
