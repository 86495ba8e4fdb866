package traffic

import "github.com/bluering/bluering/cmd/internal/results"

// What reports of all commands share, by its names here.
type (
	// UsageError says what of a request cannot be done.
	UsageError = results.UsageError
	// Format is a way to write results.
	Format = results.Format
	// Summary describes a distribution.
	Summary = results.Summary
	// Stalls is what disturbed the sender and the receiver.
	Stalls = results.Stalls
	// Host is the machine's fingerprint.
	Host = results.Host
	// AssertResult is the verdict on one --assert.
	AssertResult = results.AssertResult
	// Rate is an offered load, exact.
	Rate = results.Rate
)
