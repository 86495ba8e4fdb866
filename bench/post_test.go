package bench

import (
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

const (
	burst = 64
	depth = 4096 // requests in a send ring, and in a chunk
)

// newQP makes a raw queue pair in RTS whose ring holds depth requests; sigAll gives each a completion.
func newQP(b *testing.B, d *engine.Device, sigAll bool) (*engine.QP, *engine.CQ) {
	b.Helper()
	cq, err := d.NewCQ(2 * depth)
	if err != nil {
		b.Fatal(err)
	}
	qp, err := d.DefaultPD().NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq, MaxSendWR: depth, SigAll: sigAll})
	if err != nil {
		b.Fatal(err)
	}
	if err := qp.MoveTo(engine.StateRTS, engine.QPAttr{}); err != nil {
		b.Fatal(err)
	}
	return qp, cq
}

// drain completes all that was rung for and polls until the queue pair has nothing outstanding.
func drain(b *testing.B, n *null, qp *engine.QP, cq *engine.CQ) {
	n.complete()
	var wc [burst]engine.Completion
	for {
		got, err := cq.Poll(wc[:])
		if err != nil {
			b.Fatal(err)
		}
		for i := range got {
			if s := wc[i].Status; s != engine.StatusSuccess {
				b.Fatal(s)
			}
		}
		if sends, _ := qp.Outstanding(); sends == 0 {
			return
		}
		if got == 0 {
			b.Fatal("the completion retired too little")
		}
	}
}

// newBlocks is ring memory for a baseline, as large as that of ours.
func newBlocks(b *testing.B) []ring.Block {
	b.Helper()
	r, err := ring.NewRegion(depth*ring.BlockBytes, ring.RegionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	})
	return r.Blocks()[:depth]
}

// storeTemplates is the baseline of Post: nothing but the 64 bytes of each WQE.
//
//go:noinline
func storeTemplates(blocks []ring.Block, template *ring.Block) {
	for i := range blocks {
		blocks[i] = *template
	}
}

// BenchmarkPost posts an application's requests, one SGE each and no inline header, in bursts of 64. The baseline
// stores a 64-byte template for each.
func BenchmarkPost(b *testing.B) {
	b.Run("size=60/burst=64", func(b *testing.B) {
		d, n := openNull(b)
		qp, cq := newQP(b, d, false)
		pool, err := d.DefaultPD().AllocPool(burst, 2048)
		if err != nil {
			b.Fatal(err)
		}
		wrs := make([]engine.SendWR, burst)
		for i := range wrs {
			frame, _ := pool.Get()
			wrs[i] = engine.SendWR{ID: uint64(i), Opcode: engine.OpSend, SGEs: []engine.SGE{pool.SGE(frame, 60)}}
		}
		wrs[burst-1].Flags = engine.Signaled
		blocks, template := newBlocks(b), new(ring.Block)
		contest{
			packets: depth,
			ours: func() {
				for range depth / burst {
					if _, err := qp.Post(wrs); err != nil {
						b.Fatal(err)
					}
				}
			},
			between:  func() { drain(b, n, qp, cq) },
			baseline: func() { storeTemplates(blocks, template) },
		}.run(b)
	})
}
