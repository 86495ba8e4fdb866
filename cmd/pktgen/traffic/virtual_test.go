package traffic

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/internal/clock"
)

// slotQueue is a send queue that notes when each of its frames left.
type slotQueue struct {
	clk  *clock.Virtual
	room func() int // how many frames it takes now; nil: all

	departed []int64
	stamps   []uint32
	bursts   []int
}

func (q *slotQueue) Send(n int, times []uint32) (int, error) {
	if q.room != nil {
		n = min(n, q.room())
	}
	for i := range n {
		q.departed = append(q.departed, q.clk.Now())
		q.stamps = append(q.stamps, times[min(i, len(times)-1)])
	}
	if n > 0 {
		q.bursts = append(q.bursts, n)
	}
	return n, nil
}

func newSlotQueues(n int, clk *clock.Virtual) (mine []*slotQueue, theirs []txQueue) {
	for range n {
		q := &slotQueue{clk: clk}
		mine = append(mine, q)
		theirs = append(theirs, q)
	}
	return mine, theirs
}

// drive runs p in virtual time until it is done; each idle step leads to the
// next slot.
func drive(t *testing.T, p *pacer, clk *clock.Virtual) {
	t.Helper()
	for rounds := 0; !p.done(clk.Now()); rounds++ {
		if rounds > 10_000_000 {
			t.Fatalf("stuck at %d ns with %d sent", clk.Now(), p.sent)
		}
		n, err := p.round(clk.Now())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if due := p.nextDue(); due > clk.Now() {
				clk.Set(due)
			} else {
				clk.Advance(1)
			}
		}
	}
}

var virtualRates = map[string]clock.Rate{
	"1pps":            {Num: 1, Den: 1},
	"1 in 7 s":        {Num: 1, Den: 7},
	"999983pps":       {Num: 999_983, Den: 1},
	"20% of 10G":      {Num: 2_000_000_000, Den: 672},
	"100% of 100G":    {Num: 100_000_000_000, Den: 672},
	"148mpps":         {Num: 148_000_000, Den: 1},
	"148809523.8 pps": {Num: 1_488_095_238, Den: 10},
}

// Every departure is on its slot: exactly, where the issue asks for 1 ns.
func TestVirtualDeparturesAreOnTheSchedule(t *testing.T) {
	const count = 3000
	for name, rate := range virtualRates {
		for _, queues := range []int{1, 2, 3, 7} {
			for _, first := range []uint64{0, 1 << 30, 1<<33 - count/2} {
				if name == "1 in 7 s" && first > 1<<30 {
					continue // beyond the 292 years of an int64
				}
				t.Run(fmt.Sprintf("%s/queues=%d/from=%d", name, queues, first), func(t *testing.T) {
					sched, _ := clock.NewSchedule(rate)
					const start = 1000
					clk := new(clock.Virtual)
					clk.Set(start + sched.At(first))
					mine, theirs := newSlotQueues(queues, clk)
					p, err := newPacer(pacerConfig{Rate: rate, Count: count, FirstK: first}, theirs)
					if err != nil {
						t.Fatal(err)
					}
					p.begin(start, start)
					drive(t, p, clk)
					if p.sent != count || p.late != 0 || p.longestBurst > 1 || p.unsent(clk.Now()) != 0 {
						t.Errorf("sent %d late %d burst %d unsent %d", p.sent, p.late, p.longestBurst, p.unsent(clk.Now()))
					}
					for k := range uint64(count) {
						q := mine[k%uint64(queues)]
						j := k / uint64(queues)
						want := start + sched.At(first+k)
						if q.departed[j] != want {
							t.Fatalf("frame %d left at %d, want %d", first+k, q.departed[j], want)
						}
						if stamp := uint32(uint64(want-start) / 16); q.stamps[j] != stamp {
							t.Fatalf("frame %d is stamped %d, want %d", first+k, q.stamps[j], stamp)
						}
					}
				})
			}
		}
	}
}

