package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/bluering/bluering/ring"
)

const offloads = OffloadRawCsum | OffloadRawTSO

// frameOf reads back what a WQE would send: inline header, inline data, pieces.
func (r *rig) frameOf(k *stubSend) []byte {
	out := append(append([]byte{}, k.hdr...), k.inline...)
	for _, s := range k.segs {
		if s.LKey != r.mr.lkey {
			r.t.Fatalf("key 0x%x", s.LKey)
		}
		off := s.Addr - r.mr.addr
		out = append(out, r.mem[off:off+uint64(s.Len)]...)
	}
	return out
}

func TestRefusals(t *testing.T) {
	type reply struct {
		cause Cause // CauseNone: accepted
		errno syscall.Errno
	}
	const inval, nomem = syscall.EINVAL, syscall.ENOMEM
	accepted := reply{}
	short := func(r *rig, n int) SendWR { return SendWR{Opcode: OpSend, SGEs: []SGE{r.mr.SGE(0, n)}} }
	tso := func(r *rig, hdr, n int, mss uint16) SendWR {
		return SendWR{Opcode: OpTSO, TSOHeader: make([]byte, hdr), MSS: mss, SGEs: []SGE{r.mr.SGE(0, n)}}
	}
	long := func(r *rig) SendWR {
		return SendWR{Opcode: OpSend, SGEs: []SGE{{MR: r.mr, Len: 1 << 31}}}
	}
	cases := []struct {
		id     string
		typ    QPType
		inline int // the device's minimum
		caps   Offload
		wr     func(r *rig) SendWR
		strict reply
		rxe    reply
		mlx5   reply
	}{
		{"C-11", RawPacket, 0, 0, func(r *rig) SendWR { return SendWR{Opcode: OpSend, SGEs: make([]SGE, 9)} },
			reply{CauseSGECount, inval}, reply{CauseSGECount, inval}, reply{CauseSGECount, nomem}},
		{"C-14 no pieces", RawPacket, 0, 0, func(r *rig) SendWR { return SendWR{Opcode: OpSend} },
			reply{CauseNoData, inval}, reply{CauseNoData, inval}, reply{CauseNoData, inval}},
		{"C-14 empty inline", RawPacket, 0, 0, func(r *rig) SendWR { return SendWR{Opcode: OpSend, Flags: Inline} },
			reply{CauseNoData, inval}, reply{CauseNoData, inval}, reply{CauseNoData, inval}},
		{"C-15 13 bytes", RawPacket, 0, 0, func(r *rig) SendWR { return short(r, 13) },
			reply{CauseShort, inval}, reply{CauseShort, inval}, accepted},
		{"C-15 14 bytes", RawPacket, 0, 0, func(r *rig) SendWR { return short(r, 14) }, accepted, accepted, accepted},
		{"C-15 17 of 18", RawPacket, 18, 0, func(r *rig) SendWR { return short(r, 17) },
			reply{CauseShort, inval}, reply{CauseShort, inval}, reply{CauseShort, inval}},
		{"C-15 18 of 18", RawPacket, 18, 0, func(r *rig) SendWR { return short(r, 18) }, accepted, accepted, accepted},
		{"C-16", RawPacket, 0, 0, long, reply{CauseLength, inval}, reply{CauseLength, inval}, reply{CauseLength, inval}},
		{"C-17 WRITE on RAW", RawPacket, 0, 0, func(r *rig) SendWR { w := r.wr(0, 0); w.Opcode = OpWrite; return w },
			reply{CauseOpcode, inval}, reply{CauseOpcode, inval}, accepted}, // D4
		{"C-17 SEND_WITH_IMM on RAW", RawPacket, 0, 0, func(r *rig) SendWR { w := r.wr(0, 0); w.Opcode = OpSendImm; return w },
			reply{CauseOpcode, inval}, reply{CauseOpcode, inval}, accepted},
		{"C-17 READ on UD", UD, 0, 0, func(r *rig) SendWR { w := r.wr(0, 0); w.Opcode, w.AH = OpRead, r.ah(); return w },
			reply{CauseOpcode, inval}, reply{CauseOpcode, inval}, accepted},
		{"C-17 TSO on UD", UD, 0, 0, func(r *rig) SendWR { w := tso(r, 54, 100, 50); w.AH = r.ah(); return w },
			reply{CauseOpcode, inval}, reply{CauseOpcode, inval}, reply{CauseOpcode, inval}},
		{"C-18", RawPacket, 0, 0, func(r *rig) SendWR { w := r.wr(0, 0); w.Opcode = 11; return w },
			reply{CauseOpcode, inval}, reply{CauseOpcode, inval}, reply{CauseOpcode, inval}},
		{"C-19", RawPacket, 0, 0, func(r *rig) SendWR { return r.wr(0, Fence) }, reply{CauseFlags, inval}, accepted, accepted},
		{"C-21 RAW", RawPacket, 0, 0, func(r *rig) SendWR { return r.wr(0, IPCsum) },
			reply{CauseCsum, inval}, reply{CauseCsum, inval}, reply{CauseCsum, inval}},
		{"C-21 RAW with the offload", RawPacket, 0, offloads, func(r *rig) SendWR { return r.wr(0, IPCsum) }, accepted, accepted, accepted},
		{"C-21 UD", UD, 0, 0, func(r *rig) SendWR { w := r.wr(0, IPCsum); w.AH = r.ah(); return w },
			reply{CauseCsum, inval}, accepted, accepted},
		{"C-22", RawPacket, 0, 0, func(r *rig) SendWR { return r.wr(0, 1<<6) }, reply{CauseFlags, inval}, accepted, accepted},
		{"C-29", UD, 0, 0, func(r *rig) SendWR {
			w := r.wr(0, 0)
			a, err := r.d.NewPD().NewAH(AHAttr{GID: stubGID4})
			r.ok(err)
			w.AH = a
			return w
		}, reply{CauseAHDomain, inval}, reply{}, reply{}},
		{"C-30", UD, 0, 0, func(r *rig) SendWR { return r.wr(0, 0) },
			reply{CauseNoAH, inval}, reply{CauseNoAH, inval}, reply{CauseNoAH, inval}},
		{"C-30 closed", UD, 0, 0, func(r *rig) SendWR { w := r.wr(0, 0); w.AH = r.ah(); r.ok(w.AH.Close()); return w },
			reply{CauseNoAH, inval}, reply{CauseNoAH, inval}, reply{CauseNoAH, inval}},
		{"D-03", RawPacket, 0, 0, func(r *rig) SendWR {
			return SendWR{Opcode: OpSend, Flags: Inline, Inline: make([]byte, r.q.cap.MaxInline+1)}
		}, reply{CauseInline, inval}, reply{CauseInline, inval}, reply{CauseInline, nomem}},
		{"D-05", RawPacket, 0, offloads, func(r *rig) SendWR { w := tso(r, 54, 100, 50); w.Flags = Inline; return w },
			reply{CauseFlags, inval}, reply{CauseFlags, inval}, reply{CauseFlags, inval}},
		{"inline data without the flag", RawPacket, 0, 0, func(r *rig) SendWR { w := r.wr(0, 0); w.Inline = make([]byte, 20); return w },
			reply{CauseFlags, inval}, reply{CauseFlags, inval}, reply{CauseFlags, inval}},
		{"inline and pieces", RawPacket, 0, 0, func(r *rig) SendWR { w := r.wr(0, Inline); w.Inline = make([]byte, 20); return w },
			reply{CauseFlags, inval}, reply{CauseFlags, inval}, reply{CauseFlags, inval}},
		{"zero handle", RawPacket, 0, 0, func(r *rig) SendWR { return SendWR{Opcode: OpSend, SGEs: []SGE{{Len: 60}}} },
			reply{CauseKey, inval}, reply{CauseKey, inval}, reply{CauseKey, inval}},
		{"stale handle", RawPacket, 0, 0, func(r *rig) SendWR {
			mr, err := r.d.DefaultPD().Register(make([]byte, 100), 0)
			r.ok(err)
			r.ok(r.d.DefaultPD().Deregister(mr))
			return SendWR{Opcode: OpSend, SGEs: []SGE{mr.SGE(0, 60)}}
		}, reply{CauseKey, inval}, reply{CauseKey, inval}, reply{CauseKey, inval}},
		{"foreign key", RawPacket, 0, 0, func(r *rig) SendWR {
			return SendWR{Opcode: OpSend, SGEs: []SGE{MRFromKey(0x777, 0x1000, 64).SGE(0, 60)}}
		}, accepted, accepted, accepted},
		{"foreign key where 18 bytes go inline", RawPacket, 18, 0, func(r *rig) SendWR {
			return SendWR{Opcode: OpSend, SGEs: []SGE{MRFromKey(0x777, 0x1000, 64).SGE(0, 60)}}
		}, reply{CauseForeignKey, inval}, reply{CauseForeignKey, inval}, reply{CauseForeignKey, inval}},
		{"inline header beyond the region", RawPacket, 18, 0, func(r *rig) SendWR {
			return SendWR{Opcode: OpSend, SGEs: []SGE{r.mr.SGE(len(r.mem)-17, 60)}}
		}, reply{CauseBounds, inval}, reply{CauseBounds, inval}, reply{CauseBounds, inval}},
		{"K-02", RawPacket, 0, offloads, func(r *rig) SendWR { return tso(r, 13, 100, 50) },
			reply{CauseTSOHeader, inval}, reply{CauseTSOHeader, inval}, reply{CauseTSOHeader, inval}},
		{"K-03", RawPacket, 0, offloads, func(r *rig) SendWR { return tso(r, 95, 100, 50) },
			reply{CauseTSOHeader, inval}, reply{CauseTSOHeader, inval}, reply{CauseTSOHeader, inval}},
		{"K-04", RawPacket, 0, offloads, func(r *rig) SendWR { return tso(r, 54, 4001, 50) },
			reply{CauseTSOLength, inval}, reply{CauseTSOLength, inval}, reply{CauseTSOLength, inval}},
		{"K-06", RawPacket, 0, offloads, func(r *rig) SendWR { return tso(r, 54, 100, 0) },
			reply{CauseTSOMSS, inval}, reply{CauseTSOMSS, inval}, accepted},
		{"K-01", RawPacket, 0, 0, func(r *rig) SendWR { return tso(r, 54, 100, 50) },
			reply{CauseTSOHeader, inval}, reply{CauseTSOHeader, inval}, reply{CauseTSOHeader, inval}},
	}
	for _, c := range cases {
		for p, want := range []reply{c.strict, c.rxe, c.mlx5} {
			t.Run(fmt.Sprintf("%s/%v", c.id, Profile(p)), func(t *testing.T) {
				conf := rigConfig{caps: Caps{Profile: Profile(p), MinInline: c.inline, Offloads: c.caps, MaxTSO: 4000},
					qp: QPConfig{Type: c.typ, MaxSendSGE: 8, MaxInline: 100}}
				if c.caps.hasTSO() {
					conf.qp.MaxTSOHeader = 94
				}
				r := newRig(t, conf)
				r.s.hold = true
				bad := c.wr(r)
				good := r.wr(1, 0)
				if c.typ == UD {
					good.AH = r.ah()
				}
				n, err := r.q.Post([]SendWR{good, good, bad, good})
				if want == accepted {
					if n != 4 || err != nil {
						t.Fatalf("posted %d, %v; want it accepted", n, err)
					}
					return
				}
				checkPost(t, n, err, 2, want.cause, want.errno)  // C-01
				if r.s.rings != 1 || r.q.sq.Outstanding() != 2 { // C-03
					t.Fatalf("%d doorbells, %d outstanding", r.s.rings, r.q.sq.Outstanding())
				}
				n, err = r.q.Post([]SendWR{bad, good})
				checkPost(t, n, err, 0, want.cause, want.errno) // C-02
				err = r.q.PostAll([]SendWR{good, bad})
				errno := want.errno
				if Profile(p) == ProfileRXE && (want.cause == CauseSGECount || want.cause == CauseInline) {
					errno = syscall.ENOSPC
				}
				checkPost(t, 1, err, 1, want.cause, errno) // C-27
				if r.s.rings != 1 || r.q.sq.Outstanding() != 2 {
					t.Fatalf("afterwards %d doorbells, %d outstanding", r.s.rings, r.q.sq.Outstanding())
				}
			})
		}
	}
}

