package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

// hang is how long a run may take to end after what ends it.
const hang = 5 * time.Second

// ends waits for a run to end, which it has to within hang, and reads its report.
func ends(t *testing.T, c *exec.Cmd, r *result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Process.Signal(syscall.SIGQUIT) }) // prints every goroutine's stack
	err := c.Wait()
	if !stop() {
		t.Fatalf("pktgen had not ended after %v\n%s", hang, c.Stderr.(*output).all.String())
	}
	r.finish(t, c, err)
}

// fails demands a run that failed with a whole report, and one line that says of what.
func (r *result) fails(t *testing.T, says ...string) {
	t.Helper()
	if r.code != 1 || r.report == nil || r.report.Outcome != "failed" {
		t.Fatalf("exit status %d, report %+v\n%s", r.code, r.report, r.stderr)
	}
	for _, s := range says {
		if !strings.Contains(r.report.Error, s) || !strings.Contains(r.stderr, s) {
			t.Errorf("neither the report's error %q nor stderr may leave out %q\n%s", r.report.Error, s, r.stderr)
		}
	}
}

// launch starts a run and returns when its plan is printed.
func launch(t *testing.T, args ...string) (*exec.Cmd, *result) {
	t.Helper()
	c, r := command(t, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	started(t, c)
	return c, r
}

// runFirst is run before all other work of the machine, as far as the system lets it.
func runFirst(t *testing.T, args ...string) result {
	t.Helper()
	c, r := command(t, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // sessions share the processor, then processes (sched(7))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	autogroup := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", c.Process.Pid), []byte("-20"), 0)
	if err := errors.Join(autogroup, unix.Setpriority(unix.PRIO_PGRP, c.Process.Pid, -20)); err != nil {
		t.Log("without precedence:", err)
	}
	r.finish(t, c, c.Wait())
	return *r
}

// until waits for a condition that the kernel counts towards, at most 20 s.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// frames waits until the interface has counted that many more frames in one of both directions.
func frames(t *testing.T, ns, name string, more uint64) {
	t.Helper()
	before := nstest.Count(t, ns, name)
	until(t, fmt.Sprintf("%d frames on %s", more, name), func() bool {
		c := nstest.Count(t, ns, name).Sub(before)
		return c.TxFrames+c.RxFrames >= more
	})
}

// processes are a receiver and a sender, of one run, at the ends of a link.
type processes struct {
	a, b, nsB string // the sender's interface, the receiver's and its namespace
	rx, tx    *exec.Cmd
	got, sent *result
}

// apart starts both and returns when frames have left.
func apart(t *testing.T, txFlags ...string) processes {
	t.Helper()
	const token = "1.00000000000b10e5.0.-.1"
	var p processes
	p.a, p.b, p.nsB = nstest.Veth(t)
	p.rx, p.got = launch(t, "rx", "packet:"+p.b+"?netns="+p.nsB, "--run", token)
	p.tx, p.sent = launch(t, append([]string{"tx", "packet:" + p.a, "-r", "20kpps", "--dmac", "02:00:00:00:00:99", "--run", token}, txFlags...)...)
	frames(t, "", p.a, 1000)
	return p
}

// interruptSender ends the sender by a signal and demands its whole report.
func (p *processes) interruptSender(t *testing.T) {
	t.Helper()
	p.tx.Process.Signal(syscall.SIGINT)
	ends(t, p.tx, p.sent)
	if p.sent.code != 130 || p.sent.report == nil || p.sent.report.Outcome != "interrupted" {
		t.Fatalf("exit status %d, report %+v\n%s", p.sent.code, p.sent.report, p.sent.stderr)
	}
}

var sendWays = []string{"", "?send=mmsg", "?send=ring", "?mode=goroutine"}

// TestSentIsWhatTheKernelCountedLastWhenTheInterfaceIsDeleted: the kernel tells its counts once more when it
// deletes an interface.
func TestSentIsWhatTheKernelCountedLastWhenTheInterfaceIsDeleted(t *testing.T) {
	for _, way := range sendWays {
		for _, fault := range []string{"deleted", "peer's namespace gone"} {
			t.Run(fault+way, func(t *testing.T) {
				a, _, nsB := nstest.Veth(t)
				last := nstest.Last(t, a)
				c, r := launch(t, "tx", "packet:"+a+way, "-r", "max", "-d", "60s", "--dmac", "02:00:00:00:00:99", "-q", "2")
				frames(t, "", a, 1000)
				if fault == "deleted" {
					nstest.Delete(t, "", a)
				} else {
					nstest.Forget(t, nsB) // with it goes b, and with b its peer
				}
				ends(t, c, r)
				r.fails(t, a)
				kernel := last()
				if p := r.report; p.Sent != kernel.TxFrames || p.SentBytes != kernel.TxBytes+4*kernel.TxFrames {
					t.Errorf("sent %d (%d bytes), failed %d; the kernel counted %d (%d bytes), %d dropped\n%s", p.Sent, p.SentBytes,
						p.SendFailed, kernel.TxFrames, kernel.TxBytes, kernel.TxDropped, r.stderr)
				}
			})
		}
	}
}

// TestReceiverTellsOfItsInterface: what it had received stands in its report, to the frame.
func TestReceiverTellsOfItsInterface(t *testing.T) {
	for _, fault := range []string{"down", "deleted"} {
		t.Run(fault, func(t *testing.T) {
			p := apart(t, "-d", "60s")
			last := nstest.Last(t, p.a)
			frames(t, p.nsB, p.b, 1000)
			if fault == "down" {
				nstest.Down(t, p.nsB, p.b)
			} else {
				nstest.Delete(t, p.nsB, p.b)
			}
			ends(t, p.rx, p.got)
			p.got.fails(t, p.b)
			ends(t, p.tx, p.sent)
			p.sent.fails(t, p.a)
			var kernel uint64 // what b received, or a sent into it
			if fault == "down" {
				kernel = nstest.Count(t, p.nsB, p.b).RxFrames
			} else {
				kernel = last().TxFrames
			}
			got, sent := p.got.report, p.sent.report
			if fault == "down" && got.Received+got.RingDrops != kernel {
				t.Errorf("received %d and dropped %d in the ring of %d that the kernel counted", got.Received, got.RingDrops, kernel)
			}
			if got.Received == 0 || got.Received+got.RingDrops > kernel || sent.Sent < got.Received {
				t.Errorf("received %d, sent %d, the kernel counted %d", got.Received, sent.Sent, kernel)
			}
		})
	}
}

// TestNamespaceMayLoseItsNameDuringARun: the open socket holds it.
func TestNamespaceMayLoseItsNameDuringARun(t *testing.T) {
	a, b, nsB := nstest.Veth(t)
	c, r := launch(t, "tx", "packet:"+a, "--rx", "packet:"+b+"?netns="+nsB, "-n", "50003", "-r", "50kpps", "--drain", "5s")
	frames(t, "", a, 1000)
	nstest.Forget(t, nsB)
	r.finish(t, c, c.Wait())
	r.clean(t, 50003)
}

// stopped stops a process for two seconds and gives the time that all its threads certainly stood.
func stopped(t *testing.T, c *exec.Cmd) time.Duration {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "all threads stopped", func() bool {
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(c.Process.Pid) + "/task/*/stat")
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			if err != nil {
				continue // that thread has ended
			}
			if _, rest, _ := bytes.Cut(stat, []byte(") ")); len(rest) > 0 && rest[0] != 'T' {
				return false
			}
		}
		return len(tasks) > 0
	})
	from := time.Now()
	<-time.After(2 * time.Second)
	stood := time.Since(from)
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	return stood
}

