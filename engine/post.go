package engine

import "github.com/bluering/bluering/ring"

// Post posts send requests in order, up to the first that is refused: n are
// posted, and err, a *PostError, says why wrs[n] is not. The doorbell is rung
// once for all that were posted. Nothing of wrs is kept.
//
// The queue is full with Cap().MaxSendWR requests outstanding; they stop being
// so when a completion of theirs, or of a later one, is polled (C-08). Requests
// without Signaled complete silently, so that a queue of nothing else fills for
// good (C-09).
func (q *QP) Post(wrs []SendWR) (n int, err error) {
	if q == nil || q.sq == nil {
		return 0, closedPost
	}
	if q.closed.Load() {
		return 0, q.refuse(CauseClosed, 0, false)
	}
	if len(wrs) == 0 {
		return 0, nil
	}
	if !q.scq.owner.enter() {
		return 0, ErrOwner
	}
	cause := q.mayPost()
	if cause == CauseNone {
		n, cause = q.postAsFarAs(wrs)
		q.ringDoorbell()
	}
	if cause != CauseNone {
		err = q.refuse(cause, n, false)
	}
	q.scq.owner.leave()
	return n, err
}

// PostAll posts all requests or none (ibv_wr_start to ibv_wr_complete).
func (q *QP) PostAll(wrs []SendWR) (err error) {
	if q == nil || q.sq == nil {
		return closedPost
	}
	if q.closed.Load() {
		return q.refuse(CauseClosed, 0, true)
	}
	if len(wrs) == 0 {
		return nil
	}
	if !q.scq.owner.enter() {
		return ErrOwner
	}
	cause, n := q.mayPost(), 0
	if cause == CauseNone {
		mark := q.sq.Mark()
		if n, cause = q.postAsFarAs(wrs); cause == CauseNone {
			q.ringDoorbell()
		} else {
			q.sq.Rollback(mark)
		}
	}
	if cause != CauseNone {
		err = q.refuse(cause, n, true)
	}
	q.scq.owner.leave()
	return err
}

// mayPost judges what does not depend on the request.
func (q *QP) mayPost() Cause {
	switch {
	case !q.enc.open:
		return CauseState
	case q.image != nil:
		return CauseImage
	case q.inBatch:
		return CauseBatch
	}
	return CauseNone
}

// postAsFarAs commits requests without publishing them. Runs of the common
// kind, one piece and nothing special, take a loop of their own.
func (q *QP) postAsFarAs(wrs []SendWR) (n int, cause Cause) {
	room := q.maxWR - q.sq.Outstanding()
	for n < len(wrs) {
		if n == room {
			return n, CauseFull
		}
		if q.enc.quick != quickNone {
			if did := q.postRun(wrs[n:min(len(wrs), room)]); did != 0 {
				n += did
				continue
			}
		}
		if cause = q.postOne(&wrs[n]); cause != CauseNone {
			return n, cause
		}
		n++
	}
	return n, CauseNone
}

// postRun commits requests of the common kind from the first on, as far as they
// go and the ring is contiguous.
func (q *QP) postRun(wrs []SendWR) int {
	if q.enc.quick == quickUD {
		return q.postRunUD(wrs)
	}
	w, pi, got := q.sq.ReserveRun(len(wrs), 1)
	if got == 0 {
		return 0
	}
	s := pi & q.idMask
	ids := q.ids[s : s+uint32(got)]
	if q.enc.quick == quickRaw0 {
		got = q.enc.run0(w, wrs[:got], ids, pi)
	} else {
		got = q.enc.run18(w, wrs[:got], ids, pi)
	}
	q.sq.CommitRun(got, 1, 0)
	return got
}

// postOne commits any request.
func (q *QP) postOne(wr *SendWR) Cause {
	var p plan
	if cause := q.enc.plan(wr, &p); cause != CauseNone {
		return cause
	}
	bb := ring.BlocksFor(p.ds)
	w, pi, ok := q.sq.Reserve(bb)
	if !ok {
		return CauseFull
	}
	q.enc.write(w, pi, wr, &p)
	q.ids[pi&q.idMask] = wr.ID
	q.sq.Commit(bb, wr.ID)
	return CauseNone
}

func (q *QP) ringDoorbell() {
	if word, any := q.sq.Publish(); any {
		q.dev.b.Ring(q.qpn, word)
	}
}

// refuse fills the queue pair's error.
func (q *QP) refuse(c Cause, index int, batch bool) *PostError {
	e := &q.postErr
	*e = PostError{Cause: c, Index: index, Errno: c.errno(q.dev.caps.Profile, batch), QPN: q.qpn}
	return e
}

