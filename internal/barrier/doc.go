// Package barrier orders memory between a program and a device that reads and
// writes its memory, and stores to doorbell registers.
//
//	fill ring entries
//	ToDevice()          entries before the record that announces them
//	store the record
//	ToDevice()          record before the doorbell
//	StoreDoorbell()     one 64-bit store, never split, never an XCHG
//	FlushWC()           push it out of the write-combining buffer
//
// A store to a register that is mapped write-combining may pass earlier stores to
// memory, on amd64 too: such a one wants a FlushWC in place of the second
// ToDevice (rdma-core, mmio_wc_start).
//
// In front of a software device none of it is needed beyond the atomics on the
// records; the calls stay, because the code in front of the doorbell is the
// same for every device. On amd64 the ordering barriers are empty and inlined:
// stores are seen in order, and each stands beside an atomic access, a
// StoreRelease or a doorbell store, across which the compiler moves no memory
// access.
//
// Between goroutines StoreRelease announces what was written before it, and
// costs a plain store where the processor has that; Prefetch has lines on their
// way before it is known that they are wanted.
//
// With the build tag purego, or on other processors, the generic twin is used.
// Its StoreDoorbell is an atomic store, which is not fit for device registers;
// Register says so.
package barrier
