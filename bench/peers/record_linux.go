package main

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/bluering/bluering/engine/latency"
)

// ofARun are values as a run has them: within a factor of two, but for one in a hundred that is anywhere below 2^20 ns.
func ofARun() []int64 {
	return values(func(r *rand.Rand) int64 {
		if r.UintN(100) == 0 {
			return anywhere(r)
		}
		return 2000 + r.Int64N(2000)
	})
}

// ofAllDecades are the worst for a cache: every power of two below 2^20 ns is as likely as the others.
func ofAllDecades() []int64 { return values(anywhere) }

func anywhere(r *rand.Rand) int64 { return r.Int64N(1 << (1 + r.UintN(20))) }

// values are the same for all.
func values(next func(*rand.Rand) int64) []int64 {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]int64, 4096)
	for i := range out {
		out[i] = next(r)
	}
	return out
}

func recordOurs(values []int64) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		s.command = "in process: latency.Recorder.RecordAll of 4096 values, 64 at a time as pktgen does, again and again"
		rec := latency.New(latency.Options{})
		err = pinned(b.cpu, func() error {
			return s.repeat(ctx, b.window, func() (int, error) {
				for range between {
					for at := 0; at < len(values); at += burst {
						rec.RecordAll(values[at : at+burst])
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
}

func recordHDR(values []int64) func(context.Context, *bench) (sample, error) {
	return func(ctx context.Context, b *bench) (s sample, err error) {
		s.command = "in process: hdrhistogram.Histogram.RecordValue of the same values, range and precision"
		h := hdr.New(1, latency.DefaultMaxNS, 3)
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
