package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// echoBytes are the payload of a datagram there and back: what sockperf sends by default, rounded up to the pad.
const echoBytes = 16

// echoDepth is how many requests the queues of a side hold: enough for one datagram at a time, and few enough that they
// and their memory stay in the cache, as a socket's do.
const echoDepth = 64

// fewFrames has an xdp: port receive into as many frames as there are requests, for the same reason.
const fewFrames = "?frames=64"

// echoRows compare how long a datagram takes, one at a time.
func echoRows() []row {
	return []row{
		{
			key: "echo-loop", title: "Two cores: a datagram of 16 bytes from before its post to after its receive completion",
			unit:       midNS,
			contenders: []contender{{name: udLoop, run: loopOneWay}, {name: coreLine, run: lineTrip}},
			bars:       []bar{{ours: udLoop, peer: coreLine, times: 2}},
		},
		{
			key: "echo-udp", title: "Two processes on loopback: a datagram of 16 bytes there and back, both sides spinning", unit: midNS,
			contenders: []contender{
				{name: udUDP, root: true, run: runEcho(loopbackPath)},
				{name: wireUDP, root: true, run: runUDPWireEcho},
				{name: sockperfPP, root: true, needs: []program{sockperf}, run: runSockperf(loopbackPath)},
			},
			bars: []bar{{ours: udUDP, peer: sockperfPP, times: 1.25}},
		},
		{
			key: "echo-veth", title: "Two processes on a veth: a datagram of 16 bytes there and back, both sides spinning", unit: midNS,
			contenders: []contender{
				{name: udPacket, root: true, needs: []program{ip}, run: runEcho(vethPath("packet:"+nearEnd, "packet:"+farEnd))},
				{name: udUDP, root: true, needs: []program{ip}, run: runEcho(vethPath("udp:192.0.2.1", "udp:192.0.2.2"))},
				{name: udXDP, root: true, needs: []program{ip}, run: runEcho(vethPath("xdp:"+nearEnd+fewFrames, "xdp:"+farEnd+fewFrames))},
				{name: udGeneric, root: true, needs: []program{ip}, run: runEcho(vethPath("xdp:"+nearEnd+fewFrames+"&mode=generic", "xdp:"+farEnd+fewFrames+"&mode=generic"))},
				{name: wireXDP, root: true, needs: []program{ip}, run: runWireEcho(wire.XDPAuto)},
				{name: wireGeneric, root: true, needs: []program{ip}, run: runWireEcho(wire.XDPGeneric)},
				{name: sockperfPP, root: true, needs: []program{ip, sockperf}, run: runSockperf(vethPath("", ""))},
			},
			bars: []bar{
				{ours: udPacket, peer: sockperfPP, times: 1.25},
				{ours: udUDP, peer: sockperfPP, times: 1.25},
				{ours: udXDP, peer: sockperfPP, times: 0.5},
				{ours: udGeneric, peer: sockperfPP, times: 0.5},
				{ours: wireXDP, peer: sockperfPP, times: 0.5, aim: true},
				{ours: wireGeneric, peer: sockperfPP, times: 0.5, aim: true},
			},
		},
	}
}

// nanosecondsOf turns ticks into nanoseconds by what both clocks say of the run.
func nanosecondsOf(ticks int64, begin time.Time, first uint64) time.Duration {
	return time.Duration(scaled(uint64(ticks), clock.Ticks()-first, uint64(time.Since(begin))))
}

// lineTrip bounces a cache line between two processors and gives the median of a round trip.
func lineTrip(ctx context.Context, b *bench) (s sample, err error) {
	s.command = fmt.Sprintf("in process, cpus %d and %d: an atomic counter on a line of its own, there and back", b.cpu, b.otherCPU)
	var line struct {
		_     [128]byte
		ball  atomic.Uint64 // odd: theirs; even: ours
		_     [128]byte
		ended atomic.Bool
	}
	other := make(chan error, 1)
	go func() {
		other <- pinned(b.otherCPU, func() error {
			for want := uint64(1); !line.ended.Load(); {
				for spins := 0; spins < 1<<14; spins++ {
					if line.ball.Load() == want {
						line.ball.Store(want + 1)
						want += 2
					}
				}
			}
			return nil
		})
	}()
	rec := latency.New(latency.Options{})
	err = pinned(b.cpu, func() error {
		defer line.ended.Store(true)
		begin, first := time.Now(), clock.Ticks()
		for ball := uint64(0); time.Since(begin) < b.window; {
			if err := ctx.Err(); err != nil {
				return err
			}
			for range 1000 {
				t := clock.Ticks()
				line.ball.Store(ball + 1)
				ball += 2
				for line.ball.Load() != ball {
				}
				rec.Record(int64(clock.Ticks() - t))
			}
		}
		snap := rec.Swap()
		s.packets, s.elapsed = 1, nanosecondsOf(snap.Quantile(0.5), begin, first)
		return nil
	})
	return s, errors.Join(err, <-other)
}

