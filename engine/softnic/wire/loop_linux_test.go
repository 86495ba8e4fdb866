package wire

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func readable(t *testing.T, fd int, timeoutMS int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, timeoutMS)
	for err == unix.EINTR { // the runtime preempts by signals
		n, err = unix.Poll(p, timeoutMS)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestLoopDescriptor(t *testing.T) {
	const longMS = 20000
	for name, o := range map[string]LoopOptions{"eventfd": {}, "timerfd": {SpeedBPS: 1e9}} {
		t.Run(name, func(t *testing.T) {
			o.MTU, o.Capacity = 1500, 8<<10
			a, b := pairOf(t, o)
			frames := make([]Frame, 200)
			if readable(t, b.FD(), 0) {
				t.Error("readable without a frame")
			}
			sendOne(t, a, 60, 0)
			if !readable(t, b.FD(), longMS) {
				t.Error("not readable with a frame")
			}
			for b.Next(frames) == 0 {
			}
			b.Release(1)
			if readable(t, b.FD(), 0) {
				t.Error("still readable")
			}
			if b.Next(frames) != 0 {
				t.Error("a frame from nowhere")
			}
			sendOne(t, a, 60, 0)
			fd := a.FD()
			for b.Next(frames) == 0 {
			}
			b.Release(1)
			if readable(t, fd, 0) {
				t.Error("room wakes an end that has enough")
			}
			for sendOne(t, a, 60, 0) {
			}
			if readable(t, a.FD(), 0) {
				t.Error("readable while full")
			}
			for b.Next(frames) == 0 {
			}
			b.Release(1)
			if !readable(t, a.FD(), longMS) || !sendOne(t, a, 60, 0) {
				t.Error("room does not wake the sender")
			}
			for sendOne(t, a, 60, 0) {
			}
			fd = a.FD()
			b.Close()
			if !readable(t, fd, longMS) {
				t.Error("a closing port does not wake the sender")
			}
		})
	}
}

func TestImpairDescriptor(t *testing.T) {
	a, b := pairOf(t, LoopOptions{Impair: Impairs{Delay: 2 * time.Millisecond}})
	frames := make([]Frame, 4)
	for range 3 {
		if readable(t, b.FD(), 0) {
			t.Error("readable without a frame")
		}
		sendOne(t, a, 60, 0)
		for n := 0; n == 0; {
			if !readable(t, b.FD(), 20000) {
				t.Fatal("a delayed frame does not wake its receiver")
			}
			n = b.Next(frames)
			b.Release(n)
		}
	}
	before := openFiles(t)
	w, err := OpenLoop(LoopOptions{Name: "another", Impair: Impairs{Loss: 1}})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	w.Close()
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
