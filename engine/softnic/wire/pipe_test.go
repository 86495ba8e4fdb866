package wire

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// TestPipeGoesOnWhereItsCounterWraps: a place keeps 46 bits of the units' counter. Frames come through in order and none
// before it is published, also where a burst was reserved, or committed and taken back, before.
func TestPipeGoesOnWhereItsCounterWraps(t *testing.T) {
	const longest = 200
	rnd := rand.New(rand.NewPCG(31, 32))
	p := newPipe(0, longest)
	p.desc[p.units-1] = Span{place: placeOf(1<<counterBits-5*p.units, 64)} // as if so much had gone through before
	p.tail.Store(p.units)
	p.head.Store(p.units)
	tx := p.producer(longest)
	rx, gone := p.consumer()
	if gone != 0 {
		t.Fatalf("%d frames in an empty pipe", gone)
	}
	var lens [8]int32
	var bufs [8][]byte
	var frames [8]Frame
	sent, got, wraps := uint64(0), uint64(0), 0
	for range 20000 {
		before := tx.end >> counterBits
		for i := range lens {
			lens[i] = 14 + rnd.Int32N(longest-13)
		}
		n := tx.reserve(lens[:1+rnd.IntN(8)], bufs[:])
		n = min(n, rnd.IntN(9))
		for i := range n {
			binary.LittleEndian.PutUint64(bufs[i], sent+uint64(i))
		}
		tx.commit(n)
		if rnd.IntN(4) == 0 { // what the queue's limit drops
			k := tx.pub + uint64(rnd.IntN(n+1))
			n = int(k - tx.pub)
			tx.truncate(k)
		}
		if f := rx.next(frames[:], math.MaxInt64); f != 0 {
			t.Fatalf("%d frames before they are published", f)
		}
		tx.publish()
		sent += uint64(n)
		for sent != got {
			f := rx.next(frames[:1+rnd.IntN(8)], math.MaxInt64)
			for i := range f {
				if v := binary.LittleEndian.Uint64(frames[i].Data); v != got+uint64(i) {
					t.Fatalf("frame %d is %d", got+uint64(i), v)
				}
			}
			if f == 0 {
				t.Fatalf("%d frames, %d were sent", got, sent)
			}
			f = rnd.IntN(f + 1)
			rx.release(f)
			got += uint64(f)
		}
		if tx.end>>counterBits != before {
			wraps++
		}
	}
	if wraps != 1 || sent < 10000 {
		t.Errorf("%d frames, %d wraps", sent, wraps)
	}
}
