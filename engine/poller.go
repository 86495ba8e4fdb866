package engine

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/pin"
)

// Handler gets what one Poll found. The slice is reused.
type Handler func(wc []Completion)

// PollerConfig describes a poller. The zero value spins, unpinned.
type PollerConfig struct {
	Pin    bool // bind to CPU and keep the process's other threads off it
	CPU    int
	Idle   Idle
	Spins  int         // fruitless looks before the idle policy acts; 0: 1000
	WaitNS int64       // longest sleep of IdlePark; 0: 10 ms
	Burst  int         // completions a Poll; 0: 64
	Clock  clock.Clock // nil: clock.System()
	// StallNS: a longer gap between two rounds, without the poller having given
	// the processor away itself or handled anything, is a stall. 0: 10 us.
	StallNS int64
	// Each, if set, is called once a round and tells how much it did: the place
	// of a sender.
	Each func(nowNS int64) int
}

// Poller is one goroutine that makes the device progress, polls CQs and hands
// completions to handlers. It owns those CQs and the queue pairs on them.
//
//	round:  Progress ─▶ Poll, handler, for each CQ ─▶ Each ─▶ ledger ─▶ idle
type Poller struct {
	dev     *Device
	cfg     PollerConfig
	idler   idler
	sources []source
	wc      []Completion
	gaps    *latency.Recorder
	ledger  ledger
	stop    atomic.Bool
	ask     atomic.Pointer[chan Stalls]

	mu   sync.Mutex
	done chan struct{} // of the run in progress; nil: none
	last Stalls        // of the run that ended last
}

type source struct {
	cq *CQ
	h  Handler
}

// Stalls is a poller's stall ledger: the times it could not look, and what may
// have held it up.
type Stalls struct {
	Rounds      uint64
	Stalls      uint64           // gaps longer than StallNS
	StalledNS   int64            // their sum
	Gaps        latency.Snapshot // between rounds, in ns; since the last reading
	Voluntary   uint64           // switches away from its thread that it asked for
	Involuntary uint64           // preemptions by the kernel
	GCs         uint64           // garbage collections of the process
	Parks       uint64
	Yields      uint64
}

// ledger is the running account.
type ledger struct {
	rounds, stalls uint64
	stalledNS      int64
	lastNS         int64 // end of the last round; 0: not comparable
	vol, invol     uint64
	gcs            uint64
}

// NewPoller makes a poller. Add CQs, then Run.
func NewPoller(d *Device, c PollerConfig) (*Poller, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if c.Idle > IdlePark || c.Spins < 0 || c.WaitNS < 0 || c.Burst < 0 || c.StallNS < 0 {
		return nil, fmt.Errorf("engine: poller: %v, %d spins, wait %d ns, burst %d, stall %d ns: %w",
			c.Idle, c.Spins, c.WaitNS, c.Burst, c.StallNS, syscall.EINVAL)
	}
	set := func(v, n int64) int64 {
		if v == 0 {
			return n
		}
		return v
	}
	c.Spins = int(set(int64(c.Spins), defaultSpins))
	c.WaitNS = set(c.WaitNS, 10_000_000)
	c.Burst = int(set(int64(c.Burst), 64))
	c.StallNS = set(c.StallNS, 10_000)
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	spins := c.Spins
	if c.Idle == IdleSpin {
		spins = maxSpins
	}
	return &Poller{
		dev: d, cfg: c, wc: make([]Completion, c.Burst), gaps: latency.New(latency.Options{Digits: 2}),
		idler: idler{policy: c.Idle, spins: spins, waitNS: c.WaitNS},
	}, nil
}

// Add has a CQ polled. Not while Run runs.
func (p *Poller) Add(cq *CQ, h Handler) error {
	if p == nil || p.dev == nil || h == nil {
		return fmt.Errorf("engine: poller: no poller or no handler: %w", syscall.EINVAL)
	}
	if err := cq.usable(); err != nil {
		return err
	}
	if cq.dev != p.dev {
		return fmt.Errorf("engine: poller: CQ 0x%x is of another device: %w", cq.cqn, syscall.EINVAL)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		return fmt.Errorf("engine: poller: is running: %w", syscall.EBUSY)
	}
	p.sources = append(p.sources, source{cq, h})
	return nil
}

