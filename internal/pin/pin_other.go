//go:build !linux

package pin

import (
	"fmt"
	"runtime"
)

// CPUs lists the processors the process may run on.
func CPUs() []int {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

// CurrentAffinity lists the processors the calling thread may run on.
func CurrentAffinity() ([]int, error) { return CPUs(), nil }

// Pin cannot bind threads here.
func Pin(cpu int) (unpin func(), err error) {
	return nil, fmt.Errorf("%w: bind thread to cpu %d", ErrUnsupported, cpu)
}
