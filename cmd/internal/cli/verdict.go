package cli

import (
	"fmt"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Verdict turns a finished run into an exit code: failed is an error of it, nil for none, caught the signal that
// ended it, missed what --strict-rate says. A failure comes first; then a signal, because its counts are of a part
// of the run; then the conditions, then the rate.
func Verdict(failed error, caught *SignalError, asserts []results.AssertResult, missed error) error {
	switch {
	case failed != nil:
		return &CodeError{Code: Failed, Err: failed}
	case caught != nil:
		return &CodeError{Code: caught.Code()}
	}
	for _, a := range asserts {
		if !a.Pass {
			return &CodeError{Code: AssertFails, Err: fmt.Errorf("assertion failed: %s", results.AssertText(a))}
		}
	}
	if missed != nil {
		return &CodeError{Code: RateMissed, Err: missed}
	}
	return nil
}