func (o Offload) hasTSO() bool { return o&OffloadRawTSO != 0 }

func TestNothingToPost(t *testing.T) { // C-04, C-05
	r := newRig(t, rigConfig{})
	n, err := r.q.Post(nil)
	n2, err2 := r.q.PostRecv([]RecvWR{})
	if n != 0 || err != nil || n2 != 0 || err2 != nil || r.q.PostAll(nil) != nil || r.s.rings != 0 {
		t.Fatal(n, err, n2, err2, r.s.rings)
	}
}

func TestSendQueueHoldsWhatWasGranted(t *testing.T) { // C-06, C-08, C-09
	for _, asked := range []int{1, 3, 8, 100} {
		r := newRig(t, rigConfig{qp: QPConfig{MaxSendWR: asked, MaxSendSGE: 9}, cqe: 1000})
		most := r.q.Cap().MaxSendWR
		if most < asked {
			t.Fatalf("asked %d, got %d", asked, most)
		}
		for round := range 5 {
			wrs := make([]SendWR, most+3)
			for i := range wrs { // sizes of 1 to 3 blocks, mixed
				wrs[i] = SendWR{ID: uint64(1000*round + i), Opcode: OpSend}
				for k := 0; k <= (i*5+round)%9; k++ {
					wrs[i].SGEs = append(wrs[i].SGEs, r.mr.SGE(64*k, 20))
				}
			}
			wrs[most-1].Flags = Signaled
			n, err := r.q.Post(wrs)
			checkPost(t, n, err, most, CauseFull, syscall.ENOMEM)
			n, err = r.q.Post(wrs[:1])
			checkPost(t, n, err, 0, CauseFull, syscall.ENOMEM) // executed, but not polled
			wc := r.poll()
			if len(wc) != 1 || wc[0].WRID != wrs[most-1].ID || int(wc[0].Retired) != most { // C-26
				t.Fatalf("%+v", wc)
			}
		}
		for range most {
			_, err := r.q.Post([]SendWR{r.wr(1, 0)})
			r.ok(err)
		}
		r.poll()
		n, err := r.q.Post([]SendWR{r.wr(1, Signaled)})
		checkPost(t, n, err, 0, CauseFull, syscall.ENOMEM)
	}
}

