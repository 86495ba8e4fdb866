//go:build !purego

package csum

import (
	"math/bits"

	"github.com/klauspost/cpuid/v2"
)

//go:generate go -C _asm run . -out ../sum_amd64.s -stubs ../sum_amd64.go -pkg csum

// kernel is what this processor runs best of what it can.
var kernel = best()

// Below these lengths the call of a kernel and its fold cost more than the words (BenchmarkKernel).
const (
	leastSum   = 160
	leastCopy  = 96
	leastTrain = 64 // the kernel's own
	// chunk is what one call of a kernel may sum at most; it is even.
	chunk = 1 << 17
)

func best() kind {
	switch {
	case raceBuild: // the race detector sees what Go code touches, and nothing of assembly
		return generic
	case has(avx512):
		return avx512
	case has(avx2):
		return avx2
	}
	return generic
}

// has reports whether processor and operating system run the kernel.
func has(k kind) bool {
	switch k {
	case avx512:
		return cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512VNNI, cpuid.BMI2)
	case avx2:
		return cpuid.CPU.Supports(cpuid.AVX2)
	}
	return true
}

// sumKernel sums at least one byte with the chosen kernel.
func sumKernel(b []byte) uint64 {
	if len(b) <= chunk {
		return runSum(kernel, b)
	}
	return around(runSum(kernel, b[:chunk]), sumKernel(b[chunk:]))
}

// copyKernel copies and sums at least one byte with the chosen kernel.
func copyKernel(dst, src []byte) uint64 {
	if len(src) <= chunk {
		return runCopy(kernel, dst, src)
	}
	return around(runCopy(kernel, dst[:chunk], src[:chunk]), copyKernel(dst[chunk:], src[chunk:]))
}

// around adds with the carry going round.
func around(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	return sum + carry
}

// runSum calls one kernel in assembly on 1 to chunk bytes.
func runSum(k kind, b []byte) uint64 {
	if k == avx512 {
		return sumAVX512(&b[0], len(b))
	}
	return sumAVX2(&b[0], len(b))
}

func runCopy(k kind, dst, src []byte) uint64 {
	if k == avx512 {
		return copyAVX512(&dst[0], &src[0], len(src))
	}
	return copyAVX2(&dst[0], &src[0], len(src))
}
