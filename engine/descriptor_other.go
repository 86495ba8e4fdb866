//go:build !linux

package engine

// descriptor is what others can poll; here there is none.
type descriptor struct{}

func (d *descriptor) set() {}

func (d *descriptor) clear() {}

func (d *descriptor) fd(bool, bool, int, bool, int64) int { return -1 }

func (d *descriptor) close() {}
