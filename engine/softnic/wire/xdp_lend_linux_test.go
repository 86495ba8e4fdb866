package wire

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

// borrower sends frames from lent memory, each from a slot that it spoils as soon as the frame has come back. Every
// seventh it sends as a copy.
type borrower struct {
	t      *testing.T
	w      Lender
	mem    []byte
	at     uint64
	sent   uint64 // frames
	passed uint64 // of them from lent memory
	spoilt uint64
}

const lentSlot = 2048 + 64 // a frame crosses pages now and then

func newBorrower(t *testing.T, w Wire, slots int) *borrower {
	t.Helper()
	l := w.(Lender)
	b := &borrower{t: t, w: l, mem: l.Lend(slots * lentSlot)}
	var ok bool
	if b.at, ok = l.Lent(b.mem); b.mem == nil || !ok {
		t.Fatalf("%d bytes lent, at %d", len(b.mem), b.at)
	}
	return b
}

func (b *borrower) slot(k uint64) uint64 { return k % uint64(len(b.mem)/lentSlot) * lentSlot }

// spoil overwrites the slots of frames that have come back.
func (b *borrower) spoil() {
	for back := b.w.Returned(); b.spoilt < back; b.spoilt++ {
		at := b.slot(b.spoilt)
		for i := range b.mem[at : at+lentSlot] {
			b.mem[at+uint64(i)] = 0xee
		}
	}
}

// send sends one frame if there is room, and flushes if there is none, and now and then.
func (b *borrower) send(length int) {
	before := b.sent
	if b.sent%7 == 6 {
		var buf [1][]byte
		if b.w.Reserve([]int32{int32(length)}, buf[:]) == 1 {
			experimental(buf[0], b.sent)
			b.w.Commit(1)
			b.sent++
		}
	} else if b.passed-b.spoilt < uint64(len(b.mem)/lentSlot) {
		at := b.slot(b.passed)
		experimental(b.mem[at:at+uint64(length)], b.sent)
		n := uint64(b.w.Pass([]uint64{b.at + at}, []int32{int32(length)}))
		b.passed += n
		b.sent += n
	}
	if b.sent == before || b.sent%5 == 0 {
		b.flush()
	}
}

func (b *borrower) flush() {
	if err := b.w.Flush(); err != nil {
		b.t.Fatal(err)
	}
	b.spoil()
}

// all sends frames and wants each back and at the other end as it was, in order.
func (b *borrower) all(count uint64, length func(uint64) int, rx Wire) {
	b.t.Helper()
	want := make([]byte, 1600)
	r := &receiver{t: b.t, w: rx, check: func(f *Frame, seq uint64) error {
		exact := want[:length(seq)]
		if experimental(exact, seq); !bytes.Equal(f.Data, exact) {
			return fmt.Errorf("frame %d:\n got %x\nwant %x", seq, f.Data, exact)
		}
		return nil
	}}
	deadline := time.Now().Add(20 * time.Second)
	for b.sent < count || b.w.Pending() > 0 || b.w.Returned() < b.passed {
		if b.sent < count {
			b.send(length(b.sent))
		} else {
			b.flush()
		}
		r.take()
		if time.Now().After(deadline) {
			b.t.Fatalf("%d sent, %d passed, %d returned, %+v", b.sent, b.passed, b.w.Returned(), statsOf(b.w))
		}
		runtime.Gosched()
	}
	r.until(count)
	if s := statsOf(b.w); s.TxFrames != count || s.TxPassed != b.passed || s.TxErrors != 0 || b.passed != count-count/7 {
		b.t.Errorf("%d sent, %d passed: %+v", count, b.passed, s)
	}
}

// TestXDPSendsFromLentMemory: what is passed leaves byte for byte, in order with what is copied, and comes back.
func TestXDPSendsFromLentMemory(t *testing.T) {
	eachMode(t, func(t *testing.T, m XDPMode) {
		a, b, ns := nstest.Veth(t)
		tx, rx := openXDP(t, a, XDPOptions{Mode: m, TxSlots: 64}), openXDP(t, b, XDPOptions{Mode: m, NetNS: ns})
		before := nstest.Count(t, "", a)
		newBorrower(t, tx, 100).all(20011, func(seq uint64) int { return MinFrame + int(seq*37%1455) }, rx)
		if k := nstest.Count(t, "", a).Sub(before); k.TxFrames != 20011 {
			t.Errorf("the kernel counted %+v", k)
		}
	})
}

// TestXDPPassesRefusedFramesAgain is TestXDPOffersRefusedFramesAgain for frames that are passed: one that the interface
// refused is back only when it has left.
func TestXDPPassesRefusedFramesAgain(t *testing.T) {
	nstest.Root(t)
	a, b, ns := nstest.Veth(t)
	tx, rx := openXDP(t, a, XDPOptions{}), openXDP(t, b, XDPOptions{NetNS: ns, RxFrames: 1 << 16})
	threaded(t, ns, b)
	before := nstest.Count(t, "", a)
	newBorrower(t, tx, 700).all(100003, func(uint64) int { return 60 }, rx)
	if k := nstest.Count(t, "", a).Sub(before); k.TxFrames != 100003 || k.TxDropped == 0 {
		t.Errorf("the kernel counted %+v: without refusals this test is for nothing", k)
	}
}

