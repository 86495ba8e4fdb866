package wire

import (
	"math"
	"sync/atomic"
)

// pipe is one direction of a loop: a byte ring of frames that start at multiples of 64 bytes and never
// cross the ring's end, and beside it a ring of descriptors. One producer, one consumer.
//
//	data  │ frame 7 ·· │ frame 8 │ (skipped) ║ frame 9 ······ │ free │
//	desc  │ 7 │ 8 │ 9 │ free ...
//	          ▲ head            ▲ tail
//
// Every position is a free-running counter, masked at the moment of use. Only the two descriptor counters
// are shared: the producer finds the free bytes from its own descriptors, which the consumer never writes.
type pipe struct {
	data  []byte
	desc  []Span
	units uint64 // of 64 bytes, a power of two; there are as many descriptors

	_    [128]byte
	tail atomic.Uint64 // published by pipeTx.publish, read by pipeRx
	_    [128]byte
	head atomic.Uint64 // published by pipeRx.release, read by pipeTx
	_    [128]byte
}

const (
	unitShift = 6
	unitBytes = 1 << unitShift
)

// Span describes one frame in a wire's memory.
type Span struct {
	place uint64 // the counter of its first unit, shifted left by 16, and its length
	at    int64  // when it arrives; 0: at once
}

// In gives where the frame begins in the memory that Arrived gave with it, and its length.
func (d *Span) In(mem []byte) (off, length uint64) {
	return d.place >> 16 << unitShift & uint64(len(mem)-1), d.length()
}

func (d *Span) length() uint64 { return d.place & 0xffff }
func (d *Span) end() uint64    { return d.place>>16 + unitsOf(d.length()) }

func unitsOf(length uint64) uint64 { return (length + unitBytes - 1) >> unitShift }

// newPipe makes a pipe of at least the given bytes that can always take a frame of maxFrame bytes once it is
// empty, wherever in the ring it stands.
func newPipe(capacity, maxFrame int) *pipe {
	units := uint64(unitBytes)
	for units*unitBytes < uint64(capacity) || units < 2*unitsOf(uint64(maxFrame)) {
		units *= 2
	}
	return &pipe{data: make([]byte, units*unitBytes), desc: make([]Span, units), units: units}
}

// rewindUnits is how far an empty pipe is used before it starts again at the ring's beginning, so that a
// consumer that keeps up gets each frame in memory that both have in their first cache: 4 KiB.
const rewindUnits = 64

// pipeTx is the producer's half.
type pipeTx struct {
	p       *pipe
	tail    uint64 // committed
	end     uint64 // units used up to tail
	pub     uint64 // published
	head    uint64 // last seen
	headEnd uint64 // units free up to head
	longest uint64 // frame

	start         uint64 // unit where the last window begins
	reserved      int
	reservedBytes uint64
	bytes         uint64 // committed and not taken by takeBytes
}

// reserve hands out room for the frames in order.
func (t *pipeTx) reserve(lens []int32, bufs [][]byte) int {
	if t.end&(t.p.units-1) >= rewindUnits {
		t.rewind()
	}
	data, desc, units := t.p.data, t.p.desc, t.p.units
	mask := units - 1
	end, limit, tail, span := t.end, t.headEnd+units, t.tail, t.longest-headerBytes
	bufs = bufs[:len(lens)]
	bytes := uint64(0)
	at := end & mask
	free := min(units-at, limit-end) // from at on, in one piece
	n := 0
	for n < len(lens) {
		length := uint64(uint32(lens[n]))
		if length-headerBytes > span { // none is empty: each takes a unit, so descriptors cannot run out
			break
		}
		u := unitsOf(length)
		if u > free {
			if u > units-at {
				end += units - at
				at = 0
			}
			if end+u > limit {
				t.refresh()
				if limit = t.headEnd + units; end+u > limit {
					break
				}
			}
			free = min(units-at, limit-end)
		}
		off := at << unitShift
		desc[(tail+uint64(n))&mask].place = end<<16 | length
		end += u
		at += u
		free -= u
		bufs[n] = data[off : off+length : off+u<<unitShift]
		bytes += length
		n++
	}
	t.reserved, t.reservedBytes = n, bytes
	return n
}

// window gives the room for frames that is there in one piece, all of it behind end, or, when the ring's end is nearer
// than a frame of that length, at the ring's beginning; nil when there is not even that.
func (t *pipeTx) window(length uint64) []byte {
	if length-headerBytes > t.longest-headerBytes {
		return nil
	}
	if t.end&(t.p.units-1) >= rewindUnits {
		t.rewind()
	}
	units, u := t.p.units, unitsOf(length)
	end := t.end
	if at := end & (units - 1); u > units-at {
		end += units - at
	}
	if end+u > t.headEnd+units {
		if t.refresh(); end+u > t.headEnd+units {
			return nil
		}
	}
	at := end & (units - 1)
	t.start = end
	t.reserved = 0
	return t.p.data[at<<unitShift : min(units, at+t.headEnd+units-end)<<unitShift]
}

