package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/cmd/internal/cli"
	"github.com/bluering/bluering/cmd/udecho/echo"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/vmtest"
	"github.com/bluering/bluering/ud/exchange"
)

const (
	vmCount = 1000        // datagrams of a run
	vmTime  = time.Minute // of one program, on a machine that does much else
	nobody  = 65534
)

// vmSizes are payload bytes: the smallest, each number of pad bytes, both sides of a power of two, the largest that a
// path MTU of 1024 takes.
var vmSizes = []int{1, 2, 3, 4, 63, 64, 65, 512, 1023, 1024}

// vmSide is our side of the wire.
type vmSide struct {
	name, device string
	host, guest  string // addresses that datagrams go between; the exchange is over IPv4, some of the programs know no other
	user         uint32 // 0: the test's own
	number       int
	built        string // udecho
}

// vmSides are the devices and address families.
func vmSides(tap string) (all []vmSide) {
	for _, v := range []struct{ name, host, guest string }{
		{"IPv4", vmtest.HostAddr4, vmtest.GuestAddr4}, {"IPv6", vmtest.HostAddr6, vmtest.GuestAddr6},
	} {
		all = append(all, vmSide{"udp " + v.name, "udp:" + v.host, v.host, v.guest, nobody, len(all), ""},
			vmSide{"packet " + v.name, "packet:" + tap, v.host, v.guest, 0, len(all) + 1, ""})
	}
	return all
}

// vmProgram is a C program and what answers it.
type vmProgram struct {
	name, protocol string
	mode           string   // of udecho as its server
	client         []string // udecho as its client
	number         int
}

var vmPrograms = []vmProgram{
	{"ibv_ud_pingpong", "pingpong", "echo", []string{"ping"}, 0},
	{"ib_send_lat", "perftest", "echo", []string{"ping"}, 1},
	{"ib_send_bw", "perftest", "sink", []string{"bw", "-r", "5kpps"}, 2}, // slow enough for the machine: nobody can refuse a datagram
}

// sizes are those of one run of the matrix: every third, another third for each side and program, so that each side has
// each size; and all in the long form.
func (p *vmProgram) sizes(s *vmSide) (some []int) {
	for i, size := range vmSizes {
		if os.Getenv("BLUERING_VM_LONG") != "" || (i+p.number+s.number)%3 == 0 {
			some = append(some, size)
		}
	}
	return some
}

// args are the program's, in the machine.
func (p *vmProgram) args(t *testing.T, vm *vmtest.Machine, s *vmSide, size int) []string {
	index := fmt.Sprint(vm.GIDIndex(t, "rxe0", s.guest))
	args := []string{"stdbuf", "-oL", p.name, "-d", "rxe0", "-s", fmt.Sprint(size), "-n", fmt.Sprint(vmCount), "-e"}
	if p.protocol == "pingpong" {
		return append(args, "-g", index, "-r", "500")
	}
	args = append(args, "-c", "UD", "-x", index, "-F")
	if p.name == "ib_send_bw" {
		args = append(args, "-r", fmt.Sprint(vmCount))
	}
	if netip.MustParseAddr(s.guest).Is6() {
		args = append(args, "--ipv6") // of the GID
	}
	return args
}

// lostNone fails the test unless the program's own report says that it had all its datagrams.
func (p *vmProgram) lostNone(t *testing.T, out string, size int) {
	t.Helper()
	want := fmt.Sprintf(`(?m)^ *%d +%d +[0-9.]`, size, vmCount) // the row of a size: bytes, iterations, results
	if p.protocol == "pingpong" {
		want = fmt.Sprintf(`(?m)^%d iters in `, vmCount)
	}
	if !regexp.MustCompile(want).MatchString(out) {
		t.Errorf("%s, %d bytes: nothing like %q in: %s", p.name, size, want, out)
	}
}

