package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/cmd/pktgen/traffic"
)

// floorOf is a short real floor.
func floorOf(t *testing.T) *traffic.Floor {
	t.Helper()
	f, err := traffic.SelfTest(context.Background(), 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSelfTestTellsTheFloor(t *testing.T) {
	for format, want := range map[string]string{"text": "gap error floor", "json": `"schema": "bluering.pktgen.floor/1"`} {
		w := newWorld()
		w.selfTest = traffic.SelfTest
		if code := w.execute([]string{"self-test", "-d", "5ms", "-o", format}); code != 0 {
			t.Fatalf("exit code %d: %s", code, w.err.String())
		}
		if out := w.out.String(); !strings.Contains(out, want) || format == "json" && !json.Valid([]byte(out)) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, args := range []string{"self-test -o csv", "self-test -d -1s", "self-test loop:"} {
		w := newWorld()
		if code := w.execute(strings.Fields(args)); code != 2 || w.out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q", args, code, w.out.String())
		}
	}
}

// TestFloorStampsTheReport: read from a file or measured before the run, and never by itself.
func TestFloorStampsTheReport(t *testing.T) {
	floor := floorOf(t)
	file := filepath.Join(t.TempDir(), "floor.json")
	raw, err := json.Marshal(floor)
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]bool{"": false, "--floor " + file: true, "--self-test": true} {
		w := newWorld()
		w.selfTest = func(context.Context, time.Duration) (*traffic.Floor, error) { return floor, nil }
		if code := w.execute(strings.Fields("tx loop: --rx loop: -n 10 -o json " + args)); code != 0 {
			t.Fatalf("%s: exit code %d: %s", args, code, w.err.String())
		}
		r := new(traffic.Report)
		if err := json.Unmarshal(w.out.Bytes(), r); err != nil {
			t.Fatal(err)
		}
		if has := r.FloorLatency != nil && r.FloorGapError != nil; has != want {
			t.Errorf("%q: a floor in the report: %v", args, has)
		}
	}
	floor.Host.CPU += " of another"
	if raw, err = json.Marshal(floor); err == nil {
		err = os.WriteFile(file+"2", raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--floor " + file + " --self-test": "not both", "--floor " + file + "2": "another machine's", "--floor " + file + "3": "cannot be read",
	} {
		w := newWorld()
		if code := w.execute(strings.Fields("tx loop: -n 10 " + args)); code != 2 || w.ran || !strings.Contains(w.err.String(), want) {
			t.Errorf("%s: exit code %d, ran %v, %s", args, code, w.ran, w.err.String())
		}
	}
}
