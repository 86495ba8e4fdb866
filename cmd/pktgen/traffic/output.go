package traffic

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Writer puts interval records and the report on w in one format. In json only
// the report appears, in jsonl every record on a line of its own, in csv every
// record under one header.
type Writer struct {
	w      io.Writer
	format Format
	header bool
	err    error
}

// NewWriter makes a Writer.
func NewWriter(w io.Writer, f Format) *Writer { return &Writer{w: w, format: f} }

// Interval writes a progress record where the format has them.
func (o *Writer) Interval(i *Interval) {
	switch o.format {
	case results.JSONL:
		o.line(i)
	case results.CSV:
		o.row(csvInterval(i))
	}
}

// Report writes the final record and returns the first error of all writes.
func (o *Writer) Report(r *Report) error {
	switch o.format {
	case results.Text:
		o.put(reportText(r))
	case results.JSON:
		raw, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		o.put(string(raw) + "\n")
	case results.JSONL:
		o.line(r)
	case results.CSV:
		o.row(csvReport(r))
	}
	return o.err
}

func (o *Writer) line(v any) {
	raw, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = err
		return
	}
	o.put(string(raw) + "\n")
}

func (o *Writer) row(cells []string) {
	if !o.header {
		o.header = true
		o.put(strings.Join(csvHeader, ",") + "\n")
	}
	o.put(strings.Join(cells, ",") + "\n")
}

func (o *Writer) put(s string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.w, s)
	}
}
