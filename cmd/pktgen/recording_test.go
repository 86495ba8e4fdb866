package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bluering/bluering/cmd/internal/cli"
)

// TestRecordingsAreNotEmptied: only a sender whose run is accepted writes.
func TestRecordingsAreNotEmptied(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.pcap")
	if code, _, stderr := pktgen("tx", "pcap:"+path, "-n", "7", "-i", "0", "-o", "none"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		code int
		has  string
	}{
		{"probe pcap:" + path, 0, ""},
		{"plan -o none pcap:" + path, 0, ""},
		{"rx pcap:" + path + " --no-tag -n 7 -o none -i 0 --assert received==7", 0, ""},
		{"tx loop: --rx pcap:" + path + " -n 1 -o none -i 0 --drain 1ms", 0, ""},
		{"tx pcap:" + path + " -r 50%", cli.Usage, "speed"},
		{"tx pcap:" + path + " --rx loop:?spede=1", cli.Usage, "spede"},
		{"tx pcap:" + path + " --run nonsense", cli.Usage, "1.RUNID.START.BOOT.FLOWS"},
		{"tx pcap:" + path + "?mode=read -n 1", cli.Usage, "without mode=read"},
		{"rx pcap:" + path + "?mode=write --no-tag -n 1", cli.Usage, "without mode=write"},
		{"rx pcap:" + path + ".none --no-tag -n 1", cli.Usage, "no such file"},
		{"tx loop: --rx pcap:" + path + ".none -n 1", cli.Usage, "no such file"},
		{"tx pcap:" + path + ".none -r 50%", cli.Usage, "speed"},
		{"probe pcap:" + path + ".none", 0, ""},
	} {
		code, _, stderr := pktgen(strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(stderr, tc.has) || code != 0 && strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, want %d with %q: %s", tc.args, code, tc.code, tc.has, stderr)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Fatalf("%s: the recording has changed: %d bytes, were %d (%v)", tc.args, len(got), len(want), err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
