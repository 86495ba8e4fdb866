//go:build (amd64 || arm64) && !purego

package barrier

// Register reports whether StoreDoorbell may be used on device registers.
const Register = true

// FlushWC drains the write-combining buffers and keeps earlier stores, of
// whatever memory type, ahead of later ones.
//
//go:noescape
func FlushWC()

// StoreDoorbell stores v at reg with one plain 64-bit store. reg points at a
// mapped device register or at memory that stands in for one.
//
//go:noescape
func StoreDoorbell(reg *uint64, v uint64)
