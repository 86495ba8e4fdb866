//go:build race

package engine

import "sync/atomic"

// owner finds out that two goroutines use a queue at the same time. Only race
// builds look.
type owner struct{ busy atomic.Uint32 }

func (o *owner) enter() bool { return o.busy.CompareAndSwap(0, 1) }

func (o *owner) leave() { o.busy.Store(0) }
