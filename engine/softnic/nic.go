package softnic

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/barrier"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/pin"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// Mode says who runs Step.
type Mode uint8

const (
	Inline    Mode = iota // the owner of the queues, from its doorbells and polls
	Goroutine             // one goroutine of the NIC's own
)

func (m Mode) String() string {
	if m == Goroutine {
		return "goroutine"
	}
	return "inline"
}

// Config is what a NIC can be told when it is made. The zero value is a strict, inline, lossless NIC with
// the system's clock.
type Config struct {
	Profile   engine.Profile
	Mode      Mode
	MinInline int         // bytes of each raw frame that must stand in the WQE: 0 or 18
	Clock     clock.Clock // nil: clock.System()
	Drop      bool        // a frame without a receive WQE is dropped and counted, as hardware does
	Pin       bool        // Goroutine: pin it to CPU
	CPU       int
	Spins     int // Goroutine: idle steps before it parks; 0: 2000
}

// Limits of the model. They stand in Caps.
const (
	maxQP          = 4096
	maxCQ          = 4096
	maxSGE         = 30
	maxCQEntries   = 1 << 22
	ethernetHeader = 14 // the least a frame has (C-15)
	burst          = 64 // frames handled between two looks at the wire
	defSpins       = 2000
	// parkMax bounds a sleep, for what rings no bell: a receive WQE posted while a frame waits for one, a
	// frame that a delaying wire lets through later, a lost descriptor.
	parkMax     = 50 * time.Millisecond
	parkStalled = 100 * time.Microsecond
)

// Errors a caller may want to test for.
var (
	// ErrTwoOwners: two goroutines drove an inline NIC at the same time.
	ErrTwoOwners = errors.New("softnic: two goroutines drive a NIC in inline mode; open the device with ?mode=goroutine")
	// ErrClosed: the NIC was closed.
	ErrClosed = errors.New("softnic: the NIC is closed")
)

// Who is inside the NIC: nobody, Step, or a control operation.
const (
	idle = iota
	stepping
	controlling
)

// occupant says who is inside.
type occupant uint64

// take lets somebody in if nobody is.
func (o *occupant) take(by uint64) bool { return atomic.CompareAndSwapUint64((*uint64)(o), idle, by) }

// give is for whoever took it. Partner: take, which sees all that was done inside.
func (o *occupant) give() { barrier.StoreRelease((*uint64)(o), idle) }

func (o *occupant) by() uint64 { return atomic.LoadUint64((*uint64)(o)) }

// NIC is the software NIC: it executes the rings of its queue pairs over one wire. It implements
// engine.Backend. In inline mode Step, Ring, Progress and Wait belong to one goroutine, which owns all
// queues; control operations and Counters may come from any. In goroutine mode all methods may.
type NIC struct {
	busy occupant // who takes it owns all that follows

	wire     wire.Wire
	spans    wire.Spans // the wire, if it is one
	info     wire.Info
	lent     loans
	super    wire.Super // the wire, if it takes packets to be cut further on; else nil
	plainMax uint32     // the longest frame without a VLAN tag
	// maxDatagram is the port's RoCE MTU; 0: there are no datagrams here.
	maxDatagram int
	cfg         Config
	mtt         mtt
	gids        []engine.GIDEntry // own addresses
	network     wire.Network      // the wire's; nil: it has none
	groups      groups
	uds         int // UD queue pairs: with none, all frames are raw ones
	ud          udWork
	steering
	qps       [maxQP]*qp // by slot: QPN modulo maxQP
	cqs       [maxCQ]*cq
	srqs      [maxSRQ]*srq
	active    []*qp // all that exist, in order of creation
	turn      int   // where the next Step starts to serve
	dirty     []*cq // CQs with an unpublished burst
	lastQP    uint32
	lastCQ    uint32
	lastSRQ   uint32
	events    []engine.DeviceEvent     // raised and not told yet
	notify    func(engine.DeviceEvent) // nil: nobody wants them
	now       int64                    // of this Step; 0: not read yet
	held      int64                    // how long the next send has to wait for its time, in ns; notHeld: none has
	unflushed bool                     // frames are committed to the wire and not yet pushed to the medium
	closed    atomic.Bool

	counters engine.Counters
	tx       sender
	rx       receiver

	err       atomic.Pointer[error]
	published atomic.Uint64 // bursts of CQEs: what Wait waits for in goroutine mode
	seen      uint64        // the application's last reading of published
	g         *runner       // goroutine mode
	bell      bell          // wakes the application's Wait
	waiting   atomic.Bool   // the application is in, or on its way into, Wait
}

var _ engine.Backend = (*NIC)(nil)

