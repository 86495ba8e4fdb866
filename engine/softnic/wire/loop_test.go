package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/bluering/bluering/internal/clock"
)

// pairOf opens both ports of a loop of the test's own.
func pairOf(t testing.TB, o LoopOptions) (a, b Wire) {
	t.Helper()
	o.Name = t.Name()
	a, err := OpenLoop(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	b, err = OpenLoop(LoopOptions{Name: o.Name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a, b
}

// fill writes a pattern that tells frames, places and lengths apart.
func fill(b []byte, seq uint64) {
	for i := range b {
		b[i] = byte(seq*7 + uint64(i)*13 + uint64(len(b)))
	}
	binary.BigEndian.PutUint64(b[:8], seq)
}

func checkFilled(b []byte, seq uint64, length int) error {
	if len(b) != length {
		return fmt.Errorf("frame %d has %d bytes, want %d", seq, len(b), length)
	}
	if got := binary.BigEndian.Uint64(b); got != seq {
		return fmt.Errorf("frame %d where %d is due", got, seq)
	}
	for i := 8; i < len(b); i++ {
		if b[i] != byte(seq*7+uint64(i)*13+uint64(len(b))) {
			return fmt.Errorf("frame %d of %d bytes differs at %d", seq, length, i)
		}
	}
	return nil
}

// sendOne commits and flushes one frame; it reports whether there was room.
func sendOne(t testing.TB, w Wire, length int, seq uint64) bool {
	t.Helper()
	var bufs [1][]byte
	if w.Reserve([]int32{int32(length)}, bufs[:]) == 0 {
		return false
	}
	fill(bufs[0], seq)
	w.Commit(1)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return true
}

func statsOf(w Wire) (s Stats) {
	w.Stats(&s)
	return s
}

// TestLoopAgainstAQueue drives a tiny loop and a slice of frames with the same random bursts.
func TestLoopAgainstAQueue(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	a, b := pairOf(t, LoopOptions{MTU: 2000, Capacity: 8 << 10})
	type sent struct {
		seq    uint64
		length int
	}
	var model, unflushed []sent
	var seq, got uint64
	full, frames := 0, make([]Frame, 40)
	for step := 0; step < 60000; step++ {
		switch r.IntN(5) {
		case 0, 1:
			lens := make([]int32, 1+r.IntN(20))
			for i := range lens {
				lens[i] = int32(14 + r.IntN(100))
				if r.IntN(8) == 0 {
					lens[i] = int32(14 + r.IntN(2005))
				}
			}
			bufs := make([][]byte, len(lens))
			n := a.Reserve(lens, bufs)
			if n < len(lens) {
				full++
			}
			keep := n
			if r.IntN(10) == 0 {
				keep = r.IntN(n + 1)
			}
			for i := 0; i < keep; i++ {
				fill(bufs[i], seq)
				unflushed = append(unflushed, sent{seq, int(lens[i])})
				seq++
			}
			a.Commit(keep)
		case 2:
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			model = append(model, unflushed...)
			unflushed = unflushed[:0]
		default:
			n := b.Next(frames[:r.IntN(len(frames))])
			if n > len(model) {
				t.Fatalf("seed %d step %d: %d frames, %d were sent", seed, step, n, len(model))
			}
			for i, f := range frames[:n] {
				if err := checkFilled(f.Data, model[i].seq, model[i].length); err != nil {
					t.Fatalf("seed %d step %d: %v", seed, step, err)
				}
			}
			n = r.IntN(n + 1)
			b.Release(n)
			model = model[n:]
			got += uint64(n)
		}
		if a.Pending() != len(unflushed) {
			t.Fatalf("seed %d step %d: %d pending, want %d", seed, step, a.Pending(), len(unflushed))
		}
	}
	if full == 0 || got < 10000 {
		t.Fatalf("seed %d: full %d times, %d frames arrived: the test tests nothing", seed, full, got)
	}
	sa, sb := statsOf(a), statsOf(b)
	if sa.TxFrames != got+uint64(len(model)) || sb.RxFrames != got {
		t.Errorf("counts %+v %+v, want %d received, %d on the way", sa, sb, got, len(model))
	}
}

// TestLoopTwoOwners has both ends send and receive at once. Its point is the race detector.
func TestLoopTwoOwners(t *testing.T) {
	const count = 20000
	a, b := pairOf(t, LoopOptions{MTU: 1500, Capacity: 16 << 10})
	run := func(w Wire) error {
		var lens [16]int32
		var bufs [16][]byte
		var frames [16]Frame
		sent, got := uint64(0), uint64(0)
		for sent < count || got < count {
			n := 0
			for ; n < len(lens) && sent+uint64(n) < count; n++ {
				lens[n] = int32(60 + (sent+uint64(n))*37%1400)
			}
			n = w.Reserve(lens[:n], bufs[:])
			for i := range bufs[:n] {
				fill(bufs[i], sent)
				sent++
			}
			w.Commit(n)
			if err := w.Flush(); err != nil {
				return err
			}
			m := w.Next(frames[:])
			for _, f := range frames[:m] {
				if err := checkFilled(f.Data, got, int(60+got*37%1400)); err != nil {
					return err
				}
				got++
			}
			w.Release(m)
			if n+m == 0 {
				runtime.Gosched()
			}
		}
		return nil
	}
	done := make(chan error)
	go func() { done <- run(a) }()
	if err := errors.Join(run(b), <-done); err != nil {
		t.Fatal(err)
	}
}

func TestLoopFullWireStallsTheSender(t *testing.T) {
	a, b := pairOf(t, LoopOptions{MTU: 1500, Capacity: 8 << 10})
	sent := uint64(0)
	for sendOne(t, a, 60, sent) {
		sent++
	}
	if sent != 128 {
		t.Errorf("8 KiB took %d frames of 64 bytes", sent)
	}
	var f [1]Frame
	b.Next(f[:])
	b.Release(1)
	if !sendOne(t, a, 60, sent) {
		t.Error("a released place is not free")
	}
}

func TestLoopFramesToAClosedPortAreCounted(t *testing.T) {
	a, b := pairOf(t, LoopOptions{MTU: 1500, Capacity: 8 << 10})
	for i := range uint64(10) {
		sendOne(t, a, 60, i)
	}
	b.Close()
	for i := range uint64(1000) {
		if !sendOne(t, a, 60, i) {
			t.Fatal("a loop without a peer is full")
		}
	}
	if s := statsOf(a); s.NoPeer != 1010 || s.TxFrames != 1010 || s.TxBytes != 1010*60 {
		t.Errorf("%+v", s)
	}
	again, err := OpenLoop(LoopOptions{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if m := again.Info().MAC; m[5] != 2 {
		t.Errorf("reopened as %x", m)
	}
	var f [1]Frame
	if again.Next(f[:]) != 0 {
		t.Error("a reopened port finds old frames")
	}
	sendOne(t, a, 70, 5)
	if again.Next(f[:]) != 1 || checkFilled(f[0].Data, 5, 70) != nil {
		t.Error("a reopened port does not receive")
	}
}

func TestLoopOpenRules(t *testing.T) {
	a, _ := pairOf(t, LoopOptions{MTU: 1500})
	if _, err := OpenLoop(LoopOptions{Name: t.Name()}); !errors.Is(err, ErrPortsTaken) {
		t.Errorf("third open: %v", err)
	}
	a.Close()
	if _, err := OpenLoop(LoopOptions{Name: t.Name(), MTU: 1501}); !errors.Is(err, ErrParam) {
		t.Errorf("other parameters: %v", err)
	}
	a, err := OpenLoop(LoopOptions{Name: t.Name(), MTU: 1500})
	if err != nil || a.Info().MAC[5] != 1 {
		t.Errorf("equal parameters: %v", err)
	}
	a.Close()
	a.Close()
	if a.Err() == nil || a.Reserve([]int32{60}, make([][]byte, 1)) != 0 || a.FD() != -1 {
		t.Error("a closed end works")
	}
}

func TestLoopRefusesLengths(t *testing.T) {
	a, b := pairOf(t, LoopOptions{MTU: 1500})
	for _, c := range []struct {
		length int32
		want   error
	}{{1519, ErrTooLong}, {13, ErrTooShort}, {0, ErrTooShort}, {-1, ErrTooShort}} {
		bufs := make([][]byte, 2)
		if n := a.Reserve([]int32{60, c.length}, bufs); n != 1 {
			t.Errorf("length %d: room for %d", c.length, n)
		}
		fill(bufs[0], 1)
		a.Commit(1)
		if err := a.Flush(); !errors.Is(err, c.want) {
			t.Errorf("length %d: %v", c.length, err)
		}
		if err := a.Flush(); err != nil {
			t.Errorf("length %d, second flush: %v", c.length, err)
		}
	}
	if s := statsOf(b); statsOf(a).TxErrors != 4 || b.Next(make([]Frame, 9)) != 4 || s.RxFrames != 0 {
		t.Errorf("%+v", statsOf(a))
	}
	if !sendOne(t, a, 1518, 3) {
		t.Error("no room for the longest frame")
	}
}

// TestLoopSpeed judges arrivals by the exact rational schedule of back-to-back frames.
func TestLoopSpeed(t *testing.T) {
	clk := &clock.Virtual{}
	clk.Set(1000)
	a, b := pairOf(t, LoopOptions{SpeedBPS: 7e9, MTU: 1500, Clock: clk})
	for i := range uint64(1000) {
		if !sendOne(t, a, 60, i) {
			t.Fatal("full")
		}
	}
	frames := make([]Frame, 64)
	if b.Next(frames) != 0 {
		t.Error("frames arrive before their time")
	}
	for k := int64(0); k < 1000; {
		clk.Advance(1)
		n := b.Next(frames)
		for _, f := range frames[:n] {
			k++
			want := 1000 + (k*84*8*1000+6999)/7000 // 1e9 and 7e9 by 1e6
			if f.TimeNS != want || clk.Now() != want {
				t.Fatalf("frame %d arrives at %d, seen at %d, want %d", k, f.TimeNS, clk.Now(), want)
			}
		}
		b.Release(n)
	}
	if statsOf(a).TxQueueDrops != 0 {
		t.Error("a link without a limit drops")
	}
}

func TestLoopQueueDropsTheTail(t *testing.T) {
	clk := &clock.Virtual{}
	a, b := pairOf(t, LoopOptions{SpeedBPS: 1e9, Queue: 10, Clock: clk})
	for i := range uint64(100) {
		sendOne(t, a, 60, i)
	}
	if s := statsOf(a); s.TxQueueDrops != 90 || s.TxFrames != 100 {
		t.Errorf("%+v", s)
	}
	clk.Advance(672 * 3) // three of them have left
	for i := range uint64(5) {
		sendOne(t, a, 60, 200+i)
	}
	if s := statsOf(a); s.TxQueueDrops != 92 {
		t.Errorf("%+v", s)
	}
	clk.Advance(1e6)
	frames := make([]Frame, 64)
	if n := b.Next(frames); n != 13 {
		t.Fatalf("%d frames", n)
	}
	for i, want := range []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 200, 201, 202} {
		if err := checkFilled(frames[i].Data, want, 60); err != nil {
			t.Error(err)
		}
	}
}

func TestLoopQueueWithoutSpeed(t *testing.T) {
	a, b := pairOf(t, LoopOptions{Queue: 10})
	for i := range uint64(25) {
		sendOne(t, a, 60, i)
	}
	frames := make([]Frame, 64)
	if n := b.Next(frames); n != 10 || statsOf(a).TxQueueDrops != 15 {
		t.Errorf("%d frames, %+v", n, statsOf(a))
	}
	b.Release(4)
	for i := range uint64(25) {
		sendOne(t, a, 60, i)
	}
	if n := b.Next(frames); n != 10 || statsOf(a).TxQueueDrops != 36 {
		t.Errorf("%d frames, %+v", n, statsOf(a))
	}
}

func TestLoopAllocatesNothing(t *testing.T) {
	for name, o := range map[string]LoopOptions{"plain": {}, "speed": {SpeedBPS: 100e9, Queue: 1000}} {
		t.Run(name, func(t *testing.T) {
			clk := &clock.Virtual{}
			o.Clock = clk
			a, b := pairOf(t, o)
			checkAllocs(t, func() { clk.Advance(1e6) }, a, b)
		})
	}
}

// checkAllocs sends bursts from a to b and demands that nothing is allocated.
func checkAllocs(t *testing.T, before func(), a, b Wire) {
	t.Helper()
	var lens [32]int32
	var bufs [32][]byte
	var frames [32]Frame
	for i := range lens {
		lens[i] = 60
	}
	got := testing.AllocsPerRun(200, func() {
		n := a.Reserve(lens[:], bufs[:])
		for i := range bufs[:n] {
			copy(bufs[i], []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
		}
		a.Commit(n)
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
		before()
		b.Release(b.Next(frames[:]))
	})
	if got != 0 {
		t.Errorf("%v allocations a burst", got)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(e)
}

func TestLoopLeaksNothing(t *testing.T) {
	cycle := func() {
		for _, o := range []LoopOptions{{Name: t.Name()}, {Name: t.Name(), SpeedBPS: 1e9}} {
			a, err := OpenLoop(o)
			if err != nil {
				t.Fatal(err)
			}
			b, err := OpenLoop(o)
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
			b.Close()
		}
	}
	cycle()
	before := openFiles(t)
	for range 1000 {
		cycle()
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	loops.Lock()
	defer loops.Unlock()
	if _, ok := loops.byName[t.Name()]; ok {
		t.Error("the switch is still known")
	}
}

func BenchmarkLoop(b *testing.B) {
	for _, size := range []int32{60, 1514} {
		b.Run(fmt.Sprintf("size=%d/burst=32", size), func(b *testing.B) {
			x, y := pairOf(b, LoopOptions{})
			var lens [32]int32
			var bufs [32][]byte
			var frames [32]Frame
			for i := range lens {
				lens[i] = size
			}
			src := make([]byte, size)
			b.ReportAllocs()
			for i := 0; i < b.N; i += 32 {
				n := x.Reserve(lens[:], bufs[:])
				for i := range bufs[:n] {
					copy(bufs[i], src)
				}
				x.Commit(n)
				x.Flush()
				y.Release(y.Next(frames[:]))
			}
		})
	}
}
