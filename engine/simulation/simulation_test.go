package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"github.com/bluering/bluering/engine"
)

var (
	oneSeed  = flag.Uint64("seed", 0, "replay this history only")
	numSeeds = flag.Uint64("seeds", fromEnv("BLUERING_SIM_SEEDS", 1500), "how many histories")
	first    = flag.Uint64("first", 1, "the first seed")
)

func fromEnv(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

func TestSimulation(t *testing.T) {
	seen := newCoverage()
	if *oneSeed != 0 {
		if err := simulate(*oneSeed, seen, t.Logf); err != nil {
			t.Fatal(err)
		}
		return
	}
	quiet := func(string, ...any) {}
	for seed := *first; seed < *first+*numSeeds; seed++ {
		if err := simulate(seed, seen, quiet); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d seeds: %s", *numSeeds, seen)
	if *numSeeds >= 1000 {
		seen.check(t)
	}
}

// TestReplay: a seed is the whole history.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		var runs [2][]string
		for i := range runs {
			err := simulate(seed, newCoverage(), func(format string, args ...any) {
				runs[i] = append(runs[i], fmt.Sprintf(format, args...))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(runs[0], runs[1]) {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

// simulate plays one history. A failure names the seed.
func simulate(seed uint64, seen *coverage, trace func(string, ...any)) (err error) {
	w := &world{}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		// The devices stay open: one that panicked within a step is held by it for good, and so would Close be.
		f, ok := r.(failure)
		if !ok {
			f = failure{fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
		}
		err = fmt.Errorf("seed %d, in %q: %w\nreplay: go test ./engine/simulation -run TestSimulation -v -seed %d", seed, w.did, f.error, seed)
	}()
	w.start(seed, seen, trace)
	w.run()
	w.end()
	return nil
}

// coverage counts what was seen over all histories.
type coverage struct {
	counters                 engine.Counters
	moves, illegal, byDevice [states][states]uint64
	status                   map[bool]map[engine.Status]uint64 // by receive
	causes                   map[engine.Cause]uint64
	slots, entries           map[int]uint64 // rings made of that size
	cqes                     map[int]uint64
	events                   map[string]uint64
	takenAway                uint64
}

func newCoverage() *coverage {
	return &coverage{
		status: map[bool]map[engine.Status]uint64{false: {}, true: {}}, causes: map[engine.Cause]uint64{},
		slots: map[int]uint64{}, entries: map[int]uint64{}, cqes: map[int]uint64{}, events: map[string]uint64{},
	}
}

// add takes in a side that has ended.
func (c *coverage) add(s *side) {
	n := &s.last
	sum := &c.counters
	sum.TxFrames += n.TxFrames
	sum.TxErrors += n.TxErrors
	sum.TxFlushed += n.TxFlushed
	sum.TxNotBuilt += n.TxNotBuilt
	sum.TxWireFull += n.TxWireFull
	sum.RxFrames += n.RxFrames
	sum.RxCopies += n.RxCopies
	sum.RxFlushed += n.RxFlushed
	sum.CQOverruns += n.CQOverruns
	sum.LostCQEs += n.LostCQEs
	for i := range n.Drops {
		sum.Drops[i] += n.Drops[i]
	}
}

func (c *coverage) String() string {
	n := &c.counters
	return fmt.Sprintf("sends: %d sent, %d failed, %d flushed; receives: %d, %d copies, %d flushed; drops %v; "+
		"%d overruns, %d lost completions; wire full %d times; %d queue pairs reset or destroyed with work outstanding; "+
		"statuses %v; refusals %v; %v; send slots %v, receive entries %v, completion entries %v", n.TxFrames, n.TxErrors, n.TxFlushed,
		n.RxFrames, n.RxCopies, n.RxFlushed, n.Drops, n.CQOverruns, n.LostCQEs, n.TxWireFull, c.takenAway, c.status, c.causes, c.events,
		c.slots, c.entries, c.cqes)
}

// check demands that everything was seen that can happen, and nothing that cannot.
func (c *coverage) check(t *testing.T) {
	seen := func(what string, n uint64) {
		if n == 0 {
			t.Errorf("never seen: %s", what)
		}
	}
	reachable := map[engine.DropReason]bool{
		engine.DropNoRule: true, engine.DropNoWQE: true, engine.DropOversize: true, engine.DropState: true, engine.DropProtection: true,
		engine.DropRunt: true, engine.DropWire: true, engine.DropNoPeer: true, engine.DropTruncated: true, engine.DropChecksum: true,
		engine.DropUnknownQP: true, engine.DropQKey: true, engine.DropQPType: true,
	}
	for r := range engine.NumDropReasons {
		if n := c.counters.Drops[r]; reachable[r] != (n != 0) && r != engine.DropMalformed { // that takes a bit flipped in a length
			t.Errorf("%d frames dropped for %v: that can be: %v", n, r, reachable[r])
		}
	}
	for from := range engine.QPState(states) {
		for to := range engine.QPState(states) {
			if isLegal(from, to) {
				seen(fmt.Sprintf("the move from %v to %v", from, to), c.moves[from][to])
			} else {
				seen(fmt.Sprintf("a refused move from %v to %v", from, to), c.illegal[from][to])
			}
		}
		if from != engine.StateReset && from != engine.StateErr {
			seen(fmt.Sprintf("the device's move from %v to ERR", from), c.byDevice[from][engine.StateErr])
		}
	}
	seen("the device's move from RTS to SQE", c.byDevice[engine.StateRTS][engine.StateSQE])
	for _, s := range []engine.Status{engine.StatusSuccess, engine.StatusWRFlush, engine.StatusLocProt, engine.StatusLocLen, engine.StatusLocQPOp} {
		seen(fmt.Sprintf("a send that ends with %v", s), c.status[false][s])
	}
	for _, s := range []engine.Status{engine.StatusSuccess, engine.StatusWRFlush, engine.StatusLocProt} {
		seen(fmt.Sprintf("a receive that ends with %v", s), c.status[true][s])
	}
	for _, cause := range []engine.Cause{engine.CauseFull, engine.CauseState, engine.CauseOpcode, engine.CauseSGECount, engine.CauseNoData,
		engine.CauseShort, engine.CauseInline, engine.CauseKey, engine.CauseForeignKey, engine.CauseBounds, engine.CauseSRQ} {
		seen(fmt.Sprintf("the refusal %q", cause), c.causes[cause])
	}
	for _, e := range []string{"a send ring wraps", "a receive ring wraps", "a completion ring wraps", "the edge of a send ring is padded",
		"a completion ring is full", "a completion queue overruns", "a flow rule is detached",
		"a datagram is sent", "a datagram is received", "a PSN wraps", "a datagram does not fit a shared request",
		"a shared receive queue", "requests left in a shared queue", "a shared entry is taken back", "event QP_LAST_WQE_REACHED",
		"event SRQ_LIMIT_REACHED", "event CQ_ERR", "a region is deregistered under a send", "a region is deregistered under a receive"} {
		seen(e, c.events[e])
	}
	for n := 2; n <= 16; n *= 2 {
		seen(fmt.Sprintf("a send ring of %d slots", n), c.slots[n])
	}
	for n := 1; n <= 8; n *= 2 {
		seen(fmt.Sprintf("a receive ring of %d entries", n), c.entries[n])
	}
	for n := 2; n <= 32; n *= 2 {
		seen(fmt.Sprintf("a completion ring of %d entries", n), c.cqes[n])
	}
	seen("a full wire", c.counters.TxWireFull)
	seen("a copy", c.counters.RxCopies)
	seen("work outstanding at RESET or destruction", c.takenAway)
}
