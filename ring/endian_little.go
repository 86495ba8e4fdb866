//go:build !(armbe || arm64be || m68k || mips || mips64 || ppc || ppc64 || s390 || s390x || sparc || sparc64)

package ring

import "math/bits"

// swap32 turns a number into the native word whose bytes are big-endian, and
// back.
func swap32(v uint32) uint32 { return bits.ReverseBytes32(v) }

// swap64 is swap32 for eight bytes.
func swap64(v uint64) uint64 { return bits.ReverseBytes64(v) }
