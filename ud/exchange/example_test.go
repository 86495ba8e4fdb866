package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/bluering/bluering/ud/exchange"
)

// Two ends that share a connection tell each other their queue pairs. A server
// with ibv_ud_pingpong's or perftest's protocol has the programs of those names
// as clients.
func ExampleProtocol() {
	here, there := net.Pipe()
	ctx := context.Background()
	var p exchange.Protocol = exchange.Native{}
	served := make(chan error)
	go func() {
		var s *exchange.Session
		s, err := p.Server(ctx, there, func(theirs exchange.Info) (exchange.Info, error) {
			fmt.Printf("the server hears of %#x at %v, which wants %v\n", theirs.QPN, netip.AddrFrom16(theirs.GID).Unmap(), theirs.Mode)
			return exchange.Info{QPN: 0x22, GID: netip.MustParseAddr("192.0.2.2").As16(), MTU: 1024, QKey: 7}, nil
		})
		if err == nil {
			err = s.Serve(ctx, func() exchange.Counts { return exchange.Counts{Received: 1000} })
		}
		served <- err
	}()

	mine := exchange.Info{QPN: 0x11, GID: netip.MustParseAddr("192.0.2.1").As16(), MTU: 4096, QKey: exchange.DefaultQKey, Mode: exchange.ModeSink}
	s, err := p.Client(ctx, here, mine)
	fmt.Printf("the client hears of %#x, key %d, MTU %d: %v\n", s.Theirs.QPN, s.Theirs.QKey, s.Theirs.MTU, err)
	c, err := s.Counts(ctx)
	fmt.Println(c.Received, "received:", err)
	fmt.Println(s.Finish(ctx), <-served)
	// Output:
	// the server hears of 0x11 at 192.0.2.1, which wants sink
	// the client hears of 0x22, key 7, MTU 1024: <nil>
	// 1000 received: <nil>
	// <nil> <nil>
}

// The peers of other programs are named by what they speak, and refused with
// what they should have said.
func ExampleByName() {
	_, err := exchange.ByName("sockperf")
	fmt.Println(err)
	p, _ := exchange.ByName("pingpong")
	_, isPingpong := p.(exchange.Pingpong)
	perftest := exchange.Perftest{MTU: 4096}
	fmt.Println(isPingpong, perftest.Name())

	here, there := net.Pipe()
	go func() {
		there.Write([]byte("0002:000012:000000:00000000000000000000000000000000\x00"))
		there.Close()
	}()
	_, err = p.Server(context.Background(), here, nil)
	fmt.Println(errors.Is(err, exchange.ErrNoGID), err)
	// Output:
	// exchange: protocol "sockperf": want native, pingpong or perftest
	// true perftest
	// true exchange: pingpong: read the peer's address: the peer told no GID: start it with -g INDEX
}
