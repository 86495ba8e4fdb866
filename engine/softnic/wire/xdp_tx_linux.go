package wire

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/barrier"
)

// xdpTx is the sending side. Its frames are chunks of the first queue's UMEM. It has a socket of its own, so that
// waiting for received frames, which polls the sockets of the queues, sends nothing behind its back.
type xdpTx struct {
	fd       int
	umem     []byte // as the kernel addresses it
	stride   uint64 // of the chunks
	first    uint64 // of those for sending
	longest  int
	ring     xring
	comp     *xring
	free     []uint64 // addresses that no frame is at; the last is taken first
	lens     []int32  // of the frames reserved
	reserved int
	short    bool   // the last Reserve found no room
	zero     bool   // the driver sends from umem itself, when it likes
	tail     uint32 // committed
	taken    uint32 // by the kernel
	done     uint32 // consumer of comp
	pads     uint64
	// again counts, for each chunk, the completions that are still to come of frames the interface refused: they do not
	// free the chunk, which was offered once more.
	again []uint32
	lending
}

func (t *xdpTx) reserve(lens []int32, bufs [][]byte) int {
	if len(t.free) < len(lens) {
		t.collect()
	}
	n := min(len(lens), len(t.free), len(t.ring.descs)-1-int(t.tail-t.taken))
	t.short = n < len(lens)
	top := len(t.free) - 1
	for i, length := range lens[:n] {
		if length < headerBytes || int(length) > t.longest {
			n = i
			break
		}
		at := t.free[top-i]
		bufs[i] = t.umem[at : at+uint64(length) : at+uint64(length)]
		t.lens[i] = length
	}
	t.reserved = n
	return n
}

// commit writes the descriptors. The kernel looks at them in push.
func (t *xdpTx) commit(n int) {
	n = min(n, t.reserved)
	top := len(t.free) - 1
	for i := 0; i < n; i++ {
		at, length := t.free[top-i], t.lens[i]
		if length < MinFrame {
			clear(t.umem[at+uint64(length) : at+MinFrame])
			length = MinFrame
			t.pads++
		}
		t.ring.descs[(t.tail+uint32(i))&t.ring.mask] = unix.XDPDesc{Addr: at, Len: uint32(length)}
	}
	t.free = t.free[:len(t.free)-n]
	t.tail += uint32(n)
	t.reserved = 0
}

// push offers the committed frames and returns how many the kernel took and why it stopped. EBUSY: the interface
// refused a frame, which is offered again.
func (t *xdpTx) push() (frames int, bytes uint64, err error) {
	barrier.StoreRelease32(t.ring.prod, t.tail) // partner: the kernel's acquire load
	if !t.zero || t.ring.needsWakeup() {
		err = sendXDP(t.fd)
	}
	now := atomic.LoadUint32(t.ring.cons)
	dropped := err == unix.EBUSY && !t.zero
	if int32(now-t.taken) <= 0 { // the kernel shows its counter only when it sent something
		if now = t.taken; dropped {
			now++
		}
	}
	for ; t.taken != now; t.taken++ {
		bytes += uint64(t.ring.descs[t.taken&t.ring.mask].Len)
		frames++
	}
	if dropped {
		frames--
		bytes -= t.offerAgain()
		t.collect() // or many refusals would fill the completion ring
	}
	return frames, bytes, err
}

// offerAgain puts the last frame that the kernel took back in front of those it did not take. In copy mode the kernel
// reads descriptors inside push only, so those between may be moved.
func (t *xdpTx) offerAgain() (bytes uint64) {
	last := t.ring.descs[(t.taken-1)&t.ring.mask]
	for k := t.tail; k != t.taken; k-- {
		t.ring.descs[k&t.ring.mask] = t.ring.descs[(k-1)&t.ring.mask]
	}
	t.ring.descs[t.taken&t.ring.mask] = last
	t.tail++
	if t.has(last.Addr) {
		t.oldest(last.Addr).again++
	} else {
		t.again[(last.Addr-t.first)/t.stride]++
	}
	return uint64(last.Len)
}

// collect takes back the chunks of frames that have left, and notes which of those that were passed have.
func (t *xdpTx) collect() {
	end := atomic.LoadUint32(t.comp.prod) // partner: the kernel's release store
	for ; t.done != end; t.done++ {
		at := t.comp.addrs[t.done&t.comp.mask]
		if t.has(at) {
			t.came(at)
			continue
		}
		if k := (at - t.first) / t.stride; t.again[k] > 0 {
			t.again[k]--
			continue
		}
		t.free = append(t.free, at)
	}
	barrier.StoreRelease32(t.comp.cons, end) // partner: the kernel's acquire load
}

func (t *xdpTx) pending() int { return int(t.tail - t.taken) }

func (t *xdpTx) drop() (frames uint64) {
	frames = uint64(t.tail - t.taken)
	t.tail = t.taken
	t.head = t.lending.tail // nothing is sent any more
	return frames
}

func (t *xdpTx) close() error {
	err := t.ring.unmap()
	if t.fd >= 0 {
		err = errors.Join(err, unix.Close(t.fd))
		t.fd = -1
	}
	return err
}
