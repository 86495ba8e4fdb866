package wire

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/bluering/bluering/internal/clock"
)

const (
	loopCapacity = 256 << 10 // per direction: both, and what the ends touch beside them, fit an L2 cache
	loopMTU      = 9000
	// maxQueueBytes bounds the memory of a loop with a queue limit; beyond it the sender waits.
	maxQueueBytes = 64 << 20
	// mediumBytes is what a frame takes on a link beside its bytes: preamble 8, FCS 4, gap 12.
	mediumBytes = 24
)

// loops holds the process's in-process switches.
var loops = struct {
	sync.Mutex
	byName map[string]*loopSwitch
}{byName: make(map[string]*loopSwitch)}

// loopSwitch joins two ports. It exists while one of them is open; its descriptors live as long, so that an
// end never wakes a descriptor that is somebody else's by now.
type loopSwitch struct {
	opts  LoopOptions
	clk   clock.Clock
	from  [2]*pipe // from[i] carries what port i sends
	ports [2]loopPort
}

// What the owner of a port may wait for.
const (
	forFrames = 1 << iota
	forRoom
)

// loopPort is what both ends know of a port. Its fields are written under loops' lock, but for armed and
// undelivered.
type loopPort struct {
	open  atomic.Bool
	alarm alarm
	// armed says what the owner waits for. It is set before the wait, and cleared by whoever wakes it. The owner
	// looks at the pipes once more after setting it, the peer reads it after publishing: one of them sees the other.
	armed       atomic.Uint32
	undelivered atomic.Uint64 // frames that were on their way to the port when it was closed
	_           [64]byte
}

// loopEnd is a port's owner's half.
type loopEnd struct {
	sw   *loopSwitch
	port int
	me   *loopPort
	peer *loopPort
	info Info
	tx   pipeTx
	rx   pipeRx

	link    link
	left    uint64 // with a queue and a speed: the first frame that may not have left yet
	short   bool   // the last Reserve found too little room
	waiting bool   // FD was called since the last look
	timed   bool   // frames carry their time
	paced   bool   // ... and may lie in the future
	refused error  // by Reserve, for the next Flush
	stats   Stats
	closed  atomic.Bool
	_       [128]byte // the two ends have an owner each
}

// OpenLoop opens the lower free port of the process's switch of that name; the first open makes it. A later
// open names no options or equal ones. The impairments of o.Impair apply to what each end receives.
func OpenLoop(o LoopOptions) (Wire, error) {
	loops.Lock()
	defer loops.Unlock()
	sw, err := findLoop(o)
	if err != nil {
		return nil, err
	}
	port := 0
	if sw.ports[0].open.Load() {
		port = 1
	}
	if sw.ports[port].open.Load() {
		return nil, fmt.Errorf("%w: loop:%s", ErrPortsTaken, o.Name)
	}
	e := &loopEnd{sw: sw, port: port, me: &sw.ports[port], peer: &sw.ports[1-port], info: sw.info(port)}
	e.tx = sw.from[port].producer(e.info.MaxFrame)
	gone := 0
	e.rx, gone = sw.from[1-port].consumer()
	e.me.undelivered.Add(uint64(gone))
	e.stats.NoPeer = -e.peer.undelivered.Load() // of an earlier owner of this port
	e.link.bps = sw.opts.SpeedBPS
	e.paced = sw.opts.SpeedBPS != 0
	e.timed = e.paced || sw.opts.Impair.Any()
	e.me.open.Store(true)
	if !sw.opts.Impair.Any() {
		return e, nil
	}
	w, err := NewImpair(e, sw.opts.Impair.forPort(port), sw.clk)
	if err != nil {
		e.closeLocked()
		return nil, err
	}
	return w, nil
}

// findLoop returns the switch, made if need be.
func findLoop(o LoopOptions) (*loopSwitch, error) {
	clk := o.Clock
	o.Clock = nil
	if sw := loops.byName[o.Name]; sw != nil {
		if o != sw.opts && o != (LoopOptions{Name: o.Name}) {
			return nil, fmt.Errorf("%w: loop:%s is open with other parameters; give none, or equal ones", ErrParam, o.Name)
		}
		return sw, nil
	}
	if clk == nil {
		clk = clock.System()
	}
	sw := &loopSwitch{opts: o, clk: clk}
	sw.ports[0].alarm.fd, sw.ports[1].alarm.fd = -1, -1
	longest := sw.info(0).MaxFrame
	capacity := o.Capacity
	if capacity == 0 {
		capacity = max(loopCapacity, min(maxQueueBytes, o.Queue*2*longest))
	}
	if need := 2 * unitBytes * int(unitsOf(uint64(longest))); capacity < need {
		return nil, fmt.Errorf("%w: loop:%s capacity=%d: two frames of the mtu need %d", ErrParam, o.Name, capacity, need)
	}
	for i := range sw.ports {
		sw.from[i] = newPipe(capacity, longest)
		a, err := newAlarm(o.SpeedBPS != 0)
		if err != nil {
			sw.ports[0].alarm.close()
			return nil, fmt.Errorf("wire: loop:%s: %w", o.Name, err)
		}
		sw.ports[i].alarm = a
	}
	loops.byName[o.Name] = sw
	return sw, nil
}

