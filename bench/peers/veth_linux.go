package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/bench/liveframes"
	"github.com/bluering/bluering/internal/pin"
)

// Addresses of frames over a veth. Nobody has the second: the receiving stack drops what is for it.
var (
	fromMAC = [6]byte{0x02, 0, 0, 0, 0, 0x0a}
	toMAC   = [6]byte{0x02, 0, 0, 0, 0, 0xfe}
)

const (
	nearEnd        = "pa"
	farEnd         = "pb"
	ethernetHeader = 14
)

// veth is a pair of interfaces that have never sent a frame.
type veth struct {
	near, far int // indexes
	drop      io.Closer
}

// newVeth makes the pair, whose far end drops in XDP or in the stack.
func newVeth(xdp bool) (v *veth, err error) {
	pair := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: farEnd}
	pair.Name = nearEnd
	if err := netlink.LinkAdd(pair); err != nil {
		return nil, fmt.Errorf("veth: %w", err)
	}
	v = new(veth)
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	for _, end := range []struct {
		name  string
		index *int
	}{{nearEnd, &v.near}, {farEnd, &v.far}} {
		l, err := netlink.LinkByName(end.name)
		if err != nil {
			return v, err
		}
		*end.index = l.Attrs().Index
		err = os.WriteFile("/proc/sys/net/ipv6/conf/"+end.name+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return v, err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return v, err
		}
	}
	if xdp {
		v.drop, err = liveframes.AttachDrop(v.far)
	}
	return v, err
}

func (v *veth) close() (err error) {
	if v.drop != nil {
		err = v.drop.Close()
	}
	l, e := netlink.LinkByName(nearEnd)
	if e == nil {
		e = netlink.LinkDel(l)
	}
	return errors.Join(err, e)
}

// received is the kernel's count of frames that have come in at the far end.
func (v *veth) received() (uint64, error) {
	s, err := v.statistics()
	if err != nil {
		return 0, err
	}
	return s.RxPackets, nil
}

func (v *veth) statistics() (*netlink.LinkStatistics, error) {
	l, err := netlink.LinkByIndex(v.far)
	if err != nil {
		return nil, err
	}
	if s := l.Attrs().Statistics; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%s has no statistics", farEnd)
}

// judge wants every frame that came to have had the length that the row promises. With an XDP program there, a veth
// counts the bytes of what came from a socket without the Ethernet header, which has been taken off by then.
func (v *veth) judge(frame int) error {
	s, err := v.statistics()
	if err != nil {
		return err
	}
	each := uint64(frame)
	if v.drop != nil {
		each -= ethernetHeader
	}
	if s.RxBytes != s.RxPackets*each {
		return fmt.Errorf("%d frames came with %d bytes, not %d each", s.RxPackets, s.RxBytes, each)
	}
	return nil
}

// sender starts something that sends from the near end as fast as it can.
type sender func(context.Context, *bench) (*process, error)

// overVeth lets a sender of frames of one length run and reads the receiving interface's counter.
func overVeth(xdp bool, frame int, send sender) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		v, err := newVeth(xdp)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, v.close()) }()
		return v.run(ctx, b, send, v.received, func() error { return v.judge(frame) })
	}
}

// What pktgenBulkSender sends: TCP payloads that are cut into segments.
const (
	bulkPayload  = 64000
	bulkMSS      = 1448
	bulkHeader   = 54
	bulkSegments = (bulkPayload + bulkMSS - 1) / bulkMSS
)

// fullFrame is the longest frame of an MTU of 1500, without FCS.
const fullFrame = 1514

