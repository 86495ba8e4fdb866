package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bluering/bluering/internal/clock"
)

// readings is how many are made between two looks at the other clock.
const readings = 1 << 20

// runSpinGo is c/spin.c in Go: no allocation, no call into the scheduler.
func runSpinGo(ctx context.Context, b *bench) (s sample, err error) {
	s.command = fmt.Sprintf("in process, cpu %d: clock.Ticks in a loop", b.cpu)
	g := new(gaps)
	var ticks, took uint64
	err = pinned(b.cpu, func() error {
		begin, first := time.Now(), clock.Ticks()
		for took < uint64(b.window) {
			if err := ctx.Err(); err != nil {
				return err
			}
			g.count(readings)
			took, ticks = uint64(time.Since(begin)), clock.Ticks()-first
		}
		return nil
	})
	s.packets, s.elapsed = 1, time.Duration(scaled(uint64(g.quantile(10_000)), ticks, took))
	return s, err
}

// count spins.
func (g *gaps) count(n int) {
	last := clock.Ticks()
	for range n {
		next := clock.Ticks()
		g[min(next-last, maxGap)]++
		last = next
	}
}

func runSpinC(ctx context.Context, b *bench) (s sample, err error) {
	p, err := b.start(ctx, b.paths[spin], fmt.Sprint(b.cpu), fmt.Sprint(b.window.Milliseconds()))
	if err != nil {
		return s, err
	}
	s.command = p.command + "    # gcc -O2 bench/peers/c/spin.c"
	out, err := p.finish()
	if err != nil {
		return s, err
	}
	var gap, ticks, ns uint64
	if _, err = fmt.Sscan(strings.TrimSpace(out), &gap, &ticks, &ns); err != nil {
		return s, fmt.Errorf("%q: %w", out, err)
	}
	s.packets, s.elapsed = 1, time.Duration(scaled(gap, ticks, ns))
	return s, nil
}
