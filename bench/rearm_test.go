package bench

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"

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
			ours.against(b, plain)
		})
	}
}

// BenchmarkRearmDatagram sends a stream of RoCE v2 datagrams, whose packets carry tag, PSN and ICRC and vary in the UDP
// source port. The baseline is a stream of UDP with tag, checksum and the same port.
func BenchmarkRearmDatagram(b *testing.B) {
	field := raw.Field{Kind: raw.SrcPort, Lo: raw.Num(0xc000), Hi: raw.Num(0xffff)}
	b.Run("payload=16/field="+field.Kind.String()+"/burst=64", func(b *testing.B) {
		c := raw.StreamConfig{Tag: true, Key: proto.NewTagKey(7)}
		eth, ip, udp := datagramLayers(b, 4)
		udp.DstPort = proto.RoCEPort
		body := make([]byte, proto.BTHBytes+proto.DETHBytes+proto.TagBytes+proto.ICRCBytes)
		(&proto.UD{Opcode: proto.OpUDSend, PKey: 0xffff, DestQP: 0x11, QKey: 0x11111111, SrcQP: 0x12}).Put(body)
		t, err := raw.NewTemplate(eth, ip.(gopacket.SerializableLayer), udp, gopacket.Payload(body))
		if err == nil {
			err = t.SetRoCE()
		}
		if err == nil {
			err = t.Vary(field)
		}
		if err != nil {
			b.Fatal(err)
		}
		ours, plain := newTemplateStream(b, c, t, depth, burst), newStream(b, c, field)
		ours.against(b, plain)
	})
}

// nullStream is a stream on a device that executes nothing.
type nullStream struct {
	dev   *null
	tx    *raw.TxQueue
	s     *raw.Stream
	depth int // packets that send sends
	times []uint32
}

func newStream(b *testing.B, c raw.StreamConfig, fields ...raw.Field) *nullStream {
	b.Helper()
	eth, ip, udp := datagramLayers(b, 4)
	t, err := raw.NewTemplate(eth, ip.(gopacket.SerializableLayer), udp, gopacket.Payload(make([]byte, 22)))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range fields {
		if err := t.Vary(f); err != nil {
			b.Fatal(err)
		}
	}
	return newTemplateStream(b, c, t, depth, burst)
}

func newTemplateStream(b *testing.B, c raw.StreamConfig, t *raw.Template, depth, burst int) *nullStream {
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
	s, err := port.Tx(0).NewStream(t, c)
	if err != nil {
		b.Fatal(err)
	}
	return &nullStream{dev: n, tx: port.Tx(0), s: s, depth: depth, times: make([]uint32, burst)}
}

func (n *nullStream) send(b *testing.B) {
	for range n.depth / len(n.times) {
		if sent, err := n.s.Send(len(n.times), n.times); sent != len(n.times) || err != nil {
			b.Fatalf("sent %d of %d: %v", sent, len(n.times), err)
		}
	}
}

// against compares sending with another stream's.
func (n *nullStream) against(b *testing.B, baseline *nullStream) {
	contest{
		packets:         depth,
		ours:            func() { n.send(b) },
		between:         func() { n.drain(b) },
		baseline:        func() { baseline.send(b) },
		betweenBaseline: func() { baseline.drain(b) },
	}.run(b)
}

func (n *nullStream) drain(b *testing.B) {
	n.dev.complete()
	n.tx.Reclaim()
	if left := n.tx.Outstanding(); left != 0 {
		b.Fatalf("%d packets outstanding", left)
	}
}
