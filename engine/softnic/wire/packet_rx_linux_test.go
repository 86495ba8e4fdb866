package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/nstest"
)

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

// TestPacketRingOfAnySize: a size that is no power of two must not move the slots.
func TestPacketRingOfAnySize(t *testing.T) {
	a, b, ns := nstest.Veth(t)
	tx, rx := openPacket(t, a, PacketOptions{}), openPacket(t, b, PacketOptions{NetNS: ns, RingBytes: 5 * 64 << 10, RingSlot: 256})
	const count = 5000 // several laps
	passes(t, tx, rx, count)
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
	openPacket(t, a, PacketOptions{Fanout: 65535}) // another interface, another group
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
