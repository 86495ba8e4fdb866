package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/tso"
)

// burst makes count look-alike datagrams; odd is the length of the last one's payload.
func burst(s frametest.Spec, id uint16, count, payload, odd int) (frames [][]byte) {
	for i := range count {
		n := payload
		if i == count-1 {
			n = odd
		}
		s.Payload = make([]byte, n)
		for k := range s.Payload {
			s.Payload[k] = byte(i*31 + k*7)
		}
		f := s.Build()
		if s.Src.Is4() {
			setID(f, 14+4*len(s.VLANs), id+uint16(i))
		}
		frames = append(frames, f)
	}
	return frames
}

// setID changes the identification of an IPv4 header, and its checksum with it.
func setID(f []byte, l3 int, id uint16) {
	ip := f[l3 : l3+int(f[l3]&15)*4]
	binary.BigEndian.PutUint16(ip[4:], id)
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

var (
	gso4 = frametest.Spec{DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), SrcPort: 1000, DstPort: 9}
	gso6 = frametest.Spec{DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, Src: netip.MustParseAddr("2001:2::1"), Dst: netip.MustParseAddr("2001:2::2"), SrcPort: 1000, DstPort: 9}
)

// mixture has bursts that can go as one, bursts that nearly can, and frames that are wrong on purpose.
func mixture() (frames [][]byte) {
	tagged, options, other := gso4, gso4, gso4
	tagged.VLANs, options.IPOptions, other.DstPort = []uint16{5}, 8, 10
	add := func(b [][]byte) { frames = append(frames, b...) }
	add(burst(gso4, 7, 64, 18, 18))
	add(burst(gso4, 65530, 20, 1472, 100)) // the identification goes round
	add(burst(gso6, 0, 130, 100, 1))       // more than one super-frame may hold
	add(burst(tagged, 1, 9, 700, 700))
	add(burst(options, 1, 9, 64, 63))
	add(burst(gso4, 1, 3, 18, 19))                                // the last is longer
	for _, s := range []frametest.Spec{gso4, other, gso4, gso6} { // flows that take turns
		add(burst(s, 3, 2, 30, 30))
		add(burst(s, 3, 1, 30, 30))
	}
	same := burst(gso4, 9, 4, 40, 40)
	for _, f := range same {
		setID(f, 14, 9)
	}
	add(same)
	for _, spoil := range []func(f []byte){
		func(f []byte) { f[len(f)-1] ^= 1 },               // a wrong UDP checksum
		func(f []byte) { f[24] ^= 1 },                     // a wrong IPv4 checksum
		func(f []byte) { f[40], f[41] = 0, 0 },            // none
		func(f []byte) { f[22]--; setID(f, 14, 2) },       // another TTL
		func(f []byte) { f[20] |= 0x20; setID(f, 14, 2) }, // a fragment
		func(f []byte) { f[15] = 1; setID(f, 14, 2) },     // another class
	} {
		b := burst(gso4, 1, 5, 50, 50)
		spoil(b[1])
		add(b)
	}
	tcp := gso4
	tcp.TCP = true
	add(burst(tcp, 1, 3, 50, 50))
	for i := range 5 {
		f := make([]byte, 60+i)
		experimental(f, uint64(i))
		add([][]byte{f})
	}
	return frames
}

