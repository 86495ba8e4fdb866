package traffic

import (
	"fmt"
	"io"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Progress shows interval records to a person: on a terminal one line that
// refreshes, in a pipe a line each. It never writes on the results' stream.
type Progress struct {
	w        io.Writer
	terminal bool
	rows     int
}

// NewProgress makes a Progress on w.
func NewProgress(w io.Writer, terminal bool) *Progress {
	return &Progress{w: w, terminal: terminal}
}

const progressHead = "    time    tx Mpps   rx Mpps   L1 Gb/s       lost     dup   reord    late      p50      p99    p99.9      max"

// Show prints one record.
func (p *Progress) Show(i *Interval) {
	if p.rows == 0 {
		fmt.Fprintln(p.w, progressHead)
	}
	p.rows++
	line := fmt.Sprintf("%7.1fs %10.6f %9.6f %9.3f %10d %7d %7d %7d", float64(i.ElapsedNS)/1e9, i.TxPPS/1e6, i.RxPPS/1e6,
		max(i.TxL1BPS, i.RxL1BPS)/1e9, i.Lost, i.Duplicate, i.Reordered, i.Late)
	if l := i.Latency; l != nil {
		line += fmt.Sprintf(" %8s %8s %8s %8s", results.NS(float64(l.P50)), results.NS(float64(l.P99)), results.NS(float64(l.P999)), results.NS(float64(l.Max)))
	}
	if p.terminal {
		fmt.Fprintf(p.w, "\r%s\x1b[K", line)
		return
	}
	fmt.Fprintln(p.w, line)
}

// End closes the refreshing line.
func (p *Progress) End() {
	if p.terminal && p.rows > 0 {
		fmt.Fprintln(p.w)
	}
}
