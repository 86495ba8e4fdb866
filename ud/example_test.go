package ud_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// open gives an endpoint on a device. With "udp:192.0.2.1", or "packet:eth1",
// the examples are the same.
func open(uri string, c ud.Config) (*ud.Endpoint, *engine.Device) {
	dev, err := device.Open(uri, device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ep, err := ud.New(dev, c)
	if err != nil {
		log.Fatal(err)
	}
	return ep, dev
}

// A batch of datagrams there, and each of them back out of the memory that it
// came in.
func ExampleEndpoint() {
	a, da := open("loop:example-ud", ud.Config{SendDepth: 16, RecvDepth: 16})
	b, db := open("loop:example-ud", ud.Config{SendDepth: 16, RecvDepth: 16})
	var to ud.Peer
	to, err := a.Peer(context.Background(), b.LocalAddr())
	if err != nil {
		log.Fatal(err)
	}
	for i := range uint64(3) {
		buf, err := a.Reserve(to, 8)
		if err != nil {
			log.Fatal(err)
		}
		binary.BigEndian.PutUint64(buf, i)
	}
	if err := a.Commit(); err != nil { // one doorbell
		log.Fatal(err)
	}

	for m := range b.Messages {
		if err := m.Reply(append(m.Data, " back"...)); err != nil {
			log.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		log.Fatal(err)
	}

	msgs := make([]ud.Msg, 8)
	for got := 0; got < 3; {
		n := a.Poll(msgs)
		for _, m := range msgs[:n] {
			fmt.Printf("%d%s\n", binary.BigEndian.Uint64(m.Data), m.Data[8:])
			m.Release()
		}
		got += n
	}
	var c ud.Counts = b.Counts()
	fmt.Println(c.Received, "received,", c.ReceivedBytes, "bytes")
	fmt.Println(errors.Join(a.Close(), b.Close(), da.Close(), db.Close()))
	// Output:
	// 0 back
	// 1 back
	// 2 back
	// 3 received, 24 bytes
	// <nil>
}

// A question with a number beside its bytes; the answer is waited for a while,
// and a lost one is an error, not a hang.
func ExampleEndpoint_RecvSpin() {
	a, da := open("loop:example-spin", ud.Config{Inline: 64})
	b, db := open("loop:example-spin", ud.Config{})
	to, err := a.Peer(context.Background(), b.LocalAddr())
	if err != nil {
		log.Fatal(err)
	}
	buf, err := a.ReserveWith(to, 5, ud.SendOptions{Imm: 42, HasImm: true})
	if err != nil {
		log.Fatal(err)
	}
	copy(buf, "hello")
	if err := a.Commit(); err != nil {
		log.Fatal(err)
	}
	var m ud.Msg
	m, err = b.RecvSpin(time.Second)
	if err != nil {
		log.Fatal(err)
	}
	from, err := m.From()
	fmt.Printf("%s %d, from the right one: %v %v\n", m.Data, m.Imm, from == a.LocalAddr(), err)
	m.Release()
	_, err = a.RecvSpin(time.Millisecond)
	fmt.Println(errors.Is(err, ud.ErrTimeout))
	fmt.Println(errors.Join(a.Close(), b.Close(), da.Close(), db.Close()))
	// Output:
	// hello 42, from the right one: true <nil>
	// true
	// <nil>
}

// An address is a value: it can be compared, be the key of a map, be written
// and read.
func ExampleAddr() {
	a := ud.Addr{GID: engine.GIDFromAddr(netip.MustParseAddr("192.0.2.2")), QPN: 0x11, QKey: ud.DefaultQKey}
	fmt.Println(a)
	path := a
	path.Flow = 7 // another way through the network
	fmt.Println(path, path == a)
	b, err := ud.ParseAddr("192.0.2.2/0x11")
	fmt.Println(a == b, err)
	fmt.Println(ud.GroupAddr(netip.MustParseAddr("ff0e::5"), 1))
	// Output:
	// 192.0.2.2/0x000011/0x11111111
	// 192.0.2.2/0x000011/0x11111111/flow=7 false
	// true <nil>
	// ff0e::5/0xffffff/0x00000001
}

// Two programs find each other by HOST:PORT; here both are one. The protocol may
// be that of ibv_ud_pingpong or perftest instead.
func ExampleEndpoint_Dial() {
	a, da := open("loop:example-dial", ud.Config{})
	b, db := open("loop:example-dial", ud.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var server *ud.Listener
	server, err := b.Listen("127.0.0.1:0", ud.ListenConfig{
		Counts: func(r *ud.Remote) exchange.Counts { return exchange.Counts{Received: 1} }, // what a client may ask for
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err := a.Dial(ctx, server.Addr().String(), nil, exchange.Info{Mode: exchange.ModeEcho})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Send(r.Peer, []byte("found you")); err != nil {
		log.Fatal(err)
	}
	m, err := b.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m.Data)
	counts, err := r.Session.Counts(ctx)
	fmt.Println(counts.Received, err)
	fmt.Println(errors.Join(r.Close(), server.Close(), a.Close(), b.Close(), da.Close(), db.Close()))
	// Output:
	// found you
	// 1 <nil>
	// <nil>
}

// Drop-in use: a net.PacketConn whose addresses are ud.Addr, and a net.Conn with
// one address at its other end.
func ExamplePacketConn() {
	a, da := open("loop:example-packetconn", ud.Config{})
	b, db := open("loop:example-packetconn", ud.Config{})
	var pc *ud.PacketConn = ud.NewPacketConn(a)
	var conn *ud.Conn = ud.NewPacketConn(b).Connect(a.LocalAddr())
	if _, err := fmt.Fprint(conn, "hello"); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 100)
	n, from, err := pc.ReadFrom(buf)
	fmt.Printf("%s %v %v\n", buf[:n], from == conn.LocalAddr(), err)
	if err := pc.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	_, _, err = pc.ReadFrom(buf)
	fmt.Println(errors.Is(err, os.ErrDeadlineExceeded))
	fmt.Println(errors.Join(conn.Close(), pc.Close(), da.Close(), db.Close()))
	// Output:
	// hello true <nil>
	// true
	// <nil>
}

// Two endpoints with one set of buffers, one of which sleeps until a completion
// of its own wakes it.
func ExampleSharedReceive() {
	a, da := open("loop:example-shared", ud.Config{})
	db, err := device.Open("loop:example-shared", device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := ud.NewSharedReceive(db, 64, 0)
	if err != nil {
		log.Fatal(err)
	}
	var ends [2]*ud.Endpoint
	for i, w := range []ud.Wakes{ud.WakeByDevice, ud.WakeByEvent} {
		if ends[i], err = ud.New(db, ud.Config{Shared: s, Wakes: w}); err != nil {
			log.Fatal(err)
		}
		to, err := a.Peer(context.Background(), ends[i].LocalAddr())
		if err != nil {
			log.Fatal(err)
		}
		if err := a.Send(to, fmt.Append(nil, "to ", i)); err != nil {
			log.Fatal(err)
		}
	}
	for _, e := range ends {
		m, err := e.Recv(context.Background())
		fmt.Printf("%s %v\n", m.Data, err)
		m.Release()
	}
	fmt.Println(errors.Join(s.Close(), ends[0].Close(), ends[1].Close(), a.Close(), da.Close(), db.Close()))
	// Output:
	// to 0 <nil>
	// to 1 <nil>
	// <nil>
}
