package csum

import (
	"encoding/binary"
	"math/bits"
)

// Train writes frames that differ in their payload, in numbers that count up, and
// in checksums, as segments of one packet do. It belongs to one goroutine.
//
// A place is an offset in the frame, and 0 means that there is no such field.
type Train struct {
	Head []byte // of every frame, with its fields that stay; not kept longer than the Train
	Size int    // payload bytes of a frame

	IDPlace  int // of the IPv4 identification
	ID       uint16
	IPPlace  int    // of the IPv4 header's checksum; none without IDPlace
	IPSum    uint32 // of that header without identification and checksum
	SeqPlace int    // of the TCP sequence number, which goes up by Size
	Seq      uint32
	SumPlace int    // of the TCP or UDP checksum
	Sum      uint32 // of what it covers without sequence number and payload, the pseudo header included
	Zero     uint16 // what a checksum of 0 is written as
}

// Write writes a frame to each of frames, which are as long as Head and Size at
// least, with the next Size bytes of src each, and leaves ID and Seq as the frame
// behind needs them. The fastest are frames that begin where a cache line does. It
// panics, having written nothing, when frames or src are too short.
func (t *Train) Write(frames [][]byte, src []byte) {
	for i := range frames {
		_ = frames[i][:len(t.Head)+t.Size]
	}
	src = src[:len(frames)*t.Size]
	if len(frames) == 0 {
		return
	}
	if kernel != avx512 || t.Size < leastTrain || t.Size > chunk || len(t.Head) >= 128 || len(t.Head)&1 != 0 {
		t.write(frames, src)
		return
	}
	v := [9]uint64{uint64(t.IDPlace), uint64(t.IPPlace), uint64(t.SeqPlace), uint64(t.SumPlace),
		uint64(t.ID), littleSum(t.IPSum), uint64(t.Seq), littleSum(t.Sum), uint64(t.Zero)}
	trainAVX512(&frames[0], len(frames), &t.Head[0], len(t.Head), &src[0], t.Size, &v)
	t.ID, t.Seq = uint16(v[4]), uint32(v[6])
}

// littleSum is a sum of big-endian words as one of little-endian words.
func littleSum(s uint32) uint64 { return uint64(bits.ReverseBytes16(Fold64(uint64(s)))) }

// write is Write for every machine.
func (t *Train) write(frames [][]byte, src []byte) {
	for i, dst := range frames {
		copy(dst, t.Head)
		sum := uint64(t.Sum) + uint64(Copy(dst[len(t.Head):], src[i*t.Size:][:t.Size], 0))
		if t.IDPlace != 0 {
			binary.BigEndian.PutUint16(dst[t.IDPlace:], t.ID)
			if t.IPPlace != 0 {
				binary.BigEndian.PutUint16(dst[t.IPPlace:], ^Fold64(uint64(t.IPSum)+uint64(t.ID)))
			}
			t.ID++
		}
		if t.SeqPlace != 0 {
			binary.BigEndian.PutUint32(dst[t.SeqPlace:], t.Seq)
			sum += uint64(t.Seq)
			t.Seq += uint32(t.Size)
		}
		if t.SumPlace != 0 {
			c := ^Fold64(sum)
			if c == 0 {
				c = t.Zero
			}
			binary.BigEndian.PutUint16(dst[t.SumPlace:], c)
		}
	}
}
