//go:build unix

package csum

import (
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// guarded maps one page of memory between two that must not be touched.
func guarded(t *testing.T) []byte {
	page := os.Getpagesize()
	m, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	for _, at := range []int{0, 2 * page} {
		if err := unix.Mprotect(m[at:at+page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return m[page : 2*page : 2*page]
}

// TestKernelsStayBetweenProtectedPages runs every kernel at each length from 1 to 300 and each distance from 0 to 63
// from either protected page: a byte read or written outside faults.
func TestKernelsStayBetweenProtectedPages(t *testing.T) {
	src, dst := guarded(t), guarded(t)
	r := rand.New(rand.NewPCG(11, 12))
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for _, k := range kernels() {
		for n := 1; n <= 300; n++ {
			for a := range 64 {
				front, back := a, len(src)-a-n
				for _, p := range [][2]int{{front, back}, {back, front}} {
					s, d := src[p[0]:p[0]+n], dst[p[1]:p[1]+n]
					want := wordByWord(s)
					if got := sumWith(k, s); got != want {
						t.Fatalf("%v: sum of %d bytes at %d is %#x, want %#x", k, n, p[0], got, want)
					}
					if got := copyWith(k, d, s); got != want || string(d) != string(s) {
						t.Fatalf("%v: copy of %d bytes from %d to %d sums to %#x, want %#x", k, n, p[0], p[1], got, want)
					}
				}
			}
		}
	}
}

// TestTrainsStayBetweenProtectedPages has frames and payload end at a protected page, and begin at one.
func TestTrainsStayBetweenProtectedPages(t *testing.T) {
	src, dst := guarded(t), guarded(t)
	r := rand.New(rand.NewPCG(23, 24))
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for n := 1; n <= 300; n++ {
		for _, head := range []int{20, 42, 54, 62, 64, 66, 74, 126, 128} {
			train := someTrain(r)
			train.Head, train.Size = append(train.Head, make([]byte, 130)...)[:head], n
			checkTrain(t, r, train, 1, src[:n], func(n int) []byte { return dst[len(dst)-n:] })
			checkTrain(t, r, train, 1, src[len(src)-n:], func(n int) []byte { return dst[:n:n] })
		}
	}
}
