package ud

import (
	"math/bits"

	"github.com/bluering/bluering/engine"
)

// transmit is the sending half of an endpoint: one work request for each slot of
// a ring of a power of two, used in turn, of which depth are in use at a time.
type transmit struct {
	pool   *engine.Pool
	wrs    []engine.SendWR
	sges   []engine.SGE
	frames [][]byte // own memory of each slot
	home   []engine.SGE
	lent   []int32 // receive slot that an answer is sent out of; -1: none
	inline int
	every  int
	depth  uint64

	// Counters of datagrams, free-running; a slot is counter & mask.
	mask   uint64
	made   uint64 // reserved
	posted uint64
	done   uint64
	quiet  int // posted since the last that asked for a completion

	// Answers keep receive memory until their completion, so they ask for one
	// before much of it is gone.
	quietLent, everyLent int
}

func (t *transmit) build(pd *engine.PD, c *Config) (err error) {
	slots := 1 << bits.Len(uint(c.SendDepth-1))
	t.depth, t.mask = uint64(c.SendDepth), uint64(slots-1)
	if t.pool, err = pd.AllocPool(slots, (c.Payload+cacheLine-1)&^(cacheLine-1)); err != nil {
		return err
	}
	t.inline, t.every, t.everyLent = c.Inline, c.SignalEvery, max(c.RecvDepth/4, 1)
	if c.Shared != nil {
		t.everyLent = max(c.RecvDepth/16, 1) // others lend, too
	}
	t.wrs, t.sges = make([]engine.SendWR, slots), make([]engine.SGE, slots)
	t.home, t.frames, t.lent = make([]engine.SGE, slots), make([][]byte, slots), make([]int32, slots)
	for k := range t.wrs {
		f, _ := t.pool.Get() // as many as the slots
		t.frames[k] = t.pool.Bytes(f)
		t.home[k] = t.pool.SGE(f, 0)
		t.wrs[k] = engine.SendWR{ID: uint64(k), SGEs: t.sges[k : k+1 : k+1]}
		t.lent[k] = -1
	}
	return nil
}

// SendOptions are what a datagram can have besides bytes.
type SendOptions struct {
	Imm       uint32 // with HasImm: a number for the receiver
	HasImm    bool
	Solicited bool // wakes a receiver that waits for solicited events only
}

// Reserve gives n bytes for a datagram to a peer. Nothing is sent before
// Commit, which sends all that was reserved, in order. The bytes hold what they
// last held. ErrFull, ErrLength and ErrPeer reserve nothing.
func (e *Endpoint) Reserve(to Peer, n int) ([]byte, error) {
	return e.ReserveWith(to, n, SendOptions{})
}

// ReserveWith is Reserve with options.
func (e *Endpoint) ReserveWith(to Peer, n int, o SendOptions) ([]byte, error) {
	if uint(n) > uint(e.cfg.Payload) {
		return nil, ErrLength
	}
	p := e.peers.find(to)
	if p == nil {
		return nil, ErrPeer
	}
	at, err := e.slot()
	if err != nil {
		return nil, err
	}
	t := &e.tx
	buf := t.frames[at][:n:n]
	sge := t.home[at]
	sge.Len = uint32(n)
	t.fill(at, p.ah, p.qpn, p.qkey, o)
	t.put(at, sge, buf)
	return buf, nil
}

// slot finds a free slot, after a look for completions if there is none.
func (e *Endpoint) slot() (at uint64, err error) {
	t := &e.tx
	if e.gone() {
		return 0, ErrClosed
	}
	if t.made-t.done == t.depth {
		e.reclaim()
		if t.made-t.done == t.depth {
			return 0, ErrFull
		}
	}
	return t.made & t.mask, nil
}

// fill makes the request of a slot, but for its bytes.
func (t *transmit) fill(at uint64, ah *engine.AH, qpn, qkey uint32, o SendOptions) {
	wr := &t.wrs[at]
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qpn, qkey
	wr.Opcode, wr.Flags, wr.Imm = engine.OpSend, 0, o.Imm
	if o.HasImm {
		wr.Opcode = engine.OpSendImm
	}
	if o.Solicited {
		wr.Flags = engine.Solicited
	}
}

