package traffic

import (
	"fmt"

	"github.com/bluering/bluering/raw"
)

// template is the plan's frames as a raw template: the same fields in the same
// orders, so that frame k of queue q there is FrameAt(k).
func (p *Plan) template(q int) (*raw.Template, error) {
	frame, err := buildFrame(p.configOf(q, 0), p.Frames[0].SizeBytes, 0, false)
	if err != nil {
		return nil, err
	}
	t, err := p.newTemplate(frame.Bytes)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	for _, v := range p.Frames[0].Vary {
		f, err := v.field()
		if err != nil {
			return nil, err
		}
		if err := t.Vary(f); err != nil {
			return nil, fmt.Errorf("--%s %s: %w", v.Name, v.Values, err)
		}
	}
	if len(p.Frames) > 1 && p.Config.TSO.MSS == 0 {
		sizes := raw.Sizes{Random: p.mix.random, Seed: p.mix.seed}
		for _, i := range p.mix.period {
			sizes.List = append(sizes.List, len(p.Frames[i].Bytes))
		}
		if err := t.SetSizes(sizes); err != nil {
			return nil, fmt.Errorf("--size %s: %w", p.Config.Size, err)
		}
	}
	return t, nil
}

// newTemplate is the template of a frame of the plan's kind.
func (p *Plan) newTemplate(frame []byte) (*raw.Template, error) {
	t, err := raw.NewTemplateBytes(frame)
	if err == nil && p.Config.Proto == RoCEUD {
		err = t.SetRoCE()
	}
	return t, err
}

var fieldKinds = map[string]raw.Kind{
	"dmac": raw.DstMAC, "smac": raw.SrcMAC, "vlan": raw.VLANID, "flow-label": raw.FlowLabel,
	"src": raw.SrcAddr, "dst": raw.DstAddr, "sport": raw.SrcPort, "dport": raw.DstPort, "qpn": raw.DestQPN,
}

// field is v as a raw field.
func (v *Vary) field() (raw.Field, error) {
	kind, ok := fieldKinds[v.Name]
	if !ok {
		return raw.Field{}, fmt.Errorf("field %q cannot vary", v.Name)
	}
	f := raw.Field{Kind: kind, Seed: v.Seed, ByFlow: v.ByFlow, Lo: raw.Value{Hi: v.Values.first.hi, Lo: v.Values.first.lo}}
	switch v.Values.mode {
	case Dec:
		f.Order = raw.Dec
	case Rand:
		f.Order = raw.Random
	}
	for _, x := range v.Values.list {
		f.List = append(f.List, raw.Value{Hi: x.hi, Lo: x.lo})
	}
	if f.List == nil {
		last := v.Values.first.add(v.Values.count - 1)
		f.Hi = raw.Value{Hi: last.hi, Lo: last.lo}
	}
	return f, nil
}
