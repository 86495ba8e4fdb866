package echo

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine/latency"
)

// Text is the report for a reader.
func (r *Report) Text() string {
	var b strings.Builder
	if r.Outcome != "complete" {
		fmt.Fprintf(&b, "%s%s\n", r.Outcome, results.Prefixed(": ", r.Error))
	}
	where := r.Device.Name
	if !r.Device.IsWire {
		where += " (not a wire)"
	}
	fmt.Fprintf(&b, "%s %v qp %#x", where, r.Device.GID, r.Device.QPN)
	if p := r.Peer; p != nil {
		fmt.Fprintf(&b, "  peer %v qp %#x by %s", p.GID, p.QPN, p.Protocol)
	}
	fmt.Fprintf(&b, "  in %s\n", time.Duration(r.ElapsedNS).Round(time.Microsecond))
	switch {
	case r.ServerTotal != nil:
		s := r.ServerTotal
		fmt.Fprintf(&b, "sessions %s  refused %s%s  received %s  answered %s  sunk %s  limited %s  of strangers %s  unanswered %s\n",
			results.Group(s.Sessions), results.Group(s.Refused), s.places(), results.Group(r.Received), results.Group(s.Answered), results.Group(s.Sunk),
			results.Group(s.Limited), results.Group(s.Strangers), results.Group(s.Unanswered))
	default:
		r.clientText(&b)
	}
	for _, key := range results.SortedKeys(r.Drops) {
		fmt.Fprintf(&b, "dropped %s: %s\n", results.Group(r.Drops[key]), key)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	for _, a := range r.Asserts {
		fmt.Fprintf(&b, "  %s\n", results.AssertText(a))
	}
	return b.String()
}

// places tells of the limits on clients, where they came to bear.
func (s *ServerTotals) places() string {
	if s.RefusedShare+s.RefusedFull+s.IdleEnded == 0 {
		return ""
	}
	return fmt.Sprintf(" (beyond a source's share %s, beyond all places %s)  ended when idle %s",
		results.Group(s.RefusedShare), results.Group(s.RefusedFull), results.Group(s.IdleEnded))
}

func (r *Report) clientText(b *strings.Builder) {
	fmt.Fprintf(b, "sent %s  ", results.Group(r.Sent))
	if r.LossKnown {
		fmt.Fprintf(b, "received %s  lost %s", results.Group(r.Unique), results.Group(r.Lost))
		if r.Sent > 0 {
			fmt.Fprintf(b, " (%s %%)", results.Trim(r.LossRatio*100, 6))
		}
	} else {
		fmt.Fprintf(b, "received: not known")
	}
	fmt.Fprintf(b, "  dup %s  reordered %s  late %s  foreign %s  unsent %s\n", results.Group(r.Duplicate), results.Group(r.Reordered),
		results.Group(r.Late), results.Group(r.Foreign), results.Group(r.Unsent))
	asked := "max"
	if r.RateAskedPPS > 0 {
		asked = fmt.Sprintf("%s (%+.5f %%)", results.PPS(r.RateAskedPPS), r.RateErrorRatio*100)
	}
	if r.Sent != 1 { // one datagram has no rate
		fmt.Fprintf(b, "rate asked %s  sent %s %s  received %s %s\n", asked, results.PPS(r.TxPPS), results.BPS(r.TxBPS), results.PPS(r.RxPPS), results.BPS(r.RxBPS))
	}
	if r.RTT != nil {
		fmt.Fprintf(b, "round trip (%s samples, from %s)\n  full  %s\n  half  %s\n", results.Group(r.RTTSamples), r.RTTFrom, distribution(r.RTT), distribution(r.HalfRTT))
	}
	for _, p := range r.Paths {
		fmt.Fprintf(b, "port %5d  sent %s  lost %s", p.SourcePort, results.Group(p.Sent), results.Group(p.Lost))
		if p.RTT != nil {
			fmt.Fprintf(b, "  p50 %s  p99 %s  max %s", results.NS(float64(p.RTT.P50)), results.NS(float64(p.RTT.P99)), results.NS(float64(p.RTT.Max)))
		}
		fmt.Fprintln(b)
	}
}

func distribution(s *results.Summary) string {
	t := func(n int64) string { return results.NS(float64(n)) }
	return fmt.Sprintf("min %s  mean %s  p50 %s  p90 %s  p99 %s  p99.9 %s  p99.99 %s  p99.999 %s  max %s",
		t(s.Min), results.NS(s.Mean), t(s.P50), t(s.P90), t(s.P99), t(s.P999), t(s.P9999), t(s.P99999), t(s.Max))
}

// Text is a progress record in a line.
func (i *Interval) Text() string {
	if i.oneWay {
		return fmt.Sprintf("%7.1fs  tx %s  sent %d", float64(i.ElapsedNS)/1e9, results.PPS(i.TxPPS), i.Sent)
	}
	line := fmt.Sprintf("%7.1fs  tx %s  answered %s  sent %d  received %d", float64(i.ElapsedNS)/1e9, results.PPS(i.TxPPS), results.PPS(i.RxPPS), i.Sent, i.Unique)
	if i.RTT != nil {
		line += fmt.Sprintf("  rtt p50 %s  p99 %s  max %s", results.NS(float64(i.RTT.P50)), results.NS(float64(i.RTT.P99)), results.NS(float64(i.RTT.Max)))
	}
	return line
}

// Writer puts interval records and the report on w in one format. In json and text
// only the report appears, in jsonl every record on a line of its own, in csv the
// report's numbers, a row each.
type Writer struct {
	W      io.Writer
	Format results.Format
}

// Interval writes a progress record where the format has them.
func (o Writer) Interval(i *Interval) error {
	if o.Format != results.JSONL {
		return nil
	}
	return o.line(i)
}

// Report writes the final record.
func (o Writer) Report(r *Report) (err error) {
	switch o.Format {
	case results.Text:
		_, err = io.WriteString(o.W, r.Text())
	case results.JSON:
		var raw []byte
		if raw, err = json.MarshalIndent(r, "", "  "); err == nil {
			_, err = o.W.Write(append(raw, '\n'))
		}
	case results.JSONL:
		err = o.line(r)
	case results.CSV:
		_, err = io.WriteString(o.W, r.csv())
	}
	return err
}

func (o Writer) line(v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		_, err = o.W.Write(append(raw, '\n'))
	}
	return err
}

// csv has a row for each number, under its key.
func (r *Report) csv() string {
	var b strings.Builder
	fmt.Fprintln(&b, "key,value")
	all := results.Numbers(r)
	for _, key := range results.SortedKeys(all) {
		fmt.Fprintf(&b, "%s,%s\n", strings.ReplaceAll(key, "/", "."), strconv.FormatFloat(all[key], 'f', -1, 64))
	}
	return b.String()
}

// HDRLog is the round trips as a file in the log format of HdrHistogram, values in ns.
func (r *Report) HDRLog() []byte {
	var b strings.Builder
	start, _ := time.Parse(time.RFC3339Nano, r.StartTime)
	_ = r.rtt.WriteLog(&b, hdrOptions(r, start)) // a strings.Builder takes everything
	return []byte(b.String())
}

func hdrOptions(r *Report, start time.Time) latency.LogOptions {
	ms := start.UnixMilli()
	return latency.LogOptions{StartMS: ms, EndMS: ms + r.ElapsedNS/1e6, Comment: "udecho " + r.Command + " full round trip in ns; device " + r.Device.Name}
}
