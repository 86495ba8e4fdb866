package traffic

import (
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// tsoDepth is how many payloads a queue has under way: so few that what is read again and again stays in a processor's
// second cache, but some.
func tsoDepth(payload int) int { return min(max(512<<10/payload, 8), 64) }

// tsoQueue sends payloads that the device cuts. To the pacer it is a queue of
// frames, of which a payload's leave together; the last payload of a run may be
// shorter by whole pieces.
//
//	Send(n) ─▶ for each payload: tags at the ends of its pieces ─▶ header ─▶ CommitTSO ─▶ Flush
//
// One goroutine owns it.
type tsoQueue struct {
	tx       *raw.TxQueue
	tmpl     *raw.Template
	key      proto.TagKey
	tagged   bool
	tso      TSO
	segments int
	header   []byte // scratch, as long as a frame of the template
	headLen  int

	queue, queues, perFlow uint64
	payloads               uint64 // handed to the device
	sent, bytes            uint64
	buf                    [1][]byte
}

func newTSOQueue(p *Plan, q int, tx *raw.TxQueue, tmpl *raw.Template, key proto.TagKey) *tsoQueue {
	return &tsoQueue{
		tx: tx, tmpl: tmpl, key: key, tagged: p.Tagged, tso: p.Config.TSO, segments: p.Config.TSO.segments(),
		header: make([]byte, tmpl.MaxFrame()), headLen: headerBytes(&p.Config),
		queue: uint64(q), queues: uint64(p.Queues), perFlow: uint64(p.PerFlow(q)),
	}
}

// Send takes up to n frames, in whole payloads but for the last, and returns how
// many it took.
func (q *tsoQueue) Send(n int, times []uint32) (sent int, err error) {
	for sent < n {
		pieces := min(q.segments, n-sent)
		if q.tx.Reserve(q.buf[:]) == 0 {
			break
		}
		at := times
		if len(times) > 1 {
			at = times[sent : sent+pieces]
		}
		if err = q.commit(pieces, at); err != nil {
			break
		}
		sent += pieces
	}
	q.sent += uint64(sent)
	if e := q.tx.Flush(); err == nil {
		err = e
	}
	if err == nil {
		err = q.tx.Err()
	}
	return sent, err
}

// commit makes the buffer the next payload, of so many pieces.
func (q *tsoQueue) commit(pieces int, times []uint32) error {
	payload := pieces * q.tso.MSS
	if pieces == q.segments {
		payload = q.tso.Payload
	}
	flow := uint32(q.queue + q.queues*(q.payloads%q.perFlow))
	if q.tagged {
		seq := q.payloads / q.perFlow * uint64(q.segments)
		for i := range pieces {
			end := min((i+1)*q.tso.MSS, payload)
			q.key.Put(q.buf[0][end-tagBytes:end], flow, seq+uint64(i), times[min(i, len(times)-1)])
		}
	}
	q.tmpl.Write(q.header, q.queue+q.queues*q.payloads, flow)
	if _, err := q.tx.CommitTSO(q.header[:q.headLen], q.tso.MSS, payload); err != nil {
		return err
	}
	q.payloads++
	q.bytes += uint64(payload + pieces*q.headLen)
	return nil
}

// Sent is the number of frames handed to the device.
func (q *tsoQueue) Sent() uint64 { return q.sent }

// Bytes is the sum of their lengths, without FCS.
func (q *tsoQueue) Bytes() uint64 { return q.bytes }
