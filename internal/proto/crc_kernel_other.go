//go:build !amd64 || purego

package proto

import "hash/crc32"

// There is no kernel but that of hash/crc32, and the compiler leaves out what asks for another.
const (
	kernel      = false
	rowKernel   = false
	leastKernel = 0
)

// Nothing calls these.
func crcAVX512(uint32, *byte, int) uint32       { return 0 }
func sealAVX512(_, _ *byte, _ int, _ uint32)    {}
func openAVX512(_, _ *byte, _ int) (groups int) { return 0 }

func update(crc uint32, b []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, b) }
