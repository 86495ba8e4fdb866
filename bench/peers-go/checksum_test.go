package peers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/csum"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

var sink uint32

// rounds alternates the two loops of calls, so that what disturbs the machine disturbs both, and gives the median of
// the ratios and the least time of a call of each, in ns.
func rounds(count, calls int, peer, own func(calls int)) (ratio, peerNS, ownNS float64) {
	timed := func(f func(int)) float64 {
		start := time.Now()
		f(calls)
		return float64(time.Since(start).Nanoseconds()) / float64(calls)
	}
	var ratios, ps, os []float64
	for range count {
		p, o := timed(peer), timed(own)
		ratios, ps, os = append(ratios, p/o), append(ps, p), append(os, o)
	}
	slices.Sort(ratios)
	return ratios[count/2], slices.Min(ps), slices.Min(os)
}

func gvisorLoop(b []byte) func(int) {
	return func(calls int) {
		s := uint32(0)
		for range calls {
			s += uint32(checksum.Checksum(b, 0))
		}
		sink += s
	}
}

func ownLoop(b []byte) func(int) {
	return func(calls int) {
		s := uint32(0)
		for range calls {
			s += csum.Sum(b, 0)
		}
		sink += s
	}
}

// BenchmarkChecksum compares csum.Sum with gVisor's checksum.
func BenchmarkChecksum(b *testing.B) {
	buf := make([]byte, 1<<16)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range buf {
		buf[i] = byte(r.Uint32())
	}
	for _, n := range []int{64, 256, 1500, 65536} {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			data := buf[:n]
			if got, want := csum.Sum(data, 0), uint32(checksum.Checksum(data, 0)); got != want {
				b.Fatalf("sum %#x, gVisor's %#x", got, want)
			}
			for b.Loop() {
				ratio, p, o := rounds(301, 2+200000/n, gvisorLoop(data), ownLoop(data))
				b.ReportMetric(ratio, "times-gvisor")
				b.ReportMetric(p, "gvisor-ns")
				b.ReportMetric(o, "own-ns")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
