package bench

import (
	"testing"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/tso"
)

// tcpHeader is Ethernet, IPv4 and TCP, with PSH and ACK set.
func tcpHeader() []byte {
	return []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		0x10, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0,
	}
}

// BenchmarkSegment cuts 65,160 bytes into 45 frames in slots of 2 KiB, checksums and all. The baseline copies the same
// pieces to the same places.
func BenchmarkSegment(b *testing.B) {
	const mss, pieces, slot = 1448, 45, 2048
	h, payload, out := tcpHeader(), make([]byte, mss*pieces), make([]byte, pieces*slot)
	frames := make([][]byte, pieces)
	for i := range frames {
		frames[i] = out[i*slot:][:len(h)+mss]
	}
	contest{
		packets: pieces,
		ours: func() {
			var p tso.Plan
			if err := p.Make(h, len(payload), mss); err != nil {
				b.Fatal(err)
			}
			s := p.Segmenter(h)
			if n := s.WriteRun(frames, payload); n != pieces {
				b.Fatalf("wrote %d of %d", n, pieces)
			}
		},
		baseline: func() {
			for i := range pieces {
				copy(out[i*slot+len(h):][:mss], payload[i*mss:])
			}
		},
	}.run(b)
}

// BenchmarkCopySum copies and sums one packet. The baseline copies it.
func BenchmarkCopySum(b *testing.B) {
	const size, slots = 1448, 8
	src, dst := make([]byte, slots*2048), make([]byte, slots*2048)
	total := uint32(0)
	contest{
		packets: slots,
		ours: func() {
			for i := range slots {
				total += csum.Copy(dst[i*2048+54:][:size], src[i*2048:][:size], 0)
			}
		},
		baseline: func() {
			for i := range slots {
				copy(dst[i*2048+54:][:size], src[i*2048:][:size])
			}
		},
	}.run(b)
	_ = total
}
