//go:build (amd64 || arm64) && !purego && !race

package barrier

// StoreRelease stores v at p, behind all earlier stores, for a goroutine that
// loads it atomically. Unlike a store of sync/atomic it does not wait until they
// have reached the cache, and later loads may pass it: who then looks at what
// the other side wrote calls StoreLoad, or stores atomically, in between.
//
//go:noescape
func StoreRelease(p *uint64, v uint64)

// StoreRelease32 is StoreRelease for 32 bits.
//
//go:noescape
func StoreRelease32(p *uint32, v uint32)

// Prefetch has the cache line of p and the next one fetched for reading. It is
// a hint: nothing is read, so p may be memory that another goroutine writes.
//
//go:noescape
func Prefetch(p *byte)
