package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
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

func openPacket(t testing.TB, name string, o PacketOptions) Wire {
	t.Helper()
	w, err := OpenPacket(name, o)
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

func TestPacketCountsEqualTheKernels(t *testing.T) {
	eachMethod(t, func(t *testing.T, m SendMethod) {
		const count = 20011
		a, b, ns := nstest.Veth(t)
		tx := openPacket(t, a, PacketOptions{Send: m})
		rx := openPacket(t, b, PacketOptions{NetNS: ns})
		beforeA, beforeB := nstest.Count(t, "", a), nstest.Count(t, ns, b)
		length := func(seq uint64) int { return 14 + int(seq*37%1501) }
		want := make([]byte, 1600)
		r := &receiver{t: t, w: rx, check: func(f *Frame, seq uint64) error {
			exact := want[:length(seq)]
			experimental(exact, seq)
			if len(exact) < MinFrame {
				clear(want[len(exact):MinFrame])
				exact = want[:MinFrame]
			}
			if !bytes.Equal(f.Data, exact) {
				return fmt.Errorf("frame %d:\n got %x\nwant %x", seq, f.Data, exact)
			}
			return nil
		}}
		sendAll(t, tx, count, length, experimental, r.take)
		r.until(count)
		sa, sb := statsOf(tx), statsOf(rx)
		ka, kb := nstest.Count(t, "", a).Sub(beforeA), nstest.Count(t, ns, b).Sub(beforeB)
		if sa.TxFrames != count || ka.TxFrames != count || kb.RxFrames != count || sb.RxFrames != count {
			t.Errorf("frames: sent %d, kernel %d and %d, received %d", sa.TxFrames, ka.TxFrames, kb.RxFrames, sb.RxFrames)
		}
		if sa.TxBytes != ka.TxBytes || sb.RxBytes != kb.RxBytes || sa.TxBytes != sb.RxBytes {
			t.Errorf("bytes: sent %d, kernel %d and %d, received %d", sa.TxBytes, ka.TxBytes, kb.RxBytes, sb.RxBytes)
		}
		if sb.RxRingDrops != 0 || sa.TxErrors != 0 || sa.TxPadded == 0 {
			t.Errorf("%+v\n%+v", sa, sb)
		}
	})
}

// TestPacketNobodyReads overruns the kernel: it must say so, and what it took must be what we counted.
func TestPacketNobodyReads(t *testing.T) {
	eachMethod(t, func(t *testing.T, m SendMethod) {
		const count = 200003
		a, b, ns := nstest.Veth(t)
		tx := openPacket(t, a, PacketOptions{Send: m, SendOnly: true})
		rx := openPacket(t, b, PacketOptions{NetNS: ns, RingBytes: 64 << 10})
		before := nstest.Count(t, "", a)
		sendAll(t, tx, count, func(uint64) int { return 60 }, experimental, func() {})
		k, s := nstest.Count(t, "", a).Sub(before), statsOf(tx)
		if k.TxFrames != count || s.TxFrames != count {
			t.Errorf("sent %d, kernel %+v", s.TxFrames, k)
		}
		r := &receiver{t: t, w: rx, check: func(*Frame, uint64) error { return nil }}
		for deadline := time.Now().Add(10 * time.Second); ; {
			r.take()
			if s := statsOf(rx); s.RxFrames+s.RxRingDrops == count {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v do not add up to %d", statsOf(rx), count)
			}
			runtime.Gosched()
		}
		if statsOf(rx).RxRingDrops == 0 {
			t.Error("a ring of 32 slots took them all")
		}
	})
}

// TestPacketRetriesWhatTheKernelRefuses sends through a slow queue with little room: the kernel answers ENOBUFS
// again and again, and in the end exactly all frames have left.
func TestPacketRetriesWhatTheKernelRefuses(t *testing.T) {
	const count = 5003
	a, _, _ := nstest.Veth(t)
	nstest.Run(t, "", "tc", "qdisc", "add", "dev", a, "root", "tbf", "rate", "10mbit", "burst", "4kb", "limit", "8kb")
	w := openPacket(t, a, PacketOptions{Send: SendMMsgQDsc})
	before := nstest.Count(t, "", a)
	sendAll(t, w, count, func(uint64) int { return 60 }, experimental, func() {})
	for deadline := time.Now().Add(20 * time.Second); nstest.Count(t, "", a).Sub(before).TxFrames < count; {
		if time.Now().After(deadline) {
			t.Fatalf("%+v left, %+v", nstest.Count(t, "", a).Sub(before), statsOf(w))
		}
	}
	k, s := nstest.Count(t, "", a).Sub(before), statsOf(w)
	if k.TxFrames != count || s.TxFrames != count || s.TxRetries == 0 || s.TxErrors != 0 {
		t.Errorf("kernel %+v, ours %+v", k, s)
	}
}

// TestPacketVLAN judges by gopacket what comes out of the ring with its tag put back.
func TestPacketVLAN(t *testing.T) {
	eachMethod(t, func(t *testing.T, m SendMethod) {
		a, b, ns := nstest.Veth(t)
		tx, rx := openPacket(t, a, PacketOptions{Send: m}), openPacket(t, b, PacketOptions{NetNS: ns})
		tags := [][]layers.Dot1Q{{{VLANIdentifier: 5, Priority: 3}}, {{VLANIdentifier: 4095, DropEligible: true}, {VLANIdentifier: 1}}, nil}
		for i, vlans := range tags {
			for _, outer := range []layers.EthernetType{layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ} {
				want := taggedFrame(t, outer, vlans)
				var bufs [1][]byte
				if tx.Reserve([]int32{int32(len(want))}, bufs[:]) != 1 {
					t.Fatal("no room")
				}
				copy(bufs[0], want)
				tx.Commit(1)
				if err := tx.Flush(); err != nil {
					t.Fatal(err)
				}
				r := &receiver{t: t, w: rx, check: func(f *Frame, _ uint64) error {
					if !bytes.Equal(f.Data, want) {
						return fmt.Errorf("tags %d:\n got %x\nwant %x", i, f.Data, want)
					}
					var again [1]Frame
					if rx.Next(again[:]) != 1 || !bytes.Equal(again[0].Data, want) || again[0].Flags != f.Flags {
						return fmt.Errorf("tags %d: another look shows another frame: %x", i, again[0].Data)
					}
					return nil
				}}
				r.until(1)
			}
		}
	})
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

func TestPacketLengthLimits(t *testing.T) {
	eachMethod(t, func(t *testing.T, m SendMethod) {
		a, _, _ := nstest.Veth(t)
		tx := openPacket(t, a, PacketOptions{Send: m})
		before := nstest.Count(t, "", a)
		send := func(length int, etherType uint16) (int, error) {
			lens, bufs := []int32{int32(length), 60}, make([][]byte, 2)
			n := tx.Reserve(lens, bufs)
			for _, b := range bufs[:n] {
				experimental(b, 0)
			}
			if n > 0 {
				binary.BigEndian.PutUint16(bufs[0][12:], etherType)
			}
			tx.Commit(n)
			return n, tx.Flush()
		}
		if n, err := send(1514, 0x88b5); n != 2 || err != nil {
			t.Errorf("a full frame: %d, %v", n, err)
		}
		if n, err := send(1518, 0x8100); n != 2 || err != nil {
			t.Errorf("a full tagged frame: %d, %v", n, err)
		}
		if n, err := send(1519, 0x8100); n != 0 || !errors.Is(err, ErrTooLong) {
			t.Errorf("a frame too long: %d, %v", n, err)
		}
		if n, err := send(1518, 0x88b5); n != 2 || !errors.Is(err, ErrTooLong) || tx.Pending() != 0 {
			t.Errorf("an untagged frame too long: %d, %v", n, err)
		}
		if k, s := nstest.Count(t, "", a).Sub(before), statsOf(tx); k.TxFrames != 5 || s.TxFrames != 5 || s.TxErrors != 2 || tx.Err() != nil {
			t.Errorf("kernel %+v, ours %+v, %v", k, s, tx.Err())
		}
	})
}

// TestPacketBytesByAPlainSocket has recvfrom judge what each way of sending puts on the medium, and sendto feed
// the receive ring.
func TestPacketBytesByAPlainSocket(t *testing.T) {
	eachMethod(t, func(t *testing.T, m SendMethod) {
		a, b, ns := nstest.Veth(t)
		w := openPacket(t, a, PacketOptions{Send: m})
		plain := plainSocket(t, ns, b)
		want, got := make([]byte, 1514), make([]byte, 2048)
		for k := range uint64(300) {
			frame := want[:MinFrame+k*37%1455]
			experimental(frame, k)
			sendAll(t, w, 1, func(uint64) int { return len(frame) }, func(b []byte, _ uint64) { copy(b, frame) }, func() {})
			n, _, err := unix.Recvfrom(plain, got, 0)
			if err != nil || !bytes.Equal(got[:n], frame) {
				t.Fatalf("frame %d: %v\n got %x\nwant %x", k, err, got[:n], frame)
			}
			if _, err := unix.Write(plain, frame); err != nil {
				t.Fatal(err)
			}
			r := &receiver{t: t, w: w, check: func(f *Frame, _ uint64) error {
				if !bytes.Equal(f.Data, frame) {
					return fmt.Errorf("frame %d back:\n got %x\nwant %x", k, f.Data, frame)
				}
				return nil
			}}
			r.until(1)
		}
	})
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

func TestPacketTruncatedFramesAreMarked(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	tx, rx := openPacket(t, a, PacketOptions{}), openPacket(t, b, PacketOptions{NetNS: ns, RingSlot: 256})
	lengths := []int{60, 1000, 128}
	r := &receiver{t: t, w: rx, check: func(f *Frame, seq uint64) error {
		want := make([]byte, lengths[seq])
		experimental(want, seq)
		cut := len(want) > 128
		if (f.Flags&FlagTruncated != 0) != cut || !bytes.Equal(f.Data, want[:min(128, len(want))]) {
			return fmt.Errorf("frame %d: flags %x, %x", seq, f.Flags, f.Data)
		}
		return nil
	}}
	sendAll(t, tx, 3, func(k uint64) int { return lengths[k] }, experimental, r.take)
	r.until(3)
	if s := statsOf(rx); s.RxTruncated != 1 {
		t.Errorf("%+v", s)
	}
}

// TestPacketChecksumLeftToHardware: a veth delivers a datagram of the host with an unfinished checksum. With the
// sender's offload off it is finished.
func TestPacketChecksumLeftToHardware(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	nstest.Run(t, "", "ip", "addr", "add", "198.18.0.1/24", "dev", a)
	nstest.Run(t, "", "ip", "neigh", "add", "198.18.0.2", "lladdr", "02:00:00:00:00:02", "dev", a)
	rx := openPacket(t, b, PacketOptions{NetNS: ns})
	tx := openPacket(t, a, PacketOptions{})
	if got := tx.Info().Addr4.String(); got != "198.18.0.1" {
		t.Errorf("address %s", got)
	}
	c, err := net.Dial("udp", "198.18.0.2:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, offload := range []bool{true, false} {
		if !offload {
			nstest.NoOffload(t, "", a)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		r := &receiver{t: t, w: rx, check: func(f *Frame, _ uint64) error {
			if (f.Flags&FlagCsumNotReady != 0) != offload {
				return fmt.Errorf("offload %v: flags %x, %x", offload, f.Flags, f.Data)
			}
			return nil
		}}
		r.until(1)
	}
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

func TestPacketLosesItsInterface(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(t *testing.T, a, b, ns string)
		want error
	}{
		"down":     {func(t *testing.T, a, b, ns string) { nstest.Down(t, "", a) }, ErrDown},
		"carrier":  {func(t *testing.T, a, b, ns string) { nstest.Down(t, ns, b) }, ErrNoCarrier},
		"vanished": {func(t *testing.T, a, b, ns string) { nstest.Delete(t, ns, b) }, ErrVanished},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, ns := nstest.Veth(t)
			for _, idle := range []bool{true, false} {
				w := openPacket(t, a, PacketOptions{SendOnly: idle})
				defer func() {
					s := statsOf(w)
					if idle != (s.TxFrames+s.TxErrors == 0) || w.Pending() != 0 {
						t.Errorf("idle %v: %+v", idle, s)
					}
				}()
				if idle {
					defer checkLost(t, w, a, c.want)
					continue
				}
				defer checkLost(t, w, a, c.want)
				defer func() {
					for w.Flush() == nil {
						if w.Reserve([]int32{60}, make([][]byte, 1)) == 1 {
							w.Commit(1)
						}
					}
				}()
			}
			c.act(t, a, b, ns)
		})
	}
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

func TestPacketOpenErrors(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	if _, err := OpenPacket("nosuch0", PacketOptions{}); !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), a) {
		t.Error(err)
	}
	if _, err := OpenPacket(b, PacketOptions{}); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	if _, err := OpenPacket(b, PacketOptions{NetNS: "nosuch"}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/run/netns/nosuch") {
		t.Error(err)
	}
	openPacket(t, b, PacketOptions{NetNS: "/run/netns/" + ns}).Close()
	nstest.Down(t, "", a)
	if _, err := OpenPacket(a, PacketOptions{}); !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), a) {
		t.Error(err)
	}
	nstest.Up(t, "", a)
	nstest.Down(t, ns, b)
	if _, err := OpenPacket(a, PacketOptions{}); !errors.Is(err, ErrNoCarrier) {
		t.Error(err)
	}
}

