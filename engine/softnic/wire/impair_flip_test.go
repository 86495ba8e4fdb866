package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/internal/proto"
)

// flipFrame is a frame that gopacket built: ipBytes of IP header, then UDP or TCP, then a few bytes of padding.
type flipFrame struct {
	name           string
	data           []byte
	l3, l4, end    int
	v6, udp, plain bool // plain: UDP without a checksum
}

// dullSum is the ones' complement sum of RFC 1071, byte by byte.
func dullSum(sum uint32, b []byte) uint32 {
	for i, x := range b {
		if i%2 == 0 {
			sum += uint32(x) << 8
		} else {
			sum += uint32(x)
		}
		sum = sum>>16 + sum&0xffff
	}
	return sum
}

// right verifies both checksums of a frame whose layout is f's, without a look at its headers.
func (f *flipFrame) right(b []byte) bool {
	if !f.v6 && dullSum(0, b[f.l3:f.l4]) != 0xffff {
		return false
	}
	if f.plain {
		return true
	}
	addrs, protocol := b[f.l3+12:f.l3+20], uint32(6)
	if f.v6 {
		addrs = b[f.l3+8 : f.l3+40]
	}
	if f.udp {
		protocol = 17
	}
	return dullSum(dullSum(protocol+uint32(f.end-f.l4), addrs), b[f.l4:f.end]) == 0xffff
}

func flipFrames(t *testing.T) (out []flipFrame) {
	t.Helper()
	for _, f := range []flipFrame{
		{name: "IPv4 UDP", udp: true}, {name: "IPv4 TCP"}, {name: "IPv6 UDP", v6: true, udp: true}, {name: "IPv6 TCP", v6: true},
		{name: "IPv4 UDP without a checksum", udp: true, plain: true},
	} {
		eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
		v4 := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{198, 18, 0, 1}, DstIP: net.IP{198, 18, 0, 2}}
		v6 := &layers.IPv6{Version: 6, HopLimit: 1, NextHeader: layers.IPProtocolTCP, SrcIP: net.ParseIP("2001:2::1"), DstIP: net.ParseIP("2001:2::2")}
		udp, tcp := &layers.UDP{SrcPort: 1024, DstPort: 9}, &layers.TCP{SrcPort: 1024, DstPort: 9, ACK: true}
		ip, n, l4, m := gopacket.SerializableLayer(v4), 20, gopacket.SerializableLayer(tcp), 20
		var under gopacket.NetworkLayer = v4
		if f.v6 {
			eth.EthernetType, ip, under, n = layers.EthernetTypeIPv6, v6, v6, 40
		}
		if f.udp {
			v4.Protocol, v6.NextHeader, l4, m = layers.IPProtocolUDP, layers.IPProtocolUDP, udp, 8
		}
		if err := tcp.SetNetworkLayerForChecksum(under); err != nil {
			t.Fatal(err)
		}
		if err := udp.SetNetworkLayerForChecksum(under); err != nil {
			t.Fatal(err)
		}
		buf := gopacket.NewSerializeBuffer()
		payload := gopacket.Payload("sixteen bytes of")
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, l4, payload); err != nil {
			t.Fatal(err)
		}
		f.l3, f.l4 = 14, 14+n
		f.end = f.l4 + m + len(payload)
		f.data = append(bytes.Clone(buf.Bytes()), 0xA5, 0xA5, 0xA5, 0xA5)
		if f.plain {
			binary.BigEndian.PutUint16(f.data[f.l4+6:], 0)
		}
		if !f.right(f.data) || len(f.data) <= f.end {
			t.Fatalf("%s: built wrong: % x", f.name, f.data)
		}
		out = append(out, f)
	}
	return out
}

// TestFlipIsFoundByAChecksum tries every draw: one bit differs, a checksum is wrong, and no UDP checksum says that
// there is none.
func TestFlipIsFoundByAChecksum(t *testing.T) {
	for _, f := range flipFrames(t) {
		t.Run(f.name, func(t *testing.T) {
			seen := map[int]bool{}
			for draw := range uint64(2 * 8 * len(f.data)) {
				got := bytes.Clone(f.data)
				flipCovered(got, new(proto.Headers), draw)
				n, at := 0, 0
				for i := range got {
					if x := got[i] ^ f.data[i]; x != 0 {
						n, at = n+bits.OnesCount8(x), i
					}
				}
				seen[at] = true
				if n != 1 || f.right(got) {
					t.Fatalf("draw %d: %d bits differ, the last in byte %d, checksums right: %v", draw, n, at, f.right(got))
				}
				if f.udp && !f.plain && got[f.l4+6]|got[f.l4+7] == 0 {
					t.Fatalf("draw %d: the UDP checksum is 0", draw)
				}
			}
			if !f.plain && !seen[f.end-1] || seen[f.end] || seen[13] {
				t.Errorf("bytes flipped: %v", seen)
			}
		})
	}
}

