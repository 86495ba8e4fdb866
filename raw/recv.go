package raw

import (
	"fmt"

	"github.com/bluering/bluering/engine"
)

// pollBurst is the number of completions that are taken at a time.
const pollBurst = 64

// RxFrame is a received frame. Data is valid until it is released.
type RxFrame struct {
	Data   []byte
	TimeNS int64 // of arrival, by the device's clock; 0: unknown
	Status engine.Status
	Flags  engine.WCFlags
	VLAN   uint16 // tag that the device stripped; 0: none
	// RSSHash is what PortConfig.RSS chose the queue by, valid with WCRSSHash.
	RSSHash uint32
}

// RxCounts is what a receive queue has done.
type RxCounts struct {
	Frames, Bytes uint64
	Errors        uint64 // receives that failed
}

// RxQueue receives frames into a pool. One goroutine owns it.
//
//	Poll ─▶ frames, in order of arrival ─▶ read ─▶ Release, the oldest first
type RxQueue struct {
	queueParts
	wrs    []engine.RecvWR // one for each frame of the pool
	frames [][]byte
	wc     [pollBurst]engine.Completion
	counts RxCounts
	held   int  // polled and not released
	first  int  // frame of the oldest held
	whole  bool // the ring has as many entries as there are frames, so that each frame has one entry for good
	err    error
	closed bool
}

func newRxQueue(p *Port, i int) (*RxQueue, error) {
	depth := p.cfg.RxDepth
	parts, err := newParts(p, engine.QPConfig{MaxRecvWR: depth, RxCsum: p.cfg.RxCsum}, depth, engine.StateRTR)
	if err != nil {
		return nil, err
	}
	q := &RxQueue{queueParts: parts, wrs: make([]engine.RecvWR, depth), frames: make([][]byte, depth)}
	sges := make([]engine.SGE, depth)
	for k := range q.wrs {
		f, _ := parts.pool.Get() // as many as the depth
		q.frames[k] = parts.pool.Bytes(f)
		sges[k] = parts.pool.SGE(f, len(q.frames[k]))
		q.wrs[k] = engine.RecvWR{ID: uint64(k), SGEs: sges[k : k+1 : k+1]}
	}
	q.whole = q.qp.Cap().MaxRecvWR == depth
	if _, err = q.qp.PostRecv(q.wrs); err == nil && p.cfg.RSS == 0 {
		_, err = q.qp.Attach(p.cfg.rule(i))
	}
	if err != nil {
		_ = q.close() // the first error says what happened
		return nil, err
	}
	return q, nil
}

// Poll takes up to len(frames) received frames, in order, and returns how
// many; 0 when there is none now, or see Err. It lets a device without a
// goroutine of its own work when there is none. Frames whose receive failed
// have a Status, and no Data; they are released like the others.
func (q *RxQueue) Poll(frames []RxFrame) int {
	n := 0
	for n < len(frames) {
		want := min(len(frames)-n, pollBurst)
		got, err := q.cq.Poll(q.wc[:want])
		if err != nil && q.err == nil {
			q.err = err
		}
		q.take(frames[n:n+got], q.wc[:got])
		n += got
		if got < want {
			break
		}
	}
	q.held += n
	return n
}

func (q *RxQueue) take(frames []RxFrame, wc []engine.Completion) {
	bytes := uint64(0)
	for i := range wc {
		c, f := &wc[i], &frames[i]
		f.TimeNS, f.Status, f.Flags, f.VLAN, f.RSSHash = c.TimeNS, c.Status, c.Flags, c.VLAN, c.RSSHash
		if c.Status != engine.StatusSuccess {
			f.Data = nil
			q.fail(c)
			continue
		}
		data := q.frames[c.WRID]
		f.Data = data[:min(int(c.ByteLen), len(data))]
		bytes += uint64(c.ByteLen)
		q.counts.Frames++
	}
	q.counts.Bytes += bytes
}

// fail notes a failed receive; the first is kept for Err.
func (q *RxQueue) fail(c *engine.Completion) {
	q.counts.Errors++
	if q.err == nil {
		q.err = c.Status
	}
}

// Release gives the n oldest polled frames back to be received into, in one
// batch. More than are held means all.
func (q *RxQueue) Release(n int) {
	n = min(n, q.held)
	if q.whole { // the ring has each frame's request in its slot
		got := q.qp.Repost(n)
		q.held -= got
		q.first = (q.first + got) % len(q.wrs)
		n -= got
	}
	for n > 0 {
		run := min(n, len(q.wrs)-q.first)
		got, err := q.qp.PostRecv(q.wrs[q.first : q.first+run])
		q.held -= got
		if q.first += got; q.first == len(q.wrs) {
			q.first = 0
		}
		if err != nil {
			if q.err == nil {
				q.err = err
			}
			return
		}
		n -= got
	}
}

// Held is the number of frames polled and not released.
func (q *RxQueue) Held() int { return q.held }

// Counts is what the queue has done.
func (q *RxQueue) Counts() RxCounts { return q.counts }

// Err is the first thing that went wrong, nil while all is well.
func (q *RxQueue) Err() error {
	if q.closed {
		return ErrClosed
	}
	return q.err
}

// String names the queue.
func (q *RxQueue) String() string { return fmt.Sprintf("receive queue, QP 0x%x", q.qp.QPN()) }

func (q *RxQueue) close() error {
	q.closed = true
	return q.queueParts.close()
}
