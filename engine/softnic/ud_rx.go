package softnic

import (
	"encoding/binary"
	"fmt"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// udWork is the workspace for datagrams of both sides.
type udWork struct {
	udSender
	runWork
	in     roceFrame
	member [maxGroupQPs]*qp
	loop   wire.Frame            // one that does not come from the wire
	ipv4   [proto.IPv4Bytes]byte // a header whose identification was found out
	grh    [grhArea]byte
	held   bool // the host is kept from answering for the RoCE port
}

// newUD adds what a UD queue pair has beyond a raw one. The first keeps the host from answering for the RoCE port.
func (n *NIC) newUD(q *qp, s *engine.QPSpec) error {
	if n.ud.scratch == nil {
		n.ud.scratch = make([]byte, maxHead+proto.BTHBytes+proto.DETHBytes+proto.ImmDtBytes+n.maxDatagram+proto.ICRCBytes)
	}
	if n.network != nil && !n.ud.held {
		if err := n.network.HoldRoCE(); err != nil {
			return fmt.Errorf("softnic: %s: UDP port %d: %w", n.info.Name, proto.RoCEPort, err)
		}
		n.ud.held = true
	}
	q.ud = &udSide{blockSelfLB: s.BlockSelfLB}
	return nil
}

// While there is a UD queue pair, RoCE v2 frames to this NIC are its business: no flow rule sees them, as on
// hardware. All others go their usual way.

// deliverMixed is the way of frames when there are UD queue pairs. It returns how many frames are done with.
func (n *NIC) deliverMixed(frames []wire.Frame) int {
	for at := 0; at < len(frames); {
		if took := n.deliverGrams(frames[at:]); took != 0 {
			at += took
			continue
		}
		if l3, ok := n.isRoCE(frames[at].Data); ok {
			if !n.datagram(&frames[at], l3) {
				return at
			}
			at++
			continue
		}
		from := at
		for at++; at < len(frames); at++ {
			if _, ok := n.isRoCE(frames[at].Data); ok {
				break
			}
		}
		if took := n.deliverRaw(frames[from:at]); took < at-from {
			return from + took
		}
	}
	return len(frames)
}

// datagram judges a RoCE v2 frame in the order of kernel rxe, and delivers it. It returns false, having done nothing,
// when the frame must wait for a receive WQE.
func (n *NIC) datagram(f *wire.Frame, l3 int) bool {
	r := &n.ud.in
	why := engine.DropTruncated
	if f.Flags&wire.FlagTruncated == 0 {
		why = n.judgeFrame(f, l3, r)
	}
	if why != dropNot {
		n.drop(why, len(f.Data))
		return true
	}
	return n.route(f, r, nil)
}

// route finds the queue pairs that get a good packet. from is the sender of one that is looped back, which never
// waits for a receive WQE: its sender would wait with it, who may be the one to post the WQE.
func (n *NIC) route(f *wire.Frame, r *roceFrame, from *qp) bool {
	if r.ud.Opcode == proto.OpCNP {
		n.counters.RxCNPs++
		return true
	}
	if r.ud.DestQP == proto.MulticastQPN {
		return n.multicast(f, r, from)
	}
	q := n.findQP(r.ud.DestQP)
	why := n.judgeQP(q, r)
	if g := r.dest(); why == dropNot && n.ownGID((*[16]byte)(&g)) < 0 {
		why = engine.DropAddress
	}
	if why != dropNot {
		n.drop(why, len(f.Data))
		return true
	}
	if !n.cfg.Drop && from == nil && q.waitingRecv() == 0 {
		return false
	}
	if from == nil {
		n.learn(f, r, q)
	}
	n.deliverUD(q, f, r)
	return true
}

// dropNot is no reason: the frame is good.
const dropNot = engine.NumDropReasons

// judgeFrame judges what does not depend on a queue pair: lengths, checksums, version.
func (n *NIC) judgeFrame(f *wire.Frame, l3 int, r *roceFrame) engine.DropReason {
	if !r.parse(f.Data, l3) {
		return engine.DropMalformed
	}
	end := r.end - proto.ICRCBytes
	got, want := proto.ICRC(f.Data[l3:], r.version, r.l4-l3, end-l3), proto.LoadICRC(f.Data[end:])
	switch {
	case got != want:
		if f.Flags&wire.FlagIDUnknown == 0 || r.version != 4 || !n.findID(r, f.Data[l3:], end-l3, got, want) {
			return engine.DropChecksum
		}
	case r.version == 4 && f.Flags&wire.FlagIDUnknown == 0 && !csum.VerifyIPv4(r.head):
		return engine.DropChecksum
	}
	if r.ud.Version != 0 {
		return engine.DropVersion
	}
	return dropNot
}

// findID looks for the IPv4 identification that explains the ICRC, and makes the header that came with it, for the
// receive buffer.
func (n *NIC) findID(r *roceFrame, l3 []byte, end int, got, want uint32) bool {
	id, ok := proto.ICRCAnyID(l3, end, got, want)
	if !ok {
		return false
	}
	n.counters.WeakICRCs++
	h := n.ud.ipv4[:]
	copy(h, l3)
	h[4], h[5], h[10], h[11] = byte(id>>8), byte(id), 0, 0
	binary.BigEndian.PutUint16(h[10:], csum.Finish(csum.Sum(h, 0)))
	r.head = h
	return true
}

// judgeQP judges the packet against its queue pair, which may be nil. QP numbers 0 and 1, the management queue pairs,
// are never found (E-17, E-18).
func (n *NIC) judgeQP(q *qp, r *roceFrame) engine.DropReason {
	switch {
	case q == nil:
		return engine.DropUnknownQP
	case q.ud == nil, r.ud.Opcode&0xe0 != proto.OpUDSend&0xe0: // E-19
		return engine.DropQPType
	case r.payload == 0:
		return engine.DropMalformed // a UD packet that is no send
	case !q.receives():
		return engine.DropState // E-20
	case r.ud.PKey&0x7fff != defaultPKey&0x7fff:
		return engine.DropPKey // E-23; the table's only key is a full member's, so that the packet's may be either
	case r.ud.QKey != q.ud.qkey:
		return engine.DropQKey // E-21
	}
	return dropNot
}

// multicast gives a datagram to the members of its group, each its copy (E-27), but for one whose own it is and that
// does not want it. It returns false, having done nothing, when a copy must wait for a receive WQE.
func (n *NIC) multicast(f *wire.Frame, r *roceFrame, from *qp) bool {
	g := r.dest()
	if !g.IsMulticast() { // E-28
		n.drop(engine.DropAddress, len(f.Data))
		return true
	}
	members := n.groups[g]
	count := 0
	for _, q := range members {
		if from != nil && q == from && q.ud.blockSelfLB { // F-18
			continue
		}
		n.ud.member[count] = q
		count++
	}
	if count == 0 {
		n.drop(engine.DropNoGroup, len(f.Data))
		return true
	}
	if !n.cfg.Drop && from == nil {
		for _, q := range n.ud.member[:count] {
			if n.judgeQP(q, r) == dropNot && q.waitingRecv() < wanted(n.ud.member[:count], q) {
				return false
			}
		}
	}
	n.counters.RxCopies += uint64(count - 1)
	for _, q := range n.ud.member[:count] {
		if why := n.judgeQP(q, r); why != dropNot {
			n.drop(why, len(f.Data))
			continue
		}
		n.deliverUD(q, f, r)
	}
	return true
}

// loopBack gives a datagram that q has just sent to the receive side, which judges it as one from the wire. Of one to
// a group nothing is to do when no member here wants it.
func (n *NIC) loopBack(q *qp, frame []byte, how where) {
	n.ud.loop.Data = frame
	f, r := &n.ud.loop, &n.ud.in
	why := n.judgeFrame(f, proto.EthernetBytes, r)
	if how == toGroup {
		members := n.groups[r.dest()]
		if len(members) == 0 || len(members) == 1 && members[0] == q && q.ud.blockSelfLB {
			return
		}
	}
	n.counters.TxLooped++
	if why != dropNot {
		n.drop(why, len(frame))
		return
	}
	n.route(f, r, q)
}

// deliverUD scatters one datagram behind 40 bytes of header into the QP's next receive WQE and completes it.
// Everything is checked before the first byte is written.
func (n *NIC) deliverUD(q *qp, f *wire.Frame, r *roceFrame) {
	x := &n.rx
	count, ok := q.peekRecv(x.segs[:])
	if !ok {
		n.drop(engine.DropNoWQE, len(f.Data)) // E-14
		return
	}
	payload := f.Data[r.payload : r.payload+r.length()]
	need := uint32(grhArea + len(payload))
	if g := &x.segs[0]; count == 1 && g.Len >= need {
		p := n.mtt.lookup(g.LKey, g.Addr, need, q.recvPD(), engine.LocalWrite)
		if p == nil {
			n.receiveError(q, f)
			return
		}
		putGRH((*[grhArea]byte)(p), r.head, r.kind())
		copyFrame(p[grhArea:], payload)
	} else if q.srq != nil && n.cfg.Profile == engine.ProfileRXE && room(x.segs[:count]) < uint64(need) {
		n.tooLongForSRQ(q, f)
		return
	} else if !n.scatterUD(q, f, r, payload, count) {
		return
	}
	n.counters.RxFrames++
	n.counters.RxBytes += uint64(len(f.Data))
	n.completeUD(q, f, r, need)
}

// tooLongForSRQ is what kernel rxe does with a datagram that does not fit a WQE of an SRQ (D7): it takes the WQE and
// says so, and the queue pair goes on.
func (n *NIC) tooLongForSRQ(q *qp, f *wire.Frame) {
	n.drop(engine.DropOversize, len(f.Data))
	counter := n.takeRecv(q)
	if c := n.nextCQE(q.rcq); c != nil {
		c.PutError(q.uidx, q.qpn, 0, counter, ring.SynRemoteInval, 0)
		q.rcq.dev.Seal(sealRecvErr)
	}
}

// scatterUD is deliverUD for several segments: the 40 bytes fill the first of the list, not of its first segment
// (D-15). It returns false when it dealt with the datagram otherwise: too long for the WQE, which is kept (D6), or a
// segment that may not be written.
func (n *NIC) scatterUD(q *qp, f *wire.Frame, r *roceFrame, payload []byte, count int) bool {
	x := &n.rx
	used := n.segments(q, f, count, uint64(grhArea+len(payload)))
	if used == 0 {
		return false
	}
	putGRH(&n.ud.grh, r.head, r.kind())
	from := n.ud.grh[:]
	for _, p := range x.pieces[:used] {
		for len(p) > 0 {
			if len(from) == 0 {
				from = payload
			}
			k := copy(p, from)
			p, from = p[k:], from[k:]
		}
	}
	return true
}

// completeUD consumes the WQE and writes its CQE.
func (n *NIC) completeUD(q *qp, f *wire.Frame, r *roceFrame, bytes uint32) {
	counter := n.takeRecv(q)
	c := n.nextCQE(q.rcq)
	if c == nil {
		return
	}
	c.PutRecv(q.uidx, q.qpn, bytes, counter, n.arrival(f))
	c.SetSource(r.kind(), r.ud.SrcQP)
	seal := sealRecv
	if r.ud.HasImm {
		c.SetImm(r.ud.Imm)
		seal = sealRecvImm
	}
	if r.ud.Solicited {
		seal |= ring.OpOwnSolicited
	}
	q.rcq.dev.Seal(seal)
}
