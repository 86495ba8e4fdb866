//go:build race || !(linux || darwin || freebsd)

package ring

import "unsafe"

const pageBytes = 4096

// newRegion takes memory from the heap. It assumes that the collector does not
// move objects, which holds for every Go so far.
func newRegion(bytes int, _ RegionOptions) (*Region, error) {
	b := make([]byte, bytes+pageBytes)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % pageBytes)
	return &Region{bytes: b[off : off+bytes : off+bytes]}, nil
}

func unmap([]byte) error { return nil }
