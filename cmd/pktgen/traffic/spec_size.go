package traffic

import (
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Sizes is a frame size, a range of sizes, a list or a mix, FCS included. The
// zero value is for the plan to fill: 64, or the least that fits.
type Sizes struct {
	entries []sizeEntry
	random  bool
	text    string
}

type sizeEntry struct {
	size, weight int
	ranged       bool // one of a range
}

// Frame sizes with FCS. What a port takes at most is its own matter.
const (
	minFrameSize = 64
	maxFrameSize = 65535
	fcsBytes     = 4
)

const sizeWants = "bytes with FCS from 64 up: 64, 64-1518, 64,128,256 or imix (28x64, 16x594, 4x1518), :rand for a random order"

func oneSize(bytes int) Sizes {
	return Sizes{text: strconv.Itoa(bytes), entries: []sizeEntry{{size: bytes, weight: 1}}}
}

// ParseSize reads frame sizes: 64, 64-1518 (each in turn), 64,128,256 or imix,
// with :rand behind for a seeded random order.
func ParseSize(s string) (Sizes, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	out := Sizes{text: text}
	body, isRandom := strings.CutSuffix(text, ":rand")
	out.random = isRandom
	body, _ = strings.CutSuffix(body, ":inc")
	if body == "imix" {
		out.entries = []sizeEntry{{size: 64, weight: 28}, {size: 594, weight: 16}, {size: 1518, weight: 4}}
		return out, nil
	}
	for _, part := range strings.Split(body, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, errA := strconv.Atoi(low)
		b, errB := strconv.Atoi(high)
		switch {
		case errA != nil || errB != nil:
			return Sizes{}, results.Usage("size", s, fmt.Sprintf("%q is not a size; use %s", part, sizeWants))
		case a < minFrameSize:
			return Sizes{}, results.Usage("size", s, fmt.Sprintf("the smallest Ethernet frame is %d; use %s", minFrameSize, sizeWants))
		case b > maxFrameSize:
			return Sizes{}, results.Usage("size", s, fmt.Sprintf("the largest frame is %d; use %s", maxFrameSize, sizeWants))
		case b < a:
			return Sizes{}, results.Usage("size", s, "the range's end is below its start; use "+sizeWants)
		}
		for size := a; size <= b; size++ {
			out.entries = append(out.entries, sizeEntry{size, 1, isRange})
		}
		if len(out.entries) > maxFrameSize {
			return Sizes{}, results.Usage("size", s, "too many sizes; use "+sizeWants)
		}
	}
	return out, nil
}

// String is the sizes as written.
func (s Sizes) String() string {
	if s.text == "" {
		return strconv.Itoa(minFrameSize)
	}
	return s.text
}

func (s Sizes) list() []sizeEntry {
	if len(s.entries) == 0 {
		return []sizeEntry{{size: minFrameSize, weight: 1}}
	}
	return s.entries
}

// Distinct lists the sizes in ascending order.
func (s Sizes) Distinct() []int {
	var out []int
	for _, e := range s.list() {
		out = append(out, e.size)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Mean is the exact mean size.
func (s Sizes) Mean() *big.Rat {
	var sum, weights int64
	for _, e := range s.list() {
		sum += int64(e.size) * int64(e.weight)
		weights += int64(e.weight)
	}
	return big.NewRat(sum, weights)
}

// sizeMix is the order of sizes: a period of indices into the distinct sizes.
type sizeMix struct {
	period []uint16
	random bool
	seed   uint64
}

// mix spreads the sizes evenly over one period, each as often as its weight
// (smooth weighted round robin): imix is 12 long, not 28 small ones in a row.
func (s Sizes) mix(seed uint64) sizeMix {
	m := sizeMix{random: s.random, seed: mix64(seed ^ 0x73697a65)}
	distinct, entries := s.Distinct(), s.list()
	div, total := 0, 0
	for _, e := range entries {
		div = gcd(div, e.weight)
		total += e.weight
	}
	if len(entries) == total { // all weights are 1: in the order written
		for _, e := range entries {
			i, _ := slices.BinarySearch(distinct, e.size)
			m.period = append(m.period, uint16(i))
		}
		return m
	}
	total /= div
	credit := make([]int, len(entries))
	for range total {
		best := 0
		for i, e := range entries {
			credit[i] += e.weight / div
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= total
		i, _ := slices.BinarySearch(distinct, entries[best].size)
		m.period = append(m.period, uint16(i))
	}
	return m
}

// at is the index of frame k's size among the distinct sizes.
func (m *sizeMix) at(k uint64) int {
	n := uint64(len(m.period))
	if n == 1 {
		return int(m.period[0])
	}
	if m.random {
		i, _ := bits.Mul64(mix64(m.seed+k*0x9e3779b97f4a7c15), n)
		return int(m.period[i])
	}
	return int(m.period[k%n])
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
