package results

import (
	"fmt"
	"regexp"
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

// Reason is the text of an error about a device without the names of the layers
// in front, and without the device string again, with which each layer begins or ends.
func Reason(uri string, err error) string {
	name, _, _ := strings.Cut(uri, "?")
	s := err.Error()
	again := regexp.MustCompile(`(^|: )` + regexp.QuoteMeta(name) + `(\?\S*)?: `)
	if all := again.FindAllStringIndex(s, -1); all != nil {
		s = s[all[len(all)-1][1]:]
	}
	for more := true; more; {
		more = false
		for _, prefix := range []string{"device: ", "ud: ", "engine: ", "softnic: ", "wire: ", "bad parameter: ", uri + ": ", uri + " ", name + ": ", name + " "} {
			if rest, ok := strings.CutPrefix(s, prefix); ok {
				s, more = rest, true
			}
		}
	}
	return strings.TrimSuffix(s, ": "+name)
}

// Plain is an error with the text of Reason, and the error itself behind it.
func Plain(uri string, err error) error { return &plainError{Reason(uri, err), err} }

type plainError struct {
	text  string
	cause error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.cause }
