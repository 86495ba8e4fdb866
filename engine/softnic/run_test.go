package softnic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/ring"
)

// world is one of several loops that are to behave alike, whichever way their bursts go.
type world struct {
	clk      *clock.Virtual
	tx, rx   *host
	pieces   bool // requests of two pieces, which no run takes
	sent, in []done
}

func newWorld(t *testing.T, params string, spans, pieces bool, sge int) *world {
	clk := new(clock.Virtual)
	a, b := loopPair(t, params, Config{Clock: clk})
	if !spans {
		a.spans, b.spans = nil, nil
	}
	return &world{
		clk:    clk,
		tx:     newHost(t, a, hostConfig{sendWR: 128, maxBB: 2, memBytes: 1 << 16}),
		rx:     newHost(t, b, hostConfig{access: rw, recvWR: 128, sge: sge, memBytes: 1 << 16}),
		pieces: pieces,
	}
}

func (w *world) send(id uint64, signaled bool, s ring.Seg) {
	if w.pieces {
		head, tail := s, s
		head.Len, tail.Len, tail.Addr = 10, s.Len-10, s.Addr+10
		w.tx.post(id, signaled, nil, nil, head, tail)
		return
	}
	w.tx.post(id, signaled, nil, nil, s)
}

func (w *world) recv(id uint64, s ring.Seg) {
	if w.pieces && s.Len > 32 {
		head, tail := s, s
		head.Len, tail.Len, tail.Addr = 32, s.Len-32, s.Addr+32
		w.rx.rq.Post([]ring.Seg{head, tail}, id)
		return
	}
	w.rx.rq.Post([]ring.Seg{s}, id)
}

// revive takes a queue pair out of an error state.
func (w *world) revive(h *host) {
	q := h.nic.findQP(h.qpn)
	if q.state != engine.StateErr && q.state != engine.StateSQE {
		return
	}
	h.ok(h.nic.SetState(h.qpn, engine.StateErr, engine.QPAttr{}))
	w.poll()
	h.ok(h.nic.SetState(h.qpn, engine.StateReset, engine.QPAttr{}))
	h.sq.Reset()
	h.rq.Reset()
	for s := engine.StateInit; s <= engine.StateRTS; s++ {
		h.ok(h.nic.SetState(h.qpn, s, engine.QPAttr{}))
	}
}

func (w *world) poll() {
	w.sent = append(w.sent, w.tx.sends()...)
	w.in = append(w.in, w.rx.receives()...)
}

// Bursts of good and bad requests do the same in all four ways: through the wire's memory with receive entries of one
// piece, or of room for more, through its slices, and one by one. What is compared: completions, memory, counters.
func TestRunsDoWhatTheGeneralWayDoes(t *testing.T) {
	seeds := uint64(20)
	if raceBuild {
		seeds = 2 // the detector looks at each of four times 64 KiB after each step
	}
	for _, params := range []string{"", "capacity=32768", "speed=1gbps", "queue=8", "mtu=100"} {
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(seed, 7))
			worlds := []*world{
				newWorld(t, params, true, false, 1), newWorld(t, params, true, false, 2),
				newWorld(t, params, false, false, 2), newWorld(t, params, true, true, 2),
			}
			for i := range worlds[0].tx.mem {
				b := byte(rng.Uint32())
				for _, w := range worlds {
					w.tx.mem[i] = b
				}
			}
			for step := range 60 {
				playStep(rng, worlds)
				for k, w := range worlds[1:] {
					if what := differs(worlds[0], w); what != "" {
						t.Fatalf("%q seed %d step %d: way %d: %s", params, seed, step, k+1, what)
					}
				}
			}
			if len(worlds[0].in) == 0 {
				t.Fatalf("%q seed %d: nothing was received", params, seed)
			}
		}
	}
}

// playStep posts one burst each way, the same in all worlds, and lets the devices work.
func playStep(rng *rand.Rand, worlds []*world) {
	n, bad, stale := rng.IntN(64), rng.IntN(400), rng.IntN(400)
	size := 60
	for i := range n {
		if rng.IntN(4) == 0 {
			size = 14 + rng.IntN(200)
		}
		off, signaled, length := rng.IntN(1<<15), rng.IntN(3) != 0, size
		if i == bad { // a frame too short, too long, out of bounds
			length, off = []int{13, 9019, 60}[rng.IntN(3)], 1<<16-rng.IntN(60)
		}
		wrong := uint32(0)
		if i == stale { // the key of another generation
			wrong = 1
		}
		for _, w := range worlds {
			s := w.tx.seg(off, length)
			s.LKey += wrong
			w.send(uint64(i), signaled, s)
		}
	}
	posts, short, foreign := rng.IntN(70), rng.IntN(500), rng.IntN(3000)
	for i := range posts {
		off, room := rng.IntN(1<<15), 256
		if i == short {
			room = 40
		}
		for _, w := range worlds {
			s := w.rx.seg(off, room)
			if i == foreign {
				s.LKey++
			}
			w.recv(uint64(i), s)
		}
	}
	budget, ns := 1+rng.IntN(150), rng.Int64N(40_000)
	for _, w := range worlds {
		w.step(budget, ns)
	}
}

// step lets the devices see what was posted, work once each, and be polled.
func (w *world) step(budget int, ns int64) {
	w.clk.Advance(ns)
	w.rx.rq.Publish()
	w.tx.sq.Publish()
	w.tx.nic.Step(budget)
	w.rx.nic.Step(budget)
	w.poll()
	w.revive(w.tx)
	w.revive(w.rx)
}

// differs names what is not the same in two worlds.
func differs(a, b *world) string {
	for side, s := range [][2][]done{{a.sent, b.sent}, {a.in, b.in}} {
		for i := range min(len(s[0]), len(s[1])) {
			if s[0][i] != s[1][i] {
				return fmt.Sprintf("side %d, completion %d: %+v and %+v", side, i, s[0][i], s[1][i])
			}
		}
		if len(s[0]) != len(s[1]) {
			return fmt.Sprintf("side %d, %d completions and %d", side, len(s[0]), len(s[1]))
		}
	}
	if !bytes.Equal(a.rx.mem, b.rx.mem) {
		return "other bytes were received"
	}
	for _, h := range [][2]*host{{a.tx, b.tx}, {a.rx, b.rx}} {
		var c [2]engine.Counters
		var s [2]wire.Stats
		for i := range h {
			h[i].nic.Counters(&c[i])
			h[i].nic.wire.Stats(&s[i])
		}
		if c[0] != c[1] || s[0] != s[1] {
			return fmt.Sprintf("counters %+v and %+v, wire %+v and %+v", c[0], c[1], s[0], s[1])
		}
	}
	return ""
}
