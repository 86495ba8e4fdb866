// Package bench measures the hot paths, each beside a baseline in the same process.
//
//	chunk of ours ─▶ chunk of baseline ─▶ ours ─▶ baseline ...      two clock readings around each chunk
//	     │                  │
//	     └── ns/pkt         └── baseline-ns/pkt        ratio = ours / baseline
//
// A chunk is a few thousand packets, so that reading the clock costs nothing that shows, and the two take turns, so that
// a processor that changes its frequency does it to both. What has to happen between chunks, such as draining
// completions, is not timed. docs/BENCHMARKS.md has the figures and says how to read them.
package bench
