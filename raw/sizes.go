package raw

import (
	"fmt"
	"math/bits"
)

// Sizes is the order of frame sizes, in bytes without FCS: packet i has size
// number i mod n or, if Random, floor(mix(Seed + i*0x9e3779b97f4a7c15) * n / 2^64).
type Sizes struct {
	List   []int
	Random bool
	Seed   uint64
}

// SizeRange is every size from lo to hi in turn; nothing when hi is below lo.
func SizeRange(lo, hi int) Sizes {
	var s Sizes
	for n := lo; n <= hi; n++ {
		s.List = append(s.List, n)
	}
	return s
}

// Share is a size with the number of times it comes in a mix.
type Share struct{ Times, Size int }

// SizeMix has the shares one behind the other, in the order given.
func SizeMix(shares ...Share) Sizes {
	var s Sizes
	for _, p := range shares {
		for range p.Times {
			s.List = append(s.List, p.Size)
		}
	}
	return s
}

// Mix is the simple IMIX in frames without FCS: 7 of 60, 4 of 590, 1 of 1514.
func Mix() Sizes { return SizeMix(Share{7, 60}, Share{4, 590}, Share{1, 1514}) }

// sizeOrder is Sizes with numbers of distinct sizes in place of sizes.
type sizeOrder struct {
	period []uint16
	random bool
	seed   uint64
}

// at is the number of packet i's size.
func (o *sizeOrder) at(i uint64) int {
	n := uint64(len(o.period))
	if n == 1 {
		return int(o.period[0])
	}
	if o.random {
		x := o.seed + i*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		i, _ = bits.Mul64(x^x>>31, n)
		return int(o.period[i])
	}
	return int(o.period[i%n])
}

// compile finds the distinct sizes, in the order in which they come first.
func (s *Sizes) compile() (o sizeOrder, distinct []int, err error) {
	o = sizeOrder{random: s.Random, seed: s.Seed}
	known := map[int]uint16{}
	for _, n := range s.List {
		i, ok := known[n]
		if !ok {
			if n < 0 || n > 65535 {
				return o, nil, fmt.Errorf("raw: frame size %d is not in 0..65535", n)
			}
			i = uint16(len(distinct))
			known[n], distinct = i, append(distinct, n)
		}
		o.period = append(o.period, i)
	}
	if len(o.period) == 0 {
		return o, nil, fmt.Errorf("raw: no frame size")
	}
	return o, distinct, nil
}