// New makes a NIC on a wire, which it then owns. In goroutine mode the goroutine runs until Close.
func New(w wire.Wire, c Config) (*NIC, error) {
	if c.MinInline != 0 && c.MinInline != 18 {
		return nil, fmt.Errorf("softnic: minimum inline %d: must be 0 or 18: %w", c.MinInline, syscall.EINVAL)
	}
	if c.Mode > Goroutine {
		return nil, fmt.Errorf("softnic: mode %d: must be inline or goroutine: %w", c.Mode, syscall.EINVAL)
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Spins == 0 {
		c.Spins = defSpins
	}
	b, err := newBell()
	if err != nil {
		return nil, err
	}
	n := &NIC{wire: w, info: w.Info(), cfg: c, mtt: newMTT(), lastQP: 0x3f, lastCQ: 0x3f, lastSRQ: 0x3f, bell: b}
	n.nextID, n.held = 1, notHeld
	n.makeGIDs()
	if len(n.gids) > 0 {
		n.maxDatagram = proto.RoCEMTU(n.info.MTU)
	}
	n.spans, _ = w.(wire.Spans)
	if l, ok := w.(wire.Lender); ok {
		n.lent.lender, n.lent.runs = l, make([]lentRun, maxLentRuns)
	}
	if s, ok := w.(wire.Super); ok && s.MaxSuper() > 0 {
		n.super = s
	}
	n.plainMax = uint32(n.info.MaxFrame)
	if n.info.MTU > 0 {
		n.plainMax = min(n.plainMax, uint32(n.info.MTU+ethernetHeader))
	}
	if c.Mode == Goroutine {
		if n.g, err = startRunner(n); err != nil {
			b.close()
			return nil, err
		}
	}
	return n, nil
}

// control runs f while nobody steps. In inline mode it waits for a Step in progress; in goroutine mode the
// NIC's goroutine gives way between two Steps. All CQEs that Steps before it made are published.
func (n *NIC) control(f func() error) error {
	for !n.busy.take(controlling) {
		runtime.Gosched()
	}
	defer n.busy.give()
	if n.closed.Load() {
		return ErrClosed
	}
	defer n.publish()
	n.forget()
	return f()
}

// fail records the first lasting error.
func (n *NIC) fail(err error) {
	n.err.CompareAndSwap(nil, &err)
}

// Err returns what has made the NIC useless: a wire that is gone, two owners. nil while it is healthy.
func (n *NIC) Err() error {
	if e := n.err.Load(); e != nil {
		return *e
	}
	if err := n.wire.Err(); err != nil {
		return fmt.Errorf("softnic: %w", err) // it names the wire
	}
	return nil
}

// AllocMemory returns packet memory; the caller closes it.
func (n *NIC) AllocMemory(bytes int) (*ring.Region, error) {
	if n.lent.lender != nil {
		if r := n.borrow(bytes); r != nil {
			return r, nil
		}
	}
	return ring.NewRegion(bytes, ring.RegionOptions{Huge: bytes >= 2<<20})
}

// Register makes mem known under a key and a synthetic address. mem must stay as it is until Deregister.
func (n *NIC) Register(pd uint32, mem []byte, a engine.Access) (key uint32, addr uint64, err error) {
	err = n.control(func() (e error) {
		if key, addr, e = n.mtt.register(pd, mem, a); e == nil && n.lent.lender != nil {
			r := n.mtt.find(key, pd, 0)
			r.at, r.lent = n.lent.lender.Lent(mem)
		}
		return e
	})
	return key, addr, err
}

// Deregister forgets a key. WRs that name it complete with a protection error from now on (D-13).
func (n *NIC) Deregister(key uint32) error {
	return n.control(func() error { return n.mtt.deregister(key) })
}

// Ring is the send doorbell. The word names the QP only; what to send is what the doorbell record says.
func (n *NIC) Ring(qpn uint32, _ uint64) {
	if n.g != nil {
		n.g.wake()
		return
	}
	n.Step(4 * burst)
}

// Progress runs an inline NIC; a NIC with its own goroutine needs none and returns 0.
func (n *NIC) Progress(budget int) int {
	if n.g != nil {
		n.seen = n.published.Load()
		n.g.nudge()
		return 0
	}
	return n.Step(budget)
}

// Wait parks the caller until something may have come, or for timeoutNS (below 0: as long as it takes). It
// may return early. The way to use it: Progress, poll the CQs, nothing there: Wait, and again.
func (n *NIC) Wait(timeoutNS int64) error {
	timeout := time.Duration(timeoutNS)
	if timeoutNS < 0 || timeout > parkMax {
		timeout = parkMax
	}
	if n.closed.Load() {
		return ErrClosed
	}
	if n.g != nil {
		return n.waitForGoroutine(timeout)
	}
	return n.await(n.bell, timeout)
}

// await sleeps until the bell rings or the wire has something. A wire whose first frame waits for a receive
// WQE has something all the time, so that only time can tell then.
func (n *NIC) await(b bell, timeout time.Duration) error {
	if n.rx.stalled {
		return b.wait(-1, false, min(timeout, parkStalled))
	}
	timeout = min(timeout, time.Duration(n.held))
	fd, pending := n.arm()
	return b.wait(fd, pending, timeout)
}

// arm arms the wire's descriptor, while nobody else is inside the NIC: Counters pushes and looks at the wire, too.
func (n *NIC) arm() (fd int, pending bool) {
	for !n.busy.take(controlling) {
		runtime.Gosched()
	}
	defer n.busy.give()
	if n.closed.Load() {
		return -1, false
	}
	return n.wire.FD(), n.wire.Pending() > 0
}

// waitForGoroutine waits for a publication later than the one seen by the last Progress or Wait. The flag
// goes up before published is read, and the NIC reads the flag after it counts up: one of them sees the other.
func (n *NIC) waitForGoroutine(timeout time.Duration) error {
	n.g.nudge()
	n.waiting.Store(true)
	defer n.waiting.Store(false)
	if p := n.published.Load(); p != n.seen {
		n.seen = p
		return nil
	}
	err := n.bell.wait(-1, false, timeout)
	n.seen = n.published.Load()
	return err
}

// Close stops the goroutine, publishes nothing more, frees the rings and closes the wire. The owner must have
// stopped using the queues: their memory is gone. Closing twice is harmless.
func (n *NIC) Close() error {
	if n.g != nil {
		n.g.stop()
	}
	for !n.busy.take(controlling) {
		runtime.Gosched()
	}
	defer n.busy.give()
	if n.closed.Load() {
		return nil
	}
	n.closed.Store(true)
	if n.wire.Pending() > 0 && n.wire.Err() == nil {
		n.push(func() bool { return true })
	}
	errs := []error{n.wire.Close()}
	for _, q := range n.active {
		errs = append(errs, q.mem.Close())
	}
	for _, c := range n.cqs {
		if c != nil {
			errs = append(errs, c.mem.Close())
		}
	}
	for _, s := range n.srqs {
		if s != nil {
			errs = append(errs, s.mem.Close())
		}
	}
	n.active, n.dirty = nil, nil
	n.bell.close()
	return errors.Join(errs...)
}

// push gives the medium up to a second to take frames whose sends have completed, and for what else is to be done.
func (n *NIC) push(done func() bool) {
	const rounds, each = 200, 5 * time.Millisecond
	for range rounds {
		n.flushWire()
		if all := done(); all && n.wire.Pending() == 0 || n.wire.Err() != nil {
			return
		}
		if n.bell.wait(n.wire.FD(), n.wire.Pending() > 0, each) != nil {
			return
		}
	}
}

// runner is the goroutine of goroutine mode.
type runner struct {
	n       *NIC
	bell    bell
	parked  atomic.Bool // in, or on its way into, bell.wait
	stalled atomic.Bool // parked with a frame that waits for a receive WQE
	quit    atomic.Bool
	done    chan struct{}
	once    sync.Once
}

func startRunner(n *NIC) (*runner, error) {
	b, err := newBell()
	if err != nil {
		return nil, err
	}
	r := &runner{n: n, bell: b, done: make(chan struct{})}
	ready := make(chan error)
	go r.run(ready)
	if err := <-ready; err != nil {
		<-r.done
		b.close()
		return nil, err
	}
	return r, nil
}

func (r *runner) run(ready chan<- error) {
	defer close(r.done)
	if r.n.cfg.Pin {
		unpin, err := pin.Pin(r.n.cfg.CPU)
		if err != nil {
			ready <- fmt.Errorf("softnic: %s: %w", r.n.info.Name, err)
			return
		}
		defer unpin()
	}
	ready <- nil
	for spins := 0; !r.quit.Load(); {
		if r.n.Step(4*burst) > 0 {
			spins = 0
			continue
		}
		if spins++; spins < r.n.cfg.Spins {
			if spins > 64 {
				runtime.Gosched()
			}
			continue
		}
		r.park()
		spins = 0
	}
}

// park sleeps until a doorbell, the wire or the time. The flag goes up before the last look at the rings, and
// a doorbell reads the flag after it wrote its record: one of them sees the other.
func (r *runner) park() {
	r.parked.Store(true)
	defer r.parked.Store(false)
	defer r.stalled.Store(false)
	if r.n.Step(4*burst) > 0 || r.quit.Load() {
		return
	}
	r.stalled.Store(r.n.rx.stalled)
	if err := r.n.await(r.bell, parkMax); err != nil {
		r.n.fail(err)
		time.Sleep(parkStalled)
	}
}

func (r *runner) wake() {
	barrier.StoreLoad() // the record before the flag
	if r.parked.Load() {
		r.bell.ring()
	}
}

// nudge wakes a goroutine that sleeps only because a receive WQE was missing: the caller may have posted one.
func (r *runner) nudge() {
	if r.stalled.Load() {
		r.bell.ring()
	}
}

func (r *runner) stop() {
	r.once.Do(func() {
		r.quit.Store(true)
		r.bell.ring()
		<-r.done
		r.bell.close()
	})
	<-r.done
}
