package softnic

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/ring"
)

// gramWorld is a world of datagrams.
type gramWorld struct {
	world
	apart bool // requests of two pieces, and receives of two, which no row takes
	to    [3]ring.AV
	last  request // of the bursts
}

func newGramWorld(t *testing.T, params string, apart, spans bool) *gramWorld {
	clk := new(clock.Virtual)
	a, b := loopPair(t, params, Config{Clock: clk})
	if !spans {
		a.spans, b.spans = nil, nil
	}
	w := &gramWorld{apart: apart}
	attr := engine.QPAttr{QKey: 0x11111111, SQPSN: 0xfffff0}
	w.clk = clk
	w.tx = udHost(t, a, 0x111, hostConfig{sendWR: 128, memBytes: 1 << 16}, attr)
	w.rx = udHost(t, b, 0x222, hostConfig{access: rw, recvWR: 128, sge: 2, memBytes: 1 << 16}, attr)
	w.rx.keep = true
	for i := range w.to {
		f := ring.AVFields{MAC: [6]byte(macB), SrcPort: uint16(0xc001 + i), HopLimit: 9, GID: [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: 2}}
		if i == 1 {
			f.GID = [16]byte{0x20, 1, 0, 2, 15: 2}
		}
		for _, g := range a.gids {
			if to := engine.GID(f.GID); g.GID.Is4() == to.Is4() {
				f.SGIDIndex = uint8(g.Index)
			}
		}
		w.to[i] = ring.MakeAV(&f)
	}
	return w
}

// request is one datagram of a burst.
type request struct {
	off, length, to      int
	inline, signaled, se bool
	stale                uint32
	key, imm             uint32
}

func (w *gramWorld) send(id uint64, r request) {
	h := w.tx
	s := h.seg(r.off, r.length)
	s.LKey += r.stale
	ds, inline := 5, r.inline && !w.apart && r.length != 0
	switch {
	case inline:
		ds = 4 + ring.InlineDS(r.length)
	case r.length == 0:
		ds = 4
	case w.apart && r.length > 1:
		ds = 6
	}
	b, pi, ok := h.sq.Reserve(ring.BlocksFor(ds))
	if !ok {
		return
	}
	op, flags := ring.OpSend, uint8(0)
	if r.imm != 0 {
		op = ring.OpSendImm
	}
	if r.signaled {
		flags = ring.FlagSignaled
	}
	if r.se {
		flags |= ring.FlagSolicited
	}
	ring.PutCtrl(&b[0], uint16(pi), op, h.qpn, ds, flags, r.imm)
	ring.PutDatagram(&b[0], &w.to[r.to], r.key, 0x222)
	switch ds {
	case 4:
	case 6:
		head, tail := s, s
		head.Len, tail.Len, tail.Addr = 1, s.Len-1, s.Addr+1
		ring.PutData(b, 4, head)
		ring.PutData(b, 5, tail)
	default:
		if inline {
			ring.PutInline(b, 4, h.mem[r.off:r.off+r.length])
		} else {
			ring.PutData(b, 4, s)
		}
	}
	ring.PutTail(b, ds)
	h.sq.Commit(ring.BlocksFor(ds), id)
}

// tookRows reports whether rows were sent and received.
func (w *gramWorld) tookRows() bool {
	sent, received := false, false
	ways, flows := &w.tx.nic.findQP(w.tx.qpn).ud.ways, &w.rx.nic.ud.flows
	for i := range ways {
		sent = sent || ways[i].start.row
	}
	for i := range flows {
		received = received || flows[i].set
	}
	return sent && received
}

// Bursts of datagrams do the same whether they go as rows, through the wire's memory or its slices, or one by one by the
// general way. What is compared: completions, those of receives to the byte, memory, counters.
func TestRowsOfDatagramsDoWhatTheGeneralWayDoes(t *testing.T) { playBursts(t, 70, true) }

// So do datagrams alone, or in bursts too short for a row.
func TestLoneDatagramsDoWhatTheGeneralWayDoes(t *testing.T) { playBursts(t, leastGramRow, false) }

// playBursts compares the ways by bursts of fewer than most datagrams and demands rows where wantRows.
func playBursts(t *testing.T, most int, wantRows bool) {
	seeds := uint64(12)
	if raceBuild {
		seeds = 1
	}
	for _, params := range []string{"", "capacity=32768", "corrupt=.02&seed=5", "speed=10gbps"} {
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(seed, 8))
			worlds := []*gramWorld{
				newGramWorld(t, params, true, true), newGramWorld(t, params, false, true), newGramWorld(t, params, false, false),
			}
			for i := range worlds[0].tx.mem {
				b := byte(rng.Uint32())
				for _, w := range worlds {
					w.tx.mem[i] = b
				}
			}
			rows := make([]bool, len(worlds))
			for step := range 80 {
				playGrams(rng, worlds, most)
				for k, w := range worlds {
					rows[k] = rows[k] || w.tookRows()
					w.tx.nic.counters.TxWireFull = 0 // a way that ends at another datagram asks again
				}
				for k, w := range worlds[1:] {
					if what := differs(&worlds[0].world, &w.world); what != "" {
						t.Fatalf("%q seed %d step %d: way %d: %s", params, seed, step, k+1, what)
					}
					if !slices.Equal(w.rx.kept, worlds[0].rx.kept) {
						t.Fatalf("%q seed %d step %d: way %d: other receive completions", params, seed, step, k+1)
					}
				}
			}
			for i, w := range worlds {
				if len(w.in) == 0 || i == 0 && rows[i] || i != 0 && wantRows && !rows[i] {
					t.Fatalf("%q seed %d: way %d: %d were received, rows %v", params, seed, i, len(w.in), rows[i])
				}
			}
		}
	}
}

