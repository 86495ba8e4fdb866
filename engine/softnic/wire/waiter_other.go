//go:build !linux

package wire

// waiter does not exist here: whoever waits does so by time.
type waiter struct{}

func (*waiter) open() error              { return nil }
func (*waiter) arm(int, bool, int64) int { return -1 }
func (*waiter) disarm()                  {}
func (*waiter) close()                   {}
