package main

import (
	"math"
	"testing"
)

var nan = math.NaN()

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   series
		want spread
	}{
		{nil, spread{}},
		{series{nan, nan}, spread{}},
		{series{3}, spread{3, 3, 3, 1}},
		{series{9, 1, 2}, spread{2, 1, 9, 3}},
		{series{9, nan, 1, 2, 4}, spread{3, 1, 9, 4}},
	} {
		if got := c.in.spread(); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	ours, peer := series{10, 30, nan, 8, 5}, series{5, 10, 1, nan, 0}
	// The median of the ratios 2 and 3, not the ratio of medians.
	if got, want := ours.over(peer).spread(), (spread{2.5, 2, 3, 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestVerdicts(t *testing.T) {
	s := spread{Median: 1.5, Min: 1.2, Max: 1.8, Rounds: 10}
	for _, c := range []struct {
		what string
		got  verdict
		want verdict
	}{
		{"median over the bar", s.atLeast(1.4), met},
		{"median on the bar", s.atLeast(1.5), met},
		{"bar inside the range", s.atLeast(1.7), equal},
		{"bar at the best round", s.atLeast(1.8), equal},
		{"bar beyond the range", s.atLeast(1.81), missed},
		{"median under the limit", s.atMost(1.5), met},
		{"limit inside the range", s.atMost(1.3), equal},
		{"limit below the range", s.atMost(1.1), missed},
		{"within a wider range", s.within(spread{1, 0.5, 1.6, 10}), met},
		{"overlapping a range", s.within(spread{1, 0.5, 1.3, 10}), equal},
		{"worse than a whole range", s.within(spread{1, 0.5, 1.1, 10}), missed},
		{"nothing measured", spread{}.atLeast(0), absent},
		{"nothing of the peer", s.within(spread{}), absent},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
}
