package softnic

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// lendingLoop is one end of a loop that lends memory. It gives passed frames back when told to, and finds any byte of one
// that changed meanwhile.
type lendingLoop struct {
	wire.Wire
	t      testing.TB
	mem    []byte
	lent   int
	passed [][2][]byte // where each is, and what it was
	back   uint64
	room   int // Pass takes no more than so many at a time
	// flushes: after so many more everything comes back; below 0: never.
	flushes int
}

func (l *lendingLoop) Lend(bytes int) []byte {
	if bytes > len(l.mem)-l.lent {
		return nil
	}
	mem := l.mem[l.lent : l.lent+bytes : l.lent+bytes]
	l.lent += bytes
	return mem
}

func (l *lendingLoop) TakeBack(mem []byte) {
	if l.back != uint64(len(l.passed)) {
		l.t.Error("a loan ends with frames under way")
	}
	l.lent -= len(mem)
}

func (l *lendingLoop) Lent(mem []byte) (uint64, bool) {
	for i := range l.mem {
		if &l.mem[i] == &mem[0] {
			return uint64(i), true
		}
	}
	return 0, false
}

func (l *lendingLoop) Pass(ats []uint64, lens []int32) int {
	n := min(len(ats), l.room)
	bufs := make([][]byte, n)
	n = l.Reserve(lens[:n], bufs)
	for i := range n {
		frame := l.mem[ats[i] : ats[i]+uint64(lens[i])]
		copy(bufs[i], frame)
		l.passed = append(l.passed, [2][]byte{frame, bytes.Clone(frame)})
	}
	l.Commit(n)
	return n
}

func (l *lendingLoop) Flush() error {
	if l.flushes--; l.flushes == 0 {
		l.giveBack(uint64(len(l.passed)))
	}
	return l.Wire.Flush()
}

func (l *lendingLoop) giveBack(to uint64) {
	for ; l.back < to; l.back++ {
		if f := l.passed[l.back]; !bytes.Equal(f[0], f[1]) {
			l.t.Errorf("frame %d changed under way:\n was %x\n is %x", l.back, f[1], f[0])
		}
	}
}

func (l *lendingLoop) Returned() uint64 { return l.back }

// onLoan makes a host on a wire that lends, whose memory is lent.
func onLoan(t testing.TB, c hostConfig) (*host, *lendingLoop, *NIC) {
	t.Helper()
	a, b := loopPair(t, "", Config{})
	l := &lendingLoop{Wire: a.wire, t: t, mem: make([]byte, 1<<14), room: burst, flushes: -1}
	n, err := New(l, Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, n, c)
	m, err := n.AllocMemory(1 << 13)
	h.ok(err)
	h.mem = m.Bytes()
	h.key, h.addr, err = n.Register(testPD, h.mem, 0)
	h.ok(err)
	return h, l, b
}

func TestSendsFromLentMemoryCompleteWhenTheyHaveComeBack(t *testing.T) {
	h, l, far := onLoan(t, hostConfig{sendWR: 64})
	newHost(t, far, hostConfig{recvWR: 64})
	for k := range uint64(10) {
		h.post(k, k%2 == 1, nil, nil, h.seg(int(k)*100, 60+int(k)))
	}
	h.ring()
	h.nic.Step(64)
	if got := h.sends(); len(got) != 0 || len(l.passed) != 10 {
		t.Fatalf("%d passed, completed %+v with none back", len(l.passed), got)
	}
	l.giveBack(9)
	if h.nic.Step(64); len(h.sends()) != 0 {
		t.Error("a run completes before its last frame is back")
	}
	l.giveBack(10)
	if did := h.nic.Step(64); did == 0 {
		t.Error("a Step that completes sends says that it did nothing")
	}
	got := h.sends()
	if len(got) != 5 || got[0] != (done{wrID: 1, op: ring.CQEReq, retired: 2}) || got[4].wrID != 9 {
		t.Errorf("%+v", got)
	}
	var c engine.Counters
	if h.nic.Counters(&c); c.TxFrames != 10 || c.TxPassed != 10 || c.TxBytes != 645 {
		t.Errorf("%+v", c)
	}
}