// TestPeersInAMachine: the C programs on kernel rxe as clients and as servers of the built udecho, which is a process of
// user nobody on udp: devices. No side misses a datagram.
func TestPeersInAMachine(t *testing.T) {
	vm := vmtest.Start(t, vmtest.Config{Tap: true, RXE: true})
	built := build(t)
	for _, s := range vmSides(vm.Tap) {
		s.built = built
		t.Run(s.name, func(t *testing.T) {
			common := []string{"--event", "-o", "json", "--gid-index", fmt.Sprint(s.gidIndex(t))}
			for _, p := range vmPrograms {
				args := append([]string{"--exchange", p.protocol}, common...)
				t.Run(p.name+"/client", func(t *testing.T) { theirClient(t, vm, &s, &p, args) })
				t.Run(p.name+"/server", func(t *testing.T) { theirServer(t, vm, &s, &p, args) })
			}
		})
	}
}

// build builds udecho, for any user to run.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "udecho")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build udecho: %v\n%s", err, out)
	}
	return path
}

// gidIndex is the index of the side's address among those of its device.
func (s *vmSide) gidIndex(t *testing.T) int {
	t.Helper()
	d, err := device.Open(s.device, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, g := range d.GIDs() {
		if g.GID == engine.GIDFromAddr(netip.MustParseAddr(s.host)) {
			return g.Index
		}
	}
	t.Fatalf("%s has no GID %s: %v", s.device, s.host, d.GIDs())
	return 0
}

// theirClient has one server of ours for a program with all sizes. The server ends by a signal, not when its last client
// has been silent for some time: a busy machine's client is silent for long, and hangs when it is forgotten.
func theirClient(t *testing.T, vm *vmtest.Machine, s *vmSide, p *vmProgram, args []string) {
	sizes := p.sizes(s)
	server := s.start(t, append([]string{"serve", s.device, "--mode", p.mode}, args...)...)
	server.await(t, "listening on ")
	bytes := 0
	all, explain := vmCount*uint64(len(sizes)), vm.Watch(t, "rxe0")
	for _, size := range sizes {
		out, exit, err := vm.Spawn(vmTime, append(p.args(t, vm, s, size), vmtest.HostAddr4)...).Wait()
		if exit != 0 || err != nil {
			_ = server.c.Process.Signal(syscall.SIGTERM) // it may have ended
			r := server.report(t, 128+int(syscall.SIGTERM))
			t.Fatalf("%s, %d bytes: exit %d, %v: %s\n%s\nour side: %s", p.name, size, exit, err, out, explain(r.Sent, r.Received), r.Text())
		}
		p.lostNone(t, out, size)
		bytes += size
	}
	if err := server.c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	r := server.report(t, 128+int(syscall.SIGTERM))
	delete(r.Drops, engine.DropNoRule.String()) // what else the machine's kernel says, which a packet socket sees
	want := echo.ServerTotals{Sessions: uint64(len(sizes))}
	if want.Answered = all; p.mode == "sink" {
		want.Answered, want.Sunk = 0, all
	}
	if *r.ServerTotal != want || r.Received != all || r.RecvBytes != vmCount*uint64(bytes) || len(r.Drops) != 0 {
		t.Errorf("%+v, want %+v and %d bytes: %s", *r.ServerTotal, want, vmCount*bytes, r.Text())
	}
}

// theirServer has a client of ours for each size.
func theirServer(t *testing.T, vm *vmtest.Machine, s *vmSide, p *vmProgram, args []string) {
	for _, size := range p.sizes(s) {
		server := vm.Spawn(vmTime, p.args(t, vm, s, size)...)
		vm.AwaitListener(t, vmTime, server, exchange.Port)
		explain := vm.Watch(t, "rxe0")
		client := append([]string{p.client[0], s.device, vmtest.GuestAddr4, "-s", fmt.Sprint(size), "-n", fmt.Sprint(vmCount), "-i", "0", "--timeout", "10s"}, p.client[1:]...)
		r := s.start(t, append(client, args...)...).report(t, cli.OK)
		delete(r.Drops, engine.DropNoRule.String())
		want := echo.Counts{Sent: vmCount, SentBytes: vmCount * uint64(size)}
		if p.mode == "echo" {
			want.Received, want.RecvBytes, want.Unique = want.Sent, want.SentBytes, want.Sent
		}
		if r.Counts != want || len(r.Drops) != 0 {
			t.Errorf("%d bytes: %+v, want %+v: %s\n%s", size, r.Counts, want, r.Text(), explain(r.Sent, r.Received))
			server.Kill()
		}
		out, exit, err := server.Wait()
		if exit != 0 || err != nil {
			t.Errorf("%s, %d bytes: exit %d, %v: %s\n%s", p.name, size, exit, err, out, explain(r.Sent, r.Received))
		}
		p.lostNone(t, out, size)
	}
}

// vmProcess is the built udecho.
type vmProcess struct {
	c       *exec.Cmd
	out     bytes.Buffer
	said    said
	started chan error
}

// said is what a process has printed so far.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // has room for one
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// start starts the built udecho as the side's user.
func (s *vmSide) start(t *testing.T, args ...string) *vmProcess {
	t.Helper()
	p := &vmProcess{c: exec.Command(s.built, args...), said: said{more: make(chan struct{}, 1)}, started: make(chan error)}
	p.c.Stdout, p.c.Stderr = &p.out, &p.said
	uid := uint32(os.Getuid())
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.user != 0 && canBecome(t, s.user) {
		uid = s.user
		attr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	p.c.SysProcAttr = attr
	go func() {
		runtime.LockOSThread() // the process dies with this thread, and so with the test
		p.started <- p.c.Start()
		<-p.started
	}()
	if err := <-p.started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(p.started) })
	status := string(read(t, fmt.Sprintf("/proc/%d/status", p.c.Process.Pid)))
	if want := fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid); !strings.Contains(status, want) {
		t.Errorf("udecho %s does not run as user %d: %s", strings.Join(args, " "), uid, status)
	}
	if attr.Credential != nil && !strings.Contains(status, "\nCapEff:\t0000000000000000\n") {
		t.Errorf("udecho %s has capabilities: %s", strings.Join(args, " "), status)
	}
	return p
}

