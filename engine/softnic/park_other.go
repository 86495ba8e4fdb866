//go:build !linux

package softnic

import "time"

// bell is an event that one side rings and the other waits for. Elsewhere than on Linux a wire's descriptor
// cannot be waited for together with it, so waits are short when there is one.
type bell struct{ rung chan struct{} }

const pollEvery = 200 * time.Microsecond

func newBell() (bell, error) { return bell{make(chan struct{}, 1)}, nil }

func (b bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

func (b bell) close() {}

func (b bell) wait(fd int, out bool, timeout time.Duration) error {
	if fd >= 0 || out {
		timeout = min(timeout, pollEvery)
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-b.rung:
	case <-t.C:
	}
	return nil
}
