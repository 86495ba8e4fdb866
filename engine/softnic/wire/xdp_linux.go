package wire

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/barrier"
)

// xdp is a wire on a kernel interface, by AF_XDP sockets: one for each receive queue, and one to send by.
//
//	interface ─► XDP program ─► socket of the queue ─► receive ring ─► Next
//	             a free frame  ◄── fill ring ◄────────────────────── Release
//	Commit ─► transmit ring ─► interface
//	a free frame ◄── completion ring
//
// Frames are chunks of packet memory (UMEM) that the kernel knows. All there are for receiving are in the fill ring,
// in the receive ring or with the owner, and both rings have room for all: nothing is lost but by an owner that is
// too slow. What the queues of this wire receive, the rest of the kernel does not see.
type xdp struct {
	kernelWire[*xdpTx]
	queues []xdpQueue
	turn   int  // the queue whose frames Next gives
	looks  uint // fruitless ones
	held   int  // frames given by the last Next and not released
	link   bpflink.Link
	prog   *ebpf.Program
	leaves bool // it leaves neighbour discovery to the kernel
	socks  *ebpf.Map
	busy   bool   // a look at an empty queue drives the device
	wait   waiter // for frames in any queue, or the time to try again
	armed  bool
	closed bool
}

// xdpQueue is one receive queue of the interface.
type xdpQueue struct {
	fd     int
	index  int    // the interface's number for it
	mem    []byte // UMEM: the frames for receiving first
	stride int    // from chunk to chunk
	mask   uint64 // of an address: the chunk it is in
	rx     xring
	fill   xring
	comp   xring
	seen   uint32 // consumer of rx
	put    uint32 // producer of fill
	owed   int    // frames released that the kernel has not been given yet
}

// addrBits is how many bits of an address say where a chunk is; those above, in copy mode, where the frame is in it
// (XSK_UNALIGNED_BUF_OFFSET_SHIFT of linux/if_xdp.h).
const addrBits = 48

// next fills frames from the first that is not released.
func (q *xdpQueue) next(frames []Frame) int {
	n := min(len(frames), int(atomic.LoadUint32(q.rx.prod)-q.seen)) // partner: the kernel's release store
	if n == 0 {
		q.foresee()
		return 0
	}
	for i := range frames[:n] {
		d := &q.rx.descs[(q.seen+uint32(i))&q.rx.mask]
		at := d.Addr&(1<<addrBits-1) + d.Addr>>addrBits
		end := at + uint64(d.Len)
		frames[i] = Frame{Data: q.mem[at:end:end]}
	}
	return n
}

// foresee has what the next frame changes fetched, so that these lines come at once when it does, and not one after the
// other: its descriptor, by a load whose value does not matter, and the beginning of the free frame that the kernel fills
// next, if it has none left of a frame that it dropped.
func (q *xdpQueue) foresee() {
	atomic.LoadUint32(&q.rx.descs[q.seen&q.rx.mask].Len)
	at := q.fill.addrs[q.seen&q.fill.mask] & (1<<addrBits - 1)
	barrier.Prefetch(&q.mem[at+unix.XDP_PACKET_HEADROOM])
}

// settle gives the released frames back, for the kernel to fill again, and returns their bytes. It is not for Release to do:
// the stores meet lines that the kernel is at, and whoever waits for what was received need not wait for them too.
func (q *xdpQueue) settle() (bytes uint64) {
	if q.owed == 0 {
		return 0
	}
	for ; q.owed > 0; q.owed-- {
		d := &q.rx.descs[q.seen&q.rx.mask]
		bytes += uint64(d.Len)
		q.fill.addrs[q.put&q.fill.mask] = d.Addr & q.mask
		q.seen++
		q.put++
	}
	barrier.StoreRelease32(q.rx.cons, q.seen) // partner: the kernel's acquire load
	barrier.StoreRelease32(q.fill.prod, q.put)
	return bytes
}

// Flush offers the committed frames to the kernel. Those it has no room for stay pending.
func (w *xdp) Flush() error {
	if err := w.err.get(); err != nil {
		return err
	}
	err := w.takeFailed()
	for w.tx.pending() > 0 {
		frames, why := w.push()
		switch {
		case why == unix.EINTR || frames > 0 && (why == nil || why == unix.EAGAIN): // a call takes 32 frames at most
		case why == nil || why == unix.EAGAIN || why == unix.ENOBUFS || why == unix.EBUSY:
			return w.full(frames == 0, err)
		default:
			return w.broken(why)
		}
	}
	w.tx.collect() // now, so that the next frame is built where this one was, in lines that are near
	return err
}

