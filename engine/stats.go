package engine

import "fmt"

// DropReason says why a received packet came to no completion.
type DropReason uint8

// The reasons.
const (
	DropNoRule     DropReason = iota // no flow rule wants it
	DropNoWQE                        // no receive WQE was there
	DropOversize                     // longer than its receive WQE, which is kept
	DropState                        // the queue pair takes no packets in its state
	DropProtection                   // the receive memory may not be written
	DropRunt                         // shorter than an Ethernet header
	DropMalformed                    // headers that contradict each other
	DropChecksum                     // wrong checksum or ICRC
	DropUnknownQP                    // a datagram for no queue pair
	DropQKey                         // a datagram with a wrong Q_Key
	DropPKey                         // a datagram with a wrong P_Key
	DropWire                         // lost in the wire's receive ring
	DropNoPeer                       // sent to a port that nobody has opened
	DropTruncated                    // longer than the wire's memory for a frame, which has its beginning only
	DropVersion                      // a datagram whose transport header has another version
	DropQPType                       // a packet of another transport than its queue pair's
	DropAddress                      // a datagram for an address that is not the device's
	DropNoGroup                      // a datagram for a multicast group without member
	NumDropReasons
)

var dropNames = [NumDropReasons]string{
	"no_rule", "no_wqe", "oversize", "state", "protection", "runt", "malformed",
	"checksum", "unknown_qp", "qkey", "pkey", "wire", "no_peer", "truncated",
	"version", "qp_type", "address", "no_group",
}

// String gives the name used in reports.
func (r DropReason) String() string {
	if r < NumDropReasons {
		return dropNames[r]
	}
	return fmt.Sprintf("drop reason %d", uint8(r))
}

// Counters is what a device has done since it was opened.
type Counters struct {
	TxFrames, TxBytes uint64 // handed to the wire
	RxFrames, RxBytes uint64 // delivered into receive WQEs
	RxCopies          uint64 // deliveries beyond the first of a frame that several queue pairs get
	TxPassed          uint64 // of TxFrames, sent from where they were in memory that the wire lends: all others were copied
	TxErrors          uint64 // send WQEs that failed
	TxFlushed         uint64
	RxFlushed         uint64
	TxWireFull        uint64 // times a burst found less room in the wire than it wanted
	TxWireErrors      uint64 // times the medium refused frames
	TxLost            uint64 // frames handed to the wire that the medium refused for good, or has not taken yet
	TxLostBytes       uint64
	TxNotBuilt        uint64 // send WQEs that asked for what the device does not do
	CQOverruns        uint64 // completion queues that failed for want of room
	LostCQEs          uint64 // completions that no queue could take
	StrayCQEs         uint64 // completions that named a NOP or nothing, dropped by the engine
	TxLooped          uint64 // datagrams that the device gave to its own receive side: to an own address, or copies of those to a group
	TxTooLong         uint64 // datagrams longer than the MTU that succeeded without being sent, as profile rxe has it
	RxCNPs            uint64 // congestion notifications, which are ignored: neither delivered nor dropped
	WeakICRCs         uint64 // datagrams taken though the IPv4 identification, which their ICRC covers, is unknown
	LostEvents        uint64 // asynchronous events that nobody asked for, dropped by the engine
	RxInFlight        uint64 // frames that are on their way now, inside the wire: no counter, it goes down again
	DroppedBytes      uint64
	Drops             [NumDropReasons]uint64 // received packets that came to no completion
}

// Drop gives the packets dropped for one reason.
func (c *Counters) Drop(r DropReason) uint64 {
	if r >= NumDropReasons {
		return 0
	}
	return c.Drops[r]
}

// Dropped gives the sum over all reasons.
func (c *Counters) Dropped() (n uint64) {
	for _, d := range c.Drops {
		n += d
	}
	return n
}
