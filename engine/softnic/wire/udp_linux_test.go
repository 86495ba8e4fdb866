package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/internal/proto"
)

// TestUDPCarriesFramesExactly runs as any user, on loopback addresses.
func TestUDPCarriesFramesExactly(t *testing.T) {
	for name, gso := range map[string]GSOMode{"gso": GSOOn, "single": GSOOff} {
		t.Run(name, func(t *testing.T) {
			const count = 20011
			a, b := udpPair(t, UDPOptions{GSO: gso}, UDPOptions{})
			u := between(a, b)
			length := func(seq uint64) int { return u.headers() + 24 + int(seq/16*37%1501) } // runs of one length
			r := &receiver{t: t, w: b, check: func(f *Frame, seq uint64) error {
				return u.same(f, seq, length(seq))
			}}
			bytes := uint64(0)
			for seq := uint64(0); seq < count; {
				n := min(64, count-seq) // a small socket buffer holds so many
				first := seq
				sendAll(t, a, n, func(k uint64) int { return length(first + k) }, func(b []byte, k uint64) { u.write(b, first+k) }, func() {})
				for range n {
					bytes += uint64(length(seq))
					seq++
				}
				r.until(seq)
			}
			sa, sb := statsOf(a), statsOf(b)
			if sa.TxFrames != count || sb.RxFrames != count || sa.TxBytes != bytes || sb.RxBytes != bytes {
				t.Errorf("want %d frames of %d bytes\n%+v\n%+v", count, bytes, sa, sb)
			}
			if sa.TxErrors != 0 || sb.RxRingDrops != 0 || sb.RxTruncated != 0 || a.Pending() != 0 {
				t.Errorf("%+v\n%+v", sa, sb)
			}
		})
	}
}

func TestUDPOverIPv6(t *testing.T) {
	w, err := OpenUDP("::1", UDPOptions{GSO: GSOOn})
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, ErrNoDevice) {
		t.Skip(err) // somebody else's, or no IPv6 here
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	u := between(w, w)
	length := func(seq uint64) int { return udpHdr6 + 24 + int(seq/16%700) }
	r := &receiver{t: t, w: w, check: func(f *Frame, seq uint64) error {
		if f.Flags&FlagIDUnknown != 0 {
			return errors.New("IPv6 has no identification that could be unknown")
		}
		return u.same(f, seq, length(seq))
	}}
	for r.got < 1000 {
		first := r.got
		sendAll(t, w, 50, func(k uint64) int { return length(first + k) }, func(b []byte, k uint64) { u.write(b, first+k) }, func() {})
		r.until(first + 50)
	}
}

// TestUDPLoneFramesShowWhatArrived sends frames one at a time: of the kind of the one before, or with another length,
// TTL, TOS or sender, or behind others that share memory with them.
func TestUDPLoneFramesShowWhatArrived(t *testing.T) {
	for name, open := range map[string]func() (a, b, c Wire){
		"IPv4": func() (a, b, c Wire) {
			a, b = udpPair(t, UDPOptions{}, UDPOptions{})
			c, _ = udpPair(t, UDPOptions{}, UDPOptions{})
			return a, b, c
		},
		"IPv6": func() (a, b, c Wire) {
			a, err := OpenUDP("::1", UDPOptions{})
			if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, ErrNoDevice) {
				t.Skip(err) // somebody else's, or no IPv6 here
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { a.Close() })
			return a, a, a
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, c := open()
			const begin = defaultTTL - 300
			now := uint64(begin)
			length := func(seq uint64) int { return between(a, b).headers() + 24 + int(seq/7%5*4) }
			r := &receiver{t: t, w: b}
			send := func(w Wire) {
				u := between(w, b)
				r.check = func(f *Frame, _ uint64) error { return u.same(f, now, length(now)) }
				sendAll(t, w, 1, func(uint64) int { return length(now) }, func(b []byte, _ uint64) { u.write(b, now) }, func() {})
				r.until(r.got + 1)
				now++
			}
			look := func() {
				if b.Next(make([]Frame, 1)) != 0 {
					t.Fatal("a frame that nobody sent")
				}
			}
			for i := range 600 {
				look()
				send(a)
				if i%5 == 0 { // without a look in vain between, the third is not taken for a lone one
					look()
					send(c)
					send(c)
					send(a)
					look()
					send(c)
				}
			}
			if s := statsOf(b); s.RxFrames != now-begin || s.RxRingDrops != 0 {
				t.Errorf("%d frames were sent: %+v", now-begin, s)
			}
		})
	}
}

