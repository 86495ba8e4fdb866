package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bluering/bluering/internal/pin"
)

// Exit codes.
const (
	exitFailed      = 1 // a contender failed, or something around it
	exitUsage       = 2
	exitInterrupted = 130
)

// options are what the command line says.
type options struct {
	rounds  int
	seconds float64
	only    []row
	output  string
	install bool
	limit   time.Duration
	nice    int
	profile string
	line    string // as it was given
}

// Limits of what may be asked.
const (
	maxRounds  = 1000
	maxSeconds = 60
)

func main() {
	if job := os.Getenv(echoVar); job != "" {
		if err := echoSide(job); err != nil {
			fmt.Fprintln(os.Stderr, "peers: echo:", err)
			os.Exit(exitFailed)
		}
		return
	}
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(exitUsage)
	}
	// Heard from here on: what is changed on this machine is put back before the end.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	code := 0
	if inside := os.Getenv(worldVar); inside != "" {
		code, err = o.runInside(ctx, inside)
	} else {
		code, err = o.runOutside(ctx)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		code = max(code, exitFailed)
	}
	os.Exit(code)
}

func parse(args []string, say io.Writer) (o options, err error) {
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	only := f.String("only", "", "rows to run, such as loop1,tx-drop; all if empty")
	f.IntVar(&o.rounds, "rounds", 10, "alternating rounds")
	f.Float64Var(&o.seconds, "seconds", 1, "how long each contender is measured in a round")
	f.StringVar(&o.output, "o", "text", "text, json or markdown, on stdout")
	f.BoolVar(&o.install, "install", true, "as root: install missing programs by their Debian packages")
	f.IntVar(&o.nice, "nice", 0, "as root: priority of all that is measured, -20 to 19; below 0 on a machine that has other work")
	f.StringVar(&o.profile, "profile", "", "directory for CPU profiles of the contenders in this process, each run once more after its row")
	f.DurationVar(&o.limit, "limit", time.Hour, "end by then with what there is")
	if err = f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			help(f, say)
		}
		return o, err
	}
	o.line = strings.Join(append([]string{"peers"}, args...), " ")
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("argument %q: there are only flags", f.Arg(0))
	case o.rounds < 1 || o.rounds > maxRounds:
		return o, fmt.Errorf("-rounds %d: want 1 to %d", o.rounds, maxRounds)
	case !(o.seconds >= 0.01 && o.seconds <= maxSeconds):
		return o, fmt.Errorf("-seconds %v: want 0.01 to %d", o.seconds, maxSeconds)
	case outputs[o.output] == nil:
		return o, fmt.Errorf("-o %s: want text, json or markdown", o.output)
	case o.nice < -20 || o.nice > 19:
		return o, fmt.Errorf("-nice %d: want -20 to 19", o.nice)
	case o.profile != "" && !isDir(o.profile):
		return o, fmt.Errorf("-profile %s: want a directory", o.profile)
	case o.limit <= 0:
		return o, fmt.Errorf("-limit %v: want more than 0", o.limit)
	}
	o.only, err = choose(*only)
	return o, err
}

func isDir(path string) bool {
	i, err := os.Stat(path)
	return err == nil && i.IsDir()
}

// choose finds rows by their keys.
func choose(keys string) ([]row, error) {
	all := rows()
	if keys == "" {
		return all, nil
	}
	var known []string
	for _, r := range all {
		known = append(known, r.key)
	}
	var out []row
	for k := range strings.SplitSeq(keys, ",") {
		at := slices.Index(known, k)
		if at < 0 {
			return nil, fmt.Errorf("-only: there is no row %q; want %s", k, strings.Join(known, ", "))
		}
		out = append(out, all[at])
	}
	return out, nil
}

func help(f *flag.FlagSet, say io.Writer) {
	fmt.Fprintln(say, "peers compares bluering with other programs, in turns, in one run.\n\nFlags:")
	f.SetOutput(say)
	f.PrintDefaults()
	fmt.Fprintln(say, "\nRows:")
	for _, r := range rows() {
		fmt.Fprintf(say, "  %-9s %s\n", r.key, r.title)
	}
}

// run does all rows and prints the result.
func (o *options) run(ctx context.Context, b *bench) (code int, err error) {
	cpus := pin.CPUs()
	if len(cpus) < 2 {
		return exitFailed, fmt.Errorf("%d processor to run on; two are compared and kept apart", len(cpus))
	}
	b.otherCPU, b.cpu = cpus[0], cpus[1]
	b.window = time.Duration(o.seconds * float64(time.Second))
	r := &result{
		Started: time.Now().UTC().Format("2006-01-02 15:04 MST"), Command: "`" + o.line + "`",
		Rounds: o.rounds, WindowNS: b.window.Nanoseconds(),
		Machine: describe(b, wanted(o.only)),
	}
	before, err := readUsage()
	if err != nil {
		return exitFailed, err
	}
	for i := range o.only {
		row := &o.only[i]
		all := b.compare(ctx, row, o.rounds, os.Stderr)
		for _, s := range all {
			if len(s.failures) > 0 {
				code = exitFailed
			}
		}
		if err := b.profile(ctx, row, o.profile); err != nil {
			return exitFailed, err
		}
		r.Rows = append(r.Rows, conclude(row.key, row.title, row.unit, all, row.bars))
	}
	after, err := readUsage()
	if err != nil {
		return exitFailed, err
	}
	r.Machine.since(before, after)
	if ctx.Err() != nil {
		r.Interrupted, code = true, exitInterrupted
	}
	return code, outputs[o.output](os.Stdout, r)
}
