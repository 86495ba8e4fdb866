package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/pin"
)

// Every contender in this process takes part for one short round. That counts are exact is checked by the contenders
// themselves: what completed is what the devices say they did.
func TestContendersInProcessCountExactly(t *testing.T) {
	cpus := pin.CPUs()
	if len(cpus) < 2 {
		t.Skip("needs cpus: two of them are compared")
	}
	b := &bench{window: 5 * time.Millisecond, otherCPU: cpus[0], cpu: cpus[1], dir: t.TempDir()}
	ran := 0
	for _, r := range rows() {
		var own []contender
		for _, c := range r.contenders {
			if len(c.needs) == 0 && !c.root {
				own = append(own, c)
			}
		}
		r.contenders = own
		for _, s := range b.compare(t.Context(), &r, 1, io.Discard) {
			if len(s.failures) > 0 || s.figures.spread().Rounds != 1 || s.command == "" {
				t.Errorf("%s: %v of %q, %v", s.name, s.figures, s.command, s.failures)
			}
			ran++
		}
	}
	if ran < 6 {
		t.Errorf("%d contenders ran", ran)
	}
}

// A contender that lacks something, or fails again and again, is left out, and the others go on in turns.
func TestRoundsAlternateAndGoOnWithoutTheRest(t *testing.T) {
	var order []string
	good := func(name string) contender {
		return contender{name: name, run: func(context.Context, *bench) (sample, error) {
			order = append(order, name)
			return sample{packets: 1000, elapsed: time.Millisecond, command: "do " + name}, nil
		}}
	}
	bad := contender{name: "bad", run: func(context.Context, *bench) (sample, error) {
		order = append(order, "bad")
		return sample{}, nil // no packets
	}}
	lacking := contender{name: "lacking", needs: []program{{"nosuch", "nowhere"}}}
	barred := contender{name: "barred", root: true}
	r := row{key: "k", unit: mpps, contenders: []contender{good("a"), bad, lacking, barred, good("b")}}
	got := new(bench).compare(t.Context(), &r, 4, io.Discard)
	if want := "a bad b b bad a a b b a"; strings.Join(order, " ") != want {
		t.Errorf("order %v, want %s", order, want)
	}
	if s := got[0].figures.spread(); s != (spread{1, 1, 1, 4}) {
		t.Errorf("a: %+v", s)
	}
	if len(got[1].failures) != giveUp || !strings.Contains(got[1].failures[0], "no packets") {
		t.Errorf("bad: %v", got[1].failures)
	}
	if got[2].missing != "needs nosuch: nowhere" || !strings.Contains(got[3].missing, "root") {
		t.Errorf("%q, %q", got[2].missing, got[3].missing)
	}
}

func TestAContextThatEndsLeavesWhatThereIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	r := row{key: "k", unit: nanos, contenders: []contender{{name: "a", run: func(context.Context, *bench) (sample, error) {
		if runs++; runs == 3 {
			cancel()
		}
		return sample{packets: 2, elapsed: 10}, nil
	}}}}
	got := new(bench).compare(ctx, &r, 10, io.Discard)
	if s := got[0].figures.spread(); s != (spread{5, 5, 5, 2}) || runs != 3 || len(got[0].failures) != 0 {
		t.Errorf("%+v after %d runs, %v", s, runs, got[0].failures)
	}
}

func TestProfilesAreOfContendersInThisProcess(t *testing.T) {
	dir := t.TempDir()
	spin := func(context.Context, *bench) (sample, error) { return sample{packets: 1, elapsed: 1}, nil }
	r := row{key: "k", contenders: []contender{{name: "other", needs: []program{ethtool}, run: spin}, {name: "own", run: spin}}}
	if err := new(bench).profile(t.Context(), &r, dir); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Name() != "k-2.pprof" {
		t.Errorf("%v, %v", files, err)
	}
}

