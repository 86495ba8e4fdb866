package main

import (
	"context"
	"fmt"
	"time"
)

// sample is what a contender did once.
type sample struct {
	packets uint64 // or records
	elapsed time.Duration
	command string // what was run, to be repeated by hand
}

// contender does a row's work in its own way.
type contender struct {
	name  string
	needs []program
	root  bool // it needs an interface of its own
	run   func(ctx context.Context, b *bench) (sample, error)
	also  []also // other units of its figure, which is one of bytes
}

// of is the figure of a sample.
func (u unit) of(s sample) float64 {
	switch u {
	case mpps:
		return float64(s.packets) / float64(s.elapsed.Nanoseconds()) * 1e3
	case gbps:
		return float64(s.packets) / float64(s.elapsed.Nanoseconds())
	}
	return float64(s.elapsed.Nanoseconds()) / float64(s.packets)
}

// row is one comparison.
type row struct {
	key, title string
	unit       unit
	contenders []contender
	bars       []bar
}

// Names of contenders that bars speak of.
const (
	loopBoth    = "bluering loop:"
	loopSparse  = "bluering loop:, send CQE per 64"
	loopApart   = "bluering loop:, one goroutine an end"
	nullIO      = "testpmd net_null io, copy=1"
	memif       = "testpmd net_memif txonly to rxonly"
	plainStream = "bluering re-arm stream, no tag"
	pktgenTag   = "pktgen tx loop:, tag and a field"
	pktgenAll   = "pktgen tx loop:, 10,000 flows, latency all"
	pktgenTX    = "pktgen tx packet:"
	trafgenTX   = "trafgen"
	tcpreplayTX = "tcpreplay -K"
	packetTX    = "testpmd net_af_packet txonly"
	pktgenXDPTX = "pktgen tx xdp:"
	xdpTX       = "testpmd net_af_xdp txonly"
	pktgenXDPRX = "pktgen rx xdp:"
	xdpRX       = "testpmd net_af_xdp rxonly"
	pktgenBulk  = "pktgen tx packet:?gso=auto --tso 1448"
	xdpBulk     = "testpmd net_af_xdp txonly, 1514 bytes"
	packetBulk  = "testpmd net_af_packet txonly, 1514 bytes"
	pktgenRX    = "pktgen rx packet:"
	packetRX    = "testpmd net_af_packet rxonly"
	ringV3RX    = "a bare TPACKET_V3 ring"
	dropRX      = "an XDP program that drops"
	recorder    = "bluering engine/latency"
	hdrRecorder = "hdrhistogram-go"
	decades     = ", values over six decades"
	spinGo      = "bluering: pinned goroutine"
	spinC       = "C loop"
	udLoop      = "bluering ud over loop:, one way"
	coreLine    = "a cache line, there and back"
	udUDP       = "bluering ud over udp:"
	udPacket    = "bluering ud over packet:"
	udXDP       = "bluering ud over xdp:"
	udGeneric   = "bluering ud over xdp:?mode=generic"
	wireUDP     = "a frame over the wire of udp: alone"
	wireXDP     = "a frame over the wire of xdp: alone"
	wireGeneric = "the same with ?mode=generic"
	sockperfPP  = "sockperf pp --nonblocked"
)

