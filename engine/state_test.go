package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bluering/bluering/ring"
)

// path leads to each state from RESET.
var path = [numStates][]QPState{
	StateReset: {}, StateInit: {StateInit}, StateRTR: {StateInit, StateRTR}, StateRTS: {StateInit, StateRTR, StateRTS},
	StateSQD: {StateInit, StateRTR, StateRTS, StateSQD}, StateErr: {StateInit, StateErr},
	StateSQE: {StateInit, StateRTR, StateRTS}, // and a failed send
}

func must(typ QPType, from, to QPState) AttrMask {
	if typ == UD {
		return edges[from][to].udMust
	}
	return edges[from][to].rawMust
}

func (r *rig) bring(to QPState) {
	r.t.Helper()
	at := StateReset
	for _, s := range path[to] {
		r.ok(r.q.Modify(s, QPAttr{Port: 1}, must(r.q.typ, at, s)))
		at = s
	}
	if to == StateSQE {
		r.s.qps[r.q.qpn].state.Store(uint32(StateSQE))
		r.q.state = StateSQE
	}
	if got := r.q.State(); got != to {
		r.t.Fatalf("brought to %v, is in %v", to, got)
	}
}

// The table of items B, written once more: rows RESET .. ERR.
var legalEdges = map[QPType][numStates]string{
	RawPacket: {"RESET INIT", "RESET INIT RTR ERR", "RESET RTS ERR", "RESET RTS SQD ERR", "RESET RTS SQD ERR", "RESET RTS ERR", "RESET ERR"},
	UD:        {"RESET INIT", "RESET INIT RTR ERR", "RESET RTS ERR", "RESET RTS SQD ERR", "RESET RTS SQD ERR", "RESET RTS ERR", "RESET ERR"},
}

func TestEveryEdgeOfTheTransitionTable(t *testing.T) { // B-01, B-02, B-12, B-13
	for typ, rows := range legalEdges {
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr; to++ {
				t.Run(fmt.Sprintf("%v/%v-%v", typ, from, to), func(t *testing.T) {
					r := newRig(t, rigConfig{qp: QPConfig{Type: typ}, reset: true})
					r.bring(from)
					err := r.q.Modify(to, QPAttr{Port: 1}, must(typ, from, to))
					legal := slices.Contains(strings.Fields(rows[from]), to.String())
					switch {
					case legal && (err != nil || r.q.State() != to):
						t.Fatalf("legal, got %v, state %v", err, r.q.State())
					case !legal && (!errors.Is(err, syscall.EINVAL) || r.q.State() != from):
						t.Fatalf("illegal, got %v, state %v", err, r.q.State())
					}
				})
			}
		}
	}
}

func TestMasksOfEveryEdge(t *testing.T) { // B-03, B-04, B-05: one required bit less, one foreign bit more
	for typ := range legalEdges {
		for from := range edges {
			for to := range edges[from] {
				e := &edges[from][to]
				if !e.legal {
					continue
				}
				all, may := e.rawMust, e.rawMay
				if typ == UD {
					all, may = e.udMust, e.udMay
				}
				a := QPAttr{Port: 1, CurState: QPState(from)}
				c := &Caps{}
				check := func(mask AttrMask) error {
					return c.checkModify(typ, QPState(from), QPState(to), &a, mask)
				}
				if err := check(all | AttrState); err != nil {
					t.Errorf("%v %v-%v: %v", typ, QPState(from), QPState(to), err)
				}
				for bit := AttrMask(2); bit <= 1<<25; bit <<= 1 {
					var want error
					switch {
					case bit&all != 0:
						if err := check(all &^ bit); !errors.Is(err, syscall.EINVAL) {
							t.Errorf("%v %v-%v without 0x%x: %v", typ, QPState(from), QPState(to), uint32(bit), err)
						}
						continue
					case bit&may != 0:
					case bit&attrStandard == 0:
						want = syscall.EOPNOTSUPP // B-09
					default:
						want = syscall.EINVAL
					}
					if err := check(all | bit); !errors.Is(err, want) && !(err == nil && want == nil) {
						t.Errorf("%v %v-%v with 0x%x: %v, want %v", typ, QPState(from), QPState(to), uint32(bit), err, want)
					}
				}
			}
		}
	}
}

