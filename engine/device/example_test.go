package device_test

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/clock"
)

// The string is the user's, the options are the program's. With a clock of its
// own a program decides what time it is in the recording.
func ExampleOpen() {
	var recording bytes.Buffer
	dev, err := device.Open("loop:example-open?speed=10gbps&profile=mlx5",
		device.Options{Clock: new(clock.Virtual), TapTo: &recording})
	if err != nil {
		fmt.Println(err)
		return
	}
	caps := dev.Caps()
	fmt.Println(caps.Name, caps.Kind, caps.Profile, caps.SpeedBPS)
	fmt.Println("closed:", dev.Close(), "recorded:", recording.Len() > 0)
	// Output:
	// loop:example-open loop mlx5 10000000000
	// closed: <nil> recorded: true
}

// An error names the part that is wrong and what is known there.
func ExampleOpen_errors() {
	_, err := device.Open("infiniband:mlx5_0", device.Options{})
	fmt.Println(errors.Is(err, device.ErrScheme), err)
	_, err = device.Open("loop:?profile=nice", device.Options{})
	fmt.Println(errors.Is(err, device.ErrParam), err)
	// Output:
	// true device: unknown scheme "infiniband" in "infiniband:mlx5_0"; known: loop:, packet:, xdp:, udp:, pcap:
	// true device: bad parameter: loop:?profile=nice: profile="nice": must be one of mlx5, rxe, strict
}

// What could be opened on this machine. The loop is always there.
func ExampleList() {
	list, err := device.List()
	if err != nil {
		fmt.Println(err)
	}
	var first device.Entry = list[0]
	fmt.Println(first.URI, first.MTU, first.Up, first.About)
	dev, err := device.Open(first.URI+"example-list", device.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	fmt.Println(dev.Caps().Profile == engine.ProfileStrict)
	// Output:
	// loop: 9000 true in-process switch, needs no privilege
	// true
}

// A program's --help lists the kinds of devices with their parameters.
func ExampleSchemes() {
	usage := func(s device.Scheme) string { return fmt.Sprintf("%-8s %s", s.Name, s.About) }
	for _, s := range device.Schemes() {
		fmt.Println(usage(s))
	}
	// Output:
	// loop     one port of an in-process switch with two ports
	// packet   a Linux network interface, through a packet socket (needs CAP_NET_RAW)
	// xdp      the same past the kernel's stack, through AF_XDP sockets (needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)
	// udp      RoCE v2 datagrams over an ordinary UDP socket on an address of this host, without privilege
	// pcap     a capture file: written, or replayed with ?mode=read
}
