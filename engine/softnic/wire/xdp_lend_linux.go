package wire

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// xdpLendBytes is what an xdp wire has to lend unless told otherwise: two pools of raw.DefaultDepth frames.
const xdpLendBytes = 4 << 20

// lending is the part of the packet memory that is lent, and the frames that were passed from it. They come back in any
// order; what is told is how many have from the first on.
type lending struct {
	mem   []byte // whole pages
	base  uint64 // its address in the UMEM
	loans []loan // by place
	// whole is the size of the pieces, from multiples of it on, that a frame may not leave; 0: it may lie anywhere.
	whole  uint64
	passed []passedFrame // by counter, masked
	head   uint64        // the first that has not come back
	tail   uint64        // behind the last
}

type loan struct{ at, bytes int }

type passedFrame struct {
	at    uint64
	again uint32 // completions still to come of offers that the interface refused
	back  bool
}

// lend takes the first gap that is long enough.
func (l *lending) lend(bytes int) []byte {
	page := unix.Getpagesize()
	need := (bytes + page - 1) / page * page
	at, i := 0, 0
	for ; i < len(l.loans) && l.loans[i].at-at < need; i++ {
		at = l.loans[i].at + l.loans[i].bytes
	}
	if bytes <= 0 || need > len(l.mem)-at {
		return nil
	}
	l.loans = slices.Insert(l.loans, i, loan{at, need})
	mem := l.mem[at : at+bytes : at+bytes]
	clear(mem)
	return mem
}

func (l *lending) takeBack(at uint64) {
	l.loans = slices.DeleteFunc(l.loans, func(o loan) bool { return uint64(o.at) == at })
}

// room is how many frames may be passed now.
func (l *lending) room() int { return len(l.passed) - int(l.tail-l.head) }

func (l *lending) has(addr uint64) bool { return addr-l.base < uint64(len(l.mem)) }

// oldest finds the first frame at an address that has not come back. Of several at one address it does not matter
// which is meant: whoever owns those bytes waits for all of them.
func (l *lending) oldest(addr uint64) *passedFrame {
	for k := l.head; k != l.tail; k++ {
		if f := &l.passed[k&uint64(len(l.passed)-1)]; f.at == addr && !f.back {
			return f
		}
	}
	return &passedFrame{} // never: the kernel completes what it was given
}

// came notes a completion.
func (l *lending) came(addr uint64) {
	if f := l.oldest(addr); f.again > 0 {
		f.again--
	} else {
		f.back = true
	}
	for l.head != l.tail && l.passed[l.head&uint64(len(l.passed)-1)].back {
		l.head++
	}
}

// pass writes descriptors for the frames that may be sent from where they are, up to the first that may not.
func (t *xdpTx) pass(ats []uint64, lens []int32) (n int) {
	l := &t.lending
	most := min(len(ats), l.room(), len(t.ring.descs)-1-t.pending())
	t.short = most < len(ats)
	t.reserved = 0
	for n < most {
		at, length := ats[n], uint64(lens[n])
		size := uint64(len(l.mem))
		if length < MinFrame || length > uint64(t.longest) || at >= size || length > size-at {
			break
		}
		if l.whole != 0 && at&(l.whole-1)+length > l.whole {
			break
		}
		at += l.base
		l.passed[l.tail&uint64(len(l.passed)-1)] = passedFrame{at: at}
		l.tail++
		t.ring.descs[t.tail&t.ring.mask] = unix.XDPDesc{Addr: at, Len: uint32(length)}
		t.tail++
		n++
	}
	return n
}

// Lend gives memory from which frames are sent without a copy of ours; nil when there is not so much.
func (w *xdp) Lend(bytes int) []byte {
	if w.closed {
		return nil
	}
	return w.tx.lending.lend(bytes)
}

// TakeBack ends a loan.
func (w *xdp) TakeBack(mem []byte) {
	if at, ok := w.Lent(mem); ok {
		w.tx.takeBack(at)
	}
}

// Lent finds memory in what the wire lends.
func (w *xdp) Lent(mem []byte) (at uint64, ok bool) {
	if w.closed || len(w.tx.lending.mem) == 0 || len(mem) == 0 {
		return 0, false
	}
	return placeIn(w.tx.lending.mem, mem)
}

// Pass commits frames that are sent from where they are.
func (w *xdp) Pass(ats []uint64, lens []int32) int {
	if w.err.get() != nil {
		return 0
	}
	n := w.tx.pass(ats, lens)
	w.stats.TxPassed += uint64(n)
	return n
}

// Returned counts the frames that came back.
func (w *xdp) Returned() uint64 {
	l := &w.tx.lending
	if l.head != l.tail && !w.closed {
		w.tx.collect()
	}
	return l.head
}

// openLending prepares the end of a queue's packet memory.
func (t *xdpTx) openLending(q *xdpQueue, from, frames, chunk int, aligned bool) error {
	l := &t.lending
	if from >= len(q.mem) {
		return nil
	}
	l.mem, l.base = q.mem[from:], uint64(from)
	l.passed = make([]passedFrame, frames)
	if aligned {
		l.whole = uint64(chunk)
		if l.base%l.whole != 0 {
			return fmt.Errorf("memory to lend begins at %d, inside a chunk of %d bytes", from, chunk)
		}
	}
	return nil
}
