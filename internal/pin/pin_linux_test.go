package pin

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// masks reads the affinity of every thread of the process.
func masks(t *testing.T) map[int]unix.CPUSet {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	out := map[int]unix.CPUSet{}
	for _, e := range tasks {
		tid, _ := strconv.Atoi(e.Name())
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil {
			out[tid] = set
		}
	}
	return out
}

// checkMasks wants ok of every thread's affinity. A thread that was being
// created during the last call is arranged by the next one, so it makes more.
func checkMasks(t *testing.T, what string, ok func(tid int, set unix.CPUSet) bool) {
	t.Helper()
	bad := 0
	for range 100 {
		bad = 0
		for tid, set := range masks(t) {
			if !ok(tid, set) {
				bad = tid
			}
		}
		if bad == 0 {
			return
		}
		mu.Lock()
		arrange()
		mu.Unlock()
	}
	t.Errorf("thread %d: %s", bad, what)
}

func TestPinKeepsOthersOffAndUnpinRestores(t *testing.T) {
	cpus := CPUs()
	if len(cpus) < 2 {
		t.Skip("one processor: nobody can be kept off")
	}
	before := masks(t)
	unpin, err := Pin(cpus[1])
	if err != nil {
		t.Fatal(err)
	}
	self := unix.Gettid()
	if got := CPUs(); !slices.Equal(got, cpus[1:2]) {
		t.Errorf("pinned to %v, want %v", got, cpus[1:2])
	}
	checkMasks(t, "may still run on the pinned cpu", func(tid int, set unix.CPUSet) bool {
		// A thread that had this cpu alone before, for whatever reason, cannot
		// be kept off it.
		return tid == self || !set.IsSet(cpus[1]) || set.Count() == 1 && set == before[tid]
	})
	if _, err := Pin(cpus[0]); err == nil {
		t.Error("a second pin of one thread is accepted")
	}
	unpin()
	checkMasks(t, "affinity not restored", func(tid int, set unix.CPUSet) bool {
		want, known := before[tid]
		return set.IsSet(cpus[1]) && (!known || set == want)
	})
}

// Two goroutines pin and unpin in an order that is not last in, first out.
func TestPinsOfTwoGoroutines(t *testing.T) {
	cpus := CPUs()
	if len(cpus) < 2 {
		t.Skip("one processor")
	}
	runtime.LockOSThread() // so that the goroutines below are on other threads
	defer runtime.UnlockOSThread()
	first, second := make(chan bool), make(chan bool)
	done := make(chan error, 2)
	for i, stop := range []chan bool{first, second} {
		go func() {
			unpin, err := Pin(cpus[i])
			done <- err
			if err != nil {
				return
			}
			<-stop
			unpin()
			done <- nil
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	first <- true
	<-done
	checkMasks(t, "may run on the cpu that is still pinned", func(_ int, set unix.CPUSet) bool {
		return set.Count() == 1 || !set.IsSet(cpus[1])
	})
	second <- true
	<-done
	checkMasks(t, "affinity not restored", func(_ int, set unix.CPUSet) bool {
		return set.IsSet(cpus[0]) && set.IsSet(cpus[1])
	})
}

func TestPinRefusesWhatDoesNotExist(t *testing.T) {
	before, _ := CurrentAffinity()
	for _, cpu := range []int{-1, maxCPU, maxCPU - 1} {
		if unpin, err := Pin(cpu); err == nil {
			unpin()
			t.Errorf("cpu %d is accepted", cpu)
		}
	}
	if after, _ := CurrentAffinity(); !slices.Equal(before, after) {
		t.Errorf("affinity %v after refusals, want %v", after, before)
	}
}

// The runtime looks at the process's affinity once a second (sysmon, Go 1.25 and later).
func TestPinLeavesTheRuntimeItsProcessors(t *testing.T) {
	cpus := CPUs()
	if len(cpus) < 2 {
		t.Skip("one processor")
	}
	before := runtime.GOMAXPROCS(0)
	if before < 2 {
		t.Skip("GOMAXPROCS is 1")
	}
	defer runtime.GOMAXPROCS(before)
	runtime.SetDefaultGOMAXPROCS() // as in a program: testing sets it by hand
	before = runtime.GOMAXPROCS(0)
	unpin, err := Pin(cpus[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unpin()
	for start := time.Now(); time.Since(start) < 2500*time.Millisecond; runtime.Gosched() {
		if now := runtime.GOMAXPROCS(0); now != before {
			t.Fatalf("GOMAXPROCS is %d with one thread pinned, was %d", now, before)
		}
	}
}
