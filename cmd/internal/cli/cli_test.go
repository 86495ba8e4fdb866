package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/results"
)

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		run  error
		code int
		line string
	}{
		{"success is silent", []string{"go"}, nil, OK, ""},
		{"a failure is 1", []string{"go"}, errors.New("the cable is out"), Failed, "tool: the cable is out\n"},
		{"a code is kept", []string{"go"}, &CodeError{AssertFails, errors.New("x")}, AssertFails, "tool: x\n"},
		{"a told code is silent", []string{"go"}, &CodeError{RateMissed, nil}, RateMissed, ""},
		{"a request that cannot be met is usage", []string{"go"}, fmt.Errorf("x: %w", results.Usage("size", "7", "use 8")), Usage, "tool: x: size \"7\": use 8\n"},
		{"a code is kept over that", []string{"go"}, &CodeError{Failed, results.Usage("size", "7", "use 8")}, Failed, "tool: size \"7\": use 8\n"},
		{"lines are folded", []string{"go"}, errors.New("a\n\tb"), Failed, "tool: a b\n"},
		{"an unknown flag is usage", []string{"go", "--nope"}, nil, Usage, "tool: unknown flag: --nope; see tool go --help\n"},
		{"help for an unknown command is usage", []string{"help", "went"}, nil, Usage, "tool: unknown command \"went\" for \"tool\"; see tool --help\n"},
		{"an unknown shell is usage", []string{"completion", "went"}, nil, Usage, "tool: unknown command \"went\" for \"tool completion\"; see tool completion --help\n"},
		{"an unknown command is usage", []string{"went"}, nil, Usage, "tool: unknown command \"went\" for \"tool\"; see tool --help\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := &cobra.Command{Use: "tool"}
			root.AddCommand(&cobra.Command{Use: "go", RunE: func(*cobra.Command, []string) error { return tc.run }})
			var out, stderr bytes.Buffer
			if code := Execute(root, tc.args, Streams{Out: &out, Err: &stderr}); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if stderr.String() != tc.line || out.Len() > 0 {
				t.Errorf("stderr %q, stdout %q, want stderr %q", stderr.String(), out.String(), tc.line)
			}
		})
	}
}

func TestVerdictsComeInOrder(t *testing.T) {
	failed, missed, interrupt := errors.New("failed"), errors.New("missed"), &SignalError{syscall.SIGINT}
	yes, no := results.AssertResult{Pass: true}, results.AssertResult{Expr: "loss==0"}
	for _, tc := range []struct {
		code    int
		failed  error
		caught  *SignalError
		asserts []results.AssertResult
		missed  error
	}{
		{Failed, failed, interrupt, []results.AssertResult{no}, missed},
		{130, nil, interrupt, []results.AssertResult{no}, missed},
		{AssertFails, nil, nil, []results.AssertResult{yes, no}, missed},
		{RateMissed, nil, nil, []results.AssertResult{yes}, missed},
	} {
		var ce *CodeError
		if err := Verdict(tc.failed, tc.caught, tc.asserts, tc.missed); !errors.As(err, &ce) || ce.Code != tc.code {
			t.Errorf("%v, want code %d", err, tc.code)
		}
	}
	if err := Verdict(nil, nil, []results.AssertResult{yes}, nil); err != nil {
		t.Error(err)
	}
}

func TestEachText(t *testing.T) {
	for line, want := range map[string]string{
		"":              "a=1 <nil>",
		"--b=2":         "a=1 b=2 <nil>",
		"-b 2":          "a=1 b=2 <nil>",
		"--b=x":         "a=1 b: x",
		"--b= --c=3":    "a=1 b: is empty; give a value or leave --b out",
		"--b=\t":        "a=1 b: is empty; give a value or leave --b out",
		"--c=3 -b 2":    "a=1 b=2 c=3 <nil>",
		"--c=3 --a=old": "a=old c=3 <nil>",
	} {
		c := &cobra.Command{}
		f := NewTexts(c)
		f.Add("a", "", "1", "")
		f.Add("b", "b", "", "")
		f.Add("c", "", "", "")
		if err := c.ParseFlags(strings.Split(line, " ")); err != nil {
			t.Fatal(err)
		}
		got := ""
		err := f.Each(func(name, text string) error {
			if text == "x" {
				return errors.New(name + ": " + text)
			}
			got += name + "=" + text + " "
			return nil
		})
		if got += fmt.Sprint(err); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
		if given := strings.Contains(line, "--c"); f.Given("c") != given || f.Of("none") != "" {
			t.Errorf("%q: --c given: %v; a flag there is not: %q", line, !given, f.Of("none"))
		}
	}
}

func TestFirstSignalCancelsSecondEnds(t *testing.T) {
	ended := make(chan int, 1)
	s := newSignals(context.Background(), func(code int) { ended <- code })
	defer s.Stop()
	if s.Caught() != nil {
		t.Fatal("a signal before any came")
	}
	s.ch <- syscall.SIGTERM
	<-s.Done()
	if e := s.Caught(); e == nil || e.Code() != 143 || !strings.Contains(e.Error(), "terminated") {
		t.Fatalf("caught %v", e)
	}
	s.ch <- syscall.SIGINT
	if code := <-ended; code != 130 {
		t.Errorf("second signal ends with %d, want 130", code)
	}
}

// TestClosedOutputCancelsAndNeverKills: every write to a closed pipe signals.
func TestClosedOutputCancelsAndNeverKills(t *testing.T) {
	ended := make(chan int, 1)
	s := newSignals(context.Background(), func(code int) { ended <- code })
	defer s.Stop()
	for range 3 {
		s.ch <- syscall.SIGPIPE
	}
	<-s.Done()
	s.ch <- syscall.SIGINT // the first that a user sends
	if e := s.Caught(); e == nil || e.Code() != 141 {
		t.Errorf("caught %v", e)
	}
	s.ch <- syscall.SIGINT
	if code := <-ended; code != 130 {
		t.Errorf("ends with %d, want 130", code)
	}
}
