// Package frametest builds expected frames with gopacket, a judge that shares
// no code with this module. Tests only.
//
//	Spec ──gopacket──► bytes with right lengths and checksums
package frametest
