// Package exchange tells two ends of a UD run each other's queue pair over a
// stream, usually TCP:
//
//	Pingpong   what ibv_ud_pingpong speaks
//	Perftest   what ib_send_lat and ib_send_bw speak with -c UD
//	Native     our own: versioned, with limits, refusals and counts
//
//	client                                   server
//	  │ mine ───────────────────────────────▶ │ accept(theirs): make ready to receive
//	  │ ◀─────────────────────────────── mine │
//	  │ Session                       Session │
//	  │ Sync, Counts, Finish ─────────▶ Serve │
//
// It knows no queue: the caller has receives posted before it calls Client, and
// before its accept function returns. Nothing that a peer sends makes it hang,
// grow or panic: each message has one length or a small limit, each step of the
// set-up a deadline, the first a short one, and every wait a context.
package exchange
