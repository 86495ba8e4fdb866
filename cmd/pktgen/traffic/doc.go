// Package traffic is pktgen as a library: it offers a load on one port, counts
// and measures on another, and reports.
//
//	Config ──NewPlan──▶ Plan ──Run──▶ senders ─▶ port ~~▶ port ─▶ receiver
//	 (asked)            (exact)          │                          │
//	                                     └────────▶ Report ◀────────┘
//
// Parse functions read the words of the command line (rates, sizes, ranges).
// A Config holds what was asked, a Plan the exact numbers and finished frames,
// a Report what happened. Everything wrong with what was asked is a
// *UsageError, known before the first frame leaves.
package traffic
