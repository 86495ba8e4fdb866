package ud

import (
	"context"
	"time"

	"github.com/bluering/bluering/engine"
)

// receive is the receiving half of an endpoint: frames of 40 bytes and the
// payload, which are posted, or held by a message, or wait to be posted again.
type receive struct {
	pool   *engine.Pool
	frames [][]byte
	wrs    []engine.RecvWR // of each slot
	turn   []uint32        // times that a slot was given back; a message with another is stale
	again  []engine.RecvWR // given back, not posted yet
	every  int             // how many are posted again at once
	post   func([]engine.RecvWR) (int, error)
	err    error // of post

	_ [128]byte // beside it stand those of other owners
}

func newReceive(pd *engine.PD, depth, payload int, post func([]engine.RecvWR) (int, error)) (r *receive, err error) {
	frame := grhBytes + payload
	r = &receive{post: post, frames: make([][]byte, depth), wrs: make([]engine.RecvWR, depth), turn: make([]uint32, depth),
		again: make([]engine.RecvWR, 0, depth), every: max(min(repostEvery, depth/4), 1)}
	if r.pool, err = pd.AllocPool(depth, frame); err != nil {
		return nil, err
	}
	sges := make([]engine.SGE, depth)
	for k := range r.wrs {
		f, _ := r.pool.Get() // as many as the depth
		r.frames[k] = r.pool.Bytes(f)
		sges[k] = r.pool.SGE(f, frame)
		r.wrs[k] = engine.RecvWR{ID: uint64(k), SGEs: sges[k : k+1 : k+1]}
	}
	return r, nil
}

// start posts all slots.
func (r *receive) start() error {
	r.again = append(r.again, r.wrs...)
	r.flush()
	return r.err
}

// release gives a slot back; its message is stale from now on.
func (r *receive) release(slot uint32) {
	r.turn[slot]++
	r.again = append(r.again, r.wrs[slot])
	if len(r.again) >= r.every {
		r.flush()
	}
}

// flush posts what was given back.
func (r *receive) flush() {
	n, err := r.post(r.again)
	if n < len(r.again) && r.err == nil {
		r.err = err
	}
	r.again = r.again[:copy(r.again, r.again[n:])]
}

// Msg is a received datagram. It is a small value; what it names is valid until
// it is released or answered, which may happen once, in any order.
type Msg struct {
	Data   []byte // payload, in the endpoint's memory; may be changed
	TimeNS int64  // of arrival, by the device's clock; 0: unknown
	Imm    uint32 // with HasImm
	SrcQPN uint32
	HasImm bool
	// Solicited: the sender asked for an event.
	Solicited bool

	grh  bool
	slot uint32
	turn uint32
	e    *Endpoint
}

// Poll takes up to len(msgs) datagrams that have come, and returns how many; 0
// when there is none now, or see Err. It takes the completions of sends, too,
// posts released buffers again, and lets a device without a goroutine of its
// own work.
func (e *Endpoint) Poll(msgs []Msg) int {
	n := 0
	for n < len(msgs) && e.keptLen() > 0 {
		if e.take(e.unkeep(), &msgs[n]) {
			n++
		}
	}
	for n < len(msgs) {
		want := min(len(msgs)-n, pollBurst)
		got, err := e.cq.Poll(e.wc[:want])
		if err != nil {
			_ = e.note(err)
		}
		for i := range e.wc[:got] {
			if c := &e.wc[i]; !c.Recv {
				e.retire(c)
			} else if e.take(c, &msgs[n]) {
				n++
			}
		}
		if got < want {
			break
		}
	}
	if n == 0 && len(e.rx.again) > 0 && !e.gone() {
		e.rx.flush() // there is time now
	}
	return n
}

// take makes a message of a completion; false when the receive failed.
func (e *Endpoint) take(c *engine.Completion, m *Msg) bool {
	slot := uint32(c.WRID)
	if c.Status != engine.StatusSuccess {
		e.counts.RecvErrors++
		_ = e.note(c.Status)
		if e.shared != nil {
			e.rx.release(slot)
		} // else the queue pair is in error, and to post the slot again would only fail again
		return false
	}
	frame := e.rx.frames[slot]
	if c.ByteLen < grhBytes || int(c.ByteLen) > len(frame) {
		e.counts.RecvErrors++
		e.rx.release(slot)
		return false
	}
	*m = Msg{Data: frame[grhBytes:c.ByteLen], TimeNS: c.TimeNS, Imm: c.Imm, SrcQPN: c.SrcQP, HasImm: c.Flags&engine.WCImm != 0,
		Solicited: c.Flags&engine.WCSolicited != 0, grh: c.Flags&engine.WCGRH != 0, slot: slot, turn: e.rx.turn[slot], e: e}
	e.counts.Received++
	e.counts.ReceivedBytes += uint64(c.ByteLen - grhBytes)
	return true
}

