package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/bluering/bluering/internal/barrier"
)

// RecordBytes is the size of a record. Records that different goroutines
// write are best kept 64 bytes apart, as libmlx5 does.
const RecordBytes = 8

// Record is a doorbell record: two big-endian words in memory shared with the
// device. Of a QP, word 0 is the receive counter and word 1 the send counter,
// 16 bits each. Of a CQ, word 0 is the consumer counter, 24 bits, and word 1
// the arm word. The zero Record is not usable; Valid tells.
//
// Each store releases what was written before it; each load acquires what the
// other side wrote before the store that it reads.
type Record struct{ words *[2]uint32 }

// NewRecord views 8 bytes, on an 8-byte boundary, as a record. The caller
// guarantees that b stays mapped while the record is used.
func NewRecord(b []byte) (Record, error) {
	if len(b) < RecordBytes {
		return Record{}, fmt.Errorf("ring: record needs %d bytes, got %d", RecordBytes, len(b))
	}
	if !aligned(b) {
		return Record{}, fmt.Errorf("ring: record not on an 8-byte boundary")
	}
	return Record{(*[2]uint32)(unsafe.Pointer(unsafe.SliceData(b)))}, nil
}

// Valid reports whether the record has memory.
func (r Record) Valid() bool { return r.words != nil }

// StoreSend announces send WQEs. Partner: LoadSend.
func (r Record) StoreSend(pi uint32) { barrier.StoreRelease32(&r.words[1], swap32(pi&0xffff)) }

// LoadSend reads the send counter. Partner: StoreSend.
func (r Record) LoadSend() uint32 { return swap32(atomic.LoadUint32(&r.words[1])) & 0xffff }

// StoreRecv announces receive entries. Partner: LoadRecv.
func (r Record) StoreRecv(pi uint32) { barrier.StoreRelease32(&r.words[0], swap32(pi&0xffff)) }

// LoadRecv reads the receive counter. Partner: StoreRecv.
func (r Record) LoadRecv() uint32 { return swap32(atomic.LoadUint32(&r.words[0])) & 0xffff }

// StoreSRQ announces the number of entries ever posted to an SRQ, unmasked.
// Partner: LoadSRQ.
func (r Record) StoreSRQ(n uint32) { atomic.StoreUint32(&r.words[0], swap32(n)) }

// LoadSRQ reads the SRQ's counter. Partner: StoreSRQ.
func (r Record) LoadSRQ() uint32 { return swap32(atomic.LoadUint32(&r.words[0])) }

// StoreCI returns consumed CQEs to the device. Partner: LoadCI.
func (r Record) StoreCI(ci uint32) { barrier.StoreRelease32(&r.words[0], swap32(ci&0xffffff)) }

// LoadCI reads the consumer counter, 24 bits. Partner: StoreCI.
func (r Record) LoadCI() uint32 { return swap32(atomic.LoadUint32(&r.words[0])) & 0xffffff }

// StoreArm writes the arm word of a CQ. Partner: LoadArm.
func (r Record) StoreArm(v uint32) { atomic.StoreUint32(&r.words[1], swap32(v)) }

// LoadArm reads the arm word of a CQ. Partner: StoreArm.
func (r Record) LoadArm() uint32 { return swap32(atomic.LoadUint32(&r.words[1])) }

// lastWord gives bytes 56..63 of a CQE as a big-endian number, so that the
// owner byte is the lowest. Atomic; partner: publishLast. It assumes an entry
// on an 8-byte boundary, which NewCQ and NewDevCQ have checked.
func lastWord(c *CQE) uint64 {
	return swap64(atomic.LoadUint64((*uint64)(unsafe.Pointer(&c[cqeLast]))))
}

// publishLast stores bytes 56..63 of a CQE behind all else. Partner: lastWord.
// It assumes an entry on an 8-byte boundary, as lastWord does.
func publishLast(c *CQE, v uint64) {
	barrier.StoreRelease((*uint64)(unsafe.Pointer(&c[cqeLast])), swap64(v))
}
