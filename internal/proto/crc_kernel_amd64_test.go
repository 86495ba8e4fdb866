//go:build amd64 && unix && !purego

package proto

import (
	"bytes"
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
	mem := guarded(t, 3)
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

// guarded maps pages of memory between two that must not be touched.
func guarded(t *testing.T, pages int) []byte {
	page := os.Getpagesize()
	all, err := unix.Mmap(-1, 0, (pages+2)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(all) })
	for _, at := range []int{0, (pages + 1) * page} {
		if err := unix.Mprotect(all[at:at+page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return all[page : (pages+1)*page]
}

// TestRowsStayBetweenProtectedPages seals and opens rows of each length beside protected pages on either side: a byte read
// or written outside faults. All grams of a row are in one place, so that the last one stays.
func TestRowsStayBetweenProtectedPages(t *testing.T) {
	frames, data := guarded(t, 1), guarded(t, 1)
	rnd := rand.New(rand.NewPCG(23, 24))
	var grh [GRHBytes]byte
	for _, n := range []int{LeastHead, 62, 64, 82, MostHead} {
		head := make([]byte, n)
		for i := range head {
			head[i] = byte(rnd.Uint32())
		}
		clear(head[n-psnBack : n-DETHBytes])
		for payload := range 300 {
			var r Row
			r.Set(head, payload, rnd.Uint32(), &grh)
			for k := range 4 {
				frame, from, to := frames[:r.FrameBytes()], data[:payload], data[:GRHBytes+payload]
				if k&1 != 0 {
					frame = frames[len(frames)-len(frame):]
				}
				if k&2 != 0 {
					from, to = data[len(data)-len(from):], data[len(data)-len(to):]
				}
				if payload == 0 {
					from = data
				}
				for i := range from {
					from[i] = byte(rnd.Uint32())
				}
				sent := bytes.Clone(from[:payload])
				var grams [5]RowGram
				for i := range grams {
					grams[i] = RowGram{&frame[0], &from[0]}
				}
				r.Seal(grams[:], 9)
				for i := range grams {
					grams[i].Data = &to[0]
				}
				clear(to)
				if good := r.Open(grams[:]); good != len(grams) || !bytes.Equal(to[GRHBytes:], sent) {
					t.Fatalf("head %d, payload %d, place %d: %d good", n, payload, k, good)
				}
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
