//go:build unix

package barrier

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A hint reads nothing: neither the line of the last byte's neighbour nor that of memory which must not be read faults.
func TestPrefetchReadsNothing(t *testing.T) {
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := unix.Mprotect(b[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	Prefetch(&b[page-1])
	Prefetch(&b[page])
}
