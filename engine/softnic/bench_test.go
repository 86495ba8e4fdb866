package softnic

import (
	"fmt"
	"testing"
	"time"

	"github.com/bluering/bluering/ring"
)

// BenchmarkLoop goes from WR to both completions on one core: write the WQEs and receive entries, ring, step
// both NICs, poll and retire. Send completions: each, or one in 64.
//
// best-ns/pkt is the fastest of many short rounds, which a busy machine disturbs least, and x/store is that
// figure in units of the fastest 64-byte template store of the same process, measured between the rounds.
func BenchmarkLoop(b *testing.B) {
	for _, size := range []int{60, 128, 256, 1514} {
		for _, every := range []int{1, 64} {
			b.Run(fmt.Sprintf("size=%d/burst=64/signal=%d", size, every), func(b *testing.B) {
				benchmarkLoop(b, size, every, false)
			})
		}
	}
	for _, every := range []int{1, 64} {
		b.Run(fmt.Sprintf("size=60/burst=64/signal=%d/post=rearm", every), func(b *testing.B) {
			benchmarkLoop(b, 60, every, true)
		})
	}
}

const (
	benchBurst  = 64
	benchStride = 2048 + 64 // at 2048 all frame heads would share two sets of the first cache
	benchRounds = 64        // bursts between two looks at the clock
)

// loopBench is one direction of a loop with both its hosts.
type loopBench struct {
	tx, rx   *host
	size     int
	every    int // a power of two
	rearm    bool
	received int
}

func benchmarkLoop(b *testing.B, size, every int, rearm bool) {
	na, nb := loopPair(b, "", Config{})
	l := loopBench{
		tx:   newHost(b, na, hostConfig{sendWR: 256, cqe: 511, memBytes: 1 << 18}),
		rx:   newHost(b, nb, hostConfig{access: rw, recvWR: 256, cqe: 511, memBytes: 1 << 18}),
		size: size, every: every, rearm: rearm,
	}
	copy(l.tx.mem, udpFrame(b, 1, max(size-42, 18)))
	blocks := make([]ring.Block, 256)
	best, bestStore := time.Hour, time.Hour
	b.ReportAllocs()
	b.ResetTimer()
	sent, spent := 0, time.Duration(0)
	for sent < b.N {
		start := time.Now()
		for range benchRounds {
			l.burst()
			sent += benchBurst
		}
		mid := time.Now()
		for range benchRounds {
			storeTemplates(blocks, benchBurst)
		}
		spent += mid.Sub(start)
		best = min(best, mid.Sub(start))
		bestStore = min(bestStore, time.Since(mid))
	}
	b.StopTimer()
	if l.received != sent {
		b.Fatalf("%d of %d received", l.received, sent)
	}
	perPacket := float64(spent.Nanoseconds()) / float64(sent)
	b.ReportMetric(perPacket, "ns/pkt")
	b.ReportMetric(1e3/perPacket, "Mpps")
	b.ReportMetric(float64(best.Nanoseconds())/(benchRounds*benchBurst), "best-ns/pkt")
	b.ReportMetric(float64(best)/float64(bestStore), "x/store")
}

// burst sends and receives benchBurst frames.
func (l *loopBench) burst() {
	tx, rx := l.tx, l.rx
	for i := range benchBurst {
		rx.rq.Post1(rx.seg(i*benchStride, 2048), uint64(i))
	}
	rx.rq.Publish()
	l.post()
	tx.ring()
	rx.nic.Step(benchBurst)
	for c, ok := tx.scq.Peek(); ok; c, ok = tx.scq.Peek() {
		tx.sq.Retire(c.Counter())
		tx.scq.Consume()
	}
	tx.scq.Update()
	for _, ok := rx.rcq.Peek(); ok; _, ok = rx.rcq.Peek() {
		rx.rq.Take()
		rx.rcq.Consume()
		l.received++
	}
	rx.rcq.Update()
}

// post writes the burst's WQEs as the engine's Post does; or, with rearm, it writes them once and renews their
// index from then on, as the engine's images do.
func (l *loopBench) post() {
	tx := l.tx
	w, pi, got := tx.sq.ReserveRun(benchBurst, 1)
	rearm := l.rearm && l.received >= tx.sq.Slots()
	for i := range w {
		if rearm {
			ring.Rearm(&w[i], uint16(pi)+uint16(i), ring.OpSend)
			continue
		}
		flags := uint8(0)
		if (i+1)&(l.every-1) == 0 {
			flags = ring.FlagSignaled
		}
		ring.PutCtrl(&w[i], uint16(pi)+uint16(i), ring.OpSend, tx.qpn, 3, flags, 0)
		ring.PutEth0(&w[i], 0)
		ring.PutData(w[i:], 2, tx.seg(i*benchStride, l.size))
	}
	tx.sq.CommitRun(got, 1, 0)
}

var benchTemplate = ring.Block{7: 3}

// storeTemplates is the baseline: what it costs to write n blocks of a ring and nothing else.
//
//go:noinline
func storeTemplates(blocks []ring.Block, n int) {
	template := &benchTemplate
	for i := range n {
		w := &blocks[i&(len(blocks)-1)]
		*w = *template
		ring.Rearm(w, uint16(i), ring.OpSend)
	}
}