// TestPacketWithoutPrivilege drops CAP_NET_RAW from one thread, which then ends.
func TestPacketWithoutPrivilege(t *testing.T) {
	nstest.Need(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			done <- err
			return
		}
		_, err := OpenPacket("lo", PacketOptions{})
		done <- err
	}()
	self, _ := os.Executable()
	err := <-done
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "setcap cap_net_raw+ep "+self) {
		t.Error(err)
	}
}

func TestPacketAllocatesNothing(t *testing.T) {
	eachMethod(t, func(t *testing.T, m SendMethod) {
		a, b, ns := nstest.Veth(t)
		tx, rx := openPacket(t, a, PacketOptions{Send: m}), openPacket(t, b, PacketOptions{NetNS: ns})
		checkAllocs(t, func() {}, tx, rx)
		if statsOf(rx).RxFrames == 0 {
			t.Error("nothing was received")
		}
	})
}

func TestPacketLeaksNothing(t *testing.T) {
	_, b, ns := nstest.Veth(t)
	o := PacketOptions{NetNS: ns, RingBytes: 64 << 10, TxSlots: 16}
	cycle := func(m SendMethod) {
		o := o
		o.Send = m
		w, err := OpenPacket(b, o)
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	}
	cycle(SendRing)
	files, maps := openFiles(t), mappings(t)
	var all sync.WaitGroup // at once: each close waits for the kernel's grace period
	for range 50 {
		all.Go(func() {
			for range 10 {
				cycle(SendMMsg)
				cycle(SendRing)
			}
		})
	}
	all.Wait()
	if f := openFiles(t); f != files {
		t.Errorf("%d descriptors before, %d after", files, f)
	}
	if m := mappings(t); m != maps {
		t.Errorf("%d packet mappings before, %d after", maps, m)
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

// TestPacketTime: a frame's time lies between the readings around it, in the clock's time.
func TestPacketTime(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	tx := openPacket(t, a, PacketOptions{})
	rx := openPacket(t, b, PacketOptions{NetNS: ns})
	clk := tx.(*packet).clk
	const slack = int64(100 * time.Microsecond) // the kernel's clock reading is not ours
	before := clk.Now()
	r := &receiver{t: t, w: rx, check: func(f *Frame, _ uint64) error {
		if now := clk.Now(); f.TimeNS < before-slack || f.TimeNS > now+slack {
			return fmt.Errorf("arrival %d is not between %d and %d", f.TimeNS, before, now)
		}
		return nil
	}}
	sendAll(t, tx, 1, func(uint64) int { return 60 }, experimental, r.take)
	r.until(1)
}

func TestPacketReceivesNothingOfItsOwn(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	tx, rx := openPacket(t, a, PacketOptions{}), openPacket(t, b, PacketOptions{NetNS: ns})
	r := &receiver{t: t, w: rx, check: func(*Frame, uint64) error { return nil }}
	sendAll(t, tx, 100, func(uint64) int { return 60 }, experimental, r.take)
	r.until(100)
	if n := tx.Next(make([]Frame, 1)); n != 0 {
		t.Error("it sees what it sent")
	}
}

// BenchmarkPacket sends over a veth whose other end drops what it gets.
func BenchmarkPacket(b *testing.B) {
	for _, m := range methods {
		for _, size := range []int32{60, 1514} {
			b.Run(fmt.Sprintf("%s/size=%d/burst=32", m, size), func(b *testing.B) {
				dev, _, _ := nstest.Veth(b)
				w := openPacket(b, dev, PacketOptions{Send: m, SendOnly: true})
				r := rand.New(rand.NewPCG(1, 2))
				src := make([]byte, size)
				for i := range src {
					src[i] = byte(r.Uint32())
				}
				experimental(src, 0)
				var lens [32]int32
				var bufs [32][]byte
				for i := range lens {
					lens[i] = size
				}
				b.ReportAllocs()
				b.ResetTimer()
				for sent := 0; sent < b.N; {
					n := w.Reserve(lens[:min(len(lens), b.N-sent)], bufs[:])
					for i := range bufs[:n] {
						copy(bufs[i], src)
					}
					w.Commit(n)
					sent += n
					if err := w.Flush(); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				for w.Pending() > 0 {
					w.Flush()
				}
				b.ReportMetric(float64(statsOf(w).TxRetries)/float64(b.N), "retries/op")
			})
		}
	}
}

// TestPacketRingOfAnySize: a size that is no power of two must not move the slots.
func TestPacketRingOfAnySize(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	tx, rx := openPacket(t, a, PacketOptions{}), openPacket(t, b, PacketOptions{NetNS: ns, RingBytes: 5 * 64 << 10, RingSlot: 256})
	const count = 5000 // several laps
	r := &receiver{t: t, w: rx, check: func(f *Frame, seq uint64) error {
		want := make([]byte, 60)
		if experimental(want, seq); !bytes.Equal(f.Data, want) {
			return fmt.Errorf("frame %d: %x", seq, f.Data)
		}
		return nil
	}}
	sendAll(t, tx, count, func(uint64) int { return 60 }, experimental, r.take)
	r.until(count)
}

// TestPacketFanout: wires of a group share what the interface receives; no frame comes twice, none is missing, and a flow
// stays with one of them. A wire outside the group sees all.
func TestPacketFanout(t *testing.T) {
	const count, flows, members = 6000, 100, 3
	a, b, ns := nstest.Veth(t)
	tx, all := openPacket(t, a, PacketOptions{}), openPacket(t, b, PacketOptions{NetNS: ns})
	var group [members]Wire
	for i := range group {
		group[i] = openPacket(t, b, PacketOptions{NetNS: ns, Fanout: 7})
	}
	if _, err := OpenPacket(a, PacketOptions{Fanout: 65535}); err != nil { // another interface, another group
		t.Error(err)
	}
	var frames [flows][]byte
	for i := range frames {
		s := gso4
		s.SrcPort, s.Payload = uint16(1000+i), make([]byte, 18)
		frames[i] = s.Build()
	}
	got, place := uint64(0), map[uint16]int{}
	var perMember [members]uint64
	take := func() {
		var in [64]Frame
		for i, w := range group {
			n := w.Next(in[:])
			for _, f := range in[:n] {
				port := binary.BigEndian.Uint16(f.Data[34:])
				if was, ok := place[port]; ok && was != i {
					t.Fatalf("the flow of port %d came to %d and %d", port, was, i)
				}
				place[port] = i
			}
			w.Release(n)
			got += uint64(n)
			perMember[i] += uint64(n)
		}
		all.Release(all.Next(in[:]))
	}
	sendAll(t, tx, count, func(k uint64) int { return len(frames[k%flows]) }, func(b []byte, k uint64) { copy(b, frames[k%flows]) }, take)
	for deadline := time.Now().Add(20 * time.Second); got < count || statsOf(all).RxFrames < count; take() {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d came, %v", got, count, perMember)
		}
	}
	take()
	if got != count || len(place) != flows || statsOf(all).RxFrames != count {
		t.Errorf("%d frames of %d flows in the group, %d outside", got, len(place), statsOf(all).RxFrames)
	}
	for i, n := range perMember {
		if n == 0 || n == count {
			t.Errorf("member %d got %d of %d", i, n, count)
		}
	}
}