// info describes a port.
func (sw *loopSwitch) info(port int) Info {
	o := &sw.opts
	mtu := o.MTU
	if mtu == 0 {
		mtu = loopMTU
	}
	in := Info{
		Name: "loop:" + o.Name, Kind: "loop", MTU: mtu, MaxFrame: mtu + headerBytes + vlanTagBytes,
		SpeedBPS: o.SpeedBPS, Loop: true, HasPeer: true,
		MAC: o.MAC[port], PeerMAC: o.MAC[1-port], Addr4: o.Addr4[port], Addr6: o.Addr6[port],
	}
	if in.MAC == [6]byte{} {
		in.MAC = [6]byte{2, 0, 0, 0, 0, byte(port + 1)}
	}
	if in.PeerMAC == [6]byte{} {
		in.PeerMAC = [6]byte{2, 0, 0, 0, 0, byte(2 - port)}
	}
	if !in.Addr4.IsValid() {
		in.Addr4 = netip.AddrFrom4([4]byte{198, 18, 0, byte(port + 1)})
	}
	if !in.Addr6.IsValid() {
		in.Addr6 = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 3: 0x02, 15: byte(port + 1)})
	}
	return in
}

func (e *loopEnd) Info() Info { return e.info }

func (e *loopEnd) Reserve(lens []int32, bufs [][]byte) int {
	if e.closed.Load() {
		return 0
	}
	if e.waiting {
		e.disarm()
	}
	n := e.tx.reserve(lens, bufs)
	e.short = n < len(lens)
	if e.short {
		e.lookWhy(lens[n])
	}
	return n
}

// Window is part of Spans.
func (e *loopEnd) Window(length int32) []byte {
	if e.closed.Load() {
		return nil
	}
	if e.waiting {
		e.disarm()
	}
	w := e.tx.window(uint64(uint32(length)))
	if e.short = w == nil; e.short {
		e.lookWhy(length)
	}
	return w
}

// Place is part of Spans.
func (e *loopEnd) Place(lens []int32, bytes uint64) { e.tx.place(lens, bytes) }

// lookWhy is the slow way of a Reserve that could not serve a length.
func (e *loopEnd) lookWhy(length int32) {
	if err := lengthError(e.info.Name, length, e.info.MaxFrame); err != nil {
		e.refused = err
		e.stats.TxErrors++
		return
	}
	if !e.peer.open.Load() { // frames published while the port was being closed would stay for ever
		loops.Lock()
		if !e.peer.open.Load() {
			gone := pipeRx{p: e.tx.p, head: e.tx.p.head.Load()}
			e.peer.undelivered.Add(uint64(gone.drain()))
		}
		loops.Unlock()
	}
}

func (e *loopEnd) Commit(n int) {
	n = min(n, e.tx.reserved)
	e.tx.commit(n)
}

func (e *loopEnd) Pending() int { return int(e.tx.tail - e.tx.pub) }

func (e *loopEnd) Flush() error {
	if e.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, e.info.Name)
	}
	err := e.refused
	e.refused = nil
	first, last := e.tx.pub, e.tx.tail
	if first == last {
		return err
	}
	e.stats.TxFrames += last - first
	e.stats.TxBytes += e.tx.takeBytes()
	if !e.peer.open.Load() {
		e.stats.NoPeer += last - first
		e.tx.truncate(first)
		return err
	}
	if e.timed || e.sw.opts.Queue != 0 {
		e.schedule()
	}
	e.tx.publish()
	if e.peer.armed.Load()&forFrames != 0 {
		e.peer.wake()
	}
	return err
}

// schedule stamps the committed frames with their arrival, and drops those that the queue has no place for:
// all from the first such one on, because within one burst the queue only grows.
func (e *loopEnd) schedule() {
	now := int64(0)
	if e.timed {
		now = e.sw.clk.Now()
	}
	waiting := uint64(math.MaxUint64) // places taken: none counted without a limit
	if e.sw.opts.Queue != 0 {
		waiting = e.backlog(now)
	}
	limit := uint64(e.sw.opts.Queue)
	for k := e.tx.pub; k != e.tx.tail; k++ {
		if limit != 0 {
			if waiting >= limit {
				e.stats.TxQueueDrops += e.tx.tail - k
				e.tx.truncate(k)
				return
			}
			waiting++
		}
		d := e.tx.at(k)
		switch {
		case e.paced:
			d.at = e.link.send(now, d.length())
		case e.timed:
			d.at = now
		}
	}
}

