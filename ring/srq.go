package ring

import "encoding/binary"

// An SRQ entry is a 16-byte link, then pieces. The free list is the chain of
// links: the index of the next entry stands in bytes 2..3, the rest is zero
// (struct mlx5_wqe_srq_next_seg). Posting never rewrites a link; a completed
// entry is appended by writing its index into the link of the old tail.
const (
	srqLinkBytes = 16
	srqNext      = 2 // next_wqe_index
)

// SRQStride gives the bytes of an SRQ entry with room for askedSGE pieces, and
// the pieces it grants.
func SRQStride(askedSGE int) (stride, maxSGE int) {
	stride = max(2*DSBytes, pow2ceil(srqLinkBytes+askedSGE*DSBytes))
	return stride, stride/DSBytes - 1
}

// InitSRQ clears the entries and chains them within parts of n entries: each
// points to the one behind it, the last of a part to entry 0.
func InitSRQ(mem []byte, stride, n int) {
	clear(mem)
	for i := 0; (i+1)*stride <= len(mem); i++ {
		if i%n != n-1 {
			SetSRQNext(mem[i*stride:], uint16(i+1))
		}
	}
}

// SRQNext reads an entry's link.
func SRQNext(entry []byte) uint16 { return binary.BigEndian.Uint16(entry[srqNext:]) }

// SetSRQNext writes an entry's link.
func SetSRQNext(entry []byte, next uint16) { binary.BigEndian.PutUint16(entry[srqNext:], next) }

// PutSRQEntry writes the pieces behind the link, empty ones too, and the
// terminator if there is room for one. It is false, and nothing is written,
// when the pieces are too many.
func PutSRQEntry(entry []byte, segs []Seg) bool {
	if len(entry) < srqLinkBytes || len(segs) > len(entry)/DSBytes-1 {
		return false
	}
	entry = entry[srqLinkBytes:]
	for i := range segs {
		putSeg(entry, segs[i])
		entry = entry[DSBytes:]
	}
	if len(entry) >= DSBytes {
		putSeg(entry, Seg{LKey: TermLKey})
	}
	return true
}

// GetSRQEntry reads the pieces behind the link, as GetScatter does.
func GetSRQEntry(entry []byte, segs []Seg) (n int) {
	if len(entry) < srqLinkBytes {
		return 0
	}
	return GetScatter(entry[srqLinkBytes:], segs)
}