// The count is exact whatever the queues, the burst, the rate, the policy and
// the moods of the rings; no frame leaves before its slot.
func TestVirtualCountIsExact(t *testing.T) {
	for _, queues := range []int{1, 2, 3, 7} {
		for _, burst := range []int{0, 1, 2, 3, 7, 64, 1000} {
			for name, rate := range map[string]clock.Rate{"max": {}, "paced": {Num: 10_000_000, Den: 1}} {
				for _, count := range []uint64{1, 2, 6, 64, 65, 10_007} {
					rng := rand.New(rand.NewPCG(uint64(queues), uint64(burst)+count))
					clk := new(clock.Virtual)
					mine, theirs := newSlotQueues(queues, clk)
					for _, q := range mine {
						q.room = func() int { clk.Advance(rng.Int64N(900)); return rng.IntN(70) }
					}
					p, _ := newPacer(pacerConfig{Rate: rate, Count: count, Burst: burst}, theirs)
					p.begin(0, 0)
					drive(t, p, clk)
					var sent uint64
					for q := range mine {
						sent += uint64(len(mine[q].departed))
						if want := p.share(q, count); uint64(len(mine[q].departed)) != want {
							t.Errorf("%s queues=%d burst=%d count=%d: queue %d sent %d, want %d", name, queues, burst, count, q, len(mine[q].departed), want)
						}
						for i, at := range mine[q].departed {
							if int64(mine[q].stamps[i])*16 > at {
								t.Fatalf("%s: queue %d frame %d left before its slot", name, q, i)
							}
						}
						for _, n := range mine[q].bursts {
							if n > maxCatchUp || burst > 0 && n > burst {
								t.Fatalf("%s: burst of %d", name, n)
							}
						}
					}
					if sent != count || p.sent != count {
						t.Errorf("%s queues=%d burst=%d: sent %d, want %d", name, queues, burst, sent, count)
					}
				}
			}
		}
	}
}

// stalled runs 100 frames at 1 Mpps, is away for 500 us, and goes on.
func stalled(t *testing.T, policy OnLate, count uint64, duration int64) (*pacer, *slotQueue, *clock.Virtual) {
	t.Helper()
	clk := new(clock.Virtual)
	mine, theirs := newSlotQueues(1, clk)
	p, err := newPacer(pacerConfig{Rate: clock.Rate{Num: 1_000_000, Den: 1}, Count: count, DurationNS: duration, OnLate: policy}, theirs)
	if err != nil {
		t.Fatal(err)
	}
	p.begin(0, 0)
	for p.sent < 100 {
		if n, _ := p.round(clk.Now()); n == 0 {
			clk.Set(p.nextDue())
		}
	}
	clk.Advance(500_000) // at 599 us; frames 100 to 599 are due
	drive(t, p, clk)
	return p, mine[0], clk
}

func TestVirtualLatePolicies(t *testing.T) {
	t.Run("burst catches up 64 and slips", func(t *testing.T) {
		p, q, clk := stalled(t, LateBurst, 2000, 0)
		if p.sent != 2000 || p.late != 436 || p.slips != 1 || p.longestBurst != 64 || p.unsent(clk.Now()) != 0 {
			t.Errorf("sent %d late %d slips %d burst %d unsent %d", p.sent, p.late, p.slips, p.longestBurst, p.unsent(clk.Now()))
		}
		if q.departed[163] != 599_000 || q.departed[164] != 600_000 || q.departed[1999] != 600_000+1835*1000 {
			t.Errorf("left at %d, %d ... %d", q.departed[163], q.departed[164], q.departed[1999])
		}
		if q.stamps[163] != 163_000/16 || q.stamps[164] != 600_000/16 {
			t.Errorf("stamped %d, %d", q.stamps[163], q.stamps[164])
		}
	})
	t.Run("slip sends one and moves the rest", func(t *testing.T) {
		p, q, _ := stalled(t, LateSlip, 2000, 0)
		if p.sent != 2000 || p.late != 499 || p.longestBurst > 1 {
			t.Errorf("sent %d late %d burst %d", p.sent, p.late, p.longestBurst)
		}
		if q.departed[100] != 599_000 || q.departed[101] != 600_000 {
			t.Errorf("left at %d, %d", q.departed[100], q.departed[101])
		}
	})
	t.Run("skip leaves the missed slots out", func(t *testing.T) {
		p, q, clk := stalled(t, LateSkip, 2000, 0)
		if p.sent != 2000-436 || p.late != 436 || p.unsent(clk.Now()) != 436 {
			t.Errorf("sent %d late %d unsent %d", p.sent, p.late, p.unsent(clk.Now()))
		}
		if q.departed[164] != 600_000 || q.departed[len(q.departed)-1] != 1_999_000 {
			t.Errorf("left at %d ... %d", q.departed[164], q.departed[len(q.departed)-1])
		}
	})
	t.Run("a duration counts what a slip pushed out as unsent", func(t *testing.T) {
		p, q, clk := stalled(t, LateBurst, 0, 1_000_000)
		if p.sent != 564 || p.unsent(clk.Now()) != 436 || q.departed[563] != 999_000 {
			t.Errorf("sent %d unsent %d last at %d", p.sent, p.unsent(clk.Now()), q.departed[len(q.departed)-1])
		}
	})
}

