//go:build !linux

package vmtest

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/nstest"
)

// Main runs the tests.
func Main(m *testing.M) { nstest.Main(m) }

func unavailable() error { return errors.New("the machine runs on Linux, and this is " + runtime.GOOS) }

// Machine is a virtual machine, which there is not here.
type Machine struct{ Tap string }

// Process is a command that runs in the machine.
type Process struct{}

// Start skips the test.
func Start(t testing.TB, _ Config) *Machine {
	t.Helper()
	Need(t)
	return nil
}

// Spawn does nothing.
func (*Machine) Spawn(time.Duration, ...string) *Process { return nil }

// Run does nothing.
func (*Machine) Run(testing.TB, time.Duration, ...string) string { return "" }

// AwaitListener does nothing.
func (*Machine) AwaitListener(testing.TB, time.Duration, *Process, int) {}

// GIDIndex does nothing.
func (*Machine) GIDIndex(testing.TB, string, string) int { return 0 }

// RXECounters does nothing.
func (*Machine) RXECounters(testing.TB, string) map[string]uint64 { return nil }

// State does nothing.
func (*Machine) State() string { return "" }

// Watch does nothing.
func (*Machine) Watch(testing.TB, string) func(sent, received uint64) string { return nil }

// Wait does nothing.
func (*Process) Wait() (string, int, error) { return "", -1, nil }

// WaitOutput does nothing.
func (*Process) WaitOutput(string) bool { return false }

// Kill does nothing.
func (*Process) Kill() {}