func TestReceiveQueue(t *testing.T) { // C-07, C-10
	for _, p := range []Profile{ProfileStrict, ProfileRXE, ProfileMLX5} {
		r := newRig(t, rigConfig{caps: Caps{Profile: p}, qp: QPConfig{MaxRecvWR: 5, MaxRecvSGE: 2}})
		most, sge := r.q.Cap().MaxRecvWR, r.q.Cap().MaxRecvSGE
		wrs := make([]RecvWR, most+2)
		for i := range wrs {
			wrs[i] = RecvWR{ID: uint64(i), SGEs: []SGE{r.mr.SGE(0, 10), {}, r.mr.SGE(10, 90)}[:sge]}
		}
		bad := []RecvWR{wrs[0], {SGEs: make([]SGE, sge+1)}}
		n, err := r.q.PostRecv(bad)
		checkPost(t, n, err, 1, CauseSGECount, syscall.EINVAL)
		n, err = r.q.PostRecv(wrs[1:])
		checkPost(t, n, err, most-1, CauseFull, syscall.ENOMEM)
		n, err = r.q.PostRecv(bad[1:])
		if p == ProfileStrict {
			checkPost(t, n, err, 0, CauseSGECount, syscall.EINVAL)
		} else {
			checkPost(t, n, err, 0, CauseFull, syscall.ENOMEM)
		}
		checkPost(t, 0, r.q.PostRecv1(1, r.mr.SGE(0, 10)), 0, CauseFull, syscall.ENOMEM)
		for i := range most {
			r.s.deliver(r.q.qpn, 60, ring.CQERecv, nil)
			if wc := r.poll(); len(wc) != 1 || wc[0].WRID != uint64(i) {
				t.Fatalf("%+v", wc)
			}
		}
		checkPost(t, 0, r.q.PostRecv1(1, SGE{Len: 5}), 0, CauseKey, syscall.EINVAL)
		n, err = r.q.PostRecv([]RecvWR{{SGEs: []SGE{{Len: 5}}}})
		checkPost(t, n, err, 0, CauseKey, syscall.EINVAL)
		checkPost(t, 0, r.q.PostRecv1(1, SGE{MR: r.mr, Len: 1 << 31}), 0, CauseLength, syscall.EINVAL)
		r.ok(r.q.PostRecv1(1, SGE{}))
	}
}

