//go:build !purego

package barrier

import "sync/atomic"

// On amd64 loads are seen in order, and stores are, and the accesses around a
// barrier are atomic ones or calls, which the compiler moves nothing across.
// So nothing is left to do, and empty functions cost nothing: an empty one in
// assembly would still be a call for each completion.

// ToDevice keeps earlier stores ahead of later ones, as a device sees them. It
// stands beside an atomic store, a StoreRelease or in front of StoreDoorbell,
// which the compiler keeps in place.
func ToDevice() {}

// FromDevice keeps earlier loads of memory written by a device ahead of later
// loads. It stands behind an atomic load, which the compiler keeps in place.
func FromDevice() {}

// StoreLoad keeps earlier stores ahead of later loads, as other processors see
// them. The word is the caller's own, so that it is not contended.
func StoreLoad() {
	var w uint32
	atomic.AddUint32(&w, 1)
}
