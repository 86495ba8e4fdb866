package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Signals is a context that the first SIGINT or SIGTERM cancels. The second
// ends the process at once. A reader of the output that has gone away cancels,
// too, but never kills: the rest of the output says what there is to say.
type Signals struct {
	context.Context
	cancel context.CancelCauseFunc
	ch     chan os.Signal
	done   chan struct{}
	once   sync.Once
	exit   func(int)
}

// SignalError is the cause of a context that a signal cancelled.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "stopped by " + e.Signal.String() }

// Unwrap makes it a cancellation for those who ask.
func (e *SignalError) Unwrap() error { return context.Canceled }

// Code is the exit code that tells of the signal.
func (e *SignalError) Code() int { return 128 + int(e.Signal) }

// CatchSignals starts to listen; Stop ends it.
func CatchSignals(parent context.Context) *Signals {
	s := newSignals(parent, os.Exit)
	signal.Notify(s.ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	return s
}

// CatchSignalsBesideSockets is CatchSignals for a command that writes to sockets:
// a peer that closes one must not look like a reader of the output that has gone
// away. Writing to such a reader is an error then, like to any other file; it
// stays one after Stop.
func CatchSignalsBesideSockets(parent context.Context) *Signals {
	s := newSignals(parent, os.Exit)
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(s.ch, syscall.SIGINT, syscall.SIGTERM)
	return s
}

func newSignals(parent context.Context, exit func(int)) *Signals {
	ctx, cancel := context.WithCancelCause(parent)
	s := &Signals{Context: ctx, cancel: cancel, ch: make(chan os.Signal, 4), done: make(chan struct{}), exit: exit}
	go s.watch()
	return s
}

func (s *Signals) watch() {
	for first := true; ; {
		select {
		case got := <-s.ch:
			num, _ := got.(syscall.Signal)
			if num == syscall.SIGPIPE { // once for every write
				s.cancel(&SignalError{num})
				continue
			}
			if !first {
				s.exit(128 + int(num))
				return
			}
			first = false
			s.cancel(&SignalError{num})
		case <-s.done:
			return
		}
	}
}

// Caught is the signal that came, nil without one.
func (s *Signals) Caught() *SignalError {
	e, _ := context.Cause(s.Context).(*SignalError)
	return e
}

// Stop ends the listening; signals act as usual again.
func (s *Signals) Stop() {
	s.once.Do(func() {
		signal.Stop(s.ch)
		close(s.done)
		s.cancel(nil)
	})
}
