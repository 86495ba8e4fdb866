package wire

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// mmsgTx sends by sendmmsg from slots of its own.
type mmsgTx struct {
	txSlots
	fd       int
	tail     uint64 // committed
	sent     uint64 // taken by the kernel or skipped
	reserved int
	pads     uint64
	batch    mmsgBatch
}

func newMMsgTx(fd, slots, longest int) *mmsgTx {
	t := &mmsgTx{fd: fd, txSlots: newTxSlots(slots, longest)}
	t.batch = newBatch(t.mem, slots, t.stride)
	return t
}

func (t *mmsgTx) reserve(lens []int32, bufs [][]byte) int {
	n := t.give(t.tail, t.count()-(t.tail-t.sent), lens, bufs)
	for i, length := range lens[:n] {
		t.batch.setLen((t.tail+uint64(i))&t.mask, int(length))
	}
	t.reserved = n
	return n
}

func (t *mmsgTx) commit(n int) {
	n = min(n, t.reserved)
	for i := 0; i < n; i++ {
		slot := (t.tail + uint64(i)) & t.mask
		if length := t.batch.len(slot); length < MinFrame {
			clear(t.frame(slot, MinFrame)[length:])
			t.batch.setLen(slot, MinFrame)
			t.pads++
		}
	}
	t.tail += uint64(n)
	t.reserved = 0
}

func (t *mmsgTx) push() (frames int, bytes uint64, err error) {
	first := t.sent & t.mask
	count := min(t.tail-t.sent, t.count()-first) // up to the edge of the slots
	frames, err = t.batch.send(t.fd, first, count)
	for i := 0; i < frames; i++ {
		bytes += uint64(t.batch.len(first + uint64(i)))
	}
	t.sent += uint64(frames)
	return frames, bytes, err
}

func (t *mmsgTx) skip() uint64   { t.sent++; return 1 }
func (t *mmsgTx) pending() int   { return int(t.tail - t.sent) }
func (t *mmsgTx) padded() uint64 { return t.pads }

func (t *mmsgTx) drop() (frames uint64) {
	frames = t.tail - t.sent
	t.sent = t.tail
	return frames
}

// txDataOffset is where the kernel looks for the frame in a slot of a TPACKET_V2 transmit ring:
// TPACKET2_HDRLEN less a sockaddr_ll.
const txDataOffset = 32

// ringTx sends from a ring shared with the kernel.
type ringTx struct {
	fd       int
	mem      []byte
	slot     uint64
	slots    uint64
	longest  int
	untagged int    // the longest frame without a tag
	tail     uint64 // committed
	sent     uint64 // taken by the kernel
	refused  int    // frames that the kernel would stop at, to be reported
	done     uint64 // given back by it
	reserved int
	pads     uint64
}

func (t *ringTx) at(k uint64) []byte {
	off := (k & (t.slots - 1)) * t.slot
	return t.mem[off : off+t.slot : off+t.slot]
}

func (t *ringTx) reserve(lens []int32, bufs [][]byte) int {
	for t.done != t.sent && loadStatus(t.at(t.done)) == unix.TP_STATUS_AVAILABLE {
		t.done++
	}
	n := min(len(lens), int(t.slots-(t.tail-t.done)))
	for i := range lens[:n] {
		length := int(lens[i])
		if length < headerBytes || length > t.longest {
			n = i
			break
		}
		s := t.at(t.tail + uint64(i))
		bufs[i] = s[txDataOffset : txDataOffset+length]
		binary.NativeEndian.PutUint32(s[tpLen:], uint32(length))
	}
	t.reserved = n
	return n
}

// commit hands slots to the kernel. A frame that the kernel would refuse must not be among them: it would stop
// there for good. The frames behind such a one move up.
func (t *ringTx) commit(n int) {
	first := t.tail
	for i := 0; i < min(n, t.reserved); i++ {
		from, s := t.at(first+uint64(i)), t.at(t.tail)
		length := int(binary.NativeEndian.Uint32(from[tpLen:]))
		if length > t.untagged && binary.BigEndian.Uint16(from[txDataOffset+12:]) != unix.ETH_P_8021Q {
			t.refused++
			continue
		}
		if t.tail != first+uint64(i) {
			copy(s[txDataOffset:], from[txDataOffset:txDataOffset+length])
			binary.NativeEndian.PutUint32(s[tpLen:], uint32(length))
		}
		if length < MinFrame {
			clear(s[txDataOffset+length : txDataOffset+MinFrame])
			binary.NativeEndian.PutUint32(s[tpLen:], MinFrame)
			t.pads++
		}
		storeStatus(s, unix.TP_STATUS_SEND_REQUEST) // partner: tpacket_snd in the kernel
		t.tail++
	}
	t.reserved = 0
}

func (t *ringTx) push() (frames int, bytes uint64, err error) {
	if t.refused > 0 {
		return 0, 0, unix.EMSGSIZE
	}
	err = kick(t.fd)
	for t.sent != t.tail {
		s := t.at(t.sent)
		if loadStatus(s) == unix.TP_STATUS_SEND_REQUEST {
			break
		}
		frames++
		bytes += uint64(binary.NativeEndian.Uint32(s[tpLen:]))
		t.sent++
	}
	if err == nil && frames == 0 {
		err = unix.EAGAIN
	}
	return frames, bytes, err
}

// skip forgets a refused frame, or, if the kernel found another to stop at, that.
func (t *ringTx) skip() uint64 {
	if t.refused > 0 {
		t.refused--
	} else {
		t.sent++
	}
	return 1
}

func (t *ringTx) drop() (frames uint64) {
	frames = t.tail - t.sent + uint64(t.refused)
	t.sent, t.refused = t.tail, 0
	return frames
}

func (t *ringTx) pending() int   { return int(t.tail-t.sent) + t.refused }
func (t *ringTx) padded() uint64 { return t.pads }
