package wire

import (
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/clock"
)

// kernelWire is what the wires by sockets of the kernel share: counting, the errors that stay, and the looks at the
// interface that find them. T is the sending side.
type kernelWire[T kernelTx] struct {
	iface
	tx      T
	checked []int // sockets that the kernel tells when the interface went away, even if it has come back since
	clk     clock.Clock
	health  int64 // when the interface was last asked after
	err     lasting
	failed  error // of one frame, for the next Flush
	stats   Stats
}

// kernelTx is one way of giving frames to the kernel.
type kernelTx interface {
	reserve(lens []int32, bufs [][]byte) int
	commit(n int)
	// push offers committed frames to the kernel, and returns how many it took and why it stopped.
	push() (frames int, bytes uint64, err error)
	pending() int
	// drop gives up all frames that the kernel has not taken, and tells how many they are.
	drop() (frames uint64)
}

func (w *kernelWire[T]) Info() Info { return w.info }

func (w *kernelWire[T]) Err() error { return w.err.get() }

func (w *kernelWire[T]) Reserve(lens []int32, bufs [][]byte) int {
	if w.err.get() != nil {
		return 0
	}
	n := w.tx.reserve(lens, bufs)
	if n < len(lens) {
		if err := lengthError(w.info.Name, lens[n], w.info.MaxFrame); err != nil {
			w.failed = err
			w.stats.TxErrors++
		}
	}
	return n
}

func (w *kernelWire[T]) Commit(n int) {
	if w.err.get() == nil {
		w.tx.commit(n)
	}
}

func (w *kernelWire[T]) Pending() int { return w.tx.pending() }

// takeFailed returns the error of a frame that was refused since the last Flush.
func (w *kernelWire[T]) takeFailed() error {
	err := w.failed
	w.failed = nil
	return err
}

// push offers frames to the kernel and counts what it took.
func (w *kernelWire[T]) push() (frames int, why error) {
	frames, bytes, why := w.tx.push()
	w.stats.TxFrames += uint64(frames)
	w.stats.TxBytes += bytes
	return frames, why
}

// full ends a Flush that the kernel has no room for, with the error of a frame if there was one. A lost carrier, too,
// may look like a lack of room: doubt asks after the interface.
func (w *kernelWire[T]) full(doubt bool, err error) error {
	w.stats.TxRetries++
	if doubt {
		w.look()
	}
	if lost := w.err.get(); lost != nil {
		return lost
	}
	return err
}

// look asks after the interface now, if that was not done a moment ago.
func (w *kernelWire[T]) look() {
	if w.err.get() != nil {
		return
	}
	now := w.clk.Now()
	if uint64(now-w.health) < uint64(healthEvery) && w.health != 0 {
		return
	}
	w.health = now
	if err := w.linkState(); err != nil {
		w.broken(err)
		return
	}
	for _, fd := range w.checked {
		if e, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && e != 0 {
			w.broken(unix.Errno(e))
		}
	}
}

// broken makes an error stay, and returns it. Frames that wait for the kernel are errors then, so that sent, failed and
// pending frames still add up to those committed.
func (w *kernelWire[T]) broken(why error) error {
	w.err.set(w.lost(why))
	w.stats.TxErrors += w.tx.drop()
	return w.err.get()
}
