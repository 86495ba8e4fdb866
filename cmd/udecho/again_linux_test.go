package main

import (
	"os"
	"strings"
	"testing"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/internal/vmtest"
)

// TestMain runs the command itself in the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("UDECHO_ARGS") != "" {
		os.Exit(execute(cli.Standard(), strings.Split(os.Getenv("UDECHO_ARGS"), "\n")))
	}
	vmtest.Main(m)
}