func TestGatherAndInlineGiveTheSameBytes(t *testing.T) { // D-01, D-02, D-04, D-10, D-11, D-14
	sizes := [][]int{{60}, {18}, {14}, {1, 0, 63}, {17, 1, 40}, {18, 42}, {0, 30, 0, 30}, {5, 5, 5, 5, 5}, {1500}, {19}, {64, 64, 64}}
	for _, minInline := range []int{0, 18} {
		r := newRig(t, rigConfig{caps: Caps{MinInline: minInline}, qp: QPConfig{MaxSendSGE: 5, MaxInline: 200, MaxSendWR: 7}})
		for round := range 3 * len(sizes) {
			want := []byte{}
			wr := SendWR{ID: uint64(round), Opcode: OpSend, Flags: Signaled}
			off := 13 * round
			for _, n := range sizes[round%len(sizes)] {
				s := SGE{MR: r.mr, Off: uint32(off), Len: uint32(n)}
				if n == 0 {
					s = SGE{MR: MR{lkey: 0xbad}}
				}
				wr.SGEs = append(wr.SGEs, s)
				want = append(want, r.mem[off:off+n]...)
				off += n + 100
			}
			if len(want) < max(14, minInline) {
				continue
			}
			wrs := []SendWR{wr}
			if len(want) <= r.q.cap.MaxInline {
				wrs = append(wrs, SendWR{ID: 99, Opcode: OpSend, Flags: Inline | Signaled, Inline: append([]byte{}, want...)})
			}
			_, err := r.q.Post(wrs)
			r.ok(err)
			for i := range wrs {
				k := &r.s.sent[len(r.s.sent)-len(wrs)+i]
				if got := r.frameOf(k); !bytes.Equal(got, want) || len(k.hdr) != minInline {
					t.Fatalf("inline %d, sizes %v, WR %d: header %d, got\n%x, want\n%x", minInline, sizes[round%len(sizes)], i, len(k.hdr), got, want)
				}
			}
			if wc := r.poll(); len(wc) != len(wrs) {
				t.Fatalf("%+v", wc)
			}
		}
	}
}

