package raw_test

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// open gives a port of the loop called name; the second open is the other end.
func open(name string) (*raw.Port, *engine.Device) {
	d, err := device.Open("loop:"+name, device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	p, err := raw.NewPort(d, raw.PortConfig{TxDepth: 256, RxDepth: 256})
	if err != nil {
		log.Fatal(err)
	}
	return p, d
}

// Send a few frames through an in-process wire and read them at the other end,
// without a copy on either side.
func ExampleNewPort() {
	a, da := open("example-port")
	b, db := open("example-port")
	caps := a.Caps()
	fmt.Println(caps.Kind, a.TxQueues(), b.RxQueues(), a.Device() == da)

	tx, rx := a.Tx(0), b.Rx(0)
	bufs := make([][]byte, 3)
	n := tx.Reserve(bufs)
	for i, buf := range bufs[:n] {
		copy(buf, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
		copy(buf[14:60], fmt.Sprintf("frame %d", i))
	}
	if _, err := tx.Commit([]int{60, 60, 60}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Flush(); err != nil {
		log.Fatal(err)
	}

	frames := make([]raw.RxFrame, 16)
	for got := 0; got < n; {
		k := rx.Poll(frames)
		for _, f := range frames[:k] {
			fmt.Printf("%d bytes: %s, %v\n", len(f.Data), f.Data[14:21], f.Status)
		}
		rx.Release(k)
		got += k
	}
	tx.Reclaim()
	fmt.Println("outstanding", tx.Outstanding(), "held", rx.Held(), tx.Counts(), rx.Counts())
	fmt.Println(errors.Join(tx.Err(), rx.Err(), a.Close(), b.Close(), da.Close(), db.Close()))
	// Output:
	// loop 1 1 true
	// 60 bytes: frame 0, SUCCESS
	// 60 bytes: frame 1, SUCCESS
	// 60 bytes: frame 2, SUCCESS
	// outstanding 0 held 0 {3 180 0} {3 180 0}
	// <nil>
}

// Receive queues share the traffic by a hash over what the fields say; the hash
// comes with each frame.
func ExamplePortConfig() {
	a, da := open("example-port-config")
	db, err := device.Open("loop:example-port-config", device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	b, err := raw.NewPort(db, raw.PortConfig{RxQueues: 2, RSS: engine.RSSIPv4 | engine.RSSTCP})
	if err != nil {
		log.Fatal(err)
	}
	frame := frametest.Spec{
		Src: netip.MustParseAddr("66.9.149.187"), SrcPort: 2794,
		Dst: netip.MustParseAddr("161.142.100.80"), DstPort: 1766, TCP: true, Payload: make([]byte, 6),
	}
	bufs := make([][]byte, 1)
	a.Tx(0).Reserve(bufs)
	if _, err := a.Tx(0).Commit([]int{copy(bufs[0], frame.Build())}); err != nil {
		log.Fatal(err)
	}
	if err := a.Tx(0).Flush(); err != nil {
		log.Fatal(err)
	}
	frames := make([]raw.RxFrame, 1)
	for i := range b.RxQueues() {
		for _, f := range frames[:b.Rx(i).Poll(frames)] {
			fmt.Printf("queue %d: hash 0x%x, valid %v\n", i, f.RSSHash, f.Flags&engine.WCRSSHash != 0)
		}
	}
	fmt.Println(errors.Join(a.Close(), b.Close(), da.Close(), db.Close()))
	// Output:
	// queue 0: hash 0x51ccc178, valid true
	// <nil>
}

// exampleLayers are a UDP packet's headers and payload.
func exampleLayers() []gopacket.SerializableLayer {
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP, SrcIP: []byte{198, 18, 0, 1}, DstIP: []byte{198, 18, 0, 2}}
	udp := &layers.UDP{SrcPort: 1024, DstPort: 9}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		log.Fatal(err)
	}
	return []gopacket.SerializableLayer{
		&layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload(make([]byte, 18)),
	}
}

// A template's fields vary by rules: packet i is always the same packet.
func ExampleTemplate() {
	t, err := raw.NewTemplate(exampleLayers()...)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range []raw.Field{
		{Kind: raw.SrcPort, Lo: raw.Num(2000), Hi: raw.Num(2002)},
		{Kind: raw.DstMAC, Order: raw.Dec, Lo: raw.MAC([6]byte{2}), Hi: raw.MAC([6]byte{2, 0, 0, 0, 0, 9})},
		{Kind: raw.Counter, Hi: raw.Num(1<<32 - 1), Width: 4},
	} {
		if err := t.Vary(f); err != nil {
			log.Fatal(f.Kind, err)
		}
	}
	if err := t.SetSizes(raw.SizeMix(raw.Share{Times: 2, Size: 60}, raw.Share{Times: 1, Size: 590})); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, t.MaxFrame())
	for i := range uint64(4) {
		n := t.Write(buf, i, 0)
		fmt.Printf("%3d bytes to %x from port %d, counter %x\n", n, buf[:6], int(buf[34])<<8|int(buf[35]), buf[42:46])
	}
	// Output:
	//  60 bytes to 020000000009 from port 2000, counter 00000000
	//  60 bytes to 020000000008 from port 2001, counter 00000001
	// 590 bytes to 020000000007 from port 2002, counter 00000002
	//  60 bytes to 020000000006 from port 2000, counter 00000003
}

// A stream sends a template's packets with the tag that tells loss and latency.
func ExampleStream() {
	a, da := open("example-stream")
	b, db := open("example-stream")
	t, err := raw.NewTemplate(exampleLayers()...)
	if err != nil {
		log.Fatal(err)
	}
	key := proto.NewTagKey(42)
	s, err := a.Tx(0).NewStream(t, raw.StreamConfig{Tag: true, Key: key, FlowFirst: 7, Flows: 2})
	if err != nil {
		log.Fatal(err)
	}
	sent, err := s.Send(5, []uint32{100, 101, 102, 103, 104})
	fmt.Println(sent, err, s.Sent(), s.Bytes(), s.FlowSent(0), s.FlowSent(1), s.Outstanding())

	frames, rx := make([]raw.RxFrame, 16), b.Rx(0)
	for got := 0; got < sent; {
		n := rx.Poll(frames)
		for _, f := range frames[:n] {
			var h proto.Headers
			proto.Parse(f.Data, &h)
			tag, ok := key.FindTag(f.Data, &h)
			fmt.Printf("%+v %v\n", tag, ok)
		}
		rx.Release(n)
		got += n
	}
	a.Tx(0).Reclaim()
	fmt.Println(errors.Join(s.Close(), a.Close(), b.Close(), da.Close(), db.Close()))
	// Output:
	// 5 <nil> 5 300 3 2 5
	// {Flow:7 Seq:0 Time:100} true
	// {Flow:8 Seq:0 Time:101} true
	// {Flow:7 Seq:1 Time:102} true
	// {Flow:8 Seq:1 Time:103} true
	// {Flow:7 Seq:2 Time:104} true
	// <nil>
}

// Values come from a range with a step, or from a list, in a fixed order or at
// random by a seed; with ByFlow, they go by the flow and not by the packet.
func ExampleField() {
	first, err := raw.NewTemplate(exampleLayers()...)
	if err != nil {
		log.Fatal(err)
	}
	frame := make([]byte, first.MaxFrame())
	first.Write(frame, 0, 0)

	t, err := raw.NewTemplateBytes(frame) // a captured frame would do as well
	if err != nil {
		log.Fatal(err)
	}
	addr := func(s string) raw.Value { return raw.Addr(netip.MustParseAddr(s)) }
	for _, f := range []raw.Field{
		{Kind: raw.SrcAddr, List: []raw.Value{addr("198.18.0.9"), addr("198.18.1.1")}, ByFlow: true},
		{Kind: raw.DstAddr, Lo: addr("198.18.4.0"), Hi: addr("198.18.4.255"), Step: 2},
		{Kind: raw.SrcPort, Order: raw.Random, Seed: 1, Lo: raw.Num(1024), Hi: raw.Num(65535)},
	} {
		if err := t.Vary(f); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(len(raw.SizeRange(60, 1514).List), len(raw.Mix().List))
	for i := range uint64(3) {
		t.Write(frame, i, uint32(i%2))
		fmt.Println(net.IP(frame[26:30]), net.IP(frame[30:34]), int(frame[34])<<8|int(frame[35]))
	}
	// Output:
	// 1455 12
	// 198.18.0.9 198.18.4.0 22839
	// 198.18.1.1 198.18.4.2 37574
	// 198.18.0.9 198.18.4.4 49135
}

// RoCE v2 datagrams from different UDP source ports to two queue pairs: the ICRC is right in each.
func ExampleTemplate_SetRoCE() {
	frame := append([]byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0,
		0x64, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 7, // BTH: UD SEND ONLY, P_Key, queue pair, PSN
		0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0x12, // DETH: Q_Key, source queue pair
	}, "pingping"...)
	t, err := raw.NewTemplateBytes(append(frame, 0, 0, 0, 0))
	if err != nil {
		log.Fatal(err)
	}
	if err := t.SetRoCE(); err != nil {
		log.Fatal(err)
	}
	for _, f := range []raw.Field{
		{Kind: raw.SrcPort, Lo: raw.Num(0xc000), Hi: raw.Num(0xffff)},
		{Kind: raw.DestQPN, List: []raw.Value{raw.Num(0x11), raw.Num(0x13)}},
	} {
		if err := t.Vary(f); err != nil {
			log.Fatal(err)
		}
	}
	for i := range uint64(3) {
		n := t.Write(frame[:cap(frame)], i, 0)
		f := frame[:n]
		fmt.Printf("port %x, queue pair %x, PSN %x, ICRC %x\n", f[34:36], f[47:50], f[51:54], f[n-4:])
	}
	// Output:
	// port c000, queue pair 000011, PSN 000007, ICRC 51e52d63
	// port c001, queue pair 000013, PSN 000008, ICRC 31c0f58e
	// port c002, queue pair 000011, PSN 000009, ICRC 16344466
}

// A payload of any length goes out in segments; the device makes their lengths, sequence numbers and checksums.
func ExamplePort_SendTSO() {
	device1, err := device.Open("loop:tso", device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	device2, err := device.Open("loop:tso", device.Options{})
	if err != nil {
		log.Fatal(err)
	}
	a, err := raw.NewPort(device1, raw.PortConfig{TSO: true, FrameBytes: 1 << 16, RxQueues: -1})
	if err != nil {
		log.Fatal(err)
	}
	b, err := raw.NewPort(device2, raw.PortConfig{RxCsum: true, TxQueues: -1})
	if err != nil {
		log.Fatal(err)
	}
	header := []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		0x10, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0,
	}
	segments, err := a.SendTSO(0, header, 1448, make([]byte, 4000))
	fmt.Println(segments, err)
	frames, rx := make([]raw.RxFrame, 16), b.Rx(0)
	for got := 0; got < segments; {
		n := rx.Poll(frames)
		for _, f := range frames[:n] {
			fmt.Printf("%d bytes, sequence %#x, checksums good: %v\n", len(f.Data), f.Data[40:42], f.Flags&engine.WCCsumOK != 0)
		}
		rx.Release(n)
		got += n
	}
	a.Tx(0).Reclaim()
	fmt.Println(a.Tx(0).Counts().Frames, errors.Join(a.Close(), b.Close(), device1.Close(), device2.Close()))
	// Output:
	// 3 <nil>
	// 1502 bytes, sequence 0x1000, checksums good: true
	// 1502 bytes, sequence 0x15a8, checksums good: true
	// 1158 bytes, sequence 0x1b50, checksums good: true
	// 3 <nil>
}
