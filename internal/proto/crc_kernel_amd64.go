//go:build !purego

package proto

import (
	"hash/crc32"

	"github.com/klauspost/cpuid/v2"
)

//go:generate go -C _asm run . -out ../crc_amd64.s -stubs ../crc_amd64.go -pkg proto

// kernel: the processor runs the kernel in assembly. The race detector sees what Go code touches, and nothing of that.
var kernel = !raceBuild && hasKernel()

// leastKernel: the kernel takes as long for a few bytes as the tables for so many.
const leastKernel = 24

// rowKernel: it runs those of rows, too.
var rowKernel = kernel && hasRowKernel()

func hasRowKernel() bool {
	return hasKernel() && cpuid.CPU.Supports(cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)
}

func hasKernel() bool {
	return cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX2, cpuid.BMI2, cpuid.CLMUL, cpuid.VPCLMULQDQ)
}

// update is crc32.Update for the polynomial of Ethernet.
func update(crc uint32, b []byte) uint32 {
	if !kernel || len(b)&3 != 0 || len(b) == 0 {
		return crc32.Update(crc, crc32.IEEETable, b)
	}
	return ^crcAVX512(^crc, &b[0], len(b))
}
