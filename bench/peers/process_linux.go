package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// keep is how much output is remembered, from the front: testpmd says what it can do at the beginning.
	keep = 1 << 20
	// grace is how long a process may take to end after SIGINT.
	grace = 3 * time.Second
)

// process is a running peer in a process group of its own.
type process struct {
	name    string
	command string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     transcript
	ended   chan struct{} // closed by the goroutine that waits; err is valid then
	err     error
}

// start runs a program until it ends, stop is called, or the context ends.
func (b *bench) start(ctx context.Context, path string, args ...string) (*process, error) {
	name := filepath.Base(path)
	p := &process{name: name, command: strings.Join(append([]string{name}, args...), " "), ended: make(chan struct{})}
	p.out.grown = make(chan struct{}, 1)
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = b.dir
	p.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+b.dir) // where DPDK keeps its files, but for root
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = time.Second // for grandchildren that hold the pipes
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	go func() {
		select {
		case <-ctx.Done():
			p.kill()
		case <-p.ended:
		}
	}()
	return p, nil
}

// startOn is start on some processors.
func (b *bench) startOn(ctx context.Context, cpus []int, path string, args ...string) (*process, error) {
	var list []string
	for _, cpu := range cpus {
		list = append(list, strconv.Itoa(cpu))
	}
	on := strings.Join(list, ",")
	p, err := b.start(ctx, "/usr/bin/taskset", append([]string{"-c", on, path}, args...)...)
	if err == nil {
		p.name = filepath.Base(path)
		p.command = fmt.Sprintf("taskset -c %s %s %s", on, p.name, strings.Join(args, " "))
	}
	return p, err
}

// startPktgen, for a sender, leaves it both processors. Its frames pass one goroutine, but Go's runtime looks after it from a thread
// beside, as testpmd's main core does, and on a single processor takes the goroutine's place after each long system call.
func (b *bench) startPktgen(ctx context.Context, args ...string) (*process, error) {
	return b.startOn(ctx, []int{b.otherCPU, b.cpu}, b.paths[pktgen], args...)
}

// kill ends the group at once. It is never called after the process was waited for: its number may be another's then.
func (p *process) kill() {
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the worst is that it has just ended
	}
}

// stop ends it and waits for that.
func (p *process) stop() {
	select {
	case <-p.ended:
		return
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) // the same
	}
	select {
	case <-p.ended:
	case <-time.After(grace):
		p.kill()
		<-p.ended
	}
}

// finish waits for it to end by itself.
func (p *process) finish() (output string, err error) {
	<-p.ended
	if p.err != nil {
		return "", p.failure(p.err)
	}
	return p.out.String(), nil
}

// failure says what went wrong, with the last of what the program said.
func (p *process) failure(err error) error {
	said := strings.TrimSpace(p.out.String())
	if len(said) > 300 {
		said = "..." + said[len(said)-300:]
	}
	return fmt.Errorf("%s: %w: %s", p.name, err, strings.Join(strings.Fields(said), " "))
}

// alive is nil while it runs.
func (p *process) alive() error {
	select {
	case <-p.ended:
		if p.err == nil {
			return p.failure(errors.New("ended early"))
		}
		return p.failure(p.err)
	default:
		return nil
	}
}

// await waits until the output after the first from bytes matches so often, and returns where the last match ends and
// what it captured of each.
func (p *process) await(ctx context.Context, from int, re *regexp.Regexp, times int) (end int, found [][]string, err error) {
	for {
		text := p.out.String()
		at := re.FindAllStringSubmatchIndex(text[from:], times)
		if len(at) == times {
			for _, m := range re.FindAllStringSubmatch(text[from:], times) {
				found = append(found, m[1:])
			}
			return from + at[times-1][1], found, nil
		}
		select {
		case <-p.out.grown:
		case <-p.ended:
			if len(p.out.String()) > len(text) {
				continue
			}
			return 0, nil, p.alive()
		case <-ctx.Done():
			return 0, nil, p.failure(fmt.Errorf("%w while waiting for %q", ctx.Err(), re))
		}
	}
}

// transcript is what a process wrote.
type transcript struct {
	mu    sync.Mutex
	text  []byte
	grown chan struct{}
}

// Write takes all and remembers the first of it.
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.text = append(t.text, b[:min(len(b), keep-len(t.text))]...)
	t.mu.Unlock()
	select {
	case t.grown <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
