package traffic

// Sizes is a frame size, a range of sizes or a mix, FCS included. The zero
// value means 64.
type Sizes struct {
	entries []sizeEntry
	random  bool
	text    string
}

type sizeEntry struct {
	low, high int
	weight    int
}

type sizeMix struct{}

func (m *sizeMix) at(k uint64) int { return 0 }
