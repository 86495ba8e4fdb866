package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
)

// Frame lengths. None of them counts the FCS, which software never sees.
const (
	MinFrame     = 60 // shorter frames are padded with zeros by wires that have a real medium
	headerBytes  = 14
	vlanTagBytes = 4
	maxFrameLen  = 65535 // of any wire: a length fits 16 bits
)

// Info describes one end of a wire. It does not change while the wire is open.
type Info struct {
	Name     string // as in the device string: "loop:", "packet:eth0"
	Kind     string // loop, packet, xdp, udp, pcap
	MAC      [6]byte
	Addr4    netip.Addr // zero Addr: none
	Addr6    netip.Addr
	MTU      int    // of layer 3
	MaxFrame int    // MTU + 14, and 4 more for one VLAN tag: a frame this long must be tagged
	MinFrame int    // shorter frames are padded to this; 0: they are not
	SpeedBPS uint64 // 0: unknown
	Loop     bool   // frames never leave this process
	IfIndex  int    // 0: no interface
	NetNS    string // as given; empty: the process's own
	PeerMAC  [6]byte
	HasPeer  bool // PeerMAC is known: the other end is fixed
	UDPOnly  bool // only RoCE v2 frames pass, to UDP port 4791
	// SrcPort is the UDP source port that frames must carry, because the medium makes the header anew and the
	// ICRC covers it; 0: any.
	SrcPort uint16
}

// Frame flags.
const (
	// FlagCsumNotReady: the sender left the L4 checksum to hardware that never ran (a frame of this host
	// seen on a veth or loopback). The checksum field holds the pseudo header's sum at best.
	FlagCsumNotReady uint32 = 1 << iota
	// FlagVLANRestored: the kernel had stripped the VLAN tag; the wire put it back in its place.
	FlagVLANRestored
	// FlagTruncated: the wire's memory was too small for the frame. Data is its beginning.
	FlagTruncated
	// FlagIDUnknown: the medium hides the IPv4 identification; the one in the frame is a guess.
	FlagIDUnknown
)

// Frame is one received frame. Data is the wire's memory: it may be read until Release. Who changes it, to compute
// a checksum in place, puts it back before.
type Frame struct {
	Data   []byte
	TimeNS int64 // arrival in the clock's time; 0: unknown, it is "now"
	Flags  uint32
}

// Stats counts one end of a wire since it was opened. All numbers but RxInFlight only grow.
type Stats struct {
	TxFrames uint64 // taken by the medium, also when that lost them (NoPeer, TxQueueDrops)
	TxBytes  uint64
	RxFrames uint64 // released by the owner
	RxBytes  uint64

	TxRetries uint64 // pushes that the medium refused for lack of room, to be tried again
	TxErrors  uint64 // frames refused for good: too long, or sent on a wire that is down
	// TxUnreachable is how many datagrams another host answered with an ICMP error: nobody listens there, no way.
	TxUnreachable uint64
	TxPadded      uint64 // frames lengthened to MinFrame
	TxPassed      uint64 // of TxFrames and those pending, sent from memory that the wire lends, without a copy

	// RxInFlight is how many different frames are inside a loop now, on their way to this end, delayed or not released.
	RxInFlight uint64

	RxRingDrops uint64 // frames that the kernel dropped because the receive ring, or the socket's buffer, was full
	RxTruncated uint64 // released frames that were longer than the wire had room for

	NoPeer       uint64 // frames to a port that was not open
	TxQueueDrops uint64 // frames beyond the queue's limit

	ImpairLost       uint64 // what Impair did to the frames received here
	ImpairDuplicated uint64
	ImpairReordered  uint64 // held back and overtaken
	ImpairCorrupted  uint64
}

// Wire is one end of a medium for frames. One goroutine owns it: all methods belong to that goroutine, but Info
// and Err, which any may call. The two ends of a loop may have two owners.
type Wire interface {
	Info() Info

	// Reserve asks for room for frames of these lengths, in order, and returns how many there is room for
	// now; 0: full. bufs[i] then has exactly lens[i] bytes, whose content is undefined. Its Commit comes before
	// any other call of the sending side, Flush included; a Reserve without Commit is forgotten. A frame longer
	// than MaxFrame, or without a whole Ethernet header, gets no room; the next Flush returns ErrTooLong or ErrTooShort.
	Reserve(lens []int32, bufs [][]byte) int
	// Commit declares the first n buffers of the last Reserve complete. They may not be touched again.
	Commit(n int)
	// Flush pushes committed frames to the medium. nil also when some stay queued for lack of room there.
	// What is lost for good is an error, once: the wire goes on, unless Err is set too.
	Flush() error
	// Pending is how many committed frames the medium has not taken yet.
	Pending() int

	// Next returns received frames in order, starting again with those not released. They stay valid until
	// they are released.
	Next(frames []Frame) int
	// Release gives back the first n frames of the last Next.
	Release(n int)

	// FD returns a descriptor that becomes readable when frames arrive or when room for a refused Reserve
	// does, and arms it: call it right before each wait, after a last look, and do not keep it armed. -1: there is none.
	// With frames Pending it is also to be watched for writability.
	FD() int
	// Stats fills s.
	Stats(s *Stats)
	// Err returns what made the wire useless: interface down or vanished, found by Flush or by a Next that found
	// nothing. It stays. nil while healthy.
	Err() error
	// Close frees everything. Frames not flushed are lost, buffers and frames handed out are gone. Closing twice
	// is harmless.
	Close() error
}