// TestPacketGSODeliversTheSame: whether the kernel gets bursts as super-frames or frame by frame, the other end sees the
// same bytes: where the kernel cuts, because the sender's interface does not, and where the receiving wire cuts.
func TestPacketGSODeliversTheSame(t *testing.T) {
	nstest.Need(t)
	frames := mixture()
	for _, c := range []struct {
		name          string
		send, receive bool
		forced        bool
	}{{"off", false, false, true}, {"cut by the kernel", true, false, true}, {"cut by the receiver", true, true, false}, {"both", true, true, true}} {
		t.Run(c.name, func(t *testing.T) {
			a, b, ns := nstest.Veth(t)
			if c.forced {
				nstest.Run(t, "", "ethtool", "-K", a, "tx", "off", "tso", "off")
			}
			tx := openPacket(t, a, PacketOptions{GSO: c.send})
			rx := openPacket(t, b, PacketOptions{NetNS: ns, GSO: c.receive})
			before := nstest.Count(t, ns, b)
			r := &receiver{t: t, w: rx, check: func(f *Frame, seq uint64) error {
				if !bytes.Equal(f.Data, frames[seq]) || f.Flags&^FlagVLANRestored != 0 {
					return fmt.Errorf("frame %d, flags %x:\n got %x\nwant %x", seq, f.Flags, f.Data, frames[seq])
				}
				return nil
			}}
			sendAll(t, tx, uint64(len(frames)), func(k uint64) int { return len(frames[k]) }, func(b []byte, k uint64) { copy(b, frames[k]) }, r.take)
			r.until(uint64(len(frames)))
			packets := nstest.Count(t, ns, b).Sub(before).RxFrames
			if s := statsOf(tx); s.TxFrames != uint64(len(frames)) || s.TxErrors != 0 {
				t.Errorf("%+v, want %d frames", s, len(frames))
			}
			if s := statsOf(rx); s.RxFrames != uint64(len(frames)) || s.RxBytes != statsOf(tx).TxBytes {
				t.Errorf("received %+v, sent %+v", s, statsOf(tx))
			}
			// bursts of 32 frames at most come from sendAll
			if uncut := c.send && !c.forced; uncut != (packets < uint64(len(frames))/2) {
				t.Errorf("the kernel passed %d packets for %d frames", packets, len(frames))
			}
		})
	}
}

// TestPacketSuper: the kernel, or the receiving wire, cuts what ReserveSuper takes into what package tso says, to the byte.
func TestPacketSuper(t *testing.T) {
	nstest.Need(t)
	tcp4, tcp6, tagged, cwr := gso4, gso6, gso4, gso4
	tcp4.TCP, tcp6.TCP, tagged.TCP, cwr.TCP = true, true, true, true
	tcp4.TCPOptions, tagged.VLANs = 12, []uint16{7}
	for _, c := range []struct {
		name    string
		s       frametest.Spec
		payload int
		mss     int
		touch   func(f []byte)
	}{
		{"TCP over IPv4", tcp4, 64000, 1448, nil}, {"TCP over IPv6", tcp6, 64000, 1428, nil}, {"tagged", tagged, 30000, 1460, nil},
		{"exact", tcp6, 2856, 1428, nil}, {"UDP", gso4, 60000, 1472, nil},
		{"FIN and PSH", tcp4, 10000, 1448, func(f []byte) { f[14+20+13] |= 0x09 }},
		{"IPv4 without length", tcp4, 10000, 1448, func(f []byte) { f[16], f[17] = 0, 0 }},
		{"IPv6 of any length", tcp6, 10000, 1428, func(f []byte) { f[18], f[19] = 0xff, 0xff }},
		{"CWR", cwr, 10000, 1460, func(f []byte) { f[14+20+13] |= 0x80 }},
	} {
		for _, forced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/forced=%v", c.name, forced), func(t *testing.T) {
				a, b, ns := nstest.Veth(t)
				if forced {
					nstest.Run(t, "", "ethtool", "-K", a, "tx", "off", "tso", "off")
				}
				tx := openPacket(t, a, PacketOptions{GSO: true}).(Super)
				rx := openPacket(t, b, PacketOptions{NetNS: ns, GSO: !forced})
				s := c.s
				s.Payload = make([]byte, c.payload)
				for i := range s.Payload {
					s.Payload[i] = byte(i * 17)
				}
				header := func() []byte { // of a packet with that payload
					short := s
					short.Payload = nil
					return short.Build()
				}()
				if c.touch != nil {
					c.touch(header)
				}
				var p tso.Plan
				if err := p.Make(header, c.payload, c.mss); err != nil {
					t.Fatal(err)
				}
				walk := p.Segmenter(header)
				room := make([]byte, 2000)
				r := &receiver{t: t, w: rx, check: func(f *Frame, seq uint64) error {
					if seq == uint64(p.Segments()) {
						walk.Seek(0)
					}
					want := room[:walk.Write(room, s.Payload)]
					if !bytes.Equal(f.Data, want) {
						return fmt.Errorf("piece %d:\n got %x\nwant %x", seq, f.Data, want)
					}
					return nil
				}}
				buf := tx.ReserveSuper(len(header)+c.payload, len(header), c.mss)
				if buf == nil {
					t.Fatal("no room")
				}
				copy(buf, header)
				copy(buf[len(header):], s.Payload)
				tx.Commit(1)
				// Once more, from where it is, in pieces, and behind the first, which nobody has flushed.
				third := c.payload / 3
				if before := bytes.Clone(header); !tx.SendSuper(header, [][]byte{s.Payload[:third], nil, s.Payload[third : third+7], s.Payload[third+7:]}, c.mss) {
					t.Fatal("not sent")
				} else if !bytes.Equal(before, header) {
					t.Error("the caller's header was changed")
				}
				if err := tx.Flush(); err != nil {
					t.Fatal(err)
				}
				r.until(2 * uint64(p.Segments()))
				if st := statsOf(tx); st.TxFrames != 2*uint64(p.Segments()) || st.TxBytes != 2*uint64(p.FrameBytes()) || tx.Pending() != 0 {
					t.Errorf("%+v, want twice %d frames of %d bytes in all", st, p.Segments(), p.FrameBytes())
				}
				if st := statsOf(rx); st.RxFrames != 2*uint64(p.Segments()) || st.RxBytes != 2*uint64(p.FrameBytes()) {
					t.Errorf("received %+v", st)
				}
			})
		}
	}
}

