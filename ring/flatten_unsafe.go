package ring

import "unsafe"

// Flatten views contiguous blocks as bytes. It assumes nothing: a slice of
// arrays is contiguous, and the view keeps the memory reachable.
func Flatten(w []Block) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*BlockBytes)
}

// BlocksOf views memory as blocks: as many as fit in b. It is nil when b does
// not start on an 8-byte boundary. The caller guarantees that b stays mapped
// while the view is used.
func BlocksOf(b []byte) []Block {
	if len(b) < BlockBytes || !aligned(b) {
		return nil
	}
	return unsafe.Slice((*Block)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/BlockBytes)
}

// CQEs views memory as CQEs: as many as fit in b. It is nil when b does not
// start on an 8-byte boundary, which the atomic access to a CQE's last word
// needs. The caller guarantees that b stays mapped while the view is used.
func CQEs(b []byte) []CQE {
	if len(b) < CQEBytes || !aligned(b) {
		return nil
	}
	return unsafe.Slice((*CQE)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/CQEBytes)
}

// aligned reports whether b starts on an 8-byte boundary.
func aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0
}

// alignedCQEs reports whether the entries' last words can be accessed
// atomically.
func alignedCQEs(c []CQE) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(c)))%8 == 0
}
