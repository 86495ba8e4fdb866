package traffic_test

import (
	"errors"
	"fmt"
	"log"
	"math/big"
	"net/netip"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// must is for words known to be right.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// A rate is exact: what 5 Gbit/s of Ethernet holds of 64-byte frames is a
// fraction, and stays one.
func ExampleParseRate() {
	for _, s := range []string{"1.5mpps", "5gbpsl1", "50%"} {
		var r traffic.Rate = must(results.ParseRate(s))
		pps := must(r.PPS(big.NewRat(64, 1), 10_000_000_000))
		var unit results.RateUnit = r.Unit()
		fmt.Println(r, unit == results.RatePercent, pps.Num, "/", pps.Den)
	}
	_, err := results.ParseRate("10")
	var usage *traffic.UsageError
	fmt.Println(errors.As(err, &usage), usage.Thing, usage.Value)
	// Output:
	// 1.5mpps false 1500000 / 1
	// 5gbpsl1 false 156250000 / 21
	// 50% true 156250000 / 21
	// true rate 10
}

// Datagrams for two queue pairs of a RoCE v2 device, from many UDP source ports.
func ExampleRoCE() {
	c := traffic.Config{
		TX: "loop:", Proto: traffic.RoCEUD, Size: must(traffic.ParseSize("86-102")), SPort: must(traffic.ParsePorts("sport", "49152-65535")),
		RoCE: traffic.RoCE{QPN: must(traffic.ParseQPNs("qpn", "0x11,0x13")), QKey: traffic.DefaultQKey},
	}
	p := must(traffic.NewPlan(c, &traffic.PortFacts{Port: traffic.Port{URI: "loop:"}}, nil))
	for k := range uint64(3) {
		f := must(p.FrameAt(k))
		fmt.Printf("%d bytes, port %x, queue pair %x, PSN %x\n", len(f)+4, f[34:36], f[47:50], f[51:54])
	}
	// Output:
	// 86 bytes, port c000, queue pair 000011, PSN 000000
	// 90 bytes, port c001, queue pair 000013, PSN 000001
	// 94 bytes, port c002, queue pair 000011, PSN 000002
}

// Sizes count the FCS, as testers do.
func ExampleParseSize() {
	var s traffic.Sizes = must(traffic.ParseSize("imix"))
	mean, _ := s.Mean().Float64()
	fmt.Printf("%v %v %.2f\n", s, s.Distinct(), mean)
	// Output:
	// imix [64 594 1518] 361.83
}

// Value i of a field depends on i and the seed alone.
func ExampleParseAddrs() {
	var v traffic.Values = must(traffic.ParseAddrs("dst", "198.18.0.0/24:rand"))
	var order traffic.Mode = v.Mode()
	fmt.Println(v, v.Len(), order == traffic.Rand, v.Addr(0, 7), v.Addr(1, 7))
	ports := must(traffic.ParsePorts("dport", "5000-5003:dec"))
	fmt.Println(ports.Uint(0, 0), ports.Uint(1, 0), ports.Uint(4, 0), ports.Mode() == traffic.Dec)
	// Output:
	// 198.18.0.0/24:rand 256 true 198.18.0.18 198.18.0.99
	// 5003 5002 5003 true
}

// The smaller words of the command line.
func ExampleConfig() {
	c := traffic.Config{
		TX: "loop:", RX: "loop:",
		Size:    must(traffic.ParseSize("128")),
		Proto:   must(traffic.ParseProto("tcp")),
		Latency: must(traffic.ParseLatency("sample:10")),
		OnLate:  must(traffic.ParseOnLate("skip")),
		Count:   must(results.ParseCount("count", "1.5k", 1<<32)),
	}
	fmt.Println(c.Proto, c.Latency, c.OnLate, c.Count, c.Check())
	c.Flows = traffic.MaxFlows + 1
	fmt.Println(c.Check())
	// Output:
	// tcp sample:10 skip 1500 <nil>
	// flows "16777217": the tag numbers at most 16777216 flows
}

// facts describe a port that need not exist: a plan opens nothing.
func facts() *traffic.PortFacts {
	return &traffic.PortFacts{
		Port:   traffic.Port{URI: "loop:", Name: "loop:", Kind: "loop", SpeedBPS: 10_000_000_000, MaxFrame: 9018},
		HWAddr: [6]byte{2, 0, 0, 0, 0, 1}, Addr4: netip.MustParseAddr("198.18.0.1"),
	}
}

func plan() *traffic.Plan {
	c := traffic.Config{TX: "loop:", RX: "loop:", Rate: must(results.ParseRate("1mpps")), Count: 4, Seed: 7, Latency: traffic.LatencyMode{EveryN: 1},
		Size: must(traffic.ParseSize("64,128")), SPort: must(traffic.ParsePorts("sport", "1000-1003")), Flows: 2}
	return must(traffic.NewPlan(c, facts(), facts()))
}

// Frame by frame what a run will send, before it does.
func ExampleNewPlan() {
	p := plan()
	for k := range p.Count {
		var f traffic.Frame = p.Frames[p.SizeAt(k)]
		raw := must(p.FrameAt(k))
		fmt.Println("frame", k, "size", f.SizeBytes, "bytes", len(raw), "tag at", f.TagOff, "flow", p.FlowAt(0, k))
	}
	for _, field := range p.Frames[0].Vary {
		fmt.Println(field.Name, field.Values, "by flow:", field.ByFlow)
	}
	// Output:
	// frame 0 size 64 bytes 60 tag at 44 flow 0
	// frame 1 size 128 bytes 124 tag at 108 flow 1
	// frame 2 size 64 bytes 60 tag at 44 flow 0
	// frame 3 size 128 bytes 124 tag at 108 flow 1
	// sport 1000-1003 by flow: true
}

// The same for programs.
func ExamplePlan_Record() {
	var r *traffic.PlanRecord = must(plan().Record())
	var echo traffic.ConfigEcho = r.Config
	fmt.Println(r.Schema, r.Seed, echo.Rate, echo.Size, r.DepartureNS)
	var frame traffic.PlanFrame = r.Frames[1]
	fmt.Println(frame.Index, frame.Flow, frame.Size, frame.Hex[:24])
	for _, w := range r.Sizes {
		fmt.Printf("%d bytes: %.2f of all, at most %.0f pps\n", w.Size, w.Share, w.MaxPPS)
	}
	for _, f := range r.Varying {
		fmt.Println(f.Name, f.Values, f.Count, f.By)
	}
	// Output:
	// bluering.pktgen.plan/1 0x7 1mpps 64,128 [0 1000 2000 3000]
	// 1 1 128 020000000001020000000001
	// 64 bytes: 0.50 of all, at most 14880952 pps
	// 128 bytes: 0.50 of all, at most 8445946 pps
	// sport 1000-1003 4 flow
}

// What a receiver in another process is told of a run.
func ExampleToken() {
	t := traffic.NewToken(0, 4)
	back := must(traffic.ParseToken(t.String()))
	fmt.Println(back == t, back.Flows)
	_, err := traffic.ParseToken("2.1.0.-.1")
	fmt.Println(err)
	// Output:
	// true 4
	// run "2.1.0.-.1": is not a run token of version 1; use what tx prints: 1.RUNID.START.BOOT.FLOWS, hexadecimal but for FLOWS
}

// Which ports there are, and what one of them is.
func ExampleList() {
	for _, port := range must(traffic.List()) {
		if port.Kind == "loop" {
			fmt.Println(port.URI, "is a wire:", port.IsWire)
		}
	}
	f := must(traffic.Facts("loop:example-facts"))
	fmt.Println(f.Kind, f.MaxFrame, f.IfIndex, f.Addr4.Is4())
	// Output:
	// loop: is a wire: false
	// loop 9018 0 true
}

// Segmentation is a load shape: the plan is of the frames that the device makes of each payload.
func ExampleTSO() {
	c := traffic.Config{TX: "loop:", Proto: traffic.TCP, TSO: traffic.TSO{MSS: 1448, Payload: 10000}, Csum: traffic.CsumOffload}
	var mode traffic.CsumMode = c.Csum
	ports := &traffic.PortFacts{Port: traffic.Port{URI: "loop:", MaxFrame: 1518}}
	p, err := traffic.NewPlan(c, ports, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Config.Size, mode)
	for k := range uint64(8) {
		f, err := p.FrameAt(k)
		fmt.Print(len(f), " ", err, ", ")
	}
	// Output:
	// 6x1506,1370 offload
	// 1502 <nil>, 1502 <nil>, 1502 <nil>, 1502 <nil>, 1502 <nil>, 1502 <nil>, 1366 <nil>, 1502 <nil>,
}
