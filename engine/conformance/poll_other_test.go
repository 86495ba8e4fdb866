//go:build !linux

package conformance

import "testing"

const pollable = false

func readable(*testing.T, int, int) bool { return false }
