package wire

// txSlots is memory for frames to send, a slot for each. Slots go by free-running counters.
type txSlots struct {
	mem     []byte
	stride  int
	longest int
	mask    uint64
}

func newTxSlots(slots, longest int) txSlots {
	// One line more than the frame needs: strides that are powers of two would share a few cache sets.
	stride := int(unitsOf(uint64(longest)))*unitBytes + unitBytes
	return txSlots{mem: make([]byte, slots*stride), stride: stride, longest: longest, mask: uint64(slots - 1)}
}

// count is how many slots there are.
func (s *txSlots) count() uint64 { return s.mask + 1 }

// frame is the beginning of slot k, with the slot as its capacity.
func (s *txSlots) frame(k uint64, length int) []byte {
	at := int(k&s.mask) * s.stride
	return s.mem[at : at+length : at+s.stride]
}

// give fills bufs from slot k on, of which free ones follow, up to a frame without a length that fits.
func (s *txSlots) give(k, free uint64, lens []int32, bufs [][]byte) int {
	n := min(len(lens), int(free))
	for i, length := range lens[:n] {
		if length < headerBytes || int(length) > s.longest {
			return i
		}
		bufs[i] = s.frame(k+uint64(i), int(length))
	}
	return n
}