// playGrams posts one burst of fewer than most each way, the same in all worlds, and lets the devices work. Much of it is
// equal.
func playGrams(rng *rand.Rand, worlds []*gramWorld, most int) {
	n, bad, other := rng.IntN(most), rng.IntN(7*most), rng.IntN(30)
	r := worlds[0].last
	if r.key == 0 || rng.IntN(4) == 0 {
		r = request{length: rng.IntN(300), to: rng.IntN(3), inline: rng.IntN(3) == 0, se: rng.IntN(4) == 0, key: 0x11111111}
		if rng.IntN(4) == 0 {
			r.length = 600 + rng.IntN(600)
		}
	}
	for i := range n {
		r.off, r.signaled = rng.IntN(1<<15), rng.IntN(3) == 0
		if rng.IntN(8*(1+other)) == 0 {
			r.length, r.to, r.inline, r.se = rng.IntN(200), rng.IntN(3), rng.IntN(3) == 0, rng.IntN(4) == 0
			if r.imm = 0; rng.IntN(4) == 0 {
				r.imm = rng.Uint32()
			}
			if r.key = 0x11111111; rng.IntN(4) == 0 {
				r.key = []uint32{1 << 31, 7}[rng.IntN(2)]
			}
		}
		if r.inline {
			r.length = min(r.length, ring.ShortInline)
		}
		this := r
		if i == bad && !r.inline {
			this.off, this.stale = 1<<16-rng.IntN(60), rng.Uint32N(2)
		}
		for _, w := range worlds {
			w.send(uint64(i), this)
		}
	}
	worlds[0].last = r
	posts, short, foreign := rng.IntN(most), rng.IntN(10*most), rng.IntN(40*most)
	for i := range posts {
		off, room := rng.IntN(1<<15), 1300
		if i == short {
			room = 60
		}
		for _, w := range worlds {
			s := w.rx.seg(off, room)
			if i == foreign {
				s.LKey++
			}
			segs := []ring.Seg{s}
			if w.apart {
				head, tail := s, s
				head.Len, tail.Len, tail.Addr = 45, s.Len-45, s.Addr+45
				segs = []ring.Seg{head, tail}
			}
			w.rx.rq.Post(segs, uint64(i))
		}
	}
	budget, ns := 1+rng.IntN(2*most), rng.Int64N(40_000)
	for _, w := range worlds {
		w.step(budget, ns)
	}
}

// A row that the end of the wire's memory cuts goes on behind it: the wire was not full.
func TestARowCutByTheWiresEndFindsNoFullWire(t *testing.T) {
	const each, behind = 37, 3 // behind: bursts that the receiver lets lie, so that the memory does not begin anew
	for _, spans := range []bool{true, false} {
		w := newGramWorld(t, "", false, spans)
		for k := range 40 {
			for i := range each {
				w.send(uint64(i), request{off: 64 * i, length: 1000, key: 0x11111111, signaled: i == each-1})
				w.rx.rq.Post([]ring.Seg{w.rx.seg(64*i, 1300)}, uint64(i))
			}
			w.rx.rq.Publish()
			w.tx.sq.Publish()
			w.tx.nic.Step(4 * burst)
			if k >= behind {
				w.rx.nic.Step(each)
			}
			w.poll()
		}
		c := &w.tx.nic.counters
		if c.TxFrames != 40*each || len(w.in) != (40-behind)*each || c.TxWireFull != 0 || !w.tookRows() {
			t.Errorf("spans %v: %d sent, %d received, the wire was full %d times", spans, c.TxFrames, len(w.in), c.TxWireFull)
		}
	}
}

// A lone datagram for which a wire has no room waits, is counted as such, and has the wire pushed.
func TestALoneDatagramMeetsAFullWire(t *testing.T) {
	const sent, capacity = 40, 1 << 15
	w := newGramWorld(t, "capacity=32768", false, true)
	for i := range sent {
		w.send(uint64(i), request{length: 1000, key: 0x11111111, signaled: true})
		w.tx.sq.Publish()
		w.tx.nic.Step(1)
		w.poll()
	}
	c := &w.tx.nic.counters
	if c.TxFrames == sent || c.TxFrames < capacity/2/1100 {
		t.Fatalf("%d of %d sent", c.TxFrames, sent)
	}
	for range 3 {
		before := c.TxWireFull
		w.tx.nic.unflushed = false
		if n, ok := w.tx.nic.sendGram(w.tx.nic.findQP(w.tx.qpn)); n != 0 || !ok || c.TxWireFull != before+1 || !w.tx.nic.unflushed {
			t.Errorf("%d sent, full %d times more, to be pushed: %v", n, c.TxWireFull-before, w.tx.nic.unflushed)
		}
	}
}
