//go:build !linux

package nstest

import (
	"os"
	"runtime"
	"testing"
)

// Main runs the tests.
func Main(m *testing.M) { os.Exit(m.Run()) }

// Need skips the test.
func Need(t testing.TB) {
	t.Helper()
	t.Skip("needs netns: network namespaces are Linux's, and this is " + runtime.GOOS)
}

// Namespace skips the test.
func Namespace(t testing.TB) string {
	t.Helper()
	Need(t)
	return ""
}

// Veth skips the test.
func Veth(t testing.TB) (a, b, nsB string) {
	t.Helper()
	Need(t)
	return "", "", ""
}

// VethQueues skips the test.
func VethQueues(t testing.TB, _ int) (a, b, nsB string) { return Veth(t) }

// Root skips the test.
func Root(t testing.TB) { Need(t) }
