//go:build !race && (linux || darwin || freebsd)

package ring

import (
	"fmt"
	"syscall"
)

func newRegion(bytes int, o RegionOptions) (*Region, error) {
	if o.Huge {
		if r := hugeRegion(bytes); r != nil {
			return r, nil
		}
	}
	m, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|populate)
	if err != nil {
		return nil, fmt.Errorf("ring: region of %d bytes: %w", bytes, err)
	}
	if o.Huge {
		adviseHuge(m)
	}
	return &Region{bytes: m, mapped: m}, nil
}

func unmap(m []byte) error {
	if err := syscall.Munmap(m); err != nil {
		return fmt.Errorf("ring: unmapping a region of %d bytes: %w", len(m), err)
	}
	return nil
}
