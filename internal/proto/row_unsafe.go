package proto

import (
	"bytes"
	"encoding/binary"
	"unsafe"
)

// Row is what the frames of a row of UD datagrams have in common when they are of one flow and equally long: all but
// PSN, payload and ICRC. What can be known of the CRC beforehand is computed once.
//
//	| head: Ethernet ... BTH, DETH | payload | pad 0..3 | ICRC |
//	|← first 64 →|          |← v ··· 64 →|···|← 64 →|
//	          |←   last 32  →|
//
// The payload is taken as vectors of 64 bytes, of which the last ends where the pad does. The first reaches back over the
// head, so that its mask is the same for all frames.
type Row struct {
	first   [64]byte // the head's first bytes, and zeros if it is shorter
	last    [32]byte // its last bytes
	grh     [GRHBytes]byte
	same    uint64 // which bytes of first are the same in all frames, a bit for each
	atEnd   uint64 // and which of last
	load    uint64 // which bytes of the first vector are payload
	store   uint64 // which are payload or pad
	tail    uint64 // which bytes of the last vector are payload, when it is not the first
	key     uint64 // moves a PSN to the end: a factor as the constants of the kernels are
	head    int    // bytes
	start   int    // where the first vector begins, counted from the payload: 0 or less
	padded  int    // bytes of payload and pad
	payload int    // bytes
	crc     uint32 // the ICRC of a frame whose PSN and payload are 0
	headCRC uint32 // the part of it that the head is
}

// RowGram is one datagram of a row. Frame points to a frame of FrameBytes. Data points to the payload that Seal takes,
// or to a receive buffer with room for the GRHBytes and the payload that Open writes.
type RowGram struct{ Frame, Data *byte }

// What the kernels in assembly know.
const (
	_ = -(unsafe.Offsetof(Row{}.last) ^ 64)
	_ = -(unsafe.Offsetof(Row{}.grh) ^ 96)
	_ = -(unsafe.Offsetof(Row{}.same) ^ 136)
	_ = -(unsafe.Offsetof(Row{}.padded) ^ 200)
	_ = -(unsafe.Offsetof(Row{}.crc) ^ 216)
	_ = -(unsafe.Sizeof(RowGram{}) ^ 16)
)

const (
	// GRHBytes is what stands in front of a payload in a receive buffer.
	GRHBytes = 40
	// LeastHead and MostHead bound what frames of a Row begin with.
	LeastHead, MostHead = 60, 96

	psnBack  = 4 + DETHBytes // from a head's end to the PSN's word
	psnBytes = 7             // of the word, a bit for each: the first is 0 in all frames
	rowGroup = 4             // frames that the kernels take at a time
)

// Set makes the row of frames that begin with head, LeastHead to MostHead bytes up to the end of the DETH, in which the
// PSN and the byte in front of it are 0. The payload has that many bytes. headCRC is the ICRC as far as the head goes.
// Open is to put grh in front of each payload.
func (r *Row) Set(head []byte, payload int, headCRC uint32, grh *[GRHBytes]byte) {
	*r = Row{head: len(head), payload: payload, padded: (payload + 3) &^ 3, grh: *grh, crc: headCRC, headCRC: headCRC}
	copy(r.first[:], head)
	copy(r.last[:], head[len(head)-len(r.last):])
	r.same = ^uint64(0) >> max(0, len(r.first)-len(head)) &^ (psnBytes << (len(head) - psnBack + 1))
	r.atEnd = (1<<len(r.last) - 1) &^ (psnBytes << (len(r.last) - psnBack + 1))
	r.start = r.padded - max(64, (r.padded+63)&^63)
	r.store = ^uint64(0) << -r.start
	r.tail = ^uint64(0) >> (r.padded - payload)
	if r.load = r.store; r.padded <= 64 {
		r.load &= r.tail
	}
	r.key = uint64(forward.at(r.padded+DETHBytes)) << 1
	for n := r.padded; n > 0; n -= len(zeros) {
		r.crc = ICRCRest(r.crc, zeros[:min(n, len(zeros))])
	}
}

var zeros [1024]byte

// FrameBytes is how long each frame is.
func (r *Row) FrameBytes() int { return r.head + r.padded + ICRCBytes }

// PayloadBytes is how long each payload is.
func (r *Row) PayloadBytes() int { return r.payload }

// Seal writes the frames of the grams, with PSNs that count up from psn. The caller guarantees that both pointers of
// each lead to as many bytes as RowGram says, and that no frame overlaps with another thing.
func (r *Row) Seal(grams []RowGram, psn uint32) {
	n := 0
	if groups := len(grams) / rowGroup; rowKernel && groups != 0 {
		n = groups * rowGroup
		sealAVX512((*byte)(unsafe.Pointer(r)), (*byte)(unsafe.Pointer(&grams[0])), groups, psn)
	}
	for i := n; i < len(grams); i++ {
		r.seal(&grams[i], psn+uint32(i))
	}
}

// Open returns how many of the grams are good before the first that is not, and writes the payloads of those. A frame
// is good that begins with the row's head, whatever its PSN, and whose ICRC is right. A gram that is not has nothing
// written. The caller guarantees what that of Seal does, for receive buffers; these may overlap: the last one stays.
func (r *Row) Open(grams []RowGram) (good int) {
	if groups := len(grams) / rowGroup; rowKernel && groups != 0 {
		good = rowGroup * openAVX512((*byte)(unsafe.Pointer(r)), (*byte)(unsafe.Pointer(&grams[0])), groups)
	}
	for good < len(grams) && r.open(&grams[good]) {
		good++
	}
	return good
}

// seal is Seal for one, and the judge of the kernel.
func (r *Row) seal(g *RowGram, psn uint32) {
	frame := unsafe.Slice(g.Frame, r.FrameBytes())
	payload := unsafe.Slice(g.Data, r.payload)
	psn &= low24
	copy(frame, r.first[:min(r.head, len(r.first))])
	rest := frame[r.head:]
	copy(frame[r.head-len(r.last):r.head], r.last[:])
	binary.BigEndian.PutUint32(frame[r.head-psnBack:], psn)
	clear(rest[copy(rest, payload):r.padded])
	PutICRC(rest[r.padded:], ICRCRest(r.headCRC^ICRCOfPSN(psn), rest[:r.padded]))
}

// open is Open for one, and the judge of the kernel.
func (r *Row) open(g *RowGram) bool {
	frame := unsafe.Slice(g.Frame, r.FrameBytes())
	if !r.begins(frame) {
		return false
	}
	rest := frame[r.head:]
	psn := binary.BigEndian.Uint32(frame[r.head-psnBack:])
	if ICRCRest(r.headCRC^ICRCOfPSN(psn), rest[:r.padded]) != LoadICRC(rest[r.padded:]) {
		return false
	}
	to := unsafe.Slice(g.Data, GRHBytes+r.payload)
	copy(to[copy(to, r.grh[:]):], rest)
	return true
}

func (r *Row) begins(frame []byte) bool {
	psn, n := r.head-psnBack+1, len(r.last)
	front := min(psn, len(r.first))
	return bytes.Equal(frame[:front], r.first[:front]) &&
		bytes.Equal(frame[r.head-n:psn], r.last[:n-psnBack+1]) &&
		bytes.Equal(frame[r.head-DETHBytes:r.head], r.last[n-DETHBytes:])
}
