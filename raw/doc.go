// Package raw sends and receives Ethernet frames in batches, without a copy
// and without an allocation, over any device of package engine.
//
//	            Reserve ─ fill ─ Commit ─ Flush      Poll ─ read ─ Release
//	TxQueue ───────────┐                           ┌──────────────── RxQueue
//	Stream ─ Template ─┴─▶ engine.QP ─▶ wire ─▶ engine.QP
//
// A Port is one device with its queues; a queue has one owner goroutine. A
// Template describes look-alike packets whose fields vary by rule. A Stream
// lays a template over the send ring: every slot has its frame ready, and a
// packet costs the bytes that vary, its tag and a checksum made from partial
// sums.
package raw