// Next gives frames of one queue, and goes on to the next queue when all it gave are released.
func (w *xdp) Next(frames []Frame) int {
	if w.closed {
		return 0
	}
	w.settle()
	if w.held > 0 {
		w.held = w.queues[w.turn].next(frames)
		return w.held
	}
	for range w.queues {
		if w.turn++; w.turn >= len(w.queues) {
			w.turn = 0
		}
		q := &w.queues[w.turn]
		if w.held = q.next(frames); w.held > 0 {
			return w.held
		}
		if w.busy || q.fill.needsWakeup() {
			drive(q.fd)
		}
	}
	if w.looks++; w.looks%looksPerClock == 0 {
		w.look()
	}
	return 0
}

// looksPerClock is how many fruitless looks there are to one at the clock, of a wire that is not waited for.
const looksPerClock = 64

// settle is for the queue whose frames Next gave. No other has any that were released.
func (w *xdp) settle() { w.stats.RxBytes += w.queues[w.turn].settle() }

func (w *xdp) Release(n int) {
	if w.held == 0 {
		return
	}
	n = min(n, w.held)
	w.held -= n
	w.stats.RxFrames += uint64(n)
	w.queues[w.turn].owed += n
}

// txAgain is how soon frames that the kernel refused are tried again by a wire that is waited for, and those it was
// passed looked for. AF_XDP has no event for either in copy mode.
const txAgain = 50_000 // ns

func (w *xdp) FD() int {
	if w.closed {
		return -1
	}
	w.settle()
	w.looks = looksPerClock - 1
	if w.armed {
		w.wait.disarm()
	}
	again := int64(math.MaxInt64)
	if w.armed = w.tx.pending() > 0 || w.tx.short || w.tx.head != w.tx.lending.tail; w.armed {
		again = txAgain
	}
	return w.wait.arm(-1, false, again)
}

func (w *xdp) Stats(s *Stats) {
	if !w.closed {
		w.settle()
		w.readDrops()
	}
	*s = w.stats
	s.TxPadded = w.tx.pads
}

// readDrops reads what the kernel counts for each queue: frames that found no free frame, that found the receive
// ring full, or that were longer than a frame can be.
func (w *xdp) readDrops() {
	drops := uint64(0)
	for i := range w.queues {
		var s unix.XDPStatistics
		if getXDP(w.queues[i].fd, unix.XDP_STATISTICS, &s) != nil {
			return
		}
		drops += s.Rx_dropped + s.Rx_ring_full
	}
	w.stats.RxRingDrops = max(w.stats.RxRingDrops, drops)
}

func (w *xdp) Close() error {
	if w.closed {
		return nil
	}
	if len(w.queues) > 0 {
		w.settle()
	}
	w.readDrops()
	w.closed = true
	if w.err.get() == nil {
		w.broken(ErrClosed)
	}
	errs := []error{w.net.close()}
	if w.link != nil { // first: nothing comes any more
		errs = append(errs, w.link.Close())
	}
	if w.prog != nil {
		errs = append(errs, w.prog.Close())
	}
	if w.socks != nil {
		errs = append(errs, w.socks.Close())
	}
	errs = append(errs, w.tx.close())
	for i := range w.queues {
		errs = append(errs, w.queues[i].close())
	}
	w.wait.close()
	if w.fd >= 0 {
		errs = append(errs, unix.Close(w.fd))
		w.fd = -1
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("wire: close %s: %w", w.info.Name, err)
	}
	return nil
}

func (q *xdpQueue) close() error {
	errs := []error{q.rx.unmap(), q.fill.unmap(), q.comp.unmap()}
	if q.fd >= 0 {
		errs = append(errs, unix.Close(q.fd))
		q.fd = -1
	}
	if q.mem != nil { // the kernel holds the pages as long as it needs them
		errs = append(errs, unix.Munmap(q.mem))
		q.mem = nil
	}
	return errors.Join(errs...)
}
