// Package wire carries Ethernet frames for the software NIC.
//
//	          Reserve, Commit, Flush                    Next, Release
//	NIC ──► frames in the wire's memory ──► medium ──► frames in the wire's memory ──► NIC
//
//	loop    two ports of an in-process switch       OpenLoop
//	packet  an interface of the Linux kernel        OpenPacket
//	xdp     the same, past the kernel's stack       OpenXDP
//	udp     RoCE v2 datagrams, by UDP sockets        OpenUDP
//	pcap    a file, written or read                 OpenPCAP
//	Tap     any of them, recorded                   NewTap
//	Impair  any of them, made worse                 NewImpair
//
// A wire sees frames only, without their FCS: it knows neither queues nor keys. Everything it takes and
// gives is in bursts, and nothing on that way allocates.
package wire