func TestQuickAndLongWayWriteTheSameWQE(t *testing.T) {
	for _, minInline := range []int{0, 18} {
		r := newRig(t, rigConfig{caps: Caps{MinInline: minInline}, qp: QPConfig{MaxSendWR: 64}})
		r.s.hold = true
		for n := 10; n < 80; n++ {
			for _, flags := range []SendFlags{0, Signaled, Solicited, Signaled | Solicited} {
				r.ok(r.q.Modify(StateReset, QPAttr{}, 0))
				r.ok(r.q.MoveTo(StateRTS, QPAttr{}))
				for i := range r.q.sq.Blocks() {
					r.q.sq.Blocks()[i] = ring.Block{0: 0xa5, 17: 0xa5, 33: 0xa5, 50: 0xa5, 63: 0xa5}
				}
				wr := SendWR{ID: 1, Opcode: OpSend, Flags: flags, SGEs: []SGE{r.mr.SGE(n, n)}}
				quickly := r.q.enc.quick
				n1, err1 := r.q.Post([]SendWR{wr})
				cause1 := causeOf(err1)
				r.q.enc.quick = quickNone
				n2, err2 := r.q.Post([]SendWR{wr})
				r.q.enc.quick = quickly
				if n1 != n2 || cause1 != causeOf(err2) {
					t.Fatalf("%d bytes: %d %v, %d %v", n, n1, cause1, n2, err2)
				}
				if n1 == 0 {
					continue
				}
				a, b := r.q.sq.Blocks()[0], r.q.sq.Blocks()[1]
				ring.Rearm(&b, 0, ring.OpSend)
				if a != b {
					t.Fatalf("%d bytes, flags %x:\n%x\n%x", n, flags, a, b)
				}
			}
		}
	}
}

