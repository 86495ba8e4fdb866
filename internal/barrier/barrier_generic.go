//go:build purego || !(amd64 || arm64)

package barrier

import "sync/atomic"

// Register reports whether StoreDoorbell may be used on device registers. The
// generic one is an atomic store, on amd64 an XCHG, which locks the bus when
// its target is device memory.
const Register = false

// ToDevice keeps earlier stores ahead of later ones, as a device sees them.
func ToDevice() { fence() }

// FromDevice keeps earlier loads of memory written by a device ahead of later
// loads.
func FromDevice() { fence() }

// StoreLoad keeps earlier stores ahead of later loads.
func StoreLoad() { fence() }

// FlushWC keeps earlier stores ahead of later ones.
func FlushWC() { fence() }

// StoreDoorbell stores v at reg, which must be ordinary memory.
func StoreDoorbell(reg *uint64, v uint64) { atomic.StoreUint64(reg, v) }

// fence relies on Go's atomics being sequentially consistent. The word is the
// caller's own, so that it is not contended.
func fence() {
	var w uint32
	atomic.AddUint32(&w, 1)
}
