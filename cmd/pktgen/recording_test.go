package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bluering/bluering/cmd/internal/cli"
)

// TestOneFileForTwoOutputsIsRefused, however it is written.
func TestOneFileForTwoOutputsIsRefused(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(there, filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	sub := filepath.Join(dir, "sub")
	if err := os.Symlink(dir, sub); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"--report DIR/a --hdr DIR/a", "--report DIR/a --tap DIR/a", "--hdr DIR/a --tap DIR/./a", "--report DIR/sub/a --hdr DIR/a",
		"--report DIR/there --hdr DIR/link", "--report DIR/there --floor DIR/there", "--report DIR/there --rx pcap:DIR/there",
	} {
		args = strings.ReplaceAll(args, "DIR", dir)
		code, out, stderr := pktgen(append([]string{"tx", "loop:", "-n", "1", "-i", "0"}, strings.Fields(args)...)...)
		if code != cli.Usage || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "use two files") {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
	for _, args := range []string{"--report /dev/null --hdr /dev/null --tap /dev/null", "--report DIR/r --hdr DIR/h --tap DIR/t"} {
		args = strings.ReplaceAll(args, "DIR", dir)
		if code, _, stderr := pktgen(append([]string{"tx", "loop:", "--rx", "loop:", "-n", "1", "-i", "0"}, strings.Fields(args)...)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}

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
		{"tx pcap:" + filepath.Join(t.TempDir(), "y.pcap") + " --rx pcap:" + path + " -n 1 -o none -i 0 --drain 1ms", 0, ""},
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
