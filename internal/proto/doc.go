// Package proto finds its way in frames: where the headers of an Ethernet
// frame stand, how long its payload is, the tag that pktgen puts there, and the
// headers and ICRC of RoCE v2 datagrams.
//
//	0        L2Len=L3Off      L4Off       PayloadOff          PayloadEnd   len(frame)
//	| MACs, VLAN | IPv4/IPv6, ext | UDP/TCP | payload ... | tag 16 | padding |
//
// The payload ends where the IP length says, so Ethernet padding and pushed
// VLAN tags do not matter. Nothing here allocates, and no input panics.
//
// # The tag
//
// The last 16 bytes of the L4 payload, big-endian:
//
//	0          4         7            12         16
//	| check 32 | flow 24 | sequence 40 | time 32 |
//
// The check covers the other 12 bytes. With A the 64 bits of flow and sequence,
// T the time widened to 64 bits and K0, K1 the key, the first two numbers of
// SplitMix64 started at the run id,
//
//	hi:lo = (A ^ K0) * (T ^ K1), 64 x 64 to 128 bits
//	x     = hi ^ lo
//	check = high half of x ^ low half of x
//
// No address goes in, so NAT does not break it.
package proto
