package pin

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// maxCPU bounds what a unix.CPUSet can name.
const maxCPU = len(unix.CPUSet{}) * 64

// The process's pins. A thread that is not pinned has what it had at first,
// less the processors of all pins.
var (
	mu       sync.Mutex
	pinned   = map[int]int{}         // thread id -> cpu
	original = map[int]unix.CPUSet{} // thread id -> affinity before the first pin
	fallback unix.CPUSet             // of threads that did not exist then
)

// CPUs lists the processors the calling thread may run on, in ascending order.
func CPUs() []int {
	set, err := CurrentAffinity()
	if err != nil {
		return nil
	}
	return set
}

// CurrentAffinity lists the processors the calling thread may run on.
func CurrentAffinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("pin: read affinity: %w", err)
	}
	var cpus []int
	for cpu := range maxCPU {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Pin binds the calling goroutine to cpu and keeps the other threads of the
// process off it, unless that would leave them none. unpin undoes both; call it
// once, from the same goroutine. On an error nothing is changed.
func Pin(cpu int) (unpin func(), err error) {
	if cpu < 0 || cpu >= maxCPU {
		return nil, fmt.Errorf("pin: cpu %d does not exist", cpu)
	}
	mu.Lock()
	defer mu.Unlock()
	runtime.LockOSThread()
	tid := unix.Gettid()
	if _, twice := pinned[tid]; twice {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("pin: thread is pinned to cpu %d already", pinned[tid])
	}
	var before, one unix.CPUSet
	err = unix.SchedGetaffinity(tid, &before)
	if len(pinned) == 0 && err == nil {
		fallback = before
		remember()
		// From Go 1.25 on the runtime sets GOMAXPROCS anew when the affinity of its own threads changes, and would
		// leave two pinned goroutines of a machine with two processors to take turns. Setting it, to what it is,
		// ends that.
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	}
	if err == nil {
		one.Set(cpu)
		err = unix.SchedSetaffinity(tid, &one)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("pin: bind thread to cpu %d: %w", cpu, err)
	}
	if _, known := original[tid]; !known {
		original[tid] = fallback // born after the first pin, with the mask that pin left its parent
	}
	pinned[tid] = cpu
	arrange()
	return func() { release(tid) }, nil
}

func release(tid int) {
	mu.Lock()
	defer mu.Unlock()
	delete(pinned, tid)
	arrange()
	runtime.UnlockOSThread()
}

// arrange gives every thread that is not pinned what it had, less the pinned
// processors. A thread may start meanwhile and inherit a mask its parent was
// about to lose, so passes are made until two find nothing to do. (A thread
// whose creation the kernel has begun but not listed through all of them keeps
// the old mask until the next call: it can disturb the pinned one, not more.)
// The caller holds mu.
func arrange() {
	const passes = 16 // each as a thread starts in the few microseconds of the last
	for i, quiet := 0, 0; i < passes && quiet < 2; i++ {
		if quiet++; arrangeOnce() {
			quiet = 0
		}
		runtime.Gosched()
	}
}

// arrangeOnce reports whether a mask had to be changed or a thread was new.
func arrangeOnce() (more bool) {
	eachThread(func(tid int) {
		if _, is := pinned[tid]; is {
			return
		}
		set, known := original[tid]
		if !known {
			set = fallback
			original[tid], more = set, true
		}
		less := set
		for _, cpu := range pinned {
			less.Clear(cpu)
		}
		if less.Count() == 0 {
			less = set
		}
		var now unix.CPUSet
		if unix.SchedGetaffinity(tid, &now) != nil || now == less {
			return // it has ended, or is right already
		}
		// A mask the kernel no longer accepts (hotplug) leaves the thread alone.
		more = unix.SchedSetaffinity(tid, &less) == nil || more
	})
	return more
}

// remember notes what every thread has while nothing is pinned. A thread seen
// first at a later time may have inherited a reduced mask, whatever it looks
// like, so fallback stands in for its own.
func remember() {
	clear(original)
	eachThread(func(tid int) {
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil {
			original[tid] = set
		}
	})
}

// eachThread calls f for the process's threads; for none where there is no
// /proc: a pin holds there, but others are not kept off.
func eachThread(f func(tid int)) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, e := range tasks {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			f(tid)
		}
	}
}
