package interop

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/vmtest"
)

const (
	iterations = 1000
	runTime    = 2 * time.Minute // of one program, on a machine that does much else
	nobody     = 65534
)

// sizes are payload bytes: the smallest, with each number of pad bytes, and the largest. The programs of perftest
// have the smallest and the largest too, one over each version of IP; the command's test has others.
var sizes = []int{1, 2, 3, 1024}

// setting is our side of the wire.
type setting struct {
	name   string
	device string
	host   string // our address
	guest  string
	user   uint32 // 0: the test's own
}

func settings(tap string) (all []setting) {
	for _, v := range []struct{ name, host, guest string }{
		{"IPv4", vmtest.HostAddr4, vmtest.GuestAddr4}, {"IPv6", vmtest.HostAddr6, vmtest.GuestAddr6},
	} {
		all = append(all, setting{"udp " + v.name, "udp:" + v.host, v.host, v.guest, nobody},
			setting{"packet " + v.name, "packet:" + tap, v.host, v.guest, 0})
	}
	return all
}

// peer is our side of a run, a process of its own.
type peer struct {
	cmd  *exec.Cmd
	out  *output
	user string // as what it says it ran
}

// output is what a peer prints.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	ready chan struct{}
	once  sync.Once
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.b.Write(p)
	if bytes.Contains(o.b.Bytes(), []byte("ready\n")) {
		o.once.Do(func() { close(o.ready) })
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startPeer starts a job. An ordinary user cannot become another, and is one.
func startPeer(t *testing.T, s setting, job ...string) *peer {
	t.Helper()
	job = append([]string{job[0], s.device, s.host}, job[1:]...)
	p := &peer{out: &output{ready: make(chan struct{})}, user: fmt.Sprintf("user %d: ", os.Getuid())}
	unprivileged := s.user != 0 && canBecome(s.user)
	if unprivileged {
		p.user = fmt.Sprintf("user %d: ", s.user)
	}
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Env = append(os.Environ(), peerVar+"="+strings.Join(job, " "))
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the peer dies with this thread, and so with the test
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if unprivileged {
			p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: s.user, Gid: s.user}
		}
		started <- p.cmd.Start()
		<-started
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(started) })
	return p
}

// canBecome reports whether the user exists here: in a namespace of an ordinary user it does not.
func canBecome(uid uint32) bool {
	m, err := os.ReadFile("/proc/self/uid_map")
	var first, outside, count uint64
	_, scanErr := fmt.Sscan(string(m), &first, &outside, &count)
	return err == nil && scanErr == nil && uint64(uid) < first+count
}

func (p *peer) wait(t *testing.T) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("our side: %v: %s", err, p.out)
	}
	p.report(t)
}

func (p *peer) report(t *testing.T) {
	t.Helper()
	out := strings.TrimSpace(p.out.String())
	if !strings.Contains(out, p.user) {
		t.Errorf("our side did not run as %s %s", p.user, out)
	}
	t.Logf("our side: %s", out)
}

// serving runs f while our side serves.
func serving(t *testing.T, s setting, protocol, mode string, f func()) {
	t.Helper()
	p := startPeer(t, s, "serve", protocol, mode)
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case <-p.out.ready:
	case err := <-ended:
		t.Fatalf("our side: %v: %s", err, p.out)
	}
	f()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("our side: %v: %s", err, p.out)
	}
	p.report(t)
}

// program is one of the C programs, as it is started for a setting.
func program(vm *vmtest.Machine, t *testing.T, s setting, name string, size int) []string {
	index := fmt.Sprint(vm.GIDIndex(t, "rxe0", s.guest))
	args := []string{name, "-d", "rxe0", "-s", fmt.Sprint(size), "-n", fmt.Sprint(iterations), "-e"}
	if name == "ibv_ud_pingpong" {
		return append(args, "-g", index, "-r", "500")
	}
	args = append(args, "-c", "UD", "-x", index, "-F")
	if name == "ib_send_bw" {
		args = append(args, "-r", fmt.Sprint(iterations))
	}
	if netip.MustParseAddr(s.guest).Is6() {
		args = append(args, "--ipv6") // of the GID; the connection is made over IPv4
	}
	return args
}

// said is what a program prints when all its datagrams arrived.
func said(t *testing.T, name, out string, size int) {
	t.Helper()
	want := fmt.Sprintf("%d iters in", iterations)
	if name != "ibv_ud_pingpong" {
		want = fmt.Sprintf(" %d ", size)
	}
	if !strings.Contains(out, want) {
		t.Errorf("%s said no %q: %s", name, want, out)
	}
}

func waitForListener(t *testing.T, vm *vmtest.Machine, p *vmtest.Process) {
	t.Helper()
	const script = "for i in $(seq 1000); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.05; done; exit 1"
	if _, exit, err := vm.Spawn(runTime, "sh", "-c", script).Wait(); exit != 0 {
		p.Kill()
		out, code, _ := p.Wait()
		t.Fatalf("the program does not listen: %v; exit %d: %s", err, code, out)
	}
}

// Every program is our client and our server, and nothing is lost. The addresses
// are exchanged over IPv4 always: some of the programs cannot do so over IPv6.
func TestKernelRXE(t *testing.T) {
	vm := vmtest.Start(t, vmtest.Config{Tap: true, RXE: true})
	for _, s := range settings(vm.Tap) {
		t.Run(s.name, func(t *testing.T) {
			t.Run("pingpong/client", func(t *testing.T) { theirClient(t, vm, s, "ibv_ud_pingpong", "pingpong", "echo", sizes) })
			t.Run("pingpong/server", func(t *testing.T) { theirServer(t, vm, s, "ibv_ud_pingpong", "ping", "pingpong", sizes) })
			lat, bw := []int{2}, []int{1024}
			if netip.MustParseAddr(s.host).Is6() {
				lat, bw = bw, lat
			}
			t.Run("send_lat/client", func(t *testing.T) { theirClient(t, vm, s, "ib_send_lat", "perftest", "echo", lat) })
			t.Run("send_lat/server", func(t *testing.T) { theirServer(t, vm, s, "ib_send_lat", "ping", "perftest", lat) })
			t.Run("send_bw/client", func(t *testing.T) { theirClient(t, vm, s, "ib_send_bw", "perftest", "sink", bw) })
			t.Run("send_bw/server", func(t *testing.T) { theirServer(t, vm, s, "ib_send_bw", "send", "perftest", bw) })
		})
	}
}

func theirClient(t *testing.T, vm *vmtest.Machine, s setting, name, protocol, mode string, sizes []int) {
	for _, size := range sizes {
		serving(t, s, protocol, mode, func() {
			args := append(program(vm, t, s, name, size), vmtest.HostAddr4)
			said(t, name, vm.Run(t, runTime, args...), size)
		})
	}
}

func theirServer(t *testing.T, vm *vmtest.Machine, s setting, name, job, protocol string, sizes []int) {
	for _, size := range sizes {
		server := vm.Spawn(runTime, program(vm, t, s, name, size)...)
		waitForListener(t, vm, server)
		startPeer(t, s, job, protocol, vmtest.GuestAddr4, fmt.Sprint(size), fmt.Sprint(iterations)).wait(t)
		out, exit, err := server.Wait()
		if exit != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v: %s", name, exit, err, out)
		}
		said(t, name, out, size)
	}
}
