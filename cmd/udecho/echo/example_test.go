package echo_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/udecho/echo"
)

// echoServer runs a server on one port of a loop and gives where its exchange is.
func echoServer(loop string) (addr string, end func() *echo.Report) {
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan *echo.Report, 1)
	go func() {
		r, err := echo.Serve(ctx, echo.Config{Device: loop, Listen: "127.0.0.1:0", Event: true, OnReady: func(a net.Addr) { ready <- a.String() }})
		if r == nil {
			fmt.Println(err)
		}
		ended <- r
	}()
	return <-ready, func() *echo.Report { stop(); return <-ended }
}

// Both ends in one process, on an in-process wire: every datagram is accounted
// for on both sides.
func ExamplePing() {
	const loop = "loop:example-ping?drop=1"
	addr, end := echoServer(loop)
	var c = echo.Config{Device: loop, Server: addr, Size: 64, Count: 1000, Event: true, Timeout: 5 * time.Second}
	r, err := echo.Ping(context.Background(), c)
	if err != nil {
		fmt.Println(err)
		return
	}
	var counts echo.Counts = r.Counts
	fmt.Println(r.Outcome, counts.Sent, counts.Unique, counts.Lost)
	fmt.Println("half and full round trip:", r.RTT.P50/2 == r.HalfRTT.P50)
	var own echo.Device = r.Device
	var peer *echo.Peer = r.Peer
	var asked echo.ConfigEcho = r.Config
	fmt.Println(own.GID, "to", peer.GID, "by", peer.Protocol, asked.Size, "bytes")
	a, err := echo.ParseAssert("loss==0")
	fmt.Println(results.AssertText(r.Judge(a)), err)
	var server *echo.ServerTotals = end().ServerTotal
	fmt.Println(server.Sessions, "session,", server.Answered, "answered,", server.Strangers, "of strangers")
	// Output:
	// complete 1000 1000 0
	// half and full round trip: true
	// 198.18.0.2 to 198.18.0.1 by native 64 bytes
	// PASS loss==0  (lost_datagrams is 0) <nil>
	// 1 session, 1000 answered, 0 of strangers
}

// What the peer counted is the measure of a one-way run.
func ExampleBW() {
	const loop = "loop:example-bw?drop=1"
	addr, end := echoServer(loop)
	defer end()
	r, err := echo.BW(context.Background(), echo.Config{Device: loop, Server: addr, Size: 1024, Count: 300, Event: true, Timeout: 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	var peer *echo.PeerCounts = r.PeerCounts
	fmt.Println(r.Sent, peer.Received, r.LossKnown, r.Lost == r.Sent-peer.Received)
	// Output:
	// 300 300 true true
}

// A probe stream for each source port. Progress comes as it goes.
func ExampleScan() {
	const loop = "loop:example-scan?drop=1"
	addr, end := echoServer(loop)
	defer end()
	ports, err := echo.ParsePorts("ports", "49152-49155")
	rate, _ := results.ParseRate("4kpps")
	c := echo.Config{Device: loop, Server: addr, Size: 32, Count: 400, Rate: rate, Ports: ports, Event: true, Timeout: 5 * time.Second}
	c.OnInterval = func(i *echo.Interval) { _ = i.Text() }
	r, err := echo.Scan(context.Background(), c)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range r.Paths {
		var path echo.Path = p
		fmt.Println(path.SourcePort, path.Sent, path.Lost)
	}
	w := echo.Writer{W: os.Stdout, Format: results.None}
	fmt.Println(w.Report(r))
	// Output:
	// 49152 100 0
	// 49153 100 0
	// 49154 100 0
	// 49155 100 0
	// <nil>
}
