package main

import (
	"fmt"
	"math"
	"strings"
)

// result is all that a run found out.
type result struct {
	Started     string      `json:"started"`
	Command     string      `json:"command"`
	Rounds      int         `json:"rounds"`
	WindowNS    int64       `json:"window_ns"`
	Interrupted bool        `json:"interrupted,omitempty"`
	Machine     machine     `json:"machine"`
	Rows        []rowResult `json:"rows"`
}

// machine is where it was, and how busy that was with other things.
type machine struct {
	CPU        string            `json:"cpu"`
	CPUs       int               `json:"cpus"`
	UsedCPUs   []int             `json:"used_cpus"`
	Kernel     string            `json:"kernel"`
	Go         string            `json:"go"`
	Versions   map[string]string `json:"versions"`
	HugePages  bool              `json:"huge_pages"`
	LoadBefore string            `json:"load_before"`
	// Others is the share of all processor time during the run that neither this program, nor what it started, nor
	// idling took; Steal is what the host took. Both include what the kernel does for this run outside its processes.
	Others float64 `json:"others_ratio"`
	Steal  float64 `json:"steal_ratio"`
}

// quiet is whether figures may be quoted: nothing else took more than a twentieth of the machine.
func (m *machine) quiet() bool { return m.Others+m.Steal < 0.05 }

type rowResult struct {
	Key        string            `json:"key"`
	Title      string            `json:"title"`
	Unit       string            `json:"unit"`
	Contenders []contenderResult `json:"contenders"`
	Bars       []barResult       `json:"bars"`
}

type contenderResult struct {
	Name string `json:"name"`
	spread
	Figures  []float64 `json:"figures"`
	Command  string    `json:"command,omitempty"`
	Also     string    `json:"also,omitempty"` // the median in other units
	Missing  string    `json:"missing,omitempty"`
	Failures []string  `json:"failures,omitempty"`
}

type barResult struct {
	What string `json:"what"`
	Bar  string `json:"bar"`
	Aim  bool   `json:"aim,omitempty"`
	spread
	Verdict verdict `json:"verdict"`
}

// bar is what ours should reach. Exactly one of atLeast, atMost, times and within is set.
type bar struct {
	ours, peer string  // names of contenders; peer is empty for a limit on the figure itself
	atLeast    float64 // ours / peer
	atMost     float64 // ours
	times      float64 // ours / peer at most
	within     bool    // ours no worse than the worst of the peer's rounds
	aim        bool    // hoped for, not demanded
}

// judge applies the bar to the figures by contenders' names.
func (b *bar) judge(figures map[string]series) barResult {
	ours, peer := figures[b.ours], figures[b.peer]
	r := barResult{What: b.ours + " / " + b.peer, Aim: b.aim, spread: ours.over(peer).spread()}
	switch {
	case b.atMost > 0:
		r.What, r.Bar = b.ours, fmt.Sprintf("<= %.4g", b.atMost)
		r.spread = ours.spread()
		r.Verdict = r.atMost(b.atMost)
	case b.times > 0:
		r.Bar = fmt.Sprintf("<= %.4g", b.times)
		r.Verdict = r.atMost(b.times)
	case b.within:
		r.Bar = fmt.Sprintf("ours <= %.4g, the worst of the other", peer.spread().Max)
		r.Verdict = ours.spread().within(peer.spread())
	default:
		r.Bar = fmt.Sprintf(">= %.4g", b.atLeast)
		r.Verdict = r.atLeast(b.atLeast)
	}
	return r
}

// also is another unit of a figure in GB/s: what comes once in so many bytes.
type also struct {
	what  string
	bytes float64
}

// inUnits is a figure in GB/s as millions a second of each.
func inUnits(gbps float64, units []also) string {
	var out []string
	for _, u := range units {
		out = append(out, fmt.Sprintf("%.3g M %s/s", gbps*1e3/u.bytes, u.what))
	}
	return strings.Join(out, ", ")
}

// standing is how a contender did in the rounds so far.
type standing struct {
	name     string
	figures  series
	command  string
	failures []string
	missing  string // why it did not take part
	also     []also
	inARow   int // failures
}

// conclude turns a row's standings into what is said of it.
func conclude(key, title string, u unit, all []standing, bars []bar) rowResult {
	r := rowResult{Key: key, Title: title, Unit: string(u), Bars: []barResult{}}
	figures := map[string]series{}
	for _, s := range all {
		figures[s.name] = s.figures
		c := contenderResult{Name: s.name, spread: s.figures.spread(), Figures: []float64{}, Command: s.command, Missing: s.missing, Failures: s.failures}
		if c.Rounds > 0 {
			c.Also = inUnits(c.Median, s.also)
		}
		for _, f := range s.figures {
			if !math.IsNaN(f) {
				c.Figures = append(c.Figures, f)
			}
		}
		r.Contenders = append(r.Contenders, c)
	}
	for i := range bars {
		r.Bars = append(r.Bars, bars[i].judge(figures))
	}
	return r
}

// unit says what a sample's figure is.
type unit string

const (
	mpps  unit = "Mpps"       // more is better
	gbps  unit = "GB/s"       // more is better
	nanos unit = "ns"         // for each packet or record, less is better
	gapNS unit = "ns, p99.99" // less is better
	midNS unit = "ns, p50"    // less is better
)
