package engine

import "sync/atomic"

// QP stub for the first commit.
type QP struct {
	dev    *Device
	qpn    uint32
	closed atomic.Bool
}

func (q *QP) usable() error { return q.dev.usable() }

// CQ stub.
type CQ struct{}
