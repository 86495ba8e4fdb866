package traffic

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/internal/proto"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// PlanSchema names the layout of PlanRecord.
const PlanSchema = "bluering.pktgen.plan/1"

// PlanRecord is a plan for programs: what `plan -o json` prints.
type PlanRecord struct {
	Schema      string       `json:"schema"`
	Record      string       `json:"record"` // "plan"
	Seed        string       `json:"seed"`
	TX          *Port        `json:"tx,omitempty"`
	RX          *Port        `json:"rx,omitempty"`
	Config      ConfigEcho   `json:"config"`
	RateAsked   float64      `json:"rate_asked_pps"`
	RateNum     uint64       `json:"rate_numerator_packets"`
	RateDen     uint64       `json:"rate_denominator_s"`
	MeanSize    float64      `json:"mean_size_bytes"`
	CeilingPPS  float64      `json:"ceiling_pps"` // what the link holds at the mean size; 0: unknown
	Flows       int          `json:"flows_count"`
	DepartureNS []int64      `json:"departures_ns"`
	Frames      []PlanFrame  `json:"frames"`
	Varying     []PlanField  `json:"varying"`
	Sizes       []PlanWeight `json:"sizes"`
}

// PlanFrame is one frame of a plan, without its FCS.
type PlanFrame struct {
	Index uint64 `json:"frame_index"`
	Queue int    `json:"queue_index"`
	Flow  uint32 `json:"flow_index"`
	Size  int    `json:"size_bytes"`
	Hex   string `json:"hex"`
}

// PlanField is one varying field of a plan.
type PlanField struct {
	Name   string `json:"name"`
	Values string `json:"values"`
	Count  uint64 `json:"values_count"`
	By     string `json:"by"` // "flow" or "packet"
}

// PlanWeight is one size of a mix.
type PlanWeight struct {
	Size   int     `json:"size_bytes"`
	Share  float64 `json:"share_ratio"`
	MaxPPS float64 `json:"ceiling_pps"` // of the link at this size alone; 0: unknown
}

// shownFrames is how many frames of a run a plan shows; shownSizes how many
// sizes of a mix.
const (
	shownFrames = 4
	shownSizes  = 16
)

// Record makes the plan's record.
func (p *Plan) Record() (*PlanRecord, error) {
	c := &p.Config
	r := &PlanRecord{
		Schema: PlanSchema, Record: "plan", Seed: fmt.Sprintf("%#x", c.Seed), Config: p.echo(),
		RateNum: p.Rate.Num, RateDen: p.Rate.Den, Flows: p.Flows,
		DepartureNS: []int64{}, Varying: []PlanField{}, Frames: []PlanFrame{},
	}
	r.MeanSize, _ = c.Size.Mean().Float64()
	if p.TX != nil {
		r.TX = &p.TX.Port
		r.CeilingPPS = p.ceiling(r.MeanSize)
	}
	if p.RX != nil {
		r.RX = &p.RX.Port
	}
	if p.Rate.Num > 0 {
		r.RateAsked = float64(p.Rate.Num) / float64(p.Rate.Den)
	}
	n := uint64(shownFrames)
	if p.Count > 0 {
		n = min(n, p.Count)
	}
	for k := range n {
		raw, err := p.FrameAt(k)
		if err != nil {
			return nil, err
		}
		q := int(k % uint64(p.Queues))
		r.Frames = append(r.Frames, PlanFrame{Index: k, Queue: q, Flow: p.FlowAt(q, k/uint64(p.Queues)), Size: len(raw) + fcsBytes, Hex: hex.EncodeToString(raw)})
		if p.Rate.Num > 0 {
			r.DepartureNS = append(r.DepartureNS, p.departure(k))
		}
	}
	if len(p.Frames) > 0 {
		for _, v := range p.Frames[0].Vary {
			r.Varying = append(r.Varying, PlanField{Name: v.Name, Values: v.Values.String(), Count: v.Values.Len(), By: map[bool]string{true: "flow", false: "packet"}[v.ByFlow]})
		}
	}
	r.Sizes = p.weights()
	return r, nil
}

// departure is frame k's schedule time from the run's start.
func (p *Plan) departure(k uint64) int64 {
	hi, lo := bits.Mul64(k*1e9, p.Rate.Den)
	q, _ := bits.Div64(hi, lo, p.Rate.Num)
	return int64(q)
}

// ceiling is what the port's speed holds of frames of that size; 0: unknown.
func (p *Plan) ceiling(size float64) float64 {
	return float64(p.TX.SpeedBPS) / 8 / (size + results.L1OverheadBytes)
}

