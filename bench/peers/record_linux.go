package main

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/bluering/bluering/engine/latency"
)

// latencies are the same for all: spread over the decades from a nanosecond to a millisecond.
func latencies() []int64 {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]int64, 4096)
	for i := range out {
		out[i] = int64(r.Uint64N(1 << (1 + r.UintN(20))))
	}
	return out
}

func recordOurs(ctx context.Context, b *bench) (s sample, err error) {
	s.command = "in process: latency.Recorder.Record of 4096 values between 0 and 2^20 ns, again and again"
	rec, values := latency.New(latency.Options{}), latencies()
	err = pinned(b.cpu, func() error {
		return s.repeat(ctx, b.window, func() (int, error) {
			for range between {
				for _, v := range values {
					rec.Record(v)
				}
			}
			return between * len(values), nil
		})
	})
	if err == nil && rec.Count() < s.packets {
		err = errors.New("the recorder has fewer values than it was given")
	}
	return s, err
}

func recordHDR(ctx context.Context, b *bench) (s sample, err error) {
	s.command = "in process: hdrhistogram.Histogram.RecordValue of the same values, range and precision"
	h, values := hdr.New(1, latency.DefaultMaxNS, 3), latencies()
	err = pinned(b.cpu, func() error {
		return s.repeat(ctx, b.window, func() (int, error) {
			for range between {
				for _, v := range values {
					if err := h.RecordValue(v); err != nil {
						return 0, err
					}
				}
			}
			return between * len(values), nil
		})
	})
	return s, err
}

// gaps counts the ticks between readings of the counter: by value up to maxGap, one more slot for longer ones.
type gaps [maxGap + 1]uint64

// maxGap is in c/spin.c, too.
const maxGap = 1 << 16

// quantile is the smallest gap that is not exceeded by more than a 1/one-th of all: of 10,000, the p99.99.
func (g *gaps) quantile(one uint64) (ticks int) {
	total := uint64(0)
	for _, n := range g {
		total += n
	}
	above := total / one
	for ticks = maxGap; ticks > 0; ticks-- {
		if g[ticks] > above {
			break
		}
		above -= g[ticks]
	}
	return ticks
}

// scaled is ticks in the time that of took, which were counted meanwhile.
func scaled(ticks, of, took uint64) uint64 {
	hi, lo := bits.Mul64(ticks, took)
	if of == 0 || hi >= of {
		return 0
	}
	q, _ := bits.Div64(hi, lo, of)
	return q
}
