package clock

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

var rates = map[string]Rate{
	"1 pps":                     {1, 1},
	"3 pps":                     {3, 1},
	"1 packet in 7 s":           {1, 7},
	"999,983 pps (prime)":       {999_983, 1},
	"2.976190476 Mpps (20 %)":   {2_000_000_000, 672},
	"14.88 Mpps":                {10_000_000_000, 672},
	"100 Gbit/s, 64 B":          {100_000_000_000, 672},
	"148.81 Mpps":               {148_810_000, 1},
	"148.809523809523 Mpps":     {148_809_523_809_523, 1_000_000},
	"400 Gbit/s of IMIX":        {400_000_000_000 * 12, (361*12 + 10 + 240) * 8},
	"a packet every 1 ns":       {1_000_000_000, 1},
	"more than one packet a ns": {3_000_000_001, 1},
}

// exact is the definition, in big integers.
func exact(r Rate, k uint64) int64 {
	n := new(big.Int).SetUint64(k)
	n.Mul(n, big.NewInt(1e9)).Mul(n, new(big.Int).SetUint64(r.Den))
	n.Div(n, new(big.Int).SetUint64(r.Num))
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func TestAtIsTheExactQuotient(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, r := range rates {
		s, err := NewSchedule(r)
		if err != nil {
			t.Fatal(name, err)
		}
		ks := []uint64{0, 1, 2, 3, 1<<32 - 1, 1 << 33, 1<<33 + 1, 1 << 40, 1<<48 + 7, math.MaxUint64}
		for range 1000 {
			ks = append(ks, rng.Uint64()>>rng.IntN(64))
		}
		for _, k := range ks {
			if got, want := s.At(k), exact(r, k); got != want {
				t.Fatalf("%s: At(%d) = %d, want %d", name, k, got, want)
			}
		}
	}
}

func TestCursorEqualsAt(t *testing.T) {
	for name, r := range rates {
		s, err := NewSchedule(r)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, start := range []uint64{0, 1, 1<<33 - 500, 1<<33 + 6} {
			if s.At(start+10_000) == math.MaxInt64 {
				continue
			}
			for _, stride := range []uint64{1, 2, 3, 7} {
				c := s.Cursor(start, stride)
				for i := range uint64(1000) {
					k := start + i*stride
					if c.K() != k || c.NS() != s.At(k) {
						t.Fatalf("%s: cursor (%d, %d ns), want (%d, %d ns)", name, c.K(), c.NS(), k, s.At(k))
					}
					c.Next()
				}
			}
		}
	}
}

func TestDueCountsDepartures(t *testing.T) {
	for name, r := range rates {
		s, _ := NewSchedule(r)
		for _, k := range []uint64{0, 1, 2, 999, 1 << 20, 1 << 33} {
			ns := s.At(k)
			if ns == math.MaxInt64 {
				continue
			}
			n := s.Due(ns)
			if n == 0 || s.At(n-1) > ns || s.At(n) <= ns {
				t.Fatalf("%s: Due(%d) = %d, At %d, %d", name, ns, n, s.At(n-1), s.At(n))
			}
		}
		if s.Due(-1) != 0 {
			t.Fatalf("%s: Due(-1) = %d", name, s.Due(-1))
		}
	}
}

func TestRatesOutOfRangeAreRefused(t *testing.T) {
	for _, r := range []Rate{{}, {0, 1}, {1, 0}, {1, math.MaxUint64}, {math.MaxUint64 - 58, 7}} { // 2^64-59 is prime
		if _, err := NewSchedule(r); !errors.Is(err, ErrRate) {
			t.Errorf("%d/%d: %v, want ErrRate", r.Num, r.Den, err)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add(uint64(148_810_000), uint64(1), uint64(1<<33))
	f.Fuzz(func(t *testing.T, num, den, k uint64) {
		s, err := NewSchedule(Rate{num, den})
		if err != nil {
			return
		}
		if got, want := s.At(k), exact(Rate{num, den}, k); got != want {
			t.Fatalf("At(%d) = %d, want %d", k, got, want)
		}
	})
}

func BenchmarkCursor(b *testing.B) {
	s, _ := NewSchedule(rates["148.81 Mpps"])
	c := s.Cursor(0, 1)
	for b.Loop() {
		c.Next()
	}
}
