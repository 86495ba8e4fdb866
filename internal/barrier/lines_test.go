package barrier

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// Whoever sees the number sees what was written before it.
func TestStoreReleaseComesBehindEarlierStores(t *testing.T) {
	const rounds = 20000
	var data [3]uint64
	var wide, taken uint64
	var narrow uint32
	go func() {
		for i := uint64(1); i <= rounds; i++ {
			for atomic.LoadUint64(&taken) != i-1 {
				runtime.Gosched()
			}
			data[0], data[1] = i, ^i
			StoreRelease32(&narrow, uint32(i))
			data[2] = i << 32
			StoreRelease(&wide, i|1<<63)
		}
	}()
	for i := uint64(1); i <= rounds; i++ {
		for atomic.LoadUint32(&narrow) != uint32(i) {
			runtime.Gosched()
		}
		if data[0] != i || data[1] != ^i {
			t.Fatalf("round %d: %#x", i, data)
		}
		for atomic.LoadUint64(&wide) != i|1<<63 {
			runtime.Gosched()
		}
		if data[2] != i<<32 {
			t.Fatalf("round %d: %#x", i, data)
		}
		atomic.StoreUint64(&taken, i)
	}
}

// Of two that each store and then look at what the other stored, one at least sees it.
func TestStoreLoadKeepsAStoreAheadOfALook(t *testing.T) {
	const rounds = 20000
	var flags [2]struct {
		v uint64
		_ [120]byte
	}
	var saw [2][rounds]bool
	var arrived atomic.Uint64
	play := func(me int) {
		for i := range uint64(rounds) {
			arrived.Add(1)
			for arrived.Load() < 2*(i+1) {
				runtime.Gosched()
			}
			StoreRelease(&flags[me].v, i+1)
			StoreLoad()
			saw[me][i] = atomic.LoadUint64(&flags[1-me].v) > i
		}
	}
	done := make(chan struct{})
	go func() {
		play(1)
		close(done)
	}()
	play(0)
	<-done
	for i := range rounds {
		if !saw[0][i] && !saw[1][i] {
			t.Fatalf("round %d: neither saw the other", i)
		}
	}
}
