package vmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Process is a command that runs in the machine.
type Process struct {
	m    *Machine
	id   int
	argv []string
	done chan struct{}

	mu    sync.Mutex
	out   bytes.Buffer
	more  chan struct{} // closed at the next output or at the end
	exit  int
	cause string
}

// Spawn starts a command in the machine, which is killed after timeout. What it
// prints on both streams is kept.
func (m *Machine) Spawn(timeout time.Duration, argv ...string) *Process {
	return m.ask(request{Argv: argv, Timeout: timeout.Milliseconds()})
}

// AwaitListener waits until a process of the machine listens to a TCP port. When it does not within the time, the
// process is killed and the test fails with what it printed.
func (m *Machine) AwaitListener(t testing.TB, timeout time.Duration, p *Process, port int) {
	t.Helper()
	if _, _, err := m.ask(request{Port: port, Argv: []string{fmt.Sprint("port ", port)}, Timeout: timeout.Milliseconds()}).Wait(); err != nil {
		p.Kill()
		out, exit, cause := p.Wait()
		t.Fatalf("in the machine: %s: %v; exit %d, %v\n%s", strings.Join(p.argv, " "), err, exit, cause, out)
	}
}

// ask starts what a request is about.
func (m *Machine) ask(r request) *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	r.ID = m.last
	p := &Process{m: m, id: r.ID, argv: r.Argv, done: make(chan struct{}), more: make(chan struct{})}
	if m.ended {
		p.take(reply{Done: true, Exit: -1, Err: "the machine has ended"})
		return p
	}
	m.runs[p.id] = p
	if err := m.send(r); err != nil {
		delete(m.runs, p.id)
		p.take(reply{Done: true, Exit: -1, Err: err.Error()})
	}
	return p
}

func (m *Machine) send(r request) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = m.channel.Write(append(line, '\n'))
	}
	return err
}

// Run runs a command to its end and gives what it printed. The test fails when
// it does not exit with 0 within the time.
func (m *Machine) Run(t testing.TB, timeout time.Duration, argv ...string) string {
	t.Helper()
	out, exit, err := m.Spawn(timeout, argv...).Wait()
	if exit != 0 || err != nil {
		t.Fatalf("in the machine: %s: exit %d, %v\n%s", strings.Join(argv, " "), exit, err, out)
	}
	return out
}

func (p *Process) take(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(r.Out)
	close(p.more)
	p.more = make(chan struct{})
	if r.Done {
		p.exit, p.cause = r.Exit, r.Err
		close(p.done)
	}
}

// Wait waits for the command's end, which comes by its timeout at the latest. A
// command that did not run to its end by itself has exit -1 and an error.
func (p *Process) Wait() (out string, exit int, err error) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause != "" {
		err = fmt.Errorf("%s: %s", p.argv[0], p.cause)
	}
	return p.out.String(), p.exit, err
}

// WaitOutput waits until the command has printed s, or has ended, and tells
// which.
func (p *Process) WaitOutput(s string) bool {
	for {
		p.mu.Lock()
		found, more := strings.Contains(p.out.String(), s), p.more
		p.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-p.done:
			return false
		case <-more:
		}
	}
}

// Kill kills the command and what it started. It does not wait.
func (p *Process) Kill() {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if !p.m.ended {
		_ = p.m.send(request{ID: p.id, Kill: true}) // it may be over
	}
}