// TestXDPGivesUpWhatItPassed: a wire that is useless has nothing under way.
func TestXDPGivesUpWhatItPassed(t *testing.T) {
	nstest.Root(t)
	a, _, _ := nstest.Veth(t)
	w := openXDP(t, a, XDPOptions{})
	b := newBorrower(t, w, 10)
	nstest.Run(t, "", "ip", "link", "set", a, "down")
	for range 5 {
		b.w.Pass([]uint64{b.at}, []int32{60})
	}
	for deadline := time.Now().Add(10 * time.Second); w.Flush() == nil || w.Err() == nil; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("an interface that is down is no error")
		}
	}
	if n := b.w.Returned(); n != 5 || w.Pending() != 0 {
		t.Errorf("%d of 5 frames returned, %d pending", n, w.Pending())
	}
	if n := b.w.Pass([]uint64{b.at}, []int32{60}); n != 0 {
		t.Error("a useless wire takes frames")
	}
}

// TestXDPLends: loans do not overlap, are zeroed pages, and what is given back is lent again.
func TestXDPLends(t *testing.T) {
	nstest.Root(t)
	a, _, _ := nstest.Veth(t)
	w := openXDP(t, a, XDPOptions{Lend: 5 * 4096}).(Lender)
	one, two, three := w.Lend(4096), w.Lend(4097), w.Lend(4096)
	places := func(mem ...[]byte) (at []uint64) {
		for _, m := range mem {
			p, ok := w.Lent(m)
			if !ok {
				t.Fatalf("%d bytes are nowhere", len(m))
			}
			at = append(at, p)
		}
		return at
	}
	if at := places(one, two, three, two[1:2]); fmt.Sprint(at) != "[0 4096 12288 4097]" {
		t.Errorf("lent at %d", at)
	}
	if w.Lend(2*4096) != nil || w.Lend(0) != nil {
		t.Error("lends more than there is, or nothing")
	}
	two[4096] = 1
	w.TakeBack(two)
	if again := w.Lend(2 * 4096); again == nil || again[4096] != 0 || places(again)[0] != 4096 {
		t.Error("what is given back is not lent again, zeroed")
	}
	if _, ok := w.Lent(make([]byte, 60)); ok {
		t.Error("memory of somebody else is lent")
	}
	for _, c := range []struct {
		at  uint64
		len int32
	}{{0, MinFrame - 1}, {0, int32(w.Info().MaxFrame) + 1}, {5*4096 - 59, 60}, {1 << 40, 60}} {
		if w.Pass([]uint64{c.at}, []int32{c.len}) != 0 {
			t.Errorf("%d bytes at %d are passed", c.len, c.at)
		}
	}
	if none := openXDP(t, nextVeth(t), XDPOptions{Lend: -1}).(Lender); none.Lend(1) != nil {
		t.Error("a wire without memory to lend lends some")
	}
}

func nextVeth(t *testing.T) string {
	a, _, _ := nstest.Veth(t)
	return a
}

// TestLentFramesComeBackInAnyOrder drives what is known of frames under way: several at one address, refused ones, and
// completions out of order.
func TestLentFramesComeBackInAnyOrder(t *testing.T) {
	l := &lending{passed: make([]passedFrame, 8)}
	for _, at := range []uint64{10, 20, 10, 30, 20} {
		l.passed[l.tail] = passedFrame{at: at}
		l.tail++
	}
	l.oldest(30).again++
	for i, c := range []struct{ at, head uint64 }{{20, 0}, {30, 0}, {10, 2}, {30, 2}, {20, 2}, {10, 5}} {
		if l.came(c.at); l.head != c.head {
			t.Errorf("completion %d: %d frames are back, want %d", i, l.head, c.head)
		}
	}
}

// TestFramesForZeroCopyStayInTheirChunk: the driver of a card takes no frame that leaves one.
func TestFramesForZeroCopyStayInTheirChunk(t *testing.T) {
	q := &xdpQueue{mem: make([]byte, 4*4096)}
	tx := &xdpTx{longest: 1518, ring: xring{descs: make([]unix.XDPDesc, 16), mask: 15}}
	if err := tx.openLending(q, 4096, 8, 2048, true); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[uint64]int{0: 1, 2048 - 1000: 1, 2048 - 999: 0, 2047: 0, 2048: 1} {
		if got := tx.pass([]uint64{at}, []int32{1000}); got != want {
			t.Errorf("1000 bytes at %d: %d passed, want %d", at, got, want)
		}
	}
	if err := tx.openLending(q, 4096-1024, 8, 2048, true); err == nil {
		t.Error("memory that begins inside a chunk is lent")
	}
}

func TestPassingAllocatesNothing(t *testing.T) {
	nstest.Root(t)
	a, b, ns := nstest.Veth(t)
	tx, rx := openXDP(t, a, XDPOptions{}), openXDP(t, b, XDPOptions{NetNS: ns})
	p := newBorrower(t, tx, 64)
	ats, lens, frames := make([]uint64, 32), make([]int32, 32), make([]Frame, 64)
	for i := range ats {
		ats[i], lens[i] = p.at+uint64(i)*lentSlot, 60
	}
	if n := testing.AllocsPerRun(100, func() {
		p.w.Pass(ats, lens)
		p.w.Flush()
		p.w.Returned()
		rx.Release(rx.Next(frames))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
