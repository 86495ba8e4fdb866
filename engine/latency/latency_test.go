package latency

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// values mixes every size, the range's ends and what lies outside it.
func values(rng *rand.Rand, n int) []int64 {
	out := []int64{0, 1, 2047, 2048, 2049, 4095, 4096, DefaultMaxNS - 1, DefaultMaxNS, DefaultMaxNS + 1, -1, math.MinInt64, math.MaxInt64}
	for len(out) < n {
		out = append(out, int64(rng.Uint64()>>1)>>rng.IntN(63))
	}
	return out
}

func TestCountsEqualAnHDRHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for digits := 1; digits <= 5; digits++ {
		for _, top := range []int64{2, 1000, 1 << 20, 10e9, DefaultMaxNS} {
			r := New(Options{MaxNS: top, Digits: digits})
			want := hdr.New(1, top, digits)
			for _, v := range values(rng, 5000) {
				r.Record(v)
				if err := want.RecordValue(min(max(v, 0), top)); err != nil {
					t.Fatal(err)
				}
			}
			s := r.Swap()
			if !s.Histogram().Equals(want) {
				t.Fatalf("max %d, %d digits: counts differ", top, digits)
			}
			for _, p := range []float64{0, 1, 50, 90, 99, 99.9} {
				got, want := s.Quantile(p/100), min(max(want.ValueAtPercentile(p), s.Min()), s.Max())
				if got != want {
					t.Fatalf("max %d, %d digits: p%v = %d, want %d", top, digits, p, got, want)
				}
			}
		}
	}
}

func TestStatisticsAreExactAfterClamping(t *testing.T) {
	r := New(Options{})
	for _, v := range []int64{-5, 10, 1_000_001, DefaultMaxNS + 7} {
		r.Record(v)
	}
	r.RecordN(3, 4)
	s := r.Swap()
	if s.Count() != 8 || s.Min() != 0 || s.Max() != DefaultMaxNS || s.Clamped() != 2 {
		t.Errorf("count %d min %d max %d clamped %d", s.Count(), s.Min(), s.Max(), s.Clamped())
	}
	if want := float64(0+10+1_000_001+DefaultMaxNS+12) / 8; s.Mean() != want {
		t.Errorf("mean %v, want %v", s.Mean(), want)
	}
	if s.Quantile(1) != DefaultMaxNS || s.Quantile(0) != 0 {
		t.Errorf("quantiles %d to %d", s.Quantile(0), s.Quantile(1))
	}
}

// The sum of many large values needs more than 64 bits.
func TestMeanDoesNotOverflow(t *testing.T) {
	r := New(Options{})
	r.RecordN(DefaultMaxNS, 1<<40)
	for range 3 {
		r.Record(DefaultMaxNS)
	}
	s := r.Swap()
	if s.Mean() != DefaultMaxNS {
		t.Errorf("mean %v, want %v", s.Mean(), float64(DefaultMaxNS))
	}
}

func TestMergeEqualsOneRecorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	a, b, all := New(Options{}), New(Options{}), New(Options{})
	for i, v := range values(rng, 10_000) {
		all.Record(v)
		if i%3 == 0 {
			a.Record(v)
		} else {
			b.Record(v)
		}
	}
	var merged Snapshot
	for _, s := range []Snapshot{a.Swap(), b.Swap(), {}} {
		if err := merged.Merge(s); err != nil {
			t.Fatal(err)
		}
	}
	want := all.Swap()
	if merged.Count() != want.Count() || merged.Min() != want.Min() || merged.Max() != want.Max() ||
		merged.Mean() != want.Mean() || merged.Clamped() != want.Clamped() || !slices.Equal(merged.b.counts, want.b.counts) {
		t.Error("merged snapshot differs")
	}
	coarse := New(Options{Digits: 2}).Swap()
	if err := merged.Merge(coarse); !errors.Is(err, ErrGeometry) {
		t.Errorf("merge of another geometry: %v", err)
	}
}

func TestSwapStartsAnew(t *testing.T) {
	r := New(Options{})
	r.Record(7)
	first := r.Swap()
	r.Record(9)
	r.Recycle(&first)
	if first.Count() != 0 || first.Quantile(0.5) != 0 || first.Mean() != 0 {
		t.Error("a recycled snapshot is not empty")
	}
	second := r.Swap()
	third := r.Swap()
	if second.Count() != 1 || second.Min() != 9 || third.Count() != 0 || third.Min() != 0 {
		t.Errorf("second %d values from %d, third %d", second.Count(), second.Min(), third.Count())
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	r := New(Options{})
	s := r.Swap()
	r.Recycle(&s)
	if n := testing.AllocsPerRun(100, func() {
		r.Record(12345)
		r.RecordN(-1, 3)
		s := r.Swap()
		r.Recycle(&s)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLogReadsBack(t *testing.T) {
	r := New(Options{})
	for v := range int64(1000) {
		r.Record(v * 1000)
	}
	s := r.Swap()
	var log bytes.Buffer
	if err := s.WriteLog(&log, LogOptions{StartMS: 1_700_000_000_000, EndMS: 1_700_000_001_000, Tag: "latency", Comment: "a run"}); err != nil {
		t.Fatal(err)
	}
	h, err := hdr.NewHistogramLogReader(&log).NextIntervalHistogram()
	if err != nil || h == nil {
		t.Fatalf("read back: %v", err)
	}
	if h.TotalCount() != 1000 || h.ValueAtPercentile(50) != s.Histogram().ValueAtPercentile(50) || h.Tag() != "latency" {
		t.Errorf("read back %d values, p50 %d, tag %q", h.TotalCount(), h.ValueAtPercentile(50), h.Tag())
	}
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if h, err := hdr.Decode([]byte(text)); err != nil || h.TotalCount() != 1000 {
		t.Errorf("decode: %v", err)
	}
}

func BenchmarkRecord(b *testing.B) {
	var vs [1024]int64
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range vs {
		vs[i] = 500 + int64(rng.ExpFloat64()*2000)
	}
	b.Run("op/recorder", func(b *testing.B) {
		r := New(Options{})
		for b.Loop() {
			for _, v := range vs {
				r.Record(v)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(vs)), "ns/value")
	})
	b.Run("op/recorder-all", func(b *testing.B) { // in bursts of 64
		r := New(Options{})
		for b.Loop() {
			for i := 0; i < len(vs); i += 64 {
				r.RecordAll(vs[i : i+64])
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(vs)), "ns/value")
	})
	b.Run("op/hdrhistogram", func(b *testing.B) {
		h := hdr.New(1, DefaultMaxNS, 3)
		for b.Loop() {
			for _, v := range vs {
				h.RecordValue(v)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(vs)), "ns/value")
	})
}

func TestRecordAllIsRecordOfEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		vs := values(rng, 64)
		for i := range vs {
			if i > 0 && rng.IntN(2) == 0 {
				vs[i] = vs[i-1]
			}
		}
		a, b := New(Options{}), New(Options{})
		a.RecordAll(vs)
		for _, v := range vs {
			b.Record(v)
		}
		x, y := a.Swap(), b.Swap()
		if x.Count() != y.Count() || x.Min() != y.Min() || x.Max() != y.Max() || x.Mean() != y.Mean() || x.Clamped() != y.Clamped() ||
			!slices.Equal(x.b.counts, y.b.counts) {
			t.Fatalf("%v: recorded otherwise", vs)
		}
	}
}
