package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// outputs are the forms a result can be printed in.
var outputs = map[string]func(io.Writer, *result) error{
	"text":     writeText,
	"json":     writeJSON,
	"markdown": writeMarkdown,
}

func writeJSON(w io.Writer, r *result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func writeText(w io.Writer, r *result) error {
	p := &printer{w: w}
	p.line("%s", r.summary())
	for _, l := range r.Machine.lines() {
		p.line("%s", l)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		p.line("\n%s: %s (%s)", row.Key, row.Title, row.Unit)
		p.columns("  ", row.table())
		if t := row.barTable(); len(t) > 1 {
			p.columns("  ", t)
		}
		for _, n := range row.notes() {
			p.line("  %s", n)
		}
		for _, c := range row.commands() {
			p.line("  [%s] %s", c[0], c[1])
		}
	}
	return p.err
}

// writeMarkdown prints what can stand in a document as it is.
func writeMarkdown(w io.Writer, r *result) error {
	p := &printer{w: w}
	p.line("%s", r.summary())
	p.line("")
	for _, l := range r.Machine.lines() {
		p.line("- %s", l)
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		p.line("\n### %s\n", row.Title)
		p.grid(row.table())
		if t := row.barTable(); len(t) > 1 {
			p.line("")
			p.grid(t)
		}
		p.line("")
		for _, n := range row.notes() {
			p.line("- %s", n)
		}
		for _, c := range row.commands() {
			p.line("- [%s] `%s`", c[0], c[1])
		}
	}
	return p.err
}

// summary says what was done and how it is to be read.
func (r *result) summary() string {
	s := fmt.Sprintf("%d alternating rounds of %v, begun %s: %s. Median (least to most); a ratio is of the same round; "+
		"equal: the bar is missed, but lies inside the measured range.", r.Rounds, time.Duration(r.WindowNS), r.Started, r.Command)
	if r.Interrupted {
		s = "INTERRUPTED, rounds are missing. " + s
	}
	return s
}

func (m *machine) lines() []string {
	out := []string{
		fmt.Sprintf("%d CPUs %s, of which %v are used; Linux %s, %s", m.CPUs, m.CPU, m.UsedCPUs, m.Kernel, m.Go),
	}
	var v []string
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		v = append(v, name+" "+m.Versions[name])
	}
	if len(v) > 0 {
		out = append(out, strings.Join(v, ", "))
	}
	pages := "DPDK without huge pages"
	if m.HugePages {
		pages = "DPDK on huge pages"
	}
	state := "NOT QUIET, so only the ratios mean something"
	if m.quiet() {
		state = "quiet"
	}
	return append(out, pages, fmt.Sprintf("load before: %s; others took %.1f %% of the processors' time, the host %.1f %%: %s",
		m.LoadBefore, 100*m.Others, 100*m.Steal, state))
}

// figure prints three digits, as many as such measurements have.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (s spread) cells() []string {
	if s.Rounds == 0 {
		return []string{"-", "-", "0"}
	}
	return []string{figure(s.Median), figure(s.Min) + " to " + figure(s.Max), fmt.Sprint(s.Rounds)}
}

func (r *rowResult) table() [][]string {
	t := [][]string{{"contender", r.Unit, "range", "rounds"}}
	for _, c := range r.Contenders {
		t = append(t, append([]string{c.Name}, c.cells()...))
	}
	return t
}

func (r *rowResult) barTable() [][]string {
	t := [][]string{{"bar", "median", "range", "rounds", "wanted", "verdict"}}
	for _, b := range r.Bars {
		wanted := b.Bar
		if b.Aim {
			wanted += " (aim)"
		}
		t = append(t, append(append([]string{b.What}, b.cells()...), wanted, string(b.Verdict)))
	}
	return t
}

// notes say what a figure is in other units, and who did not take part, or not always.
func (r *rowResult) notes() (out []string) {
	for _, c := range r.Contenders {
		if c.Also != "" {
			out = append(out, c.Name+": "+c.Also)
		}
		if c.Missing != "" {
			out = append(out, c.Name+" did not run: it "+c.Missing)
		}
		for _, f := range c.Failures {
			out = append(out, c.Name+" failed: "+f)
		}
	}
	return out
}

func (r *rowResult) commands() (out [][2]string) {
	for _, c := range r.Contenders {
		if c.Command != "" {
			out = append(out, [2]string{c.Name, c.Command})
		}
	}
	return out
}

// printer remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) columns(indent string, rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, indent+strings.Join(r, "\t"))
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
}

func (p *printer) grid(rows [][]string) {
	for i, r := range rows {
		p.line("| %s |", strings.Join(r, " | "))
		if i == 0 {
			p.line("|%s", strings.Repeat("---|", len(r)))
		}
	}
}
