package main

import (
	"bytes"
	"strings"
	"testing"
)

const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: needs netns: unshare is not permitted\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`

func summarise(t *testing.T, require, input string) (*summary, string) {
	t.Helper()
	var out bytes.Buffer
	s := newSummary(require, &out)
	if err := s.read(strings.NewReader(input)); err != nil {
		t.Fatal(err)
	}
	s.finish()
	return s, out.String()
}

func TestASkipIsNamedWithItsReason(t *testing.T) {
	s, got := summarise(t, "", events)
	want := "ok  \tp\t0.1s\nskipped: needs netns: unshare is not permitted: p TestB\n1 passed, 0 failed, 1 skipped\n"
	if got != want || s.failed != 0 {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASkipOfWhatTheMachinePromisedFails(t *testing.T) {
	s, got := summarise(t, "tshark, netns", events)
	if s.failed != 1 || !strings.HasSuffix(got, "1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("failed %d, output %q", s.failed, got)
	}
	if s, _ := summarise(t, "net", events); s.failed != 0 {
		t.Error("a promise of net is not one of netns")
	}
}

func TestAFailureShowsItsOutput(t *testing.T) {
	s, got := summarise(t, "", `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`)
	if s.failed != 1 || !strings.Contains(got, "got 1, want 2") || !strings.Contains(got, "FAIL\tp") {
		t.Errorf("failed %d, output %q", s.failed, got)
	}
}

func TestAPanicShowsTheUnfinishedTest(t *testing.T) {
	s, got := summarise(t, "", `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: boom\n"}
{"Action":"fail","Package":"p"}
`)
	if s.failed != 1 || !strings.Contains(got, "panic: boom") {
		t.Errorf("output %q", got)
	}
}

func TestABuildFailureIsShown(t *testing.T) {
	s, got := summarise(t, "", `{"ImportPath":"p","Action":"build-output","Output":"p/x.go:1: undefined: y\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`)
	if s.failed != 1 || !strings.Contains(got, "undefined: y") {
		t.Errorf("failed %d, output %q", s.failed, got)
	}
}