// stall demands that the ledger has the time for which the process stood.
func (r *result) stall(t *testing.T, stood time.Duration) {
	t.Helper()
	if s := r.report.Stalls; s.Count < 1 || s.LongestNS < int64(stood) {
		t.Errorf("the process stood %v, the ledger has %+v", stood, s)
	}
}

// TestStoppedSenderOwnsUpToIt: the departures it missed are late, its ledger has the stall, and what it sent is
// what the kernel counted and what came.
func TestStoppedSenderOwnsUpToIt(t *testing.T) {
	p := apart(t, "-d", "60s", "--hello")
	stood := stopped(t, p.tx)
	frames(t, "", p.a, 1000)
	p.interruptSender(t)
	p.sent.stall(t, stood)
	sent := p.sent.report
	if due := uint64(stood.Seconds() * 20e3); sent.Late == 0 || sent.Late+64 < due {
		t.Errorf("%d late of the %d due while it stood", sent.Late, due)
	}
	p.accounted(t)
	if kernel, hellos := nstest.Count(t, "", p.a).TxFrames, p.got.report.Hello; sent.Sent+hellos != kernel {
		t.Errorf("sent %d and %d hellos, the kernel counted %d", sent.Sent, hellos, kernel)
	}
}

// TestStoppedReceiverOwnsUpToIt: what its ring could not hold meanwhile is counted, and all else has come.
func TestStoppedReceiverOwnsUpToIt(t *testing.T) {
	p := apart(t, "-d", "60s", "--hello")
	stood := stopped(t, p.rx)
	frames(t, "", p.a, 1000)
	p.interruptSender(t)
	p.accounted(t)
	p.got.stall(t, stood)
}

