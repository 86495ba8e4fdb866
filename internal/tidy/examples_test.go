package tidy

import (
	"slices"
	"strings"
	"testing"
)

// A queue, and what its declarations lead to.
const shown = `package ring

type (
	CQ     struct{ Rec *Record }
	Record struct{ Both }
	Both   struct{ Word Word }
	Word   uint32
	Status uint8
	Errors []Status
)

const (
	OK Status = iota
	Bad
)

func NewCQ(entries int) (*CQ, error) { return nil, nil }

func (c *CQ) Poll() Errors { return nil }

type hidden struct{}
`

// TestAnExampleShowsWhatItUses has, for bodies of one example, the types that nothing shows.
func TestAnExampleShowsWhatItUses(t *testing.T) {
	for _, c := range []struct{ name, body, missing string }{
		{"a type by its name", "var c ring.CQ; _ = c", "Record Both Word Status Errors"},
		{"the results of a function", "ring.NewCQ(1)", "Record Both Word Status Errors"},
		{"the results of a method, and what they are made of", "c, _ := ring.NewCQ(1); c.Poll()", "Record Both Word"},
		{"the type of a constant that repeats the one before", "_ = ring.Bad", "CQ Record Both Word Errors"},
		{"the types of fields", "_ = ring.CQ{Rec: nil}", "Both Word Status Errors"},
		{"an embedded type through its field", "c, _ := ring.NewCQ(1); _ = c.Rec.Word", "Status Errors"},
		{"a function of the test's own", "poll()", "Record Both Word"},
		{"a method without the type that has it", "Poll()", "CQ Record Both Word Status Errors"},
		{"nothing", "", "CQ Record Both Word Status Errors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := unshown(t, "func Example() {\n"+c.body+"\n// Output:\n}\n"); got != c.missing {
				t.Errorf("missing %q, want %q", got, c.missing)
			}
		})
	}
}

func TestOnlyAnExampleThatRunsShowsAType(t *testing.T) {
	const none = "CQ Record Both Word Status Errors"
	for name, text := range map[string]string{
		"no output":                "func Example() {\n_ = ring.OK\n}\n",
		"an output before the end": "func Example() {\n// Output:\n_ = ring.OK\n// and more\n}\n",
		"a test":                   "func TestX() {\n_ = ring.OK\n// Output:\n}\n",
		"an argument":              "func ExampleX(i int) {\n_ = ring.OK\n// Output:\n}\n",
	} {
		if got := unshown(t, text); got != none {
			t.Errorf("%s: missing %q, want %q", name, got, none)
		}
	}
	if got := unshown(t, "func ExampleX_status() {\n_ = ring.OK\n// Unordered output: x\n}\n"); strings.Contains(got, "Status") {
		t.Errorf("missing %q after an unordered output", got)
	}
}

func TestSomeTypesNeedNoExample(t *testing.T) {
	files := clean()
	for p, text := range map[string]string{
		"internal/csum/doc.go":     "// Package csum sums.\npackage csum\n\ntype Sum uint16\n",
		"cmd/x/y.go":               "package main\n\ntype Flags struct{}\n",
		"engine/simulation/doc.go": "// Package simulation is for tests.\npackage simulation\n\ntype World struct{}\n",
		"ring/cq_test.go":          "package ring\n\ntype Model struct{}\n",
	} {
		files[p] = text
	}
	for _, f := range findings(t, files) {
		if f.Rule == "example" {
			t.Error(f)
		}
	}
}

// unshown are the types of shown that the declarations of a test file do not show.
func unshown(t *testing.T, decls string) string {
	t.Helper()
	files := clean()
	files["ring/cq.go"] = shown
	files["ring/example_test.go"] = "package ring_test\n\nimport \"" + module + "/ring\"\n\n" + decls +
		"func poll() { c, _ := ring.NewCQ(1); c.Poll() }\n"
	var out []string
	for _, f := range findings(t, files) {
		if f.Rule == "example" {
			out = append(out, f.Text[strings.LastIndex(f.Text, ".")+1:])
		}
	}
	if !slices.IsSortedFunc(out, func(a, b string) int { return strings.Index(shown, "\t"+a+" ") - strings.Index(shown, "\t"+b+" ") }) {
		t.Errorf("%v are not in the order of the file", out)
	}
	return strings.Join(out, " ")
}
