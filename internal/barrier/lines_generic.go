//go:build race || purego || !(amd64 || arm64)

package barrier

import "sync/atomic"

// StoreRelease stores v at p, behind all earlier stores, for a goroutine that
// loads it atomically. The race detector knows only sync/atomic's stores.
func StoreRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// StoreRelease32 is StoreRelease for 32 bits.
func StoreRelease32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Prefetch has the cache line of p and the next one fetched for reading, where
// that can be said.
func Prefetch(*byte) {}