func TestQuickAndLongWayWriteTheSameDatagram(t *testing.T) {
	r := newRig(t, rigConfig{qp: QPConfig{Type: UD, MaxSendWR: 64}})
	r.s.hold = true
	ah, other := r.ah(), r.ah()
	var wrs []SendWR
	for i := range 40 {
		wr := SendWR{ID: uint64(i), Opcode: OpSend, Flags: SendFlags(i%4) << 1, AH: ah, RemoteQPN: uint32(i) * 0x54321, RemoteQKey: uint32(i) << 27,
			SGEs: []SGE{r.mr.SGE(i, i%9)}}
		if i%5 == 0 {
			wr.AH = other
		}
		if i%11 == 0 {
			wr.Opcode, wr.Imm = OpSendImm, 0xdeadbeef
		}
		wrs = append(wrs, wr)
	}
	var rings [2][]ring.Block
	for k := range rings {
		r.ok(r.q.Modify(StateReset, QPAttr{}, 0))
		r.ok(r.q.MoveTo(StateRTS, QPAttr{}))
		for i := range r.q.sq.Blocks() {
			r.q.sq.Blocks()[i] = ring.Block{0: 0xa5, 17: 0xa5, 33: 0xa5, 50: 0xa5, 63: 0xa5}
		}
		if k == 1 {
			r.q.enc.quick = quickNone
		}
		n, err := r.q.Post(wrs)
		r.ok(err)
		if sends, _ := r.q.Outstanding(); n != len(wrs) || sends != n {
			t.Fatalf("%d posted, %d outstanding", n, sends)
		}
		rings[k] = slices.Clone(r.q.sq.Blocks())
	}
	for i := range rings[0] {
		if rings[0][i] != rings[1][i] {
			t.Fatalf("block %d:\n%x\n%x", i, rings[0][i], rings[1][i])
		}
	}
}

func causeOf(err error) Cause {
	var p *PostError
	if errors.As(err, &p) {
		return p.Cause
	}
	return CauseNone
}

func TestSegmentationRequest(t *testing.T) { // K-05
	r := newRig(t, rigConfig{caps: Caps{Offloads: offloads, MaxTSO: 1 << 16}, qp: QPConfig{MaxSendSGE: 3, MaxTSOHeader: 94}})
	for _, n := range []int{14, 54, 66, 94} {
		hdr := append([]byte{}, r.mem[500:500+n]...)
		wr := SendWR{ID: 7, Opcode: OpTSO, Flags: Signaled | IPCsum, MSS: 1460, TSOHeader: hdr,
			SGEs: []SGE{r.mr.SGE(0, 1000), r.mr.SGE(2000, 3000), r.mr.SGE(9000, 1)}}
		_, err := r.q.Post([]SendWR{wr})
		r.ok(err)
		clear(hdr)
		k := r.s.sent[len(r.s.sent)-1]
		if k.op != ring.OpTSO || k.mss != 1460 || !bytes.Equal(k.hdr, r.mem[500:500+n]) || len(k.segs) != 3 || k.flags != ring.CsumL3|ring.CsumL4 {
			t.Fatalf("%+v", k)
		}
		if wc := r.poll(); len(wc) != 1 || wc[0].Opcode != WCTSO { // H-08
			t.Fatalf("%+v", wc)
		}
	}
}

func TestDatagramRequest(t *testing.T) { // C-13, C-20
	r := newRig(t, rigConfig{qp: QPConfig{Type: UD, MaxInline: 64}})
	wr := SendWR{ID: 1, Opcode: OpSendImm, Flags: Signaled | Solicited, Imm: 0xcafe0001, AH: r.ah(), RemoteQPN: 0x123456, RemoteQKey: 0x8000abcd}
	zero := SendWR{ID: 2, Opcode: OpSend, Flags: Signaled, AH: wr.AH, SGEs: []SGE{{MR: MR{lkey: 1}}}}
	inline := SendWR{ID: 3, Opcode: OpSend, Flags: Signaled | Inline, AH: wr.AH, Inline: r.mem[:64]}
	_, err := r.q.Post([]SendWR{wr, zero, inline})
	r.ok(err)
	k := r.s.sent[0]
	if k.op != ring.OpSendImm || k.imm != 0xcafe0001 || !k.solicit || k.remote != 0x123456 || k.qkey != 0x8000abcd || k.av.MAC[5] != 2 || len(k.segs) != 0 {
		t.Fatalf("%+v", k)
	}
	if k := r.s.sent[1]; k.op != ring.OpSend || k.imm != 0 || len(k.segs)+len(k.inline) != 0 {
		t.Fatalf("%+v", k)
	}
	if k := r.s.sent[2]; !bytes.Equal(k.inline, r.mem[:64]) {
		t.Fatalf("%+v", k)
	}
	if wc := r.poll(); len(wc) != 3 || wc[0].Opcode != WCSend {
		t.Fatalf("%+v", wc)
	}
}

