package traffic

// Schema names the layout of Report. A key that is removed or changes its
// meaning makes a new number; a new key does not.
const Schema = "bluering.pktgen.report/1"

// Report is the result of a run: one object, every number's key carries its
// unit (or stands in an object whose key does). report.schema.json in this
// directory describes it.
type Report struct {
	Schema  string `json:"schema"`
	Record  string `json:"record"` // "report"
	Tool    string `json:"tool"`   // "pktgen"
	Version string `json:"version"`
	Command string `json:"command"` // "tx" or "rx"

	// Outcome is "complete", "interrupted" (a signal or a cancelled context;
	// all counts are final all the same) or "failed" (Error says why).
	Outcome   string   `json:"outcome"`
	Error     string   `json:"error,omitempty"`
	Notes     []string `json:"notes,omitempty"` // what a reader should know, such as receive ring drops
	StartTime string   `json:"start_time"`      // RFC 3339
	Seed      string   `json:"seed"`            // hexadecimal
	RunToken  string   `json:"run_token"`

	Host   Host       `json:"host"`
	TX     *Port      `json:"tx,omitempty"`
	RX     *Port      `json:"rx,omitempty"`
	Config ConfigEcho `json:"config"`

	ElapsedNS int64 `json:"elapsed_ns"` // first departure to last
	Counts
	Rates
	RateAskedPPS   float64 `json:"rate_asked_pps"`   // 0: max
	RateErrorRatio float64 `json:"rate_error_ratio"` // (got - asked) / asked; 0 when max
	LossRatio      float64 `json:"loss_ratio"`       // lost / sent

	LatencyOK            bool     `json:"latency_valid"` // one clock stamped both ends
	Latency              *Summary `json:"latency_ns,omitempty"`
	LatencySamples       uint64   `json:"latency_samples_count"`
	LatencyResolutionNS  int64    `json:"latency_resolution_ns"`
	LatencyHDR           string   `json:"latency_hdr_base64,omitempty"` // HDR V2, compressed
	LatencyFrom          string   `json:"latency_from"`                 // "schedule", "burst" or "none"
	GapError             *Summary `json:"gap_error_ns,omitempty"`       // departure minus schedule
	GapErrorHDR          string   `json:"gap_error_hdr_base64,omitempty"`
	FloorGapError        *Summary `json:"floor_gap_error_ns,omitempty"` // the host's own, where a Floor was given
	FloorLatency         *Summary `json:"floor_latency_ns,omitempty"`
	FloorClockStepNS     int64    `json:"floor_clock_step_ns,omitempty"`
	ReorderExtentMaxSeqs uint64   `json:"reorder_extent_max_packets"`
	WindowPackets        uint64   `json:"flow_window_packets"`             // sequences remembered per flow
	LongestBurst         uint64   `json:"longest_unplanned_burst_packets"` // that left at once to catch up, by one doorbell or several

	Drops  map[string]uint64 `json:"drops_packets"` // by reason, both ports
	Queues []QueueCounts     `json:"queues"`
	Stalls Stalls            `json:"stalls"`

	Asserts []AssertResult `json:"asserts"`
}

// Counts are totals of a run, or of the part of it up to an interval's end.
type Counts struct {
	Sent       uint64 `json:"sent_packets"`
	SentBytes  uint64 `json:"sent_bytes"`       // FCS included
	Received   uint64 `json:"received_packets"` // ours, duplicates included
	RecvBytes  uint64 `json:"received_bytes"`
	Unique     uint64 `json:"unique_packets"`
	Lost       uint64 `json:"lost_packets"` // sent - unique
	Duplicate  uint64 `json:"duplicate_packets"`
	Reordered  uint64 `json:"reordered_packets"`
	Stale      uint64 `json:"stale_packets"` // older than the window: not judged
	Foreign    uint64 `json:"foreign_packets"`
	Corrupt    uint64 `json:"corrupt_packets"`
	BadICRC    uint64 `json:"bad_icrc_packets"`  // of the corrupt: RoCE v2 with a wrong ICRC
	WeakICRC   uint64 `json:"weak_icrc_packets"` // udp: whose ICRC is right for an IPv4 identification other than 0
	Fragment   uint64 `json:"fragment_packets"`
	Hello      uint64 `json:"hello_packets"`
	Late       uint64 `json:"late_packets"`   // slots missed by more than may be caught up: put off or left out
	Early      uint64 `json:"early_packets"`  // arrived before their schedule: recorded as 0
	Unsent     uint64 `json:"unsent_packets"` // slots given up
	SendFailed uint64 `json:"send_failed_packets"`
	RingDrops  uint64 `json:"rx_ring_drops_packets"`
}

