package acceptance

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/raw"
)

// offloaded are command lines whose checksums the device makes, of all kinds that there are.
var offloaded = [][]string{
	{"--csum", "offload", "-s", "64-128", "--sport", "1000-1999"},
	{"--csum", "offload", "-s", "78-200", "--proto", "tcp", "--src", "198.18.0.1-198.18.0.250", "--vlan", "1-4094:rand"},
	{"--csum", "offload", "-s", "imix", "--no-tag", "--flows", "50"},
	{"--csum", "offload", "-s", "82-90", "--src", "2001:2::1-2001:2::ffff", "--dst", "2001:2:0:1::/64:rand"},
	{"--tso", "1448", "--proto", "tcp"},
	{"--tso", "700", "--payload", "20k", "--vlan", "7"},
	{"--tso", "1400", "--payload", "9001", "--proto", "tcp", "--src", "2001:2::1", "--dst", "2001:2::2"},
	{"--tso", "1000", "--payload", "5000", "--src", "2001:2::1", "--dst", "2001:2::2", "--flows", "9"},
}

// TestOffloadedChecksumsAreRightInACapture: scapy and tshark find none wrong, and the one bit that is flipped.
// BLUERING_CHECKSUM_FRAMES is how many frames in all (make checksums).
func TestOffloadedChecksumsAreRightInACapture(t *testing.T) {
	nstest.Judges(t)
	frames := 1600
	if s := os.Getenv("BLUERING_CHECKSUM_FRAMES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		frames = n
	}
	each := frames / len(offloaded)
	var all []byte
	for _, fields := range offloaded {
		capture := filepath.Join(t.TempDir(), "sent.pcap")
		args := append([]string{"tx", "pcap:" + capture, "-n", strconv.Itoa(each), "--seed", "7", "--dmac", "02:00:00:00:00:99"}, fields...)
		if r := run(t, args...); r.code != 0 || r.report.Sent != uint64(each) {
			t.Fatalf("%v: exit status %d\n%s", fields, r.code, r.stderr)
		}
		b, err := os.ReadFile(capture)
		if err != nil {
			t.Fatal(err)
		}
		if all != nil {
			if !bytes.Equal(b[:pcapHeader], all[:pcapHeader]) {
				t.Fatal("recordings of two kinds")
			}
			b = b[pcapHeader:]
		}
		all = append(all, b...)
	}
	capture := filepath.Join(t.TempDir(), "all.pcap")
	if err := os.WriteFile(capture, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := judge(t, capture, nil, 0); n != each*len(offloaded) {
		t.Fatalf("%d frames in the capture, want %d", n, each*len(offloaded))
	}
	t.Logf("%d frames were judged", each*len(offloaded))
	if frames > 10000 {
		return // the short form has the negative control
	}
	flip(t, capture)
	judge(t, capture, nil, 1)
}

// TestCutFramesAreCountedOnAWire: every piece arrives once, at a receiver that chose its own ring, whatever the pieces' size.
func TestCutFramesAreCountedOnAWire(t *testing.T) {
	a, b, nsB := nstest.Veth(t)
	for _, shape := range [][]string{
		{"--tso", "1448", "--proto", "tcp"},
		{"--tso", "1448", "--payload", "1448"},
		{"--tso", "200", "--payload", "500", "--src", "2001:2::1", "--dst", "2001:2::2", "--vlan", "7"},
		{"--tso", "1024", "--payload", "65536", "--proto", "tcp"},
	} {
		run(t, append([]string{"tx", "packet:" + a, "--rx", "packet:" + b + "?netns=" + nsB, "-n", "1003", "-r", "50kpps", "--latency", "all"},
			shape...)...).clean(t, 1003)
	}
}

// pcapHeader is the size of a pcap file's header (pcap-savefile(5)); records follow until the end.
const pcapHeader = 24

// snmp reads one of the kernel's counters in a namespace, such as Udp InCsumErrors.
func snmp(t *testing.T, ns, section, name string) uint64 {
	t.Helper()
	var text []byte
	nstest.Do(t, ns, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	var names []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != section+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if n == name {
				v, err := strconv.ParseUint(f[i], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
	}
	t.Fatalf("the kernel has no counter %s %s", section, name)
	return 0
}

// socket receives UDP datagrams in the namespace and counts them.
func socket(t *testing.T, ns string, port int) *atomic.Uint64 {
	t.Helper()
	var fd int
	nstest.Do(t, ns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) // or as much as there is
		return unix.Bind(fd, &unix.SockaddrInet4{Port: port})
	})
	f := os.NewFile(uintptr(fd), "udp")
	c, err := net.FilePacketConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	got := new(atomic.Uint64)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
			got.Add(1)
		}
	}()
	return got
}

