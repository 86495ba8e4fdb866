package softnic

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

var simSeed = flag.Uint64("sim.seed", 0, "replay the simulation of this seed only")

// actor is one side's queue pair in the simulation, with what its owner believes.
type actor struct {
	*host
	nextSend uint64
	nextRecv uint64
	retired  uint64 // send WRs: each must be retired exactly once, in order
	taken    uint64
}

// TestSimulation drives two QPs at random: good and bad posts, state changes, steps of any budget. Every WR
// must be retired exactly once and in order, and every frame must be accounted for.
func TestSimulation(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	var seen engine.Counters
	for _, seed := range seeds {
		for _, drop := range []bool{false, true} {
			simulate(t, seed, drop, &seen)
		}
	}
	for name, n := range map[string]uint64{
		"TxFrames": seen.TxFrames, "TxErrors": seen.TxErrors, "TxFlushed": seen.TxFlushed, "TxWireFull": seen.TxWireFull,
		"RxFrames": seen.RxFrames, "RxFlushed": seen.RxFlushed, "no_wqe": seen.Drops[engine.DropNoWQE],
		"oversize": seen.Drops[engine.DropOversize], "protection": seen.Drops[engine.DropProtection], "state": seen.Drops[engine.DropState],
	} {
		if n == 0 {
			t.Errorf("the simulation never saw %s", name)
		}
	}
}

func simulate(t *testing.T, seed uint64, drop bool, seen *engine.Counters) {
	rng := rand.New(rand.NewPCG(seed, 99))
	a, b := loopPair(t, "capacity=8KiB&mtu=1500", Config{Drop: drop})
	actors := [2]*actor{}
	for i, n := range []*NIC{a, b} {
		h := newHost(t, n, hostConfig{sendWR: 20, maxBB: 3, recvWR: 16, sge: 2, access: rw, memBytes: 4096, cqe: 63})
		actors[i] = &actor{host: h}
	}
	for step := range 6000 {
		if t.Failed() {
			t.Fatalf("seed %d, drop %v, step %d", seed, drop, step)
		}
		x := actors[rng.IntN(2)]
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			x.postSome(rng)
		case 4, 5, 6:
			x.postReceives(rng)
		case 7, 8:
			x.nic.Step(1 + rng.IntN(20))
		case 9, 10:
			x.poll()
		case 11:
			if rng.IntN(8) == 0 || x.nic.findQP(x.qpn).state == engine.StateErr {
				x.changeState(rng)
			}
		}
	}
	for _, x := range actors {
		x.ok(x.nic.SetState(x.qpn, engine.StateErr, engine.QPAttr{}))
		x.settle()
		if x.retired != x.nextSend || x.taken != x.nextRecv {
			t.Fatalf("seed %d: %d of %d sends retired, %d of %d receives", seed, x.retired, x.nextSend, x.taken, x.nextRecv)
		}
	}
	account(t, a, b)
	account(t, b, a)
	for i, n := range []*NIC{a, b} {
		before := seen.TxFrames + seen.TxErrors + seen.TxFlushed
		n.Counters(seen) // adds
		if did := seen.TxFrames + seen.TxErrors + seen.TxFlushed - before; did != actors[i].nextSend {
			t.Fatalf("seed %d: %d send WQEs executed of %d posted", seed, did, actors[i].nextSend)
		}
	}
}

func (x *actor) postSome(rng *rand.Rand) {
	plain := rng.IntN(2) == 0 // a run of short WQEs
	for range 1 + rng.IntN(16) {
		size := 14 + rng.IntN(200)
		seg := x.seg(rng.IntN(1000), size)
		if rng.IntN(200) == 0 {
			seg.LKey++
		}
		binary.BigEndian.PutUint64(x.mem, x.nextSend)
		var inline []byte
		segs := []ring.Seg{seg}
		switch kind := rng.IntN(3); {
		case plain:
		case kind == 0:
			inline, segs = x.mem[:14+rng.IntN(100)], nil
		case kind == 1:
			segs = append(segs, x.seg(2000, 1+rng.IntN(50)))
		}
		if x.sq.Outstanding() >= x.sq.MaxWR() || !x.post(x.nextSend, rng.IntN(3) != 0, nil, inline, segs...) {
			break
		}
		x.nextSend++
	}
	x.ring()
}

func (x *actor) postReceives(rng *rand.Rand) {
	for range 1 + rng.IntN(8) {
		s := []ring.Seg{x.seg(3000, 20), x.seg(3020, 40+rng.IntN(500))}
		if rng.IntN(2) == 0 {
			s = s[1:]
		}
		if rng.IntN(300) == 0 {
			s[0].LKey++
		}
		if !x.rq.Post(s, x.nextRecv) {
			break
		}
		x.nextRecv++
	}
	x.rq.Publish()
}

func (x *actor) poll() {
	for _, d := range x.sends() {
		x.retired += uint64(d.retired)
		if d.wrID+1 != x.retired {
			x.t.Errorf("send %d completed as the %dth", d.wrID, x.retired)
		}
	}
	for _, d := range x.receives() {
		if d.wrID != x.taken {
			x.t.Errorf("receive %d completed as number %d", d.wrID, x.taken)
		}
		x.taken++
	}
}

// settle polls after a flush. Unsignaled sends behind the last completion were executed and have none.
func (x *actor) settle() {
	x.poll()
	x.retired += uint64(x.sq.Outstanding())
}

// changeState sends the QP through a drain, or through ERR and RESET back to RTS: what was posted before is
// flushed and polled, and the next life counts on.
func (x *actor) changeState(rng *rand.Rand) {
	if x.nic.findQP(x.qpn).state == engine.StateRTS && rng.IntN(2) == 0 {
		x.ok(x.nic.SetState(x.qpn, engine.StateSQD, engine.QPAttr{}))
		x.nic.Step(8)
		if x.nic.findQP(x.qpn).state == engine.StateSQD { // a receive error may have ended it
			x.ok(x.nic.SetState(x.qpn, engine.StateRTS, engine.QPAttr{}))
		}
		return
	}
	x.ok(x.nic.SetState(x.qpn, engine.StateErr, engine.QPAttr{}))
	x.settle()
	x.nic.Step(64) // packets for a QP in ERR
	x.ok(x.nic.SetState(x.qpn, engine.StateReset, engine.QPAttr{}))
	x.sq.Reset()
	x.rq.Reset()
	for s := engine.StateInit; s <= engine.StateRTS; s++ {
		x.ok(x.nic.SetState(x.qpn, s, engine.QPAttr{}))
	}
}
