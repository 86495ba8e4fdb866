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

// storeIndexes is the measure of re-arming: a big-endian index word into each
// slot, and nothing else.
func storeIndexes(w []ring.Block, v uint32) {
	for i := range w {
		binary.BigEndian.PutUint32(w[i][0:4], v)
		v += 1 << 8
	}
}

func BenchmarkRearm(b *testing.B) {
	const burst = 64
	blocks := make([]ring.Block, 1024)
	b.Run("op=index-store/burst=64", func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			s := i * burst % 1024
			storeIndexes(blocks[s:s+burst], uint32(s)<<8|uint32(ring.OpSend))
		}
		perPacket(b, burst)
	})
	for _, inline := range []bool{false, true} {
		b.Run(fmt.Sprintf("op=rearm/inline=%v/burst=64", inline), func(b *testing.B) {
			r := newRig(b, rigConfig{qp: QPConfig{MaxSendWR: 1024, MaxInline: 60}})
			r.s.hold = true
			m, err := r.q.NewImage(ImageConfig{Frame: make([]byte, 60), Inline: inline})
			r.ok(err)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				if _, got := m.Rearm(burst); got == 0 {
					b.Fatal("no room")
				}
				if err := m.Publish(); err != nil {
					b.Fatal(err)
				}
				r.q.sq.Retire(uint16(r.q.sq.PI() - m.step))
			}
			perPacket(b, burst)
		})
	}
}

func BenchmarkPoll(b *testing.B) {
	r := newRig(b, rigConfig{qp: QPConfig{MaxSendWR: 64}})
	r.s.hold = true
	q, dev := r.s.qps[r.q.qpn], r.s.cq(r.cq.cqn).dev
	wrs := make([]SendWR, 64)
	for i := range wrs {
		wrs[i] = r.wr(uint64(i), Signaled)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		b.StopTimer()
		if _, err := r.q.Post(wrs); err != nil {
			b.Fatal(err)
		}
		for k := range wrs {
			e, _ := dev.Next()
			e.PutReq(q.spec.UserIndex, r.q.qpn, ring.OpSend, uint16(r.q.sq.CI())+uint16(k), 0)
			dev.Seal(0)
		}
		dev.Publish()
		b.StartTimer()
		if n, err := r.cq.Poll(r.wc); n != 64 || err != nil {
			b.Fatal(n, err)
		}
	}
	perPacket(b, 64)
}