// Reserve gives bb contiguous blocks for a WQE written by hand, and the counter
// of the first; package ring has the encoders. The first Reserve after Publish
// or Abort opens a batch. An error stays with the batch: Publish reports it,
// and nothing of the batch is sent. Blocks are counted, not requests.
func (q *QP) Reserve(bb int) (w []ring.Block, pi uint32, err error) {
	if q == nil || q.sq == nil {
		return nil, 0, closedPost
	}
	if q.closed.Load() {
		return nil, 0, q.refuse(CauseClosed, 0, true)
	}
	if !q.scq.owner.enter() {
		return nil, 0, ErrOwner
	}
	defer q.scq.owner.leave()
	if !q.inBatch {
		if q.image != nil {
			return nil, 0, q.refuse(CauseImage, 0, true)
		}
		q.inBatch, q.batchErr, q.mark = true, nil, q.sq.Mark()
		if !q.enc.open {
			q.batchErr = q.refuse(CauseState, 0, true)
		}
	}
	if q.batchErr != nil {
		return nil, 0, q.batchErr
	}
	w, pi, ok := q.sq.Reserve(bb)
	if !ok {
		cause := CauseFull
		if bb < 1 || bb > q.cap.MaxBlocks {
			cause = CauseLength
		}
		q.batchErr = q.refuse(cause, q.sq.Outstanding(), true)
		return nil, 0, q.batchErr
	}
	return w, pi, nil
}

// Commit makes the first bb blocks of the last Reserve a request of the batch.
// Without a Reserve it does nothing.
func (q *QP) Commit(bb int, wrID uint64) {
	if q.usable() != nil || !q.inBatch || q.batchErr != nil || !q.scq.owner.enter() {
		return
	}
	before := q.sq.PI()
	q.sq.Commit(bb, wrID)
	if after := q.sq.PI(); after != before {
		q.ids[(after-uint32(bb))&q.idMask] = wrID
	}
	q.scq.owner.leave()
}

// Publish sends the batch and rings once, or reports the batch's error and
// drops it. Without a batch it does nothing.
func (q *QP) Publish() error {
	if q == nil || q.sq == nil {
		return closedPost
	}
	if q.closed.Load() {
		return q.refuse(CauseClosed, 0, true)
	}
	if !q.inBatch {
		return nil
	}
	if !q.scq.owner.enter() {
		return ErrOwner
	}
	defer q.scq.owner.leave()
	q.inBatch = false
	if q.batchErr != nil {
		q.sq.Rollback(q.mark)
		return q.batchErr
	}
	q.ringDoorbell()
	return nil
}

// Abort drops the batch; the next one starts clean (C-28).
func (q *QP) Abort() {
	if q.usable() != nil || !q.inBatch || !q.scq.owner.enter() {
		return
	}
	q.sq.Rollback(q.mark)
	q.inBatch, q.batchErr = false, nil
	q.scq.owner.leave()
}

// PostRecv posts receive requests in order, with the meaning of Post. On a raw
// packet queue pair the device is told at RTR only (B-27).
func (q *QP) PostRecv(wrs []RecvWR) (n int, err error) {
	if q == nil || q.sq == nil {
		return 0, closedPost
	}
	if len(wrs) == 0 {
		return 0, nil
	}
	if !q.rcq.owner.enter() {
		return 0, ErrOwner
	}
	cause := q.mayPostRecv()
	ref := noRef
	for cause == CauseNone && n < len(wrs) {
		if did := q.recvRun(wrs[n:]); did != 0 {
			n += did
			continue
		}
		if cause = q.queueRecv(wrs[n].SGEs, wrs[n].ID, &ref); cause == CauseNone {
			n++
		}
	}
	if n != 0 {
		q.publishRecv()
	}
	if cause != CauseNone {
		err = q.refuseRecv(cause, n)
	}
	q.rcq.owner.leave()
	return n, err
}

// recvRun writes requests of one piece from the first on, as far as they go and
// the ring is contiguous. All else it leaves to queueRecv.
func (q *QP) recvRun(wrs []RecvWR) (n int) {
	mem, ids := q.rq.Run(len(wrs))
	stride := q.rq.Stride()
	ref := noRef
	wrs = wrs[:len(ids)]
	for n < len(wrs) {
		wr := &wrs[n]
		if len(wr.SGEs) != 1 {
			break
		}
		s := &wr.SGEs[0]
		if s.Len-1 >= maxMessage-1 {
			break
		}
		if s.MR.ref != ref {
			if q.dev.mrs.find(s.MR.ref) == nil {
				break
			}
			ref = s.MR.ref
		}
		ring.PutSeg((*[ring.DSBytes]byte)(mem), s.MR.addr+uint64(s.Off), s.Len, s.MR.lkey)
		if stride > ring.DSBytes {
			ring.PutSeg((*[ring.DSBytes]byte)(mem[ring.DSBytes:]), 0, 0, ring.TermLKey)
		}
		mem = mem[stride:]
		ids[n] = wr.ID
		n++
	}
	q.rq.Commit(n)
	return n
}

