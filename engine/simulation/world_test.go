package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
)

// The memory of a side is cut into slots, each with a guard before and behind its room.
const (
	guard     = 16
	room      = 320
	slotBytes = guard + room + guard
	slots     = 80
	tail      = 64 // behind the last slot: what runs over the region's end starts here
	memBytes  = slots*slotBytes + tail
	tempBytes = slots*slotBytes - guard // up to the last byte of the last room

	guardByte = 0x5a
	freshByte = 0xa5 // of a posted receive

	mtu      = 200
	maxFrame = mtu + 14 + 4
)

// world is one history.
type world struct {
	seed  uint64
	rnd   *rand.Rand
	clk   clock.Virtual
	opts  wire.LoopOptions
	cfg   softnic.Config
	sides [2]*side
	pairs []*pair // of both sides, by id, dead ones too
	seen  *coverage
	trace func(format string, args ...any)
	roomy bool // completion queues that cannot overrun
	grams bool // datagrams can be sent
	did   string
	wrID  uint64
}

// side is one device and what was made of it.
type side struct {
	*world
	n      int
	name   string
	nic    *backend
	dev    *engine.Device
	tap    *tap
	spans  bool // the NIC may use the wire's memory
	pd     *engine.PD
	pd2    *engine.PD
	ah     *engine.AH
	ahs    []*engine.AH // of datagrams to the other side
	ways   []gram       // what they say
	uds    int          // UD queue pairs alive
	since  int          // in the tap's log: from there on there was always one
	mem    []byte
	free   []int
	rw     engine.MR // all of mem, as are the others but temp
	ro     engine.MR
	alien  engine.MR // of pd2
	temp   engine.MR // deregistered now and then; tempBytes long
	stale  engine.MR // a handle that was
	queues []*queue
	pairs  []*pair // alive
	shared []*shared
	closed bool
	last   engine.Counters // before it was closed

	posted    uint64 // sends
	discarded uint64 // sends that RESET or destruction took away unexecuted
	failed    uint64 // sends failed or flushed, as completions tell
	okRecvs   uint64
	protRecvs uint64
	flushed   uint64 // receives
	lossy     bool   // a completion queue has overrun: not all is told by completions
}

// failure is what a check panics with.
type failure struct{ error }

