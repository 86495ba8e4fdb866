package softnic

import (
	"fmt"
	"testing"

	"github.com/bluering/bluering/ring"
)

// BenchmarkLoop goes from WR to both completions on one core: write the WQEs and receive entries, ring, step
// both NICs, poll and retire. Send completions: each, or one in 64.
func BenchmarkLoop(b *testing.B) {
	for _, size := range []int{60, 128, 256, 1514} {
		for _, every := range []int{1, 64} {
			b.Run(fmt.Sprintf("size=%d/burst=64/signal=%d", size, every), func(b *testing.B) {
				benchmarkLoop(b, size, every)
			})
		}
	}
}

func benchmarkLoop(b *testing.B, size, every int) {
	const burst = 64
	const stride = 2048 + 64 // at 2048 all frame heads would share two sets of the first cache
	na, nb := loopPair(b, "", Config{})
	tx := newHost(b, na, hostConfig{sendWR: 256, cqe: 511, memBytes: 1 << 18})
	rx := newHost(b, nb, hostConfig{access: rw, recvWR: 256, cqe: 511, memBytes: 1 << 18})
	copy(tx.mem, udpFrame(b, 1, max(size-42, 18)))
	b.ReportAllocs()
	b.ResetTimer()
	got := 0
	for sent := 0; sent < b.N; sent += burst {
		for i := range burst {
			rx.rq.Post1(rx.seg(i*stride, 2048), uint64(i))
		}
		rx.rq.Publish()
		for i := range burst {
			w, pi, _ := tx.sq.Reserve(1)
			flags := uint8(0)
			if (i+1)%every == 0 {
				flags = ring.FlagSignaled
			}
			ring.PutCtrl(&w[0], uint16(pi), ring.OpSend, tx.qpn, 3, flags, 0)
			ring.PutEth0(&w[0], 0)
			ring.PutData(w, 2, tx.seg(i*stride, size))
			tx.sq.Commit(1, uint64(i))
		}
		tx.ring()
		nb.Step(burst)
		drain(tx.scq, func(c *ring.CQE) { tx.sq.Retire(c.Counter()) })
		got += drain(rx.rcq, func(c *ring.CQE) { rx.rq.Take() })
	}
	b.StopTimer()
	if want := (b.N + burst - 1) / burst * burst; got != want {
		b.Fatalf("%d of %d received", got, want)
	}
	perPacket := float64(b.Elapsed().Nanoseconds()) / float64(got)
	b.ReportMetric(perPacket, "ns/pkt")
	b.ReportMetric(1e3/perPacket, "Mpps")
}
