package softnic

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ring"
)

// pump sends count frames from tx to rx, numbered, and checks order and number. Each side is driven by
// its own function, so that they can run in one goroutine or in two.
type pump struct {
	tx, rx         *host
	count          uint64
	sent, received uint64
	idle           [2]int // rounds without a completion in a row, of each side
}

// maxIdle ends a test that is stuck: so many waits of a millisecond, one after the other.
const maxIdle = 20000

func newPump(t testing.TB, a, b *NIC, count uint64) *pump {
	p := &pump{count: count}
	p.tx = newHost(t, a, hostConfig{sendWR: 16})
	p.rx = newHost(t, b, hostConfig{access: rw, recvWR: 16})
	return p
}

// send posts what has room and polls; it reports whether all sends are complete.
func (p *pump) send() bool {
	for p.sent < p.count && p.tx.sq.Outstanding() < p.tx.sq.MaxWR() {
		off := int(p.sent%64) * 256
		binary.BigEndian.PutUint64(p.tx.mem[off+20:], p.sent)
		p.tx.post(p.sent, true, nil, nil, p.tx.seg(off, 60))
		p.sent++
	}
	p.tx.ring()
	p.tx.nic.Progress(64)
	if p.idle[0]++; len(p.tx.sends()) != 0 {
		p.idle[0] = 0
	} else if p.tx.sq.Outstanding() != 0 {
		p.tx.nic.Wait(1e6)
	}
	if p.idle[0] > maxIdle {
		p.tx.t.Errorf("stuck: %d sends posted, %d outstanding", p.sent, p.tx.sq.Outstanding())
		return true
	}
	return p.sent == p.count && p.tx.sq.Outstanding() == 0
}

// receive posts, polls and checks; it reports whether all frames came.
func (p *pump) receive() bool {
	for n := p.received + uint64(p.rx.rq.Outstanding()); p.rx.rq.Outstanding() < 16; n++ {
		p.rx.rq.Post1(p.rx.seg(int(n%64)*256, 256), n)
	}
	p.rx.rq.Publish()
	p.rx.nic.Progress(64)
	got := p.rx.receives()
	for _, d := range got {
		off := int(d.wrID%64) * 256
		if n := binary.BigEndian.Uint64(p.rx.mem[off+20:]); n != p.received || d.op != ring.CQERecv {
			p.rx.t.Errorf("frame %d came as number %d: %+v", n, p.received, d)
			return true
		}
		p.received++
	}
	if p.idle[1]++; len(got) != 0 {
		p.idle[1] = 0
	} else if p.received < p.count {
		p.rx.nic.Wait(1e6)
	}
	if p.idle[1] > maxIdle {
		p.rx.t.Errorf("stuck: %d of %d received", p.received, p.count)
		return true
	}
	return p.received == p.count
}

func (p *pump) runTogether() {
	for sent, received := false, false; !sent || !received; {
		sent = sent || p.send()
		received = received || p.receive()
	}
}

func (p *pump) runApart() {
	var both sync.WaitGroup
	both.Go(func() {
		for !p.send() {
		}
	})
	both.Go(func() {
		for !p.receive() {
		}
	})
	both.Wait()
}

func TestNICsWithGoroutinesOfTheirOwn(t *testing.T) {
	for _, spins := range []int{1, 100} { // 1: it parks after every burst
		a, b := loopPair(t, "", Config{Mode: Goroutine, Spins: spins})
		p := newPump(t, a, b, 5000)
		p.runTogether()
		p.count *= 2
		p.runApart()
		if err := a.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoOwnersOfTwoInlineNICs(t *testing.T) {
	a, b := loopPair(t, "", Config{})
	p := newPump(t, a, b, 20000)
	p.runApart()
	account(t, a, b)
}

func TestControlBesideTraffic(t *testing.T) {
	for _, mode := range []Mode{Inline, Goroutine} {
		a, b := loopPair(t, "", Config{Mode: mode})
		p := newPump(t, a, b, 5000)
		stop := make(chan struct{})
		var side sync.WaitGroup
		side.Go(func() { // another goroutine registers memory, makes queues, reads counters
			for {
				select {
				case <-stop:
					return
				default:
				}
				var c engine.Counters
				a.Counters(&c)
				key, _, err := b.Register(testPD, make([]byte, 100), 0)
				if err == nil {
					err = b.Deregister(key)
				}
				m, err2 := b.NewCQ(16)
				if err2 == nil {
					err2 = b.DestroyCQ(m.CQN)
				}
				if err = errors.Join(err, err2); err != nil {
					t.Error(err)
					return
				}
			}
		})
		p.runApart()
		close(stop)
		side.Wait()
		if err := errors.Join(a.Err(), b.Err()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloseEndsTheGoroutine(t *testing.T) {
	a, _ := loopPair(t, "", Config{Mode: Goroutine, Spins: 1})
	newHost(t, a, hostConfig{})
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-a.g.done
	if err := a.SetState(0x40, engine.StateErr, engine.QPAttr{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
	if a.Step(8) != 0 {
		t.Fatal("a closed NIC does things")
	}
}

// The owner of an inline NIC's queues arms a CQ while another goroutine's control operation completes requests there: it
// sees the completion, or it gets the event.
func TestControlBesideAnArming(t *testing.T) {
	const rounds = 5000
	a, _ := loopPair(t, "", Config{})
	h := newHost(t, a, hostConfig{access: rw})
	events := 0
	a.Notify(func(e engine.DeviceEvent) {
		if e.Type == engine.EventCompletion {
			events++
		}
	})
	var asked, begun, done atomic.Int64
	await := func(v *atomic.Int64, round int64) bool {
		for v.Load() < round {
			runtime.Gosched()
		}
		return v.Load() == round
	}
	defer asked.Store(rounds + 2) // no round
	go func() {
		for i := int64(1); await(&asked, i); i++ {
			begun.Store(i)
			if err := a.SetState(h.qpn, engine.StateErr, engine.QPAttr{}); err != nil {
				t.Error(err)
			}
			done.Store(i)
		}
	}()
	for i := int64(1); i <= rounds; i++ {
		h.rq.Post([]ring.Seg{h.seg(0, 100)}, 1)
		h.rq.Publish()
		before := events
		asked.Store(i)
		await(&begun, i)
		for range i % 200 {
			begun.Load() // another moment in each round
		}
		h.rcq.Arm(false)
		a.ArmCQ(h.rcqn, 0)
		_, seen := h.rcq.Peek()
		await(&done, i)
		if !seen && events == before {
			t.Fatalf("round %d: neither completion nor event", i)
		}
		if len(h.receives()) != 1 {
			t.Fatalf("round %d: the request has not completed", i)
		}
		if events != before {
			h.rcq.EventTaken()
		}
		h.ok(a.SetState(h.qpn, engine.StateReset, engine.QPAttr{}))
		h.rq.Reset()
		for s := engine.StateInit; s <= engine.StateRTS; s++ {
			h.ok(a.SetState(h.qpn, s, engine.QPAttr{}))
		}
	}
}