// Repost posts up to n receive requests again, the oldest that completed and
// were not posted since, with their pieces and numbers, and returns how many:
// the ring has them from its last lap, so that nothing is written or checked.
// 0: the ring is full, or in its first lap; PostRecv goes on everywhere. A piece
// whose region was deregistered meanwhile fails when the device comes to it.
func (q *QP) Repost(n int) int {
	if q == nil || q.rq == nil || !q.rcq.owner.enter() {
		return 0
	}
	if q.mayPostRecv() != CauseNone {
		n = 0
	}
	if n = q.rq.Repost(n); n != 0 {
		q.publishRecv()
	}
	q.rcq.owner.leave()
	return n
}

// PostRecv1 posts one receive request of one piece.
func (q *QP) PostRecv1(id uint64, sge SGE) error {
	if err := q.QueueRecv(id, sge); err != nil {
		return err
	}
	q.PublishRecv()
	return nil
}

// QueueRecv is PostRecv1 that leaves it to a later PublishRecv to tell the
// device, once for many.
func (q *QP) QueueRecv(id uint64, sge SGE) error {
	if q == nil || q.sq == nil {
		return closedPost
	}
	if !q.rcq.owner.enter() {
		return ErrOwner
	}
	cause := q.mayPostRecv()
	if cause == CauseNone {
		switch {
		case sge.Len-1 >= maxMessage-1:
			pieces := [1]SGE{sge}
			ref := noRef
			cause = q.queueRecv(pieces[:], id, &ref)
		case q.dev.mrs.find(sge.MR.ref) == nil:
			cause = CauseKey
		case !q.rq.Post1(ring.Seg{Addr: sge.MR.addr + uint64(sge.Off), Len: sge.Len, LKey: sge.MR.lkey}, id):
			cause = CauseFull
		}
	}
	q.rcq.owner.leave()
	if cause != CauseNone {
		return q.refuseRecv(cause, 0)
	}
	return nil
}

// PublishRecv tells the device of what QueueRecv queued.
func (q *QP) PublishRecv() {
	if q.usable() != nil || !q.rcq.owner.enter() {
		return
	}
	q.publishRecv()
	q.rcq.owner.leave()
}

func (q *QP) mayPostRecv() Cause {
	switch {
	case q.closed.Load():
		return CauseClosed
	case q.srq != nil:
		return CauseSRQ // G-01
	case q.state == StateReset:
		return CauseState // B-20
	}
	return CauseNone
}

func (q *QP) publishRecv() {
	if q.rq != nil && (q.typ != RawPacket || q.state >= StateRTR) {
		q.rq.Publish()
	}
}

// queueRecv writes one entry. Profile strict judges the request before the
// room, the others the other way round (C-10).
func (q *QP) queueRecv(sges []SGE, id uint64, ref *uint64) Cause {
	full := q.rq.Outstanding() >= q.rq.Max()
	if full && q.dev.caps.Profile != ProfileStrict {
		return CauseFull
	}
	if cause := q.dev.mrs.listPieces(q.segs[:q.cap.MaxRecvSGE], sges, ref); cause != CauseNone {
		return cause
	}
	if full || !q.rq.Post(q.segs[:len(sges)], id) {
		return CauseFull
	}
	return CauseNone
}

// listPieces judges the pieces of a receive request, of which there may be as
// many as segs has room for, and lists them there. ref is that of the region
// found last.
func (t *mrTable) listPieces(segs []ring.Seg, sges []SGE, ref *uint64) Cause {
	if len(sges) > len(segs) {
		return CauseSGECount
	}
	total := uint64(0)
	for i := range sges {
		s := &sges[i]
		total += uint64(s.Len)
		if s.Len != 0 && s.MR.ref != *ref {
			if t.find(s.MR.ref) == nil {
				return CauseKey
			}
			*ref = s.MR.ref
		}
		segs[i] = ring.Seg{Addr: s.MR.addr + uint64(s.Off), Len: s.Len, LKey: s.MR.lkey}
	}
	if total >= maxMessage {
		return CauseLength
	}
	return CauseNone
}

func (q *QP) refuseRecv(c Cause, index int) *PostError {
	q.recvErr = PostError{Cause: c, Index: index, Errno: c.recvErrno(), QPN: q.qpn, Recv: true}
	return &q.recvErr
}
