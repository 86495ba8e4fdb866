package softnic_test

import (
	"fmt"
	"log"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func newNIC(loop string, c softnic.Config) *softnic.NIC {
	w, err := wire.OpenLoop(wire.LoopOptions{Name: loop})
	check(err)
	nic, err := softnic.New(w, c)
	check(err)
	return nic
}

// A NIC beneath the engine: its rings written by hand, as a driver does it.
func ExampleNIC() {
	nic := newNIC("example-nic", softnic.Config{})
	defer nic.Close()
	mem, err := nic.AllocMemory(4096)
	check(err)
	defer mem.Close()
	key, addr, err := nic.Register(1, mem.Bytes(), 0)
	check(err)
	cqm, err := nic.NewCQ(4)
	check(err)
	cq, err := ring.NewCQ(cqm.CQEs, cqm.Rec, cqm.CQN)
	check(err)
	qpm, err := nic.NewQP(engine.QPSpec{Type: engine.RawPacket, PD: 1, SendCQN: cqm.CQN, RecvCQN: cqm.CQN,
		SQSlots: 4, RQEntries: 1, RQStride: 16})
	check(err)
	sq, err := ring.NewSQ(qpm.SQ, qpm.SQRec, ring.SQConfig{QPN: qpm.QPN, MaxBB: 1})
	check(err)
	for _, s := range []engine.QPState{engine.StateInit, engine.StateRTR, engine.StateRTS} {
		check(nic.SetState(qpm.QPN, s, engine.QPAttr{}))
	}

	w, pi, _ := sq.Reserve(1)
	ring.PutCtrl(&w[0], uint16(pi), ring.OpSend, qpm.QPN, 3, ring.FlagSignaled, 0)
	ring.PutEth0(&w[0], 0)
	ring.PutData(w, 2, ring.Seg{Addr: addr, Len: 60, LKey: key})
	sq.Commit(1, 7)
	word, _ := sq.Publish()
	nic.Ring(qpm.QPN, word) // inline: the doorbell executes the queue

	e, ok := cq.Peek()
	fmt.Println("completed:", ok, e.Op())
	var counters engine.Counters
	nic.Counters(&counters)
	fmt.Println("sent:", counters.TxFrames, "dropped for want of a peer:", counters.Drop(engine.DropNoPeer))
	// Output:
	// completed: true REQ
	// sent: 1 dropped for want of a peer: 1
}

// Two ways to run a NIC: with its queues' owner, or on a goroutine of its own.
func ExampleMode() {
	for _, mode := range []softnic.Mode{softnic.Inline, softnic.Goroutine} {
		nic := newNIC("example-mode", softnic.Config{Mode: mode, Profile: engine.ProfileMLX5, MinInline: 18})
		caps := nic.Caps()
		fmt.Println(mode, caps.Profile, caps.MinInline, "nothing to do:", nic.Progress(64), nic.Close())
	}
	// Output:
	// inline mlx5 18 nothing to do: 0 <nil>
	// goroutine mlx5 18 nothing to do: 0 <nil>
}
