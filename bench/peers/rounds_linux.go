package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// giveUp is how often in a row a contender may fail before it is left out.
const giveUp = 2

// startup bounds what a contender takes beside its window.
const startup = 30 * time.Second

// bench is what contenders share.
type bench struct {
	window   time.Duration // to measure over
	cpu      int           // where the work is done
	otherCPU int           // where whatever is not measured is done, or the other half of the work
	dir      string        // for files; it is removed at the end
	paths    map[program]string
	root     bool // in own namespaces
	huge     bool // there are huge pages
	runs     int  // so far: makes names
}

// compare runs a row's contenders in turns. A round that was cut short by the context counts for nobody.
func (b *bench) compare(ctx context.Context, r *row, rounds int, progress io.Writer) []standing {
	all := make([]standing, len(r.contenders))
	for i := range all {
		all[i].name, all[i].also = r.contenders[i].name, r.contenders[i].also
		all[i].missing = b.missing(&r.contenders[i])
		all[i].figures = slices.Repeat(series{math.NaN()}, rounds)
	}
	for round := range rounds {
		for k := range r.contenders {
			if round%2 == 1 {
				k = len(r.contenders) - 1 - k
			}
			c, s := &r.contenders[k], &all[k]
			if s.missing != "" || s.inARow == giveUp || ctx.Err() != nil {
				continue
			}
			got, err := b.once(ctx, c)
			if ctx.Err() != nil {
				continue
			}
			if err != nil {
				s.inARow++
				s.failures = append(s.failures, fmt.Sprintf("round %d: %v", round+1, err))
				fmt.Fprintf(progress, "%s %d/%d  %s: %v\n", r.key, round+1, rounds, c.name, err)
				continue
			}
			s.inARow = 0
			s.figures[round] = r.unit.of(got)
			s.command = strings.ReplaceAll(got.command, b.dir, "DIR")
			fmt.Fprintf(progress, "%s %d/%d  %-45s %8.2f %s\n", r.key, round+1, rounds, c.name, s.figures[round], r.unit)
		}
	}
	return all
}

// missing says what a contender lacks; empty if nothing.
func (b *bench) missing(c *contender) string {
	if c.root && !b.root {
		return "needs root, for an interface of its own"
	}
	for _, p := range c.needs {
		if b.paths[p] == "" {
			return "needs " + p.name + ": " + p.from
		}
	}
	return ""
}

// once runs a contender within its time.
func (b *bench) once(ctx context.Context, c *contender) (sample, error) {
	b.runs++
	ctx, cancel := context.WithTimeout(ctx, b.window+startup)
	defer cancel()
	s, err := c.run(ctx, b)
	if err == nil && (s.packets == 0 || s.elapsed <= 0) {
		err = errors.New("no packets")
	}
	return s, err
}

// profile runs a row's contenders that are in this process once more and writes a CPU profile of each.
func (b *bench) profile(ctx context.Context, r *row, dir string) error {
	if dir == "" {
		return nil
	}
	for i := range r.contenders {
		c := &r.contenders[i]
		if len(c.needs) > 0 || c.root || ctx.Err() != nil {
			continue
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", r.key, i+1)))
		if err != nil {
			return err
		}
		if err = pprof.StartCPUProfile(f); err == nil {
			_, err = b.once(ctx, c)
			pprof.StopCPUProfile()
		}
		if err = errors.Join(err, f.Close()); err != nil && ctx.Err() == nil {
			return fmt.Errorf("profile of %s: %w", c.name, err)
		}
	}
	return nil
}
