package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/barrier"
	"github.com/bluering/bluering/internal/clock"
)

const (
	xdpRxFrames = 4096
	xdpTxSlots  = 512
	xdpMaxQueue = 1024
	xdpCaps     = "cap_net_raw,cap_net_admin,cap_bpf"
)

// OpenXDP opens a wire on an interface, past the kernel's stack, which from then on does not see what the wire's
// queues receive. It needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and CAP_SYS_ADMIN to enter another network namespace.
//
// The program that brings the frames is attached by a link that this process holds: it leaves with the process,
// however that ends. A program that is there already stays, and the wire does not open (ErrXDPInUse).
func OpenXDP(ifname string, o XDPOptions) (Wire, error) {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	w := &xdp{wait: closedWaiter, busy: o.BusyPoll > 0}
	w.clk, w.ifname, w.fd, w.tx = o.Clock, ifname, -1, &xdpTx{fd: -1}
	w.info = Info{Name: "xdp:" + ifname, Kind: "xdp", NetNS: o.NetNS, MinFrame: MinFrame}
	if err := inNetNS(o.NetNS, func() error { return w.open(&o) }); err != nil {
		w.Close()
		return nil, fmt.Errorf("wire: xdp:%s: %w", ifname, err)
	}
	return w, nil
}

// open does all that must happen inside the namespace.
func (w *xdp) open(o *XDPOptions) (err error) {
	if err := w.describe(); err != nil {
		return err
	}
	// Any socket may ask after interfaces, but for those of AF_XDP.
	if w.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	w.info.SpeedBPS = ethtoolSpeed(w.fd, w.ifname)
	if err := w.awaitCarrier(o.Context); err != nil {
		return err
	}
	if err := w.choose(o); err != nil {
		return fmt.Errorf("%w; packet:%s works", err, w.ifname)
	}
	// Asked before a queue is taken, which the kernel gives back late; attach finds a program that comes in between.
	if there, ok := w.programThere(); ok {
		return fmt.Errorf("%w: %s: it stays; packet:%s may work", ErrXDPInUse, there, w.ifname)
	}
	if err := w.openQueues(o); err != nil {
		return fmt.Errorf("%w; packet:%s may work", err, w.ifname)
	}
	if err := w.attach(o.Mode); err != nil {
		return fmt.Errorf("%w; packet:%s may work", err, w.ifname)
	}
	if err := w.watch(); err != nil {
		return err
	}
	return w.awaitCarrier(o.Context) // some drivers start the link anew for the program
}

// choose fixes the queues, and refuses what AF_XDP cannot do.
func (w *xdp) choose(o *XDPOptions) error {
	there := rxQueues(w.fd, w.ifname)
	switch {
	case o.FirstQueue >= there:
		return fmt.Errorf("%w: queue=%d: the interface has %d receive queues, from 0", ErrParam, o.FirstQueue, there)
	case o.Queues == 0:
		o.Queues = min(there-o.FirstQueue, xdpMaxQueue)
	case o.FirstQueue+o.Queues > there:
		return fmt.Errorf("%w: queue=%d-%d: the interface has %d receive queues, from 0", ErrParam, o.FirstQueue, o.FirstQueue+o.Queues-1, there)
	}
	if o.ZeroCopy == ZeroCopyOn && o.Mode == XDPGeneric {
		return fmt.Errorf("%w: zerocopy=on: mode=generic has copies only", ErrParam)
	}
	if longest := unix.Getpagesize() - unix.XDP_PACKET_HEADROOM; w.info.MaxFrame > longest {
		return fmt.Errorf("%w: an MTU of %d makes frames of %d bytes, an AF_XDP frame has %d: set the MTU to %d or less",
			ErrTooLong, w.info.MTU, w.info.MaxFrame, longest, longest-headerBytes-vlanTagBytes)
	}
	return nil
}

// openQueues opens a socket for each queue, and the one that sends.
func (w *xdp) openQueues(o *XDPOptions) error {
	rx, tx := o.RxFrames, o.TxSlots
	if rx == 0 {
		rx = xdpRxFrames
	}
	if tx == 0 {
		tx = xdpTxSlots
	}
	if o.Lend == 0 {
		o.Lend = xdpLendBytes
	}
	rx, tx = pow2ceil(rx), pow2ceil(tx)
	chunk := 2048
	if w.info.MaxFrame > chunk-unix.XDP_PACKET_HEADROOM {
		chunk = unix.Getpagesize()
	}
	w.queues = make([]xdpQueue, o.Queues)
	for i := range w.queues {
		w.queues[i].fd, w.queues[i].index = -1, o.FirstQueue+i
	}
	for i := range w.queues {
		sending := 0
		if i == 0 {
			sending = tx
		}
		if err := w.openQueue(&w.queues[i], o, rx, sending, chunk); err != nil {
			return fmt.Errorf("queue %d: %w", o.FirstQueue+i, err)
		}
	}
	if err := w.openTx(o.FirstQueue, rx, tx, chunk); err != nil {
		return fmt.Errorf("transmit queue %d: %w", o.FirstQueue, err)
	}
	return nil
}

func xdpSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return -1, fmt.Errorf("no privilege to open an AF_XDP socket: %w; run as root, or: %s", unix.EPERM, setcapLine(xdpCaps))
	case errors.Is(err, unix.EAFNOSUPPORT):
		return -1, fmt.Errorf("this kernel has no AF_XDP sockets (Linux 5.9 with CONFIG_XDP_SOCKETS is needed): %w", err)
	case err != nil:
		return -1, fmt.Errorf("AF_XDP socket: %w", err)
	}
	return fd, nil
}

// openQueue gives a queue its socket, packet memory and rings: for zero copy, if the driver grants that, else for copies.
func (w *xdp) openQueue(q *xdpQueue, o *XDPOptions, rx, tx, chunk int) error {
	if o.ZeroCopy != ZeroCopyOff && o.Mode != XDPGeneric {
		err := w.openQueueAs(q, o, rx, tx, chunk, true)
		if err == nil || o.ZeroCopy == ZeroCopyOn || !errors.Is(err, errBind) || errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := q.close(); err != nil {
			return err
		}
	}
	return w.openQueueAs(q, o, rx, tx, chunk, false)
}

// openQueueAs is openQueue for one of the two. Chunks for zero copy stand at multiples of their size. Others have a line
// between them: frames at multiples of 2048 bytes would share a thirty-second of the cache's sets.
func (w *xdp) openQueueAs(q *xdpQueue, o *XDPOptions, rx, tx, chunk int, zero bool) (err error) {
	if q.fd, err = xdpSocket(); err != nil {
		return err
	}
	flags := uint32(0)
	q.stride, q.mask = chunk, uint64(1<<addrBits-chunk)
	if !zero {
		q.stride, q.mask, flags = chunk+unitBytes, 1<<addrBits-1, unix.XDP_UMEM_UNALIGNED_CHUNK_FLAG
	}
	bytes, lend := wholePages((rx+tx)*q.stride), 0
	if tx > 0 {
		lend = wholePages(max(o.Lend, 0))
	}
	again := !zero && o.ZeroCopy == ZeroCopyAuto && o.Mode != XDPGeneric
	if err = q.register(bytes, lend, chunk, flags, again); err != nil {
		return fmt.Errorf("register %d bytes of packet memory: %w (RLIMIT_MEMLOCK bounds them without CAP_IPC_LOCK; frames= and txslots= need less)", bytes, err)
	}
	if err := q.openRings(rx, pow2ceil(2*tx+2)); err != nil {
		return err
	}
	q.fillAll(rx)
	if o.BusyPoll > 0 {
		if err := busyPoll(q.fd, int(o.BusyPoll.Microseconds())); err != nil {
			return err
		}
	}
	return w.bind(q, o, zero)
}

// register makes packet memory of that many bytes, and of as many to lend if they may be locked too: those save time, but
// are not needed. After an attempt for zero copy the kernel goes on counting its memory for a while, as it holds queues.
func (q *xdpQueue) register(bytes, lend, chunk int, flags uint32, again bool) error {
	err := q.registerAll(bytes+lend, chunk, flags)
	if lend > 0 && errors.Is(err, unix.ENOBUFS) {
		err = q.registerAll(bytes, chunk, flags)
	}
	for deadline := time.Now().Add(bindWait); again && errors.Is(err, unix.ENOBUFS) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
		err = q.registerAll(bytes, chunk, flags)
	}
	return err
}

func (q *xdpQueue) registerAll(bytes, chunk int, flags uint32) (err error) {
	if q.mem, err = unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return err
	}
	unix.Madvise(q.mem, unix.MADV_HUGEPAGE) // where the system has some
	if err = withMemlock(unix.ENOBUFS, func() error { return registerUMEM(q.fd, q.mem, chunk, flags) }); err != nil {
		unix.Munmap(q.mem)
		q.mem = nil
	}
	return err
}

func wholePages(bytes int) int {
	page := unix.Getpagesize()
	return (bytes + page - 1) / page * page
}