// TestTheKernelAcceptsWhatTheDeviceMade: with the sender's offloads off, the kernel at the other end checks every
// checksum. It accepts all, delivers what is UDP to a socket, and notices one flipped bit.
func TestTheKernelAcceptsWhatTheDeviceMade(t *testing.T) {
	a, b, nsB := nstest.Veth(t)
	nstest.NoOffload(t, "", a)
	nstest.Run(t, nsB, "ip", "addr", "add", "198.18.5.2/24", "dev", b)
	var mac net.HardwareAddr
	nstest.Link(t, nsB, b, func(_ *netlink.Handle, l netlink.Link) error { mac = l.Attrs().HardwareAddr; return nil })
	const each = 2000
	to := []string{"-n", strconv.Itoa(each), "--src", "198.18.5.1", "--dst", "198.18.5.2", "--dmac", mac.String(), "--dport", "9"}
	got := socket(t, nsB, 9)
	for _, fields := range [][]string{{"--csum", "offload", "-s", "64-300"}, {"--tso", "1448", "--payload", "20k"}} {
		acceptedByASocket(t, nsB, got, each, append(append([]string{"tx", "packet:" + a}, to...), fields...))
	}
	sent := got.Load()
	for _, fields := range [][]string{{"--csum", "offload", "-s", "74-300"}, {"--tso", "1448", "--payload", "20k"}} {
		before := snmp(t, nsB, "Tcp", "InSegs")
		if r := run(t, append(append([]string{"tx", "packet:" + a, "--proto", "tcp", "-r", "20kpps"}, to...), fields...)...); r.code != 0 {
			t.Fatalf("%v: exit status %d\n%s", fields, r.code, r.stderr)
		}
		until(t, "the kernel has all TCP segments", func() bool { return snmp(t, nsB, "Tcp", "InSegs")-before == each })
	}
	wrong := func() (out [3]uint64) {
		return [3]uint64{snmp(t, nsB, "Udp", "InCsumErrors"), snmp(t, nsB, "Tcp", "InCsumErrors"), snmp(t, nsB, "Ip", "InHdrErrors")}
	}
	if w := wrong(); w != [3]uint64{} {
		t.Fatalf("the kernel counted UDP, TCP and IP checksum errors %v", w)
	}
	flipped(t, a, mac)
	until(t, "the kernel has counted the flipped bits", func() bool { return wrong() == [3]uint64{1, 1, 1} })
	if n := got.Load(); n != sent {
		t.Errorf("the socket has %d datagrams, want %d", n, sent)
	}
}

// acceptedByASocket has pktgen send so many datagrams and sees all of them at the socket. What the kernel drops because
// the socket's reader did not run says nothing of the datagrams: then it sends them all again, more slowly.
func acceptedByASocket(t *testing.T, ns string, got *atomic.Uint64, each uint64, command []string) {
	t.Helper()
	for _, rate := range []string{"20kpps", "5kpps", "2kpps", "1kpps", "500pps"} {
		before, full := got.Load(), snmp(t, ns, "Udp", "RcvbufErrors")
		if r := run(t, append(command, "-r", rate)...); r.code != 0 {
			t.Fatalf("%v: exit status %d\n%s", command, r.code, r.stderr)
		}
		dropped := func() uint64 { return snmp(t, ns, "Udp", "RcvbufErrors") - full }
		until(t, fmt.Sprintf("%v: the socket has %d datagrams", command, each), func() bool { return got.Load()-before+dropped() == each })
		if dropped() == 0 {
			return
		}
	}
	t.Fatalf("%v: the socket was full at every rate", command)
}

// flipped sends three good frames with a bit flipped in each: UDP payload, TCP payload, IPv4 header.
func flipped(t *testing.T, name string, mac net.HardwareAddr) {
	t.Helper()
	d, err := device.Open("packet:"+name, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := raw.NewPort(d, raw.PortConfig{RxQueues: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i, tcp := range []bool{false, true, false} {
		s := frametest.Spec{TCP: tcp, SrcPort: 1024, DstPort: 9, Payload: bytes.Repeat([]byte{7}, 30)}
		copy(s.DstMAC[:], mac)
		s.SrcMAC = [6]byte{2, 0, 0, 0, 0, 1}
		s.Src, s.Dst = netip.MustParseAddr("198.18.5.1"), netip.MustParseAddr("198.18.5.2")
		f := s.Build()
		if f[len(f)-1] ^= 1; i == 2 {
			f[len(f)-1] ^= 1
			f[22] ^= 2 // TTL
		}
		var buf [1][]byte
		if p.Tx(0).Reserve(buf[:]) != 1 {
			t.Fatal("no buffer")
		}
		copy(buf[0], f)
		if _, err := p.Tx(0).Commit([]int{len(f)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Tx(0).Flush(); err != nil {
		t.Fatal(err)
	}
	until(t, "the frames have left", func() bool { p.Tx(0).Reclaim(); return p.Tx(0).Outstanding() == 0 })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
