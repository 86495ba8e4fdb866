package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// aResult is of a row with a contender that did well, one that missed a round and one that was not there.
func aResult() *result {
	all := []standing{
		{name: "ours", figures: series{30, 10, 20}, command: "do ours"},
		{name: "peer", figures: series{10, nan, 16}, command: "do peer", failures: []string{"round 2: it broke"}},
		{name: "absent", figures: series{nan, nan, nan}, missing: "needs luck: none"},
	}
	bars := []bar{
		{ours: "ours", peer: "peer", atLeast: 2},
		{ours: "ours", peer: "peer", atLeast: 4, aim: true},
		{ours: "ours", peer: "absent", atLeast: 1},
		{ours: "ours", atMost: 15},
		{ours: "ours", peer: "peer", within: true},
	}
	return &result{
		Started: "2026-11-29 21:00 UTC", Command: "`peers -rounds 3`", Rounds: 3, WindowNS: 1e9,
		Machine: machine{
			CPU: "a processor", CPUs: 2, UsedCPUs: []int{0, 1}, Kernel: "6.18", Go: "go1.26",
			Versions: map[string]string{"b": "2", "a": "1"}, LoadBefore: "0.00 0.01 0.02", Others: 0.5,
		},
		Rows: []rowResult{conclude("key", "A title", mpps, all, bars)},
	}
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	if err := writeMarkdown(&out, aResult()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 alternating rounds of 1s, begun 2026-11-29 21:00 UTC: `peers -rounds 3`.",
		"- a 1, b 2\n- DPDK without huge pages\n",
		"others took 50.0 % of the processors' time, the host 0.0 %: NOT QUIET",
		"### A title\n\n| contender | Mpps | range | rounds |\n|---|---|---|---|\n| ours | 20.0 | 10.0 to 30.0 | 3 |\n| peer | 13.0 | 10.0 to 16.0 | 2 |\n| absent | - | - | 0 |\n",
		"| ours / peer | 2.12 | 1.25 to 3.00 | 2 | >= 2 | met |\n",
		"| ours / peer | 2.12 | 1.25 to 3.00 | 2 | >= 4 (aim) | missed |\n",
		"| ours / absent | - | - | 0 | >= 1 | no figures |\n",
		"| ours | 20.0 | 10.0 to 30.0 | 3 | <= 15 | equal |\n",
		"| ours <= 16, the worst of the other | equal |\n",
		"- peer failed: round 2: it broke\n- absent did not run: it needs luck: none\n- [ours] `do ours`\n- [peer] `do peer`\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestFiguresInOtherUnits(t *testing.T) {
	all := []standing{{name: "ours", figures: series{6.4054, 6.4054, 9}, also: []also{{"super-frames", 64054}, {"segments", 64054. / 45}}}, {name: "none", also: []also{{"frames", 1}}}}
	r := conclude("key", "A title", gbps, all, nil)
	if want := "ours: 0.1 M super-frames/s, 4.5 M segments/s"; len(r.notes()) != 1 || r.notes()[0] != want {
		t.Errorf("%q, want %q", r.notes(), want)
	}
}

func TestTextAndJSONSayTheSame(t *testing.T) {
	var text, out bytes.Buffer
	r := aResult()
	r.Interrupted = true
	if err := writeText(&text, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"INTERRUPTED", "key: A title (Mpps)\n", "  ours       20.0  10.0 to 30.0  3\n", "  [ours] do ours\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if err := writeJSON(&out, r); err != nil {
		t.Fatal(err)
	}
	var back result
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if c := back.Rows[0].Contenders[1]; c.Median != 13 || len(c.Figures) != 2 || !back.Interrupted || back.Rows[0].Bars[0].Verdict != met {
		t.Errorf("%+v", back)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, bytes.ErrTooLarge }

func TestOutputsTellWhenTheyCannotBeWritten(t *testing.T) {
	for name, write := range outputs {
		if err := write(failingWriter{}, aResult()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
