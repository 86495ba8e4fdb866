package results

import (
	"math"
	"math/big"
	"strings"

	"github.com/bluering/bluering/internal/clock"
)

// RateUnit is what a rate counts.
type RateUnit uint8

// The units. RateMax, the zero value, is as fast as the port takes frames.
const (
	RateMax     RateUnit = iota
	RatePPS              // frames per second
	RateL2BPS            // bits per second, FCS included
	RateL1BPS            // bits per second with preamble and gap, 20 bytes a frame
	RatePercent          // of the port's speed, in L1 bits
)

// Rate is an offered load, exact: 2.976190 Mpps is never rounded to what a
// float64 holds. The zero value is max.
type Rate struct {
	unit RateUnit
	val  *big.Rat // pps, bps or percent; nil when max
	text string   // as written
}

// String is the rate as it was written, in lower case.
func (r Rate) String() string {
	if r.unit == RateMax {
		return "max"
	}
	return r.text
}

// Unit tells what the rate counts.
func (r Rate) Unit() RateUnit { return r.unit }

// What a rate may be, for errors: PPSWants where it can be one of datagrams only.
const (
	PPSWants  = "a number with pps, such as 100kpps, or max"
	rateWants = "a number with a unit: 10mpps, 200kpps, 5gbps (frame bits with FCS), 5gbpsl1 (with preamble and gap), 50% or max"
)

// ParseRate reads a rate such as 10mpps, 5gbps, 5gbpsl1, 50% or max, in any
// case. A bare number is refused: it means five things in five tools.
func ParseRate(s string) (Rate, error) { return parseRate(s, rateWants) }

// ParsePPS is ParseRate for datagrams, whose bits depend on the path.
func ParsePPS(s string) (Rate, error) {
	r, err := parseRate(s, PPSWants)
	if err == nil && r.unit != RateMax && r.unit != RatePPS {
		err = Usage("rate", s, "is not of datagrams; use "+PPSWants)
	}
	return r, err
}

func parseRate(s, wants string) (Rate, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if text == "max" {
		return Rate{}, nil
	}
	bad := func(why string) (Rate, error) {
		return Rate{}, Usage("rate", s, why+"; use "+wants)
	}
	num, suffix := splitNumber(text)
	val, ok := parseDecimal(num)
	if !ok {
		return bad("not a rate")
	}
	r := Rate{val: val, text: text}
	scale := int64(1)
	switch {
	case suffix == "":
		return bad("no unit")
	case suffix == "%":
		r.unit = RatePercent
	default:
		scale, suffix = cutScale(suffix)
		switch suffix {
		case "pps":
			r.unit = RatePPS
		case "bps":
			r.unit = RateL2BPS
		case "bpsl1":
			r.unit = RateL1BPS
		default:
			return bad("unknown unit")
		}
	}
	if val.Sign() <= 0 {
		return bad("must be more than 0")
	}
	if r.unit == RatePercent && val.Cmp(big.NewRat(100, 1)) > 0 {
		return bad("more than the whole link")
	}
	val.Mul(val, new(big.Rat).SetInt64(scale))
	return r, nil
}

// splitNumber cuts s after its leading digits and point.
func splitNumber(s string) (num, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.' || i == 0 && (s[i] == '-' || s[i] == '+')) {
		i++
	}
	return s[:i], s[i:]
}

// parseDecimal reads plain decimals of sane length only: big.Rat itself would
// also take fractions, hexadecimal and exponents of any size.
func parseDecimal(s string) (*big.Rat, bool) {
	if s == "" || len(s) > 40 || strings.Trim(s, "+-.") == "" {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// cutScale takes a leading k, m, g or t off a unit.
func cutScale(unit string) (int64, string) {
	for i, scale := range []int64{1e3, 1e6, 1e9, 1e12} {
		if rest, ok := strings.CutPrefix(unit, "kmgt"[i:i+1]); ok {
			return scale, rest
		}
	}
	return 1, unit
}

// PPS turns the rate into frames per second for a mean frame size (FCS
// included) and a port of speedBPS (0: unknown).
func (r Rate) PPS(meanSize *big.Rat, speedBPS uint64) (clock.Rate, error) {
	if r.unit == RateMax {
		return clock.Rate{}, nil
	}
	pps := new(big.Rat).Set(r.val)
	l1 := new(big.Rat).Mul(new(big.Rat).Add(meanSize, big.NewRat(L1OverheadBytes, 1)), big.NewRat(8, 1))
	switch r.unit {
	case RateL2BPS:
		pps.Quo(pps, new(big.Rat).Mul(meanSize, big.NewRat(8, 1)))
	case RateL1BPS:
		pps.Quo(pps, l1)
	case RatePercent:
		if speedBPS == 0 {
			return clock.Rate{}, Usage("rate", r.text, "the port's speed is unknown, so a share of it is too; use pps or bps, or loop:?speed=")
		}
		pps.Mul(pps, new(big.Rat).SetFrac(new(big.Int).SetUint64(speedBPS), big.NewInt(100)))
		pps.Quo(pps, l1)
	}
	num, den := pps.Num(), pps.Denom()
	if !num.IsUint64() || !den.IsUint64() || num.Uint64() > math.MaxInt64 || den.Uint64() > math.MaxInt64 {
		return clock.Rate{}, Usage("rate", r.text, "has more digits than a schedule can hold; use fewer")
	}
	if pps.Cmp(big.NewRat(1e9, 1)) > 0 {
		return clock.Rate{}, Usage("rate", r.text, "is more than 1 frame a nanosecond; use at most 1000mpps")
	}
	return clock.Rate{Num: num.Uint64(), Den: den.Uint64()}, nil
}

// L1OverheadBytes is preamble, start delimiter and the smallest gap.
const L1OverheadBytes = 20
