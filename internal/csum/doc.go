// Package csum computes and updates the Internet checksum (RFC 1071, RFC 1624).
//
//	            bytes                     sums                       checksum field
//	Sum(b, init) ──────────► 16-bit one's complement sum ──Finish──► complement
//	Pseudo4, Pseudo6 ──────► init                        ──FinishUDP► 0 becomes 0xffff
//
//	field changed from old to new:  Update16, Update32 change the checksum alone
//
// Sums are those of big-endian words whatever the machine. A sum is never 0
// unless every byte summed was 0, so that equal data gives equal checksums on
// every way through this package.
package csum
