package wire

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

func eachMode(t *testing.T, f func(t *testing.T, m XDPMode)) {
	nstest.Root(t)
	for _, m := range []XDPMode{XDPNative, XDPGeneric} {
		t.Run(m.String(), func(t *testing.T) { f(t, m) })
	}
}

// attached returns the id of the XDP program that netlink sees on the interface, 0: none, and its mode, with
// the numbers of IFLA_XDP_ATTACHED: 1 driver, 2 skb.
func attached(t testing.TB, ns, name string) (id, mode uint32) {
	t.Helper()
	nstest.Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			id, mode = x.ProgId, x.AttachMode
		}
		return nil
	})
	return id, mode
}

// TestXDPOffersRefusedFramesAgain lets the receiving kernel fall behind: its NAPI runs in a thread on one CPU with a
// lower priority than the sender. A veth drops what its ring has no room for and says so; all frames arrive, in order.
func TestXDPOffersRefusedFramesAgain(t *testing.T) {
	nstest.Root(t)
	const count = 200003
	a, b, ns := nstest.Veth(t)
	tx := openXDP(t, a, XDPOptions{})
	rx := openXDP(t, b, XDPOptions{NetNS: ns, RxFrames: 1 << 16})
	threaded(t, ns, b)
	beforeA, beforeB := nstest.Count(t, "", a), nstest.Count(t, ns, b)
	passes(t, tx, rx, count)
	k, kb, s := nstest.Count(t, "", a).Sub(beforeA), nstest.Count(t, ns, b).Sub(beforeB), statsOf(tx)
	if s.TxFrames != count || k.TxFrames != count || kb.RxFrames != count || s.TxErrors != 0 {
		t.Errorf("ours %+v, kernel %+v and %+v", s, k, kb)
	}
	if k.TxDropped == 0 || s.TxRetries < k.TxDropped {
		t.Errorf("the kernel refused %d frames, we count %d: not what this test is for", k.TxDropped, s.TxRetries)
	}
}

// threaded moves the interface's receive work to kernel threads. sysfs shows the namespace it was mounted in.
func threaded(t *testing.T, ns, name string) {
	t.Helper()
	dir := t.TempDir()
	nstest.Do(t, ns, func() error {
		if err := unix.Mount("sysfs", dir, "sysfs", 0, ""); err != nil {
			return err
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		return os.WriteFile(dir+"/class/net/"+name+"/threaded", []byte("1"), 0)
	})
}

// TestXDPSeveralQueues sends to one queue of the other end after the other. Frames on the queues that a wire has
// arrive, each queue's in their order; those on others are the kernel's.
func TestXDPSeveralQueues(t *testing.T) {
	nstest.Root(t)
	const each, there, laps = 200, 4, 3
	for _, c := range []struct{ first, count int }{{0, 0}, {1, 2}, {3, 1}} {
		t.Run(fmt.Sprintf("first=%d,count=%d", c.first, c.count), func(t *testing.T) {
			a, b, ns := nstest.VethQueues(t, there)
			rx := openXDP(t, b, XDPOptions{NetNS: ns, FirstQueue: c.first, Queues: c.count})
			mine := func(q int) bool { return q >= c.first && (c.count == 0 || q < c.first+c.count) }
			before := nstest.Count(t, ns, b)
			var next [there]uint64
			r := &receiver{t: t, w: rx, check: func(f *Frame, _ uint64) error {
				want := make([]byte, 60)
				q := int(f.Data[5]) // the destination's last byte
				if q >= there {
					return fmt.Errorf("%x", f.Data)
				}
				if experimental(want, next[q]); !bytes.Equal(f.Data[6:], want[6:]) || !mine(q) {
					return fmt.Errorf("queue %d, frame %d: %x", q, next[q], f.Data)
				}
				next[q]++
				return nil
			}}
			ours := uint64(0)
			for lap := range laps {
				for q := range there {
					tx := openXDP(t, a, XDPOptions{FirstQueue: q, Queues: 1, RxFrames: 64})
					sendAll(t, tx, each, func(uint64) int { return 60 }, func(b []byte, seq uint64) {
						experimental(b, uint64(lap*each)+seq)
						b[5] = byte(q)
					}, r.take)
					tx.Close()
					if mine(q) {
						ours += each
					}
				}
			}
			r.until(ours)
			if k := nstest.Count(t, ns, b).Sub(before); k.RxFrames != each*there*laps {
				t.Errorf("the kernel received %d of %d", k.RxFrames, each*there*laps)
			}
			if s := statsOf(rx); s.RxFrames != ours || s.RxRingDrops != 0 {
				t.Errorf("of %d on the queues %+v", ours, s)
			}
		})
	}
}

func TestXDPRefusesWithReason(t *testing.T) {
	nstest.Root(t)
	a, b, ns := nstest.Veth(t)
	refused := func(name string, o XDPOptions, is error, says ...string) {
		t.Helper()
		w, err := OpenXDP(name, o)
		if err == nil {
			w.Close()
			t.Fatalf("%+v opened", o)
		}
		if !errors.Is(err, is) {
			t.Errorf("%v is not %v", err, is)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not say %q", err, s)
			}
		}
	}
	refused("nosuch0", XDPOptions{}, ErrNoDevice, a)
	refused(b, XDPOptions{NetNS: "nosuch"}, os.ErrNotExist, "/run/netns/nosuch")
	refused(a, XDPOptions{FirstQueue: 1}, ErrParam, "queue=1", "1 receive queues", "packet:"+a)
	refused(a, XDPOptions{Queues: 3}, ErrParam, "queue=0-2", "1 receive queues")
	refused(a, XDPOptions{ZeroCopy: ZeroCopyOn}, unix.EOPNOTSUPP, "zerocopy=on", "packet:"+a)
	refused(a, XDPOptions{ZeroCopy: ZeroCopyOn, Mode: XDPGeneric}, ErrParam, "zerocopy=on")
	w := openXDP(t, a, XDPOptions{})
	refused(a, XDPOptions{}, ErrXDPInUse, "program", "packet:"+a)
	if err := w.(*xdp).link.Close(); err != nil { // sockets without a program, as other libraries hold them
		t.Fatal(err)
	}
	refused(a, XDPOptions{}, unix.EBUSY, "queue 0", "another AF_XDP socket")
	w.Close()
	nstest.Run(t, "", "ip", "link", "set", a, "mtu", "3900")
	refused(a, XDPOptions{}, ErrTooLong, "MTU of 3900", "3840", "3822")
	nstest.Run(t, "", "ip", "link", "set", a, "mtu", "3822")
	openXDP(t, a, XDPOptions{Mode: XDPGeneric}).Close()
	nstest.Down(t, ns, b)
	refused(a, XDPOptions{}, ErrNoCarrier, a)
	nstest.Down(t, "", a)
	refused(a, XDPOptions{}, ErrDown, a)
	if id, _ := attached(t, "", a); id != 0 {
		t.Errorf("program %d was left behind", id)
	}
}

