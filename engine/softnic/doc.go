// Package softnic is a network card in Go: it executes mlx5 queues over a wire.
//
//	SQ records ─▶ decode ─▶ validate ─▶ look keys up ─▶ wire.Reserve ─▶ copy ─▶ wire.Commit
//	                                                                              │
//	CQs  ◀─ publish, once per Step and CQ ◀──────────────── send CQEs ◀───────────┘
//	     ◀─────────────────────────────── receive CQEs ◀─ scatter ◀─ receive WQE ◀─ steer ◀─ wire.Next
//
// One goroutine at a time runs Step, a state machine without clocks or chance of its own: the owner of the
// queues in inline mode, from its doorbells and polls, or the NIC's own goroutine.
//
// The model is not laxer than hardware. A WQE is validated whole (ring/validate.go), then its keys, bounds,
// rights and protection domain are checked, and only then does anything happen. Frames are copied exactly
// once on the way into the wire and once out of it: the copies are the DMA.
//
// Every frame is accounted for. Of a NIC that took all that its wire had:
//
//	frames from the wire + RxCopies = RxFrames + the Drop counters
//	send WQEs executed              = TxFrames + TxErrors + TxFlushed
//
// Not built: checksum offload, segmentation, datagram (UD) execution, shared receive queues. Caps say so; a
// WQE that asks for one all the same fails with a local QP operation error and counts in TxNotBuilt.
package softnic
