package engine

import (
	"errors"
	"testing"

	"github.com/bluering/bluering/ring"
)

func TestPollCounts(t *testing.T) { // H-01, H-02
	r := newRig(t, rigConfig{})
	if n, err := r.cq.Poll(r.wc); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := r.cq.Poll(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	for i := range 7 {
		_, err := r.q.Post([]SendWR{r.wr(uint64(i), Signaled)})
		r.ok(err)
	}
	next := uint64(0)
	for _, want := range []int{3, 3, 1, 0} {
		n, err := r.cq.Poll(r.wc[:3])
		if n != want || err != nil {
			t.Fatalf("polled %d, %v; want %d", n, err, want)
		}
		for _, c := range r.wc[:n] {
			if c.WRID != next || c.Recv || c.TimeNS != 77 || c.QPN != r.q.qpn || c.Err() != nil {
				t.Fatalf("%+v", c)
			}
			next++
		}
	}
}

func TestCompletionsOfPadsAndStrangersAreDropped(t *testing.T) {
	r := newRig(t, rigConfig{qp: QPConfig{MaxSendWR: 2, MaxSendSGE: 6}})
	r.s.hold = true
	q := r.s.qps[r.q.qpn]
	stray := func(uidx uint32, counter uint16, kind ring.CQEOpcode) {
		c := r.s.cq(r.cq.cqn)
		r.s.cqe(c, q, func(e *ring.CQE) { e.PutReq(uidx, r.q.qpn, ring.OpSend, counter, 0) }, kind)
		c.dev.Publish()
	}
	stray(1, 0, ring.CQEReq)    // nothing outstanding
	stray(0, 0, ring.CQEReq)    // no user index
	stray(1234, 0, ring.CQEReq) // nobody's
	stray(1, 0, ring.CQERecv)   // no receive outstanding
	stray(1, 0, ring.CQEResize)
	r.s.deliver(r.q.qpn, 1, ring.CQERecvErr, nil)
	if wc := r.poll(); len(wc) != 0 {
		t.Fatalf("%+v", wc)
	}
	if c := r.d.Counters(); c.StrayCQEs != 5 {
		t.Fatalf("%d strays", c.StrayCQEs)
	}
	wide := SendWR{ID: 8, Opcode: OpSend, SGEs: []SGE{r.mr.SGE(0, 60), r.mr.SGE(0, 60), r.mr.SGE(0, 60)}}
	for r.q.sq.PI()%uint32(r.q.sq.Slots()) != uint32(r.q.sq.Slots()-1) {
		_, err := r.q.Post([]SendWR{r.wr(1, Signaled)})
		r.ok(err)
		r.s.run()
		r.poll()
	}
	pad := uint16(r.q.sq.PI())
	_, err := r.q.Post([]SendWR{wide})
	r.ok(err)
	stray(1, pad, ring.CQEReq)
	stray(1, pad+1, ring.CQEReq)
	if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 8 || r.q.sq.FreeSlots() != r.q.sq.Slots() {
		t.Fatalf("%+v", wc)
	}
	if c := r.d.Counters(); c.StrayCQEs != 6 {
		t.Fatalf("%d strays", c.StrayCQEs)
	}
	_, err = r.q.Post([]SendWR{r.wr(9, Signaled)})
	r.ok(err)
	stray(0, 0, ring.CQEReq)
	r.s.hold = false
	if n, err := r.cq.Poll(r.wc); n != 1 || err != nil {
		t.Fatalf("behind a stray, the device was let do %d, %v", n, err)
	}
}

func TestReceiveCompletion(t *testing.T) { // H-04, H-05, H-07, H-09, H-10, E-06, E-08
	good := uint8(ring.HdrOKL3 | ring.HdrOKL4)
	for _, c := range []struct {
		id   string
		typ  QPType
		caps Offload
		kind ring.CQEOpcode
		more func(*ring.CQE)
		want Completion
	}{
		{"H-09 raw", RawPacket, 0, ring.CQERecv, nil, Completion{ByteLen: 60}},
		{"H-07 IPv4 good", RawPacket, OffloadRxCsum, ring.CQERecv,
			func(e *ring.CQE) { e.SetHeaders(good, ring.L3IPv4|ring.L4UDP, 0) }, Completion{ByteLen: 60, Flags: WCCsumOK}},
		{"H-07 without the capability", RawPacket, 0, ring.CQERecv,
			func(e *ring.CQE) { e.SetHeaders(good, ring.L3IPv4|ring.L4UDP, 0) }, Completion{ByteLen: 60}},
		{"H-07 IPv6 never", RawPacket, OffloadRxCsum, ring.CQERecv,
			func(e *ring.CQE) { e.SetHeaders(good, ring.L3IPv6|ring.L4UDP, 0) }, Completion{ByteLen: 60}},
		{"H-10", RawPacket, 0, ring.CQERecv,
			func(e *ring.CQE) { e.SetHeaders(0, ring.VLANStripped, 0x2064) }, Completion{ByteLen: 60, VLAN: 0x2064}},
		{"E-08", UD, 0, ring.CQERecvImm, func(e *ring.CQE) { e.SetImm(0x01020304); e.SetSource(ring.GRHInBuffer|ring.RoCEv2IPv4, 0x77) },
			Completion{ByteLen: 60, Imm: 0x01020304, SrcQP: 0x77, Flags: WCGRH | WCImm}},
		{"E-06", UD, 0, ring.CQERecv, func(e *ring.CQE) { e.SetImm(5); e.SetSource(ring.GRHInBuffer, 0x77) },
			Completion{ByteLen: 60, SrcQP: 0x77, Flags: WCGRH}},
	} {
		t.Run(c.id, func(t *testing.T) {
			r := newRig(t, rigConfig{caps: Caps{Offloads: c.caps}, qp: QPConfig{Type: c.typ}})
			r.ok(r.q.PostRecv1(42, r.mr.SGE(0, 200)))
			r.s.deliver(r.q.qpn, 60, c.kind, c.more)
			c.want.WRID, c.want.TimeNS, c.want.QPN, c.want.Recv, c.want.Retired, c.want.Opcode = 42, 99, r.q.qpn, true, 1, WCRecv
			if wc := r.poll(); len(wc) != 1 || wc[0] != c.want || !wc[0].Opcode.IsRecv() {
				t.Fatalf("%+v, want %+v", wc, c.want)
			}
		})
	}
}

func TestErrorCompletion(t *testing.T) { // H-03, H-06
	for syn, want := range map[ring.Syndrome]Status{
		ring.SynLocalLength: StatusLocLen, ring.SynLocalQPOp: StatusLocQPOp, ring.SynLocalProt: StatusLocProt,
		ring.SynFlushed: StatusWRFlush, ring.SynRemoteInval: StatusRemInvReq, 0x99: StatusGeneral,
	} {
		r := newRig(t, rigConfig{})
		r.s.qps[r.q.qpn].bad = syn
		_, err := r.q.Post([]SendWR{r.wr(9, 0)})
		r.ok(err)
		wc := r.poll()
		if len(wc) != 1 || wc[0] != (Completion{WRID: 9, QPN: r.q.qpn, Retired: 1, Status: want, Vendor: 0x51, Syndrome: syn}) {
			t.Fatalf("%+v", wc)
		}
		err = wc[0].Err()
		var ce *CompletionError
		if !errors.As(err, &ce) || ce.WRID != 9 || !errors.Is(err, want) || errors.Is(err, StatusFatal) {
			t.Fatalf("%v", err)
		}
	}
	r := newRig(t, rigConfig{bare: true})
	r.ok(r.q.PostRecv1(1, r.mr.SGE(0, 10)))
	r.s.recvError(r.q.qpn, ring.SynLocalProt)
	r.s.run()
	if wc := r.poll(); len(wc) != 1 || !wc[0].Recv || wc[0].Status != StatusLocProt || r.q.State() != StateErr { // D-09
		t.Fatalf("%+v, %v", wc, r.q.State())
	}
}

func TestSharedQueueTellsQueuePairsApart(t *testing.T) { // H-12
	r := newRig(t, rigConfig{})
	var qs []*QP
	for range 5 {
		q, err := r.d.DefaultPD().NewQP(QPConfig{Type: RawPacket, SendCQ: r.cq, RecvCQ: r.cq, MaxRecvWR: 4})
		r.ok(err)
		r.ok(q.MoveTo(StateRTS, QPAttr{}))
		r.ok(q.PostRecv1(uint64(q.qpn)+1000, r.mr.SGE(0, 100)))
		_, err = q.Post([]SendWR{r.wr(uint64(q.qpn), Signaled)})
		r.ok(err)
		r.s.deliver(q.qpn, 60, ring.CQERecv, nil)
		qs = append(qs, q)
	}
	r.ok(qs[2].Close()) // its completions are gone, the others stay
	seen := map[uint32]int{}
	for _, c := range r.poll() {
		want := uint64(c.QPN)
		if c.Recv {
			want += 1000
		}
		if c.WRID != want || c.QPN == qs[2].qpn {
			t.Fatalf("%+v", c)
		}
		seen[c.QPN]++
	}
	if len(seen) != 4 {
		t.Fatalf("%v", seen)
	}
}

func TestOverrunIsAnErrorOfTheQueue(t *testing.T) { // H-11
	r := newRig(t, rigConfig{cqe: 3, qp: QPConfig{MaxSendWR: 8}})
	for i := range 6 {
		_, err := r.q.Post([]SendWR{r.wr(uint64(i), Signaled)})
		r.ok(err)
	}
	n, err := r.cq.Poll(r.wc)
	if n != 4 || err != nil || r.wc[3].WRID != 3 {
		t.Fatalf("polled %d, %v", n, err)
	}
	for range 2 {
		if n, err = r.cq.Poll(r.wc); n != 0 || !errors.Is(err, ErrOverrun) {
			t.Fatalf("polled %d, %v", n, err)
		}
	}
}

func TestAnEmptyPollRunsTheDevice(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.s.hold = true
	_, err := r.q.Post([]SendWR{r.wr(1, Signaled)})
	r.ok(err)
	if n, _ := r.cq.Poll(r.wc); n != 0 {
		t.Fatal("completed without the device")
	}
	r.s.hold = false
	if n, _ := r.cq.Poll(r.wc); n != 1 {
		t.Fatal("the device was not run")
	}
}
