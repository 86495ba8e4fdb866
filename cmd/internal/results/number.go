package results

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads 10s, 2m, 1h30m, 500ms; a bare number is seconds, as
// everywhere. It refuses negative ones.
func ParseDuration(thing, s string) (time.Duration, error) {
	const wants = "use 10s, 2m, 500ms or a number of seconds, from 0 up"
	text := strings.ToLower(strings.TrimSpace(s))
	if num, rest := splitNumber(text); rest == "" && num != "" {
		text = num + "s"
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, Usage(thing, s, "not a duration; "+wants)
	case d < 0:
		return 0, Usage(thing, s, "is negative; "+wants)
	}
	return d, nil
}

// ParseCount reads a whole number with an optional k, m or g (powers of 1000):
// 1000000, 1m, 1.5k.
func ParseCount(thing, s string, limit uint64) (uint64, error) {
	return parseCount(thing, s, limit, fmt.Sprintf("use a whole number such as 1000, 10k or 2m, at most %d", limit))
}

func parseCount(thing, s string, limit uint64, wants string) (uint64, error) {
	text := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), "_", ""))
	num, suffix := splitNumber(text)
	scale, rest := cutScale(suffix)
	val, ok := parseDecimal(num)
	if !ok || rest != "" {
		return 0, Usage(thing, s, "not a count; "+wants)
	}
	val.Mul(val, new(big.Rat).SetInt64(scale))
	if val.Sign() < 0 || !val.IsInt() || !val.Num().IsUint64() || val.Num().Uint64() > limit {
		return 0, Usage(thing, s, "out of range; "+wants)
	}
	return val.Num().Uint64(), nil
}

// ParseInt is ParseCount for a number that is at least that, and as an int.
func ParseInt(thing, s string, least, most int) (int, error) {
	wants := fmt.Sprintf("use %d to %d", least, most)
	n, err := parseCount(thing, s, uint64(most), wants)
	if err == nil && n < uint64(least) {
		err = Usage(thing, s, fmt.Sprintf("must be more than %d; %s", least-1, wants))
	}
	return int(n), err
}

// ParseID reads a decimal or 0x number that names something.
func ParseID(thing, s string, most uint32) (uint32, error) {
	n, err := strconv.ParseUint(strings.ToLower(s), 0, 32)
	if err != nil || n > uint64(most) {
		return 0, Usage(thing, s, fmt.Sprintf("use a number such as 17 or 0x11, at most %#x", most))
	}
	return uint32(n), nil
}

// ParseSeed reads a decimal or 0x number.
func ParseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.ToLower(s), 0, 64)
	if err != nil {
		return 0, Usage("seed", s, "not a seed; use a number such as 7 or 0x5eed")
	}
	return n, nil
}
