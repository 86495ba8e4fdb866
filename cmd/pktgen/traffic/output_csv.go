package traffic

import "strconv"

// csvHeader is stable: columns are added at the end only. Names are the keys
// of the report.
var csvHeader = []string{
	"record", "elapsed_ns", "sent_packets", "sent_bytes", "received_packets", "received_bytes", "unique_packets",
	"lost_packets", "duplicate_packets", "reordered_packets", "stale_packets", "foreign_packets", "corrupt_packets",
	"fragment_packets", "hello_packets", "late_packets", "early_packets", "unsent_packets", "send_failed_packets",
	"rx_ring_drops_packets", "tx_pps", "tx_l2_bps", "tx_l1_bps", "rx_pps", "rx_l2_bps", "rx_l1_bps",
	"latency_samples_count", "latency_ns.min", "latency_ns.mean", "latency_ns.p50", "latency_ns.p90", "latency_ns.p99",
	"latency_ns.p99.9", "latency_ns.p99.99", "latency_ns.p99.999", "latency_ns.max", "bad_icrc_packets", "weak_icrc_packets",
}

func csvInterval(i *Interval) []string {
	return csvRow(i.Record, i.ElapsedNS, &i.Counts, &i.Rates, i.LatencySamples, i.Latency)
}

func csvReport(r *Report) []string {
	return csvRow(r.Record, r.ElapsedNS, &r.Counts, &r.Rates, r.LatencySamples, r.Latency)
}

// csvRow fills one row in the header's order; a missing latency leaves its
// cells empty.
func csvRow(record string, elapsedNS int64, c *Counts, r *Rates, samples uint64, l *Summary) []string {
	row := []string{record, strconv.FormatInt(elapsedNS, 10)}
	for _, n := range []uint64{
		c.Sent, c.SentBytes, c.Received, c.RecvBytes, c.Unique, c.Lost, c.Duplicate, c.Reordered, c.Stale, c.Foreign,
		c.Corrupt, c.Fragment, c.Hello, c.Late, c.Early, c.Unsent, c.SendFailed, c.RingDrops,
	} {
		row = append(row, strconv.FormatUint(n, 10))
	}
	for _, f := range []float64{r.TxPPS, r.TxL2BPS, r.TxL1BPS, r.RxPPS, r.RxL2BPS, r.RxL1BPS} {
		row = append(row, strconv.FormatFloat(f, 'f', 3, 64))
	}
	row = append(row, strconv.FormatUint(samples, 10))
	if l == nil {
		row = append(row, make([]string, 9)...)
	} else {
		row = append(row, strconv.FormatInt(l.Min, 10), strconv.FormatFloat(l.Mean, 'f', 1, 64))
		for _, n := range []int64{l.P50, l.P90, l.P99, l.P999, l.P9999, l.P99999, l.Max} {
			row = append(row, strconv.FormatInt(n, 10))
		}
	}
	return append(row, strconv.FormatUint(c.BadICRC, 10), strconv.FormatUint(c.WeakICRC, 10))
}
