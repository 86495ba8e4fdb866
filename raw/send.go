package raw

import (
	"errors"
	"fmt"

	"github.com/bluering/bluering/engine"
)

// Errors of a transmit queue. They come as they are: nothing is built on the
// way.
var (
	// ErrLength: a frame is shorter or longer than the device, or its buffer, allows.
	ErrLength = errors.New("raw: frame length out of range")
	// ErrReserve: more frames were committed than reserved.
	ErrReserve = errors.New("raw: more frames committed than reserved")
	// ErrStream: a stream has the queue.
	ErrStream = errors.New("raw: the queue belongs to a stream")
)

// TxCounts is what a transmit queue has done.
type TxCounts struct {
	Frames, Bytes uint64 // completed
	Errors        uint64 // failed
}

// TxQueue sends frames from a pool. One goroutine owns it.
//
//	Reserve ─▶ fill ─▶ Commit ─▶ Flush (one doorbell) ─▶ ... ─▶ Reclaim
//
// Buffers are used in turn. At least every quarter of the ring, and the last
// frame of a Flush, asks for a completion, so that the ring never fills with
// requests that nothing retires.
type TxQueue struct {
	queueParts
	port   *Port
	wrs    []engine.SendWR // one for each frame of the pool
	sges   []engine.SGE
	frames [][]byte
	wc     [pollBurst]engine.Completion
	counts TxCounts
	stream *Stream
	err    error
	closed bool

	// Counters of frames, free-running; a frame's slot is counter % depth.
	reserved int    // buffers of the last Reserve, from committed on
	made     uint64 // committed
	posted   uint64
	done     uint64
	quiet    int // posted since the last that asked for a completion
	quarter  int
	minBytes int
	maxBytes int
	flags    engine.SendFlags
	cuts     []cut  // for each frame of the pool; nil without PortConfig.TSO
	headers  []byte // of them
}

func newTxQueue(p *Port, _ int) (*TxQueue, error) {
	depth := p.cfg.TxDepth
	c := engine.QPConfig{MaxSendWR: depth}
	if p.cfg.TSO {
		c.MaxTSOHeader = p.caps.MaxTSOHeader
	}
	parts, err := newParts(p, c, depth, engine.StateRTS)
	if err != nil {
		return nil, err
	}
	q := &TxQueue{
		queueParts: parts, port: p, quarter: max(depth/4, 1),
		wrs: make([]engine.SendWR, depth), sges: make([]engine.SGE, depth), frames: make([][]byte, depth),
		minBytes: p.caps.MinFrame, maxBytes: min(p.caps.MaxFrame, p.cfg.FrameBytes),
	}
	for k := range q.wrs {
		f, _ := parts.pool.Get() // as many as the depth
		b := parts.pool.Bytes(f)
		q.frames[k] = b[:p.cfg.FrameBytes:p.cfg.FrameBytes]
		q.sges[k] = parts.pool.SGE(f, 0)
		q.wrs[k] = engine.SendWR{ID: uint64(k), Opcode: engine.OpSend, SGEs: q.sges[k : k+1 : k+1]}
	}
	if p.cfg.IPCsum {
		q.flags = engine.IPCsum
	}
	if p.cfg.TSO {
		q.cuts, q.headers = make([]cut, depth), make([]byte, depth*c.MaxTSOHeader)
	}
	return q, nil
}

// Reserve gives up to len(frames) buffers, each FrameBytes long, and returns
// how many; fewer, or 0, when the others have not left yet (it polls for
// completions itself). Nothing is sent before Commit; a second Reserve without
// one gives the same buffers.
func (q *TxQueue) Reserve(frames [][]byte) int {
	if q.stream != nil || q.closed {
		return 0
	}
	depth := uint64(len(q.wrs))
	n := q.room(len(frames))
	at := q.made % depth
	for i := range n {
		frames[i] = q.frames[at]
		if at++; at == depth {
			at = 0
		}
	}
	q.reserved = n
	return n
}

// room is how many of n buffers are free. If they are not all, it looks for
// completions first.
func (q *TxQueue) room(n int) int {
	free := len(q.wrs) - int(q.made-q.done)
	if free < n {
		q.Reclaim()
		free = len(q.wrs) - int(q.made-q.done)
	}
	return min(n, free)
}

