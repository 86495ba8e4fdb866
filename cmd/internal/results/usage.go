package results

import (
	"fmt"
	"strings"
)

// UsageError says what of a request cannot be done: the thing, its value, and
// what would work. It is one line and means exit code 2; nothing was sent.
type UsageError struct {
	Thing, Value, Hint string
	Cause              error // may be nil
}

// Error is one line: `rate "10": no unit; use ...`.
func (e *UsageError) Error() string {
	s := e.Thing
	if e.Value != "" {
		s += fmt.Sprintf(" %q", e.Value)
	}
	s += ": " + e.Hint
	return strings.Join(strings.Fields(s), " ")
}

func (e *UsageError) Unwrap() error { return e.Cause }

// Usage makes a UsageError.
func Usage(thing, value, hint string) error {
	return &UsageError{Thing: thing, Value: value, Hint: hint}
}
