//go:build !race

package ring

import "syscall"

const (
	hugeBytes = 2 << 20 // the default huge page of amd64 and arm64
	// populate maps the pages now, so that no packet pays for a page fault.
	populate = syscall.MAP_POPULATE
)

// hugeRegion gives nil when the system has no huge pages to give.
func hugeRegion(bytes int) *Region {
	size := (bytes + hugeBytes - 1) &^ (hugeBytes - 1)
	m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_HUGETLB|populate)
	if err != nil {
		return nil
	}
	return &Region{bytes: m[:bytes:bytes], mapped: m, huge: true}
}

// adviseHuge asks for transparent huge pages. It is advice; a refusal costs
// speed only and is not reported.
func adviseHuge(m []byte) { _ = syscall.Madvise(m, 14) } // MADV_HUGEPAGE of uapi/asm-generic/mman-common.h
