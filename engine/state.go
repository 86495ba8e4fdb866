package engine

import (
	"fmt"
	"syscall"
)

// QPState is the state of a queue pair, with the numbers of verbs.
type QPState uint8

// The states.
const (
	StateReset QPState = 0
	StateInit  QPState = 1
	StateRTR   QPState = 2 // receives
	StateRTS   QPState = 3 // receives and sends
	StateSQD   QPState = 4 // receives; sends are queued
	StateSQE   QPState = 5 // receives; sends are flushed
	StateErr   QPState = 6 // everything is flushed
	numStates          = 7
)

// String gives the name of verbs.
func (s QPState) String() string {
	names := [numStates]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if s < numStates {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// AttrMask says which attributes Modify sets, with the numbers of
// ibv_qp_attr_mask.
type AttrMask uint32

// The bits that the queue pairs here know.
const (
	AttrState     AttrMask = 1 << 0 // implied
	AttrCurState  AttrMask = 1 << 1
	AttrSQDNotify AttrMask = 1 << 2
	AttrPKeyIndex AttrMask = 1 << 4
	AttrPort      AttrMask = 1 << 5
	AttrQKey      AttrMask = 1 << 6
	AttrAV        AttrMask = 1 << 7 // RC and UC only, as the next
	AttrPathMTU   AttrMask = 1 << 8
	AttrRQPSN     AttrMask = 1 << 12
	AttrSQPSN     AttrMask = 1 << 16
	AttrRateLimit AttrMask = 1 << 25

	attrStandard AttrMask = 1<<21 - 1 | AttrRateLimit // IBV_QP_STATE .. IBV_QP_DEST_QPN
)

const privilegedQKey = 1 << 31

// edge is one transition: for each type of queue pair what must be given and
// what may.
type edge struct {
	legal           bool
	udMust, udMay   AttrMask
	rawMust, rawMay AttrMask
}

const curQKey = AttrCurState | AttrQKey

// edges is the table of transitions, as the kernel's ib_modify_qp_is_ok has it.
var edges = [numStates][numStates]edge{
	StateReset: {
		StateReset: {legal: true},
		StateInit:  {true, AttrPKeyIndex | AttrPort | AttrQKey, 0, AttrPort, 0},
	},
	StateInit: {
		StateReset: {legal: true},
		StateErr:   {legal: true},
		StateInit:  {true, 0, AttrPKeyIndex | AttrPort | AttrQKey, 0, 0},
		StateRTR:   {true, 0, AttrPKeyIndex | AttrQKey, 0, 0},
	},
	StateRTR: {
		StateReset: {legal: true},
		StateErr:   {legal: true},
		StateRTS:   {true, AttrSQPSN, curQKey, 0, AttrRateLimit},
	},
	StateRTS: {
		StateReset: {legal: true},
		StateErr:   {legal: true},
		StateRTS:   {true, 0, curQKey, 0, AttrRateLimit},
		StateSQD:   {true, 0, AttrSQDNotify, 0, AttrSQDNotify},
	},
	StateSQD: {
		StateReset: {legal: true},
		StateErr:   {legal: true},
		StateRTS:   {true, 0, curQKey, 0, 0},
		StateSQD:   {true, 0, AttrPKeyIndex | AttrQKey, 0, 0},
	},
	StateSQE: {
		StateReset: {legal: true},
		StateErr:   {legal: true},
		StateRTS:   {true, 0, curQKey, 0, 0},
	},
	StateErr: {
		StateReset: {legal: true},
		StateErr:   {legal: true},
	},
}

// checkModify judges a transition without making it. A standard bit that the
// edge does not list is EINVAL, any other bit EOPNOTSUPP (B-05, B-09).
func (c *Caps) checkModify(t QPType, from, to QPState, a *QPAttr, mask AttrMask) error {
	mask &^= AttrState
	bad := func(errno syscall.Errno, format string, args ...any) error {
		return fmt.Errorf("%v to %v: %s: %w", from, to, fmt.Sprintf(format, args...), errno)
	}
	if mask&^attrStandard != 0 {
		return bad(syscall.EOPNOTSUPP, "unknown attributes 0x%x", uint32(mask&^attrStandard))
	}
	if to > StateErr {
		return bad(syscall.EINVAL, "no such state")
	}
	if mask&AttrCurState != 0 {
		if a.CurState < StateRTR || a.CurState > StateSQE {
			return bad(syscall.EINVAL, "%v cannot be given as the current state", a.CurState)
		}
		if a.CurState != from {
			return bad(syscall.EINVAL, "the current state is not %v", a.CurState)
		}
	}
	e := &edges[from][to]
	must, may := e.rawMust, e.rawMay
	if t == UD {
		must, may = e.udMust, e.udMay
	}
	switch {
	case !e.legal:
		return bad(syscall.EINVAL, "not a transition")
	case mask&must != must:
		return bad(syscall.EINVAL, "attributes 0x%x are missing", uint32(must&^mask))
	case mask&^(must|may) != 0:
		return bad(syscall.EINVAL, "attributes 0x%x are not allowed for %v", uint32(mask&^(must|may)), t)
	case mask&AttrPort != 0 && a.Port != 1:
		return bad(syscall.EINVAL, "port %d, the device has port 1 only", a.Port)
	case mask&AttrPKeyIndex != 0 && a.PKeyIndex != 0:
		return bad(syscall.EINVAL, "P_Key index %d, the table has one entry", a.PKeyIndex)
	case mask&AttrQKey != 0 && a.QKey&privilegedQKey != 0 && !c.PrivilegedQKey:
		return bad(syscall.EPERM, "Q_Key 0x%x has the privileged bit", a.QKey)
	case mask&AttrSQPSN != 0 && a.SQPSN > 0xffffff:
		return bad(syscall.EINVAL, "PSN 0x%x has more than 24 bits", a.SQPSN)
	case mask&AttrRateLimit != 0:
		if err := a.Rate.check(c); err != nil {
			return fmt.Errorf("%v to %v: %w", from, to, err)
		}
	}
	return nil
}