// loopOneWay sends a datagram over loop: from one processor to the other and back, one at a time, and gives the median
// of the time from before its post to after its receive completion. Both processors read one clock.
func loopOneWay(ctx context.Context, b *bench) (s sample, err error) {
	s.command = fmt.Sprintf("in process, cpus %d and %d: a loop: port inline in each of two pinned goroutines, %d bytes, one datagram under way",
		b.cpu, b.otherCPU, echoBytes)
	var ends [2]*ud.Endpoint
	for i := range ends {
		dev, err := device.Open(fmt.Sprintf("loop:echo%d", b.runs), device.Options{})
		if err != nil {
			return s, err
		}
		defer dev.Close()
		if ends[i], err = ud.New(dev, ud.Config{Inline: 64, SendDepth: echoDepth, RecvDepth: echoDepth}); err != nil {
			return s, err
		}
		defer ends[i].Close()
	}
	err = b.rally(&s, func() error { return answerAll(ends[1], 1<<12) }, func(rec *latency.Recorder) error {
		to, err := ends[0].Peer(ctx, ends[1].LocalAddr())
		if err != nil {
			return err
		}
		_, err = pingFor(ctx, ends[0], to, b.window, func(sent, there, _ uint64) { rec.Record(int64(there - sent)) })
		return err
	})
	return s, err
}

