// Package latency records how long things took, every one of them, in a few
// nanoseconds each.
//
//	hot loop  ── Record(ns) ──▶ Recorder ── Swap() ──▶ Snapshot ──▶ quantiles, log
//	                              ▲                       │
//	                              └──────── Recycle ──────┘
//
// The counts are an HDR histogram's (three significant digits by default);
// count, minimum, maximum and mean are exact. Values outside the range are
// clamped before anything else is done with them, so that no statistic
// contradicts another.
package latency