// rows is the table of all comparisons.
func rows() []row {
	return append([]row{
		{
			key: "loop1", title: "One core: 60-byte frames from WR to both completions, against forwarding with a copy at each end",
			unit: mpps,
			contenders: []contender{
				{name: loopBoth, run: loopOnOneCore(1)},
				{name: loopSparse, run: loopOnOneCore(burst)},
				{name: nullIO, needs: []program{testpmd}, run: runNullIO},
			},
			bars: []bar{
				{ours: loopBoth, peer: nullIO, atLeast: 1},
				{ours: loopBoth, peer: nullIO, atLeast: 1.7, aim: true},
				{ours: loopSparse, peer: nullIO, atLeast: 2, aim: true},
			},
		},
		{
			key: "loop2", title: "Two cores: 60-byte frames from one to the other, both completions",
			unit: mpps,
			contenders: []contender{
				{name: loopApart, run: loopOnTwoCores},
				{name: memif, needs: []program{testpmd}, run: runMemif},
			},
			bars: []bar{
				{ours: loopApart, peer: memif, atLeast: 1},
				{ours: loopApart, peer: memif, atLeast: 1.8, aim: true},
			},
		},
		transmitRow("tx-drop", "an XDP program that drops", true),
		transmitRow("tx-stack", "the kernel's stack, which drops what is for another host", false),
		lendRow(),
		receiveRow(),
		bulkRow("bulk", "passed uncut", false),
		bulkRow("bulk-cut", "cut by the kernel, with checksums", true),
		{
			key: "pktgen", title: "What pktgen's own work costs on loop:, one core, 60-byte frames, sent and received",
			unit: mpps,
			contenders: []contender{
				{name: plainStream, run: runPlainStream},
				{name: pktgenTag, needs: []program{pktgen}, run: runPktgenLoop("--latency", "off", "--sport", "1024-65535")},
				{name: pktgenAll, needs: []program{pktgen}, run: runPktgenLoop("--latency", "all", "--flows", "10k")},
			},
			bars: []bar{
				{ours: pktgenTag, peer: plainStream, atLeast: 0.6},
				{ours: pktgenAll, peer: pktgenTag, atLeast: 0.7},
			},
		},
		{
			key: "record", title: "Recording a latency", unit: nanos,
			contenders: []contender{
				{name: recorder, run: recordOurs(ofARun())},
				{name: hdrRecorder, run: recordHDR(ofARun())},
				{name: recorder + decades, run: recordOurs(ofAllDecades())},
				{name: hdrRecorder + decades, run: recordHDR(ofAllDecades())},
			},
			bars: []bar{{ours: recorder, atMost: 4}},
		},
		{
			key: "gap", title: "Gaps of a loop that reads the time stamp counter on a core of its own",
			unit: gapNS,
			contenders: []contender{
				{name: spinGo, run: runSpinGo},
				{name: spinC, needs: []program{spin}, run: runSpinC},
			},
			bars: []bar{{ours: spinGo, peer: spinC, within: true}},
		},
	}, echoRows()...)
}

// transmitRow compares senders over a veth whose other end drops all. The receiving interface's own counter counts.
func transmitRow(key, receiver string, xdp bool) row {
	return row{
		key: key, title: "Sending 60-byte frames over a veth to " + receiver, unit: mpps,
		contenders: []contender{
			{name: pktgenTX, root: true, needs: []program{pktgen}, run: overVeth(xdp, frameBytes, pktgenSender("packet:"+nearEnd, frameBytes))},
			{name: trafgenTX, root: true, needs: []program{trafgen}, run: overVeth(xdp, frameBytes, trafgenSender)},
			{name: tcpreplayTX, root: true, needs: []program{tcpreplay}, run: overVeth(xdp, frameBytes, tcpreplaySender)},
			{name: packetTX, root: true, needs: []program{testpmd}, run: overVeth(xdp, frameBytes, testpmdSender("net_af_packet0,iface="+nearEnd+",qdisc_bypass=1"))},
			{name: pktgenXDPTX, root: true, needs: []program{pktgen}, run: overVeth(xdp, frameBytes, pktgenSender("xdp:"+nearEnd, frameBytes))},
			{name: xdpTX, root: true, needs: []program{testpmd}, run: overVeth(xdp, frameBytes, testpmdSender("net_af_xdp0,iface="+nearEnd))},
		},
		bars: []bar{
			{ours: pktgenTX, peer: packetTX, atLeast: 0.95},
			{ours: pktgenTX, peer: trafgenTX, atLeast: 1.1},
			{ours: pktgenTX, peer: tcpreplayTX, atLeast: 1.1, aim: true},
			{ours: pktgenXDPTX, peer: xdpTX, atLeast: 1},
		},
	}
}

