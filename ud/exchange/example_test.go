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

// A server keeps those who say nothing from shutting others out.
func ExampleLobby() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	var lobby exchange.Lobby
	served := make(chan error)
	serve := func(conn net.Conn) {
		defer conn.Close()
		defer lobby.Leave(conn)
		_, err := exchange.Pingpong{}.Server(context.Background(), conn, func(exchange.Info) (exchange.Info, error) {
			lobby.Leave(conn)
			return exchange.Info{QPN: 0x22, GID: netip.MustParseAddr("192.0.2.2").As16()}, nil
		})
		served <- err
	}
	for range exchange.LobbySource {
		net.Dial("tcp", l.Addr().String()) // and never a word
		conn, _ := l.Accept()
		lobby.Enter(conn)
		go serve(conn)
	}
	mine, _ := net.Dial("tcp", l.Addr().String())
	defer mine.Close()
	conn, _ := l.Accept()
	lobby.Enter(conn)
	fmt.Println("the oldest goes:", errors.Is(<-served, net.ErrClosed))
	go serve(conn)
	s, err := exchange.Pingpong{}.Client(context.Background(), mine, exchange.Info{QPN: 0x11, GID: netip.MustParseAddr("192.0.2.1").As16()})
	fmt.Printf("the newest hears of %#x: %v, %v\n", s.Theirs.QPN, err, <-served)
	// Output:
	// the oldest goes: true
	// the newest hears of 0x22: <nil>, <nil>
}