// TestUDPLoneFramesAreComparedWhole changes a bit of each byte of what a frame begins with, and of what comes with one.
func TestUDPLoneFramesAreComparedWhole(t *testing.T) {
	for _, off := range []int{udpHdr4, udpHdr6} {
		slot := bytes.Repeat([]byte("another frame?"), 8)
		tx := udpLoneTx{length: 100, off: int32(off)}
		copy(tx.head[:], slot[:off])
		if !tx.sends(slot, 100) || tx.sends(slot, 101) || tx.sends(slot, 99) {
			t.Errorf("headers of %d bytes: lengths are not told apart", off)
		}
		for i := range slot {
			slot[i] ^= 1 << (i % 8)
			if header := i >= 12 && i < off; tx.sends(slot, 100) == header {
				t.Errorf("headers of %d bytes: byte %d is compared: %v", off, i, !header)
			}
			slot[i] ^= 1 << (i % 8)
		}
	}
	rx, batch := new(udpLoneRx), newUDPBatch(1, true, false)
	rx.hdr.SetControllen(loneControl * 8)
	rx.tell(&batch, 50)
	if !rx.same(50) || rx.same(51) {
		t.Error("lengths are not told apart")
	}
	for _, words := range [][]uint64{rx.name[:], rx.ctl[:]} {
		for i := range words {
			words[i] ^= 1 << (i * 9)
			if rx.same(50) {
				t.Errorf("word %d of %d is not compared", i, len(words))
			}
			words[i] ^= 1 << (i * 9)
		}
	}
	if rx.hdr.Flags = unix.MSG_TRUNC; rx.same(50) {
		t.Error("a datagram that was cut is not told from a whole one")
	}
	rx.hdr.Flags = 0
	if rx.hdr.SetControllen(24); rx.same(50) {
		t.Error("a datagram without TOS is not told from one with")
	}
	rx.hdr.SetControllen(loneControl * 8)
	if rx.forget(); rx.same(50) {
		t.Error("what was forgotten is known")
	}
}