// TestXDPLeavesAnotherProgramAlone: native or generic, attached by a link or without one.
func TestXDPLeavesAnotherProgramAlone(t *testing.T) {
	nstest.Root(t)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	for _, flags := range []bpflink.XDPAttachFlags{bpflink.XDPDriverMode, bpflink.XDPGenericMode} {
		for _, linked := range []bool{true, false} {
			a, _, _ := nstest.Veth(t)
			nstest.Link(t, "", a, func(h *netlink.Handle, l netlink.Link) error {
				if !linked {
					return netlink.LinkSetXdpFdWithFlags(l, prog.FD(), int(flags))
				}
				k, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: prog, Interface: l.Attrs().Index, Flags: flags})
				if err == nil {
					t.Cleanup(func() { k.Close() })
				}
				return err
			})
			before, _ := attached(t, "", a)
			for _, m := range []XDPMode{XDPAuto, XDPNative, XDPGeneric} {
				_, err := OpenXDP(a, XDPOptions{Mode: m})
				if !errors.Is(err, ErrXDPInUse) || !strings.Contains(err.Error(), fmt.Sprintf("program %d", before)) || !strings.Contains(err.Error(), "packet:"+a) {
					t.Errorf("linked %v, flags %d, mode %v: %v", linked, flags, m, err)
				}
			}
			if after, _ := attached(t, "", a); before == 0 || after != before {
				t.Errorf("program %d before, %d after", before, after)
			}
		}
	}
}

func TestXDPLeaksNothing(t *testing.T) {
	nstest.Root(t)
	a, b, ns := nstest.Veth(t)
	cycle := func() {
		w, err := OpenXDP(b, XDPOptions{NetNS: ns, RxFrames: 64})
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	}
	cycle()
	files, maps := openFiles(t), mappings(t)
	for range 30 {
		cycle()
		if _, err := OpenXDP(a, XDPOptions{ZeroCopy: ZeroCopyOn}); err == nil { // it ends half open
			t.Error("zero copy on a veth")
		}
	}
	if f := openFiles(t); f != files {
		t.Errorf("%d descriptors before, %d after", files, f)
	}
	if m := mappings(t); m != maps {
		t.Errorf("%d mappings of sockets before, %d after", maps, m)
	}
	if id, _ := attached(t, ns, b); id != 0 {
		t.Errorf("program %d is still attached", id)
	}
}