// A ring that takes nothing for a while makes a sender as late as a sleep does:
// what it may catch up stays bounded.
func TestVirtualBlockedRingIsLateness(t *testing.T) {
	clk := new(clock.Virtual)
	mine, theirs := newSlotQueues(2, clk)
	for _, q := range mine {
		q.room = func() int {
			if now := clk.Now(); now >= 100_000 && now < 600_000 {
				clk.Advance(500)
				return 0
			}
			return 1000
		}
	}
	p, _ := newPacer(pacerConfig{Rate: clock.Rate{Num: 1_000_000, Den: 1}, DurationNS: 1_000_000}, theirs)
	p.begin(0, 0)
	drive(t, p, clk)
	if p.longestBurst > maxCatchUp || p.late < 400 || p.sent+p.unsent(clk.Now()) != 1000 || p.sent < 560 || p.sent > 600 {
		t.Errorf("burst %d late %d sent %d unsent %d", p.longestBurst, p.late, p.sent, p.unsent(clk.Now()))
	}
}

func TestVirtualDurationEndsTheRun(t *testing.T) {
	for name, rate := range virtualRates {
		clk := new(clock.Virtual)
		_, theirs := newSlotQueues(3, clk)
		sched, _ := clock.NewSchedule(rate)
		duration := sched.At(1000)
		p, _ := newPacer(pacerConfig{Rate: rate, DurationNS: duration}, theirs)
		p.begin(0, 0)
		drive(t, p, clk)
		if p.sent != 1000 {
			t.Errorf("%s: sent %d in the time of 1000 slots", name, p.sent)
		}
		if p.first != 0 || p.last != sched.At(999) {
			t.Errorf("%s: departures from %d to %d", name, p.first, p.last)
		}
	}
}

func TestPacerAllocatesNothing(t *testing.T) {
	clk := new(clock.Virtual)
	p, _ := newPacer(pacerConfig{Rate: clock.Rate{Num: 10_000_000, Den: 1}}, []txQueue{sink{}, sink{}})
	p.begin(0, 0)
	if n := testing.AllocsPerRun(1000, func() {
		clk.Advance(10_000)
		if _, err := p.round(clk.Now()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type sink struct{}

func (sink) Send(n int, _ []uint32) (int, error) { return n, nil }

func BenchmarkPacer(b *testing.B) {
	for name, rate := range map[string]clock.Rate{"max": {}, "paced": {Num: 100_000_000, Den: 1}} {
		b.Run("op/rate="+name, func(b *testing.B) {
			p, _ := newPacer(pacerConfig{Rate: rate}, []txQueue{sink{}})
			p.begin(0, 0)
			now := int64(0)
			for b.Loop() {
				now += 640
				p.round(now)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(p.sent), "ns/pkt")
		})
	}
}
