package engine

import (
	"context"
	"sync/atomic"

	"github.com/bluering/bluering/ring"
)

// Backend is all that a provider of devices writes. The engine has checked the
// arguments against Caps before they get here. Control calls may come from any
// goroutine; Ring, Progress and Wait come from the owner of the queues.
type Backend interface {
	// Caps tells what the device is and can do. It does not change.
	Caps() Caps

	// AllocMemory gives packet memory that Register accepts. The caller closes it.
	AllocMemory(bytes int) (*ring.Region, error)
	// Register makes memory known to the device and gives its key and the
	// address that WQEs must use for its first byte. The low 8 bits of a key
	// count the uses of its table entry. A key is never 0.
	Register(pd uint32, mem []byte, a Access) (lkey uint32, addr uint64, err error)
	Deregister(lkey uint32) error

	// NewCQ makes a completion queue of a power-of-two number of entries.
	NewCQ(entries int) (CQMem, error)
	DestroyCQ(cqn uint32) error
	// NewQP makes a queue pair in RESET.
	NewQP(QPSpec) (QPMem, error)
	// DestroyQP ends a queue pair in any state; its flow rules go with it.
	// After it no CQE of it is written any more.
	DestroyQP(qpn uint32) error
	// SetState moves a queue pair. The engine has checked the transition. On
	// return all CQEs due to the old state are visible, and after ERR all
	// flushes of what was published before.
	SetState(qpn uint32, s QPState, attr QPAttr) error

	// NewSRQ makes a shared receive queue; queue pairs made with its number take
	// their receive requests from it, in the order of posting, under its domain.
	NewSRQ(SRQSpec) (SRQMem, error)
	DestroySRQ(srqn uint32) error
	// LimitSRQ arms the event EventSRQLimitReached; 0 disarms it.
	LimitSRQ(srqn uint32, limit int) error

	// Notify sets what gets the device's events. It is called once, before any
	// queue is made. The function is called by whoever runs the device, after the
	// completions that led to the event are visible; it must not call back.
	Notify(f func(DeviceEvent))
	// ArmCQ is the completion doorbell: dbWord is the arm word, which stands in
	// the queue's record too, and the queue's number, as a native word.
	ArmCQ(cqn uint32, dbWord uint64)

	// Attach gives a queue pair the frames that match.
	Attach(qpn uint32, r FlowRule) (id uint64, err error)
	Detach(id uint64) error

	// GIDs gives the device's own addresses, at most 255, which do not change.
	GIDs() []GIDEntry
	// Resolve makes the address of a destination, whose own address is in the
	// table and of its family. It may wait for the next hop's MAC until ctx ends.
	Resolve(ctx context.Context, d Dest) (AHAttr, error)
	// AttachMulticast makes a UD queue pair a member of a group; DetachMulticast
	// ends it. The engine keeps out second attaches and what was not attached.
	AttachMulticast(qpn uint32, g GID) error
	DetachMulticast(qpn uint32, g GID) error

	// Ring is the send doorbell; dbWord is the first 8 bytes of the last WQE.
	Ring(qpn uint32, dbWord uint64)
	// Progress runs the device for about budget packets and tells how much it
	// did; 0 when there was nothing, or the device runs by itself.
	Progress(budget int) int
	// Wait parks until something may have come, or timeoutNS have passed; below
	// 0 means any time. It may return early.
	Wait(timeoutNS int64) error
	// Wake ends a Wait in progress, or the next one. Any goroutine may call it.
	Wake()
	// WaitFD gives a descriptor, armed, that becomes readable, or with out set
	// writable, when Progress may find something to do, and the time after which
	// it may in any case. It is called after a fruitless Progress and before each
	// wait. -1: there is no such descriptor, or no such time.
	WaitFD() (fd int, out bool, afterNS int64)

	// Counters adds the device's counts to those in c.
	Counters(c *Counters)
	// Err gives what made the device useless, nil while it is healthy.
	Err() error
	// Close ends the device. The memory of its rings is gone. Twice is harmless.
	Close() error
}

// CQMem is a completion queue as a backend gives it.
type CQMem struct {
	CQN  uint32
	CQEs []ring.CQE
	Rec  ring.Record
	// Overrun, if the backend can tell, becomes non-zero when a completion found
	// no room; the queue is unusable from then on (H-11).
	Overrun *atomic.Uint32
}

// QPSpec is a queue pair as the engine orders it.
type QPSpec struct {
	Type             QPType
	PD               uint32
	SendCQN, RecvCQN uint32
	SRQN             uint32 // 0: the queue pair has a receive queue of its own
	UserIndex        uint32 // 24 bits; must stand in each CQE of this queue pair
	SQSlots          int    // a power of two
	RQEntries        int    // a power of two; 0 with an SRQ
	RQStride         int    // bytes, a power of two
	MaxTSOHeader     int    // 0: no segmentation
	RxCsum           bool   // raw packets' checksums are checked, and the CQE tells
	SigAll           bool   // every WQE asks for its completion; the engine sets the bit
	BlockSelfLB      bool   // UD: no copy of its own multicast
}

// QPMem is a queue pair as a backend gives it.
type QPMem struct {
	QPN   uint32
	SQ    []ring.Block
	SQRec ring.Record
	RQ    []byte
	RQRec ring.Record
	// State, if the backend can tell, holds the device's own QPState, which an
	// error may have moved. Without it the engine derives that from completions.
	State *atomic.Uint32
}

// SRQSpec is a shared receive queue as the engine orders it.
type SRQSpec struct {
	PD      uint32
	Entries int // a power of two, one more than can be posted
	Stride  int // bytes, a power of two
}

// SRQMem is a shared receive queue as a backend gives it. A receive completion
// of a queue pair on it carries the entry's index as its counter.
type SRQMem struct {
	SRQN uint32
	Mem  []byte
	Rec  ring.Record
	// Limit holds the limit as armed, 0 when it is not.
	Limit *atomic.Uint32
}

// DeviceEvent is an event as a backend tells it: of which queue, by number.
type DeviceEvent struct {
	Type   EventType
	Number uint32 // of a CQ, queue pair or SRQ, as the type has it
}

// QPAttr holds the attributes of a queue pair that Modify can set. Which of
// them count is said by an AttrMask.
type QPAttr struct {
	CurState  QPState
	SQDNotify bool
	Port      uint8
	PKeyIndex uint16
	QKey      uint32
	SQPSN     uint32
	Rate      RateLimit
}