// keep puts a receive aside that came while the endpoint looked for sends.
func (e *Endpoint) keep(c *engine.Completion) {
	if e.kept == nil {
		e.kept = make([]engine.Completion, len(e.rx.frames)) // once; no more can be outstanding
	}
	e.kept[e.keptIn%uint64(len(e.kept))] = *c
	e.keptIn++
}

func (e *Endpoint) keptLen() int { return int(e.keptIn - e.keptOut) }

func (e *Endpoint) unkeep() *engine.Completion {
	c := &e.kept[e.keptOut%uint64(len(e.kept))]
	e.keptOut++
	return c
}

// Messages is a range function over what one Poll finds, at most 64 datagrams:
//
//	for m := range ep.Messages { ... }
//
// A message is valid until the next turn of the loop, which releases it unless
// it was released or answered.
func (e *Endpoint) Messages(yield func(*Msg) bool) {
	n := e.Poll(e.batch[:])
	more := true
	for i := range e.batch[:n] {
		m := &e.batch[i]
		more = more && yield(m)
		m.Release()
	}
}

func (m *Msg) live() bool {
	return m.e != nil && !m.e.closed.Load() && m.e.rx.turn[m.slot] == m.turn
}

// Release gives the message's memory back to be received into; buffers are
// posted in bulk. A second Release, or one after Reply, does nothing.
func (m *Msg) Release() {
	if m.live() && !m.e.gone() {
		m.e.rx.release(m.slot)
	}
}

// GRH gives the 40 bytes in front of the payload: an IPv6 header, or an IPv4
// one in the last 20 bytes. nil when the message is not valid any more.
func (m *Msg) GRH() []byte {
	if !m.live() {
		return nil
	}
	return m.e.rx.frames[m.slot][:grhBytes:grhBytes]
}

// From gives the sender's address, with this endpoint's own Q_Key, since a
// datagram does not tell its sender's.
func (m *Msg) From() (Addr, error) {
	if !m.live() {
		return Addr{}, ErrReleased
	}
	d, err := m.e.answer(m)
	if err != nil {
		return Addr{}, err
	}
	return Addr{GID: d.GID, QPN: m.SrcQPN, QKey: m.e.cfg.QKey, TClass: d.TrafficClass}, nil
}

// RecvSpin takes the next datagram and looks for it without a pause until it
// has come or the time is up, which is ErrTimeout. Release the message.
func (e *Endpoint) RecvSpin(timeout time.Duration) (Msg, error) {
	if e.Poll(e.one[:]) == 1 {
		return e.one[0], nil
	}
	for start, looks := time.Now(), 0; ; looks++ {
		if e.Poll(e.one[:]) == 1 {
			return e.one[0], nil
		}
		if looks%8 == 7 && time.Since(start) >= timeout {
			return Msg{}, ErrTimeout
		}
		if e.gone() {
			return Msg{}, ErrClosed
		}
	}
}

// looksBeforeSleep is how often Recv looks before it goes to sleep.
const looksBeforeSleep = 100

// Recv takes the next datagram and sleeps until it has come or ctx ends, as
// Config.Wakes says. Release the message.
func (e *Endpoint) Recv(ctx context.Context) (Msg, error) {
	stop := func() bool { return true }
	defer func() { stop() }()
	for looks := 0; ; looks++ {
		if e.Poll(e.one[:]) == 1 {
			return e.one[0], nil
		}
		if e.gone() {
			return Msg{}, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return Msg{}, err
		}
		if looks < looksBeforeSleep {
			continue
		}
		if looks == looksBeforeSleep && e.ch == nil { // the device's Wait does not hear the context
			stop = context.AfterFunc(ctx, e.dev.Backend().Wake)
		}
		if err := e.sleep(ctx, looks); err != nil {
			return Msg{}, err
		}
	}
}

// sleep waits until something may have come. Of the channel it first asks for
// an event and lets the caller look once more, because what is there already
// makes none.
func (e *Endpoint) sleep(ctx context.Context, looks int) error {
	if e.ch == nil {
		if err := e.dev.Wait(-1); err != nil {
			return e.note(err)
		}
		return nil
	}
	if looks%2 == 0 {
		return e.Arm()
	}
	cq, err := e.ch.Get(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return e.note(err)
	}
	return cq.Ack(1)
}