// bulkOverVeth lets a sender run and reads how many bytes come in. With cut the near end's offloads are off. each is what
// all packets have to be long, if it is not 0.
func bulkOverVeth(cut bool, each uint64, send sender) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		v, err := newVeth(false)
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, v.close()) }()
		if cut {
			if out, err := exec.CommandContext(ctx, b.paths[ethtool], "-K", nearEnd, "tx", "off", "tso", "off").CombinedOutput(); err != nil {
				return s, fmt.Errorf("ethtool: %w: %s", err, out)
			}
		}
		bytes := func() (uint64, error) {
			s, err := v.statistics()
			if err != nil {
				return 0, err
			}
			return s.RxBytes, nil
		}
		return v.run(ctx, b, send, bytes, func() error { return v.judgeBulk(cut, each) })
	}
}

// judgeBulk wants what came to have had the length that the row promises: super-frames, or full frames.
func (v *veth) judgeBulk(cut bool, each uint64) error {
	s, err := v.statistics()
	if err != nil {
		return err
	}
	if mean := s.RxBytes / max(s.RxPackets, 1); mean < 1400 || cut && mean > fullFrame || each != 0 && s.RxBytes != s.RxPackets*each {
		return fmt.Errorf("%d packets came with %d bytes", s.RxPackets, s.RxBytes)
	}
	return nil
}

func pktgenBulkSender(ctx context.Context, b *bench) (*process, error) {
	return b.startPktgen(ctx, "tx", "packet:"+nearEnd+"?gso=auto", "--rate", "max", "--proto", "tcp", "--tso", fmt.Sprint(bulkMSS), "--payload", fmt.Sprint(bulkPayload), "--no-tag",
		"--dmac", "02:00:00:00:00:fe", "--duration", untilStopped, "--interval", "0", "--output", "none")
}

// run starts a sender, waits until something comes, and measures.
func (v *veth) run(ctx context.Context, b *bench, send sender, count func() (uint64, error), judge func() error) (s sample, err error) {
	p, err := send(ctx, b)
	if err != nil {
		return s, err
	}
	defer p.stop()
	for n := uint64(0); n == 0; { // until it has begun
		if n, err = v.received(); err == nil {
			err = p.alive()
		}
		if err == nil {
			err = pause(ctx, 10*time.Millisecond)
		}
		if err != nil {
			return s, err
		}
	}
	s, err = b.measure(ctx, count)
	if err == nil {
		err = p.alive()
	}
	if p.stop(); err == nil {
		err = judge()
	}
	s.command = p.command
	return s, err
}

// untilStopped is longer than any measurement.
const untilStopped = "60s"

func pktgenSender(uri string, frame int) sender {
	return func(ctx context.Context, b *bench) (*process, error) {
		return b.startPktgen(ctx, "tx", uri, "--rate", "max", "--size", strconv.Itoa(frame+4), // with its FCS
			"--dmac", "02:00:00:00:00:fe", "--duration", untilStopped, "--interval", "0", "--output", "none")
	}
}

func trafgenSender(ctx context.Context, b *bench) (*process, error) {
	config := filepath.Join(b.dir, "trafgen.cfg")
	text := fmt.Sprintf("{\n  eth(da=02:00:00:00:00:fe, sa=02:00:00:00:00:0a),\n"+
		"  ipv4(sa=198.18.0.1, da=198.18.0.2, ttl=1),\n  udp(sp=1024, dp=9),\n  fill(0, %d)\n}\n", frameBytes-42)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return b.startOn(ctx, []int{b.cpu}, b.paths[trafgen], "--conf", config, "--out", nearEnd, "--cpus", "1", "--num", "0", "--no-sock-mem")
}

func tcpreplaySender(ctx context.Context, b *bench) (*process, error) {
	capture := filepath.Join(b.dir, "frames.pcap")
	if err := writeCapture(capture, 1000); err != nil {
		return nil, err
	}
	return b.startOn(ctx, []int{b.cpu}, b.paths[tcpreplay], "--intf1="+nearEnd, "--topspeed", "--preload-pcap", "--loop=0", "--quiet", capture)
}

func testpmdSender(vdev string) sender { return testpmdTX(vdev, frameBytes) }