// Run polls in the calling goroutine, which it locks to its thread, until the
// context ends, Stop is called or a queue or the device fails. The first two
// are no error.
func (p *Poller) Run(ctx context.Context) error {
	if p == nil || p.dev == nil {
		return fmt.Errorf("engine: poller: was not made by NewPoller: %w", syscall.EINVAL)
	}
	done := make(chan struct{})
	p.mu.Lock()
	if p.done != nil {
		p.mu.Unlock()
		return fmt.Errorf("engine: poller: is running: %w", syscall.EBUSY)
	}
	p.done = done
	p.mu.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.ledger.open()
	err := p.loop(ctx)
	p.stop.Store(false)
	p.mu.Lock()
	p.last = p.account()
	p.done = nil
	p.mu.Unlock()
	close(done)
	return err
}

func (p *Poller) loop(ctx context.Context) error {
	if p.cfg.Pin {
		unpin, err := pin.Pin(p.cfg.CPU)
		if err != nil {
			return fmt.Errorf("engine: poller: %w", err)
		}
		defer unpin()
	}
	ended := new(atomic.Bool) // of this run alone: a late cancel must not end the next
	if ctx != nil {
		defer context.AfterFunc(ctx, func() { ended.Store(true) })()
		ended.Store(ctx.Err() != nil)
	}
	for !ended.Load() && !p.stop.Load() {
		if err := p.round(); err != nil {
			return err
		}
		if p.ask.Load() != nil {
			p.answer()
		}
	}
	return nil
}

// Stop ends Run after its present round; with IdlePark, at the latest WaitNS
// later. Any goroutine may call it.
func (p *Poller) Stop() {
	if p != nil {
		p.stop.Store(true)
	}
}

// round does everything once.
func (p *Poller) round() error {
	work := p.dev.Progress(p.cfg.Burst)
	for i := range p.sources {
		s := &p.sources[i]
		n, err := s.cq.Poll(p.wc)
		if err != nil {
			return err
		}
		if n != 0 {
			s.h(p.wc[:n])
			work += n
		}
	}
	now := p.cfg.Clock.Now()
	if p.cfg.Each != nil {
		work += p.cfg.Each(now)
	}
	p.ledger.round(now, work != 0, p.cfg.StallNS, p.gaps)
	if work != 0 {
		p.idler.busy()
		return nil
	}
	away, err := p.idler.idle(p.dev)
	if away {
		p.ledger.lastNS = 0
		if err == nil {
			err = p.dev.Err()
		}
	}
	return err
}

func (l *ledger) open() {
	*l = ledger{}
	l.vol, l.invol = threadSwitches()
	l.gcs = collections()
}

// round books the gap since the last round. A round that did something may take
// its time; it is recorded, and not called a stall.
func (l *ledger) round(now int64, worked bool, stallNS int64, gaps *latency.Recorder) {
	l.rounds++
	if l.lastNS != 0 {
		gap := now - l.lastNS
		gaps.Record(gap)
		if gap > stallNS && !worked {
			l.stalls++
			l.stalledNS += gap
		}
	}
	l.lastNS = now
}

// account reads the ledger, in the poller's thread.
func (p *Poller) account() Stalls {
	vol, invol := threadSwitches()
	l := &p.ledger
	return Stalls{
		Rounds: l.rounds, Stalls: l.stalls, StalledNS: l.stalledNS, Gaps: p.gaps.Swap(),
		Voluntary: vol - l.vol, Involuntary: invol - l.invol, GCs: collections() - l.gcs,
		Parks: p.idler.parks, Yields: p.idler.yields,
	}
}

func (p *Poller) answer() {
	if c := p.ask.Swap(nil); c != nil {
		*c <- p.account()
		p.ledger.lastNS = 0
	}
}

// Stalls reads the ledger, of the run in progress or of the last one. Any
// goroutine may call it but the poller's own: not a handler.
func (p *Poller) Stalls() Stalls {
	if p == nil || p.dev == nil {
		return Stalls{}
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done != nil {
		c := make(chan Stalls, 1)
		p.ask.Store(&c)
		select {
		case s := <-c:
			return s
		case <-done:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// collections counts the garbage collections of the process.
func collections() uint64 {
	s := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
