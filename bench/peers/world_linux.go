package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// worldVar carries a world to the process inside it.
const worldVar = "BLUERING_PEERS"

// world is what the process outside made for the one inside.
type world struct {
	Dir   string            `json:"dir"`
	Paths map[string]string `json:"paths"`
	Huge  bool              `json:"huge"`
}

// farewell is how long the inside may take to end after a signal.
const farewell = 15 * time.Second

// runOutside gets everything ready, runs the comparison in namespaces of its own if this is root, and puts back what
// was changed.
func (o *options) runOutside(ctx context.Context) (code int, err error) {
	programs, root := wanted(o.only), os.Geteuid() == 0
	if root && o.install {
		install(ctx, programs, os.Stderr)
	}
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return exitFailed, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{dir: dir, paths: find(ctx, programs, dir, os.Stderr)}
	if !root {
		return o.run(ctx, b)
	}
	if b.paths[testpmd] != "" {
		restore, err := reserveHugePages()
		if err != nil {
			fmt.Fprintln(os.Stderr, "peers: DPDK runs without huge pages:", err)
		} else {
			b.huge = true
			defer func() { restore() }()
		}
	}
	return b.enter(ctx)
}

// enter runs this program again, with the same arguments, in new namespaces. All that is made there goes with the
// process, which is the first of its namespace: when it ends, however, the kernel ends the others and forgets the
// interfaces.
func (b *bench) enter(ctx context.Context) (code int, err error) {
	w := world{Dir: b.dir, Paths: map[string]string{}, Huge: b.huge}
	for p, path := range b.paths {
		w.Paths[p.name] = path
	}
	text, err := json.Marshal(w)
	if err != nil {
		return exitFailed, err
	}
	self, err := os.Executable()
	if err != nil {
		return exitFailed, err
	}
	runtime.LockOSThread() // the parent's death is signalled when this thread ends
	defer runtime.UnlockOSThread()
	c := exec.Command(self, os.Args[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Env = append(os.Environ(), worldVar+"="+string(text))
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true, // a scheduling group of its own, where there is one for each session
	}
	if err := c.Start(); err != nil {
		return exitFailed, fmt.Errorf("start in new namespaces: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = c.Process.Signal(os.Interrupt) // it may just have ended; the terminal's does not reach its session
		select {
		case err = <-ended:
		case <-time.After(farewell):
			_ = c.Process.Kill()
			err = <-ended
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), exitFailed), nil
	}
	return 0, err
}

// runInside is the process in the namespaces.
func (o *options) runInside(ctx context.Context, text string) (code int, err error) {
	var w world
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return exitFailed, fmt.Errorf("%s: %w", worldVar, err)
	}
	if err := settle(); err != nil {
		return exitFailed, err
	}
	if err := setNice(o.nice); err != nil {
		return exitFailed, err
	}
	b := &bench{dir: w.Dir, paths: map[program]string{}, root: true, huge: w.Huge}
	for _, p := range wanted(o.only) {
		b.paths[p] = w.Paths[p.name]
	}
	return o.run(ctx, b)
}

// settle prepares the new namespaces: their own /run, where DPDK keeps its files, their own view of processes, and of
// their own network's settings.
func settle() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"tmpfs", "/run"}, {"sysfs", "/sys"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("%s on %s: %w", m.kind, m.at, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// autogroupFile holds the priority of a session among others, beside which that of its processes means nothing
// (sched(7), "The autogroup feature").
const autogroupFile = "/proc/self/autogroup"

// setNice sets the priority of the session and of all threads there are; those that they start, and processes, inherit
// it.
func setNice(nice int) error {
	if nice == 0 {
		return nil
	}
	if err := os.WriteFile(autogroupFile, []byte(strconv.Itoa(nice)), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("priority %d: %w", nice, err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("priority %d: %w", nice, err)
		}
	}
	return nil
}

// hugePagesFile holds how many huge pages of the usual size, 2 MiB, there are.
const hugePagesFile = "/proc/sys/vm/nr_hugepages"

// hugePages is how many two testpmd at a time use.
const hugePages = 300

// reserveHugePages adds them, and restore puts the number back.
func reserveHugePages() (restore func(), err error) {
	text, err := os.ReadFile(hugePagesFile)
	if err != nil {
		return nil, err
	}
	before := strings.TrimSpace(string(text))
	n, err := strconv.Atoi(before)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", hugePagesFile, err)
	}
	restore = func() {
		if err := os.WriteFile(hugePagesFile, []byte(before), 0); err != nil {
			fmt.Fprintf(os.Stderr, "peers: %s is not %s again: %v\n", hugePagesFile, before, err)
		}
	}
	if err := os.WriteFile(hugePagesFile, []byte(strconv.Itoa(n+hugePages)), 0); err != nil {
		return nil, err
	}
	if text, err = os.ReadFile(hugePagesFile); err == nil {
		if got, _ := strconv.Atoi(strings.TrimSpace(string(text))); got < n+hugePages {
			err = fmt.Errorf("the kernel reserves %d of %d", got-n, hugePages)
		}
	}
	if err != nil {
		restore()
		return nil, err
	}
	return restore, nil
}