func (p *Plan) weights() []PlanWeight {
	counts := make([]int, len(p.Frames))
	for _, i := range p.mix.period {
		if int(i) < len(counts) {
			counts[i]++
		}
	}
	var out []PlanWeight
	for i, f := range p.Frames {
		out = append(out, PlanWeight{Size: f.SizeBytes, Share: float64(counts[i]) / float64(len(p.mix.period)), MaxPPS: p.ceiling(float64(f.SizeBytes))})
	}
	return out
}

// Show is the plan for a reader: summary, sizes and ceilings, schedule, and
// frames as bytes and decoded.
func (p *Plan) Show() (string, error) {
	r, err := p.Record()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(PlanText(p))
	for i, w := range r.Sizes {
		if i == shownSizes {
			fmt.Fprintf(&b, "  ... and %d more sizes\n", len(r.Sizes)-i)
			break
		}
		fmt.Fprintf(&b, "size %d B: %s %% of frames", w.Size, results.Trim(w.Share*100, 3))
		if w.MaxPPS > 0 {
			fmt.Fprintf(&b, ", ceiling of the link %s", results.PPS(w.MaxPPS))
		}
		b.WriteString("\n")
	}
	if r.RateAsked > r.CeilingPPS && r.CeilingPPS > 0 {
		fmt.Fprintf(&b, "ceiling: the link holds %s at the mean size of %s B, less than asked\n", results.PPS(r.CeilingPPS), results.Trim(r.MeanSize, 2))
	}
	fmt.Fprintf(&b, "flows: %s, queues: %d\n", results.Group(uint64(p.Flows)), p.Queues)
	for _, v := range r.Varying {
		fmt.Fprintf(&b, "varies: %s %s, %s values, by %s\n", v.Name, v.Values, results.Group(v.Count), v.By)
	}
	if p.Rate.Num > 0 {
		fmt.Fprintf(&b, "schedule: frame k leaves at floor(k x 1e9 x %d / %d) ns: %s ...\n", p.Rate.Den, p.Rate.Num, strings.Trim(fmt.Sprint(r.DepartureNS), "[]"))
	} else {
		fmt.Fprintf(&b, "schedule: as fast as the port takes frames\n")
	}
	for _, f := range r.Frames {
		raw, _ := hex.DecodeString(f.Hex)
		fmt.Fprintf(&b, "\nframe %d: queue %d flow %d, %d B with FCS%s\n%s%s", f.Index, f.Queue, f.Flow, f.Size, p.tagText(), dump(raw), decoded(raw))
	}
	b.WriteString("\nnothing was sent\n")
	return b.String(), nil
}

// dump is hex.Dump with repeated lines left out, as hexdump -C does.
func dump(raw []byte) string {
	const width = 16
	lines := strings.SplitAfter(hex.Dump(raw), "\n")
	var b strings.Builder
	for i, line := range lines {
		at := i * width
		same := i > 0 && at+width < len(raw) && string(raw[at:at+width]) == string(raw[at-width:at])
		if !same {
			b.WriteString(line)
		} else if !strings.HasSuffix(b.String(), "*\n") {
			b.WriteString("*\n")
		}
	}
	return b.String()
}

func (p *Plan) tagText() string {
	if p.Tagged {
		return fmt.Sprintf(", the last %d bytes of its payload hold the tag (shown empty)", tagBytes)
	}
	return ""
}

// decoded is gopacket's reading of a frame, a line a layer.
func decoded(raw []byte) string {
	var b strings.Builder
	packet := gopacket.NewPacket(raw, layers.LayerTypeEthernet, gopacket.Default)
	for _, l := range packet.Layers() {
		if l.LayerType() == gopacket.LayerTypePayload {
			fmt.Fprintf(&b, "  Payload %d bytes\n", len(l.LayerContents()))
			continue
		}
		fmt.Fprintf(&b, "  %s\n", strings.Join(strings.Fields(gopacket.LayerString(l)), " "))
	}
	if h := new(proto.Headers); proto.Parse(raw, h) && h.DstPort == proto.RoCEPort {
		var u proto.UD
		if _, ok := proto.ParseUD(raw[h.PayloadOff:h.PayloadEnd], &u); ok {
			fmt.Fprintf(&b, "  RoCE v2 {Opcode=%#x DestQP=%#x SrcQP=%#x PSN=%d Q_Key=%#x P_Key=%#x Imm=%#x Pad=%d ICRC=%#08x}\n",
				u.Opcode, u.DestQP, u.SrcQP, u.PSN, u.QKey, u.PKey, u.Imm, u.Pad, proto.LoadICRC(raw[h.PayloadEnd-proto.ICRCBytes:]))
		}
	}
	if e := packet.ErrorLayer(); e != nil {
		fmt.Fprintf(&b, "  not decodable: %v\n", e.Error())
	}
	return b.String()
}
