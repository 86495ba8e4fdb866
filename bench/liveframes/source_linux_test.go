package liveframes_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/bench/liveframes"
	"github.com/bluering/bluering/internal/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// pair is a veth whose far end counts and drops in XDP, and a source of 60-byte frames at its near end.
func pair(t *testing.T) (s *liveframes.Source, counts func() nstest.Counters) {
	t.Helper()
	nstest.Root(t)
	a, b, ns := nstest.Veth(t)
	var drop io.Closer
	nstest.Do(t, ns, func() (err error) {
		i, err := net.InterfaceByName(b)
		if err == nil {
			drop, err = liveframes.AttachDrop(i.Index)
		}
		return err
	})
	t.Cleanup(func() {
		if err := drop.Close(); err != nil {
			t.Error(err)
		}
	})
	i, err := net.InterfaceByName(a)
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 60)
	copy(frame, "\x02\x00\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x0a\x88\xb5")
	if s, err = liveframes.Open(i.Index, frame); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	before := nstest.Count(t, ns, b)
	return s, func() nstest.Counters { return nstest.Count(t, ns, b).Sub(before) }
}

// The kernel counts, at the receiver, each frame that was sent: received, or dropped because its ring was full.
func TestTheKernelCountsEveryFrameSent(t *testing.T) {
	s, counts := pair(t)
	sent := uint64(0)
	for _, n := range []uint64{1, 63, 64, 65, 1000, 200_000} {
		if err := s.Send(n); err != nil {
			t.Fatal(err)
		}
		sent += n
		got := counts()
		for got.RxFrames+got.RxDropped < sent { // its NAPI may still be at it, on another processor
			runtime.Gosched()
			got = counts()
		}
		if got.RxFrames+got.RxDropped != sent || got.RxFrames == 0 {
			t.Fatalf("sent %d frames, the receiver counts %d and %d dropped", sent, got.RxFrames, got.RxDropped)
		}
		if got.RxBytes != 60*got.RxFrames {
			t.Fatalf("%d frames of 60 bytes are %d bytes", got.RxFrames, got.RxBytes)
		}
	}
}

func TestRunSendsUntilTheContextEnds(t *testing.T) {
	s, counts := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for counts().RxFrames < 100_000 && ctx.Err() == nil {
		runtime.Gosched()
	}
	if ctx.Err() != nil {
		t.Fatalf("%d frames in a minute", counts().RxFrames)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Send(64); err != nil {
		t.Errorf("after Run, Send: %v", err)
	}
}

func TestOpenNamesTheLength(t *testing.T) {
	for _, n := range []int{0, 13, liveframes.MaxFrame + 1} {
		if _, err := liveframes.Open(1, make([]byte, n)); err == nil || !strings.Contains(err.Error(), "want 14 to 3000") {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestSendWithoutAnInterfaceFails(t *testing.T) {
	nstest.Root(t)
	s, err := liveframes.Open(1<<30, make([]byte, 60))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(1); err == nil {
		t.Error("sent a frame by interface 1<<30")
	}
}