func TestSignaling(t *testing.T) { // C-23, C-24, C-25
	for _, all := range []bool{false, true} {
		r := newRig(t, rigConfig{qp: QPConfig{SigAll: all, MaxSendSGE: 2}})
		two := r.wr(3, 0)
		two.SGEs = append(two.SGEs, r.mr.SGE(0, 5))
		_, err := r.q.Post([]SendWR{r.wr(1, 0), r.wr(2, Signaled), two})
		r.ok(err)
		wc := r.poll()
		if want := map[bool]int{false: 1, true: 3}[all]; len(wc) != want {
			t.Fatalf("SigAll %v: %+v", all, wc)
		}
	}
	r := newRig(t, rigConfig{})
	r.s.qps[r.q.qpn].bad = ring.SynLocalProt
	_, err := r.q.Post([]SendWR{r.wr(1, 0)})
	r.ok(err)
	if wc := r.poll(); len(wc) != 1 || wc[0].Status != StatusLocProt {
		t.Fatalf("%+v", wc)
	}
}

func TestARequestMayBePostedAgain(t *testing.T) { // C-31
	r := newRig(t, rigConfig{})
	wr := r.wr(1, Signaled)
	_, err := r.q.Post([]SendWR{wr, wr})
	r.ok(err)
	wr.SGEs[0] = SGE{}
	if len(r.poll()) != 2 || !bytes.Equal(r.frameOf(&r.s.sent[0]), r.frameOf(&r.s.sent[1])) {
		t.Fatal("they differ")
	}
}

func TestBatch(t *testing.T) { // C-27, C-28
	r := newRig(t, rigConfig{})
	r.s.hold = true
	put := func(id uint64) {
		w, pi, err := r.q.Reserve(1)
		r.ok(err)
		ring.PutCtrl(&w[0], uint16(pi), ring.OpSend, r.q.qpn, 3, ring.FlagSignaled, 0)
		ring.PutEth0(&w[0], 0)
		ring.PutData(w, 2, ring.Seg{Addr: r.mr.addr, Len: 60, LKey: r.mr.lkey})
		r.q.Commit(1, id)
	}
	put(1)
	put(2)
	n, err := r.q.Post([]SendWR{r.wr(9, 0)})
	checkPost(t, n, err, 0, CauseBatch, syscall.EINVAL)
	r.q.Abort()
	put(3)
	put(4)
	r.ok(r.q.Publish())
	if r.s.rings != 1 {
		t.Fatalf("%d doorbells", r.s.rings)
	}
	put(5)
	_, _, err = r.q.Reserve(r.q.Cap().MaxBlocks + 1)
	checkPost(t, 0, err, 0, CauseLength, syscall.EINVAL)
	_, _, err = r.q.Reserve(1)
	checkPost(t, 0, err, 0, CauseLength, syscall.EINVAL)
	checkPost(t, 0, r.q.Publish(), 0, CauseLength, syscall.EINVAL)
	for {
		if _, _, err = r.q.Reserve(1); err != nil {
			break
		}
		r.q.Commit(1, 100)
	}
	checkPost(t, 0, r.q.Publish(), 0, CauseFull, syscall.ENOMEM)
	r.ok(r.q.Publish())
	r.s.hold = false
	if wc := r.poll(); len(wc) != 2 || wc[0].WRID != 3 || wc[1].WRID != 4 {
		t.Fatalf("%+v", wc)
	}
}
