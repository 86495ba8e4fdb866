// Package device opens devices by name. It is the only place that knows all providers and wires.
//
//	loop:NAME?speed=10gbps&delay=5us     one end of an in-process switch
//	packet:eth0?netns=blue               a Linux interface
//	xdp:eth0?queue=0                     the same, past the kernel's stack
//	udp:192.0.2.1                        RoCE v2 datagrams over a UDP socket
//	pcap:run.pcap                        a file, written; ?mode=read replays it
//	  │     │        │
//	scheme  name     parameters: the scheme's own, and profile, mode, inline for all
package device
