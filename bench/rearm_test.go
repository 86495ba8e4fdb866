package bench

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
	"github.com/bluering/bluering/ring"
)

// storeIndexes is the baseline of re-arming: the same 32-bit word of each WQE, and nothing else.
//
//go:noinline
func storeIndexes(blocks []ring.Block, first uint32) {
	for i := range blocks {
		binary.BigEndian.PutUint32(blocks[i][:4], (first+uint32(i))&0xffff<<8|uint32(ring.OpSend))
	}
}

// BenchmarkRearm re-arms a pre-formatted ring in bursts of 64, each published. The baseline stores the same words.
func BenchmarkRearm(b *testing.B) {
	b.Run("size=60/burst=64", func(b *testing.B) {
		d, n := openNull(b)
		qp, cq := newQP(b, d, false)
		img, err := qp.NewImage(engine.ImageConfig{Frame: make([]byte, 60)})
		if err != nil {
			b.Fatal(err)
		}
		blocks := newBlocks(b)
		contest{
			packets: depth,
			ours: func() {
				for range depth / burst {
					if _, got := img.Rearm(burst); got != burst {
						b.Fatalf("re-armed %d of %d", got, burst)
					}
					if err := img.Publish(); err != nil {
						b.Fatal(err)
					}
				}
			},
			between:  func() { drain(b, n, qp, cq) },
			baseline: func() { storeIndexes(blocks, 0) },
		}.run(b)
	})
}

// BenchmarkRearmTag sends a stream whose packets carry the tag and vary in one address, so that the checksums follow.
// The baseline is the same loop over a stream without tag and without field. The packets' times are given, as a paced
// sender has them.
func BenchmarkRearmTag(b *testing.B) {
	for _, field := range []raw.Field{
		{Kind: raw.SrcPort, Lo: raw.Num(1024), Hi: raw.Num(65535)},
		{Kind: raw.SrcAddr, Lo: raw.Num(198<<24 | 18<<16 | 1), Hi: raw.Num(198<<24 | 18<<16 | 0xfffe)},
	} {
		b.Run("size=64/field="+field.Kind.String()+"/burst=64", func(b *testing.B) {
			ours := newStream(b, raw.StreamConfig{Tag: true, Key: proto.NewTagKey(7)}, field)
			plain := newStream(b, raw.StreamConfig{})
			contest{
				packets:         depth,
				ours:            func() { ours.send(b) },
				between:         func() { ours.drain(b) },
				baseline:        func() { plain.send(b) },
				betweenBaseline: func() { plain.drain(b) },
			}.run(b)
		})
	}
}

// nullStream is a stream on a device that executes nothing.
type nullStream struct {
	dev   *null
	tx    *raw.TxQueue
	s     *raw.Stream
	times [burst]uint32
}

func newStream(b *testing.B, c raw.StreamConfig, fields ...raw.Field) *nullStream {
	b.Helper()
	d, n := openNull(b)
	port, err := raw.NewPort(d, raw.PortConfig{RxQueues: -1, TxDepth: depth})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := port.Close(); err != nil {
			b.Error(err)
		}
	})
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(198, 18, 0, 1), DstIP: net.IPv4(198, 18, 0, 2)}
	udp := &layers.UDP{SrcPort: 1024, DstPort: 9}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		b.Fatal(err)
	}
	t, err := raw.NewTemplate(
		&layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload(make([]byte, 22)))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range fields {
		if err := t.Vary(f); err != nil {
			b.Fatal(err)
		}
	}
	s, err := port.Tx(0).NewStream(t, c)
	if err != nil {
		b.Fatal(err)
	}
	return &nullStream{dev: n, tx: port.Tx(0), s: s}
}

func (n *nullStream) send(b *testing.B) {
	for range depth / burst {
		if sent, err := n.s.Send(burst, n.times[:]); sent != burst || err != nil {
			b.Fatalf("sent %d of %d: %v", sent, burst, err)
		}
	}
}

func (n *nullStream) drain(b *testing.B) {
	n.dev.complete()
	n.tx.Reclaim()
	if left := n.tx.Outstanding(); left != 0 {
		b.Fatalf("%d packets outstanding", left)
	}
}
