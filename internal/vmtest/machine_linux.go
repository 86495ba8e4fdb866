package vmtest

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

// bootTime is far more than a boot takes, also on a machine that does much else.
const bootTime = 3 * time.Minute

// prepared is the kernel, found before the process entered its namespace.
var prepared struct {
	once sync.Once
	k    *kernel
	err  error
}

// kernelVar hands the unpacked package on to the process that nstest.Main starts.
const kernelVar = "BLUERING_VM_KERNEL"

// Main prepares the machine's kernel where it is wanted, then does as
// nstest.Main. In a machine it is the agent.
func Main(m *testing.M) {
	if os.Getenv(agentVar) != "" && os.Getpid() == 1 {
		runAgent()
	}
	if os.Getenv(wantedVar) != "" && os.Getenv(kernelVar) == "" {
		k, err := fetchKernel()
		if err != nil {
			os.Setenv(kernelVar, "error: "+err.Error())
		} else {
			os.Setenv(kernelVar, filepath.Dir(filepath.Dir(k.image)))
		}
	}
	nstest.Main(m)
}

func preparedKernel() (*kernel, error) {
	prepared.once.Do(func() {
		dir := os.Getenv(kernelVar)
		switch what, isError := strings.CutPrefix(dir, "error: "); {
		case isError:
			prepared.err = errors.New(what)
		case dir == "":
			prepared.err = errors.New("TestMain does not call vmtest.Main")
		default:
			prepared.k, prepared.err = openKernel(dir)
		}
	})
	return prepared.k, prepared.err
}

// unavailable tells why there can be no machine here.
func unavailable() error {
	if runtime.GOARCH != "amd64" {
		return errors.New("the machine is amd64's, and this is " + runtime.GOARCH)
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		return err
	}
	if err := static("busybox"); err != nil {
		return err
	}
	_, err := preparedKernel()
	return err
}

// static tells whether a program needs no libraries, which the machine's first root does not have.
func static(program string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static, as that of Debian's package %s-static is", path, program)
		}
	}
	return nil
}

// Machine is a running virtual machine. Its methods may be called from any
// goroutine. It ends with the test.
type Machine struct {
	Tap string // the host's end of eth0, "" without one

	qemu    *exec.Cmd
	channel *os.File
	console *tail
	gone    chan struct{} // closed when qemu has ended
	ready   chan struct{}

	mu    sync.Mutex
	runs  map[int]*Process
	gids  map[string]int // indices by device and address
	last  int
	ended bool
}

// Start boots a machine and waits until it takes commands.
func Start(t testing.TB, c Config) *Machine {
	t.Helper()
	Need(t)
	nstest.Need(t)
	m := &Machine{console: new(tail), gone: make(chan struct{}), ready: make(chan struct{}), runs: map[int]*Process{}, gids: map[string]int{}}
	if c.Tap {
		m.makeTap(t)
	}
	if err := m.boot(t.TempDir()); err != nil {
		t.Fatal("vmtest:", err)
	}
	t.Cleanup(m.end)
	select {
	case <-m.ready:
	case <-m.gone:
		t.Fatalf("vmtest: the machine ended while it booted:\n%s", m.console)
	case <-time.After(bootTime):
		t.Fatalf("vmtest: the machine took no command after %v:\n%s", bootTime, m.console)
	}
	m.setUp(t, c)
	return m
}

// makeTap makes the host's end of the machine's eth0.
func (m *Machine) makeTap(t testing.TB) {
	t.Helper()
	m.Tap = "vm0"
	tap := &netlink.Tuntap{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.TUNTAP_MODE_TAP}
	tap.Name = m.Tap
	if err := netlink.LinkAdd(tap); err != nil {
		t.Skipf("needs vm: no tap: %v", err)
	}
	t.Cleanup(func() { nstest.Delete(t, "", m.Tap) })
	nstest.Link(t, "", m.Tap, func(h *netlink.Handle, l netlink.Link) error {
		for _, a := range []string{HostAddr4 + "/24", HostAddr6 + "/64"} {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := h.AddrAdd(l, addr); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		mac, err := net.ParseMAC(hostMAC)
		if err == nil {
			err = h.LinkSetHardwareAddr(l, mac) // which making a tap leaves out
		}
		if err != nil {
			return err
		}
		return h.LinkSetUp(l)
	})
}

// boot starts qemu. The channel is one half of a socket pair, so that no path
// is needed and nobody else can connect.
func (m *Machine) boot(dir string) error {
	k, err := preparedKernel()
	if err != nil {
		return err
	}
	modules, err := k.order()
	if err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(initrd, busybox, modules); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m.channel = os.NewFile(uintptr(pair[0]), "vm channel")
	theirs := os.NewFile(uintptr(pair[1]), "vm channel, their end")
	defer theirs.Close()
	args := []string{"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max",
		"-m", "1024", "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nodefaults",
		"-kernel", k.image, "-initrd", initrd,
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off " + agentVar + "=" + self,
		"-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
		"-device", "virtio-serial-pci,max_ports=2", "-chardev", "socket,id=channel,fd=3",
		"-device", "virtserialport,chardev=channel,name=vmtest,nr=1"}
	if m.Tap != "" {
		args = append(args, "-netdev", "tap,id=net,ifname="+m.Tap+",script=no,downscript=no",
			"-device", "virtio-net-pci,netdev=net,mac="+guestMAC)
	}
	m.qemu = exec.Command("qemu-system-x86_64", args...)
	m.qemu.Stdout, m.qemu.Stderr = m.console, m.console
	m.qemu.ExtraFiles = []*os.File{theirs}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // qemu dies with this thread, and so with the test
		m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := m.qemu.Start()
		started <- err
		if err == nil {
			_ = m.qemu.Wait() // how it ended is on the console
			m.lost()
			close(m.gone)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	go m.listen()
	return nil
}

// end ends the machine. Its root was read-only: there is nothing to save.
func (m *Machine) end() {
	_ = m.qemu.Process.Kill() // it may have ended
	<-m.gone
	m.channel.Close()
}

// listen sorts the agent's replies.
func (m *Machine) listen() {
	lines := bufio.NewReader(m.channel)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(line, &r) != nil {
			fmt.Fprintf(m.console, "vmtest: the agent said %q\n", line)
			continue
		}
		if r.Ready {
			close(m.ready)
			continue
		}
		m.mu.Lock()
		p := m.runs[r.ID]
		if r.Done {
			delete(m.runs, r.ID)
		}
		m.mu.Unlock()
		if p != nil {
			p.take(r)
		}
	}
}

// lost ends all commands when the machine has.
func (m *Machine) lost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	for id, p := range m.runs {
		p.take(reply{Done: true, Exit: -1, Err: "the machine ended: " + m.console.String()})
		delete(m.runs, id)
	}
}

// tail keeps the end of what the console printed.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *tail) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.b.Len() > 1<<16 {
		c.b.Next(1 << 15)
	}
	return c.b.Write(p)
}

func (c *tail) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}
