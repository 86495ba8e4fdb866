package wire

import (
	"math"
	"sync/atomic"

	"github.com/bluering/bluering/internal/barrier"
)

// pipe is one direction of a loop: a byte ring of frames that start at multiples of 64 bytes and never
// cross the ring's end, and beside it a ring of descriptors. One producer, one consumer.
//
//	data  │ frame 7 ·· │ frame 8 │ (skipped) ║ frame 9 ······ │ free │
//	desc  │ 7 │ 8 │ 9 │ free ...
//	          ▲ head            ▲ tail
//
// Every position is a free-running counter, masked at the moment of use. The consumer waits at the descriptor that is
// next. So the first descriptor of what is published together is kept aside until then, marked, and stored atomically; it
// is one of this lap when its frame does not begin before the one in front of it ended. It releases the others, which tail
// counts. A lone frame says that it is one: nobody has to look at tail, and two cache lines go to the other processor, those
// of descriptor and bytes. The producer finds the free bytes from head and its own descriptors, which the consumer never
// writes.
type pipe struct {
	data  []byte
	desc  []Span
	units uint64 // of 64 bytes, a power of two; there are as many descriptors

	_    [128]byte
	tail atomic.Uint64 // behind the descriptors published by pipeTx.publish, read by pipeRx
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
	// place is the counter of its first unit, of which 46 bits are kept, shifted left by 16, and its length.
	place uint64
	at    int64 // when it arrives; 0: at once
}

// Marks in a place, on the first descriptor of what is published together only.
const (
	spanFirst   = 1 << 63
	spanLone    = 1 << 62 // and the last
	counterBits = 46
)

// In gives where the frame begins in the memory that Arrived gave with it, and its length.
func (d *Span) In(mem []byte) (off, length uint64) {
	return d.place >> 16 << unitShift & uint64(len(mem)-1), d.length()
}

func (d *Span) length() uint64 { return d.place & 0xffff }

// end gives the counter behind the frame's last unit, near another of this lap or the one before.
func (d *Span) end(near uint64) uint64 {
	return near + after(near, d.place>>16+unitsOf(d.length()))
}

// after is how far counter b, of which 46 bits are known, is after a; the difference has a sign.
func after(a, b uint64) uint64 { return uint64(int64((b-a)<<(64-counterBits)) >> (64 - counterBits)) }

func placeOf(start, length uint64) uint64 {
	return start<<16&(1<<(counterBits+16)-1) | length
}

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
	reservedEnd   uint64 // of the last frame
	bytes         uint64 // committed and not taken by takeBytes
	first         Span   // descriptor of counter pub, until it is published
}

// reserve hands out room for the frames in order.
func (t *pipeTx) reserve(lens []int32, bufs [][]byte) int {
	if t.end&(t.p.units-1) >= rewindUnits {
		t.rewind()
	}
	if len(lens) == 1 {
		if bufs[0] = t.reserveNext(uint64(uint32(lens[0]))); bufs[0] != nil {
			return 1
		}
	}
	data, desc, units := t.p.data, t.p.desc, t.p.units
	mask := units - 1
	end, limit, tail, span := t.end, t.headEnd+units, t.tail, t.longest-headerBytes
	bufs = bufs[:len(lens)]
	bytes := uint64(0)
	at := end & mask
	free := min(units-at, limit-end) // from at on, in one piece
	d := t.next()
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
		d.place = placeOf(end, length)
		end += u
		t.reservedEnd = end
		at += u
		free -= u
		bufs[n] = data[off : off+length : off+u<<unitShift]
		bytes += length
		n++
		d = &desc[(tail+uint64(n))&mask]
	}
	t.reserved, t.reservedBytes = n, bytes
	return n
}

// reserveNext is reserve for one frame, if there is room right behind the last; else nil.
func (t *pipeTx) reserveNext(length uint64) []byte {
	at, u := t.end&(t.p.units-1), unitsOf(length)
	end := t.end + u
	if length-headerBytes > t.longest-headerBytes || at+u > t.p.units || end > t.headEnd+t.p.units {
		return nil
	}
	t.next().place = placeOf(t.end, length)
	t.reserved, t.reservedBytes, t.reservedEnd = 1, length, end
	off := at << unitShift
	return t.p.data[off : off+length : off+u<<unitShift]
}

// next is where the descriptor of the next frame is written.
func (t *pipeTx) next() *Span {
	if t.tail == t.pub {
		t.first.at = 0
		return &t.first
	}
	return &t.p.desc[t.tail&(t.p.units-1)]
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
	desc, mask, tail := t.p.desc, t.p.units-1, t.tail
	begin := placeOf(t.start, 0)
	at := begin
	if tail == t.pub {
		length := uint64(uint32(lens[0]))
		t.first = Span{place: at | length}
		at += unitsOf(length) << 16
		lens = lens[1:]
		tail++
	}
	for i, length := range lens { // at may reach the lower mark, which means nothing without the other
		desc[(tail+uint64(i))&mask].place = at | uint64(uint32(length))
		at += unitsOf(uint64(uint32(length))) << 16
	}
	t.tail = tail + uint64(len(lens))
	t.start += (at - begin) >> 16
	t.end = t.start
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
		t.headEnd = t.p.endOf(head, t.end)
	}
}