func (q *xdpQueue) openRings(rx, comp int) (err error) {
	for _, r := range []struct{ opt, entries int }{{unix.XDP_UMEM_FILL_RING, rx}, {unix.XDP_UMEM_COMPLETION_RING, comp}, {unix.XDP_RX_RING, rx}} {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_XDP, r.opt, r.entries); err != nil {
			return fmt.Errorf("ring of %d entries: %w", r.entries, err)
		}
	}
	var at unix.XDPMmapOffsets
	if err := getXDP(q.fd, unix.XDP_MMAP_OFFSETS, &at); err != nil {
		return fmt.Errorf("offsets of the rings: %w", err)
	}
	if q.rx, err = mapXRing(q.fd, unix.XDP_PGOFF_RX_RING, at.Rx, rx, true); err != nil {
		return err
	}
	if q.fill, err = mapXRing(q.fd, unix.XDP_UMEM_PGOFF_FILL_RING, at.Fr, rx, false); err != nil {
		return err
	}
	q.comp, err = mapXRing(q.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, at.Cr, comp, false)
	return err
}

// fillAll gives the kernel all frames that are for receiving.
func (q *xdpQueue) fillAll(rx int) {
	for i := range rx {
		q.fill.addrs[i] = uint64(i * q.stride)
	}
	q.put = uint32(rx)
	barrier.StoreRelease32(q.fill.prod, q.put) // partner: the kernel's acquire load
}

// busyPoll lets the owner's looks drive the device, which then sends fewer interrupts (socket(7)).
func busyPoll(fd, micros int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL, 1)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, micros)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET, 64)
	}
	if err != nil {
		return fmt.Errorf("busypoll=%dus: %w (Linux 5.11 is needed)", micros, err)
	}
	return nil
}

// bindWait is how long a queue may be held by a socket that was closed: the kernel lets it go by a worker of its own,
// which takes the lock of the network configuration and, on a busy machine, its time: over half a second has been seen.
const bindWait = 2 * time.Second

// errBind tells that everything but the driver agreed.
var errBind = errors.New("bind")

// bind ties a socket to its queue.
func (w *xdp) bind(q *xdpQueue, o *XDPOptions, zero bool) error {
	sa := unix.SockaddrXDP{Flags: unix.XDP_USE_NEED_WAKEUP | unix.XDP_COPY, Ifindex: uint32(w.info.IfIndex), QueueID: uint32(q.index)}
	if zero {
		sa.Flags ^= unix.XDP_COPY | unix.XDP_ZEROCOPY
	}
	err := unix.Bind(q.fd, &sa)
	for deadline := time.Now().Add(bindWait); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline) && o.Context.Err() == nil; {
		time.Sleep(5 * time.Millisecond)
		err = unix.Bind(q.fd, &sa)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("another AF_XDP socket has it: %w", err)
	case err != nil && o.ZeroCopy == ZeroCopyOn:
		return fmt.Errorf("zerocopy=on: the driver refuses: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", errBind, err)
	}
	return nil
}

// openTx makes the sending socket. It shares packet memory and completion ring with the first queue's.
func (w *xdp) openTx(queue, rx, tx, chunk int) (err error) {
	t, q := w.tx, &w.queues[0]
	if t.fd, err = xdpSocket(); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(t.fd, unix.SOL_XDP, unix.XDP_TX_RING, 2*tx); err != nil {
		return fmt.Errorf("ring of %d entries: %w", 2*tx, err)
	}
	var at unix.XDPMmapOffsets
	if err := getXDP(t.fd, unix.XDP_MMAP_OFFSETS, &at); err != nil {
		return fmt.Errorf("offsets of the ring: %w", err)
	}
	if t.ring, err = mapXRing(t.fd, unix.XDP_PGOFF_TX_RING, at.Tx, 2*tx, true); err != nil {
		return err
	}
	unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20) // as much of it as the system allows
	err = unix.Bind(t.fd, &unix.SockaddrXDP{Flags: unix.XDP_SHARED_UMEM, Ifindex: uint32(w.info.IfIndex), QueueID: uint32(queue), SharedUmemFD: uint32(q.fd)})
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	var options uint32
	if err := getXDP(q.fd, unix.XDP_OPTIONS, &options); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	t.zero = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	t.umem, t.stride, t.first, t.longest, t.comp = q.mem, uint64(q.stride), uint64(rx*q.stride), w.info.MaxFrame, &q.comp
	t.lens, t.again, t.free = make([]int32, tx), make([]uint32, tx), make([]uint64, 0, tx)
	if err := t.openLending(q, wholePages((rx+tx)*q.stride), tx, chunk, q.stride == chunk); err != nil {
		return err
	}
	lines := (chunk - max(t.longest, MinFrame)) / unitBytes // for chunks without a line between them
	for i := tx - 1; i >= 0; i-- {
		t.free = append(t.free, t.first+uint64(i*q.stride+i%(lines+1)*unitBytes))
	}
	return nil
}

