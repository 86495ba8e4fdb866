// Package softnic is a network card in Go: it executes mlx5 queues over a wire.
//
//	SQ records ─▶ decode ─▶ validate ─▶ look keys up ─▶ wire.Reserve ─▶ copy ─▶ wire.Commit
//	                                                                              │
//	CQs  ◀─ publish, once per Step and CQ ◀──────────────── send CQEs ◀───────────┘
//	     ◀─────────────────────────────── receive CQEs ◀─ scatter ◀─ receive WQE ◀─ steer ◀─ wire.Next
//
// One goroutine at a time runs Step, a state machine without clocks or chance of its own: the owner of the
// queues in inline mode, from its doorbells and polls, or the NIC's own goroutine.
//
// The model is not laxer than hardware. A WQE is validated whole (ring/validate.go), then its keys, bounds,
// rights and protection domain are checked, and only then does anything happen. Frames are copied exactly
// once on the way into the wire and once out of it: the copies are the DMA. A wire that lends memory takes
// frames that lie there without a copy (lend.go). A queue pair with a rate is kept to it (rate.go).
//
// Every frame is accounted for. Of a NIC that took all that its wire had:
//
//	frames from the wire + TxLooped + RxCopies = RxFrames + RxCNPs + the Drop counters
//	send WQEs executed = TxFrames + datagrams to own addresses + TxTooLong + TxErrors + TxFlushed
//
// A segmented WQE counts a frame for each segment.
//
// # Datagrams
//
// UD queue pairs speak RoCE v2 (roce.go, ud_tx.go, ud_rx.go, mcast.go). A received packet is judged in the order of
// kernel rxe: lengths, ICRC, version, queue pair, its type and state, P_Key, Q_Key, destination address; each reason
// has a counter. While there is a UD queue pair, RoCE v2 frames to the NIC's MAC or a group's are its business and
// meet no flow rule; all others, and all frames of a NIC without UD queue pairs, are raw. A Tap on the wire sees both.
// A datagram to an own address never reaches the wire; one to a group does, and its members here get their copies
// beside. On a lossless wire a datagram without receive WQE waits as any frame does, but for one that is looped back,
// which is dropped.
//
// # Offloads
//
// A WQE's checksum flags make the IPv4, TCP and UDP checksums of its frame, within VXLAN and GENEVE too (offload.go).
// A TSO WQE becomes a frame per segment, a burst at a time, and goes on where it stopped when the wire was full
// (segment.go). Received checksums are checked for queue pairs that ask (engine.QPConfig.RxCsum).
package softnic
