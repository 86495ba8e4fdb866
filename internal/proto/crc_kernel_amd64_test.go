//go:build amd64 && unix && !purego

package proto

import (
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelAgreesWithHashCRC32 runs the kernel over each length up to some pages, beside protected pages on either side,
// so that a byte read outside faults.
func TestKernelAgreesWithHashCRC32(t *testing.T) {
	if !hasKernel() {
		t.Skip("this processor has no AVX-512 with VPCLMULQDQ")
	}
	page := os.Getpagesize()
	all, err := unix.Mmap(-1, 0, 5*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(all)
	for _, at := range []int{0, 4 * page} {
		if err := unix.Mprotect(all[at:at+page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	mem := all[page : 4*page]
	r := rand.New(rand.NewPCG(21, 22))
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for n := 4; n <= len(mem); n += 4 {
		for _, at := range []int{0, len(mem) - n, r.IntN(len(mem) - n + 1)} {
			b, from := mem[at:at+n], r.Uint32()
			if got, want := ^crcAVX512(^from, &b[0], n), crc32.Update(from, crc32.IEEETable, b); got != want {
				t.Fatalf("CRC of %d bytes at %d behind %#x is %#x, want %#x", n, at, from, got, want)
			}
		}
	}
}

// FuzzUpdate compares what this machine uses with hash/crc32, whatever the length.
func FuzzUpdate(f *testing.F) {
	f.Add(uint32(0), []byte("0123456789abcdef"))
	f.Add(uint32(0xffffffff), make([]byte, 259))
	f.Fuzz(func(t *testing.T, from uint32, b []byte) {
		want := crc32.Update(from, crc32.IEEETable, b)
		if got := update(from, b); got != want {
			t.Fatalf("CRC of %d bytes behind %#x is %#x, want %#x", len(b), from, got, want)
		}
		if b = b[:len(b)&^3]; ICRCRest(from, b) != crc32.Update(from, crc32.IEEETable, b) {
			t.Fatalf("rest of %d bytes behind %#x differs", len(b), from)
		}
	})
}