// attach puts the program on the interface: it hands what a queue with a socket receives to that, and leaves the
// rest to the kernel.
func (w *xdp) attach(mode XDPMode) error {
	err := withMemlock(unix.EPERM, func() (err error) { // which old kernels say for too little RLIMIT_MEMLOCK, too
		w.socks, err = ebpf.NewMap(&ebpf.MapSpec{Name: "bluering", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: xdpMaxQueue})
		return err
	})
	if err == nil {
		err = withMemlock(unix.EPERM, func() (err error) { w.prog, err = w.load(); return err })
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("no privilege for BPF: %w; run as root, or: %s", unix.EPERM, setcapLine(xdpCaps))
	}
	if err != nil {
		return fmt.Errorf("BPF program: %w", err)
	}
	for i := range w.queues {
		q := &w.queues[i]
		if err := w.socks.Put(uint32(q.index), uint32(q.fd)); err != nil {
			return fmt.Errorf("queue %d: %w", q.index, err)
		}
	}
	return w.attachAs(mode)
}

func (w *xdp) attachAs(mode XDPMode) error {
	flags := bpflink.XDPDriverMode
	if mode == XDPGeneric {
		flags = bpflink.XDPGenericMode
	}
	l, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: w.prog, Interface: w.info.IfIndex, Flags: flags})
	name := flagName(flags)
	switch {
	case err == nil:
		w.link = l
		return nil
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST):
		there, _ := w.programThere()
		return fmt.Errorf("%w: %s: it stays", ErrXDPInUse, there)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("no privilege to attach an XDP program: %w; run as root, or: %s", unix.EPERM, setcapLine(xdpCaps))
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("this kernel cannot link XDP programs to interfaces (Linux 5.9 is needed): %w", err)
	case mode == XDPAuto:
		if err2 := w.attachAs(XDPGeneric); err2 != nil {
			return fmt.Errorf("the driver refuses the XDP program: %w; and generic: %w", err, err2)
		}
		return nil
	}
	return fmt.Errorf("the kernel refuses the XDP program, mode=%s: %w", name, err)
}

func flagName(f bpflink.XDPAttachFlags) string {
	if f == bpflink.XDPGenericMode {
		return XDPGeneric.String()
	}
	return XDPNative.String()
}

// programThere describes the program that is on the interface, if one is seen there.
func (w *xdp) programThere() (description string, ok bool) {
	l, err := netlink.LinkByIndex(w.info.IfIndex)
	if err != nil || l.Attrs().Xdp == nil || !l.Attrs().Xdp.Attached {
		return "an unknown one", false
	}
	return fmt.Sprintf("program %d (ip link shows it)", l.Attrs().Xdp.ProgId), true
}

const (
	xdpPass   = 2      // XDP_PASS of linux/bpf.h
	takeFrame = "take" // label of what load adds
)

// load makes a program that begins with front, which leaves the context in R1, and ends, in C:
//
//	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
func (w *xdp) load(front ...asm.Instruction) (*ebpf.Program, error) {
	const rxQueueIndex = 16 // in struct xdp_md of linux/bpf.h
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bluering", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: append(front,
			asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word).WithSymbol(takeFrame),
			asm.LoadMapPtr(asm.R1, w.socks.FD()),
			asm.Mov.Imm(asm.R3, xdpPass),
			asm.FnRedirectMap.Call(),
			asm.Return(),
		),
	})
}

// watch lets a wait end when a queue has frames. A queue tells when the interface vanished, though another came under its
// name.
func (w *xdp) watch() error {
	if err := w.wait.open(); err != nil {
		return err
	}
	for i := range w.queues {
		fd := w.queues[i].fd
		if err := w.wait.add(fd); err != nil {
			return err
		}
		w.checked = append(w.checked, fd)
	}
	return nil
}

// withMemlock does f, and if that fails with lack, once more with the limit on locked memory raised, which is restored.
// Kernels since 5.11 count no BPF memory there, and none counts packet memory of a process with CAP_IPC_LOCK.
func withMemlock(lack unix.Errno, f func() error) error {
	err := f()
	var was unix.Rlimit
	if !errors.Is(err, lack) || unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was) != nil || was.Cur == unix.RLIM_INFINITY {
		return err
	}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) != nil &&
		unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: was.Max, Max: was.Max}) != nil { // without CAP_SYS_RESOURCE
		return err
	}
	err = f()
	return errors.Join(err, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was))
}
