package liveframes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The verdicts of XDP that are used here (linux/bpf.h, enum xdp_action).
const (
	xdpDrop = 1
	xdpTX   = 3
)

const (
	// batch is how many frames the kernel handles between two flushes (batch_size of BPF_PROG_TEST_RUN, at most 256).
	batch = 64
	// maxRepeat is the most frames of one call, which counts them in 31 bits; it is a multiple of batch, because the
	// kernel finishes a batch that it has begun.
	maxRepeat = 1<<31 - batch
	// MaxFrame is the longest frame: what a page has left beside the kernel's headroom and tail (Linux, net/bpf/test_run.c).
	MaxFrame = 3000
	// minFrame is an Ethernet header.
	minFrame = 14
)

// Source sends copies of one frame from an interface. One goroutine uses it at a time.
type Source struct {
	prog    *ebpf.Program
	request testRun
	frame   []byte
	ctx     [6]uint32 // struct xdp_md
}

// Open prepares a source of frames that leave by the interface with this index, in the caller's network namespace,
// where Send and Run must be called too. The frame, without FCS, is copied. Close it.
func Open(ifindex int, frame []byte) (*Source, error) {
	if len(frame) < minFrame || len(frame) > MaxFrame {
		return nil, fmt.Errorf("liveframes: a frame of %d bytes; want %d to %d", len(frame), minFrame, MaxFrame)
	}
	prog, err := load(xdpTX)
	if err != nil {
		return nil, err
	}
	s := &Source{prog: prog, frame: append([]byte(nil), frame...)}
	s.ctx = [6]uint32{1: uint32(len(frame)), 3: uint32(ifindex)} // data_end and ingress_ifindex
	s.prepare()
	return s, nil
}

// load makes the XDP program that gives every frame the same verdict.
func load(verdict int32) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.XDP,
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("liveframes: load an XDP program: %w", err)
	}
	return prog, nil
}

// Send sends n frames and returns when the kernel has handed the last to the interface. How many arrived, the peer's
// counters tell: its ring may have been full. A signal to the thread ends it with EINTR after an unknown number.
func (s *Source) Send(n uint64) error {
	for n > 0 {
		part := min(n, maxRepeat)
		size := uint32(batch)
		if part < batch {
			size = uint32(part)
		} else {
			part -= part % batch // the rest goes in a batch of its own size
		}
		if err := s.run(uint32(part), size); err != nil {
			return fmt.Errorf("liveframes: send %d frames: %w", part, err)
		}
		n -= part
	}
	return nil
}

// Run sends as fast as it can until the context ends, which is no error. It keeps the thread, on whatever processor
// that is bound to, and the thread gets a signal at the end.
func (s *Source) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go interrupt(ctx, unix.Gettid(), ended, stopped)
	defer func() {
		close(ended)
		<-stopped // no signal comes after this
	}()
	for ctx.Err() == nil {
		if err := s.run(maxRepeat, batch); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("liveframes: run: %w", err)
		}
	}
	return nil
}

// interrupt ends the system call of the thread once the context has ended: the runtime's own signal for preemption,
// which its handler ignores, again and again, because one that comes just before the call is lost.
func interrupt(ctx context.Context, tid int, ended, stopped chan struct{}) {
	defer close(stopped)
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // the thread is there: Run waits for this goroutine
		select {
		case <-ended:
			return
		case <-again.C:
		}
	}
}

// Close lets go of the program.
func (s *Source) Close() error { return s.prog.Close() }

// AttachDrop has an interface of the caller's network namespace drop, after counting, all that it receives, in its
// driver, before there is an skb. It turns NAPI on, which a source at the other end of a veth needs. Closing what is
// returned takes the program away.
func AttachDrop(ifindex int) (io.Closer, error) {
	prog, err := load(xdpDrop)
	if err != nil {
		return nil, err
	}
	defer prog.Close() // the link holds it
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("liveframes: attach to interface %d: %w", ifindex, err)
	}
	return l, nil
}
