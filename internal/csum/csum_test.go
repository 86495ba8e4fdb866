package csum_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/internal/csum"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// dullSum is the sum as RFC 1071 describes it, a word at a time.
func dullSum(b []byte, init uint32) uint32 {
	s := uint64(init)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint64(b[i])<<8 | uint64(b[i+1])
	}
	if len(b)%2 == 1 {
		s += uint64(b[len(b)-1]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint32(s)
}

func TestSumEqualsWordByWord(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 400)
	for _, fill := range []func() byte{func() byte { return byte(r.Uint32()) }, func() byte { return 0xff }, func() byte { return 0 }} {
		for i := range buf {
			buf[i] = fill()
		}
		for n := 0; n <= 300; n++ {
			for off := range 9 {
				for _, init := range []uint32{0, 1, 0xffff, r.Uint32(), 0xffffffff} {
					if got, want := csum.Sum(buf[off:off+n], init), dullSum(buf[off:off+n], init); got != want {
						t.Fatalf("Sum of %d bytes at %d, init %#x: %#x, want %#x", n, off, init, got, want)
					}
				}
			}
		}
	}
}

// built is a frame as gopacket serialises it.
func built(t testing.TB, version int, tcp bool, payload []byte) (frame []byte, l3, l4 int) {
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	next := layers.IPProtocolUDP
	if tcp {
		next = layers.IPProtocolTCP
	}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	} = &layers.IPv4{Version: 4, TTL: 1, Protocol: next, SrcIP: []byte{198, 18, 0, 1}, DstIP: []byte{198, 18, 0, 2}}
	l4 = 34
	if version == 6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		a, b := make([]byte, 16), make([]byte, 16)
		a[0], a[15], b[0], b[15] = 0x20, 1, 0x20, 0xee
		ip, l4 = &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: next, SrcIP: a, DstIP: b}, 54
	}
	var up gopacket.SerializableLayer
	if tcp {
		h := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 77, ACK: true}
		_ = h.SetNetworkLayerForChecksum(ip)
		up = h
	} else {
		h := &layers.UDP{SrcPort: 1, DstPort: 2}
		_ = h.SetNetworkLayerForChecksum(ip)
		up = h
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, up, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), 14, l4
}

func TestVerifyAgreesWithGopacket(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, version := range []int{4, 6} {
		for _, tcp := range []bool{false, true} {
			l4Proto := uint8(17)
			if tcp {
				l4Proto = 6
			}
			for n := 0; n < 70; n++ {
				payload := make([]byte, n)
				for i := range payload {
					payload[i] = byte(r.Uint32())
				}
				f, l3, l4 := built(t, version, tcp, payload)
				end := l4 + 8 + n // gopacket pads the frame to 60 bytes
				if tcp {
					end = l4 + 20 + n
				}
				if version == 4 && !csum.VerifyIPv4(f[l3:l4]) {
					t.Fatal("IPv4 header judged wrong")
				}
				if !csum.VerifyL4(f, l3, l4, end, l4Proto) {
					t.Fatalf("version %d proto %d payload %d judged wrong", version, l4Proto, n)
				}
				bit := r.IntN(8 * (end - l4))
				f[l4+bit/8] ^= 1 << (bit % 8)
				if csum.VerifyL4(f, l3, l4, end, l4Proto) {
					t.Fatalf("version %d proto %d: flipped bit %d passed", version, l4Proto, bit)
				}
			}
		}
	}
}

// TestFilledChecksumsAreGopackets spoils the fields first; TCP with an odd payload and UDP are among them.
func TestFilledChecksumsAreGopackets(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, version := range []int{4, 6} {
		for _, tcp := range []bool{false, true} {
			for n := 0; n < 70; n++ {
				payload := make([]byte, n)
				for i := range payload {
					payload[i] = byte(r.Uint32())
				}
				want, l3, l4 := built(t, version, tcp, payload)
				got := append([]byte(nil), want...)
				l4Proto, end, at := uint8(17), l4+8+n, l4+6
				if tcp {
					l4Proto, end, at = 6, l4+20+n, l4+16
				}
				got[at], got[at+1] = byte(r.Uint32()), byte(r.Uint32())
				if version == 4 {
					got[l3+10], got[l3+11] = byte(r.Uint32()), byte(r.Uint32())
					csum.FillIPv4(got[l3:l4])
				}
				if !csum.FillL4(got, l3, l4, end, l4Proto) || !bytes.Equal(got, want) {
					t.Fatalf("version %d proto %d payload %d\n got %x\nwant %x", version, l4Proto, n, got, want)
				}
			}
		}
	}
}