// Commit says that the first len(lens) buffers of the last Reserve hold frames
// of these lengths. It returns how many were taken: all, or those before the
// first that cannot be sent.
func (q *TxQueue) Commit(lens []int) (n int, err error) {
	switch {
	case q.closed:
		return 0, ErrClosed
	case q.stream != nil:
		return 0, ErrStream
	}
	depth := uint64(len(q.wrs))
	at := q.made % depth
	for _, length := range lens {
		if n == q.reserved {
			err = ErrReserve
			break
		}
		if length < q.minBytes || length > q.maxBytes {
			err = ErrLength
			break
		}
		q.sges[at].Len = uint32(length)
		if q.cuts != nil {
			q.wrs[at].Opcode, q.cuts[at] = engine.OpSend, cut{1, uint32(length)}
		}
		if at++; at == depth {
			at = 0
		}
		n++
	}
	q.made += uint64(n)
	q.reserved = 0
	return n, err
}

// Flush sends what was committed, with one doorbell for each run of buffers
// that does not pass the end of the pool.
func (q *TxQueue) Flush() error {
	switch {
	case q.closed:
		return ErrClosed
	case q.stream != nil:
		return ErrStream
	}
	return q.post()
}

// post posts what was made and not posted yet.
func (q *TxQueue) post() error {
	depth := uint64(len(q.wrs))
	for q.posted != q.made {
		at := q.posted % depth
		run := min(q.made-q.posted, depth-at)
		wrs := q.wrs[at : at+run]
		for i := range wrs {
			flags := q.flags
			if q.quiet++; q.quiet >= q.quarter || i == len(wrs)-1 {
				flags, q.quiet = flags|engine.Signaled, 0
			}
			if wrs[i].Opcode == engine.OpTSO {
				flags |= engine.IPCsum
			}
			wrs[i].Flags = flags
		}
		n, err := q.qp.Post(wrs)
		q.posted += uint64(n)
		if err != nil {
			q.abandon()
			return q.note(err)
		}
	}
	return nil
}

// abandon drops what could not be posted; its buffers are free again.
func (q *TxQueue) abandon() {
	q.counts.Errors += q.made - q.posted
	q.made = q.posted
}

// Reclaim takes completions and returns how many frames they ended. It lets a
// device without a goroutine of its own work when there is none.
func (q *TxQueue) Reclaim() int {
	total := 0
	for {
		n, err := q.cq.Poll(q.wc[:])
		if err != nil {
			_ = q.note(err)
		}
		for i := range q.wc[:n] {
			total += q.retire(&q.wc[i])
		}
		if n < len(q.wc) {
			return total
		}
	}
}

// retire ends the frames of one completion. Of those without a completion of
// their own before one that failed, all left.
func (q *TxQueue) retire(c *engine.Completion) int {
	n := uint64(c.Retired)
	failed := uint64(0)
	if c.Status != engine.StatusSuccess {
		failed = 1
		_ = q.note(c.Status)
	}
	if q.cuts != nil && q.stream == nil {
		q.countCuts(n - failed)
	} else {
		q.counts.Frames += n - failed
		q.counts.Bytes += q.lengths(n - failed)
	}
	q.done += n
	q.counts.Errors += failed
	return int(n)
}

// lengths sums the lengths of the n oldest frames.
func (q *TxQueue) lengths(n uint64) (sum uint64) {
	if q.stream != nil {
		return q.stream.lengths(n)
	}
	depth := uint64(len(q.wrs))
	at := q.done % depth
	for range n {
		sum += uint64(q.sges[at].Len)
		if at++; at == depth {
			at = 0
		}
	}
	return sum
}

func (q *TxQueue) note(err error) error {
	if q.err == nil {
		q.err = err
	}
	return err
}

// Outstanding is the number of frames committed and not reclaimed.
func (q *TxQueue) Outstanding() int { return int(q.made - q.done) }

// Counts is what the queue has done; of frames, what is reclaimed.
func (q *TxQueue) Counts() TxCounts { return q.counts }

// Err is the first thing that went wrong, nil while all is well.
func (q *TxQueue) Err() error {
	if q.closed {
		return ErrClosed
	}
	return q.err
}

// String names the queue.
func (q *TxQueue) String() string { return fmt.Sprintf("transmit queue, QP 0x%x", q.qp.QPN()) }

func (q *TxQueue) close() error {
	q.closed = true
	return q.queueParts.close()
}
