package traffic

import "fmt"

// tracker accounts for every tagged frame that arrived: first time, again, out
// of order, too old to judge. Each flow has the number after its highest
// sequence and a bitmap of its last W sequences, in one flat table:
//
//	flow f:  [ next | bitmap of W bits ]      bit = sequence mod W
//
//	... next-W ........................ next-1 | next ...
//	stale  |  seen: duplicate, else reordered  |  new: the window moves up
//
// One goroutine owns it.
type tracker struct {
	table  []uint64
	stride uint64 // words of a flow
	window uint64 // W, a power of two
	flows  uint64

	unique    uint64
	duplicate uint64
	reordered uint64
	stale     uint64
	spanned   uint64 // sequences up to the highest seen, over all flows
	extentMax uint64 // largest lag behind the highest seen
}

// windowOf is the number of sequences remembered per flow.
func windowOf(flows int) uint64 {
	switch {
	case flows <= 64:
		return 65536
	case flows <= 65536:
		return 1024
	}
	return 64
}

func newTracker(flows int) (*tracker, error) {
	if flows < 1 || flows > MaxFlows {
		return nil, fmt.Errorf("%d flows, want 1 to %d", flows, MaxFlows)
	}
	t := &tracker{window: windowOf(flows), flows: uint64(flows)}
	t.stride = 1 + t.window/64
	t.table = make([]uint64, t.flows*t.stride)
	return t, nil
}

// next is the number after the highest sequence seen of a flow: what a 40-bit
// sequence is extended against. The flow must be known.
func (t *tracker) next(flow uint32) uint64 { return t.table[uint64(flow)*t.stride] }

// see books sequence seq of a known flow, and reports whether it is its first
// arrival.
func (t *tracker) see(flow uint32, seq uint64) bool {
	at := uint64(flow) * t.stride
	row := t.table[at : at+t.stride]
	next, set := row[0], row[1:]
	word, bit := seq&(t.window-1)>>6, uint64(1)<<(seq&63)
	if seq == next { // the usual case: the window moves up by one
		if word < uint64(len(set)) {
			set[word] |= bit
		}
		row[0] = next + 1
		t.spanned++
		t.unique++
		return true
	}
	if seq > next {
		t.advance(set, next, seq)
		set[word] |= bit
		row[0] = seq + 1
		t.spanned += seq + 1 - next
		t.unique++
		return true
	}
	if next-seq > t.window {
		t.stale++
		return false
	}
	if set[word]&bit != 0 {
		t.duplicate++
		return false
	}
	set[word] |= bit
	t.unique++
	t.reordered++
	t.extentMax = max(t.extentMax, next-1-seq)
	return true
}

// advance clears the bits of sequences from..to, which enter the window unseen.
func (t *tracker) advance(set []uint64, from, to uint64) {
	if to-from >= t.window {
		clear(set)
		return
	}
	mask := t.window - 1
	for from <= to {
		word := from & mask >> 6
		n := min(64-from&63, to-from+1) // bits of this word
		set[word] &^= ^uint64(0) >> (64 - n) << (from & 63)
		from += n
	}
}

// gaps is how many sequences below the highest seen of their flows have not
// arrived: loss, but for what was lost after the last arrival.
func (t *tracker) gaps() uint64 { return t.spanned - t.unique }