// TestPacketSuperRoom: there is an end to the room, which comes back when the kernel has taken what stood there.
func TestPacketSuperRoom(t *testing.T) {
	nstest.Need(t)
	a, _, _ := nstest.Veth(t)
	w := openPacket(t, a, PacketOptions{GSO: true, SendOnly: true}).(Super)
	tcp := gso4
	tcp.TCP = true
	header := tcp.Build()
	for lap := range 3 {
		n := 0
		for ; n <= superSlots; n++ {
			b := w.ReserveSuper(10000, len(header), 1000)
			if b == nil {
				break
			}
			clear(b[copy(b, header):])
			w.Commit(1)
		}
		if n != superSlots {
			t.Fatalf("lap %d: room for %d", lap, n)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range [][3]int{{70000, 54, 1000}, {10000, 10, 1000}, {10000, 300, 1000}, {54, 54, 1000}, {1054, 54, 1000}, {10000, 54, 0}, {10000, 54, 1500}} {
		if w.ReserveSuper(bad[0], bad[1], bad[2]) != nil {
			t.Errorf("room for %v", bad)
		}
		if payload := make([]byte, max(bad[0]-bad[1], 0)); w.SendSuper(make([]byte, bad[1]), [][]byte{payload}, bad[2]) {
			t.Errorf("%v was sent", bad)
		}
	}
	if plain := openPacket(t, a, PacketOptions{}).(Super); plain.MaxSuper() != 0 || plain.ReserveSuper(10000, 54, 1000) != nil || plain.SendSuper(header, [][]byte{make([]byte, 10000)}, 1000) {
		t.Error("super-frames without gso=auto")
	}
}

func TestPacketGSOAllocatesNothing(t *testing.T) {
	nstest.Need(t)
	a, b, ns := nstest.Veth(t)
	tx, rx := openPacket(t, a, PacketOptions{GSO: true}), openPacket(t, b, PacketOptions{NetNS: ns, GSO: true})
	frames := burst(gso6, 0, 32, 100, 100)
	var lens [32]int32
	var bufs [32][]byte
	for i, f := range frames {
		lens[i] = int32(len(f))
	}
	tcp := gso4
	tcp.TCP = true
	header, pieces := tcp.Build(), [2][]byte{make([]byte, 5000), make([]byte, 5000)}
	var in [64]Frame
	got := 0
	once := func() {
		n := tx.Reserve(lens[:], bufs[:])
		for i := range bufs[:n] {
			copy(bufs[i], frames[i])
		}
		tx.Commit(n)
		tx.Flush()
		if !tx.(Super).SendSuper(header, pieces[:], 1000) {
			t.Fatal("not sent")
		}
		for k := rx.Next(in[:]); k > 0; k = rx.Next(in[:]) {
			rx.Release(k)
			got += k
		}
	}
	once()
	once()
	if n := testing.AllocsPerRun(100, once); n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
	if got == 0 {
		t.Error("nothing was received")
	}
}
