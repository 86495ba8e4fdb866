package softnic

import (
	"encoding/binary"
	"unsafe"

	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// The loops through which each byte of a run goes. They check what region.slice and the slices of Go check, and then
// use pointers, because the checks that the compiler adds to them cost as much as the copy. Each has the choice of a copy
// written out: a function with both is too large to be inlined. TestRunsDoWhatTheGeneralWayDoes compares them.

// gatherRow copies the frames of run into w, each to the first multiple of wire.SpanBytes behind the one before it, and
// lists their lengths, as long as they lie in r, are frames of at most most bytes, and w has room. It returns how many
// they are and their bytes. It assumes nothing: it reads within r.mem and writes within w only.
func gatherRow(w []byte, r *region, run []ring.Seg, lens []int32, most uint32) (n int, at uint64, bytes uint64) {
	dst, room := unsafe.Pointer(unsafe.SliceData(w)), uint64(len(w))
	src, base, size, key := unsafe.Pointer(unsafe.SliceData(r.mem)), r.base, uint64(len(r.mem)), r.key
	lens = lens[:len(run)]
	span := uint64(most - ethernetHeader)
	for n < len(run) {
		g := &run[n]
		length, off := uint64(g.Len), g.Addr-base
		if g.LKey != key || length-ethernetHeader > span || off >= size || length > size-off || at+length > room {
			break
		}
		d, s := unsafe.Add(dst, at), unsafe.Add(src, off)
		if length-32 <= 32 {
			copyMiddle(d, s, length)
		} else {
			copyOther(unsafe.Slice((*byte)(d), length), unsafe.Slice((*byte)(s), length))
		}
		lens[n] = int32(length)
		bytes += length
		at += (length + wire.SpanBytes - 1) &^ (wire.SpanBytes - 1)
		n++
	}
	return n, at, bytes
}

// scatterRow copies frames, which lie in mem, to where entries say, as long as that is in r and has room for them, and
// lists their lengths. It assumes nothing: it reads within mem, whose length is a power of two, and writes within r.mem
// only.
func scatterRow(r *region, entries []ring.Seg, mem []byte, frames []wire.Span, lens []int32) (n int, bytes uint64) {
	dst, base, size, key := unsafe.Pointer(unsafe.SliceData(r.mem)), r.base, uint64(len(r.mem)), r.key
	src, all := unsafe.Pointer(unsafe.SliceData(mem)), uint64(len(mem))
	frames, lens = frames[:len(entries)], lens[:len(entries)]
	for n < len(entries) {
		g := &entries[n]
		from, length := frames[n].In(mem)
		off := g.Addr - base
		if g.LKey != key || length > uint64(g.Len) || off >= size || length > size-off || from+length > all {
			break
		}
		d, s := unsafe.Add(dst, off), unsafe.Add(src, from)
		if length-32 <= 32 {
			copyMiddle(d, s, length)
		} else {
			copyOther(unsafe.Slice((*byte)(d), length), unsafe.Slice((*byte)(s), length))
		}
		lens[n] = int32(length)
		bytes += length
		n++
	}
	return n, bytes
}

// scatterEntries is scatterRow for entries of one piece as they stand in the ring. It reads whole entries only.
func scatterEntries(r *region, entries, mem []byte, frames []wire.Span, lens []int32) (n int, bytes uint64) {
	dst, base, size, key := unsafe.Pointer(unsafe.SliceData(r.mem)), r.base, uint64(len(r.mem)), r.key
	src, all := unsafe.Pointer(unsafe.SliceData(mem)), uint64(len(mem))
	rows := unsafe.Slice((*[ring.DSBytes]byte)(unsafe.Pointer(unsafe.SliceData(entries))), len(entries)/ring.DSBytes)
	frames, lens = frames[:len(rows)], lens[:len(rows)]
	for n < len(rows) {
		e := &rows[n]
		from, length := frames[n].In(mem)
		head := binary.BigEndian.Uint64(e[0:8])
		off := binary.BigEndian.Uint64(e[8:16]) - base
		if uint32(head) != key || length > head>>32 || off >= size || length > size-off || from+length > all {
			break
		}
		d, s := unsafe.Add(dst, off), unsafe.Add(src, from)
		if length-32 <= 32 {
			copyMiddle(d, s, length)
		} else {
			copyOther(unsafe.Slice((*byte)(d), length), unsafe.Slice((*byte)(s), length))
		}
		lens[n] = int32(length)
		bytes += length
		n++
	}
	return n, bytes
}

// copyMiddle copies n bytes, 32 to 64. The caller guarantees that n are there at both places, and that they do not overlap.
func copyMiddle(d, s unsafe.Pointer, n uint64) {
	copy32((*[32]byte)(d), (*[32]byte)(s))
	copy32((*[32]byte)(unsafe.Add(d, n-32)), (*[32]byte)(unsafe.Add(s, n-32)))
}