func (w *world) fail(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

func (w *world) must(err error) {
	if err != nil {
		w.fail("%w", err)
	}
}

func (w *world) one(in int) bool { return w.rnd.IntN(in) == 0 }

// start opens both devices as the seed wants them.
func (w *world) start(seed uint64, seen *coverage, trace func(string, ...any)) {
	w.seed, w.seen, w.trace, w.did = seed, seen, trace, "start"
	w.rnd = rand.New(rand.NewPCG(seed, 0x51b1))
	w.clk.Set(1000)
	w.opts = wire.LoopOptions{Name: fmt.Sprintf("simulation-%d", seed), MTU: mtu, Capacity: 4096, Clock: &w.clk}
	w.roomy = !w.one(3)
	if w.grams = w.one(3); w.grams {
		w.opts.MTU, w.opts.Capacity = gramMTU, 8192
	}
	w.cfg = softnic.Config{Profile: engine.Profile(w.rnd.IntN(3)), Clock: &w.clk, Drop: w.one(2)}
	if w.one(3) {
		w.cfg.MinInline = 18
	}
	switch w.rnd.IntN(6) {
	case 0, 1:
		w.opts.Impair = wire.Impairs{Loss: .1, Dup: .1, Reorder: .1, Corrupt: .05, Seed: seed,
			Delay: time.Duration(w.rnd.IntN(3000)), Jitter: time.Duration(w.rnd.IntN(1000))}
		if w.grams {
			w.opts.Impair.Loss, w.opts.Impair.Corrupt = .02, .3
		}
	case 2:
		w.opts.SpeedBPS, w.opts.Queue = 1e9, w.rnd.IntN(2)*4
	}
	for i := range w.sides {
		w.sides[i] = &side{world: w, n: i, name: "AB"[i : i+1], spans: (int(seed)>>1+i)&1 == 0}
	}
	for _, s := range w.sides {
		s.open()
	}
}

func (s *side) open() {
	inner, err := wire.OpenLoop(s.opts)
	s.must(err)
	s.tap = &tap{Wire: inner, sent: s.onSent}
	if s.one(4) {
		s.tap.spoil = s.rnd.Uint64() | 1
	}
	var tapped wire.Wire = s.tap
	if spans, ok := inner.(wire.Spans); ok && s.spans {
		tapped = &spanTap{tap: s.tap, spans: spans}
	}
	nic, err := softnic.New(tapped, s.cfg)
	s.must(err)
	s.nic = &backend{NIC: nic, rnd: s.rnd}
	s.dev, err = engine.NewDevice(s.nic)
	s.must(err)
	s.pd, s.pd2 = s.dev.NewPD(), s.dev.NewPD()
	s.ah, err = s.pd.NewAH(engine.AHAttr{GID: [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: 2}})
	s.must(err)
	s.makeAHs()
	s.mem = make([]byte, memBytes)
	for i := range s.mem {
		s.mem[i] = guardByte
	}
	for i := range slots {
		s.free = append(s.free, i)
	}
	s.rw, err = s.pd.Register(s.mem, engine.LocalWrite)
	s.must(err)
	s.ro, err = s.pd.Register(s.mem, 0)
	s.must(err)
	s.alien, err = s.pd2.Register(s.mem, engine.LocalWrite)
	s.must(err)
	s.temp, err = s.pd.Register(s.mem[:tempBytes], engine.LocalWrite)
	s.must(err)
	for range 1 + s.rnd.IntN(3) {
		s.newQueue()
	}
	for range 1 + s.rnd.IntN(3) {
		s.newPair()
	}
}

// newQueue makes a completion queue of 2 to 32 entries, or one that holds all that can be outstanding at once.
func (s *side) newQueue() *queue {
	asked := 1 << s.rnd.IntN(5) // of which the ring is the next power of two
	if s.roomy {
		asked = 127
	}
	cq, err := s.dev.NewCQ(asked)
	s.must(err)
	c := &queue{cq: cq, mem: s.nic.cq}
	s.seen.cqes[len(c.mem.CQEs)]++
	s.queues = append(s.queues, c)
	return c
}

// close settles the side, compares what it counted, and ends the device.
func (s *side) close() {
	if s.closed {
		return
	}
	s.settle()
	s.finish()
	s.last = s.dev.Counters()
	s.compare()
	s.closed = true
	s.must(s.dev.Close())
}

// end is the whole of what must hold when a history is over.
func (w *world) end() {
	w.did = "end"
	for range 60 { // whatever is on its way arrives or meets a queue pair that takes nothing
		w.clk.Advance(1e6)
		for _, s := range w.sides {
			if !s.closed {
				s.settle()
			}
		}
	}
	for _, s := range w.sides {
		if !s.closed {
			s.finish()
			s.last = s.dev.Counters()
			s.compare()
		}
	}
	for i, s := range w.sides {
		s.compareWire(w.sides[1-i])
	}
	for _, s := range w.sides {
		s.seen.add(s)
		if !s.closed {
			s.closed = true
			s.must(s.dev.Close())
		}
	}
}

// compare checks that the device's counters are those of the model.
func (s *side) compare() {
	c := &s.last
	if c.TxFrames != s.tap.tx {
		s.fail("%s counts %d frames sent, its wire was given %d", s.name, c.TxFrames, s.tap.tx)
	}
	if c.TxBytes != s.tap.bytes {
		s.fail("%s counts %d bytes sent, its wire was given %d", s.name, c.TxBytes, s.tap.bytes)
	}
	executed := c.TxFrames + c.TxErrors + c.TxFlushed
	if executed+s.discarded != s.posted && (!s.lossy || executed > s.posted || executed+s.discarded < s.posted) {
		s.fail("%s: %d sends posted, but %d executed (%d sent, %d failed, %d flushed) and %d taken away",
			s.name, s.posted, executed, c.TxFrames, c.TxErrors, c.TxFlushed, s.discarded)
	}
	var dropped uint64
	for r, n := range c.Drops {
		if r := engine.DropReason(r); r != engine.DropWire && r != engine.DropNoPeer {
			dropped += n
		}
	}
	if arrived := uint64(len(s.tap.log)) + c.RxCopies; arrived != c.RxFrames+dropped {
		s.fail("%s: %d frames and copies arrived, %d were received and %d dropped: %v", s.name, arrived, c.RxFrames, dropped, c.Drops)
	}
	if c.Drops[engine.DropRunt] != uint64(s.tap.runts) || c.Drops[engine.DropTruncated] != uint64(s.tap.cut) {
		s.fail("%s: %d runts and %d cut frames arrived, counters say %v", s.name, s.tap.runts, s.tap.cut, c.Drops)
	}
	if c.StrayCQEs != 0 {
		s.fail("%s: %d completions named no request", s.name, c.StrayCQEs)
	}
	if s.lossy != (c.CQOverruns != 0) || s.lossy != (c.LostCQEs != 0) || s.lossy && s.roomy {
		s.fail("%s: %d overruns of completion queues, %d completions lost; model: %v", s.name, c.CQOverruns, c.LostCQEs, s.lossy)
	}
	told := [4]uint64{s.failed, s.okRecvs, s.protRecvs, s.flushed}
	counted := [4]uint64{c.TxErrors + c.TxFlushed, c.RxFrames, c.Drops[engine.DropProtection], c.RxFlushed}
	if missing := sum(counted) - sum(told); told != counted && !s.lossy || missing > c.LostCQEs {
		s.fail("%s: completions tell of %d sends failed, receives: %d good, %d refused, %d flushed; counters say %d",
			s.name, told[0], told[1], told[2], told[3], counted)
	}
	s.compareBytes()
	s.checkMemory()
}

// compareBytes checks the bytes of what arrived, which are known while no frame was copied.
func (s *side) compareBytes() {
	arrived := uint64(0)
	for i := range s.tap.log {
		arrived += uint64(len(s.tap.log[i].bytes))
	}
	if c := &s.last; c.RxCopies == 0 && arrived != c.RxBytes+c.DroppedBytes {
		s.fail("%s: %d bytes arrived, %d were received and %d dropped", s.name, arrived, c.RxBytes, c.DroppedBytes)
	}
}

func sum(v [4]uint64) uint64 { return v[0] + v[1] + v[2] + v[3] }

// compareWire checks that the wire lost nothing that it does not tell of.
func (s *side) compareWire(from *side) {
	var in, out wire.Stats
	s.tap.Stats(&in)
	from.tap.Stats(&out)
	arrived := uint64(len(s.tap.log))
	lost := out.TxQueueDrops + out.NoPeer + in.ImpairLost
	if from.tap.tx+in.ImpairDuplicated != arrived+lost {
		s.fail("%s sent %d frames, %d were doubled; at %s %d arrived and %d were lost by name",
			from.name, from.tap.tx, in.ImpairDuplicated, s.name, arrived, lost)
	}
	wireDrops := out.TxQueueDrops
	if from.opts.Impair.Any() {
		var back wire.Stats
		from.tap.Stats(&back)
		wireDrops += back.ImpairLost
	}
	if n := from.last.Drops[engine.DropWire]; n != wireDrops {
		s.fail("%s counts %d frames lost by the wire, which says %d", from.name, n, wireDrops)
	}
	if n := from.last.Drops[engine.DropNoPeer]; n != out.NoPeer {
		s.fail("%s counts %d frames without peer, its wire %d", from.name, n, out.NoPeer)
	}
}

// poll takes up to k completions of a queue.
func (s *side) poll(c *queue, k int) int {
	wc := make([]engine.Completion, k)
	from := c.mem.Rec.LoadCI()
	n, err := c.cq.Poll(wc)
	s.observe(c, n)
	if c.broken != (n == 0 && err != nil) && n == 0 || err != nil && !errors.Is(err, engine.ErrOverrun) {
		s.fail("%s: poll of CQ 0x%x: %d, %v; the model says overrun: %v", s.name, c.cq.CQN(), n, err, c.broken)
	}
	c.polled += uint64(n)
	for i := range wc[:n] {
		s.complete(c, &wc[i], &c.mem.CQEs[(from+uint32(i))&uint32(len(c.mem.CQEs)-1)])
	}
	return n
}
