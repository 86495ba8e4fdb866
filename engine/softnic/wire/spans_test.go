package wire

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Frames that go in by Window or Reserve, in any mix, come out by Arrived or Next, in any mix, whole and in order;
// a pipe that is full says so in both ways.
func TestSpansAndFramesAreTheSameQueue(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 9))
		a, b := spanPair(t, fmt.Sprintf("spans-%d", seed))
		var model [][]byte
		for range 2000 {
			lens := make([]int32, 1+rng.IntN(20))
			for i := range lens {
				lens[i] = 14 + rng.Int32N(300)
			}
			put := putSlices
			if rng.IntN(2) == 0 {
				put = putSpans
			}
			model = append(model, put(a, lens, byte(rng.Uint32()))...)
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			got := take(b, rng.IntN(20), rng.IntN(2) == 0)
			for i, f := range got {
				if !slices.Equal(f, model[i]) {
					t.Fatalf("seed %d: frame of %d bytes, want %d: %x, want %x", seed, len(f), len(model[i]), f, model[i])
				}
			}
			model = model[len(got):]
		}
		var tx, rx Stats
		a.Stats(&tx)
		b.Stats(&rx)
		if tx.TxFrames != rx.RxFrames+uint64(len(model)) || rx.RxInFlight != uint64(len(model)) {
			t.Fatalf("seed %d: %+v, %+v, %d on their way", seed, tx, rx, len(model))
		}
		left := uint64(0)
		for _, f := range model {
			left += uint64(len(f))
		}
		if tx.TxBytes != rx.RxBytes+left {
			t.Fatalf("seed %d: %d bytes sent, %d received, %d on their way", seed, tx.TxBytes, rx.RxBytes, left)
		}
	}
}

func spanPair(t *testing.T, name string) (a, b *loopEnd) {
	t.Helper()
	var ends [2]*loopEnd
	for i := range ends {
		w, err := OpenLoop(LoopOptions{Name: name, Capacity: 4096, MTU: 300})
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = w.(*loopEnd)
		t.Cleanup(func() { w.Close() })
	}
	return ends[0], ends[1]
}

func fillWith(b []byte, v byte) []byte {
	for i := range b {
		b[i] = v + byte(i)
	}
	return slices.Clone(b)
}

func putSlices(w *loopEnd, lens []int32, v byte) (sent [][]byte) {
	bufs := make([][]byte, len(lens))
	n := w.Reserve(lens, bufs)
	for _, b := range bufs[:n] {
		sent = append(sent, fillWith(b, v))
	}
	w.Commit(n)
	return sent
}

func putSpans(w *loopEnd, lens []int32, v byte) (sent [][]byte) {
	window, at, bytes := w.Window(lens[0]), 0, uint64(0)
	for _, n := range lens {
		if int(n) > len(window)-at {
			break
		}
		sent = append(sent, fillWith(window[at:at+int(n)], v))
		at += (int(n) + SpanBytes - 1) / SpanBytes * SpanBytes
		bytes += uint64(n)
	}
	w.Place(lens[:len(sent)], bytes)
	return sent
}

func take(w *loopEnd, most int, spans bool) (got [][]byte) {
	if spans {
		mem, frames := w.Arrived(most)
		for i := range frames {
			off, n := frames[i].In(mem)
			got = append(got, slices.Clone(mem[off:off+n]))
		}
	} else {
		frames := make([]Frame, most)
		for _, f := range frames[:w.Next(frames)] {
			got = append(got, slices.Clone(f.Data))
		}
	}
	w.Release(len(got))
	return got
}

func TestWindowTellsFramesOfNoLength(t *testing.T) {
	a, _ := spanPair(t, "spans-lengths")
	for _, n := range []int32{13, 319, -1} {
		if w := a.Window(n); w != nil {
			t.Errorf("a window of %d bytes for a frame of %d", len(w), n)
		}
		if err := a.Flush(); err == nil {
			t.Errorf("length %d: no error", n)
		}
	}
	if w := a.Window(318); w == nil {
		t.Error("no window for the longest frame")
	}
}
