package results_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine/latency"
)

// A command names the numbers of its report that conditions may use. Slips are
// found before the run.
func ExampleKeys() {
	type report struct {
		Lost  uint64            `json:"lost_datagrams"`
		RTT   *results.Summary  `json:"rtt_ns"`
		Drops map[string]uint64 `json:"drops"`
	}
	keys := &results.Keys{Short: map[string]string{"loss": "lost_datagrams"}, Open: "drops", Report: report{RTT: &results.Summary{}}, Wants: "loss==0"}
	r := latency.New(latency.Options{})
	r.Record(1500)
	snapshot := r.Swap()
	got := report{Lost: 1, RTT: results.Summarize(&snapshot)}
	for _, s := range []string{"loss==0", "rtt_ns.max<1ms", "drops.no_peer==0"} {
		var a results.Assert
		a, err := keys.Parse(s)
		var verdict results.AssertResult = a.Judge(got)
		fmt.Println(results.AssertText(verdict), err)
	}
	_, err := keys.Parse("rtt_ns.max<5")
	var usage *results.UsageError
	fmt.Println(errors.As(err, &usage), err)
	// Output:
	// FAIL loss==0  (lost_datagrams is 1) <nil>
	// PASS rtt_ns.max<1ms  (rtt_ns.max is 1500) <nil>
	// PASS drops.no_peer==0  (drops.no_peer is 0) <nil>
	// true assert "rtt_ns.max<5": rtt_ns.max is a time: its unit is ns, us, ms or s; use loss==0
}

// A file appears whole or not at all.
func ExampleOpenOutput() {
	dir, err := os.MkdirTemp("", "results")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run.json")
	var f *results.OutputFile
	f, err = results.OpenOutput("report", path)
	_, missing := os.Stat(path)
	fmt.Println(err, errors.Is(missing, os.ErrNotExist))
	err = f.Commit([]byte("{}\n"))
	content, _ := os.ReadFile(path)
	fmt.Printf("%v %q\n", err, content)
	format, err := results.ParseFormat("JSON")
	var json results.Format = format
	fmt.Println(json, err)
	// Output:
	// <nil> true
	// <nil> "{}\n"
	// json <nil>
}

// Numbers have units, in and out.
func ExampleParseRate() {
	var r results.Rate
	r, err := results.ParseRate("200kpps")
	var unit results.RateUnit = r.Unit()
	fmt.Println(r, unit == results.RatePPS, err)
	n, _ := results.ParseCount("count", "1.5m", 1<<30)
	d, _ := results.ParseDuration("duration", "2")
	_, few := results.ParseInt("ttl", "0", 1, 255)
	fmt.Println(few)
	fmt.Println(results.Group(n), d, results.NS(1234567), results.PPS(1e6))
	var h results.Host = results.ThisHost()
	fmt.Println(h.CPUs > 0, results.Stalls{}.Count)
	// Output:
	// 200kpps true <nil>
	// ttl "0": must be more than 0; use 1 to 255
	// 1,500,000 2s 1.23ms 1.000000 Mpps
	// true 0
}
