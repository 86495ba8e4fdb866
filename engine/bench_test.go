package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/bluering/bluering/ring"
)

// template stores are the measure: what it costs to put a prepared 64-byte WQE
// into each slot of a ring, patching nothing but its index.
func storeTemplates(w []ring.Block, template *ring.Block, pi uint32) {
	for i := range w {
		w[i] = *template
		binary.BigEndian.PutUint32(w[i][0:4], (pi+uint32(i))<<8|uint32(ring.OpSend))
	}
}

func storeBare(w []ring.Block, template *ring.Block) {
	for i := range w {
		w[i] = *template
	}
}

func perPacket(b *testing.B, burst int) {
	ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(burst)
	b.ReportMetric(ns, "ns/pkt")
	b.ReportMetric(1e3/ns, "Mpps")
}

func BenchmarkPost(b *testing.B) {
	const burst = 64
	blocks := make([]ring.Block, 1024)
	template := new(ring.Block)
	b.Run("op=bare-store/burst=64", func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			s := i * burst % 1024
			storeBare(blocks[s:s+burst], template)
		}
		perPacket(b, burst)
	})
	b.Run("op=template-store/burst=64", func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			s := i * burst % 1024
			storeTemplates(blocks[s:s+burst], template, uint32(s))
		}
		perPacket(b, burst)
	})
	for _, inline := range []int{0, 18} {
		b.Run(fmt.Sprintf("op=post/inline=%d/burst=64", inline), func(b *testing.B) {
			benchmarkPost(b, inline, burst)
		})
	}
}

func benchmarkPost(b *testing.B, inline, burst int) {
	r := newRig(b, rigConfig{caps: Caps{MinInline: inline}, qp: QPConfig{MaxSendWR: 1024}})
	r.s.hold = true
	wrs := make([]SendWR, burst)
	for i := range wrs {
		wrs[i] = r.wr(uint64(i), 0)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, err := r.q.Post(wrs); err != nil {
			b.Fatal(err)
		}
		r.q.sq.Retire(uint16(r.q.sq.PI() - 1))
	}
	perPacket(b, burst)
}
