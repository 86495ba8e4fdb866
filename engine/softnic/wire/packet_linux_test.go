package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

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

func TestPacketWithoutPrivilege(t *testing.T) {
	nstest.Need(t)
	err := withCaps(func(caps *[2]unix.CapUserData) { clear(caps[:]) }, func() (Wire, error) { return OpenPacket("lo", PacketOptions{}) })
	self, _ := os.Executable()
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "setcap cap_net_raw+ep "+self) {
		t.Error(err)
	}
}