// put gives a request its bytes and counts it.
func (t *transmit) put(at uint64, sge engine.SGE, buf []byte) {
	wr := &t.wrs[at]
	t.sges[at] = sge
	if len(buf) <= t.inline && len(buf) > 0 {
		wr.SGEs, wr.Inline, wr.Flags = nil, buf, wr.Flags|engine.Inline
	} else {
		wr.SGEs, wr.Inline = t.sges[at:at+1:at+1], nil
	}
	t.made++
}

// Commit sends what was reserved, with one doorbell for each run of slots that
// does not pass the end of the ring. On an error what was not sent is dropped
// and counted.
func (e *Endpoint) Commit() error {
	t := &e.tx
	if e.gone() {
		return ErrClosed
	}
	for t.posted != t.made {
		at := t.posted & t.mask
		run := min(t.made-t.posted, uint64(len(t.wrs))-at)
		wrs := t.wrs[at : at+run]
		for i := range wrs {
			t.quiet++
			if t.lent[at+uint64(i)] >= 0 {
				t.quietLent++
			}
			if t.quiet >= t.every || t.quietLent >= t.everyLent {
				wrs[i].Flags |= engine.Signaled
				t.quiet, t.quietLent = 0, 0
			}
		}
		n, err := e.qp.Post(wrs)
		e.returnInlined(at, n)
		t.posted += uint64(n)
		if err != nil {
			e.abandon()
			return e.note(err)
		}
	}
	if e.peers.buried.Load() {
		e.peers.bury()
	}
	return nil
}

// Discard drops what was reserved and not committed.
func (e *Endpoint) Discard() {
	before := e.counts.SendErrors
	e.abandon()
	e.counts.SendErrors = before
}

// Send is Reserve, copy and Commit of one datagram.
func (e *Endpoint) Send(to Peer, data []byte) error {
	buf, err := e.Reserve(to, len(data))
	if err != nil {
		return err
	}
	copy(buf, data)
	return e.Commit()
}

// returnInlined gives back the receive slots of answers that the device has
// taken a copy of.
func (e *Endpoint) returnInlined(at uint64, n int) {
	t := &e.tx
	if t.inline == 0 {
		return
	}
	for i := at; i < at+uint64(n); i++ {
		if t.lent[i] >= 0 && t.wrs[i].Flags&engine.Inline != 0 {
			e.rx.release(uint32(t.lent[i]))
			t.lent[i] = -1
		}
	}
}

// abandon drops what could not be posted.
func (e *Endpoint) abandon() {
	t := &e.tx
	e.counts.SendErrors += t.made - t.posted
	for t.made != t.posted {
		t.made--
		e.giveBack(t.made & t.mask)
	}
}

// giveBack returns the receive slot that a request was sent out of.
func (e *Endpoint) giveBack(at uint64) {
	if s := e.tx.lent[at]; s >= 0 {
		e.tx.lent[at] = -1
		e.rx.release(uint32(s))
	}
}

// reclaim takes completions of sends, and only of those: it is called when the
// ring is full, between two Polls.
func (e *Endpoint) reclaim() {
	for range e.tx.depth {
		n, err := e.cq.Poll(e.wc[:])
		if err != nil {
			_ = e.note(err)
		}
		if n == 0 {
			return
		}
		for i := range e.wc[:n] {
			if c := &e.wc[i]; c.Recv {
				e.keep(c)
			} else {
				e.retire(c)
			}
		}
		if e.tx.made-e.tx.done < e.tx.depth {
			return
		}
	}
}

// retire ends the sends of one completion. Of those without a completion of
// their own before one that failed, all left.
func (e *Endpoint) retire(c *engine.Completion) {
	t := &e.tx
	n := uint64(c.Retired)
	for i := range n {
		at := (t.done + i) & t.mask
		bytes := uint64(t.sges[at].Len)
		e.giveBack(at)
		if i == n-1 && c.Status != engine.StatusSuccess {
			e.counts.SendErrors++
			_ = e.note(c.Status)
			continue
		}
		e.counts.Sent++
		e.counts.SentBytes += bytes
	}
	t.done += n
}

// Outstanding is the number of datagrams reserved whose completion, or that of
// a later one, was not polled.
func (e *Endpoint) Outstanding() int { return int(e.tx.made - e.tx.done) }
