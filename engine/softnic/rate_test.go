package softnic

import (
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/ring"
)

const (
	pacedBytes = 1000
	pacedNS    = 1_000_000 // of such a frame at 8000 kbit/s
)

// paced makes a sender of frames of pacedBytes at a rate, to nobody; one frame may leave at once.
func paced(t *testing.T, clk clock.Clock, kbps uint32) *host {
	a, b := loopPair(t, "", Config{Clock: clk})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, a, hostConfig{sendWR: 1024, cqe: 1023})
	h.rate(kbps)
	return h
}

func (h *host) rate(kbps uint32) {
	h.t.Helper()
	r := engine.RateLimit{Kbps: kbps, BurstBytes: pacedBytes, TypicalBytes: pacedBytes}
	if kbps == 0 {
		r = engine.RateLimit{}
	}
	h.ok(h.nic.SetState(h.qpn, engine.StateRTS, engine.QPAttr{Rate: r}))
}

func (h *host) postPaced(n int) {
	h.t.Helper()
	for range n {
		if !h.post(1, true, nil, nil, h.seg(0, pacedBytes)) {
			h.t.Fatal("no room")
		}
	}
	h.ring()
}

// gone counts what completes when the NIC is run at this time.
func (h *host) gone() int {
	h.nic.Step(1000)
	return len(h.sends())
}

// TestRatesAreExact: fractions of a nanosecond add up, at the least and the greatest rate and between.
func TestRatesAreExact(t *testing.T) {
	for _, kbps := range []uint32{minRateKbps, 7, 999_983, 30_000_001, maxRateKbps} {
		clk := new(clock.Virtual)
		clk.Set(1_000_000)
		h := paced(t, clk, kbps)
		h.postPaced(1000)
		if n := h.gone(); n != 1 {
			t.Errorf("%d kbit/s: %d frames at once", kbps, n)
		}
		for i := uint64(1); i < 1000; i++ {
			at := 1_000_000 + int64(i*pacedBytes*bitTime/uint64(kbps)) // when i frames have had their time
			clk.Set(at - 1)
			early := h.gone()
			clk.Set(at)
			if late := h.gone(); early != 0 || late != 1 {
				t.Fatalf("%d kbit/s: %d frames before the time of frame %d, %d at it", kbps, early, i, late)
			}
		}
	}
}

// TestNewRateKeepsWhatWasSent: what left ahead of its time under one rate counts under the next; a queue pair without
// one, or brought up anew, owes nothing.
func TestNewRateKeepsWhatWasSent(t *testing.T) {
	clk := new(clock.Virtual)
	clk.Set(1_000_000)
	h := paced(t, clk, 8000)
	h.postPaced(20)
	if n := h.gone(); n != 1 {
		t.Fatalf("%d frames at once", n)
	}
	for i := range 10 { // half a frame's time in all, and each rate twice or half the one before
		h.rate([]uint32{16000, 8000}[i%2])
		clk.Advance(pacedNS / 20)
		if n := h.gone(); n != 0 {
			t.Fatalf("%d frames after %d changes", n, i+1)
		}
	}
	clk.Advance(pacedNS/4 - 1) // half of the changes ran at twice the rate
	if n := h.gone(); n != 0 {
		t.Fatalf("%d frames early", n)
	}
	clk.Advance(1)
	if n := h.gone(); n != 1 {
		t.Fatalf("%d frames when one is due", n)
	}
	h.rate(8000) // the same: nothing changes
	if n := h.gone(); n != 0 {
		t.Fatalf("%d frames after the same rate", n)
	}
	h.rate(0)
	if n := h.gone(); n != 18 {
		t.Fatalf("%d frames without a rate", n)
	}
}

// TestHeldSendTellsItsTime: whoever waits for the NIC waits no longer than for the next frame that may leave.
func TestHeldSendTellsItsTime(t *testing.T) {
	clk := new(clock.Virtual)
	clk.Set(1_000_000)
	h := paced(t, clk, 8000)
	after := func() int64 {
		h.nic.Step(1000)
		h.sends()
		_, _, ns := h.nic.WaitFD()
		return ns
	}
	for i, want := range []int64{-1, pacedNS, pacedNS - 1, 1, pacedNS, -1} {
		switch i {
		case 1:
			h.postPaced(3)
		case 2:
			clk.Advance(1)
		case 3:
			clk.Advance(pacedNS - 2)
		case 4:
			clk.Advance(1)
		case 5:
			clk.Advance(pacedNS)
		}
		if got := after(); got != want {
			t.Fatalf("step %d: %d ns, want %d", i, got, want)
		}
	}
}

// TestPacedNICRunsByItself: the goroutine wakes up for what is due, and the application is told.
func TestPacedNICRunsByItself(t *testing.T) {
	a, _ := loopPair(t, "", Config{Mode: Goroutine, Drop: true})
	h := newHost(t, a, hostConfig{sendWR: 64})
	h.rate(8000)
	h.postPaced(20)
	for got := 0; got < 20; got += len(h.sends()) {
		h.ok(a.Wait(-1))
	}
}

func TestPacedSendDoesNotAllocate(t *testing.T) {
	clk := new(clock.Virtual)
	h := paced(t, clk, 8000)
	round := func() {
		h.postPaced(1)
		clk.Advance(pacedNS)
		h.nic.Step(1000)
		if drain(h.scq, func(c *ring.CQE) { h.sq.Retire(c.Counter()) }) != 1 {
			t.Fatal("nothing has left")
		}
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