// rally has two processors play: one calls answer again and again until the other is done with ask, which records ticks.
// Their median is the sample's time.
func (b *bench) rally(s *sample, answer func() error, ask func(*latency.Recorder) error) error {
	var ended atomic.Bool
	other := make(chan error, 1)
	go func() {
		other <- pinned(b.otherCPU, func() error {
			for !ended.Load() {
				if err := answer(); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	rec := latency.New(latency.Options{})
	begin, first := time.Now(), clock.Ticks()
	err := pinned(b.cpu, func() error {
		defer ended.Store(true)
		return ask(rec)
	})
	snap := rec.Swap()
	s.packets, s.elapsed = 1, nanosecondsOf(snap.Quantile(0.5), begin, first)
	return errors.Join(err, <-other)
}

// answerAll answers what comes in so many looks, with the time of its coming behind the time of its sending.
func answerAll(e *ud.Endpoint, looks int) error {
	for range looks {
		for m := range e.Messages {
			if len(m.Data) == echoBytes {
				binary.LittleEndian.PutUint64(m.Data[8:], clock.Ticks())
			}
			if err := m.Reply(m.Data); err != nil && !errors.Is(err, ud.ErrUnresolved) {
				return err
			}
			if err := e.Commit(); err != nil {
				return err
			}
		}
	}
	return nil
}

// pingFor sends datagrams one at a time for a while, and tells when each was posted, came there and came back, in
// ticks.
func pingFor(ctx context.Context, e *ud.Endpoint, to ud.Peer, window time.Duration, record func(sent, there, back uint64)) (lost int, err error) {
	for begin := time.Now(); time.Since(begin) < window; {
		if err := ctx.Err(); err != nil {
			return lost, err
		}
		for range 100 {
			buf, err := e.Reserve(to, echoBytes)
			if err != nil {
				return lost, err
			}
			sent := clock.Ticks()
			binary.LittleEndian.PutUint64(buf, sent)
			if err := e.Commit(); err != nil {
				return lost, err
			}
			m, err := e.RecvSpin(time.Second)
			if err != nil {
				lost++
				continue
			}
			back := clock.Ticks()
			if binary.LittleEndian.Uint64(m.Data) == sent {
				record(sent, binary.LittleEndian.Uint64(m.Data[8:]), back)
			}
			m.Release()
		}
	}
	return lost, nil
}

// echoVar makes this program one side of an echo: "serve CPU DEVICE" or "ping CPU DEVICE HOST:PORT WINDOW".
const echoVar = "BLUERING_PEERS_ECHO"

func echoSide(job string) error {
	f := strings.Fields(job)
	cpu, err := strconv.Atoi(f[1])
	if err != nil {
		return err
	}
	dev, err := device.Open(f[2], device.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	e, err := ud.New(dev, ud.Config{SendDepth: echoDepth, RecvDepth: echoDepth})
	if err != nil {
		return err
	}
	defer e.Close()
	if f[0] == "serve" {
		l, err := e.Listen(":0", ud.ListenConfig{})
		if err != nil {
			return err
		}
		fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
		return pinned(cpu, func() error { return answerAll(e, 1<<62) })
	}
	window, err := time.ParseDuration(f[4])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), window+startup)
	defer cancel()
	r, err := e.Dial(ctx, f[3], nil, exchange.Info{})
	if err != nil {
		return err
	}
	rec := latency.New(latency.Options{})
	begin, first := time.Now(), clock.Ticks()
	lost := 0
	err = pinned(cpu, func() (err error) {
		lost, err = pingFor(ctx, e, r.Peer, window, func(sent, _, back uint64) { rec.Record(int64(back - sent)) })
		return err
	})
	snap := rec.Swap()
	fmt.Println("p50", nanosecondsOf(snap.Quantile(0.5), begin, first).Nanoseconds(), "of", snap.Count(), "lost", lost)
	return err
}

// echoPath is where two processes echo: loopback, or a veth whose far end is in a namespace of its own. The exchange of
// addresses goes another way, because an xdp: port takes all that comes in.
type echoPath struct {
	far          string // the namespace; "" for none
	near4, far4  string // addresses
	meet         string // the far side's address for the exchange
	ours, theirs string // devices
}

const echoNS = "echo"

// loopbackPath has 127.0.0.1 ping 127.0.0.2.
func loopbackPath() (*echoPath, func() error, error) {
	return &echoPath{near4: "127.0.0.1", far4: "127.0.0.2", meet: "127.0.0.2", ours: "udp:127.0.0.1", theirs: "udp:127.0.0.2"}, func() error { return nil }, nil
}

// vethPath makes the pair. The far interface's device is opened from inside its namespace.
func vethPath(ours, theirs string) func() (*echoPath, func() error, error) {
	return func() (*echoPath, func() error, error) {
		p := &echoPath{far: echoNS, near4: "192.0.2.1", far4: "192.0.2.2", meet: "198.51.100.2", ours: ours, theirs: theirs}
		return p, func() error { return removeEchoPath() }, makeEchoPath(p)
	}
}

func makeEchoPath(p *echoPath) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	far, err := netns.NewNamed(p.far) // and is in it
	if err != nil {
		return err
	}
	defer far.Close()
	inFar, err := netlink.NewHandle()
	if err = errors.Join(err, netns.Set(home)); err != nil {
		return err
	}
	defer inFar.Close()
	inNear, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer inNear.Close()
	for _, v := range []struct{ near, far, near4, far4 string }{{nearEnd, farEnd, p.near4, p.far4}, {"meeta", "meetb", "198.51.100.1", p.meet}} {
		pair := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: v.far, PeerNamespace: netlink.NsFd(far),
			PeerHardwareAddr: toMAC[:]}
		pair.Name, pair.HardwareAddr = v.near, fromMAC[:]
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("veth: %w", err)
		}
		if err := errors.Join(address(inNear, v.near, v.near4, v.far4, toMAC[:]), address(inFar, v.far, v.far4, v.near4, fromMAC[:])); err != nil {
			return err
		}
	}
	return nil
}

// address gives an interface its address, and the other's for good: where an xdp: port takes the answers nobody can ask.
func address(h *netlink.Handle, name, own, other string, mac net.HardwareAddr) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(own + "/24")
	if err != nil {
		return err
	}
	return errors.Join(h.AddrAdd(l, addr), h.LinkSetUp(l), h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index,
		State: netlink.NUD_PERMANENT, IP: net.ParseIP(other), HardwareAddr: mac}))
}

func removeEchoPath() (err error) {
	for _, name := range []string{nearEnd, "meeta"} {
		l, e := netlink.LinkByName(name)
		if e == nil {
			e = netlink.LinkDel(l)
		}
		err = errors.Join(err, e)
	}
	return errors.Join(err, netns.DeleteNamed(echoNS))
}

