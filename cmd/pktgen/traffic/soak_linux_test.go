package traffic

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// footprint is what the process needs: live heap after a collection, and resident memory.
type footprint struct{ heap, resident int64 }

func footprintNow(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	if err != nil {
		t.Fatalf("/proc/self/statm: %v", err)
	}
	return footprint{int64(m.HeapAlloc), pages * int64(os.Getpagesize())}
}

// TestSoak: memory does not grow with the packets sent, and their counts are exact to the end. The short form has
// two million packets, make soak has PACKETS.
func TestSoak(t *testing.T) {
	count := uint64(soakCount)
	if s := os.Getenv("BLUERING_SOAK_PACKETS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n < soakCount {
			t.Fatalf("BLUERING_SOAK_PACKETS=%q: want a number from %d", s, soakCount)
		}
		count = n
	}
	// Room for the runtime's own ways: its heap is collected late, and given back later.
	const heapRoom, residentRoom = 1 << 20, soakRoom
	config := Config{Rate: rateOf(t, "max"), Queues: 2, Flows: 1000}
	config.Count = soakCount / 4
	checkClean(t, loopRun(t, config), config.Count) // what is allocated once, is now
	before := footprintNow(t)
	var during []footprint
	config.Count = count
	config.Interval = 100 * time.Millisecond
	config.OnInterval = func(*Interval) { during = append(during, footprintNow(t)) }
	r := loopRun(t, config)
	checkClean(t, r, count)
	if r.LatencySamples != count {
		t.Errorf("%d latency samples of %d packets", r.LatencySamples, count)
	}
	r = nil
	after := footprintNow(t)
	t.Logf("%d packets, %d readings: heap %d KiB, then %d; resident %d KiB, then %d", count, len(during),
		before.heap>>10, after.heap>>10, before.resident>>10, after.resident>>10)
	if after.heap > before.heap+heapRoom || after.resident > before.resident+residentRoom {
		t.Errorf("the run left more than it found: heap and resident bytes %+v, before %+v", after, before)
	}
	if len(during) > 2 { // within the run, from its first reading on
		first, last := during[0], during[len(during)-1]
		t.Logf("within the run: heap %d KiB, then %d; resident %d KiB, then %d", first.heap>>10, last.heap>>10, first.resident>>10, last.resident>>10)
		if last.heap > first.heap+heapRoom || last.resident > first.resident+residentRoom {
			t.Errorf("memory grew during the run: %+v, then %+v", first, last)
		}
	}
}
