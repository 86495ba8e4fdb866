// Package ring holds the one queue format of bluering, that of mlx5, and both
// ends of its queues. docs/FORMAT.md is the written profile.
//
//	host half                shared memory                device half
//	SQ  Reserve Commit  ->   blocks, send counter    ->   DevSQ Pending Fetch Advance
//	RQ  Post            ->   entries, recv counter   ->   DevRQ Available Peek Advance
//	SRQ Post            ->   chained entries, count  ->   DevSRQ Available Peek Advance
//	CQ  Peek Consume    <-   CQEs, consumer counter  <-   DevCQ Next Seal Publish
//
// A counter is free-running and kept unmasked; a slot is a counter masked at
// the moment of use. A block (BB) is 64 bytes of send queue, a DS is 16. All
// fields are big-endian.
//
// Every queue half has one owner goroutine; the two halves of a queue may have
// different ones. What they share beyond plain memory is atomic: the words of
// a Record and the last word of a CQE.
//
// Memory comes from a backend: a Region of our own, or whatever a device's
// library mapped. The package never allocates ring memory by itself.
package ring
