package engine

import (
	"fmt"
	"runtime"
)

// Idle says what a Poller does when there is nothing to do.
type Idle uint8

// The idle policies.
const (
	IdleSpin  Idle = iota // look again at once
	IdleYield             // let other goroutines run, after some looks
	IdlePark              // sleep on the wire, after some looks
)

// String gives the policy's name.
func (i Idle) String() string {
	switch i {
	case IdleSpin:
		return "spin"
	case IdleYield:
		return "yield"
	case IdlePark:
		return "park"
	}
	return fmt.Sprintf("idle policy %d", uint8(i))
}

const (
	defaultSpins = 1000
	// maxSpins bounds how long even IdleSpin goes without the scheduler, so that
	// a stop of the world or a goroutine on the same thread waits a millisecond
	// at most, at about 50 ns a look.
	maxSpins = 1 << 14
)

// idler counts fruitless looks and acts on them.
type idler struct {
	policy Idle
	spins  int // looks before the policy acts
	waitNS int64
	fruit  int // fruitless looks in a row
	parks  uint64
	yields uint64
}

func (i *idler) busy() { i.fruit = 0 }

// idle is called after each fruitless look. It tells whether it gave the
// processor away, so that the time spent is not booked as a stall.
func (i *idler) idle(d *Device) (away bool, err error) {
	i.fruit++
	if i.fruit < i.spins {
		return false, nil
	}
	switch i.policy {
	case IdlePark:
		i.fruit = 0
		i.parks++
		return true, d.Wait(i.waitNS)
	case IdleSpin:
		i.fruit = 0
	case IdleYield: // yields at every look from now on
	}
	i.yields++
	runtime.Gosched()
	return true, nil
}