// lendRow compares frames that are sent from where they are with frames that are copied first. The kernel copies either.
func lendRow() row {
	r := row{key: "lend", title: "Sending over a veth to the kernel's stack by xdp:, from lent memory or with a copy", unit: mpps}
	for _, frame := range []int{frameBytes, fullFrame} {
		lent, copied := fmt.Sprintf("pktgen tx xdp:, %d bytes", frame), fmt.Sprintf("pktgen tx xdp:?lend=0, %d bytes", frame)
		for _, c := range [][2]string{{lent, "xdp:" + nearEnd}, {copied, "xdp:" + nearEnd + "?lend=0"}} {
			r.contenders = append(r.contenders, contender{name: c[0], root: true, needs: []program{pktgen},
				run: overVeth(false, frame, pktgenSender(c[1], frame))})
		}
		r.bars = append(r.bars, bar{ours: lent, peer: copied, atLeast: 1, aim: true})
	}
	return r
}

// bulkRow compares senders by the bytes of full frames, over a veth whose far end drops all in its stack. A super-frame
// counts the bytes of its one packet; of 45 segments it saves 44 headers.
func bulkRow(key, how string, cut bool) row {
	frames := []also{{"frames", fullFrame}}
	superBytes, each := float64(bulkPayload+bulkHeader), uint64(bulkPayload+bulkHeader) // at the far end
	if cut {
		superBytes, each = bulkPayload+bulkSegments*bulkHeader, 0
	}
	supers := []also{{"super-frames", superBytes}, {"segments", superBytes / bulkSegments}}
	return row{
		key: key, title: "Sending in bulk over a veth: TCP segments of 1448 bytes as super-frames " + how + ", against frames of 1514",
		unit: gbps,
		contenders: []contender{
			{name: pktgenBulk, root: true, needs: []program{pktgen, ethtool}, run: bulkOverVeth(cut, each, pktgenBulkSender), also: supers},
			{name: xdpBulk, root: true, needs: []program{testpmd, ethtool}, run: bulkOverVeth(cut, fullFrame, testpmdTX("net_af_xdp0,iface="+nearEnd, fullFrame)), also: frames},
			{name: packetBulk, root: true, needs: []program{testpmd, ethtool}, run: bulkOverVeth(cut, fullFrame, testpmdTX("net_af_packet0,iface="+nearEnd, fullFrame)), also: frames},
		},
		bars: []bar{{ours: pktgenBulk, peer: xdpBulk, atLeast: 10, aim: true}},
	}
}

// receiveRow compares receivers under a source that is faster than all of them. Each counts for itself.
func receiveRow() row {
	return row{
		key: "rx", title: "Receiving 60-byte frames from a veth, under a source of XDP live frames",
		unit: mpps,
		contenders: []contender{
			{name: pktgenRX, root: true, needs: []program{pktgen, ethtool}, run: runPktgenReceive("packet:" + farEnd)},
			{name: packetRX, root: true, needs: []program{testpmd, ethtool}, run: runTestpmdReceive("net_af_packet0,iface=" + farEnd)},
			{name: pktgenXDPRX, root: true, needs: []program{pktgen, ethtool}, run: runPktgenReceive("xdp:" + farEnd)},
			{name: xdpRX, root: true, needs: []program{testpmd, ethtool}, run: runTestpmdReceive("net_af_xdp0,iface=" + farEnd)},
			{name: ringV3RX, root: true, needs: []program{ethtool}, run: runRingV3},
			{name: dropRX, root: true, needs: []program{ethtool}, run: runDrop},
		},
		bars: []bar{
			{ours: pktgenRX, peer: packetRX, atLeast: 1, aim: true},
			{ours: pktgenRX, peer: ringV3RX, atLeast: 1, aim: true},
			{ours: pktgenXDPRX, peer: xdpRX, atLeast: 1.05},
			{ours: pktgenXDPRX, peer: ringV3RX, atLeast: 8, aim: true},
		},
	}
}
