package traffic

import (
	"fmt"
	"math"
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
		return 0, usage(thing, s, "not a duration; "+wants)
	case d < 0:
		return 0, usage(thing, s, "is negative; "+wants)
	}
	return d, nil
}

// ParseCount reads a whole number with an optional k, m or g (powers of 1000):
// 1000000, 1m, 1.5k.
func ParseCount(thing, s string, limit uint64) (uint64, error) {
	wants := fmt.Sprintf("use a whole number such as 1000, 10k or 2m, at most %d", limit)
	text := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), "_", ""))
	num, suffix := splitNumber(text)
	scale, rest := cutScale(suffix)
	val, ok := parseDecimal(num)
	if !ok || rest != "" {
		return 0, usage(thing, s, "not a count; "+wants)
	}
	val.Mul(val, new(big.Rat).SetInt64(scale))
	if val.Sign() < 0 || !val.IsInt() || !val.Num().IsUint64() || val.Num().Uint64() > limit {
		return 0, usage(thing, s, "out of range; "+wants)
	}
	return val.Num().Uint64(), nil
}

// ParseLatency reads all, off or sample:N.
func ParseLatency(s string) (LatencyMode, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	switch {
	case text == "all":
		return LatencyMode{1}, nil
	case text == "off":
		return LatencyMode{}, nil
	case strings.HasPrefix(text, "sample:"):
		n, err := ParseCount("latency", text[len("sample:"):], math.MaxUint32)
		if err == nil && n > 0 {
			return LatencyMode{n}, nil
		}
	}
	return LatencyMode{}, usage("latency", s, "not a mode; use all, sample:N (every N-th packet of a flow) or off")
}

// String is the mode as --latency takes it.
func (m LatencyMode) String() string {
	switch m.EveryN {
	case 0:
		return "off"
	case 1:
		return "all"
	}
	return "sample:" + strconv.FormatUint(m.EveryN, 10)
}

// ParseOnLate reads burst, skip or slip.
func ParseOnLate(s string) (OnLate, error) {
	for _, o := range []OnLate{LateBurst, LateSkip, LateSlip} {
		if strings.EqualFold(s, o.String()) {
			return o, nil
		}
	}
	return 0, usage("on-late", s, "not a policy; use burst (catch up by 64 frames, then slip), skip or slip")
}

// ParseProto reads udp or tcp.
func ParseProto(s string) (Proto, error) {
	for _, p := range []Proto{UDP, TCP} {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	return 0, usage("proto", s, "not a protocol; use udp or tcp")
}

// ParseSeed reads a decimal or 0x number.
func ParseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.ToLower(s), 0, 64)
	if err != nil {
		return 0, usage("seed", s, "not a seed; use a number such as 7 or 0x5eed")
	}
	return n, nil
}
