package clock

import "sync/atomic"

// Clock is a source of time. Now may be called from any goroutine and never
// returns less than an earlier call did.
type Clock interface {
	Now() int64 // nanoseconds
}

// System returns the best clock of this machine: the time stamp counter where
// it is invariant, else Monotonic. Both have the same epoch. All callers of a
// process share one calibration.
func System() Clock {
	if c := sharedTSC(); c != nil {
		return c
	}
	return Monotonic()
}

// Monotonic returns the runtime's monotonic clock, CLOCK_MONOTONIC on Linux.
func Monotonic() Clock { return monotonic{} }

type monotonic struct{}

func (monotonic) Now() int64 { return nanotime() }

// Virtual is a clock that moves only when told to. The zero value stands at 0.
// Now may be called while another goroutine moves it.
type Virtual struct {
	now atomic.Int64
}

// Now returns the time last set.
func (v *Virtual) Now() int64 { return v.now.Load() }

// Advance moves the clock forward by ns. A negative step is ignored: no clock
// of this package goes backwards.
func (v *Virtual) Advance(ns int64) {
	if ns > 0 {
		v.now.Add(ns)
	}
}

// Set moves the clock to ns, or leaves it where it is if that lies in its past.
func (v *Virtual) Set(ns int64) {
	for {
		old := v.now.Load()
		if ns <= old || v.now.CompareAndSwap(old, ns) {
			return
		}
	}
}
