package engine

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/pin"
)

func TestPollerMovesPackets(t *testing.T) {
	for _, idle := range []Idle{IdleSpin, IdleYield, IdlePark} {
		r := newRig(t, rigConfig{})
		const total = 1000
		sent, done := 0, 0
		var p *Poller
		wrs := make([]SendWR, 4)
		p, err := NewPoller(r.d, PollerConfig{Idle: idle, Spins: 3, Pin: true, CPU: pin.CPUs()[0], Each: func(int64) int {
			for i := range wrs {
				wrs[i] = r.wr(uint64(sent+i), Signaled)
			}
			n, err := r.q.Post(wrs[:min(4, total-sent)])
			if err != nil && !errors.Is(err, CauseFull) {
				t.Error(err)
			}
			sent += n
			return n
		}})
		r.ok(err)
		r.ok(p.Add(r.cq, func(wc []Completion) {
			for i := range wc {
				if wc[i].WRID != uint64(done) {
					t.Errorf("WR %d, want %d", wc[i].WRID, done)
				}
				if done++; done == total {
					p.Stop()
				}
			}
		}))
		r.ok(p.Run(context.Background()))
		if s := p.Stalls(); done != total || s.Rounds == 0 || s.Gaps.Count() == 0 {
			t.Fatalf("%d done, %+v", done, s)
		}
	}
}

func TestPollerIdlesAsTold(t *testing.T) {
	for _, idle := range []Idle{IdleSpin, IdleYield, IdlePark} {
		r := newRig(t, rigConfig{})
		rounds := 0
		var p *Poller
		p, err := NewPoller(r.d, PollerConfig{Idle: idle, Spins: 10, Each: func(int64) int {
			if rounds++; rounds == 100 {
				p.Stop()
			}
			return 0
		}})
		r.ok(err)
		r.ok(p.Run(context.Background()))
		s := p.Stalls()
		want := map[Idle]Stalls{IdleSpin: {}, IdleYield: {Yields: 91}, IdlePark: {Parks: 10}}[idle]
		if s.Yields != want.Yields || s.Parks != want.Parks || r.s.waits != int(want.Parks) || s.Rounds != 100 {
			t.Fatalf("%v: %+v, %d waits", idle, s, r.s.waits)
		}
	}
}

func TestPollerEnds(t *testing.T) {
	r := newRig(t, rigConfig{})
	p, err := NewPoller(r.d, PollerConfig{})
	r.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error)
	go func() { end <- p.Run(ctx) }()
	for p.Stalls().Rounds == 0 { // also: the ledger of a run in progress
	}
	wantErr(t, "second Run", p.Run(ctx), syscall.EBUSY)
	wantErr(t, "Add", p.Add(r.cq, func([]Completion) {}), syscall.EBUSY)
	cancel()
	r.ok(<-end)
	r.ok(p.Run(ctx)) // ended before it began
	p, err = NewPoller(r.d, PollerConfig{Pin: true, CPU: 1 << 20})
	r.ok(err)
	if p.Run(ctx) == nil {
		t.Fatal("pinned to a processor that does not exist")
	}
	small := newRig(t, rigConfig{cqe: 3})
	for i := range 6 {
		_, err = small.q.Post([]SendWR{small.wr(uint64(i), Signaled)})
		small.ok(err)
	}
	p, err = NewPoller(small.d, PollerConfig{})
	r.ok(err)
	r.ok(p.Add(small.cq, func([]Completion) {}))
	wantErr(t, "overrun", p.Run(context.Background()), ErrOverrun)
	wantErr(t, "foreign CQ", p.Add(r.cq, func([]Completion) {}), syscall.EINVAL)
	_, err = NewPoller(r.d, PollerConfig{Spins: -1})
	wantErr(t, "config", err, syscall.EINVAL)
}

func TestLedgerBooksGaps(t *testing.T) {
	var l ledger
	v := &clock.Virtual{}
	gaps := latency.New(latency.Options{})
	for _, step := range []struct {
		ns     int64
		worked bool
	}{{1000, false}, {1000, false}, {50_000, false}, {50_000, true}, {10_000, false}, {10_001, false}} {
		v.Advance(step.ns)
		l.round(v.Now(), step.worked, 10_000, gaps)
	}
	s := gaps.Swap()
	if l.rounds != 6 || l.stalls != 2 || l.stalledNS != 60_001 || s.Count() != 5 || s.Max() != 50_000 {
		t.Fatalf("%+v, %d gaps up to %d", l, s.Count(), s.Max())
	}
}
