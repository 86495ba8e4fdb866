package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Exit codes. A signal's is 128 plus its number: 130 and 143.
const (
	OK          = 0
	Failed      = 1 // it ran and something went wrong
	Usage       = 2 // nothing was done: what was asked cannot be
	AssertFails = 3
	RateMissed  = 4
)

// StrictRateRatio is how far below the asked rate --strict-rate lets a run be.
const StrictRateRatio = 0.001

// Streams are where a command writes: results on Out, everything else on Err.
type Streams struct {
	Out, Err    io.Writer
	ErrTerminal bool // Err is a terminal: progress may refresh a line
}

// Standard are the process's own streams.
func Standard() Streams {
	return Streams{Out: os.Stdout, Err: os.Stderr, ErrTerminal: isTerminal(os.Stderr)}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull && os.Getenv("TERM") != "dumb"
}

// CodeError is an error that ends the process with Code. A nil Err has been
// told already: nothing is printed.
type CodeError struct {
	Code int
	Err  error
}

func (e *CodeError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *CodeError) Unwrap() error { return e.Err }

// Execute runs root with args and returns the exit code. Errors that cobra
// finds itself are of usage; those of a command are Failed unless they are a
// CodeError or a *results.UsageError. An error is one line on s.Err.
func Execute(root *cobra.Command, args []string, s Streams) int {
	started := false
	before := root.PersistentPreRunE
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		started = true
		if before != nil {
			return before(c, args)
		}
		return nil
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	strict(root)
	command, err := root.ExecuteC()
	if err == nil {
		return OK
	}
	code := Failed
	var ce *CodeError
	var usage *results.UsageError
	switch {
	case errors.As(err, &ce):
		code = ce.Code
		if ce.Err == nil {
			return code
		}
	case errors.As(err, &usage):
		code = Usage
	case !started:
		code = Usage
		err = fmt.Errorf("%w; see %s --help", err, command.CommandPath())
	}
	fmt.Fprintf(s.Err, "%s: %s\n", root.Name(), oneLine(err.Error()))
	return code
}

// strict makes errors of what cobra's own commands would answer with their help.
func strict(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], c.CommandPath())
			}
			if err != nil {
				return &CodeError{Code: Usage, Err: fmt.Errorf("%w; see %s --help", err, root.Name())}
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	})
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = cobra.NoArgs
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// oneLine folds white space; cobra's suggestions span lines.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
