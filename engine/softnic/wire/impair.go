package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
)

const (
	impairBurst    = 64
	impairCapacity = 1 << 20
	// impairRate bounds what a delay must hold when the wire has no speed.
	impairRate = 10e9
	// heldFor is how long a frame waits for another to overtake it, before it goes on by itself.
	heldFor = int64(time.Millisecond)
)

// Impair is a wire that makes worse what comes in over another one. What goes out passes untouched: both ends
// of a loop are wrapped, so that each direction is impaired once. A frame meets one fate at most, the first that
// it draws of: lost, corrupted, duplicated, held back. So the books add up with those of any receiver: what it
// misses is lost or corrupted, and nothing else is doubled or late than what is counted here. The same seed and
// the same frames meet the same fate, whatever the time between them.
//
//	wire ─► Next of it ─► fate ─► pipe of frames with their times ─► Next
//
// When the pipe is full, frames wait in the wire.
type Impair struct {
	Wire
	how    Impairs
	clk    clock.Clock
	rnd    *rand.Rand
	tx     pipeTx // into the pipe
	rx     pipeRx // out of it
	last   int64  // arrival of the last frame put there: order is kept
	held   []byte // a frame held back, with room for the longest; nil: none
	heldAt int64
	store  []byte // of held
	// doubles are the places in the pipe of the second frames of pairs, in order; those given out are forgotten.
	doubles []uint64
	in      [impairBurst]Frame
	lens    [3]int32 // of room and put
	bufs    [3][]byte
	head    proto.Headers // of a frame to corrupt
	wait    waiter
	armed   bool
	stats   Stats
	closed  bool
}

// NewImpair wraps a wire, which it then owns. Arrivals are judged by c (nil: clock.System()).
func NewImpair(w Wire, how Impairs, c clock.Clock) (*Impair, error) {
	if c == nil {
		c = clock.System()
	}
	info := w.Info()
	rate := float64(info.SpeedBPS)
	if rate == 0 {
		rate = impairRate
	}
	capacity := impairCapacity + 2*int(min(rate/8*(how.Delay+how.Jitter).Seconds(), 256<<20))
	p := newPipe(capacity, maxFrameLen)
	rx, _ := p.consumer()
	m := &Impair{
		Wire: w, how: how, clk: c, rnd: rand.New(rand.NewPCG(how.Seed, 0x9e3779b97f4a7c15)),
		tx: p.producer(maxFrameLen), rx: rx,
		store: make([]byte, maxFrameLen), last: math.MinInt64,
	}
	if err := m.wait.open(); err != nil {
		return nil, fmt.Errorf("wire: impairing %s: %w", info.Name, err)
	}
	return m, nil
}

// forPort gives each direction of a loop its own fate.
func (i Impairs) forPort(port int) Impairs {
	i.Seed = i.Seed*2 + uint64(port)
	return i
}

func (m *Impair) Next(frames []Frame) int {
	if m.closed {
		return 0
	}
	if m.armed {
		m.armed = false
		m.wait.disarm()
	}
	now := m.clk.Now()
	m.pull(now)
	return m.rx.next(frames, now)
}

// pull takes what has arrived from the wire beneath and decides on each frame.
func (m *Impair) pull(now int64) {
	for {
		n := m.Wire.Next(m.in[:])
		took := 0
		for took < n && m.room(len(m.in[took].Data)) {
			m.decide(&m.in[took], now)
			took++
		}
		m.Wire.Release(took)
		if took < impairBurst {
			break
		}
	}
	if m.held != nil && now >= m.heldAt+heldFor {
		m.letGo(m.heldAt + heldFor)
	}
	if m.tx.pub != m.tx.tail {
		m.tx.publish()
	}
}

// room reports whether the pipe takes what an arriving frame may add: itself, its double and a held one.
func (m *Impair) room(length int) bool {
	n := max(headerBytes, int32(length))
	m.lens = [3]int32{n, n, max(headerBytes, int32(len(m.held)))}
	return m.tx.reserve(m.lens[:], m.bufs[:]) == len(m.lens)
}

