// Package ud sends and receives RDMA UD datagrams in batches, without a copy
// and without an allocation, over any device of package engine: an in-process
// loop, a network interface, an ordinary UDP socket.
//
//	            Reserve ─ fill ─ Commit             Poll ─ read ─ Release
//	Endpoint ──────────┐                          ┌──────────── Endpoint
//	           Peer ───┴─▶ engine.QP ─▶ wire ─▶ engine.QP ──▶ Msg ── Reply
//
// An Endpoint is one queue pair with its memory and has one owner goroutine. An
// Addr names an endpoint anywhere and is comparable. A Peer is a handle of four
// bytes on an Addr whose next hop was found once. Reply answers a datagram out
// of the memory that it came in.
//
// Datagrams are what UD promises: whole or not at all, unordered between
// queues, lost when the receiver has no buffer for them. There is no
// reliability and no congestion control here. PacketConn makes a net.PacketConn
// of an endpoint, for programs that want no more than that.
package ud