func TestFlagsThatAreRefusedNameTheirLimit(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-rounds 0", "-rounds 0: want 1 to 1000"},
		{"-seconds 0", "-seconds 0: want 0.01 to 60"},
		{"-seconds NaN", "-seconds NaN: want"},
		{"-seconds 61", "-seconds 61: want"},
		{"-o xml", "-o xml: want text, json or markdown"},
		{"-nice -21", "-nice -21: want -20 to 19"},
		{"-profile /dev/null", "-profile /dev/null: want a directory"},
		{"-limit 0s", "-limit 0s: want more than 0"},
		{"-only loop1,nosuch", `"nosuch"; want loop1, loop2, `},
		{"loop1", `"loop1": there are only flags`},
	} {
		if _, err := parse(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	o, err := parse([]string{"-only", "gap,loop1", "-rounds", "3"}, io.Discard)
	if err != nil || len(o.only) != 2 || o.only[0].key != "gap" || o.line != "peers -only gap,loop1 -rounds 3" {
		t.Errorf("%+v, %v", o, err)
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-h"}, &help); err != flag.ErrHelp || !strings.Contains(help.String(), "tx-stack") {
		t.Errorf("%v: %s", err, &help)
	}
}

// Bars speak of contenders that are there, and everything that contenders need has a way to get it.
func TestTheTableIsWhole(t *testing.T) {
	keys := map[string]bool{}
	for _, r := range rows() {
		if keys[r.key] || r.title == "" {
			t.Errorf("row %q is there twice, or has no title", r.key)
		}
		keys[r.key] = true
		names := map[string]bool{}
		for _, c := range r.contenders {
			if names[c.name] || c.run == nil {
				t.Errorf("%s: %q is there twice, or does nothing", r.key, c.name)
			}
			names[c.name] = true
		}
		for _, b := range r.bars {
			if !names[b.ours] || b.atMost == 0 && !names[b.peer] {
				t.Errorf("%s: a bar between %q and %q", r.key, b.ours, b.peer)
			}
		}
	}
	for _, p := range wanted(rows()) {
		if p != pktgen && len(packages[p]) == 0 {
			t.Errorf("no package has %s", p.name)
		}
	}
}

func TestGapQuantile(t *testing.T) {
	g := new(gaps)
	g[20], g[30], g[500], g[maxGap] = 99_989, 1, 9, 1
	for _, c := range []struct {
		one  uint64
		want int
	}{{10_000, 30}, {20_000, 500}, {100_000, 500}, {1_000_000, maxGap}, {2, 20}} {
		if got := g.quantile(c.one); got != c.want {
			t.Errorf("1/%d: %d, want %d", c.one, got, c.want)
		}
	}
}

func TestScaled(t *testing.T) {
	for _, c := range []struct{ ticks, of, took, want uint64 }{
		{100, 2_600_000_000, 1_000_000_000, 38}, {1, 0, 5, 0}, {1 << 60, 1 << 61, 10, 5}, {5, 5, 1 << 63, 1 << 63},
	} {
		if got := scaled(c.ticks, c.of, c.took); got != c.want {
			t.Errorf("scaled(%d, %d, %d) = %d, want %d", c.ticks, c.of, c.took, got, c.want)
		}
	}
}

// A block as the kernel lays it out (linux/if_packet.h), of two frames; the second has no successor.
func TestRingV3ReadsBlocks(t *testing.T) {
	block := make([]byte, 4096)
	put := func(at int, v uint32) { binary.NativeEndian.PutUint32(block[at:], v) }
	put(v3NumPkts, 2)
	put(v3First, 48)
	for _, f := range []struct{ at, next int }{{48, 208}, {256, 0}} {
		put(f.at+v3Next, uint32(f.next))
		put(f.at+v3Snaplen, 60)
		binary.NativeEndian.PutUint16(block[f.at+v3MAC:], 80)
		block[f.at+80+13] = 0x77
	}
	if got := v3Take(block); got != 0 {
		t.Errorf("took %d frames from a block of the kernel", got)
	}
	put(v3Status, unix.TP_STATUS_USER)
	before := v3Sum
	if got := v3Take(block); got != 2 || v3Sum-before != 2*(60+0x77) {
		t.Errorf("took %d frames, read %d", got, v3Sum-before)
	}
	if got := binary.NativeEndian.Uint32(block[v3Status:]); got != unix.TP_STATUS_KERNEL {
		t.Errorf("the block's status is %d afterwards", got)
	}
}

func TestUsageOfOthers(t *testing.T) {
	var m machine
	m.since(usage{total: 100, idle: 50, steal: 1, own: 10}, usage{total: 120, idle: 55, steal: 3, own: 21})
	// 20 s in all: 5 idle, 2 stolen, 11 our own, so 2 of somebody else.
	if m.Others != 0.1 || m.Steal != 0.1 || m.quiet() {
		t.Errorf("%+v", m)
	}
	if u, err := readUsage(); err != nil || u.total <= 0 || u.idle > u.total || u.own > u.total {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestAwaitFindsWhatAProcessSays(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	p, err := b.start(t.Context(), "/bin/sh", "-c", "echo port 1 has 11; echo port 2 has 22; read x; echo got $x; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	has := regexp.MustCompile(`has (\d+)\n`)
	end, found, err := p.await(t.Context(), 0, has, 2)
	if err != nil || len(found) != 2 || found[0][0] != "11" || found[1][0] != "22" {
		t.Fatalf("%q, %v", found, err)
	}
	fmt.Fprintln(p.in, "it")
	if _, _, err := p.await(t.Context(), end, regexp.MustCompile(`got it`), 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.await(t.Context(), end, has, 1); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("after its end: %v", err)
	}
	if _, err := p.finish(); err == nil || !strings.Contains(err.Error(), "got it") {
		t.Errorf("finish: %v", err)
	}
}

// A process that does not listen to SIGINT, and its children, end when the context does.
func TestProcessesEndWithTheContext(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	p, err := b.start(ctx, "/bin/sh", "-c", "trap '' INT; sleep 1000 & echo child $!; wait; wait")
	if err != nil {
		t.Fatal(err)
	}
	_, found, err := p.await(t.Context(), 0, regexp.MustCompile(`child (\d+)\n`), 1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-p.ended
	child, err := strconv.Atoi(found[0][0])
	if err != nil {
		t.Fatal(err)
	}
	for running(child) { // it was sent its signal before p ended
	}
}

// running is whether there is such a process; one that has ended and is not waited for does not run.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

// The whole command, interrupted in the middle of a measurement: it reports what it has and leaves nothing.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 || exec.Command("unshare", "-nmp", "--fork", "true").Run() != nil {
		t.Skip("needs root: it makes namespaces and interfaces")
	}
	if len(pin.CPUs()) < 2 {
		t.Skip("needs cpus: two of them are compared")
	}
	dir, temp := t.TempDir(), filepath.Join(t.TempDir(), "temp")
	if err := os.Mkdir(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", dir, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages := contents(t, hugePagesFile)
	c := exec.Command(filepath.Join(dir, "peers"), "-install=false", "-rounds", "1000", "-seconds", "0.01", "-only", "tx-drop", "-o", "json")
	c.Env = append(os.Environ(), "TMPDIR="+temp)
	var stdout bytes.Buffer
	c.Stdout = &stdout
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said, interrupted := "", false
	for buf := make([]byte, 4096); ; {
		n, err := stderr.Read(buf)
		if said += string(buf[:n]); !interrupted && strings.Contains(said, "tx-drop 2/1000") {
			interrupted = true
			_ = c.Process.Signal(syscall.SIGINT) // it has not been waited for
		}
		if err != nil {
			break
		}
	}
	_ = c.Wait() // its code says how it ended
	var r result
	if err := json.Unmarshal(stdout.Bytes(), &r); c.ProcessState.ExitCode() != exitInterrupted || err != nil || !r.Interrupted {
		t.Fatalf("exit code %d, report %q (%v); it said:\n%s", c.ProcessState.ExitCode(), &stdout, err, said)
	}
	if r.Rows[0].Contenders[0].Rounds == 0 {
		t.Errorf("nothing was measured: %s", said)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
	if now := contents(t, hugePagesFile); now != pages {
		t.Errorf("there are %s huge pages, there were %s", now, pages)
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
