package device_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// wireRow is a pair of devices that one cycle opens, uses and closes.
type wireRow struct {
	tx, rx string
	// after: the receiver is opened when the sender is closed.
	after bool
	// frame is what passes; nil: leakFrame.
	frame []byte
}

// leakFrame is a frame of the EtherType for local experiments.
var leakFrame = append([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5"), make([]byte, 46)...)

// wireRows has the ways in which each scheme's wire holds resources of the system. A scheme without a row fails
// TestNothingIsLeftOfAWire.
var wireRows = map[string]func(t *testing.T) []wireRow{
	"loop": func(t *testing.T) []wireRow {
		var rows []wireRow
		for _, q := range []string{"", "?mode=goroutine", "?speed=10gbps", "?delay=1us&seed=3", "?profile=mlx5&inline=18"} {
			rows = append(rows, wireRow{tx: "loop:leak" + q, rx: "loop:leak" + q})
		}
		return rows
	},
	"packet": func(t *testing.T) []wireRow {
		a, b, ns := nstest.Veth(t)
		var rows []wireRow
		for _, q := range []string{"", "?send=mmsg", "?send=ring", "?mode=goroutine"} {
			rows = append(rows, wireRow{tx: "packet:" + a + q, rx: "packet:" + b + "?netns=" + ns})
		}
		return rows
	},
	"xdp": func(t *testing.T) []wireRow {
		nstest.Root(t)
		a, b, ns := nstest.VethQueues(t, 2)
		var rows []wireRow
		for _, q := range []string{"?mode=native", "?mode=generic&mode=goroutine"} {
			rows = append(rows, wireRow{tx: "xdp:" + a + q, rx: "xdp:" + b + q + "&netns=" + ns})
		}
		return rows
	},
	"udp": func(t *testing.T) []wireRow {
		src, dst := [4]byte{127, 78, byte(os.Getpid()), 1}, [4]byte{127, 78, byte(os.Getpid()), 2}
		uri := func(a [4]byte) string { return "udp:" + netip.AddrFrom4(a).String() }
		return []wireRow{{tx: uri(src), rx: uri(dst) + "?rcvbuf=64KiB", frame: emptyDatagram(src, dst)}}
	},
	"pcap": func(t *testing.T) []wireRow {
		file := "pcap:" + filepath.Join(t.TempDir(), "leak.pcapng")
		return []wireRow{{tx: file, rx: file + "?mode=read", after: true}}
	},
}

// emptyDatagram is a RoCE v2 frame of a UD SEND without payload.
func emptyDatagram(src, dst [4]byte) []byte {
	f := make([]byte, 14+20+8+20+4)
	f[12], f[14], f[17], f[20], f[22], f[23] = 8, 0x45, byte(len(f)-14), 0x40, 1, 17
	copy(f[26:], src[:])
	copy(f[30:], dst[:])
	binary.BigEndian.PutUint16(f[24:], csum.Finish(csum.Sum(f[14:34], 0)))
	binary.BigEndian.PutUint32(f[34:], proto.RoCEPort<<16|proto.RoCEPort)
	f[39] = byte(len(f) - 34)
	(&proto.UD{Opcode: proto.OpUDSend, PKey: 0xffff, DestQP: 17, SrcQP: 18}).Put(f[42:])
	proto.PutICRC(f[62:], proto.ICRC(f[14:], 4, 20, 48))
	return f
}

// TestNothingIsLeftOfAWire: descriptors, mappings and goroutines are as many after many cycles of opening, using
// and closing as after few. The short form has 12 cycles a row; make leaks has CYCLES.
func TestNothingIsLeftOfAWire(t *testing.T) {
	cycles := 12
	if s := os.Getenv("BLUERING_LEAK_CYCLES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("BLUERING_LEAK_CYCLES=%q: want a number from 1", s)
		}
		cycles = n
	}
	spareThreads()
	for _, s := range device.Schemes() {
		t.Run(s.Name, func(t *testing.T) {
			rows := wireRows[s.Name]
			if rows == nil {
				t.Fatalf("no row for %s: in wireRows", s.Name)
			}
			for _, row := range rows(t) {
				flat(t, cycles, row)
			}
		})
	}
}

// spareThreads has the runtime start threads now that it would start at some time anyway: each has a stack, and
// with cgo an arena, that look like a leak while they come one by one.
func spareThreads() {
	const threads = 32
	var all, done sync.WaitGroup
	all.Add(threads)
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}

// flat runs the cycles in four parts. The runtime takes descriptors and goroutines at the start only, but memory
// of its own, in hundreds of kilobytes, at times that nobody knows: what a cycle leaves is there after each part,
// so the part that left least is judged.
func flat(t *testing.T, cycles int, row wireRow) {
	t.Helper()
	const warm, parts = 4, 4
	for range warm {
		cycle(t, row)
	}
	first := held(t)
	before, mappings, bytes := first, int64(1)<<62, int64(1)<<62
	for part := range parts {
		for range (cycles + part) / parts {
			cycle(t, row)
		}
		after := held(t)
		mappings = min(mappings, int64(after.mappings-before.mappings))
		bytes = min(bytes, int64(after.bytes-before.bytes))
		before = after
	}
	last := before
	for end := time.Now().Add(10 * time.Second); last.goroutines > first.goroutines && time.Now().Before(end); runtime.Gosched() {
		last = held(t) // a goroutine that has told its end may still be on its way out
	}
	t.Logf("%s: %d cycles: %v, then %v", row.tx, cycles, first, last)
	if last.descriptors > first.descriptors || last.goroutines > first.goroutines {
		t.Errorf("%s: after %d cycles %v, before %v", row.tx, cycles, last, first)
	}
	if least := int64(cycles / parts); mappings >= least || bytes >= least*int64(os.Getpagesize()) {
		t.Errorf("%s: %d cycles leave at least %d mappings and %d bytes", row.tx, least, mappings, bytes)
	}
}

// holding is what a process has of the system.
type holding struct {
	descriptors, mappings, goroutines int
	bytes                             uint64 // of the mappings
}

func (h holding) String() string {
	return fmt.Sprintf("%d descriptors, %d mappings (%d KiB), %d goroutines", h.descriptors, h.mappings, h.bytes>>10, h.goroutines)
}

func held(t *testing.T) (h holding) {
	t.Helper()
	runtime.GC() // a forgotten finalizer must not hide a leak, nor garbage look like one
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	h.descriptors, h.goroutines = len(fds), runtime.NumGoroutine()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		h.mappings++
		span, _, _ := strings.Cut(s.Text(), " ")
		lo, hi, _ := strings.Cut(span, "-")
		from, err1 := strconv.ParseUint(lo, 16, 64)
		to, err2 := strconv.ParseUint(hi, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		h.bytes += to - from
	}
	return h
}

// cycle opens both devices, sends three frames through them, receives them where a frame can, and closes all.
func cycle(t *testing.T, row wireRow) {
	t.Helper()
	const count = 3
	frame := row.frame
	if frame == nil {
		frame = leakFrame
	}
	var rx *end
	if !row.after {
		rx = openEnd(t, row.rx)
	}
	tx := openEnd(t, row.tx)
	q := tx.port.Tx(0)
	bufs, lens := make([][]byte, count), make([]int, count)
	if n := q.Reserve(bufs); n != count {
		t.Fatalf("%s: room for %d frames", row.tx, n)
	}
	for i := range bufs {
		lens[i] = copy(bufs[i], frame)
	}
	if _, err := q.Commit(lens); err != nil {
		t.Fatalf("%s: %v", row.tx, err)
	}
	if err := q.Flush(); err != nil {
		t.Fatalf("%s: %v", row.tx, err)
	}
	for end := time.Now().Add(10 * time.Second); q.Outstanding() > 0; q.Reclaim() {
		if q.Err() != nil || time.Now().After(end) {
			t.Fatalf("%s: %d frames have not left: %v", row.tx, q.Outstanding(), q.Err())
		}
	}
	if row.after {
		tx.close(t)
		rx = openEnd(t, row.rx)
	}
	frames, got := make([]raw.RxFrame, count), 0
	for end := time.Now().Add(10 * time.Second); got < count; {
		n := rx.port.Rx(0).Poll(frames)
		rx.port.Rx(0).Release(n)
		if got += n; n == 0 {
			if time.Now().After(end) {
				t.Fatalf("%s: %d of %d frames came: %v", row.rx, got, count, rx.port.Rx(0).Err())
			}
			if err := rx.port.Device().Wait(1_000_000); err != nil { // so that what waiting needs is held, too
				t.Fatalf("%s: %v", row.rx, err)
			}
		}
	}
	if !row.after {
		tx.close(t)
	}
	rx.close(t)
}

// end is one device with a port on it.
type end struct {
	uri  string
	port *raw.Port
	ch   *engine.Channel
	cq   *engine.CQ
	srq  *engine.SRQ
}

func openEnd(t *testing.T, uri string) *end {
	t.Helper()
	d, err := device.Open(uri, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := raw.NewPort(d, raw.PortConfig{TxDepth: 16, RxDepth: 16})
	if err != nil {
		t.Fatalf("%s: %v", uri, err)
	}
	e := &end{uri: uri, port: p}
	var errs [3]error
	e.ch, errs[0] = d.NewChannel()
	e.cq, errs[1] = d.NewCQOn(e.ch, 8)
	e.srq, errs[2] = d.DefaultPD().NewSRQ(engine.SRQConfig{MaxWR: 8})
	if err := errors.Join(errs[:]...); err != nil || e.ch.FD() < 0 {
		t.Fatalf("%s: descriptor %d: %v", uri, e.ch.FD(), err)
	}
	return e
}

var closes int // of ends

func (e *end) close(t *testing.T) {
	t.Helper()
	d := e.port.Device()
	if closes++; closes%2 == 0 { // with the device, or one by one
		if err := errors.Join(e.srq.Close(), e.cq.Close(), e.ch.Close()); err != nil {
			t.Fatalf("%s: %v", e.uri, err)
		}
	}
	if err := errors.Join(e.port.Close(), d.Close()); err != nil {
		t.Fatalf("%s: %v", e.uri, err)
	}
}
