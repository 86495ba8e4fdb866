// Package csum computes the Internet checksum (RFC 1071).
//
//	            bytes                     sums                       checksum field
//	Sum(b, init) ──────────► 16-bit one's complement sum ──Finish──► complement
//	Copy(dst, b, init) ────► the same, and the bytes are copied on the way
//	Train.Write: whole frames, header and payload, with checksums and what counts up
//	Pseudo4, Pseudo6 ──────► init                        ──FinishUDP► 0 becomes 0xffff
//
// Sums are those of big-endian words whatever the machine. A sum is never 0
// unless every byte summed was 0, so that equal data gives equal checksums on
// every way through this package.
//
// Long buffers go through a kernel for the processor at hand: AVX-512, AVX2 or Go
// (see Kernel). The assembly is written by the program in _asm, a module of its
// own so that its generator is nobody else's dependency; go generate runs it. The
// tag purego leaves it out, and race builds do not use it, because the detector
// would not see what it touches.
package csum
