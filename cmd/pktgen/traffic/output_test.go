package traffic

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/bluering/bluering/cmd/internal/results"
)

func TestCSVHeaderIsStable(t *testing.T) {
	const want = "record,elapsed_ns,sent_packets,sent_bytes,received_packets,received_bytes,unique_packets,lost_packets," +
		"duplicate_packets,reordered_packets,stale_packets,foreign_packets,corrupt_packets,fragment_packets,hello_packets," +
		"late_packets,early_packets,unsent_packets,send_failed_packets,rx_ring_drops_packets,tx_pps,tx_l2_bps,tx_l1_bps," +
		"rx_pps,rx_l2_bps,rx_l1_bps,latency_samples_count,latency_ns.min,latency_ns.mean,latency_ns.p50,latency_ns.p90," +
		"latency_ns.p99,latency_ns.p99.9,latency_ns.p99.99,latency_ns.p99.999,latency_ns.max,bad_icrc_packets,weak_icrc_packets"
	if got := strings.Join(csvHeader, ","); got != want {
		t.Errorf("header changed:\n got %s\nwant %s", got, want)
	}
}

// TestCSVCellsAreTheReportsNumbers compares each cell with the key of its column.
func TestCSVCellsAreTheReportsNumbers(t *testing.T) {
	r := fullReport(t)
	r.Counts = Counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
	var out bytes.Buffer
	w := NewWriter(&out, results.CSV)
	w.Interval(&Interval{Record: "interval"})
	if err := w.Report(r); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v; want header, interval, report", len(rows), err)
	}
	values := results.Numbers(r)
	for i, key := range rows[0] {
		if key == "record" {
			continue
		}
		v, ok := values[strings.Replace(key, ".", "/", 1)]
		var cell float64
		fmt.Sscan(rows[2][i], &cell)
		if !ok || cell < v-0.001 || cell > v+0.001 {
			t.Errorf("%s: cell %s, report %v (known: %v)", key, rows[2][i], v, ok)
		}
	}
}

func TestJSONLIntervalKeysAreReportKeys(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, results.JSONL)
	w.Interval(&Interval{Schema: Schema, Record: "interval", Latency: &Summary{}})
	if err := w.Report(fullReport(t)); err != nil {
		t.Fatal(err)
	}
	var records []map[string]any
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		records = append(records, m)
	}
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	for key := range records[0] {
		if _, ok := records[1][key]; !ok && key != "start_ns" {
			t.Errorf("interval key %s is not one of the report", key)
		}
	}
}

func TestTextNamesTheDeviceAndTheVerdicts(t *testing.T) {
	text := reportText(fullReport(t))
	for _, want := range []string{"backend=loop (not a wire)", "seed=0x7", "sent 5  received 4  lost 1 (20 %)", "p99.9 195ns", "FAIL loss<1%", "PASS p99.9<20us", "dropped 1: no_peer", "note: a note"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestProgressRefreshesOnATerminalOnly(t *testing.T) {
	for terminal, want := range map[bool]int{true: 2, false: 3} {
		var out bytes.Buffer
		p := NewProgress(&out, terminal)
		p.Show(&Interval{ElapsedNS: 1e9})
		p.Show(&Interval{ElapsedNS: 2e9, Latency: &Summary{P50: 1820}})
		p.End()
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("terminal %v: %d lines, want %d:\n%q", terminal, got, want, out.String())
		}
		if strings.Contains(out.String(), "\r") != terminal {
			t.Errorf("terminal %v: %q", terminal, out.String())
		}
	}
}

func TestOpenErrorsNameTheRemedy(t *testing.T) {
	for uri, want := range map[string]string{
		"packet:eth9":          "raw sockets need a privilege; run as root, or once: sudo setcap cap_net_raw+ep ",
		"packet:eth9?netns=x":  "netns= needs CAP_SYS_ADMIN beside CAP_NET_RAW; run as root, or once: sudo setcap cap_net_raw,cap_sys_admin+ep ",
		"xdp:eth9":             "AF_XDP needs privileges; run as root, or once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep ",
		"xdp:eth9?queue=0":     "AF_XDP needs privileges; run as root, or once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep ",
		"xdp:eth9?netns=x&a=1": "netns= needs CAP_SYS_ADMIN beside CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF; run as root, or once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_sys_admin+ep ",
	} {
		err := openError(uri, fmt.Errorf("wire: socket: %w", syscall.EPERM))
		var u *UsageError
		if !errors.As(err, &u) || !errors.Is(err, syscall.EPERM) {
			t.Fatalf("%#v", err)
		}
		if got := err.Error(); !strings.HasPrefix(got, fmt.Sprintf("port %q: %s", uri, want)) {
			t.Error(got)
		}
	}
}

func TestOpenErrorsAreInPlainWords(t *testing.T) {
	for _, tc := range []struct{ uri, cause, want string }{
		{"foo:", `device: unknown scheme "foo" in "foo:"; known: loop:`, `unknown scheme "foo" in "foo:"; known: loop:`},
		{"loop:?x=1", `device: bad parameter: wire: bad parameter: loop: knows no parameter "x"; it knows speed`, `knows no parameter "x"; it knows speed`},
		{"packet:eth9", "device: packet:eth9: wire: packet:eth9: wire: interface is down", "the interface is down; set it up first: sudo ip link set eth9 up"},
	} {
		if got, want := openError(tc.uri, errors.New(tc.cause)).Error(), fmt.Sprintf("port %q: %s", tc.uri, tc.want); got != want {
			t.Errorf("%s:\n got %s\nwant %s", tc.uri, got, want)
		}
	}
}

func TestHDRLogIsOneLineOfAKnownFormat(t *testing.T) {
	got := string(HDRLog(fullReport(t)))
	for _, want := range []string{"#[Histogram log format version 1.3]\n", "#[StartTime: ", "0.000,4.000,0.000,HISTFAAA\n", "loop (not a wire)"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
