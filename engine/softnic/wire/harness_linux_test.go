package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// methods are all ways of sending.
var methods = []SendMethod{SendMMsg, SendRing, SendMMsgQDsc}

func eachMethod(t *testing.T, f func(t *testing.T, m SendMethod)) {
	nstest.Need(t)
	for _, m := range methods {
		t.Run(m.String(), func(t *testing.T) { f(t, m) })
	}
}

// way is a way of using an interface for a wire.
type way struct {
	name string
	root bool // it needs root of the machine
	open func(name, ns string) (Wire, error)
	// few opens a wire that has room for so many received frames.
	few  func(name, ns string) (Wire, error)
	room uint64
	// uncounted: a veth counts bytes behind the Ethernet header.
	uncounted uint64
	// silent: the queueing discipline of an interface without carrier takes frames and drops them. Only a look tells.
	silent bool
}

var ways = func() (all []way) {
	for _, m := range methods {
		open := func(o PacketOptions) func(name, ns string) (Wire, error) {
			return func(name, ns string) (Wire, error) {
				o.Send, o.NetNS = m, ns
				return OpenPacket(name, o)
			}
		}
		all = append(all, way{name: "packet " + m.String(), open: open(PacketOptions{}), few: open(PacketOptions{RingBytes: 64 << 10}),
			room: 32, silent: m == SendMMsgQDsc})
	}
	for _, m := range []XDPMode{XDPNative, XDPGeneric} {
		open := func(o XDPOptions) func(name, ns string) (Wire, error) {
			return func(name, ns string) (Wire, error) {
				o.Mode, o.NetNS = m, ns
				return OpenXDP(name, o)
			}
		}
		w := way{name: "xdp " + m.String(), root: true, open: open(XDPOptions{}), few: open(XDPOptions{RxFrames: 64}), room: 64}
		if m == XDPNative {
			w.uncounted = headerBytes
		}
		all = append(all, w)
	}
	return all
}()

func eachWay(t *testing.T, f func(t *testing.T, w *way)) {
	for i := range ways {
		t.Run(ways[i].name, func(t *testing.T) {
			nstest.Need(t)
			if ways[i].root {
				nstest.Root(t)
			}
			f(t, &ways[i])
		})
	}
}

// on opens a wire in one of the ways, until the test ends.
func on(t testing.TB, open func(name, ns string) (Wire, error), name, ns string) Wire {
	t.Helper()
	w, err := open(name, ns)
	return opened(t, w, err)
}

func openPacket(t testing.TB, name string, o PacketOptions) Wire {
	t.Helper()
	w, err := OpenPacket(name, o)
	return opened(t, w, err)
}

func openXDP(t testing.TB, name string, o XDPOptions) Wire {
	t.Helper()
	w, err := OpenXDP(name, o)
	return opened(t, w, err)
}

// opened ends the test without a wire, and closes a wire with the test.
func opened(t testing.TB, w Wire, err error) Wire {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// sendAll pushes count frames of the lengths that length gives, written by write, in bursts; receive is called
// whenever there may be something to take.
func sendAll(t testing.TB, w Wire, count uint64, length func(uint64) int, write func([]byte, uint64), receive func()) {
	t.Helper()
	var lens [32]int32
	var bufs [32][]byte
	for sent := uint64(0); sent < count || w.Pending() > 0; {
		n := 0
		for ; n < len(lens) && sent+uint64(n) < count; n++ {
			lens[n] = int32(length(sent + uint64(n)))
		}
		n = w.Reserve(lens[:n], bufs[:])
		for _, b := range bufs[:n] {
			write(b, sent)
			sent++
		}
		w.Commit(n)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		receive()
	}
}

// receiver checks frames as they come.
type receiver struct {
	t     testing.TB
	w     Wire
	got   uint64
	check func(f *Frame, seq uint64) error
}

func (r *receiver) take() {
	var frames [64]Frame
	n := r.w.Next(frames[:])
	for i := range frames[:n] {
		if err := r.check(&frames[i], r.got); err != nil {
			r.t.Fatal(err)
		}
		r.got++
	}
	r.w.Release(n)
}

// until takes frames until count have come, or the test is beyond hope.
func (r *receiver) until(count uint64) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); r.got < count; {
		before := r.got
		if r.take(); r.got != before {
			continue
		}
		if err := r.w.Err(); err != nil || time.Now().After(deadline) {
			r.t.Fatalf("%d of %d frames came: %v, %+v", r.got, count, err, statsOf(r.w))
		}
		p := []unix.PollFd{{Fd: int32(r.w.FD()), Events: unix.POLLIN}}
		unix.Poll(p, 100)
	}
}

// passes sends frames of 60 bytes and wants each at the other end, whole and in order.
func passes(t testing.TB, tx, rx Wire, count uint64) {
	t.Helper()
	want := make([]byte, 60)
	r := &receiver{t: t, w: rx, check: func(f *Frame, seq uint64) error {
		if experimental(want, seq); !bytes.Equal(f.Data, want) {
			return fmt.Errorf("frame %d: %x", seq, f.Data)
		}
		return nil
	}}
	sendAll(t, tx, count, func(uint64) int { return 60 }, experimental, r.take)
	r.until(count)
}

// experimental writes a frame of the local experimental EtherType with a pattern.
func experimental(b []byte, seq uint64) {
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	for i := 14; i < len(b); i++ {
		b[i] = byte(seq*7 + uint64(i)*13)
	}
	if len(b) >= 22 {
		binary.BigEndian.PutUint64(b[14:], seq)
	}
}

func taggedFrame(t *testing.T, outer layers.EthernetType, vlans []layers.Dot1Q) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP, SrcIP: []byte{198, 18, 0, 1}, DstIP: []byte{198, 18, 0, 2}}
	udp := &layers.UDP{SrcPort: 1, DstPort: 2}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	stack := []gopacket.SerializableLayer{eth}
	for i := range vlans {
		if i == 0 {
			eth.EthernetType = outer
		} else {
			vlans[i-1].Type = layers.EthernetTypeDot1Q
		}
		vlans[i].Type = layers.EthernetTypeIPv4
		stack = append(stack, &vlans[i])
	}
	stack = append(stack, ip, udp, gopacket.Payload(make([]byte, 64)))
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// plainSocket is a packet socket without a ring, which gives up after 20 s.
func plainSocket(t *testing.T, ns, name string) (fd int) {
	t.Helper()
	nstest.Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) (err error) {
		proto := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) // in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: l.Attrs().Index}),
		)
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// await looks for frames until Err is set: the kernel reports a lost carrier by a worker of its own.
func await(t *testing.T, w Wire) error {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		w.Next(make([]Frame, 1))
		if err := w.Err(); err != nil {
			return err
		}
	}
	t.Fatal("no error")
	return nil
}

func checkLost(t *testing.T, w Wire, name string, want error) {
	err := await(t, w)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
		t.Errorf("%v, want %v", err, want)
	}
	if w.Err() != err {
		t.Error("the error does not stay")
	}
}

func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("socket:"))
}

// withCaps opens a wire on a thread that has changed its capabilities, and then ends.
func withCaps(change func(caps *[2]unix.CapUserData), open func() (Wire, error)) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&hdr, &caps[0])
		if change(&caps); err == nil {
			err = unix.Capset(&hdr, &caps[0])
		}
		if err != nil {
			done <- fmt.Errorf("capabilities: %w", err)
			return
		}
		w, err := open()
		if err == nil {
			err = w.Close()
		}
		done <- err
	}()
	return <-done
}
