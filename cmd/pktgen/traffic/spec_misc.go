package traffic

import (
	"math"
	"strconv"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// ParseLatency reads all, off or sample:N.
func ParseLatency(s string) (LatencyMode, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	switch {
	case text == "all":
		return LatencyMode{1}, nil
	case text == "off":
		return LatencyMode{}, nil
	case strings.HasPrefix(text, "sample:"):
		n, err := results.ParseCount("latency", text[len("sample:"):], math.MaxUint32)
		if err == nil && n > 0 {
			return LatencyMode{n}, nil
		}
	}
	return LatencyMode{}, results.Usage("latency", s, "not a mode; use all, sample:N (every N-th packet of a flow) or off")
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
	return 0, results.Usage("on-late", s, "not a policy; use burst (catch up by 64 frames, then slip), skip (catch up by 64, leave out the rest) or slip")
}

// ParseCsum reads software or offload.
func ParseCsum(s string) (CsumMode, error) {
	for _, m := range []CsumMode{CsumSoftware, CsumOffload} {
		if strings.EqualFold(s, m.String()) {
			return m, nil
		}
	}
	return 0, results.Usage("csum", s, "not a way to make checksums; use software or offload (the device makes them)")
}

// ParseProto reads udp, tcp or roce-ud.
func ParseProto(s string) (Proto, error) {
	for _, p := range []Proto{UDP, TCP, RoCEUD} {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	return 0, results.Usage("proto", s, "not a protocol; use udp, tcp or roce-ud")
}
