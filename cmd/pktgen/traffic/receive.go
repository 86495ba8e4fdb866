package traffic

import (
	"math"

	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// arrival is a received frame with what its headers say. Data is the port's memory until Release.
type arrival struct {
	Data     []byte
	Corrupt  bool // an IPv4, TCP or UDP checksum is wrong, or an ICRC
	Fragment bool
	BadICRC  bool // it is the ICRC
	WeakICRC bool // the ICRC is right for some IPv4 identification: the packet's own is not known
	TagEnd   int  // end of the L4 payload as the IP length says, of a RoCE v2 datagram's own; 0: no such payload
}

// inPort is where frames arrive. Poll hands out what has come, in order, with times on the run's clock; the frames
// stay valid until Release.
type inPort interface {
	Poll(frames []raw.RxFrame) (int, error)
	// Describe reads the headers of a frame that Poll handed out.
	Describe(f *raw.RxFrame, a *arrival)
	Release(n int) error
}

// receiveBurst is how many frames a receiver takes at once.
const receiveBurst = 64

// receiver classifies every frame that arrives. The order of its questions is
// the order of the report's classes:
//
//	frame ─▶ fragment? ─▶ checksum wrong? ─▶ hello? ─▶ tag ours? ─▶ tracker
//	             │             │               │           │           ├ first: latency
//	          fragment      corrupt          hello      foreign        ├ duplicate
//	                                                                   └ stale
//
// One goroutine owns it.
type receiver struct {
	in     inPort
	clk    clock.Clock
	frames [receiveBurst]raw.RxFrame

	tagged   bool
	key      proto.TagKey
	helloKey proto.TagKey
	epoch    int64 // clock reading the tags count from
	noEpoch  bool  // not known yet: the first frame's arrival stands for its schedule
	// clockKnown: the tags' clock is this one. If not, the epoch is moved until
	// the fastest frame so far has no delay, and latency is a variation.
	clockKnown bool
	flows      uint32
	everyN     uint64 // latency of every N-th sequence; 0: none
	perFlow    uint64 // bound of a flow's sequences; 0: only time bounds them
	limit      uint64 // takes no more frames than so many different ones; 0: all

	tracker *tracker
	latency *latency.Recorder
	run     burstBook
	odd     arrival // the frame at hand, if it is not of the commonest

	received, recvBytes uint64
	foreign, corrupt    uint64
	fragment, hello     uint64
	badICRC, weakICRC   uint64
	early               uint64
	first, last         int64 // arrivals of ours, as clock readings

	total      uint64 // of the sender, from its last hello
	totalKnown bool
}

// Hello frames carry a tag under a key of their own; its flow says which.
const (
	helloBefore = 0
	helloAfter  = 1 // its sequence is the number of frames sent
	helloKeyMix = 0x68656c6c6f
)

type receiverConfig struct {
	Token   Token
	Tagged  bool
	EveryN  uint64
	Count   uint64 // frames in all, if bounded
	NoEpoch bool
	Limit   uint64 // of a receiver alone: frames to take; 0: all
}

func newReceiver(c receiverConfig, in inPort, clk clock.Clock) (*receiver, error) {
	r := &receiver{
		in: in, clk: clk, tagged: c.Tagged, key: proto.NewTagKey(c.Token.RunID), helloKey: proto.NewTagKey(c.Token.RunID ^ helloKeyMix),
		epoch: c.Token.StartNS, noEpoch: c.NoEpoch, clockKnown: !c.NoEpoch, flows: uint32(c.Token.Flows), everyN: c.EveryN, perFlow: c.Count, limit: c.Limit,
		latency: latency.New(latency.Options{}),
	}
	if !c.Tagged {
		return r, nil
	}
	var err error
	r.tracker, err = newTracker(c.Token.Flows)
	return r, err
}

// unique is how many different frames of the run have arrived. Without a tag
// every frame counts as one.
func (r *receiver) unique() uint64 {
	if !r.tagged {
		return r.received
	}
	return r.tracker.unique
}

// step takes one burst and reports its size. Frames that carry no time arrived
// when the clock was read, after the poll: never before they were sent.
func (r *receiver) step() (int, error) {
	frames := r.frames[:]
	if r.limit > 0 {
		frames = frames[:min(receiveBurst, r.limit-min(r.limit, r.unique()))]
	}
	n, err := r.in.Poll(frames)
	if n == 0 {
		return 0, err
	}
	now := r.clk.Now()
	r.takeAll(r.frames[:n], now)
	if rerr := r.in.Release(n); err == nil {
		err = rerr
	}
	return n, err
}

// take books one frame that arrived at the clock reading at.
func (r *receiver) take(f *arrival, at int64) {
	if f.Fragment {
		r.fragment++
		return
	}
	if f.Corrupt {
		r.corrupt++
		if f.BadICRC {
			r.badICRC++
		}
		return
	}
	if f.WeakICRC {
		r.weakICRC++
	}
	if !r.tagged {
		r.book(f, at)
		return
	}
	if f.TagEnd < tagBytes || f.TagEnd > len(f.Data) {
		r.foreign++
		return
	}
	raw := f.Data[f.TagEnd-tagBytes : f.TagEnd]
	tag, ok := r.key.Get(raw)
	if !ok {
		r.takeOther(raw)
		return
	}
	if tag.Flow >= r.flows {
		r.foreign++
		return
	}
	if r.noEpoch {
		r.noEpoch = false
		r.epoch = at - int64(tag.Time)*proto.TickNS
	}
	seq := proto.ExtendSeq(tag.Seq, r.tracker.next(tag.Flow))
	delay, isEarly := unwrap(at-r.epoch, tag.Time)
	if isEarly && !r.clockKnown { // faster than the first: a better zero
		r.epoch += proto.DelayTicks(stampOf(at-r.epoch), tag.Time) * proto.TickNS
		isEarly = false
	}
	if !r.plausible(seq, at-r.epoch, delay) {
		r.foreign++
		return
	}
	r.book(f, at)
	if !r.tracker.see(tag.Flow, seq) {
		return
	}
	if isEarly {
		r.early++
	}
	if r.everyN > 0 && (r.everyN == 1 || seq%r.everyN == 0) {
		r.latency.Record(delay)
	}
}

func (r *receiver) book(f *arrival, at int64) {
	if r.received == 0 {
		r.first = at
	}
	r.last = at
	r.received++
	r.recvBytes += uint64(len(f.Data) + fcsBytes)
}

// takeOther books a frame without our tag: a hello, or foreign.
func (r *receiver) takeOther(raw []byte) {
	tag, ok := r.helloKey.Get(raw)
	if !ok || tag.Flow > helloAfter {
		r.foreign++
		return
	}
	r.hello++
	if tag.Flow == helloAfter {
		r.total, r.totalKnown = tag.Seq, true
	}
}

// unwrap is the time from a tag's 32-bit schedule to an arrival sinceEpoch, to
// the tag's resolution; early frames count as 0.
func unwrap(sinceEpoch int64, scheduled uint32) (ns int64, early bool) {
	ticks := proto.DelayTicks(stampOf(sinceEpoch), scheduled)
	return max(ticks, 0) * proto.TickNS, ticks < 0
}

// slackNS is how far an arrival may be ahead of the sender's clock.
const (
	slackNS   = int64(proto.MaxEarly)
	mostSince = math.MaxInt64 - slackNS
)

// plausible refuses what no frame of the run can say: a sequence beyond the
// run's count, or beyond a frame a nanosecond since the start, or a schedule
// from before the start. An arrival may be ahead of the sender's own clock
// reading by the early window at most.
func (r *receiver) plausible(seq uint64, sinceEpoch, delay int64) bool {
	if r.perFlow > 0 && seq >= r.perFlow {
		return false
	}
	if sinceEpoch < -slackNS || sinceEpoch > mostSince {
		return false
	}
	return seq <= uint64(sinceEpoch+slackNS) && delay <= sinceEpoch+slackNS
}

// counts is the receiver's part of c; lost is judged against sent.
func (r *receiver) counts(c *Counts) {
	c.Received, c.RecvBytes = r.received, r.recvBytes
	c.Foreign, c.Corrupt, c.Fragment, c.Hello, c.Early = r.foreign, r.corrupt, r.fragment, r.hello, r.early
	c.BadICRC, c.WeakICRC = r.badICRC, r.weakICRC
	c.Unique = r.unique()
	if r.tagged {
		c.Duplicate, c.Reordered, c.Stale = r.tracker.duplicate, r.tracker.reordered, r.tracker.stale
	}
}
