package ring

import "encoding/binary"

// The words of the formats are big-endian. These four are what BigEndian of
// encoding/binary does, made of a native access and a swap: of a value that is
// put together from shifted fields, as most here are, the compiler takes
// BigEndian's byte stores apart and leaves up to eight of them; a swapped word
// stays whole.

func put64(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, swap64(v)) }

func put32(b []byte, v uint32) { binary.NativeEndian.PutUint32(b, swap32(v)) }

func get64(b []byte) uint64 { return swap64(binary.NativeEndian.Uint64(b)) }

func get32(b []byte) uint32 { return swap32(binary.NativeEndian.Uint32(b)) }