func testpmdTX(vdev string, size int) sender {
	return func(ctx context.Context, b *bench) (*process, error) {
		r, err := b.startPMD(ctx, pmd{
			mainCPU: b.otherCPU, cpu: b.cpu, prefix: "peerstx", mode: "txonly", vdevs: []string{vdev},
			options: []string{fmt.Sprintf("--txpkts=%d", size)},
		})
		if err != nil {
			return nil, err
		}
		return r.process, nil
	}
}

// aFrame is the frame that sources of fixed frames send.
func aFrame() ([]byte, error) {
	t, err := udpTemplate(fromMAC, toMAC)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, frameBytes)
	t.Write(frame, 0, 0)
	return frame, nil
}

func writeCapture(path string, n int) error {
	frame, err := aFrame()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := pcapgo.NewWriter(f)
	err = w.WriteFileHeader(65535, layers.LinkTypeEthernet)
	for i := 0; i < n && err == nil; i++ {
		err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, int64(i)), CaptureLength: len(frame), Length: len(frame)}, frame)
	}
	return errors.Join(err, f.Close())
}

// runPktgenLoop lets pktgen send to itself. Its report says how much and how long.
func runPktgenLoop(flags ...string) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		args := append([]string{"tx", "loop:", "--rx", "loop:", "--rate", "max", "--size", "64", "--duration", b.window.String(),
			"--interval", "0", "--output", "json"}, flags...)
		p, err := b.startPktgen(ctx, args...)
		if err != nil {
			return s, err
		}
		s.command = p.command
		r, err := p.report()
		if err == nil && r.Unique != r.Sent {
			err = fmt.Errorf("pktgen sent %d packets over loop: and received %d of them", r.Sent, r.Unique)
		}
		s.packets, s.elapsed = r.Unique, time.Duration(r.ElapsedNS)
		return s, err
	}
}

// pktgenReport is what is read of one.
type pktgenReport struct {
	Sent      uint64  `json:"sent_packets"`
	Unique    uint64  `json:"unique_packets"`
	Received  uint64  `json:"received_packets"`
	Foreign   uint64  `json:"foreign_packets"`
	ElapsedNS int64   `json:"elapsed_ns"`
	RxPPS     float64 `json:"rx_pps"`
}

// report waits for pktgen's end. Its report begins at the first brace in a line's first column: what else it says
// stands before and after. That a receiver was sent more than it could take makes its run inconclusive, and is what is
// measured here.
func (p *process) report() (r pktgenReport, err error) {
	out, err := p.finish()
	if err != nil {
		if out = p.out.String(); !strings.Contains(out, "\npktgen: inconclusive: ") {
			return r, err
		}
	}
	at := 0
	for at < len(out) && (out[at] != '{' || at > 0 && out[at-1] != '\n') {
		at++
	}
	err = decodeFirst(out[at:], &r)
	return r, err
}

func decodeFirst(text string, to any) error {
	return json.NewDecoder(strings.NewReader(text)).Decode(to)
}

// underFire runs a receiver at the far end under a source of live frames on the other processor.
func (b *bench) underFire(ctx context.Context, measure func(ctx context.Context, far int) (sample, error)) (s sample, err error) {
	v, err := newVeth(false)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	if err := b.receiveOffload(); err != nil {
		return s, err
	}
	frame, err := aFrame()
	if err != nil {
		return s, err
	}
	source, err := liveframes.Open(v.near, frame)
	if err != nil {
		return s, err
	}
	defer source.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	firing := make(chan error, 1)
	fire, cease := context.WithCancel(ctx)
	go func() {
		unpin, err := pin.Pin(b.otherCPU)
		if err == nil {
			err = source.Run(fire)
			unpin()
		}
		if err != nil {
			cancel()
		}
		firing <- err
	}()
	s, err = measure(ctx, v.far)
	cease()
	return s, errors.Join(err, <-firing)
}