// TestUDPNobodyReads overruns a socket: what it dropped and what it held is what was sent, to the unit.
func TestUDPNobodyReads(t *testing.T) {
	for name, gso := range map[string]GSOMode{"gso": GSOOn, "single": GSOOff} {
		t.Run(name, func(t *testing.T) {
			const count = 30011
			a, b := udpPair(t, UDPOptions{GSO: gso}, UDPOptions{RecvBuf: 64 << 10})
			u := between(a, b)
			sendAll(t, a, count, func(uint64) int { return u.headers() + 64 }, u.write, func() {})
			if s := statsOf(a); s.TxFrames != count || s.TxErrors != 0 {
				t.Fatalf("%+v", s)
			}
			r := &receiver{t: t, w: b, check: func(*Frame, uint64) error { return nil }}
			for deadline := time.Now().Add(10 * time.Second); ; {
				r.take()
				if s := statsOf(b); s.RxFrames+s.RxRingDrops == count {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%+v do not add up to %d", statsOf(b), count)
				}
			}
			if s := statsOf(b); s.RxRingDrops == 0 || s.RxFrames == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func BenchmarkUDP(b *testing.B) {
	for name, gso := range map[string]GSOMode{"gso": GSOOn, "single": GSOOff} {
		for _, payload := range []int{24 + 64, 24 + 1024} {
			b.Run(fmt.Sprintf("%s/payload=%d/burst=32", name, payload-24), func(b *testing.B) {
				tx, rx := udpPair(b, UDPOptions{GSO: gso}, UDPOptions{})
				u := between(tx, rx)
				src := make([]byte, u.headers()+payload)
				u.write(src, 0)
				var lens [32]int32
				var bufs [32][]byte
				for i := range lens {
					lens[i] = int32(len(src))
				}
				var frames [64]Frame
				b.ReportAllocs()
				b.ResetTimer()
				for sent := 0; sent < b.N; {
					n := tx.Reserve(lens[:min(len(lens), b.N-sent)], bufs[:])
					for i := range bufs[:n] {
						copy(bufs[i], src)
					}
					tx.Commit(n)
					sent += n
					if err := tx.Flush(); err != nil {
						b.Fatal(err)
					}
					for {
						n := rx.Next(frames[:])
						if n == 0 {
							break
						}
						rx.Release(n)
					}
				}
				b.StopTimer()
				s := statsOf(rx)
				b.ReportMetric(float64(s.RxRingDrops)/float64(b.N), "drops/op")
			})
		}
	}
}

var udpFamilies = []struct{ name, addr, peer string }{{"IPv4", "198.18.0.1", "198.18.0.2"}, {"IPv6", "2001:db8::1", "2001:db8::2"}}

// TestUDPOnTheMedium compares what leaves, run or not, with the frames that were committed: the kernel's headers are
// those that the ICRC was made for.
func TestUDPOnTheMedium(t *testing.T) {
	nstest.Need(t)
	for _, f := range udpFamilies {
		for _, gso := range []GSOMode{GSOOn, GSOOff} {
			t.Run(fmt.Sprintf("%s gso %d", f.name, gso), func(t *testing.T) {
				w, other, u := udpNet(t, f.addr, f.peer, UDPOptions{GSO: gso})
				length := func(seq uint64) int { return u.headers() + 24 + int(seq/16*37%1401) }
				highest := uint16(0)
				r := &receiver{t: t, w: other}
				r.check = func(fr *Frame, _ uint64) error {
					if et := binary.BigEndian.Uint16(fr.Data[12:]); et != proto.EtherTypeIPv4 && et != proto.EtherTypeIPv6 || fr.Data[12] == 0x86 && fr.Data[20] != 17 {
						r.got-- // neighbour discovery of the kernel
						return nil
					}
					highest = max(highest, binary.BigEndian.Uint16(fr.Data[18:])*uint16(fr.Data[14]>>4&1^1))
					return u.left(fr.Data, r.got, length(r.got))
				}
				const count = 1000
				for r.got < count {
					first := r.got
					sendAll(t, w, 100, func(k uint64) int { return length(first + k) }, func(b []byte, k uint64) { u.write(b, first+k) }, func() {})
					r.until(first + 100)
				}
				if s := statsOf(w); s.TxFrames != count || s.TxErrors != 0 {
					t.Errorf("%+v", s)
				}
				if want := gso == GSOOn && f.name == "IPv4"; want != (highest == 15) {
					t.Errorf("identifications up to %d; runs are of 16", highest)
				}
			})
		}
	}
}

// TestUDPShowsWhatArrived sends frames that other senders make: with an identification, another source port, and too
// long ones.
func TestUDPShowsWhatArrived(t *testing.T) {
	nstest.Need(t)
	for _, f := range udpFamilies {
		t.Run(f.name, func(t *testing.T) {
			w, other, u := udpNet(t, f.addr, f.peer, UDPOptions{})
			back := udpFrames{u.dst, u.src, u.dmac, u.smac}
			mac := macOf(t, w)
			const length, port, id = 300, 0xc123, 0x9234
			sendAll(t, other, 1, func(uint64) int { return length }, func(b []byte, _ uint64) { back.foreign(b, mac, port, id) }, func() {})
			r := &receiver{t: t, w: w, check: func(fr *Frame, _ uint64) error {
				want := make([]byte, length)
				back.foreign(want, w.Info().MAC, port, 0)
				ip, l4, end := fr.Data[headerBytes:], u.headers()-8-headerBytes, length-headerBytes-4
				icrc, wire := proto.ICRC(ip, ip[0]>>4, l4, end), proto.LoadICRC(ip[end:])
				if f.name == "IPv4" {
					if got, ok := proto.ICRCAnyID(ip, end, icrc, wire); !ok || got != id || fr.Flags != FlagIDUnknown {
						return fmt.Errorf("identification %#x %v, flags %#x: %x", got, ok, fr.Flags, fr.Data)
					}
					proto.PutICRC(want[length-4:], wire)
				} else if icrc != wire || fr.Flags != 0 {
					return fmt.Errorf("ICRC %#x should be %#x, flags %#x", wire, icrc, fr.Flags)
				}
				if !bytes.Equal(fr.Data, want) {
					return fmt.Errorf("\n got %x\nwant %x", fr.Data, want)
				}
				return nil
			}}
			r.until(1)
		})
	}
}

func TestUDPRefusesWhatTheICRCForbids(t *testing.T) {
	a, b := udpPair(t, UDPOptions{GSO: GSOOn}, UDPOptions{})
	u := between(a, b)
	for _, shorter := range []int32{0, 0, 1} { // a frame alone, after one with the same headers
		var bufs [1][]byte
		a.Reserve([]int32{100 - shorter}, bufs[:])
		frame := make([]byte, 100)
		u.write(frame, defaultTTL)
		copy(bufs[0], frame)
		a.Commit(1)
		if err := a.Flush(); errors.Is(err, ErrNotRoCE) != (shorter != 0) {
			t.Errorf("a frame that is %d bytes too short: %v", shorter, err)
		}
	}
	alone := &receiver{t: t, w: b, check: func(f *Frame, _ uint64) error { return u.same(f, defaultTTL, 100) }}
	alone.until(2)
	for _, c := range []struct {
		name, says string
		spoil      func(b []byte)
	}{
		{"another EtherType", "UDP over IPv4", func(b []byte) { b[12] = 0x88 }},
		{"a VLAN tag", "UDP over IPv4", func(b []byte) { copy(b[12:], []byte{0x81, 0}) }},
		{"IPv4 options", "UDP over IPv4", func(b []byte) { b[14] = 0x46 }},
		{"TCP", "UDP over IPv4", func(b []byte) { b[23] = 6 }},
		{"an identification", "identification", func(b []byte) { b[19] = 1 }},
		{"no DF", "DF", func(b []byte) { b[20] = 0 }},
		{"a fragment", "DF", func(b []byte) { b[20] = 0x60 }},
		{"another source", "source address", func(b []byte) { b[29]++ }},
		{"another source port", "4791", func(b []byte) { b[34] ^= 1 }},
		{"another port", "4791", func(b []byte) { b[37]++ }},
		{"an IP length too long", "contradict", func(b []byte) { b[16]++ }},
		{"an IP length too short", "contradict", func(b []byte) { b[16], b[17] = 0, 20 }},
		{"another UDP length", "contradict", func(b []byte) { b[39]++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := statsOf(a)
			var bufs [3][]byte
			if a.Reserve([]int32{100, 100, 100}, bufs[:]) != 3 {
				t.Fatal("no room")
			}
			for i, b := range bufs {
				u.write(b, uint64(i))
			}
			c.spoil(bufs[1])
			a.Commit(3)
			if err := a.Flush(); !errors.Is(err, ErrNotRoCE) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if s := statsOf(a); s.TxFrames != before.TxFrames+2 || s.TxErrors != before.TxErrors+1 || a.Pending() != 0 || a.Err() != nil {
				t.Errorf("%+v, %d pending, %v", s, a.Pending(), a.Err())
			}
			r := &receiver{t: t, w: b, check: func(f *Frame, seq uint64) error { return u.same(f, 2*seq, 100) }}
			r.until(2)
		})
	}
	for _, length := range []int32{13, int32(a.Info().MaxFrame) + 1} {
		if n := a.Reserve([]int32{length}, make([][]byte, 1)); n != 0 {
			t.Errorf("room for %d bytes", length)
		}
		if err := a.Flush(); !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrTooShort) {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

// TestUDPNobodyListens: ICMP errors are counted, and stop nothing.
func TestUDPNobodyListens(t *testing.T) {
	a, b := udpPair(t, UDPOptions{GSO: GSOOff}, UDPOptions{})
	u := between(a, b)
	b.Close()
	const count = 200
	sendAll(t, a, count, func(uint64) int { return 100 }, u.write, func() { a.Next(make([]Frame, 1)) })
	a.FD()
	a.Next(make([]Frame, 1))
	if s := statsOf(a); s.TxFrames != count || s.TxErrors != 0 || s.TxUnreachable == 0 || s.TxUnreachable > count || a.Err() != nil {
		t.Errorf("%+v, %v", s, a.Err())
	}
	p := []unix.PollFd{{Fd: int32(a.FD()), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 0); n != 0 || err != nil {
		t.Errorf("a wait would end for nothing: %d, %v, %#x", n, err, p[0].Revents)
	}
}

// TestUDPNoWay: an address without a route costs its frames, and stops nothing.
func TestUDPNoWay(t *testing.T) {
	a, b := udpPair(t, UDPOptions{}, UDPOptions{})
	u, lost := between(a, b), between(a, b)
	lost.dst = netip.MustParseAddr("0.1.2.3")
	sendOne := func(u udpFrames, seq uint64) error {
		var bufs [1][]byte
		a.Reserve([]int32{100}, bufs[:])
		u.write(bufs[0], seq)
		a.Commit(1)
		return a.Flush()
	}
	if err := sendOne(lost, 0); err == nil || !strings.Contains(err.Error(), "0.1.2.3") {
		t.Errorf("%v", err)
	}
	if err := sendOne(u, 1); err != nil {
		t.Error(err)
	}
	r := &receiver{t: t, w: b, check: func(f *Frame, _ uint64) error { return u.same(f, 1, 100) }}
	r.until(1)
	if s := statsOf(a); s.TxFrames != 1 || s.TxErrors != 1 || a.Err() != nil {
		t.Errorf("%+v, %v", s, a.Err())
	}
}

func TestUDPKeepsAndMarksFrames(t *testing.T) {
	a, b := udpPair(t, UDPOptions{}, UDPOptions{StrictID: true})
	u := between(a, b)
	sendAll(t, a, 5, func(uint64) int { return 100 }, u.write, func() {})
	long := make([]byte, b.Info().MaxFrame-udpHdr4+9)
	plain, err := net.Dial("udp", netip.AddrPortFrom(u.dst, proto.RoCEPort).String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write(long); err != nil {
		t.Fatal(err)
	}
	frames := make([]Frame, 16)
	n := 0
	for deadline := time.Now().Add(10 * time.Second); n < 6 && time.Now().Before(deadline); {
		n = b.Next(frames)
	}
	if n != 6 {
		t.Fatalf("%d frames", n)
	}
	b.Release(2)
	if n = b.Next(frames[:3]); n != 3 {
		t.Fatalf("%d frames behind two released", n)
	}
	for i := range frames[:3] {
		if err := u.same(&frames[i], uint64(i+2), 100); err != nil || frames[i].Flags != 0 {
			t.Errorf("%v, flags %#x", err, frames[i].Flags)
		}
	}
	b.Release(3)
	if n = b.Next(frames); n != 1 || frames[0].Flags != FlagTruncated || len(frames[0].Data) != b.Info().MaxFrame {
		t.Errorf("%d frames, flags %#x, %d bytes", n, frames[0].Flags, len(frames[0].Data))
	}
	b.Release(1)
	if s := statsOf(b); s.RxFrames != 6 || s.RxTruncated != 1 {
		t.Errorf("%+v", s)
	}
}

// TestUDPSourcePorts: frames leave from the port they name, as many ports as were asked for.
func TestUDPSourcePorts(t *testing.T) {
	a, b := udpPair(t, UDPOptions{Ports: 2, GSO: GSOOn}, UDPOptions{})
	u := between(a, b)
	if a.Info().SrcPort != 0 || b.Info().SrcPort != proto.RoCEPort {
		t.Errorf("ports %d and %d", a.Info().SrcPort, b.Info().SrcPort)
	}
	ports := []uint16{50001, 50001, proto.RoCEPort, 65535, 50001, proto.RoCEPort}
	r := &receiver{t: t, w: b, check: func(f *Frame, seq uint64) error {
		want := make([]byte, 100)
		u.foreign(want, u.dmac, ports[seq], 0)
		if !bytes.Equal(f.Data, want) {
			return fmt.Errorf("frame %d:\n got %x\nwant %x", seq, f.Data, want)
		}
		return nil
	}}
	write := func(b []byte, seq uint64) { u.foreign(b, u.dmac, ports[seq], 0) }
	sendAll(t, a, uint64(len(ports)), func(uint64) int { return 100 }, write, r.take)
	r.until(uint64(len(ports)))
	var bufs [2][]byte
	a.Reserve([]int32{100, 100}, bufs[:])
	u.foreign(bufs[0], u.dmac, 50002, 0)
	u.foreign(bufs[1], u.dmac, 50001, 0)
	a.Commit(2)
	if err := a.Flush(); !errors.Is(err, ErrPorts) {
		t.Errorf("a third port: %v", err)
	}
	r.got = 0
	r.until(1)
	if s := statsOf(a); s.TxFrames != 7 || s.TxErrors != 1 || a.Pending() != 0 || a.Err() != nil {
		t.Errorf("%+v, %v", s, a.Err())
	}
}

// TestUDPGroups: a group's frames come to those who joined, also of other senders, and not to the sender.
func TestUDPGroups(t *testing.T) {
	a, b := udpPair(t, UDPOptions{}, UDPOptions{})
	u := between(a, b)
	group := netip.AddrFrom4([4]byte{239, 1, byte(os.Getpid()), byte(os.Getpid() >> 8)})
	u.dst, u.dmac = group, proto.MulticastMAC(proto.GIDFromAddr(group))
	na, nb := a.(Network), b.(Network)
	for _, w := range []Network{na, nb} {
		if err := errors.Join(w.Join(group), w.Join(group)); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"10.0.0.1", "ff02::1"} {
		if err := na.Join(netip.MustParseAddr(bad)); !errors.Is(err, unix.EINVAL) {
			t.Errorf("joined %s: %v", bad, err)
		}
	}
	sendAll(t, a, 10, func(uint64) int { return 100 }, u.write, func() {})
	r := &receiver{t: t, w: b, check: func(f *Frame, seq uint64) error { return u.same(f, seq, 100) }}
	r.until(10) // the wait in it is for all sockets
	if n := a.Next(make([]Frame, 4)); n != 0 {
		t.Errorf("the sender hears itself: %d frames", n)
	}
	if err := nb.Leave(group); err != nil {
		t.Error(err)
	}
	if err := nb.Leave(group); !errors.Is(err, unix.EINVAL) {
		t.Errorf("left twice: %v", err)
	}
	sendAll(t, a, 10, func(uint64) int { return 100 }, u.write, func() {})
	u.dst, u.dmac = between(a, b).dst, b.Info().MAC
	sendAll(t, a, 1, func(uint64) int { return 100 }, u.write, func() {})
	last := &receiver{t: t, w: b, check: func(f *Frame, _ uint64) error { return u.same(f, 0, 100) }}
	last.until(1)
}

// TestUDPGroupsCostNoBursts: a look at the empty socket of a group does not make the next look at the other a short one.
func TestUDPGroupsCostNoBursts(t *testing.T) {
	a, b := udpPair(t, UDPOptions{GSO: GSOOff}, UDPOptions{})
	u := between(a, b)
	if err := b.(Network).Join(netip.AddrFrom4([4]byte{239, 4, byte(os.Getpid()), byte(os.Getpid() >> 8)})); err != nil {
		t.Fatal(err)
	}
	sendAll(t, a, 63, func(uint64) int { return 100 }, u.write, func() {})
	frames := make([]Frame, 64)
	for _, want := range []int{1, 2, 4, 8, 16, 32} { // loopback delivers at once
		n := b.Next(frames)
		if n != want {
			t.Errorf("%d frames at once, want %d", n, want)
		}
		b.Release(n)
	}
}

func TestUDPOpenErrors(t *testing.T) {
	a, _ := udpPair(t, UDPOptions{}, UDPOptions{})
	for _, c := range []struct {
		addr string
		is   error
		says string
	}{
		{"eth0", ErrParam, "udp:eth0: want one unicast"},
		{"0.0.0.0", ErrParam, "unicast"},
		{"224.0.0.1", ErrParam, "unicast"},
		{"::ffff:127.0.0.1", ErrParam, "unicast"},
		{"192.0.2.77", ErrNoDevice, "127.0.0.1"},
		{a.(*udp).addr.String(), unix.EADDRINUSE, "rxe"},
	} {
		if _, err := OpenUDP(c.addr, UDPOptions{}); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.addr, err)
		}
	}
	if _, err := OpenUDP("127.0.0.1", UDPOptions{NetNS: "nosuch"}); err == nil {
		t.Error("opened in no namespace")
	}
}

func TestUDPLosesItsInterface(t *testing.T) {
	_, b, ns := nstest.Veth(t)
	nstest.Run(t, ns, "ip", "addr", "add", "198.18.0.1/24", "dev", b)
	w, err := OpenUDP("198.18.0.1", UDPOptions{NetNS: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if i := w.Info(); i.MTU != 1500 || i.MaxFrame != 1514 || i.MAC != [6]byte{2, 0, 198, 18, 0, 1} || !i.UDPOnly || i.SrcPort != 4791 {
		t.Errorf("%+v", i)
	}
	nstest.Down(t, ns, b)
	checkLost(t, w, "198.18.0.1", ErrDown)
	if w.Reserve([]int32{100}, make([][]byte, 1)) != 0 || w.Flush() != w.Err() {
		t.Error("a wire that is down takes frames")
	}
}

func TestUDPAllocatesNothing(t *testing.T) {
	a, b := udpPair(t, UDPOptions{GSO: GSOOn}, UDPOptions{})
	u := between(a, b)
	if err := b.(Network).Join(netip.AddrFrom4([4]byte{239, 2, byte(os.Getpid()), 1})); err != nil {
		t.Fatal(err)
	}
	var lens [32]int32
	var bufs [32][]byte
	var frames [32]Frame
	for i := range lens {
		lens[i] = int32(100 + i/4)
	}
	c, d := udpPair(t, UDPOptions{}, UDPOptions{})
	lone := between(c, d)
	if n := testing.AllocsPerRun(200, func() {
		c.Reserve(lens[:1], bufs[:])
		lone.write(bufs[0], defaultTTL)
		c.Commit(1)
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		d.Release(d.Next(frames[:]))
		d.Release(d.Next(frames[:]))
	}); n != 0 {
		t.Errorf("%v allocations a lone frame", n)
	}
	if n := testing.AllocsPerRun(200, func() {
		n := a.Reserve(lens[:], bufs[:])
		for i := range bufs[:n] {
			u.write(bufs[i], uint64(i))
		}
		a.Commit(n)
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
		b.Release(b.Next(frames[:]))
		b.FD()
	}); n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
	if statsOf(b).RxFrames == 0 {
		t.Error("nothing was received")
	}
}

func TestUDPLeaksNothing(t *testing.T) {
	a, _ := udpPair(t, UDPOptions{}, UDPOptions{})
	addr := a.(*udp).addr.String()
	a.Close()
	cycle := func() {
		w, err := OpenUDP(addr, UDPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = w.(Network).Join(netip.MustParseAddr("239.3.3.3"))
		if err = errors.Join(err, w.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	files := openFiles(t)
	for range 20 {
		cycle()
	}
	if f := openFiles(t); f != files {
		t.Errorf("%d descriptors before, %d after", files, f)
	}
}