// TestFlipMakesNoUDPChecksumZero: of a checksum with one bit set, that bit is not flipped.
func TestFlipMakesNoUDPChecksumZero(t *testing.T) {
	f := flipFrames(t)[0]
	for bit := range 16 {
		want := uint16(1) << bit
		data := bytes.Clone(f.data)
		binary.BigEndian.PutUint16(data[f.l4+6:], 0)
		binary.BigEndian.PutUint16(data[f.end-2:], 0)
		addrs := data[f.l3+12 : f.l3+20]
		rest := dullSum(dullSum(17+uint32(f.end-f.l4), addrs), data[f.l4:f.end])
		binary.BigEndian.PutUint16(data[f.end-2:], uint16(dullSum(0, []byte{byte(^want >> 8), byte(^want), byte(^rest >> 8), byte(^rest)})))
		binary.BigEndian.PutUint16(data[f.l4+6:], want)
		if !f.right(data) {
			t.Fatalf("checksum %#x: built wrong", want)
		}
		for draw := range uint64(2 * 8 * len(data)) {
			got := bytes.Clone(data)
			flipCovered(got, new(proto.Headers), draw)
			if binary.BigEndian.Uint16(got[f.l4+6:]) == 0 || f.right(got) {
				t.Fatalf("checksum %#x, draw %d: %#x, right: %v", want, draw, got[f.l4+6:f.l4+8], f.right(got))
			}
		}
	}
}

// TestFlipOfAnythingIsOneBit: frames that are odd in any way have one bit flipped all the same.
func TestFlipOfAnythingIsOneBit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range flipFrames(t) {
		for range 20_000 {
			odd := bytes.Clone(f.data[:headerBytes+rng.IntN(len(f.data)-headerBytes+1)])
			for range rng.IntN(4) {
				odd[12+rng.IntN(len(odd)-12)] = byte(rng.Uint32())
			}
			got, draw := bytes.Clone(odd), rng.Uint64()
			flipCovered(got, new(proto.Headers), draw)
			n := 0
			for i := range got {
				n += bits.OnesCount8(got[i] ^ odd[i])
			}
			if n != 1 {
				t.Fatalf("draw %d: %d bits of % x", draw, n, odd)
			}
		}
	}
}

// Two of the frames that scapy and tshark agree on (internal/proto): a flipped bit is found by the ICRC or the IPv4
// header's checksum, whichever it is, and the frame still goes to the RoCE port.
func TestFlipIsFoundByTheICRC(t *testing.T) {
	for _, text := range []string{
		"020000000002020000000001080045000038000040004011b6b1c0000201c0000202c12312b7002400006400ffff0000001100001234111111110000001270696e67606f9b8b",
		"02000000000202000000000186dd600000000024114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002400006400ffff0000001100001234111111110000001270696e670cd413cf",
	} {
		frame, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		l4, version := 20, uint8(4)
		if frame[12] == 0x86 {
			l4, version = 40, 6
		}
		seen := map[int]bool{}
		for draw := range uint64(8 * len(frame)) {
			got := bytes.Clone(frame)
			flipCovered(got, new(proto.Headers), draw)
			n := 0
			for i := range got {
				if x := got[i] ^ frame[i]; x != 0 {
					n += bits.OnesCount8(x)
					seen[i] = true
				}
			}
			end := len(got) - 4
			found := proto.ICRC(got[14:], version, l4, end-14) != proto.LoadICRC(got[end:]) || version == 4 && dullSum(0, got[14:34]) != 0xffff
			if n != 1 || !found {
				t.Fatalf("IPv%d, draw %d: %d bits differ, found %v", version, draw, n, found)
			}
		}
		if len(seen) < len(frame)-14-15 || seen[14+l4+2] || seen[14+l4+12] {
			t.Errorf("IPv%d: flipped are bytes %v", version, seen)
		}
	}
}
