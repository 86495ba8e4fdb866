package echo

import (
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/latency"
)

// Schema names the layout of Report. A key that is removed or changes its
// meaning makes a new number; a new key does not.
const Schema = "bluering.udecho.report/1"

// Report is the result of a run: one object, every number's key carries its unit
// (or stands in an object whose key does).
type Report struct {
	Schema  string `json:"schema"`
	Record  string `json:"record"` // "report"
	Tool    string `json:"tool"`   // "udecho"
	Version string `json:"version"`
	Command string `json:"command"` // "serve", "ping", "bw" or "scan"

	// Outcome is "complete", "interrupted" (by a signal; all counts are final all the same) or "failed" (Error says why).
	Outcome   string   `json:"outcome"`
	Error     string   `json:"error,omitempty"`
	Notes     []string `json:"notes,omitempty"`
	StartTime string   `json:"start_time"` // RFC 3339

	Host   results.Host `json:"host"`
	Device Device       `json:"device"`
	Peer   *Peer        `json:"peer,omitempty"` // of a client
	Config ConfigEcho   `json:"config"`

	ElapsedNS int64 `json:"elapsed_ns"` // first departure to the last answer, of bw to the last departure
	Counts
	LossKnown      bool    `json:"loss_valid"` // somebody counted what arrived
	LossRatio      float64 `json:"loss_ratio"` // lost / sent
	TxPPS          float64 `json:"tx_pps"`
	RxPPS          float64 `json:"rx_pps"` // answers; of bw: what the peer counted
	TxBPS          float64 `json:"tx_bps"` // payload bits
	RxBPS          float64 `json:"rx_bps"`
	RateAskedPPS   float64 `json:"rate_asked_pps"`   // 0: max
	RateErrorRatio float64 `json:"rate_error_ratio"` // (got - asked) / asked; 0 when max

	RTT         *results.Summary `json:"rtt_ns,omitempty"`      // full round trip
	HalfRTT     *results.Summary `json:"half_rtt_ns,omitempty"` // half of it, which perftest calls latency
	RTTSamples  uint64           `json:"rtt_samples_count"`
	RTTFrom     string           `json:"rtt_from"` // "send", "schedule" or "none"
	RTTHDR      string           `json:"rtt_hdr_base64,omitempty"`
	Paths       []Path           `json:"paths,omitempty"` // of scan
	PeerCounts  *PeerCounts      `json:"peer_counts,omitempty"`
	ServerTotal *ServerTotals    `json:"server,omitempty"` // of serve

	Drops   map[string]uint64      `json:"drops_datagrams"` // of the own device, by reason
	Asserts []results.AssertResult `json:"asserts"`

	rtt latency.Snapshot
}

// Counts are totals of a run.
type Counts struct {
	Sent       uint64 `json:"sent_datagrams"`
	SentBytes  uint64 `json:"sent_bytes"` // payload
	Received   uint64 `json:"received_datagrams"`
	RecvBytes  uint64 `json:"received_bytes"`
	Unique     uint64 `json:"unique_datagrams"` // answered; of bw: what the peer counted
	Lost       uint64 `json:"lost_datagrams"`   // sent - unique
	Duplicate  uint64 `json:"duplicate_datagrams"`
	Reordered  uint64 `json:"reordered_datagrams"` // an answer to one sent before the newest answered
	Late       uint64 `json:"late_datagrams"`      // answers to a datagram that was given up
	Foreign    uint64 `json:"foreign_datagrams"`   // not an answer of this run
	Unsent     uint64 `json:"unsent_datagrams"`    // of the schedule, given up at the end
	SendFailed uint64 `json:"send_failed_datagrams"`
}

// PeerCounts are what a server of the native exchange counted for this client.
type PeerCounts struct {
	Received uint64 `json:"received_datagrams"`
	Bytes    uint64 `json:"received_bytes"`
	Answered uint64 `json:"answered_datagrams"`
	Limited  uint64 `json:"limited_datagrams"`
	Dropped  uint64 `json:"dropped_datagrams"`
}

