package csum

// Kinds of kernels, by what the processor must have.
type kind uint8

const (
	generic kind = iota // Go, everywhere
	avx2
	avx512 // with BW, VL and VNNI
)

func (k kind) String() string { return [...]string{"generic", "avx2", "avx512"}[k] }

// Kernel names the kernel that sums long buffers on this machine: generic, avx2
// or avx512. The tag purego leaves generic.
func Kernel() string { return kernel.String() }