// place commits frames of these lengths that stand in the last window, each behind the one before it, and takes their
// bytes together.
func (t *pipeTx) place(lens []int32, bytes uint64) {
	if len(lens) == 0 {
		return
	}
	desc, mask, end, tail := t.p.desc, t.p.units-1, t.start, t.tail
	for i, length := range lens {
		desc[(tail+uint64(i))&mask].place = end<<16 | uint64(uint32(length))
		end += unitsOf(uint64(uint32(length)))
	}
	t.tail = tail + uint64(len(lens))
	t.end, t.start = end, end
	t.bytes += bytes
}

// rewind moves an empty pipe's next frame to the ring's beginning. No frame is in use, so that the units stepped
// over are not counted as used.
func (t *pipeTx) rewind() {
	if t.refresh(); t.head == t.tail {
		t.end = (t.end + t.p.units - 1) &^ (t.p.units - 1)
		t.headEnd = t.end
	}
}

// refresh looks how far the consumer is.
func (t *pipeTx) refresh() {
	if head := t.p.head.Load(); head != t.head { // partner: pipeRx.release
		t.head = head
		t.headEnd = t.p.desc[(head-1)&(t.p.units-1)].end()
	}
}

func (t *pipeTx) commit(n int) {
	if n == 0 {
		return
	}
	if n == t.reserved {
		t.bytes += t.reservedBytes
	} else {
		for i := range uint64(n) {
			t.bytes += t.at(t.tail + i).length()
		}
	}
	t.tail += uint64(n)
	t.end = t.at(t.tail - 1).end()
	t.reserved = 0
}

// takeBytes returns the bytes of the frames committed since it was last asked.
func (t *pipeTx) takeBytes() uint64 {
	b := t.bytes
	t.bytes = 0
	return b
}

// at returns the descriptor of a committed frame.
func (t *pipeTx) at(k uint64) *Span { return &t.p.desc[k&(t.p.units-1)] }

// resume takes the pipe over from an earlier producer.
func (t *pipeTx) resume() {
	t.pub = t.p.tail.Load()
	t.tail = t.pub
	if t.pub != 0 {
		t.end = t.at(t.pub - 1).end()
	}
	if t.head = t.p.head.Load(); t.head != 0 {
		t.headEnd = t.at(t.head - 1).end()
	}
}

// truncate forgets committed frames from counter k on, which is not below pub.
func (t *pipeTx) truncate(k uint64) {
	if k == t.tail {
		return
	}
	t.tail = k
	t.end = t.headEnd
	if k != t.head {
		t.end = t.p.desc[(k-1)&(t.p.units-1)].end()
	}
}

// publish lets the consumer see all committed frames.
func (t *pipeTx) publish() {
	t.pub = t.tail
	t.p.tail.Store(t.tail) // partner: pipeRx.available
}

// pipeRx is the consumer's half.
type pipeRx struct {
	p    *pipe
	head uint64
	tail uint64 // last seen

	given      int // by the last next, and their bytes
	givenBytes uint64
}

// next fills frames with what has arrived at the time now.
func (r *pipeRx) next(frames []Frame, now int64) int {
	if r.tail-r.head < uint64(len(frames)) {
		r.tail = r.p.tail.Load() // partner: pipeTx.publish
	}
	data, desc, mask, head := r.p.data, r.p.desc, r.p.units-1, r.head
	frames = frames[:min(len(frames), int(r.tail-head))]
	bytes := uint64(0)
	n := 0
	for n < len(frames) {
		d := &desc[(head+uint64(n))&mask]
		if d.at > now {
			break
		}
		off, length := d.In(data)
		u := unitsOf(length)
		f := &frames[n]
		f.Data = data[off : off+length : off+u<<unitShift]
		f.TimeNS = d.at
		f.Flags = 0
		bytes += length
		n++
	}
	r.given, r.givenBytes = n, bytes
	return n
}

// arrived gives the memory and the published frames that stand in one piece of the descriptors' ring, at most most.
func (r *pipeRx) arrived(most int) ([]byte, []Span) {
	if r.tail-r.head < uint64(most) {
		r.tail = r.p.tail.Load() // partner: pipeTx.publish
	}
	at := r.head & (r.p.units - 1)
	n := min(uint64(most), r.tail-r.head, r.p.units-at)
	r.given = 0
	return r.p.data, r.p.desc[at : at+n]
}

// release frees the first n frames and returns their bytes.
func (r *pipeRx) release(n int) (bytes uint64) {
	if bytes = r.givenBytes; n != r.given || n == 0 {
		bytes = 0
		for i := range uint64(n) {
			bytes += r.p.desc[(r.head+i)&(r.p.units-1)].length()
		}
	}
	r.given, r.givenBytes = 0, 0
	r.head += uint64(n)
	r.p.head.Store(r.head) // partner: pipeTx.refresh
	return bytes
}

// drain throws away all published frames and returns how many there were.
func (r *pipeRx) drain() int {
	head := r.p.head.Load()
	r.head = r.p.tail.Load()
	r.tail = r.head
	r.p.head.Store(r.head)
	return int(r.head - head)
}

// waiting returns how many published frames are not released.
func (r *pipeRx) waiting() uint64 {
	return r.p.tail.Load() - r.head // partner: pipeTx.publish
}

// due returns when the next frame arrives, math.MaxInt64 if none is on its way.
func (r *pipeRx) due() int64 {
	if r.tail == r.head {
		if r.tail = r.p.tail.Load(); r.tail == r.head {
			return math.MaxInt64
		}
	}
	return r.p.desc[r.head&(r.p.units-1)].at
}
