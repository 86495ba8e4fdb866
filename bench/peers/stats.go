package main

import (
	"math"
	"slices"
)

// series is what one contender did, by round; NaN where it did nothing.
type series []float64

// valid are the figures there are, in ascending order.
func (s series) valid() series {
	out := slices.DeleteFunc(slices.Clone(s), math.IsNaN)
	slices.Sort(out)
	return out
}

// spread is a median with the range around it.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
}

// spread is the zero value where there are no figures. The median of an even number is the middle two's mean.
func (s series) spread() spread {
	v := s.valid()
	n := len(v)
	if n == 0 {
		return spread{}
	}
	return spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1], Rounds: n}
}

// over divides round by round. A round that one of the two missed has no ratio.
func (s series) over(t series) series {
	out := make(series, min(len(s), len(t)))
	for i := range out {
		out[i] = s[i] / t[i]
		if math.IsInf(out[i], 0) {
			out[i] = math.NaN()
		}
	}
	return out
}

// verdict says how a bar was taken.
type verdict string

const (
	met    verdict = "met"    // the median is at or beyond the bar
	equal  verdict = "equal"  // the median is not, but the measured range reaches the bar: no difference was shown
	missed verdict = "missed" // all of the range is short of the bar
	absent verdict = "no figures"
)

// atLeast judges values that should be the bar or more.
func (s spread) atLeast(bar float64) verdict {
	switch {
	case s.Rounds == 0:
		return absent
	case s.Median >= bar:
		return met
	case s.Max >= bar:
		return equal
	}
	return missed
}

// atMost judges values that should be the bar or less.
func (s spread) atMost(bar float64) verdict {
	switch {
	case s.Rounds == 0:
		return absent
	case s.Median <= bar:
		return met
	case s.Min <= bar:
		return equal
	}
	return missed
}

// within judges values that should not be worse (higher) than all of the peer's.
func (s spread) within(peer spread) verdict {
	if peer.Rounds == 0 {
		return absent
	}
	return s.atMost(peer.Max)
}