// decide draws a frame's fate. Every frame draws the same number of times, so that one fate does not shift
// those of all others.
func (m *Impair) decide(f *Frame, now int64) {
	draw := func(p float64) bool { return m.rnd.Float64() < p }
	lost, dup, corrupt, hold := draw(m.how.Loss), draw(m.how.Dup), draw(m.how.Corrupt), draw(m.how.Reorder)
	jitter, bit := m.rnd.Float64(), m.rnd.Uint64()
	if lost || len(f.Data) < headerBytes {
		m.stats.ImpairLost++
		return
	}
	at := f.TimeNS
	if at == 0 {
		at = now
	}
	at += int64(m.how.Delay) + int64(jitter*float64(m.how.Jitter))
	switch {
	case corrupt: // it overtakes nothing: nobody can tell what it was
		m.stats.ImpairCorrupted++
		flipCovered(m.put(f.Data, at), &m.head, bit)
		return
	case dup:
		m.stats.ImpairDuplicated++
		m.put(f.Data, at)
		m.noteDouble(m.tx.tail)
	case hold && m.held == nil:
		m.held, m.heldAt = m.store[:copy(m.store, f.Data)], at
		return
	}
	m.put(f.Data, at)
	if m.held != nil {
		m.stats.ImpairReordered++
		m.letGo(at)
	}
}

// noteDouble notes that the frame to be put at a place is another's double. The places given out are forgotten when
// room is wanted.
func (m *Impair) noteDouble(at uint64) {
	if len(m.doubles) == cap(m.doubles) {
		m.doubles = m.doubles[:copy(m.doubles, m.doubles[m.doublesBefore(m.rx.head):])]
	}
	m.doubles = append(m.doubles, at)
}

func (m *Impair) doublesBefore(at uint64) int {
	n, _ := slices.BinarySearch(m.doubles, at)
	return n
}

// inFlight is how many different frames are in the pipe or held back.
func (m *Impair) inFlight() uint64 {
	n := m.tx.tail - m.rx.head - uint64(len(m.doubles)-m.doublesBefore(m.rx.head))
	if m.held != nil {
		n++
	}
	return n
}

// letGo puts the held frame behind what is in the pipe.
func (m *Impair) letGo(at int64) {
	m.put(m.held, max(at, m.heldAt))
	m.held = nil
}

// put copies a frame into the pipe, where it arrives at the given time, never before the one in front of it.
// There is room for it.
func (m *Impair) put(b []byte, at int64) []byte {
	m.lens[0] = int32(len(b))
	m.tx.reserve(m.lens[:1], m.bufs[:1])
	copy(m.bufs[0], b)
	m.last = max(m.last, at)
	m.tx.at(m.tx.tail).at = m.last
	m.tx.commit(1)
	return m.bufs[0]
}

func (m *Impair) Release(n int) {
	if n == 0 || m.closed {
		return
	}
	m.stats.RxFrames += uint64(n)
	m.stats.RxBytes += m.rx.release(n)
}

// FD returns a descriptor that becomes readable with the wire's or when the next frame is due.
func (m *Impair) FD() int {
	if m.closed {
		return -1
	}
	due := m.rx.due()
	if m.held != nil {
		due = min(due, m.heldAt+heldFor)
	}
	wait := int64(math.MaxInt64)
	if due != math.MaxInt64 {
		wait = due - m.clk.Now()
	}
	m.armed = true
	return m.wait.arm(m.Wire.FD(), m.Wire.Pending() > 0, wait)
}

// Stats are the wire's, but for what was received: that is what this end gave out.
func (m *Impair) Stats(s *Stats) {
	m.Wire.Stats(s)
	if !m.closed {
		s.RxInFlight += m.inFlight()
	}
	s.RxFrames, s.RxBytes = m.stats.RxFrames, m.stats.RxBytes
	s.ImpairLost, s.ImpairDuplicated = m.stats.ImpairLost, m.stats.ImpairDuplicated
	s.ImpairReordered, s.ImpairCorrupted = m.stats.ImpairReordered, m.stats.ImpairCorrupted
}

func (m *Impair) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	m.wait.close()
	return m.Wire.Close()
}
