package results

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// AssertText is a verdict in a line: PASS loss==0 (lost_packets is 0).
func AssertText(a AssertResult) string {
	verdict := "FAIL"
	if a.Pass {
		verdict = "PASS"
	}
	value := "no value"
	if a.Value != nil {
		value = strconv.FormatFloat(*a.Value, 'g', 10, 64)
	}
	return fmt.Sprintf("%s %s  (%s is %s)", verdict, a.Expr, a.Key, value)
}

// Speed is a port's, in bit/s; 0 is unknown.
func Speed(bps uint64) string {
	if bps == 0 {
		return "unknown"
	}
	return scaled(float64(bps), 0) + "bit/s"
}

// PPS is a rate of frames or datagrams, with six decimals of its unit.
func PPS(pps float64) string {
	switch {
	case pps >= 1e6:
		return fmt.Sprintf("%.6f Mpps", pps/1e6)
	case pps >= 1e3:
		return fmt.Sprintf("%.6f kpps", pps/1e3)
	case pps > 0 && pps < 1e-3: // a frame in a quarter of an hour or more: digits that say something
		return fmt.Sprintf("%.6g pps", pps)
	}
	return fmt.Sprintf("%.6f pps", pps)
}

// BPS is a rate of bits.
func BPS(bps float64) string { return scaled(bps, 3) + "bit/s" }

// scaled is x in powers of 1000: "5.120 G".
func scaled(x float64, digits int) string {
	for _, p := range []struct {
		scale float64
		name  string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= p.scale {
			return fmt.Sprintf("%.*f %s", digits, x/p.scale, p.name)
		}
	}
	if x > 0 && x < 1e-3 {
		return fmt.Sprintf("%.4g ", x)
	}
	return fmt.Sprintf("%.*f ", digits, x)
}

// NS gives a time three significant digits and its unit.
func NS(ns float64) string {
	scale, unit := 1.0, "ns"
	switch a := math.Abs(ns); {
	case a >= 1e9:
		scale, unit = 1e9, "s"
	case a >= 1e6:
		scale, unit = 1e6, "ms"
	case a >= 1e3:
		scale, unit = 1e3, "us"
	default:
		return Trim(ns, 1) + unit
	}
	digits := 2
	if math.Abs(ns/scale) >= 100 {
		digits = 0
	} else if math.Abs(ns/scale) >= 10 {
		digits = 1
	}
	return strconv.FormatFloat(ns/scale, 'f', digits, 64) + unit
}

// Trim has at most that many digits and no trailing zeros.
func Trim(x float64, digits int) string {
	s := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// Group writes thousands with commas.
func Group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// OrDash is s, or a dash for what is not there.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Prefixed is prefix and s; nothing when s is empty.
func Prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// SortedKeys gives a report's map an order.
func SortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