func TestUDPChecksumThatComesOutAsZeroIsOnes(t *testing.T) {
	f, l3, l4 := built(t, 4, false, []byte{0, 0})
	sum := binary.BigEndian.Uint16(f[l4+6:])
	binary.BigEndian.PutUint16(f[l4+8:], sum) // now all words add up to ones
	if !csum.FillL4(f, l3, l4, l4+10, 17) || f[l4+6] != 0xff || f[l4+7] != 0xff {
		t.Errorf("checksum %x", f[l4+6:l4+8])
	}
}

func TestWhatHasNoChecksumIsLeftAlone(t *testing.T) {
	good, l3, l4 := built(t, 4, false, []byte("abc"))
	for name, edit := range map[string]func([]byte) (end int, l4Proto uint8){
		"ICMP":            func([]byte) (int, uint8) { return l4 + 11, 1 },
		"end past frame":  func(f []byte) (int, uint8) { return len(f) + 1, 17 },
		"cut UDP":         func([]byte) (int, uint8) { return l4 + 7, 17 },
		"cut TCP":         func([]byte) (int, uint8) { return l4 + 19, 6 },
		"UDP length long": func(f []byte) (int, uint8) { f[l4+5] = 12; return l4 + 11, 17 },
		"UDP length 7":    func(f []byte) (int, uint8) { f[l4+5] = 7; return l4 + 11, 17 },
		"IP version":      func(f []byte) (int, uint8) { f[l3] = 0x55; return l4 + 11, 17 },
	} {
		f := append([]byte(nil), good...)
		end, l4Proto := edit(f)
		before := append([]byte(nil), f...)
		if csum.FillL4(f, l3, l4, end, l4Proto) || !bytes.Equal(f, before) {
			t.Errorf("%s: written", name)
		}
	}
}

func TestUDPWithoutChecksumIsRightInIPv4Only(t *testing.T) {
	for _, version := range []int{4, 6} {
		f, l3, l4 := built(t, version, false, []byte("abc"))
		f[l4+6], f[l4+7] = 0, 0
		if got := csum.VerifyL4(f, l3, l4, len(f), 17); got != (version == 4) {
			t.Errorf("IPv%d: %v", version, got)
		}
	}
	if got := csum.FinishUDP(0xffff); got != 0xffff {
		t.Errorf("FinishUDP(0xffff) = %#x", got)
	}
}

func FuzzVerify(f *testing.F) {
	frame, _, _ := built(f, 4, false, []byte("abc"))
	f.Add(frame, 14, 34, len(frame), uint8(17))
	frame, _, _ = built(f, 6, true, nil)
	f.Add(frame, 14, 54, len(frame), uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, l3, l4, end int, l4Proto uint8) {
		csum.VerifyL4(b, l3, l4, end, l4Proto)
		csum.VerifyIPv4(b)
		c := append([]byte(nil), b...)
		if csum.FillL4(c, l3, l4, end, l4Proto) && !csum.VerifyL4(c, l3, l4, end, l4Proto) {
			t.Fatal("a checksum that was filled in is wrong")
		}
		if got, want := csum.Sum(b, uint32(l3)), dullSum(b, uint32(l3)); got != want {
			t.Fatalf("Sum = %#x, want %#x", got, want)
		}
	})
}

var sink uint32

func BenchmarkSum(b *testing.B) {
	buf := make([]byte, 1500)
	for _, n := range []int{20, 64, 1500} {
		b.Run("size="+map[int]string{20: "20", 64: "64", 1500: "1500"}[n], func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				sink += csum.Sum(buf[:n], 0)
			}
		})
	}
}
