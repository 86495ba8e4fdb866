// Package tso cuts a TCP or UDP packet that is longer than the link takes into
// segments, byte for byte as Linux's software segmentation does.
//
//	header, payload size, MSS ──Plan.Make──► Plan: what makes them one packet each is proven
//	Plan ──Segmenter──► for each segment: its payload's range, and its header, written when
//	                    the sum of that payload is known
//
// It is pure: headers come in, headers and ranges go out. It knows no queue, copies
// no payload unless asked to (Segmenter.Write), and allocates nothing but errors.
//
// Per segment (RFC 9293, RFC 8200; Linux, net/ipv4/tcp_offload.c and udp_offload.c):
//
//	IPv4  total length; identification + n; header checksum
//	IPv6  payload length
//	TCP   sequence + offset; FIN and PSH on the last only, CWR on the first only; checksum
//	UDP   length; checksum, 0 sent as 0xffff
//
// What is not proven is refused with a *Refusal: fragments, packets whose checksum
// cannot be known (routing headers, IPsec), SYN, RST and URG in more than one
// segment, headers with bytes behind them.
package tso