func (t *pipeTx) commit(n int) {
	if n == 0 {
		return
	}
	if n == t.reserved {
		t.bytes += t.reservedBytes
		t.end = t.reservedEnd
	} else {
		for i := range uint64(n) {
			d := t.at(t.tail + i)
			t.bytes += d.length()
			t.end = d.end(t.end)
		}
	}
	t.tail += uint64(n)
	t.reserved = 0
}

// takeBytes returns the bytes of the frames committed since it was last asked.
func (t *pipeTx) takeBytes() uint64 {
	b := t.bytes
	t.bytes = 0
	return b
}

// at returns the descriptor of a committed frame, or of one published before.
func (t *pipeTx) at(k uint64) *Span {
	if k == t.pub {
		return &t.first
	}
	return &t.p.desc[k&(t.p.units-1)]
}

// producer gives the producer's half, which goes on where an earlier one ended.
func (p *pipe) producer(longest int) pipeTx {
	pub, head := p.tail.Load(), p.head.Load()
	end := p.endOf(pub, 0)
	return pipeTx{p: p, longest: uint64(longest), pub: pub, tail: pub, end: end, head: head, headEnd: p.endOf(head, end)}
}

// consumer gives the consumer's half. What an earlier one left is thrown away; gone is how many frames that are.
func (p *pipe) consumer() (r pipeRx, gone int) {
	r.p = p
	return r, r.drain()
}

// endOf gives where the frames published before counter k end. Positions begin a lap late, so that no descriptor is taken
// for one of a lap that there was not.
func (p *pipe) endOf(k, near uint64) uint64 {
	if k == 0 {
		return p.units
	}
	return p.desc[(k-1)&(p.units-1)].end(near)
}

// truncate forgets committed frames from counter k on, which is not below pub.
func (t *pipeTx) truncate(k uint64) {
	if k == t.tail {
		return
	}
	t.tail = k
	t.end = t.headEnd
	if k != t.head {
		t.end = t.at(k - 1).end(t.end)
	}
}

// publish lets the consumer see all committed frames.
func (t *pipeTx) publish() {
	if t.tail == t.pub {
		return
	}
	d := &t.p.desc[t.pub&(t.p.units-1)]
	d.at = t.first.at
	place := t.first.place | spanFirst
	if t.tail-t.pub == 1 {
		place |= spanLone
	}
	barrier.StoreRelease(&d.place, place) // partner: pipeRx.ready
	t.pub = t.tail
	t.p.tail.Store(t.tail) // partner: pipeRx.look; it keeps both stores ahead of what is looked at next
}

// pipeRx is the consumer's half.
type pipeRx struct {
	p    *pipe
	head uint64
	tail uint64 // as far as is known
	end  uint64 // of the last frame before tail

	given      int // by the last next, and their bytes
	givenBytes uint64
}

// look finds out about more frames when fewer are known of than are wanted.
func (r *pipeRx) look(want int) {
	if r.tail-r.head < uint64(want) { // the next frame's lines come beside its descriptor's, not behind it
		barrier.Prefetch(&r.p.data[r.end&(r.p.units-1)<<unitShift])
	}
	for r.tail-r.head < uint64(want) {
		place, known := r.ready(), r.tail
		switch {
		case place == 0:
			return
		case place&spanLone != 0:
			d := Span{place: place}
			r.tail, r.end = known+1, d.end(r.end)
		default:
			if r.know(r.published()); r.tail == known {
				return // tail is not told of yet
			}
		}
	}
}

// ready gives the place of the frame at tail if it was published, with marks; else 0.
func (r *pipeRx) ready() uint64 {
	place := atomic.LoadUint64(&r.p.desc[r.tail&(r.p.units-1)].place) // partner: pipeTx.publish
	if place&spanFirst == 0 || int64(after(r.end, place>>16)) < 0 {
		return 0
	}
	return place
}

// know notes that frames up to counter tail are published.
func (r *pipeRx) know(tail uint64) { r.tail, r.end = tail, r.p.endOf(tail, r.end) }

// next fills frames with what has arrived at the time now.
func (r *pipeRx) next(frames []Frame, now int64) int {
	if r.look(len(frames)); r.tail == r.head {
		r.given = 0
		return 0
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
	r.look(most)
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
	r.know(r.published())
	r.head = r.tail
	r.p.head.Store(r.head)
	return int(r.head - head)
}

// published is the counter behind the frames that are known of or counted in tail.
func (r *pipeRx) published() uint64 {
	if tail := r.p.tail.Load(); int64(tail-r.tail) > 0 { // partner: pipeTx.publish
		return tail
	}
	return r.tail
}

// waiting returns how many published frames are not released.
func (r *pipeRx) waiting() uint64 { return r.published() - r.head }

// due returns when the next frame arrives, math.MaxInt64 if none is on its way.
func (r *pipeRx) due() int64 {
	if r.tail == r.head && r.ready() == 0 {
		return math.MaxInt64
	}
	return r.p.desc[r.head&(r.p.units-1)].at
}
