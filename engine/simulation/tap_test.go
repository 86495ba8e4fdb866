package simulation

import (
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// tap stands between a NIC and its wire: it tells of each frame that the NIC sends, keeps those that arrive, and
// spoils a few of them as wires of other kinds do.
type tap struct {
	wire.Wire
	spoil uint64 // seed of what is spoilt; 0: nothing is
	sent  func(frame []byte)
	bufs  [][]byte     // of the last Reserve
	shown []wire.Frame // by the last Next
	log   []arrival    // released by the NIC, in order
	runts int
	cut   int
	tx    uint64
	bytes uint64 // of the frames sent
}

// arrival is a frame that the NIC has dealt with.
type arrival struct {
	bytes  []byte
	broken bool // a runt, or cut: nobody may get it
}

func (t *tap) Reserve(lens []int32, bufs [][]byte) int {
	n := t.Wire.Reserve(lens, bufs)
	t.bufs = append(t.bufs[:0], bufs[:n]...)
	return n
}

func (t *tap) Commit(n int) {
	for _, b := range t.bufs[:n] {
		t.tx++
		t.bytes += uint64(len(b))
		t.sent(b)
	}
	t.bufs = t.bufs[n:]
	t.Wire.Commit(n)
}

// spanTap is a tap on a wire that offers wire.Spans; it spoils nothing there.
type spanTap struct {
	*tap
	spans  wire.Spans
	window []byte
}

func (t *spanTap) Window(length int32) []byte {
	t.window = t.spans.Window(length)
	return t.window
}

func (t *spanTap) Place(lens []int32, bytes uint64) {
	for _, n := range lens {
		t.tx++
		t.bytes += uint64(n)
		t.sent(t.window[:n])
		t.window = t.window[min(len(t.window), (int(n)+wire.SpanBytes-1)/wire.SpanBytes*wire.SpanBytes):]
	}
	t.spans.Place(lens, bytes)
}

func (t *spanTap) Arrived(most int) ([]byte, []wire.Span) {
	mem, frames := t.spans.Arrived(most)
	if t.spoil != 0 {
		return nil, nil
	}
	t.shown = t.shown[:0]
	for i := range frames {
		off, n := frames[i].In(mem)
		t.shown = append(t.shown, wire.Frame{Data: mem[off : off+n]})
	}
	return mem, frames
}

func (t *tap) Next(frames []wire.Frame) int {
	n := t.Wire.Next(frames)
	for i := range frames[:n] {
		switch t.fate(len(t.log) + i) {
		case 0:
			frames[i].Data = frames[i].Data[:len(frames[i].Data)%14]
		case 1:
			frames[i].Flags |= wire.FlagTruncated
		}
	}
	t.shown = append(t.shown[:0], frames[:n]...)
	return n
}

// fate decides on the frame of that number; it is asked again when the frame is not released.
func (t *tap) fate(number int) uint64 {
	if t.spoil == 0 {
		return 2
	}
	return rand.New(rand.NewPCG(t.spoil, uint64(number))).Uint64N(100)
}

func (t *tap) Release(n int) {
	for _, f := range t.shown[:n] {
		cut := f.Flags&wire.FlagTruncated != 0
		switch {
		case len(f.Data) < 14:
			t.runts++
		case cut:
			t.cut++
		}
		t.log = append(t.log, arrival{slices.Clone(f.Data), cut || len(f.Data) < 14})
	}
	t.shown = t.shown[n:]
	t.Wire.Release(n)
}

// backend is the NIC with a lazy doorbell, which also lets the model see the rings.
type backend struct {
	*softnic.NIC
	rnd *rand.Rand
	cq  engine.CQMem // the last one made
	qp  engine.QPMem
}

func (b *backend) NewCQ(entries int) (m engine.CQMem, err error) {
	m, err = b.NIC.NewCQ(entries)
	b.cq = m
	return m, err
}

func (b *backend) NewQP(s engine.QPSpec) (m engine.QPMem, err error) {
	m, err = b.NIC.NewQP(s)
	b.qp = m
	return m, err
}

// Ring does all, some or nothing: what a doorbell leaves undone is done by a later Progress.
func (b *backend) Ring(qpn uint32, dbWord uint64) {
	switch b.rnd.IntN(3) {
	case 0:
		b.NIC.Ring(qpn, dbWord)
	case 1:
		b.NIC.Step(1 + b.rnd.IntN(4))
	}
}

func (b *backend) Progress(budget int) int {
	return b.NIC.Step(1 + b.rnd.IntN(budget))
}

// queue is a completion queue as the model knows it.
type queue struct {
	cq     *engine.CQ
	mem    engine.CQMem
	broken bool // it has overrun
	polled uint64
}

// visible lists the completions that the device has written and nobody has polled: a reader of the ring of its own.
func (c *queue) visible() (out []*ring.CQE) {
	n := uint32(len(c.mem.CQEs))
	lap := bits.Len32(n - 1)
	first := c.mem.Rec.LoadCI()
	for k := first; k-first < n; k++ {
		e := &c.mem.CQEs[k&(n-1)]
		if e.OpOwn() >= 0xf0 || uint32(e.OpOwn()&1) != k>>lap&1 {
			break
		}
		out = append(out, e)
	}
	return out
}