// ServerTotals are what a server did.
type ServerTotals struct {
	Sessions uint64 `json:"sessions_count"`
	Refused  uint64 `json:"refused_count"` // exchanges that came to nothing
	// Of them, clients of a source that had its share already, and clients that came when all places were taken.
	RefusedShare uint64 `json:"refused_share_count"`
	RefusedFull  uint64 `json:"refused_full_count"`
	IdleEnded    uint64 `json:"idle_ended_count"` // sessions whose place another client got
	Answered     uint64 `json:"answered_datagrams"`
	Sunk         uint64 `json:"sunk_datagrams"`       // counted and not to be answered
	Limited      uint64 `json:"limited_datagrams"`    // beyond a client's rate
	Strangers    uint64 `json:"strangers_datagrams"`  // of nobody that was introduced
	Unanswered   uint64 `json:"unanswered_datagrams"` // no way to the sender, or no room
}

// Path is one source port's part of a scan.
type Path struct {
	SourcePort uint16           `json:"source_port"`
	Sent       uint64           `json:"sent_datagrams"`
	Unique     uint64           `json:"unique_datagrams"`
	Lost       uint64           `json:"lost_datagrams"`
	RTT        *results.Summary `json:"rtt_ns,omitempty"`
}

// Device is the own end.
type Device struct {
	URI    string `json:"uri"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	IsWire bool   `json:"is_wire"` // false: datagrams never leave this process
	GID    string `json:"gid"`
	QPN    uint32 `json:"qpn"`
	MTU    int    `json:"mtu_bytes"` // payload of a datagram
}

// Peer is the other end, as the exchange told it.
type Peer struct {
	Address  string `json:"address"` // of the exchange
	Protocol string `json:"protocol"`
	Version  string `json:"version,omitempty"`
	GID      string `json:"gid"`
	QPN      uint32 `json:"qpn"`
	QKey     uint32 `json:"qkey"`
	MTU      int    `json:"mtu_bytes"` // 0: not told
}

// ConfigEcho repeats what was asked.
type ConfigEcho struct {
	Device      string `json:"device"`
	Server      string `json:"server,omitempty"`
	Listen      string `json:"listen,omitempty"`
	Exchange    string `json:"exchange"`
	Rate        string `json:"rate"`
	Count       uint64 `json:"count_datagrams"`
	DurationNS  int64  `json:"duration_ns"`
	Size        int    `json:"size_bytes"`
	TimeoutNS   int64  `json:"timeout_ns"`
	Inline      int    `json:"inline_bytes"`
	SignalEvery int    `json:"signal_every_datagrams"`
	Depth       int    `json:"depth_datagrams"`
	SRQ         bool   `json:"srq"`
	Event       bool   `json:"event"`
	GIDIndex    int    `json:"gid_index"`
}

// Interval is a progress record.
type Interval struct {
	Schema    string `json:"schema"`
	Record    string `json:"record"` // "interval"
	ElapsedNS int64  `json:"elapsed_ns"`
	Counts
	TxPPS float64          `json:"tx_pps"` // of the interval
	RxPPS float64          `json:"rx_pps"`
	RTT   *results.Summary `json:"rtt_ns,omitempty"` // of the interval

	oneWay bool // nothing is answered: what arrived is known at the end
}

func newReport(command string, c *Config) *Report {
	return &Report{
		Schema: Schema, Record: "report", Tool: "udecho", Version: results.Version(), Command: command, Outcome: "complete",
		StartTime: time.Now().UTC().Format(time.RFC3339Nano), Host: results.ThisHost(), RTTFrom: "none",
		Config: ConfigEcho{Device: c.Device, Server: c.Server, Listen: c.Listen, Exchange: c.Exchange, Rate: c.Rate.String(), Count: c.Count,
			DurationNS: int64(c.Duration), Size: c.Size, TimeoutNS: int64(c.Timeout), Inline: c.Inline, SignalEvery: c.SignalEvery,
			Depth: c.Depth, SRQ: c.SRQ, Event: c.Event, GIDIndex: c.GIDIndex},
		Drops: map[string]uint64{}, Asserts: []results.AssertResult{},
	}
}

// finish computes what follows from the counts; sendNS is the time from the first
// departure to the last, in which there are gaps, one less than departures.
func (r *Report) finish(sendNS int64) {
	if r.LossKnown {
		r.Lost = r.Sent - min(r.Sent, r.Unique)
		if r.Sent > 0 {
			r.LossRatio = float64(r.Lost) / float64(r.Sent)
		}
	}
	if s := float64(r.ElapsedNS) / 1e9; s > 0 {
		r.RxPPS, r.RxBPS = float64(r.Unique)/s, float64(r.RecvBytes)*8/s
	}
	if s := float64(sendNS) / 1e9; s > 0 && r.Sent > 1 {
		gaps := float64(r.Sent-1) / float64(r.Sent)
		r.TxPPS, r.TxBPS = float64(r.Sent)*gaps/s, float64(r.SentBytes)*8*gaps/s
	}
	if r.RateAskedPPS > 0 && r.TxPPS > 0 {
		r.RateErrorRatio = (r.TxPPS - r.RateAskedPPS) / r.RateAskedPPS
	}
	r.RTTSamples = r.rtt.Count()
	if r.RTT = results.Summarize(&r.rtt); r.RTT != nil {
		h := *r.RTT
		for _, v := range []*int64{&h.Min, &h.P50, &h.P90, &h.P99, &h.P999, &h.P9999, &h.P99999, &h.Max} {
			*v /= 2
		}
		h.Mean /= 2
		r.HalfRTT = &h
		r.RTTHDR, _ = r.rtt.Encode() // an empty text says that there is none
	}
}

// drops adds what the device dropped since before.
func (r *Report) drops(now, before *engine.Counters) {
	for i := range now.Drops {
		if n := now.Drops[i] - before.Drops[i]; n > 0 {
			r.Drops[engine.DropReason(i).String()] += n
		}
	}
	if n := now.TxLost - min(now.TxLost, before.TxLost); n > 0 {
		r.Drops["send refused by the medium"] += n
	}
}

// ParseAssert reads a condition on a number of the report.
func ParseAssert(s string) (results.Assert, error) { return keys.Parse(s) }

var keys = &results.Keys{
	Short: map[string]string{
		"loss": "lost_datagrams", "lost": "lost_datagrams", "dup": "duplicate_datagrams", "reordered": "reordered_datagrams",
		"sent": "sent_datagrams", "received": "received_datagrams", "unique": "unique_datagrams", "late": "late_datagrams",
		"foreign": "foreign_datagrams", "unsent": "unsent_datagrams", "failed": "send_failed_datagrams",
		"rate": "tx_pps", "rate_err": "rate_error_ratio",
		"min": "rtt_ns/min", "mean": "rtt_ns/mean", "max": "rtt_ns/max", "p50": "rtt_ns/p50", "p90": "rtt_ns/p90", "p99": "rtt_ns/p99",
		"p99.9": "rtt_ns/p99.9", "p99.99": "rtt_ns/p99.99", "p99.999": "rtt_ns/p99.999",
	},
	Percent: map[string]string{"loss": "loss_ratio"},
	Abs:     "rate_error_ratio",
	Open:    "drops_datagrams",
	Report:  Report{Peer: &Peer{}, RTT: &results.Summary{}, HalfRTT: &results.Summary{}, PeerCounts: &PeerCounts{}, ServerTotal: &ServerTotals{}},
	Wants:   "NAME OP VALUE, such as loss==0, p99<20us (of the round trip), half_rtt_ns.p99<10us",
}

// Judge adds the verdict on a condition. What nobody counted is no success.
func (r *Report) Judge(a results.Assert) results.AssertResult {
	v := a.Judge(r)
	loss := a.Key() == "lost_datagrams" || a.Key() == "loss_ratio" || a.Key() == "unique_datagrams"
	if loss && !r.LossKnown || a.Key() == "rate_error_ratio" && r.RateAskedPPS == 0 {
		v = a.Unknown()
	}
	r.Asserts = append(r.Asserts, v)
	return v
}
