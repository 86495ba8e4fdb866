package traffic

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bluering/bluering/cmd/internal/results"
)

// schema is the part of JSON Schema that report.schema.json uses.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Const      any                `json:"const"`
	Enum       []any              `json:"enum"`
	Pattern    string             `json:"pattern"`
	Minimum    *float64           `json:"minimum"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
	Additional any                `json:"additionalProperties"`
	Defs       map[string]*schema `json:"$defs"`
}

func loadSchema(t *testing.T) *schema {
	t.Helper()
	s := new(schema)
	if err := json.Unmarshal(SchemaJSON, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// check lists what is wrong with v.
func (s *schema) check(root *schema, at string, v any) (bad []string) {
	if s.Ref != "" {
		def := root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		if def == nil {
			return []string{at + ": no definition " + s.Ref}
		}
		return def.check(root, at, v)
	}
	if s.Const != nil && s.Const != v {
		bad = append(bad, fmt.Sprintf("%s: %v is not %v", at, v, s.Const))
	}
	if s.Enum != nil && !slices.Contains(s.Enum, v) {
		bad = append(bad, fmt.Sprintf("%s: %v is none of %v", at, v, s.Enum))
	}
	if s.Type != nil && !typeFits(s.Type, v) {
		return append(bad, fmt.Sprintf("%s: %T is no %v", at, v, s.Type))
	}
	switch v := v.(type) {
	case float64:
		if s.Minimum != nil && v < *s.Minimum {
			bad = append(bad, fmt.Sprintf("%s: %v is below %v", at, v, *s.Minimum))
		}
	case string:
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			bad = append(bad, fmt.Sprintf("%s: %q does not match %s", at, v, s.Pattern))
		}
	case []any:
		for i, x := range v {
			bad = append(bad, s.Items.check(root, fmt.Sprintf("%s[%d]", at, i), x)...)
		}
	case map[string]any:
		bad = append(bad, s.checkObject(root, at, v)...)
	}
	return bad
}

func (s *schema) checkObject(root *schema, at string, v map[string]any) (bad []string) {
	for _, key := range s.Required {
		if _, ok := v[key]; !ok {
			bad = append(bad, at+"."+key+": missing")
		}
	}
	for key, x := range v {
		if p := s.Properties[key]; p != nil {
			bad = append(bad, p.check(root, at+"."+key, x)...)
		} else if s.Additional == false {
			bad = append(bad, at+"."+key+": unknown")
		}
	}
	return bad
}

func typeFits(want, v any) bool {
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, func(w any) bool { return typeFits(w, v) })
	}
	switch v := v.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	case map[string]any:
		return want == "object"
	}
	return false
}

func asTree(t *testing.T, v any) any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// fullReport has every optional part filled.
func fullReport(t *testing.T) *Report {
	t.Helper()
	p, err := NewPlan(Config{TX: "loop:", RX: "loop:", Count: 5, Seed: 7}, loopFacts(1), loopFacts(2))
	if err != nil {
		t.Fatal(err)
	}
	r := NewReport(p)
	r.ElapsedNS = 4e9
	r.Counts = Counts{Sent: 5, SentBytes: 320, Received: 4, RecvBytes: 256, Unique: 4, Lost: 1}
	r.Latency = &Summary{Min: 100, Mean: 150.5, P50: 140, P90: 180, P99: 190, P999: 195, P9999: 199, P99999: 199, Max: 200}
	r.LatencySamples, r.LatencyOK, r.LatencyFrom, r.LatencyHDR = 4, true, "schedule", "HISTFAAA"
	r.GapErrorHDR = "HISTFAAA"
	r.FloorGapError, r.FloorLatency, r.FloorClockStepNS = &Summary{}, &Summary{}, 1
	r.GapError, r.Drops["no_peer"] = &Summary{}, 1
	r.Queues = []QueueCounts{{0, 5}}
	r.Notes, r.Error = []string{"a note"}, "an error"
	r.Finish()
	for _, s := range []string{"loss<1%", "p99.9<20us"} {
		a, err := ParseAssert(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Asserts = append(r.Asserts, a.Check(r))
	}
	return r
}

func TestReportFollowsThePublishedSchema(t *testing.T) {
	s := loadSchema(t)
	for name, r := range map[string]*Report{"full": fullReport(t), "without latency": func() *Report {
		r := fullReport(t)
		r.Latency, r.GapError, r.LatencyHDR, r.GapErrorHDR, r.RX = nil, nil, "", "", nil
		return r
	}()} {
		for _, bad := range s.check(s, name, asTree(t, r)) {
			t.Error(bad)
		}
	}
	i := &Interval{Schema: Schema, Record: "interval", Latency: &Summary{}}
	for _, bad := range s.Defs["interval"].check(s, "interval", asTree(t, i)) {
		t.Error(bad)
	}
}

func TestSchemaNoticesWhatIsWrong(t *testing.T) {
	s := loadSchema(t)
	for name, spoil := range map[string]func(m map[string]any){
		"a missing key":   func(m map[string]any) { delete(m, "sent_packets") },
		"an unknown key":  func(m map[string]any) { m["extra"] = 1.0 },
		"another type":    func(m map[string]any) { m["sent_packets"] = "5" },
		"a negative":      func(m map[string]any) { m["sent_packets"] = -1.0 },
		"another schema":  func(m map[string]any) { m["schema"] = "other/1" },
		"a wrong outcome": func(m map[string]any) { m["outcome"] = "fine" },
		"an inner key":    func(m map[string]any) { delete(m["latency_ns"].(map[string]any), "p99") },
	} {
		m := asTree(t, fullReport(t)).(map[string]any)
		spoil(m)
		if len(s.check(s, "report", m)) == 0 {
			t.Errorf("%s passes", name)
		}
	}
}

// TestSchemaListsEveryKey: what is optional in a report is in the schema too.
func TestSchemaListsEveryKey(t *testing.T) {
	s := loadSchema(t)
	for typ, def := range map[reflect.Type]*schema{
		reflect.TypeFor[Report](): s, reflect.TypeFor[Interval](): s.Defs["interval"], reflect.TypeFor[Port](): s.Defs["port"],
		reflect.TypeFor[Floor](): s.Defs["floor"], reflect.TypeFor[Host](): s.Defs["host"], reflect.TypeFor[ConfigEcho](): s.Defs["configEcho"], reflect.TypeFor[Stalls](): s.Defs["stalls"],
	} {
		var keys []string
		for _, f := range reflect.VisibleFields(typ) {
			if tag := f.Tag.Get("json"); tag != "" {
				key, _, _ := strings.Cut(tag, ",")
				keys = append(keys, key)
				if def.Properties[key] == nil {
					t.Errorf("%s: %s is not in the schema", typ.Name(), key)
				}
			}
		}
		if len(keys) != len(def.Properties) {
			t.Errorf("%s: %d keys, %d in the schema", typ.Name(), len(keys), len(def.Properties))
		}
	}
}

var unitSuffix = regexp.MustCompile(`_(ns|s|packets|bytes|pps|bps|ratio|count|index|hops)$`)

// TestEveryNumberCarriesItsUnit, in its own key or in an enclosing one.
func TestEveryNumberCarriesItsUnit(t *testing.T) {
	for path := range results.Numbers(fullReport(t)) {
		if !slices.ContainsFunc(strings.Split(path, "/"), unitSuffix.MatchString) {
			t.Errorf("%s has no unit", path)
		}
	}
}