// canBecome reports whether the user exists here: in the namespace of an ordinary user, who is one anyway, it does not.
func canBecome(t *testing.T, uid uint32) bool {
	t.Helper()
	var first, outside, count uint64
	_, err := fmt.Sscan(string(read(t, "/proc/self/uid_map")), &first, &outside, &count)
	return err == nil && uint64(uid) < first+count
}

// await waits until the process has said something.
func (p *vmProcess) await(t *testing.T, what string) {
	t.Helper()
	for deadline := time.After(vmTime); !strings.Contains(p.said.String(), what); {
		select {
		case <-p.said.more:
		case <-deadline:
			t.Fatalf("%s does not say %q: %s", p.c, what, p.said.String())
		}
	}
}

// report waits for the end, which a signal brings when it does not come: a process that waits in vain tells what it has.
func (p *vmProcess) report(t *testing.T, code int) *echo.Report {
	t.Helper()
	for limit, s := range map[time.Duration]os.Signal{vmTime: syscall.SIGTERM, vmTime + 10*time.Second: syscall.SIGKILL} {
		defer time.AfterFunc(limit, func() { _ = p.c.Process.Signal(s) }).Stop() // it may have ended
	}
	_ = p.c.Wait() // the code says it
	r := &echo.Report{ServerTotal: new(echo.ServerTotals)}
	if err := json.Unmarshal(p.out.Bytes(), r); err != nil || p.c.ProcessState.ExitCode() != code {
		t.Errorf("%s: %v, %v\n%s%s", p.c, p.c.ProcessState, err, p.out.String(), p.said.String())
	}
	return r
}
