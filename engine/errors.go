package engine

import (
	"errors"
	"fmt"
	"syscall"
)

// Errors that a caller may want to test for. They come wrapped.
var (
	// ErrClosed: the object, or the device under it, was closed.
	ErrClosed = errors.New("engine: closed")
	// ErrOverrun: a completion found no room; the CQ and its QPs are unusable (H-11).
	ErrOverrun = errors.New("engine: completion queue overrun")
	// ErrOwner: two goroutines used a CQ or QP at the same time. Race builds only.
	ErrOwner = errors.New("engine: a queue has one owner goroutine, and a second one used it")
)

// Cause says what was wrong with a work request. It is an error, so that
// errors.Is(err, CauseFull) works.
type Cause uint8

// The causes.
const (
	CauseNone       Cause = iota
	CauseFull             // all requests of the queue are outstanding (C-06, C-07)
	CauseState            // the queue pair's state does not take requests (B-20, B-22)
	CauseOpcode           // not for this type of queue pair, or unknown (C-17, C-18)
	CauseFlags            // unknown flag, FENCE, or INLINE with TSO (C-19, C-22, D-05)
	CauseSGECount         // more pieces than the queue pair takes (C-10, C-11)
	CauseNoData           // a raw packet without pieces (C-14)
	CauseShort            // a raw packet shorter than the device's minimum (C-15)
	CauseLength           // 2^31 bytes or more (C-16)
	CauseInline           // inline data longer than max_inline (D-03)
	CauseKey              // a region that was closed, or is of another device
	CauseForeignKey       // the inline header cannot be read: memory registered elsewhere
	CauseBounds           // the inline header lies outside its region
	CauseCsum             // checksum offload, which the device does not have (C-21)
	CauseNoAH             // a datagram without address (C-30)
	CauseAHDomain         // an address of another protection domain (C-29)
	CauseTSOHeader        // shorter than 14 bytes or longer than the limit (K-01..K-03)
	CauseTSOLength        // payload longer than the device segments (K-04)
	CauseTSOMSS           // MSS 0 (K-06)
	CauseImage            // the send queue is taken by an image
	CauseClosed           // the queue pair was closed, or never made
	CauseOwner            // another goroutine is using the queue
	CauseBatch            // a batch step that the one before it forbids
	CauseSRQ              // a receive for a queue pair that takes them from an SRQ (G-01)
	numCauses
)

var causeText = [numCauses]string{
	"no error",
	"queue full",
	"wrong state",
	"wrong opcode",
	"wrong flags",
	"too many pieces",
	"a raw packet without data",
	"packet shorter than the device's minimum",
	"2^31 bytes or more",
	"inline data too long",
	"stale memory region",
	"memory of the inline header is not ours",
	"inline header outside its memory region",
	"no checksum offload",
	"no address handle",
	"address handle of another protection domain",
	"TSO header too short or too long",
	"TSO payload too long",
	"TSO without MSS",
	"send queue taken by an image",
	"queue pair closed",
	"queue used by two goroutines",
	"batch out of order",
	"the queue pair receives from an SRQ",
}

// String gives a few words.
func (c Cause) String() string {
	if c < numCauses {
		return causeText[c]
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// Error gives the words of String.
func (c Cause) Error() string { return c.String() }

// PostError says which work request was refused, why, and with what errno a
// verbs device of the same profile would have. Each queue has one that it hands
// out again and again: it is valid until the queue's next error.
type PostError struct {
	Cause Cause
	Index int // of the request; those before it are posted
	Errno syscall.Errno
	QPN   uint32
	SRQN  uint32 // of a shared receive queue, which has no QPN
	Recv  bool
}

// Error names queue, request and cause.
func (e *PostError) Error() string {
	side := "send"
	if e.Recv {
		side = "recv"
	}
	if e.SRQN != 0 {
		return fmt.Sprintf("engine: SRQ 0x%x: request %d: %v (%v)", e.SRQN, e.Index, e.Cause, e.Errno)
	}
	return fmt.Sprintf("engine: QP 0x%x: %s request %d: %v (%v)", e.QPN, side, e.Index, e.Cause, e.Errno)
}

// Is makes errors.Is work for the cause.
func (e *PostError) Is(target error) bool {
	c, ok := target.(Cause)
	return ok && c == e.Cause || target == ErrClosed && e.Cause == CauseClosed ||
		target == ErrOwner && e.Cause == CauseOwner
}

// Unwrap gives the errno.
func (e *PostError) Unwrap() error { return e.Errno }

// closedPost is the answer of a queue pair that was never made.
var closedPost = &PostError{Cause: CauseClosed, Errno: syscall.EINVAL}

// errno gives what a device of the profile returns from ibv_post_send, or from
// ibv_wr_complete when batch is set (D1..D3; libmlx5 and kernel rxe differ).
func (c Cause) errno(p Profile, batch bool) syscall.Errno {
	switch c {
	case CauseFull:
		return syscall.ENOMEM
	case CauseState:
		if p == ProfileMLX5 && !batch {
			return syscall.ENOMEM
		}
	case CauseSGECount, CauseInline:
		if p == ProfileMLX5 {
			return syscall.ENOMEM
		}
		if p == ProfileRXE && batch {
			return syscall.ENOSPC
		}
	case CauseOwner, CauseImage:
		return syscall.EBUSY
	}
	return syscall.EINVAL
}

// recvErrno gives what ibv_post_recv and ibv_post_srq_recv return.
func (c Cause) recvErrno() syscall.Errno {
	if c == CauseFull {
		return syscall.ENOMEM
	}
	return syscall.EINVAL
}

// CompletionError is a failed completion as an error.
type CompletionError Completion

// Error names queue, request and status.
func (e *CompletionError) Error() string {
	return fmt.Sprintf("engine: QP 0x%x: request 0x%x: %v (vendor 0x%02x)", e.QPN, e.WRID, e.Status, e.Vendor)
}

// Unwrap gives the status, so that errors.Is(err, StatusLocProt) works.
func (e *CompletionError) Unwrap() error { return e.Status }

func closed(what string) error { return fmt.Errorf("%w: %s: %w", ErrClosed, what, syscall.EINVAL) }
