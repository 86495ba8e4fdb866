package csum

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// kernels are those that this machine can run, each tested by itself whatever is chosen.
func kernels() (out []kind) {
	for _, k := range []kind{generic, avx2, avx512} {
		if has(k) {
			out = append(out, k)
		}
	}
	return out
}

// wordByWord is the sum as RFC 1071 describes it.
func wordByWord(b []byte) uint32 {
	s := uint32(0)
	for i, v := range b {
		if i%2 == 0 {
			s += uint32(v) << 8
		} else {
			s += uint32(v)
		}
		s = s>>16 + s&0xffff
	}
	return s
}

// checkKernel compares sum and copy with the word by word sum. What surrounds dst must stay.
func checkKernel(t *testing.T, k kind, src, whole []byte, at int) {
	t.Helper()
	want := wordByWord(src)
	if len(src) == 0 {
		return // kernels are called for one byte at least
	}
	if got := sumWith(k, src); got != want {
		t.Fatalf("%v: sum of %d bytes is %#x, want %#x", k, len(src), got, want)
	}
	for i := range whole {
		whole[i] = 0xA5
	}
	dst := whole[at : at+len(src)]
	if got := copyWith(k, dst, src); got != want {
		t.Fatalf("%v: copy of %d bytes sums to %#x, want %#x", k, len(src), got, want)
	}
	if !bytes.Equal(dst, src) {
		t.Fatalf("%v: copy of %d bytes differs", k, len(src))
	}
	for i, b := range whole {
		if (i < at || i >= at+len(src)) && b != 0xA5 {
			t.Fatalf("%v: copy of %d bytes to %d wrote byte %d", k, len(src), at, i)
		}
	}
}

func TestKernelsAtEveryLengthUpTo5000(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	src, dst := make([]byte, 5000), make([]byte, 5200)
	for _, fill := range []string{"random", "ones"} {
		for i := range src {
			src[i] = 0xff
			if fill == "random" {
				src[i] = byte(r.Uint32())
			}
		}
		for _, k := range kernels() {
			for n := 1; n <= len(src); n += 1 + n/300 {
				checkKernel(t, k, src[:n], dst, n%97)
			}
		}
	}
}

func TestSumsLongerThanOneCallOfAKernel(t *testing.T) {
	src, dst := make([]byte, 1<<20+77), make([]byte, 1<<20+77)
	for _, n := range []int{1<<17 - 1, 1 << 17, 1<<17 + 1, 1<<18 + 63, 1<<20 + 77} {
		for i := range src {
			src[i] = 0xff
		}
		if n%2 == 1 {
			src[n-1] = 7
		}
		want := wordByWord(src[:n])
		if got := Sum(src[:n], 0); got != want {
			t.Errorf("Sum of %d bytes is %#x, want %#x", n, got, want)
		}
		if got := Copy(dst, src[:n], 0); got != want || !bytes.Equal(dst[:n], src[:n]) {
			t.Errorf("Copy of %d bytes is %#x, want %#x", n, got, want)
		}
	}
}

func TestJoinedPiecesSumLikeTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	b := make([]byte, 700)
	for range 20000 {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		n := r.IntN(len(b))
		sum, at := uint32(0), 0
		for at < n {
			end := at + 1 + r.IntN(n-at)
			sum = Join(sum, Sum(b[at:end], 0), at%2 == 1)
			at = end
		}
		if want := wordByWord(b[:n]); sum != want {
			t.Fatalf("joined sum of %d bytes is %#x, want %#x", n, sum, want)
		}
	}
}

func TestCopyToShorterPanicsAndCopiesNothing(t *testing.T) {
	dst, src := make([]byte, 200), bytes.Repeat([]byte{1}, 201)
	defer func() {
		if recover() == nil || !bytes.Equal(dst, make([]byte, 200)) {
			t.Error("a copy into a shorter slice went ahead")
		}
	}()
	Copy(dst, src, 0)
}

func TestChosenKernelIsOneThatRuns(t *testing.T) {
	t.Log("kernel:", Kernel())
	if !has(kernel) {
		t.Errorf("%v was chosen, and the processor does not run it", kernel)
	}
	if kernel != generic && (leastSum < 1 || leastCopy < 1) {
		t.Error("an empty slice would reach a kernel")
	}
}

func TestNothingAllocates(t *testing.T) {
	b, d := make([]byte, 1500), make([]byte, 1500)
	if n := testing.AllocsPerRun(100, func() { sinkSum += Sum(b, 0) + Copy(d, b, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var sinkSum uint32

func FuzzKernels(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint32(3), uint8(1))
	f.Add(bytes.Repeat([]byte{0xff}, 700), uint32(0xffffffff), uint8(63))
	f.Fuzz(func(t *testing.T, b []byte, init uint32, off uint8) {
		want := uint32(Fold64(uint64(wordByWord(b)) + uint64(init)))
		at := int(off)
		src := append(make([]byte, at), b...)[at:]
		whole := make([]byte, len(b)+300)
		for _, k := range kernels() {
			checkKernel(t, k, src, whole, (at*7)%256)
		}
		if got := Sum(src, init); got != want {
			t.Fatalf("Sum is %#x, want %#x", got, want)
		}
		if got := Copy(whole[at:], src, init); got != want || !bytes.Equal(whole[at:at+len(src)], src) {
			t.Fatalf("Copy is %#x, want %#x", got, want)
		}
	})
}

// BenchmarkKernel shows each kernel, and memory copied alone beside it.
func BenchmarkKernel(b *testing.B) {
	src, dst := make([]byte, 65536), make([]byte, 65536)
	for _, n := range []int{64, 96, 128, 160, 256, 1448, 1500, 65536} {
		for _, k := range kernels() {
			b.Run(fmt.Sprintf("sum/%v/size=%d", k, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					sinkSum += sumWith(k, src[:n])
				}
			})
			b.Run(fmt.Sprintf("copy/%v/size=%d", k, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					sinkSum += copyWith(k, dst[:n], src[:n])
				}
			})
		}
		b.Run(fmt.Sprintf("memcpy/size=%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(dst[:n], src[:n])
			}
		})
	}
}