func TestAttributeValues(t *testing.T) {
	for _, c := range []struct {
		id       string
		typ      QPType
		from, to QPState
		attr     QPAttr
		mask     AttrMask
		caps     Caps
		want     error
	}{
		{"B-01", RawPacket, StateReset, StateErr, QPAttr{}, 0, Caps{}, syscall.EINVAL},
		{"B-03 UD without QKEY", UD, StateReset, StateInit, QPAttr{Port: 1}, AttrPort | AttrPKeyIndex, Caps{}, syscall.EINVAL},
		{"B-04 UD without SQ_PSN", UD, StateRTR, StateRTS, QPAttr{}, 0, Caps{}, syscall.EINVAL},
		{"B-05 PATH_MTU", UD, StateInit, StateRTR, QPAttr{}, AttrPathMTU, Caps{}, syscall.EINVAL},
		{"B-05 AV", UD, StateInit, StateRTR, QPAttr{}, AttrAV, Caps{}, syscall.EINVAL},
		{"B-05 RQ_PSN", UD, StateInit, StateRTR, QPAttr{}, AttrRQPSN, Caps{}, syscall.EINVAL},
		{"B-06 port 0", RawPacket, StateReset, StateInit, QPAttr{}, AttrPort, Caps{}, syscall.EINVAL},
		{"B-06 port 2", RawPacket, StateReset, StateInit, QPAttr{Port: 2}, AttrPort, Caps{}, syscall.EINVAL},
		{"B-07 pkey index", UD, StateInit, StateRTR, QPAttr{PKeyIndex: 1}, AttrPKeyIndex, Caps{}, syscall.EINVAL},
		{"B-08 state 7", RawPacket, StateInit, 7, QPAttr{}, 0, Caps{}, syscall.EINVAL},
		{"B-08 cur_state 7", UD, StateRTS, StateRTS, QPAttr{CurState: 7}, AttrCurState, Caps{}, syscall.EINVAL},
		{"B-09 bit 30", RawPacket, StateRTS, StateRTS, QPAttr{}, 1 << 30, Caps{}, syscall.EOPNOTSUPP},
		{"B-10 right", UD, StateRTS, StateRTS, QPAttr{CurState: StateRTS}, AttrCurState, Caps{}, nil},
		{"B-10 wrong", UD, StateRTS, StateRTS, QPAttr{CurState: StateSQE}, AttrCurState, Caps{}, syscall.EINVAL},
		{"B-10 INIT", UD, StateRTR, StateRTS, QPAttr{CurState: StateInit}, AttrCurState | AttrSQPSN, Caps{}, syscall.EINVAL},
		{"B-11 privileged", UD, StateRTS, StateRTS, QPAttr{QKey: 1 << 31}, AttrQKey, Caps{}, syscall.EPERM},
		{"B-11 allowed", UD, StateRTS, StateRTS, QPAttr{QKey: 1 << 31}, AttrQKey, Caps{PrivilegedQKey: true}, nil},
		{"L-01 rate", RawPacket, StateRTR, StateRTS, QPAttr{Rate: RateLimit{Kbps: 5000}}, AttrRateLimit, Caps{MaxRateKbps: 9000}, nil},
		{"L-01 unlimited", RawPacket, StateRTS, StateRTS, QPAttr{}, AttrRateLimit, Caps{}, nil},
		{"L-02 without", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 1}}, AttrRateLimit, Caps{}, syscall.EINVAL},
		{"L-02 least", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 7}}, AttrRateLimit, Caps{MinRateKbps: 7, MaxRateKbps: 9}, nil},
		{"L-02 below", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 6}}, AttrRateLimit, Caps{MinRateKbps: 7, MaxRateKbps: 9}, syscall.EINVAL},
		{"L-02 above", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 10}}, AttrRateLimit, Caps{MinRateKbps: 7, MaxRateKbps: 9}, syscall.EINVAL},
		{"L-04 burst without a rate", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{BurstBytes: 1}}, AttrRateLimit, Caps{MaxRateKbps: 9, RateBurst: true}, syscall.EINVAL},
		{"L-04 size without a rate", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{TypicalBytes: 1}}, AttrRateLimit, Caps{MaxRateKbps: 9, RateBurst: true}, syscall.EINVAL},
		{"L-04 burst without the capability", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 1, BurstBytes: 1}}, AttrRateLimit, Caps{MaxRateKbps: 9}, syscall.EINVAL},
		{"L-04 size without the capability", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 1, TypicalBytes: 1}}, AttrRateLimit, Caps{MaxRateKbps: 9}, syscall.EINVAL},
		{"L-04 both", RawPacket, StateRTS, StateRTS, QPAttr{Rate: RateLimit{Kbps: 1, BurstBytes: 1, TypicalBytes: 1}}, AttrRateLimit, Caps{MaxRateKbps: 9, RateBurst: true}, nil},
		{"L-03 UD", UD, StateRTS, StateRTS, QPAttr{}, AttrRateLimit, Caps{}, syscall.EINVAL},
		{"psn of 25 bits", UD, StateRTR, StateRTS, QPAttr{SQPSN: 1 << 24}, AttrSQPSN, Caps{}, syscall.EINVAL},
	} {
		t.Run(c.id, func(t *testing.T) {
			err := c.caps.checkModify(c.typ, c.from, c.to, &c.attr, c.mask)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestQueryAfterEachStep(t *testing.T) { // B-14
	r := newRig(t, rigConfig{qp: QPConfig{Type: UD}, reset: true})
	r.ok(r.q.Modify(StateInit, QPAttr{Port: 1, QKey: 0x1234}, AttrPort|AttrPKeyIndex|AttrQKey))
	r.ok(r.q.Modify(StateRTR, QPAttr{}, 0))
	r.ok(r.q.Modify(StateRTS, QPAttr{SQPSN: 9}, AttrSQPSN))
	if a := r.q.Attr(); a != (QPAttr{CurState: StateRTS, Port: 1, QKey: 0x1234, SQPSN: 9}) {
		t.Fatalf("%+v", a)
	}
	r.ok(r.q.Modify(StateRTS, QPAttr{QKey: 7}, AttrQKey))
	if a := r.q.Attr(); a.QKey != 7 || a.SQPSN != 9 {
		t.Fatalf("%+v", a)
	}
	if len(r.s.attrs) != 4 || r.s.attrs[3].QKey != 7 {
		t.Fatalf("the device was told %+v", r.s.attrs)
	}
}

func TestAFailingDeviceChangesNothing(t *testing.T) {
	r := newRig(t, rigConfig{reset: true})
	r.s.fail = syscall.EIO
	if err := r.q.Modify(StateInit, QPAttr{Port: 1}, AttrPort); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if a := r.q.Attr(); a != (QPAttr{}) {
		t.Fatalf("%+v", a)
	}
}

func TestResetEmptiesEverything(t *testing.T) { // B-12
	r := newRig(t, rigConfig{})
	other, err := r.d.DefaultPD().NewQP(QPConfig{Type: RawPacket, SendCQ: r.cq, RecvCQ: r.cq})
	r.ok(err)
	r.ok(other.MoveTo(StateRTS, QPAttr{}))
	wrs := []SendWR{r.wr(1, Signaled), r.wr(2, Signaled), r.wr(3, 0)}
	_, err = r.q.Post(wrs)
	r.ok(err)
	_, err = other.Post([]SendWR{r.wr(10, Signaled)})
	r.ok(err)
	r.ok(r.q.PostRecv1(4, r.mr.SGE(0, 2048)))
	r.ok(r.q.Modify(StateReset, QPAttr{}, 0))
	if sends, recvs := r.q.Outstanding(); sends != 0 || recvs != 0 {
		t.Fatalf("%d sends and %d receives are outstanding", sends, recvs)
	}
	if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 10 || wc[0].QPN != other.qpn {
		t.Fatalf("completions %+v", wc)
	}
	r.ok(r.q.MoveTo(StateRTS, QPAttr{}))
	_, err = r.q.Post(wrs[:1])
	r.ok(err)
	if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 1 || wc[0].Status != StatusSuccess {
		t.Fatalf("after reset: %+v", wc)
	}
}

func TestPostingByState(t *testing.T) { // B-20 .. B-24, D1
	for _, p := range []Profile{ProfileStrict, ProfileRXE, ProfileMLX5} {
		for s := StateReset; s <= StateErr; s++ {
			t.Run(fmt.Sprintf("%v/%v", p, s), func(t *testing.T) {
				r := newRig(t, rigConfig{caps: Caps{Profile: p}, reset: true})
				r.bring(s)
				n, err := r.q.Post([]SendWR{r.wr(1, 0), r.wr(2, 0)})
				if s < StateRTS {
					want := syscall.EINVAL
					if p == ProfileMLX5 {
						want = syscall.ENOMEM
					}
					checkPost(t, n, err, 0, CauseState, want)
					checkPost(t, 0, r.q.PostAll([]SendWR{r.wr(1, 0)}), 0, CauseState, syscall.EINVAL)
					_, _, err = r.q.Reserve(1)
					checkPost(t, 0, err, 0, CauseState, syscall.EINVAL)
					checkPost(t, 0, r.q.Publish(), 0, CauseState, syscall.EINVAL)
				} else if n != 2 || err != nil {
					t.Fatalf("posted %d, %v", n, err)
				}
				n, err = r.q.PostRecv([]RecvWR{{ID: 3, SGEs: []SGE{r.mr.SGE(0, 100)}}})
				if s == StateReset {
					checkPost(t, n, err, 0, CauseState, syscall.EINVAL)
				} else if n != 1 || err != nil {
					t.Fatalf("receives posted %d, %v", n, err)
				}
				wc := r.poll()
				want := map[QPState]int{StateErr: 3, StateSQE: 2}[s]
				if len(wc) != want {
					t.Fatalf("%d completions %+v, want %d", len(wc), wc, want)
				}
				for _, c := range wc {
					if c.Status != StatusWRFlush {
						t.Fatalf("%+v", c)
					}
				}
			})
		}
	}
}

func checkPost(t *testing.T, n int, err error, want int, cause Cause, errno syscall.Errno) {
	t.Helper()
	var p *PostError
	if !errors.As(err, &p) {
		t.Fatalf("posted %d, %v; want a PostError %v", n, err, cause)
	}
	if n != want || p.Cause != cause || p.Errno != errno || !errors.Is(err, errno) || !errors.Is(err, cause) {
		t.Fatalf("posted %d, %v (index %d); want %d, %v, %v", n, err, p.Index, want, cause, errno)
	}
}

func TestFlushesComeInOrderOnBothSides(t *testing.T) { // B-25, B-26
	r := newRig(t, rigConfig{})
	r.s.hold = true
	for i := range 5 {
		_, err := r.q.Post([]SendWR{r.wr(uint64(i), 0)})
		r.ok(err)
		r.ok(r.q.PostRecv1(uint64(100+i), r.mr.SGE(0, 100)))
	}
	r.ok(r.q.Modify(StateErr, QPAttr{}, 0))
	next := map[bool]uint64{false: 0, true: 100}
	for _, c := range r.poll() {
		if c.Status != StatusWRFlush || c.WRID != next[c.Recv] || c.Retired != 1 {
			t.Fatalf("%+v, expected WR %d", c, next[c.Recv])
		}
		next[c.Recv]++
	}
	if next[false] != 5 || next[true] != 105 {
		t.Fatalf("flushed up to %v", next)
	}
	r.ok(r.q.Modify(StateErr, QPAttr{}, 0)) // B-13
}

func TestReceivesPostedInInitAreTakenAfterRTR(t *testing.T) { // B-21, B-27
	for _, typ := range []QPType{RawPacket, UD} {
		r := newRig(t, rigConfig{qp: QPConfig{Type: typ}, state: StateInit})
		r.ok(r.q.PostRecv1(5, r.mr.SGE(0, 100)))
		if told := r.s.qps[r.q.qpn].rq.Available(); (told != 0) != (typ == UD) {
			t.Fatalf("%v: in INIT the device knows of %d receives", typ, told)
		}
		r.ok(r.q.Modify(StateRTR, QPAttr{}, 0))
		if !r.s.deliver(r.q.qpn, 64, ring.CQERecv, nil) {
			t.Fatal("no receive WQE at RTR")
		}
		if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 5 || wc[0].ByteLen != 64 || wc[0].Opcode != WCRecv {
			t.Fatalf("%+v", wc)
		}
	}
	r := newRig(t, rigConfig{state: StateInit})
	r.ok(r.q.PostRecv1(6, r.mr.SGE(0, 100)))
	r.ok(r.q.Modify(StateErr, QPAttr{}, 0))
	if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 6 || wc[0].Status != StatusWRFlush {
		t.Fatalf("INIT to ERR: %+v", wc)
	}
}

func TestDrainHoldsSendsUntilRTS(t *testing.T) { // B-15, B-16
	r := newRig(t, rigConfig{})
	r.ok(r.q.Modify(StateSQD, QPAttr{}, 0))
	_, err := r.q.Post([]SendWR{r.wr(1, Signaled), r.wr(2, Signaled)})
	r.ok(err)
	if wc := r.poll(); len(wc) != 0 {
		t.Fatalf("in SQD: %+v", wc)
	}
	r.ok(r.q.Modify(StateRTS, QPAttr{}, 0))
	if wc := r.poll(); len(wc) != 2 || wc[0].WRID != 1 || wc[1].WRID != 2 {
		t.Fatalf("in RTS: %+v", wc)
	}
}

func TestSendErrorMovesTheQueuePair(t *testing.T) { // B-17, D9; with a device that tells its state and one that does not
	for _, bare := range []bool{false, true} {
		for _, c := range []struct {
			typ  QPType
			p    Profile
			want QPState
		}{{UD, ProfileStrict, StateSQE}, {UD, ProfileRXE, StateErr}, {RawPacket, ProfileStrict, StateErr}} {
			r := newRig(t, rigConfig{caps: Caps{Profile: c.p}, qp: QPConfig{Type: c.typ}, bare: bare})
			r.s.qps[r.q.qpn].bad = ring.SynLocalProt
			wr := r.wr(1, 0)
			wr.AH = r.ah()
			_, err := r.q.Post([]SendWR{wr, wr})
			r.ok(err)
			wc := r.poll()
			if len(wc) != 2 || wc[0].Status != StatusLocProt || wc[0].Vendor != 0x51 || wc[1].Status != StatusWRFlush {
				t.Fatalf("%v %v: %+v", c.typ, c.p, wc)
			}
			if got := r.q.State(); got != c.want {
				t.Fatalf("%v %v, bare %v: state %v, want %v", c.typ, c.p, bare, got, c.want)
			}
			if c.want == StateSQE {
				r.ok(r.q.Modify(StateRTS, QPAttr{}, 0))
				_, err = r.q.Post([]SendWR{{ID: 3, Opcode: OpSend, Flags: Signaled, AH: r.ah()}})
				r.ok(err)
				if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 3 || wc[0].Status != StatusSuccess {
					t.Fatalf("after SQE: %+v", wc)
				}
			}
		}
	}
}
