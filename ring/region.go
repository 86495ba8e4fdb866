package ring

import "fmt"

// RegionOptions says what kind of memory a region wants.
type RegionOptions struct {
	Huge bool // huge pages when the system has some to give
}

// Region is page-aligned zeroed memory that a device may read and write: our
// own mapping outside the Go heap, or, in race builds and where there is no
// mmap, a piece of the heap, because the race detector does not see mapped
// memory. It has one owner; nothing derived from it may be used after Close.
type Region struct {
	bytes  []byte // what was asked for
	mapped []byte // what must be given back; nil for heap
	huge   bool
	free   func() error // of memory that is somebody else's; nil: it is ours
}

// NewRegion gives memory of that many bytes.
func NewRegion(bytes int, o RegionOptions) (*Region, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("ring: region of %d bytes", bytes)
	}
	return newRegion(bytes, o)
}

// RegionOf makes a region of memory that is somebody else's, to whom free gives it
// back.
func RegionOf(mem []byte, free func() error) *Region { return &Region{bytes: mem, free: free} }

// Bytes gives the memory; nil after Close.
func (r *Region) Bytes() []byte { return r.bytes }

// Blocks gives the memory as send queue blocks; nil when it holds none.
func (r *Region) Blocks() []Block { return BlocksOf(r.bytes) }

// Huge reports whether the memory is made of huge pages that were reserved
// for it.
func (r *Region) Huge() bool { return r.huge }

// Close gives the memory back. A second Close does nothing.
func (r *Region) Close() error {
	m, free := r.mapped, r.free
	r.bytes, r.mapped, r.free = nil, nil, nil
	if free != nil {
		return free()
	}
	if m == nil {
		return nil
	}
	return unmap(m)
}
