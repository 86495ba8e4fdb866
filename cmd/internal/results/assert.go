package results

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Keys are the numbers of a command's report that conditions may name: all keys
// of it, objects by a dot, and short names for some.
type Keys struct {
	Short   map[string]string // from a short name to a key, levels joined by "/"
	Percent map[string]string // short names that mean another key when compared with a percentage
	Abs     string            // the key that is judged by its absolute value
	Open    string            // the object of counts by names that are not known before: what is not in it is 0
	Report  any               // a report that has every optional part
	Wants   string            // examples for the error of a slip
}

// Assert is a condition on one number of a report, such as loss==0, p99.9<20us,
// rate_err<0.5% or latency_ns.max<=1ms.
type Assert struct {
	text  string
	key   string // path in the report: keys joined by "/"
	op    string
	value float64 // in the key's unit
	keys  *Keys
}

// String is the condition as written.
func (a Assert) String() string { return a.text }

// Key is the number's path in the report, levels joined by "/".
func (a Assert) Key() string { return a.key }

// Parse reads a condition and checks that its name and unit exist, so that a
// slip is found before the run and not after it.
func (k *Keys) Parse(s string) (Assert, error) {
	bad := func(why string) (Assert, error) {
		return Assert{}, Usage("assert", s, why+"; use "+k.Wants)
	}
	at := strings.IndexAny(s, "<>=!")
	if at < 1 {
		return bad("no comparison")
	}
	a := Assert{text: strings.TrimSpace(s), keys: k}
	name, rest := strings.TrimSpace(s[:at]), s[at:]
	for _, op := range []string{"<=", ">=", "==", "!=", "<", ">"} {
		if after, ok := strings.CutPrefix(rest, op); ok {
			a.op, rest = op, strings.ToLower(strings.TrimSpace(after))
			break
		}
	}
	if a.op == "" {
		return bad("the comparison is one of == != < <= > >=")
	}
	num, unit := splitNumber(rest)
	val, ok := parseDecimal(num)
	if !ok {
		return bad("no number to compare with")
	}
	a.value, _ = val.Float64()
	if a.key = k.Short[strings.ToLower(name)]; a.key == "" {
		a.key = k.find(name)
	}
	if other := k.Percent[strings.ToLower(name)]; other != "" && unit == "%" {
		a.key = other
	}
	if a.key == "" {
		return bad(fmt.Sprintf("the report has no number %q: short names are %s", name, strings.Join(SortedKeys(k.Short), " ")))
	}
	scale, why := unitScale(a.key, unit, a.value)
	if why != "" {
		return bad(strings.Replace(why, "/", ".", 1))
	}
	a.value *= scale
	return a, nil
}

// find finds a key of the report written as a.b, where b may itself have dots
// (latency_ns.p99.9, drops_packets.no_peer).
func (k *Keys) find(name string) string {
	outer, inner, found := strings.Cut(name, ".")
	if found && outer == k.Open && inner != "" {
		return outer + "/" + inner
	}
	keys := Numbers(k.Report)
	for _, key := range []string{name, outer + "/" + inner} {
		if _, ok := keys[key]; ok {
			return key
		}
	}
	return ""
}

// unitScale turns a written unit into the key's own.
func unitScale(key, unit string, value float64) (scale float64, why string) {
	switch {
	case strings.Contains(key, "_ns"):
		for i, u := range []string{"ns", "us", "ms", "s"} {
			if unit == u {
				return math.Pow(1000, float64(i)), ""
			}
		}
		if unit == "" && value == 0 {
			return 1, ""
		}
		return 0, fmt.Sprintf("%s is a time: its unit is ns, us, ms or s", key)
	case strings.HasSuffix(key, "_ratio"):
		if unit == "%" {
			return 0.01, ""
		}
	case strings.HasSuffix(key, "_pps"), strings.HasSuffix(key, "_bps"):
		scale, rest := cutScale(unit)
		if rest == key[len(key)-3:] {
			return float64(scale), ""
		}
		if unit != "" {
			return 0, fmt.Sprintf("%s is counted in %s", key, key[len(key)-3:])
		}
	case unit != "":
		if scale, rest := cutScale(unit); rest == "" {
			return float64(scale), ""
		}
	}
	if unit != "" {
		return 0, fmt.Sprintf("unit %q does not fit %s", unit, key)
	}
	return 1, ""
}

// Unknown is the verdict on a number that the run did not yield: it fails.
func (a Assert) Unknown() AssertResult {
	return AssertResult{Expr: a.text, Key: strings.Replace(a.key, "/", ".", 1)}
}

// Judge judges the report. A number that the run did not yield fails.
func (a Assert) Judge(report any) AssertResult {
	out := a.Unknown()
	v, ok := Numbers(report)[a.key]
	if !ok {
		if !strings.HasPrefix(a.key, a.keys.Open+"/") {
			return out
		}
		v = 0
	}
	out.Value = &v
	if a.key == a.keys.Abs {
		v = math.Abs(v)
	}
	switch a.op {
	case "<":
		out.Pass = v < a.value
	case "<=":
		out.Pass = v <= a.value
	case ">":
		out.Pass = v > a.value
	case ">=":
		out.Pass = v >= a.value
	case "==":
		out.Pass = v == a.value
	default:
		out.Pass = v != a.value
	}
	return out
}

// Numbers flattens a report: every number by its path, levels joined by "/".
func Numbers(r any) map[string]float64 {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil
	}
	out := make(map[string]float64)
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for k, v := range m {
			switch v := v.(type) {
			case float64:
				out[prefix+k] = v
			case map[string]any:
				walk(prefix+k+"/", v)
			}
		}
	}
	walk("", tree)
	return out
}
