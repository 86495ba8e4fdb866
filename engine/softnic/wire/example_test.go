package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// send puts n frames of 60 bytes with their numbers on a wire.
func send(w wire.Wire, n int) {
	for i := range n {
		bufs := make([][]byte, 1)
		if w.Reserve([]int32{60}, bufs) == 0 {
			log.Fatal("the wire is full")
		}
		clear(bufs[0])
		copy(bufs[0], []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, byte(i)})
		w.Commit(1)
	}
	check(w.Flush())
}

func loop(name string) (a, b wire.Wire) {
	a, err := wire.OpenLoop(wire.LoopOptions{Name: name})
	check(err)
	b, err = wire.OpenLoop(wire.LoopOptions{Name: name})
	check(err)
	return a, b
}

// Frames go in at one end of a loop and come out at the other. Between Next
// and Release they are read where they lie.
func ExampleWire() {
	a, b := loop("example-wire")
	defer a.Close()
	defer b.Close()
	var info wire.Info = a.Info()
	fmt.Println(info.Name, "MTU", info.MTU, "leaves this process:", !info.Loop)
	send(a, 3)

	frames := make([]wire.Frame, 8)
	n := b.Next(frames)
	for i := range frames[:n] {
		fmt.Println(len(frames[i].Data), "bytes, number", frames[i].Data[14])
	}
	b.Release(n)
	var s wire.Stats
	b.Stats(&s)
	fmt.Println(s.RxFrames, "received,", s.RxBytes, "bytes, then", b.Next(frames))
	// Output:
	// loop:example-wire MTU 9000 leaves this process: false
	// 60 bytes, number 0
	// 60 bytes, number 1
	// 60 bytes, number 2
	// 3 received, 180 bytes, then 0
}

// The words behind a device string become options. What is not known is an
// error that says what is.
func ExampleParseLoop() {
	v, err := url.ParseQuery("speed=10gbps&queue=100&loss=0.01&seed=7")
	check(err)
	o, err := wire.ParseLoop("lab", v)
	check(err)
	var impaired wire.Impairs = o.Impair
	fmt.Println(o.Name, o.SpeedBPS, o.Queue, impaired.Loss, impaired.Seed, impaired.Any(), o.HardwareDrop())

	_, err = wire.ParseLoop("lab", url.Values{"sped": {"10gbps"}})
	fmt.Println(errors.Is(err, wire.ErrParam), err)
	// Output:
	// lab 10000000000 100 0.01 7 true true
	// true wire: bad parameter: loop:lab knows no parameter "sped"; it knows capacity, corrupt, delay, drop, dup, ip4, ip6, jitter, loss, mac, mtu, queue, reorder, seed, speed
}

// An interface of the kernel. Opening it needs CAP_NET_RAW, reading its
// parameters does not.
func ExampleParsePacket() {
	o, err := wire.ParsePacket("eth0", url.Values{"send": {"ring"}, "netns": {"blue"}, "promisc": {"0"}, "ring": {"16MiB"}})
	check(err)
	var how wire.SendMethod = o.Send
	fmt.Println(how == wire.SendRing, how, o.NetNS, o.NoPromisc, o.RingBytes)
	_, err = wire.OpenPacket("no-such-if", wire.PacketOptions{SendOnly: true})
	fmt.Println("opened:", err == nil)
	// Output:
	// true ring blue true 16777216
	// opened: false
}

// RoCE v2 datagrams over a UDP socket, which any user may open. The wire sends
// from port 4791 only and carries nothing else.
func ExampleParseUDP() {
	o, err := wire.ParseUDP("127.0.0.1", url.Values{"gso": {"0"}, "weakicrc": {"0"}, "rcvbuf": {"1MiB"}})
	check(err)
	var mode wire.GSOMode = o.GSO
	fmt.Println(mode == wire.GSOOff, o.StrictID, o.RecvBuf)
	_, err = wire.OpenUDP("0.0.0.0", o)
	fmt.Println(err)
	// Output:
	// true true 1048576
	// wire: bad parameter: udp:0.0.0.0: want one unicast IPv4 or IPv6 address of this host
}

