package softnic

import (
	"errors"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/ring"
	"github.com/bluering/bluering/tso"
)

// Limits of segmentation. They stand in Caps. 2^18 is what ConnectX cards tell; the header is a long IPv6 one with
// extension headers and TCP options.
const (
	maxTSO       = 1 << 18
	maxTSOHeader = 256
)

// cutNext is what decode returns instead of a syndrome when the next WQE is a segmented send, which gets a burst of
// its own. It is none of the hardware's.
const cutNext ring.Syndrome = 0xfe

// cutter is the workspace of segmented sends. It is rewritten for every WQE and every burst of one.
type cutter struct {
	plan   tso.Plan
	walk   tso.Segmenter
	pieces [ring.MaxDS][]byte // the payload
	count  int
	piece  int // where the next payload byte is
	off    int
}

// sendSegments executes the segmented send at the head of the queue, as far as limit frames, a burst and the wire's
// room go. What has left is kept in q.cut, and the WQE is looked at anew when it goes on, keys and all: a region
// deregistered in between is never read (D-13). It completes, once, with its last segment (H-08).
func (n *NIC) sendSegments(q *qp, limit int) int {
	s, c := &n.tx, &n.tx.cutter
	w := &s.wqe
	if bad := n.planSegments(q, w); bad != 0 {
		n.sendError(q, bad)
		q.cut = 0
		return 1
	}
	if n.super != nil && q.cut == 0 && q.rate == nil && n.sendWhole(q, w) {
		return c.plan.Segments()
	}
	want := min(limit, burst, c.plan.Segments()-q.cut)
	c.walk = c.plan.Segmenter(w.InlineHdr)
	c.walk.Seek(q.cut)
	from := c.walk
	var g tso.Segment
	for i := range want {
		c.walk.Next(&g)
		s.lens[i] = int32(c.walk.FrameLen(&g))
	}
	room := n.wire.Reserve(s.lens[:want], s.bufs[:want])
	c.walk = from
	if room > 0 {
		n.writeSegments(room)
		q.cut += room
	}
	if q.cut == c.plan.Segments() {
		q.cut = 0
		n.finishSegments(q, w)
	}
	if room < want {
		n.full(q, room)
	}
	return room
}

// wholeSegments bounds what is left to the wire to cut: kernels cut UDP into no more.
const wholeSegments = 64

// fromPlace is the payload from which on a call of the kernel for one packet costs less than copying it into a batch.
const fromPlace = 8 << 10

// sendWhole gives the packet to a wire that has it cut further on. false: it is not for that, or there is no room for
// it whole. What comes of it, counts and all, is what cutting it here makes.
func (n *NIC) sendWhole(q *qp, w *ring.SendWQE) bool {
	c := &n.tx.cutter
	if c.plan.KeepL3 || c.plan.KeepL4 || c.plan.Segments() > wholeSegments {
		return false
	}
	if payload := int(w.Bytes) - len(w.InlineHdr); payload >= fromPlace && n.super.SendSuper(w.InlineHdr, c.pieces[:c.count], int(w.MSS)) {
		n.counters.TxFrames += uint64(c.plan.Segments())
		n.counters.TxBytes += uint64(c.plan.FrameBytes())
		n.finishSegments(q, w)
		return true
	}
	buf := n.super.ReserveSuper(int(w.Bytes), len(w.InlineHdr), int(w.MSS))
	if buf == nil {
		return false
	}
	buf = buf[copy(buf, w.InlineHdr):]
	for _, p := range c.pieces[:c.count] {
		buf = buf[copy(buf, p):]
	}
	n.commit(1, c.plan.Segments(), uint64(c.plan.FrameBytes()))
	n.finishSegments(q, w)
	return true
}

// finishSegments steps over a segmented send, all of which has left, and completes it if it is signaled.
func (n *NIC) finishSegments(q *qp, w *ring.SendWQE) {
	q.sq.Advance()
	if w.Signaled {
		n.completeSend(q, n.touch(q.scq), w.Opcode, w.Index)
	}
}

// planSegments checks everything that can be wrong with a segmented send, and lists its payload.
func (n *NIC) planSegments(q *qp, w *ring.SendWQE) ring.Syndrome {
	c := &n.tx.cutter
	if err := c.plan.Make(w.InlineHdr, int(w.Bytes)-len(w.InlineHdr), int(w.MSS)); err != nil {
		var r *tso.Refusal
		if errors.As(err, &r) && r.Cause == tso.CauseLength {
			return ring.SynLocalLength
		}
		return ring.SynLocalQPOp
	}
	if n.cfg.Profile == engine.ProfileMLX5 { // K-12: a card makes the checksums that it is asked for
		c.plan.KeepL3, c.plan.KeepL4 = w.CsumFlags&ring.CsumL3 == 0, w.CsumFlags&ring.CsumL4 == 0
	}
	c.count = 0
	for i := 0; i < w.NSeg; i++ {
		g := &w.Segs[i]
		p := n.mtt.lookup(g.LKey, g.Addr, g.Len, q.pd, 0)
		if p == nil {
			return ring.SynLocalProt
		}
		c.pieces[c.count] = p
		c.count++
	}
	longest := c.plan.MaxFrame()
	head := [1][]byte{w.InlineHdr}
	if int(w.Bytes)-len(w.InlineHdr) > maxTSO || longest > n.info.MaxFrame || longest > int(n.plainMax) && !tagged(head[:]) {
		return ring.SynLocalLength
	}
	return 0
}

// writeSegments writes the next count segments into the reserved buffers and hands them to the wire.
func (n *NIC) writeSegments(count int) {
	s, c := &n.tx, &n.tx.cutter
	bytes := uint64(0)
	if c.count == 1 {
		c.walk.WriteRun(s.bufs[:count], c.pieces[0])
		for _, b := range s.bufs[:count] {
			bytes += uint64(len(b))
		}
		n.commit(count, count, bytes)
		return
	}
	var g tso.Segment
	for i := range count {
		c.walk.Next(&g)
		if i == 0 {
			c.seek(g.From)
		}
		buf := s.bufs[i]
		c.walk.Put(buf, &g, c.copy(buf[c.walk.HeaderLen():]))
		bytes += uint64(len(buf))
	}
	n.commit(count, count, bytes)
}

// seek finds a place in the payload.
func (c *cutter) seek(at int) {
	c.piece = 0
	for c.piece < c.count && at >= len(c.pieces[c.piece]) {
		at -= len(c.pieces[c.piece])
		c.piece++
	}
	c.off = at
}

// copy fills dst with what comes next of the payload, and sums it.
func (c *cutter) copy(dst []byte) (sum uint32) {
	done := 0
	for done < len(dst) {
		p := c.pieces[c.piece][c.off:]
		k := min(len(p), len(dst)-done)
		sum = csum.Join(sum, csum.Copy(dst[done:], p[:k], 0), done&1 == 1)
		done += k
		if c.off += k; k == len(p) {
			c.piece, c.off = c.piece+1, 0
		}
	}
	return sum
}
