package vmtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// agentVar names, in the machine's kernel command line, the program that is its
// agent; Main becomes the agent where the variable is set.
const agentVar = "BLUERING_VM_AGENT"

// request is a line from the test to the agent.
type request struct {
	ID      int      `json:"id"`
	Argv    []string `json:"argv,omitempty"`
	Timeout int64    `json:"timeout_ms,omitempty"`
	Port    int      `json:"port,omitempty"` // in place of running Argv: wait until somebody listens there
	Kill    bool     `json:"kill,omitempty"`
}

// reply is a line from the agent to the test.
type reply struct {
	ID    int    `json:"id"`
	Ready bool   `json:"ready,omitempty"`
	Out   []byte `json:"out,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Exit  int    `json:"exit,omitempty"`
	Err   string `json:"err,omitempty"`
}

// agent runs commands for the test, in the machine, and never returns.
type agent struct {
	port *os.File

	mu   sync.Mutex
	stop map[int]context.CancelFunc
}

// runAgent is process 1 of the machine.
func runAgent() {
	for _, v := range []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LC_ALL=C"} {
		name, value, _ := strings.Cut(v, "=")
		os.Setenv(name, value)
	}
	port, err := openPort()
	if err != nil {
		fmt.Println("vmtest: agent:", err)
		os.Exit(1) // the kernel panics, and the machine ends
	}
	a := &agent{port: port, stop: map[int]context.CancelFunc{}}
	a.send(reply{Ready: true})
	lines := bufio.NewReader(port)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			time.Sleep(10 * time.Millisecond) // the other side is not there yet
			continue
		}
		var r request
		if err != nil || json.Unmarshal(line, &r) != nil {
			fmt.Printf("vmtest: agent: line %q: %v\n", line, err)
			os.Exit(1)
		}
		if r.Kill {
			a.mu.Lock()
			if stop := a.stop[r.ID]; stop != nil {
				stop()
			}
			a.mu.Unlock()
			continue
		}
		ctx, stop := context.WithTimeout(context.Background(), time.Duration(r.Timeout)*time.Millisecond)
		a.mu.Lock()
		a.stop[r.ID] = stop
		a.mu.Unlock()
		go a.run(ctx, r)
	}
}

// openPort opens the only virtio-serial port there is, without O_NONBLOCK.
func openPort() (*os.File, error) {
	ports, _ := filepath.Glob("/dev/vport*p1")
	if len(ports) != 1 {
		return nil, fmt.Errorf("%d virtio-serial ports, want one", len(ports))
	}
	fd, err := syscall.Open(ports[0], syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), ports[0]), nil
}

func (a *agent) send(r reply) {
	line, _ := json.Marshal(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.port.Write(append(line, '\n')); err != nil {
		fmt.Println("vmtest: agent:", err)
	}
}

// output sends what a command prints as it comes.
type output struct {
	a  *agent
	id int
}

func (o output) Write(p []byte) (int, error) {
	o.a.send(reply{ID: o.id, Out: p})
	return len(p), nil
}

func (a *agent) run(ctx context.Context, r request) {
	if r.Port != 0 {
		a.finish(reply{ID: r.ID, Done: true, Err: listened(ctx, r.Port)})
		return
	}
	done := reply{ID: r.ID, Done: true}
	c := exec.CommandContext(ctx, r.Argv[0], r.Argv[1:]...)
	c.Stdout, c.Stderr = output{a, r.ID}, output{a, r.ID}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil && err != nil:
		done.Exit, done.Err = -1, "killed: "+context.Cause(ctx).Error()
	case errors.As(err, &exit):
		done.Exit = exit.ExitCode()
	case err != nil:
		done.Exit, done.Err = -1, err.Error()
	}
	a.finish(done)
}

func (a *agent) finish(done reply) {
	a.mu.Lock()
	a.stop[done.ID]()
	delete(a.stop, done.ID)
	a.mu.Unlock()
	a.send(done)
}

// listened waits until somebody listens to a TCP port, and says why if nobody does. A connection would not do: it is
// the one that many servers wait for.
func listened(ctx context.Context, port int) string {
	local, tick := fmt.Sprintf(":%04X", port), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			table, _ := os.ReadFile(file)
			for line := range strings.Lines(string(table)) {
				if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], local) && f[3] == "0A" { // TCP_LISTEN
					return ""
				}
			}
		}
		select {
		case <-ctx.Done():
			return "nobody listens: " + context.Cause(ctx).Error()
		case <-tick.C:
		}
	}
}