// inFar is a command in the far namespace.
func (p *echoPath) inFar(program string, args ...string) []string {
	if p.far == "" {
		return append([]string{program}, args...)
	}
	return append([]string{look("ip"), "netns", "exec", p.far, program}, args...)
}

var (
	echoPort = regexp.MustCompile(`port (\d+)\n`)
	echoP50  = regexp.MustCompile(`p50 (\d+) of (\d+) lost (\d+)`)
	sockP50  = regexp.MustCompile(`percentile 50\.000 = *([0-9.]+)`)
	sockOpen = regexp.MustCompile(`\[tid \d+\] using`)
)

// runEcho has this program on both sides.
func runEcho(path func() (*echoPath, func() error, error)) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		p, remove, err := path()
		defer func() { err = errors.Join(err, remove()) }()
		if err != nil {
			return s, err
		}
		self, err := os.Executable()
		if err != nil {
			return s, err
		}
		env := look("env")
		far := p.inFar(env, fmt.Sprintf("%s=serve %d %s", echoVar, b.otherCPU, p.theirs), self)
		server, err := b.start(ctx, far[0], far[1:]...)
		if err != nil {
			return s, err
		}
		defer server.stop()
		_, port, err := server.await(ctx, 0, echoPort, 1)
		if err != nil {
			return s, err
		}
		client, err := b.start(ctx, env, fmt.Sprintf("%s=ping %d %s %s:%s %s", echoVar, b.cpu, p.ours, p.meet, port[0][0], b.window), self)
		if err != nil {
			return s, err
		}
		out, err := client.finish()
		if err != nil {
			return s, err
		}
		m := echoP50.FindStringSubmatch(out)
		if m == nil || m[3] != "0" {
			return s, fmt.Errorf("the client said %q", out)
		}
		s.command = fmt.Sprintf("ud echo of %d bytes, depth %d, both sides spinning: %s to %s", echoBytes, echoDepth, p.ours, p.theirs)
		ns, err := strconv.ParseInt(m[1], 10, 64)
		s.packets, s.elapsed = 1, time.Duration(ns)
		return s, err
	}
}

// wireEchoBytes is as long as the frame of a datagram of echoBytes.
const wireEchoBytes = 14 + 20 + 8 + 12 + 8 + echoBytes + 4

// runWireEcho sends a frame there and back over the wires that xdp: ports are made of, without rings, completions and
// checks: what is left for a datagram is the kernel's.
func runWireEcho(mode wire.XDPMode) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		_, remove, err := vethPath("", "")()
		defer func() { err = errors.Join(err, remove()) }()
		if err != nil {
			return s, err
		}
		s.command = fmt.Sprintf("in process, cpus %d and %d: frames of %d bytes over two wires, mode=%s, %d frames, both sides spinning", b.cpu, b.otherCPU, wireEchoBytes, mode, echoDepth)
		near, err := wire.OpenXDP(nearEnd, wire.XDPOptions{Context: ctx, Mode: mode, RxFrames: echoDepth})
		if err != nil {
			return s, err
		}
		defer near.Close()
		far, err := wire.OpenXDP(farEnd, wire.XDPOptions{Context: ctx, Mode: mode, RxFrames: echoDepth, NetNS: echoNS})
		if err != nil {
			return s, err
		}
		defer far.Close()
		err = b.bounce(ctx, &s, &bouncer{near, bounceHead, bounceHead}, &bouncer{far, bounceHead, bounceHead})
		return s, err
	}
}

// runUDPWireEcho is runWireEcho over the wires of udp: on loopback.
func runUDPWireEcho(ctx context.Context, b *bench) (s sample, err error) {
	s.command = fmt.Sprintf("in process, cpus %d and %d: frames of %d bytes over two wires, udp:127.0.0.1 and udp:127.0.0.2, both sides spinning", b.cpu, b.otherCPU, wireEchoBytes)
	near, err := wire.OpenUDP("127.0.0.1", wire.UDPOptions{})
	if err != nil {
		return s, err
	}
	defer near.Close()
	far, err := wire.OpenUDP("127.0.0.2", wire.UDPOptions{})
	if err != nil {
		return s, err
	}
	defer far.Close()
	there, back := udpHead(near, far), udpHead(far, near)
	err = b.bounce(ctx, &s, &bouncer{near, there, back}, &bouncer{far, back, there})
	return s, err
}

