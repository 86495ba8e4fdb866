package traffic

import (
	"fmt"
	"strings"
	"time"
)

// HDRLog is the report's latency as a file in the log format of HdrHistogram,
// one line for the whole run, values in ns. It is empty of intervals when no
// latency was recorded.
func HDRLog(r *Report) []byte {
	var b strings.Builder
	start, _ := time.Parse(time.RFC3339Nano, r.StartTime)
	seconds := float64(start.UnixMilli()) / 1000
	fmt.Fprintf(&b, "#[pktgen latency in ns; device %s]\n", portText(r))
	fmt.Fprintf(&b, "#[Histogram log format version 1.3]\n")
	fmt.Fprintf(&b, "#[StartTime: %.3f (seconds since epoch), %s]\n", seconds, r.StartTime)
	fmt.Fprintf(&b, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n")
	if r.LatencyHDR != "" && r.Latency != nil {
		fmt.Fprintf(&b, "0.000,%.3f,%.3f,%s\n", float64(r.ElapsedNS)/1e9, float64(r.Latency.Max)/1e6, r.LatencyHDR)
	}
	return []byte(b.String())
}

func portText(r *Report) string {
	for _, p := range []*Port{r.TX, r.RX} {
		if p != nil {
			return backendText(p)
		}
	}
	return "-"
}
