package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/raw"
)

// runPlainStream sends a stream whose packets are all alike and receives it, in one goroutine: what is left of
// pktgen's work when nothing is written and nothing is looked at.
func runPlainStream(ctx context.Context, b *bench) (s sample, err error) {
	s.command = fmt.Sprintf("in process, cpu %d: raw.Stream without tag and fields on loop:, Send of %d, RxQueue.Poll and Release", b.cpu, burst)
	var ports [2]*raw.Port
	for i, c := range []raw.PortConfig{{RxQueues: -1}, {TxQueues: -1}} {
		d, err := device.Open(fmt.Sprintf("loop:peers%d", b.runs), device.Options{})
		if err != nil {
			return s, err
		}
		defer d.Close() // after the port, whose Close tells what is wrong
		if ports[i], err = raw.NewPort(d, c); err != nil {
			return s, err
		}
		defer ports[i].Close()
	}
	t, err := udpTemplate(ports[0].Caps().MAC, ports[1].Caps().MAC)
	if err != nil {
		return s, err
	}
	stream, err := ports[0].Tx(0).NewStream(t, raw.StreamConfig{})
	if err != nil {
		return s, err
	}
	rx, frames := ports[1].Rx(0), make([]raw.RxFrame, burst)
	err = pinned(b.cpu, func() error {
		return s.repeat(ctx, b.window, func() (received int, err error) {
			for range between {
				if _, err := stream.Send(burst, nil); err != nil {
					return 0, err
				}
				n := rx.Poll(frames)
				rx.Release(n)
				received += n
			}
			return received, rx.Err()
		})
	})
	for n := 1; err == nil && n > 0; { // what is still under way
		n = rx.Poll(frames)
		rx.Release(n)
	}
	if got := rx.Counts().Frames; err == nil && got != stream.Sent() {
		err = fmt.Errorf("sent %d packets over loop: and received %d of them", stream.Sent(), got)
	}
	return s, err
}

// udpTemplate is a UDP datagram in a frame of frameBytes.
func udpTemplate(src, dst [6]byte) (*raw.Template, error) {
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(198, 18, 0, 1), DstIP: net.IPv4(198, 18, 0, 2)}
	udp := &layers.UDP{SrcPort: 1024, DstPort: 9}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	eth := &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:], EthernetType: layers.EthernetTypeIPv4}
	t, err := raw.NewTemplate(eth, ip, udp, gopacket.Payload(make([]byte, frameBytes-14-20-8)))
	if err == nil && t.MaxFrame() != frameBytes {
		err = errors.New("the template is of another length")
	}
	return t, err
}