// udpHead are the headers of a frame of wireEchoBytes from a udp: wire to another.
func udpHead(from, to wire.Wire) string {
	f, t := from.Info(), to.Info()
	h := append(append(t.MAC[:], f.MAC[:]...), 8, 0, 0x45, 0, 0, wireEchoBytes-14, 0, 0, 0x40, 0, 64, 17, 0, 0)
	h = append(append(h, f.Addr4.AsSlice()...), t.Addr4.AsSlice()...)
	binary.BigEndian.PutUint16(h[24:], csum.Finish(csum.Sum(h[14:], 0)))
	h = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(h, proto.RoCEPort), proto.RoCEPort)
	return string(append(h, 0, wireEchoBytes-34, 0, 0)) // no checksum
}

// bouncer is a side of an echo by wires alone.
type bouncer struct {
	w           wire.Wire
	sent, comes string // what frames begin with
}

// bounce has two wires play.
func (b *bench) bounce(ctx context.Context, s *sample, near, far *bouncer) error {
	answer := func() error {
		if number := far.take(); number != 0 {
			return far.send(number)
		}
		return nil
	}
	return b.rally(s, answer, func(rec *latency.Recorder) error { return near.bounce(ctx, b.window, rec) })
}

// bounce sends frames one at a time for a while, and records how long each takes to come back.
func (x *bouncer) bounce(ctx context.Context, window time.Duration, rec *latency.Recorder) error {
	number := uint64(0)
	for begin := time.Now(); time.Since(begin) < window; {
		if err := ctx.Err(); err != nil {
			return err
		}
		for range 100 {
			number++
			sent := clock.Ticks()
			if err := x.send(number); err != nil {
				return err
			}
			for looks := 0; x.take() != number; looks++ {
				if looks == 1<<26 {
					return errors.New("a frame did not come back")
				}
			}
			rec.Record(int64(clock.Ticks() - sent))
		}
	}
	return nil
}

// bounceHead begins the frames that are bounced over a veth; their number follows. Its EtherType is the local experimental one.
const bounceHead = "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5"

func (x *bouncer) send(number uint64) error {
	lens, bufs := [1]int32{wireEchoBytes}, [1][]byte{}
	if x.w.Reserve(lens[:], bufs[:]) != 1 {
		return errors.Join(errors.New("a wire has no room for one frame"), x.w.Err())
	}
	binary.LittleEndian.PutUint64(bufs[0][copy(bufs[0], x.sent):], number)
	x.w.Commit(1)
	return x.w.Flush()
}

// take takes a frame, if there is one, and gives its number; 0: it is none of ours. The kernel sends some when an
// interface comes up, and an answer to such a one would be under way beside each of ours from then on.
func (x *bouncer) take() (number uint64) {
	var f [1]wire.Frame
	if x.w.Next(f[:]) != 1 {
		return 0
	}
	if b := f[0].Data; len(b) == wireEchoBytes && string(b[:len(x.comes)]) == x.comes {
		number = binary.LittleEndian.Uint64(b[len(x.comes):])
	}
	x.w.Release(1)
	return number
}

// runSockperf has sockperf on both sides, spinning too. It would report half a round trip without --full-rtt.
func runSockperf(path func() (*echoPath, func() error, error)) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		p, remove, err := path()
		defer func() { err = errors.Join(err, remove()) }()
		if err != nil {
			return s, err
		}
		const port = "11111"
		far := p.inFar(b.paths[sockperf], "sr", "-i", p.far4, "-p", port, "--nonblocked")
		server, err := b.startOn(ctx, []int{b.otherCPU}, far[0], far[1:]...)
		if err != nil {
			return s, err
		}
		defer server.stop()
		if _, _, err := server.await(ctx, 0, sockOpen, 1); err != nil {
			return s, err
		}
		seconds := max(int(b.window.Seconds()+0.999), 1)
		client, err := b.startOn(ctx, []int{b.cpu}, b.paths[sockperf], "pp", "-i", p.far4, "-p", port, "-m", strconv.Itoa(echoBytes),
			"-t", strconv.Itoa(seconds), "--nonblocked", "--full-rtt")
		if err != nil {
			return s, err
		}
		out, err := client.finish()
		if err != nil {
			return s, err
		}
		m := sockP50.FindStringSubmatch(out)
		if m == nil {
			return s, fmt.Errorf("sockperf said %q", out)
		}
		s.command = server.command + "; " + client.command
		us, err := strconv.ParseFloat(m[1], 64)
		s.packets, s.elapsed = 1, time.Duration(us*1e3)
		return s, err
	}
}
