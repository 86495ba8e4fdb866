package ud

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// TestClosingWhilePeersAreLookedFor: Peer may run in other goroutines, and leaves nothing that Close stumbles over.
func TestClosingWhilePeersAreLookedFor(t *testing.T) {
	d := openDevice(t, "loop:"+t.Name())
	far := openDevice(t, "loop:"+t.Name())
	for round := range 100 {
		e, err := New(d, Config{SendDepth: 4, RecvDepth: 4})
		check(t, err)
		began := make(chan struct{}, 4) // a word of each, after a few or at its end
		var others sync.WaitGroup
		for g := range uint32(4) {
			others.Go(func() {
				for n := uint32(0); ; n++ {
					p, err := e.Peer(context.Background(), Addr{GID: far.GIDs()[0].GID, QPN: 1 + n%8, Flow: g})
					if n == 10 || err != nil && n < 10 {
						began <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("round %d: Peer: %v, want ErrClosed", round, err)
						}
						return
					}
					e.Forget(p)
				}
			})
		}
		<-began
		if err := e.Close(); err != nil {
			t.Fatalf("round %d: Close: %v", round, err)
		}
		others.Wait()
	}
}