// Rates are means over a report's or an interval's time.
type Rates struct {
	TxPPS   float64 `json:"tx_pps"`
	TxL2BPS float64 `json:"tx_l2_bps"` // FCS included
	TxL1BPS float64 `json:"tx_l1_bps"` // plus preamble and gap: 20 bytes a frame
	RxPPS   float64 `json:"rx_pps"`
	RxL2BPS float64 `json:"rx_l2_bps"`
	RxL1BPS float64 `json:"rx_l1_bps"`
}

// Interval is one progress record. Its keys mean what they mean in a Report;
// counts are totals since the start, rates and latency are the interval's own.
type Interval struct {
	Schema    string `json:"schema"`
	Record    string `json:"record"` // "interval"
	StartNS   int64  `json:"start_ns"`
	ElapsedNS int64  `json:"elapsed_ns"` // since the run's start
	Counts
	Rates
	Latency        *Summary `json:"latency_ns,omitempty"`
	LatencySamples uint64   `json:"latency_samples_count"`
}

// Port names a device and what it is.
type Port struct {
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`    // scheme: "loop", "packet", ...
	IsWire   bool   `json:"is_wire"` // false: frames never leave this process
	MAC      string `json:"mac"`
	SpeedBPS uint64 `json:"speed_bps"`       // 0: unknown
	MaxFrame int    `json:"max_frame_bytes"` // without FCS, one VLAN tag included
}

// QueueCounts is one queue's part: what it gave the device, those that failed later included.
type QueueCounts struct {
	Queue int    `json:"queue_index"`
	Sent  uint64 `json:"sent_packets"`
}

// ConfigEcho repeats what was asked, in the words of the command line.
type ConfigEcho struct {
	TX         string `json:"tx"`
	RX         string `json:"rx"`
	Rate       string `json:"rate"`
	Count      uint64 `json:"count_packets"`
	DurationNS int64  `json:"duration_ns"`
	Size       string `json:"size"`
	Proto      string `json:"proto"`
	Src        string `json:"src"`
	Dst        string `json:"dst"`
	SPort      string `json:"sport"`
	DPort      string `json:"dport"`
	SMAC       string `json:"smac"`
	DMAC       string `json:"dmac"`
	VLAN       string `json:"vlan"`
	FlowLabel  string `json:"flow_label"`
	TTL        int    `json:"ttl_hops"`
	Flows      int    `json:"flows_count"`
	Queues     int    `json:"queues_count"`
	Burst      int    `json:"burst_packets"`
	Latency    string `json:"latency"`
	DrainNS    int64  `json:"drain_ns"`
	OnLate     string `json:"on_late"`
	Tag        bool   `json:"tag"`
	Hello      bool   `json:"hello"`
	Csum       string `json:"checksums"`     // "software" or "offload"
	TSOMSS     int    `json:"tso_mss_bytes"` // 0: no segmentation
	TSOPayload int    `json:"tso_payload_bytes"`
	QPN        string `json:"qpn"` // of RoCE v2, as the next five; empty: not RoCE v2
	QKey       string `json:"qkey"`
	SrcQPN     string `json:"src_qpn"`       // of the first queue
	PSN        string `json:"psn"`           // of each queue's first datagram
	Imm        string `json:"imm"`           // empty: none
	Payload    int    `json:"payload_bytes"` // as asked; 0: the size says
}