// backlog returns how many published frames have not left the queue: the link, or without a speed the wire.
func (e *loopEnd) backlog(now int64) uint64 {
	e.tx.refresh()
	if e.left < e.tx.head {
		e.left = e.tx.head
	}
	if e.paced {
		for e.left != e.tx.pub && e.tx.at(e.left).at <= now {
			e.left++
		}
	}
	return e.tx.pub - e.left
}

func (e *loopEnd) Next(frames []Frame) int {
	if e.closed.Load() {
		return 0
	}
	if e.waiting {
		e.disarm()
	}
	now := int64(math.MaxInt64)
	if e.paced {
		now = e.sw.clk.Now()
	}
	return e.rx.next(frames, now)
}

// Arrived is part of Spans. Frames with a time are for Next.
func (e *loopEnd) Arrived(most int) ([]byte, []Span) {
	if e.timed || e.closed.Load() {
		return nil, nil
	}
	if e.waiting {
		e.disarm()
	}
	return e.rx.arrived(most)
}

func (e *loopEnd) Release(n int) {
	if n == 0 || e.closed.Load() {
		return
	}
	e.stats.RxFrames += uint64(n)
	e.stats.RxBytes += e.rx.release(n)
	if e.peer.armed.Load()&forRoom != 0 {
		e.peer.wake()
	}
}

// FD arms the end's descriptor. A frame makes it readable, one on its way when its time comes, and, if the last
// Reserve was short, room does.
func (e *loopEnd) FD() int {
	if e.closed.Load() || e.me.alarm.fd < 0 {
		return -1
	}
	e.waiting = true
	what := uint32(forFrames)
	if e.short {
		what |= forRoom
	}
	e.me.armed.Store(what) // partner: the Load after each publication, in Flush and Release
	ready := false
	switch due := e.rx.due(); {
	case due == math.MaxInt64:
	case !e.paced:
		ready = true
	default:
		wait := due - e.sw.clk.Now()
		if ready = wait <= 0; !ready {
			e.me.alarm.after(wait)
		}
	}
	if e.short {
		old := e.tx.head
		e.tx.refresh()
		ready = ready || e.tx.head != old
	}
	if ready {
		e.me.wake()
	}
	return e.me.alarm.fd
}

// wake makes the port's descriptor readable, once.
func (p *loopPort) wake() {
	if p.armed.Swap(0) != 0 {
		p.alarm.ring()
	}
}

func (e *loopEnd) disarm() {
	e.waiting = false
	e.me.armed.Store(0)
	e.me.alarm.drain()
}

func (e *loopEnd) Stats(s *Stats) {
	*s = e.stats
	s.NoPeer += e.peer.undelivered.Load()
	if !e.closed.Load() {
		s.RxInFlight = e.rx.waiting()
	}
}

func (e *loopEnd) Err() error {
	if e.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, e.info.Name)
	}
	return nil
}

// Close frees the port. Frames that its owner had not released count as undelivered at the sender. The last
// Close of a switch forgets it.
func (e *loopEnd) Close() error {
	loops.Lock()
	defer loops.Unlock()
	e.closeLocked()
	return nil
}

func (e *loopEnd) closeLocked() {
	if e.closed.Load() {
		return
	}
	e.closed.Store(true)
	e.me.open.Store(false)
	e.me.undelivered.Add(uint64(e.rx.drain()))
	if e.peer.armed.Load() != 0 {
		e.peer.wake() // a sender that waits for room is not to wait for ever
	}
	if e.peer.open.Load() {
		return
	}
	for i := range e.sw.ports {
		e.sw.ports[i].alarm.close()
	}
	delete(loops.byName, e.sw.opts.Name)
}

// link is the transmitter of a link with a speed: each frame starts when the one before it has ended. Time is
// kept exactly, in nanoseconds and 1/bps of one.
type link struct {
	bps  uint64
	free int64  // when the last frame ends
	part uint64 // and this many bps-ths of a nanosecond later
}

// send returns when a frame of length bytes that is ready at now has wholly arrived, rounded up.
func (l *link) send(now int64, length uint64) int64 {
	if l.free < now {
		l.free, l.part = now, 0
	}
	hi, lo := bits.Mul64((max(length, MinFrame)+mediumBytes)*8, 1e9)
	ns, rest := bits.Div64(hi, lo, l.bps)
	l.free += int64(ns)
	if l.part += rest; l.part >= l.bps {
		l.part -= l.bps
		l.free++
	}
	if l.part != 0 {
		return l.free + 1
	}
	return l.free
}