// TestXDPDetachesWhenKilled: the kernel shows the program while another process has the wire, and none when that
// was killed.
func TestXDPDetachesWhenKilled(t *testing.T) {
	if name := os.Getenv("BLUERING_XDP_HOLD"); name != "" {
		openXDP(t, name, XDPOptions{})
		fmt.Println("holding")
		select {}
	}
	eachMode(t, func(t *testing.T, m XDPMode) {
		a, _, _ := nstest.Veth(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(self, "-test.run=^TestXDPDetachesWhenKilled$")
		c.Env = append(os.Environ(), "BLUERING_XDP_HOLD="+a)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		var said [7]byte
		if _, err := out.Read(said[:]); err != nil || string(said[:]) != "holding" {
			t.Errorf("the holder says %q, %v", said, err)
		}
		id, _ := attached(t, "", a)
		if id == 0 {
			t.Error("nothing is attached while it runs")
		}
		if out := nstest.Run(t, "", "ip", "-d", "link", "show", a); !strings.Contains(out, fmt.Sprintf("prog/xdp id %d", id)) {
			t.Errorf("ip does not show program %d: %s", id, out)
		}
		c.Process.Kill()
		c.Wait()
		for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			if id, _ = attached(t, "", a); id == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("program %d is attached 10 s after SIGKILL", id)
			}
		}
		openXDP(t, a, XDPOptions{Mode: m}) // nor does a socket hold the queue
	})
}

// TestXDPBusyPolls: the sockets have the option, and looks at empty queues bring the frames.
func TestXDPBusyPolls(t *testing.T) {
	nstest.Root(t)
	const count = 3000
	a, b, ns := nstest.Veth(t)
	tx, rx := openXDP(t, a, XDPOptions{}), openXDP(t, b, XDPOptions{NetNS: ns, BusyPoll: 20 * time.Microsecond})
	if v, err := unix.GetsockoptInt(rx.(*xdp).queues[0].fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL); err != nil || v != 20 {
		t.Errorf("SO_BUSY_POLL is %d, %v", v, err)
	}
	passes(t, tx, rx, count)
}

// TestXDPReusesMemory: of 512 chunks to build frames in, lone ones use those that the frames just before them have left.
// What was released counts before the kernel has it back.
func TestXDPReusesMemory(t *testing.T) {
	nstest.Root(t)
	eachMode(t, func(t *testing.T, m XDPMode) {
		const count, most = 2000, 8
		a, b, ns := nstest.Veth(t)
		tx, rx := openXDP(t, a, XDPOptions{Mode: m}), openXDP(t, b, XDPOptions{Mode: m, NetNS: ns, RxFrames: 64})
		r := &receiver{t: t, w: rx, check: func(*Frame, uint64) error { return nil }}
		used := map[*byte]bool{}
		for i := range uint64(count) {
			bufs := [1][]byte{}
			if tx.Reserve([]int32{60}, bufs[:]) != 1 {
				t.Fatalf("no room for frame %d: %v", i, tx.Err())
			}
			used[&bufs[0][0]] = true
			experimental(bufs[0], i)
			tx.Commit(1)
			if err := tx.Flush(); err != nil {
				t.Fatal(err)
			}
			r.until(i + 1)
			if s := statsOf(rx); s.RxFrames != i+1 || s.RxBytes != 60*(i+1) {
				t.Fatalf("after frame %d: %+v", i, s)
			}
		}
		if len(used) > most {
			t.Errorf("frames were built at %d places, want at most %d", len(used), most)
		}
	})
}

// TestXDPWithoutPrivilege takes one capability after the other away.
func TestXDPWithoutPrivilege(t *testing.T) {
	nstest.Root(t)
	a, _, _ := nstest.Veth(t)
	for _, keep := range []uint32{0, 1 << unix.CAP_NET_RAW, 1<<unix.CAP_NET_RAW | 1<<unix.CAP_NET_ADMIN} {
		err := withCaps(func(caps *[2]unix.CapUserData) { *caps = [2]unix.CapUserData{{Effective: keep, Permitted: keep}} },
			func() (Wire, error) { return OpenXDP(a, XDPOptions{RxFrames: 64}) })
		self, _ := os.Executable()
		if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "setcap cap_net_raw,cap_net_admin,cap_bpf+ep "+self) || !strings.Contains(err.Error(), "packet:"+a) {
			t.Errorf("with %x: %v", keep, err)
		}
	}
}

// TestXDPRestoresTheMemoryLimit gives a thread without CAP_IPC_LOCK too small a limit.
func TestXDPRestoresTheMemoryLimit(t *testing.T) {
	nstest.Root(t)
	a, _, _ := nstest.Veth(t)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)
	small := unix.Rlimit{Cur: 64 << 10, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &small); err != nil {
		t.Fatal(err)
	}
	err := withCaps(func(caps *[2]unix.CapUserData) { caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK },
		func() (Wire, error) { return OpenXDP(a, XDPOptions{RxFrames: 512}) })
	if err != nil {
		t.Error(err)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now); err != nil || now != small {
		t.Errorf("limit %+v, was %+v: %v", now, small, err)
	}
}

// TestXDPAttachesAsAsked: netlink tells the mode.
func TestXDPAttachesAsAsked(t *testing.T) {
	nstest.Root(t)
	for m, want := range map[XDPMode]uint32{XDPAuto: 1, XDPNative: 1, XDPGeneric: 2} {
		a, _, _ := nstest.Veth(t)
		openXDP(t, a, XDPOptions{Mode: m})
		if _, mode := attached(t, "", a); mode != want {
			t.Errorf("mode %v: netlink says %d, want %d", m, mode, want)
		}
	}
}