// TestCompletionsOfLentFramesStayInOrder sends a random mixture of what is passed, copied and in two pieces, and gives back
// at random. Completions are in order, none before a passed frame of its own or an earlier request; all frames arrive.
func TestCompletionsOfLentFramesStayInOrder(t *testing.T) {
	const count, slots, each = 3000, 40, 200
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 7))
		h, l, far := onLoan(t, hostConfig{sendWR: slots, cqe: 1023})
		other, err := h.nic.AllocMemory(1 << 14) // more than is left to lend
		h.ok(err)
		key, addr, err := h.nic.Register(testPD, other.Bytes(), 0)
		h.ok(err)
		in := newHost(t, far, hostConfig{recvWR: 64, access: engine.LocalWrite})
		posted, completed, received, arrived := uint64(0), uint64(0), uint64(0), uint64(0)
		for completed < count || arrived < count {
			for in.rq.Post1(in.seg(int(received%64)*each, each), received) {
				received++
			}
			in.rq.Publish()
			for k := r.IntN(12); k > 0 && posted < count; k-- {
				off := int(posted%slots) * each
				segs, mem := []ring.Seg{h.seg(off, 60+r.IntN(100))}, h.mem
				switch r.IntN(5) {
				case 0:
					segs[0].LKey, segs[0].Addr, mem = key, addr+uint64(off), other.Bytes()
				case 1:
					segs = append(segs, h.seg(off, 10))
				}
				if h.sq.Outstanding() == slots {
					break
				}
				binary.LittleEndian.PutUint64(mem[off:], posted)
				if !h.post(posted, true, nil, nil, segs...) {
					t.Fatal("no room for a send")
				}
				posted++
			}
			l.room = r.IntN(burst)
			h.ring()
			h.nic.Step(64)
			l.giveBack(l.back + uint64(r.IntN(len(l.passed)-int(l.back)+1)))
			h.nic.Step(64)
			for _, d := range h.sends() {
				if d.op != ring.CQEReq || d.wrID != completed {
					t.Fatalf("seed %d: completion %d is %+v", seed, completed, d)
				}
				if l.back < uint64(len(l.passed)) && binary.LittleEndian.Uint64(l.passed[l.back][1]) <= completed {
					t.Fatalf("seed %d: completion %d, but %d frames of %d are back", seed, completed, l.back, len(l.passed))
				}
				completed++
			}
			far.Step(64)
			for _, d := range in.receives() {
				if id := binary.LittleEndian.Uint64(in.mem[int(d.wrID%64)*each:]); id != arrived {
					t.Fatalf("seed %d: frame %d is %d", seed, arrived, id)
				}
				arrived++
			}
		}
		var c engine.Counters
		if h.nic.Counters(&c); c.TxFrames != count || c.TxPassed != uint64(len(l.passed)) || c.TxPassed == 0 || c.TxPassed == count {
			t.Errorf("seed %d: %+v", seed, c)
		}
	}
}

// TestStateChangesWaitForLentFrames: what was passed has completed, as sent, before a queue pair is in another state, and
// what is posted behind is flushed. A wire that never gives frames back holds nobody up for ever.
func TestStateChangesWaitForLentFrames(t *testing.T) {
	for _, flushes := range []int{4, -1} {
		for to, want := range map[engine.QPState][]ring.CQEOpcode{
			engine.StateErr: {ring.CQEReq, ring.CQEReqErr}, engine.StateSQD: {ring.CQEReq}, engine.StateReset: {ring.CQEReq},
		} {
			if flushes < 0 && to != engine.StateErr {
				continue // a second each
			}
			h, l, _ := onLoan(t, hostConfig{})
			h.post(1, true, nil, nil, h.seg(0, 60))
			h.ring()
			h.post(2, true, nil, nil, h.seg(100, 60), h.seg(200, 60)) // goes another way, and waits
			h.ring()
			if l.flushes = flushes; len(h.sends()) != 0 || len(l.passed) != 1 {
				t.Fatal("completed before it is back")
			}
			h.ok(h.nic.SetState(h.qpn, to, engine.QPAttr{}))
			got := h.sends()
			for i, d := range got {
				if d.wrID != uint64(i+1) || i < len(want) && d.op != want[i] {
					t.Errorf("to %v: completion %d is %+v", to, i, d)
				}
			}
			if len(got) != len(want) || flushes > 0 && l.back != 1 {
				t.Errorf("to %v: %d completions, want %d; %d frames back", to, len(got), len(want), l.back)
			}
			l.giveBack(1)
			h.ok(h.nic.DestroyQP(h.qpn))
		}
	}
}

// TestLoansEndWhenTheirFramesAreBack: closing the memory waits for them, and it is lent again.
func TestLoansEndWhenTheirFramesAreBack(t *testing.T) {
	h, l, _ := onLoan(t, hostConfig{})
	before := l.lent
	m, err := h.nic.AllocMemory(1 << 12)
	h.ok(err)
	if l.lent != before+1<<12 {
		t.Error("not lent")
	}
	h.key, h.addr, err = h.nic.Register(testPD, m.Bytes(), 0)
	h.ok(err)
	h.post(1, true, nil, nil, h.seg(0, 60))
	h.ring()
	h.ok(h.nic.Deregister(h.key))
	l.flushes = 3
	if h.ok(m.Close()); l.lent != before || l.back != 1 {
		t.Errorf("%d lent, %d back", l.lent, l.back)
	}
	m, err = h.nic.AllocMemory(1 << 12)
	h.ok(err)
	h.ok(h.nic.Close())
	h.ok(m.Close())
}
