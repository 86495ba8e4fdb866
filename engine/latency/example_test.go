package latency_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bluering/bluering/engine/latency"
)

// The hot loop records; now and then what it recorded is taken out and read,
// and its memory goes back for the next time.
func ExampleRecorder() {
	var rec *latency.Recorder = latency.New(latency.Options{MaxNS: 1_000_000, Digits: 3})
	for ns := range int64(1000) {
		rec.Record(ns * 10)
	}
	rec.Record(5_000_000) // more than MaxNS: counted as that

	s := rec.Swap()
	fmt.Println(s.Count(), "values,", s.Clamped(), "clamped")
	fmt.Println("min", s.Min(), "median", s.Quantile(0.5), "p99", s.Quantile(0.99), "max", s.Max())
	rec.Recycle(&s)
	fmt.Println(s.Count(), rec.Count())
	// Output:
	// 1001 values, 1 clamped
	// min 0 median 5003 p99 9903 max 1000000
	// 0 0
}

// Snapshots of several queues become one. An empty one merges with anything.
func ExampleSnapshot_Merge() {
	var all latency.Snapshot
	for queue := range 3 {
		rec := latency.New(latency.Options{})
		rec.RecordN(int64(100*(queue+1)), 10)
		if err := all.Merge(rec.Swap()); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(all.Count(), all.Min(), all.Mean(), all.Max())

	coarse := latency.New(latency.Options{Digits: 1})
	coarse.Record(1)
	fmt.Println(errors.Is(all.Merge(coarse.Swap()), latency.ErrGeometry))
	// Output:
	// 30 100 200 300
	// true
}

// A log that the tools of HdrHistogram read.
func ExampleSnapshot_WriteLog() {
	rec := latency.New(latency.Options{})
	rec.RecordN(1500, 4)
	s := rec.Swap()
	var log strings.Builder
	err := s.WriteLog(&log, latency.LogOptions{StartMS: 10_000, EndMS: 12_500, Tag: "rx", Comment: "one way, in ns"})
	if err != nil {
		fmt.Println(err)
	}
	for line := range strings.Lines(log.String()) {
		if before, _, long := strings.Cut(line, "HIST"); long {
			line = before + "...\n"
		}
		fmt.Print(line)
	}
	// Output:
	// #one way, in ns
	// #[Histogram log format version 1.3]
	// #[StartTime: 10 (seconds since epoch), 1970-01-01T00:00:10Z]
	// "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
	// Tag=rx,10.000000,2.500000,0.001500,...
}
