package clock

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Rate is an exact rate: Num/Den packets per second. 20 % of 10 Gbit/s in
// frames that take 84 bytes of wire is {2_000_000_000, 672}.
type Rate struct {
	Num, Den uint64
}

// PPS returns the rate as a floating number, for people.
func (r Rate) PPS() float64 { return float64(r.Num) / float64(r.Den) }

// String prints packets per second.
func (r Rate) String() string {
	if r.Den == 1 {
		return fmt.Sprintf("%d pps", r.Num)
	}
	return fmt.Sprintf("%d/%d pps", r.Num, r.Den)
}

// ErrRate is returned for a rate no schedule can be made of.
var ErrRate = errors.New("clock: rate out of range")

// Schedule gives the departure of every packet of a run. It is a value without
// state: any number of goroutines may use copies of it.
type Schedule struct {
	per, num uint64 // At(k) = floor(k*per/num), in lowest terms
}

// NewSchedule makes the schedule of rate r. Zero terms, and terms that do not
// fit 64 bits in nanoseconds even after reduction, are ErrRate.
func NewSchedule(r Rate) (Schedule, error) {
	if r.Num == 0 || r.Den == 0 {
		return Schedule{}, fmt.Errorf("%w: %d/%d", ErrRate, r.Num, r.Den)
	}
	g := gcd(r.Num, r.Den)
	num, den := r.Num/g, r.Den/g
	g = gcd(num, 1e9)
	num /= g
	hi, per := bits.Mul64(den, 1e9/g)
	if hi != 0 || num > math.MaxInt64 {
		return Schedule{}, fmt.Errorf("%w: %d/%d", ErrRate, r.Num, r.Den)
	}
	return Schedule{per: per, num: num}, nil
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// At returns the departure of packet k in nanoseconds from the run's start:
// floor(k*1e9*Den/Num). Beyond 2^63-1 ns it stays there.
func (s Schedule) At(k uint64) int64 {
	ns, _ := s.divide(k)
	return ns
}

func (s Schedule) divide(k uint64) (ns int64, rem uint64) {
	hi, lo := bits.Mul64(k, s.per)
	if hi >= s.num {
		return math.MaxInt64, 0
	}
	q, rem := bits.Div64(hi, lo, s.num)
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(q), rem
}

// Due returns how many packets have left by time ns, one departing at ns
// included: the number of k with At(k) <= ns.
func (s Schedule) Due(ns int64) uint64 {
	if ns < 0 {
		return 0
	}
	// floor(k*per/num) <= ns  <=>  k*per < (ns+1)*num; there are
	// ceil((ns+1)*num/per) such k from 0 on.
	hi, lo := bits.Mul64(uint64(ns)+1, s.num)
	lo, borrow := bits.Sub64(lo, 1, 0)
	hi -= borrow
	if hi >= s.per {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, s.per)
	if q == math.MaxUint64 {
		return q
	}
	return q + 1
}

// Cursor walks the packets start, start+stride, start+2*stride, ... with
// additions only; its values equal At's. It is for one goroutine and must stay
// below the 292 years an int64 of nanoseconds holds.
type Cursor struct {
	k, stride uint64
	ns, stepN int64
	rem, step uint64
	num       uint64
}

// Cursor returns a cursor that stands on packet start.
func (s Schedule) Cursor(start, stride uint64) Cursor {
	c := Cursor{k: start, stride: stride, num: s.num}
	c.ns, c.rem = s.divide(start)
	c.stepN, c.step = s.divide(stride)
	return c
}

// K returns the packet the cursor stands on.
func (c *Cursor) K() uint64 { return c.k }

// NS returns the departure of that packet: At(K()).
func (c *Cursor) NS() int64 { return c.ns }

// Next moves to the next packet.
func (c *Cursor) Next() {
	c.k += c.stride
	c.ns += c.stepN
	c.rem += c.step // both below num <= 2^63-1: no overflow
	if c.rem >= c.num {
		c.rem -= c.num
		c.ns++
	}
}
