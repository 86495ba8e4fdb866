// Command testrun runs go test and says at the end what was skipped and why.
//
//	testrun [-log FILE] [arguments of go test]
//
// It prints go test's own line for each package and the whole output of each failing test. A test that needs
// something of the machine skips with a reason that names it, as in "needs netns: unshare is not permitted". Where the
// environment variable BLUERING_REQUIRE lists that name (comma separated), the machine has promised it, and the skip
// counts as a failure. The last line is the sum: "N passed, N failed, N skipped".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv("BLUERING_REQUIRE"), os.Stdout))
}

// run is main without the process: it returns the exit code.
func run(args []string, require string, out io.Writer) int {
	var log io.Writer = io.Discard
	if len(args) >= 2 && args[0] == "-log" {
		f, err := os.Create(args[1])
		if err != nil {
			fmt.Fprintln(out, "testrun:", err)
			return 2
		}
		defer f.Close()
		log, args = f, args[2:]
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(out, "testrun:", err)
		return 2
	}
	s := newSummary(require, out)
	if err := s.read(io.TeeReader(stdout, log)); err != nil {
		fmt.Fprintln(out, "testrun:", err)
		s.failed++
	}
	if err := cmd.Wait(); err != nil && s.failed == 0 {
		fmt.Fprintln(out, "testrun: go test:", err)
		s.failed++
	}
	s.finish()
	if s.failed > 0 {
		return 1
	}
	return 0
}

// event is one line of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	FailedBuild string
}

// summary follows the events of one run.
type summary struct {
	out      io.Writer
	required []string
	passed   int
	failed   int
	failedIn map[string]bool             // packages with a failed test
	output   map[string]*strings.Builder // test -> what it printed so far
	reasons  []string                    // in the order of their first skip
	skips    map[string][]string         // reason -> tests
	forced   []string                    // skips of what the machine promised
}

func newSummary(require string, out io.Writer) *summary {
	s := &summary{out: out, failedIn: map[string]bool{}, output: map[string]*strings.Builder{}, skips: map[string][]string{}}
	for name := range strings.SplitSeq(require, ",") {
		if name = strings.TrimSpace(name); name != "" {
			s.required = append(s.required, name)
		}
	}
	return s
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(s.out, "%s", line) // not an event: go test itself speaks
			} else {
				s.event(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) event(e event) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		if e.Test == "" {
			s.packageOutput(e.Output)
			return
		}
		if s.output[name] == nil {
			s.output[name] = &strings.Builder{}
		}
		s.output[name].WriteString(e.Output)
	case "pass", "fail", "skip":
		s.verdict(e, name)
		delete(s.output, name)
	}
}

// packageOutput prints what a package says as a whole, less the lines that carry nothing.
func (s *summary) packageOutput(line string) {
	if line == "PASS\n" || strings.HasSuffix(line, "[no test files]\n") || strings.HasPrefix(line, "testing: warning: no tests to run") {
		return
	}
	fmt.Fprint(s.out, line)
}

func (s *summary) verdict(e event, name string) {
	if e.Test == "" {
		if e.Action == "fail" {
			s.printUnfinished(e.Package)
			if !s.failedIn[e.Package] {
				s.failed++ // it did not build, or ended early
			}
		}
		return
	}
	text := ""
	if b := s.output[name]; b != nil {
		text = b.String()
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		s.failedIn[e.Package] = true
		fmt.Fprint(s.out, text)
	case "skip":
		reason := skipReason(text)
		if _, seen := s.skips[reason]; !seen {
			s.reasons = append(s.reasons, reason)
		}
		s.skips[reason] = append(s.skips[reason], strings.TrimPrefix(name, "github.com/bluering/bluering/"))
		if s.promised(reason) {
			s.failed++
			s.forced = append(s.forced, name+": "+reason)
		}
	}
}

// printUnfinished prints what the tests of a package said that ended without a verdict, as in a panic or a time-out.
func (s *summary) printUnfinished(pkg string) {
	for name, b := range s.output {
		if strings.HasPrefix(name, pkg+" ") {
			fmt.Fprint(s.out, b.String())
			delete(s.output, name)
		}
	}
}

// skipReason takes the reason out of a skipped test's output, less go test's own lines and the source position.
func skipReason(output string) string {
	reason := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if file, rest, ok := strings.Cut(line, ": "); ok && strings.Contains(file, ".go:") {
			line = rest
		}
		reason = line // the last one: t.Skip prints just before it ends the test
	}
	if reason == "" {
		return "no reason given"
	}
	return reason
}

// promised reports whether the reason names something in BLUERING_REQUIRE.
func (s *summary) promised(reason string) bool {
	words := strings.FieldsFunc(strings.ToLower(reason), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
	for _, name := range s.required {
		for _, word := range words {
			if word == strings.ToLower(name) {
				return true
			}
		}
	}
	return false
}

// finish prints the skips by reason, then the sum.
func (s *summary) finish() {
	skipped := 0
	for _, reason := range s.reasons {
		tests := s.skips[reason]
		skipped += len(tests)
		shown := tests
		if len(shown) > 3 {
			shown = shown[:3]
		}
		more := ""
		if len(tests) > len(shown) {
			more = fmt.Sprintf(" and %d more", len(tests)-len(shown))
		}
		fmt.Fprintf(s.out, "skipped: %s: %s%s\n", reason, strings.Join(shown, ", "), more)
	}
	for _, f := range s.forced {
		fmt.Fprintf(s.out, "FAIL: skipped what BLUERING_REQUIRE promises: %s\n", f)
	}
	skipped -= len(s.forced) // those count as failed
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, skipped)
}
