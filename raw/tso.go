package raw

import (
	"errors"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/tso"
)

// ErrTSO: the port was not made with PortConfig.TSO.
var ErrTSO = errors.New("raw: the port was not made for segmented sends")

// cut is what one request puts on the wire.
type cut struct{ frames, bytes uint32 }

// CommitTSO says that the first buffer of the last Reserve holds payload bytes
// to be sent behind header, the Ethernet, IP and TCP or UDP header, in segments
// of mss bytes; see package tso for what differs from segment to segment, which
// the device's checksums and lengths are a part of. It returns how many frames
// that makes. header is copied. Nothing is taken when err is not nil: what
// cannot be cut is a *tso.Refusal.
func (q *TxQueue) CommitTSO(header []byte, mss, payload int) (segments int, err error) {
	switch {
	case q.closed:
		return 0, ErrClosed
	case q.stream != nil:
		return 0, ErrStream
	case q.cuts == nil:
		return 0, ErrTSO
	case q.reserved < 1:
		return 0, ErrReserve
	case payload > q.port.cfg.FrameBytes || mss > 65535 || len(header) > q.port.caps.MaxTSOHeader:
		return 0, ErrLength
	}
	var p tso.Plan
	if err := p.Make(header, payload, mss); err != nil {
		return 0, err
	}
	if p.MaxFrame() > q.port.caps.MaxFrame {
		return 0, ErrLength
	}
	at := q.made % uint64(len(q.wrs))
	own := q.headers[int(at)*q.port.caps.MaxTSOHeader:][:len(header)]
	copy(own, header)
	q.sges[at].Len = uint32(payload)
	w := &q.wrs[at]
	w.Opcode, w.MSS, w.TSOHeader = engine.OpTSO, uint16(mss), own
	q.cuts[at] = cut{uint32(p.Segments()), uint32(p.FrameBytes())}
	q.made++
	q.reserved = 0
	return p.Segments(), nil
}

// SendTSO copies payload into a buffer of transmit queue i and sends it behind
// header in segments of mss bytes, as CommitTSO does. It returns how many frames
// that makes; 0 and no error when the queue is full now. The queue's owner calls
// it.
func (p *Port) SendTSO(i int, header []byte, mss int, payload []byte) (segments int, err error) {
	q := p.Tx(i)
	if q == nil || p.closed.Load() {
		return 0, ErrClosed
	}
	var buf [1][]byte
	switch {
	case q.cuts == nil:
		return 0, ErrTSO
	case len(payload) > p.cfg.FrameBytes:
		return 0, ErrLength
	case q.Reserve(buf[:]) == 0:
		return 0, q.Err()
	}
	copy(buf[0], payload)
	if segments, err = q.CommitTSO(header, mss, len(payload)); err != nil {
		return 0, err
	}
	return segments, q.Flush()
}

// countCuts counts the n oldest requests, which have left.
func (q *TxQueue) countCuts(n uint64) {
	depth := uint64(len(q.wrs))
	at := q.done % depth
	for range n {
		q.counts.Frames += uint64(q.cuts[at].frames)
		q.counts.Bytes += uint64(q.cuts[at].bytes)
		if at++; at == depth {
			at = 0
		}
	}
}
