package engine

import (
	"encoding/binary"

	"github.com/bluering/bluering/ring"
)

// A datagram of one piece, or of a few bytes inline, takes two blocks: control
// and datagram segment, and the pointer or the bytes.
const (
	gramBlocks = 2
	gramDS     = 5
)

// postRunUD is postRun for datagrams.
func (q *QP) postRunUD(wrs []SendWR) int {
	if len(wrs) == 1 {
		return q.postGram(&wrs[0])
	}
	w, pi, got := q.sq.ReserveRun(len(wrs), gramBlocks)
	if got == 0 {
		return 0
	}
	got = q.enc.runUD(w, wrs[:got], q.ids[pi&q.idMask:], pi)
	q.sq.CommitRun(got, gramBlocks, 0)
	return got
}

// postGram is postRunUD for one.
func (q *QP) postGram(wr *SendWR) int {
	w, pi, ok := q.sq.Reserve(gramBlocks)
	ref := noRef
	if !ok || !q.enc.gram(&w[0], &w[1], uint64(uint16(pi)), wr, &ref) {
		return 0
	}
	q.ids[pi&q.idMask] = wr.ID
	q.sq.Commit(gramBlocks, 0)
	return 1
}

// runUD writes datagrams of the common kinds. It stops at the first that is not, and leaves it to the long way to find
// out what it is.
func (e *encoder) runUD(w []ring.Block, wrs []SendWR, ids []uint64, pi uint32) int {
	ref := noRef
	w = w[:gramBlocks*len(wrs)]
	for i := range wrs { // no run crosses the ring's edge, so 16 bits do not wrap within one
		at := gramBlocks * i
		if !e.gram(&w[at], &w[at+1], uint64(uint16(pi))+uint64(at), &wrs[i], &ref) {
			return i
		}
		ids[at] = wrs[i].ID
	}
	return len(wrs)
}

// gram writes the two blocks of a datagram at counter pi if it is of a common
// kind: one piece or up to ring.ShortInline bytes inline, an address of the queue
// pair's domain, no other flag but Signaled and Solicited. ref is that of the
// region found last.
func (e *encoder) gram(a, b *ring.Block, pi uint64, wr *SendWR, ref *uint64) bool {
	if wr.AH == nil || wr.AH.pd != e.pd {
		return false
	}
	control := e.word | pi<<40
	if wr.Flags&Inline != 0 {
		if !e.shortInline(wr) {
			return false
		}
		ring.PutShortInline(b, wr.Inline)
		control += uint64(4 + ring.InlineDS(len(wr.Inline)) - gramDS)
	} else {
		if wr.special() || len(wr.SGEs) != 1 {
			return false
		}
		s := &wr.SGEs[0]
		if s.Len-1 >= maxMessage-1 {
			return false
		}
		if s.MR.ref != *ref {
			if e.mrs.find(s.MR.ref) == nil {
				return false
			}
			*ref = s.MR.ref
		}
		binary.BigEndian.PutUint64(b[0:8], uint64(s.Len)<<32|uint64(s.MR.lkey))
		binary.BigEndian.PutUint64(b[8:16], s.MR.addr+uint64(s.Off))
		*(*[16]byte)(b[16:32]) = [16]byte{}
		*(*[32]byte)(b[32:64]) = [32]byte{}
	}
	binary.BigEndian.PutUint64(a[0:8], control)
	flags := uint64(wr.Flags&Signaled)<<2 | uint64(wr.Flags&Solicited)>>1
	binary.LittleEndian.PutUint64(a[8:16], e.second|flags<<flagsByte)
	ring.PutDatagram(a, &wr.AH.av, wr.RemoteQKey, wr.RemoteQPN)
	return true
}

// shortInline reports whether a request is one of the common kind whose data is
// inline.
func (e *encoder) shortInline(wr *SendWR) bool {
	n := len(wr.Inline)
	return wr.Opcode == OpSend && wr.Flags&^(commonFlags|Inline) == 0 && len(wr.SGEs) == 0 && n-1 < ring.ShortInline && n > 0 && n <= e.maxInline
}

const _ = uint(ring.FlagSolicited-uint8(Solicited)>>1) + uint(uint8(Solicited)>>1-ring.FlagSolicited)