// What one wire writes to a file another replays.
func ExampleOpenPCAP() {
	dir, err := os.MkdirTemp("", "wire")
	check(err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run.pcap")
	out, err := wire.OpenPCAP(path, wire.PCAPOptions{})
	check(err)
	send(out, 2)
	check(out.Close())

	in, err := wire.OpenPCAP(path, wire.PCAPOptions{Read: true})
	check(err)
	defer in.Close()
	frames := make([]wire.Frame, 8)
	n := in.Next(frames)
	fmt.Println(n, "frames, the last is number", frames[n-1].Data[14])
	in.Release(n)
	fmt.Println(in.Reserve([]int32{60}, make([][]byte, 1)), errors.Is(in.Flush(), wire.ErrReadOnly))
	// Output:
	// 2 frames, the last is number 1
	// 0 true
}

// A tap records what passes in both directions, for Wireshark.
func ExampleNewTap() {
	a, b := loop("example-tap")
	defer b.Close()
	var recording bytes.Buffer
	var tap *wire.Tap
	tap, err := wire.NewTap(a, &recording, new(clock.Virtual))
	check(err)
	send(tap, 2) // out
	send(b, 1)   // in
	tap.Release(tap.Next(make([]wire.Frame, 8)))
	fmt.Println(tap.Recorded(), "frames recorded,", tap.RecordErr())
	fmt.Println("closed:", tap.Close(), "a pcapng file:", bytes.HasPrefix(recording.Bytes(), []byte{0x0a, 0x0d, 0x0d, 0x0a}))
	// Output:
	// 3 frames recorded, <nil>
	// closed: <nil> a pcapng file: true
}

// A wire past the kernel's stack says what it needs, and what works without.
func ExampleOpenXDP() {
	o := wire.XDPOptions{Queues: 1, Mode: wire.XDPGeneric, ZeroCopy: wire.ZeroCopyOff}
	_, err := wire.OpenXDP("no-such-if", o)
	fmt.Println(o.Mode, o.ZeroCopy, err != nil)
	var mode wire.XDPMode
	var zero wire.ZeroCopy
	fmt.Println(mode, zero)
	// Output:
	// generic off true
	// auto auto
}

// Only a wire that leaves the cutting to others takes more than a frame.
func ExampleSuper() {
	a, b := loop("example-super")
	defer a.Close()
	defer b.Close()
	var super wire.Super
	super, ok := a.(wire.Super)
	fmt.Println(ok, super == nil)
	// Output:
	// false true
}

// An impaired end loses, doubles and delays what it receives, and counts it.
// The same seed does the same each time.
func ExampleNewImpair() {
	a, b := loop("example-impair")
	defer a.Close()
	clk := new(clock.Virtual)
	var worse *wire.Impair
	worse, err := wire.NewImpair(b, wire.Impairs{Loss: 0.3, Dup: 0.3, Delay: time.Millisecond, Seed: 1}, clk)
	check(err)
	defer worse.Close()
	send(a, 10)

	frames := make([]wire.Frame, 32)
	early := worse.Next(frames)
	clk.Advance(int64(time.Millisecond))
	n := worse.Next(frames)
	var s wire.Stats
	worse.Release(n)
	worse.Stats(&s)
	fmt.Println(early, "at once,", n, "after the delay")
	fmt.Println(10-s.ImpairLost+s.ImpairDuplicated == uint64(n), "lost", s.ImpairLost, "doubled", s.ImpairDuplicated)
	// Output:
	// 0 at once, 11 after the delay
	// true lost 2 doubled 3
}

// A loop is a network of two hosts; a tap on it hides that from nobody.
func ExampleNetworkOf() {
	a, b := loop("example-network")
	defer b.Close()
	tap, err := wire.NewTap(a, io.Discard, nil)
	check(err)
	defer tap.Close()
	var n wire.Network = wire.NetworkOf(tap)
	fmt.Println(n.Addrs())
	mac, err := n.NextHop(context.Background(), b.Info().Addr4)
	fmt.Printf("%x %v\n", mac, err)
	_, err = n.NextHop(context.Background(), netip.MustParseAddr("192.0.2.1"))
	fmt.Println(errors.Is(err, syscall.EHOSTUNREACH))
	// Output:
	// [198.18.0.1 2001:2::1]
	// 020000000002 <nil>
	// true
}

// A wire whose frames stand in one piece of memory takes and gives them there,
// with no slice for each.
func ExampleSpans() {
	a, b := loop("example-spans")
	defer a.Close()
	defer b.Close()
	var out, in wire.Spans = a.(wire.Spans), b.(wire.Spans)

	lens := []int32{60, 100, 64}
	window := out.Window(lens[0])
	at := 0
	for i, n := range lens {
		copy(window[at:], []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, byte(i)})
		at += (int(n) + wire.SpanBytes - 1) / wire.SpanBytes * wire.SpanBytes
	}
	out.Place(lens, 60+100+64)
	check(a.Flush())

	mem, frames := in.Arrived(8)
	for i := range frames {
		var s *wire.Span = &frames[i]
		off, n := s.In(mem)
		fmt.Println("frame", mem[off+14], "of", n, "bytes")
	}
	b.Release(len(frames))
	// Output:
	// frame 0 of 60 bytes
	// frame 1 of 100 bytes
	// frame 2 of 64 bytes
}

// Who sends through a wire that lends memory asks for it, and copies where there
// is none.
func ExampleLender() {
	a, b := loop("example-lender")
	defer a.Close()
	defer b.Close()
	passed := 0
	lender, ok := a.(wire.Lender) // xdp: is one
	if ok {
		if mem := lender.Lend(4096); mem != nil {
			at, _ := lender.Lent(mem)
			passed = lender.Pass([]uint64{at}, []int32{60}) // and Returned tells when mem may be written again
		}
	}
	if passed == 0 {
		send(a, 1)
	}
	check(a.Flush())
	fmt.Println("lends:", ok, "pending:", a.Pending())
	// Output:
	// lends: false pending: 0
}