// accounted ends the receiver, the sender having ended, and demands that received and dropped in its ring is what was
// sent, and with the hellos what the kernel counted.
func (p *processes) accounted(t *testing.T) {
	t.Helper()
	p.rx.Process.Signal(syscall.SIGINT) // it may have ended with the last hello
	ends(t, p.rx, p.got)
	got, sent := p.got.report, p.sent.report.Sent
	if got == nil {
		t.Fatalf("no report, exit status %d\n%s", p.got.code, p.got.stderr)
	}
	if got.Received != got.Unique || got.Foreign+got.Corrupt+got.Duplicate+got.Stale > 0 {
		t.Errorf("%+v", got.Counts)
	}
	if k := nstest.Count(t, p.nsB, p.b).RxFrames; got.Received+got.Hello+got.RingDrops != k {
		t.Errorf("received %d, %d hellos, dropped %d in the ring; the kernel counted %d", got.Received, got.Hello, got.RingDrops, k)
	}
	if got.Received > sent || got.Received+got.RingDrops < sent {
		t.Errorf("%d sent, %d received and %d dropped in the ring", sent, got.Received, got.RingDrops)
	}
	if got.RingDrops > 0 && (p.got.code == 0 || !strings.Contains(got.Error, "inconclusive")) {
		t.Errorf("exit status %d, error %q with %d ring drops", p.got.code, got.Error, got.RingDrops)
	}
}

// TestKilledReceiverHarmsNoSender: what is sent is counted as ever, and no half report is left of the killed one.
func TestKilledReceiverHarmsNoSender(t *testing.T) {
	p := apart(t, "-n", "20003")
	p.rx.Process.Kill()
	ends(t, p.rx, p.got)
	p.sent.finish(t, p.tx, p.tx.Wait())
	if p.sent.code != 0 || p.sent.report == nil || p.sent.report.Outcome != "complete" {
		t.Fatalf("exit status %d\n%s", p.sent.code, p.sent.stderr)
	}
	if kernel := nstest.Count(t, "", p.a).TxFrames; p.sent.report.Sent != 20003 || kernel != 20003 {
		t.Errorf("sent %d, the kernel counted %d", p.sent.report.Sent, kernel)
	}
	if left, _ := os.ReadDir(filepath.Dir(p.got.file)); len(left) != 0 {
		t.Errorf("the killed receiver left %v", left)
	}
}

// TestKilledSenderLeavesTheReceiverWhole: what it received is in its report, to the frame.
func TestKilledSenderLeavesTheReceiverWhole(t *testing.T) {
	p := apart(t, "-d", "60s", "--hello")
	p.tx.Process.Kill()
	p.tx.Wait()
	p.rx.Process.Signal(syscall.SIGINT)
	ends(t, p.rx, p.got)
	kernel := nstest.Count(t, p.nsB, p.b).RxFrames
	if r := p.got.report; p.got.code != 130 || r == nil || r.Received+r.Hello+r.RingDrops != kernel {
		t.Fatalf("exit status %d, the kernel counted %d, report %+v\n%s", p.got.code, kernel, r, p.got.stderr)
	}
}

// TestFullDiskLosesTheReportAndSaysSo: the results are on stdout all the same, and the report of an earlier run
// stays as it was.
func TestFullDiskLosesTheReportAndSaysSo(t *testing.T) {
	nstest.Need(t) // for mounts of our own
	for _, flag := range []string{"--report", "--hdr"} {
		for _, old := range []string{"", "of an earlier run"} {
			t.Run(flag+" "+old, func(t *testing.T) {
				dir := t.TempDir()
				if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8k,nr_inodes=16"); err != nil {
					t.Fatalf("tmpfs: %v", err)
				}
				t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
				file := filepath.Join(dir, "results")
				full(t, filepath.Join(dir, "ballast"), file, old)
				c := exec.Command(pktgen, "tx", "loop:", "--rx", "loop:", "-n", "1003", "-o", "json", flag, file)
				var out, errs bytes.Buffer
				c.Stdout, c.Stderr = &out, &errs
				c.Run()
				if code := c.ProcessState.ExitCode(); code != 1 {
					t.Errorf("exit status %d, want 1: it ran and something went wrong", code)
				}
				if s := errs.String(); !strings.Contains(s, "write "+flag[2:]+" "+file) || !strings.Contains(s, "no space left on device") {
					t.Errorf("stderr: %s", s)
				}
				if !strings.Contains(out.String(), `"sent_packets": 1003`) || !strings.Contains(out.String(), `"unique_packets": 1003`) {
					t.Errorf("the results are not on stdout: %.300s", out.String())
				}
				if got, _ := os.ReadFile(file); string(got) != old {
					t.Errorf("the file holds %.100q, not %q", got, old)
				}
				left, _ := os.ReadDir(dir)
				want := 1
				if old != "" {
					want = 2
				}
				if len(left) != want {
					t.Errorf("left on the disk: %v", left)
				}
			})
		}
	}
}

// full writes what is to be there before, and then fills the file system to its last byte.
func full(t *testing.T, ballast, file, old string) {
	t.Helper()
	if old != "" {
		if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600)
	if err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("the disk is not full: %v", err)
	}
}