// Super is a wire that takes TCP and UDP packets longer than a frame, which are cut behind it: by the kernel, by a card,
// or by whoever receives them. It counts the frames that they are cut into.
type Super interface {
	Wire
	// MaxSuper is the longest packet of this kind, headers included; 0: it takes none.
	MaxSuper() int
	// ReserveSuper asks for room for one packet: header bytes of Ethernet, IP and TCP or UDP headers and a payload to be
	// cut at each mss bytes. nil: no room now, or not such a packet; one that fits a frame is not. Lengths and checksums
	// in the headers are of no account. The caller has proven it segmentable (package tso). Commit(1) completes it, in
	// order with all else.
	ReserveSuper(length, header, mss int) []byte
	// SendSuper sends such a packet at once, behind all that was committed, and reads its payload, which lies in pieces,
	// where it is. false: it was not sent, for want of room or whatever, and is left to ReserveSuper.
	SendSuper(header []byte, pieces [][]byte, mss int) bool
}

// Lender is a wire that sends frames from where they are, when that is in memory that it lends. All else is copied.
type Lender interface {
	Wire
	// Lend gives zeroed memory of the wire's, from the beginning of a page on; nil when there is not so much. It is
	// gone when the wire is closed.
	Lend(bytes int) []byte
	// TakeBack ends a loan, of the memory that Lend gave. No frame of it may be on its way.
	TakeBack(mem []byte)
	// Lent finds memory in what the wire lends; false: it is not in it, or not all of it.
	Lent(mem []byte) (at uint64, ok bool)
	// Pass commits frames in order, as Commit does: frame i is lens[i] bytes of lent memory from ats[i] on. It takes those
	// before the first for which there is no room, or that has to be copied, and returns how many. Their bytes may not
	// be changed until they have come back.
	Pass(ats []uint64, lens []int32) int
	// Returned is how many of the frames that were passed have come back, counted in order: none before them is under
	// way. A wire that is useless has given all of them back.
	Returned() uint64
}

// Errors a caller may want to test for. They come wrapped with names and values.
var (
	ErrClosed     = errors.New("wire: closed")
	ErrTooLong    = errors.New("wire: frame too long")
	ErrTooShort   = errors.New("wire: frame without an Ethernet header")
	ErrDown       = errors.New("wire: interface is down")
	ErrNoCarrier  = errors.New("wire: interface has no carrier")
	ErrVanished   = errors.New("wire: interface vanished")
	ErrNoDevice   = errors.New("wire: no such interface")
	ErrParam      = errors.New("wire: bad parameter")
	ErrNoParam    = fmt.Errorf("%w", ErrParam) // an ErrParam: a name that the scheme does not know
	ErrPortsTaken = errors.New("wire: both ports are open")
	ErrPorts      = errors.New("wire: more source ports than ?ports= allows")
	ErrNotRoCE    = errors.New("wire: only RoCE v2 datagrams pass")
	ErrReadOnly   = errors.New("wire: recording is open for reading")
	ErrXDPInUse   = errors.New("wire: another XDP program is on the interface")
	ErrPlatform   = errors.New("wire: not on this platform")
)

// lasting is an error that stays, once set. Its owner sets it, any goroutine reads it.
type lasting struct{ p atomic.Pointer[error] }

func (l *lasting) get() error {
	if p := l.p.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *lasting) set(err error) { l.p.CompareAndSwap(nil, &err) }

// lengthError returns the error of a frame that Reserve refused because of its length, nil if it is fit.
func lengthError(name string, length int32, longest int) error {
	switch {
	case int(length) > longest:
		return fmt.Errorf("%w: %s: %d bytes, at most %d", ErrTooLong, name, length, longest)
	case length < headerBytes:
		return fmt.Errorf("%w: %s: %d bytes", ErrTooShort, name, length)
	}
	return nil
}

// Spans is what a wire offers beside Wire when the frames of each direction stand in one piece of memory: bursts then
// need no slice for each frame. Frames begin at multiples of SpanBytes.
type Spans interface {
	// Window gives the memory for the next frames, the first of which has that length; nil: there is no room for
	// it. Its content is undefined. It is valid until Place, Reserve or the next Window.
	Window(length int32) []byte
	// Place commits frames, as Commit does, that were written into the window: the first at its beginning, each
	// other at the first multiple of SpanBytes behind the one before it. bytes is the sum of lens.
	Place(lens []int32, bytes uint64)
	// Arrived is Next for frames that carry no time and no flags, and gives them in the wire's memory; none: ask
	// Next. Release gives back the first n of them. It may give fewer than there are.
	Arrived(most int) (mem []byte, frames []Span)
}

// SpanBytes is the distance that the beginnings of frames in a wire's memory are multiples of.
const SpanBytes = unitBytes
