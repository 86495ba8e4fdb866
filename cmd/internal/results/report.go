package results

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
)

// Summary describes a distribution in the unit that its key names.
type Summary struct {
	Min    int64   `json:"min"`
	Mean   float64 `json:"mean"`
	P50    int64   `json:"p50"`
	P90    int64   `json:"p90"`
	P99    int64   `json:"p99"`
	P999   int64   `json:"p99.9"`
	P9999  int64   `json:"p99.99"`
	P99999 int64   `json:"p99.999"`
	Max    int64   `json:"max"`
}

// Stalls is what disturbed the sender and the receiver.
type Stalls struct {
	Count       uint64 `json:"stalls_count"`
	LongestNS   int64  `json:"longest_ns"`
	GCCycles    uint64 `json:"gc_cycles_count"`
	Involuntary uint64 `json:"involuntary_switches_count"`
}

// Host is the machine's fingerprint. It holds no host name and no address.
type Host struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel"`
	CPU        string `json:"cpu"`
	CPUs       int    `json:"cpus_count"`
	GoMaxProcs int    `json:"gomaxprocs_count"`
	Go         string `json:"go"`
	Clock      string `json:"clock"`
}

// AssertResult is the verdict on one --assert.
type AssertResult struct {
	Expr  string   `json:"expr"`
	Pass  bool     `json:"pass"`
	Key   string   `json:"key"`   // the report's key it was read from
	Value *float64 `json:"value"` // in the key's unit; null: the run yielded none
}

// ThisHost is the machine's fingerprint, without a name or an address in it.
func ThisHost() Host {
	h := Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuid.CPU.BrandName, CPUs: runtime.NumCPU(), GoMaxProcs: runtime.GOMAXPROCS(0), Go: runtime.Version(), Clock: "tsc"}
	if clock.System() == clock.Monotonic() {
		h.Clock = "monotonic"
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(b))
	}
	return h
}

// Version is the command's version: a release's tag, else what the build knew.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(v, s.Value[:min(12, len(s.Value))]) {
			v += "+" + s.Value[:min(12, len(s.Value))]
		}
	}
	return v
}

// Summarize describes a snapshot; nil when it is empty.
func Summarize(s *latency.Snapshot) *Summary {
	if s.Count() == 0 {
		return nil
	}
	return &Summary{
		Min: s.Min(), Mean: s.Mean(), P50: s.Quantile(0.5), P90: s.Quantile(0.9), P99: s.Quantile(0.99),
		P999: s.Quantile(0.999), P9999: s.Quantile(0.9999), P99999: s.Quantile(0.99999), Max: s.Max(),
	}
}
