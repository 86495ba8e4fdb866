//go:build !linux

package conformance

import "testing"

// withoutNetRaw runs f: there is no such privilege here.
func withoutNetRaw(_ *testing.T, f func()) { f() }
