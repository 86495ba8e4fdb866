package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/internal/clock"
)

func TestPCAPComesBack(t *testing.T) {
	for _, name := range []string{"a.pcap", "a.PCAP", "a.pcapng", "a"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			clk := &clock.Virtual{}
			w, err := OpenPCAP(path, PCAPOptions{Clock: clk})
			if err != nil {
				t.Fatal(err)
			}
			const count = 1000
			length := func(k uint64) int { return 60 + int(k*37%8900) }
			for k := range uint64(count) {
				clk.Set(int64(1000 + k*7))
				if !sendOne(t, w, length(k), k) {
					t.Fatal("no room")
				}
			}
			if err := errors.Join(w.Close(), w.Close()); err != nil || statsOf(w).TxFrames != count {
				t.Fatal(err)
			}
			r, err := OpenPCAP(path, PCAPOptions{Read: true, Clock: clk})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			rnd := rand.New(rand.NewPCG(1, 2))
			frames := make([]Frame, 100)
			for k := uint64(0); k < count; {
				n := r.Next(frames[:1+rnd.IntN(99)])
				for i, f := range frames[:n] {
					if err := checkFilled(f.Data, k+uint64(i), length(k+uint64(i))); err != nil || f.TimeNS != int64(1000+(k+uint64(i))*7) {
						t.Fatal(err, f.TimeNS)
					}
				}
				n = rnd.IntN(n + 1)
				r.Release(n)
				k += uint64(n)
			}
			if s := statsOf(r); r.Next(frames) != 0 || r.Err() != nil || s.RxFrames != count {
				t.Errorf("at the end: %v, %+v", r.Err(), s)
			}
			t.Run("capinfos", func(t *testing.T) {
				tool, err := exec.LookPath("capinfos")
				if err != nil {
					t.Skipf("needs capinfos: %v", err)
				}
				out, err := exec.Command(tool, "-M", "-c", path).CombinedOutput()
				if err != nil || !strings.Contains(string(out), "1000") {
					t.Errorf("%v %s", err, out)
				}
			})
		})
	}
}

func TestPCAPErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.pcap")
	if err := os.WriteFile(bad, []byte("this is no recording at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.pcap")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		o    PCAPOptions
	}{{bad, PCAPOptions{Read: true}}, {empty, PCAPOptions{Read: true}}, {filepath.Join(dir, "none"), PCAPOptions{Read: true}}, {filepath.Join(dir, "no", "dir"), PCAPOptions{}}} {
		if _, err := OpenPCAP(c.path, c.o); err == nil || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}

func TestPCAPCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cut.pcap")
	w, err := OpenPCAP(path, PCAPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sendOne(t, w, 100, 0)
	sendOne(t, w, 100, 1)
	w.Close()
	if err := os.Truncate(path, 24+16+100+16+50); err != nil {
		t.Fatal(err)
	}
	r, err := OpenPCAP(path, PCAPOptions{Read: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frames := make([]Frame, 8)
	if n := r.Next(frames); n != 1 || checkFilled(frames[0].Data, 0, 100) != nil {
		t.Errorf("%d frames", n)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if n := r.Reserve([]int32{60}, make([][]byte, 1)); n != 0 || !errors.Is(r.Flush(), ErrReadOnly) || r.Flush() != nil {
		t.Error("a recording that is read takes frames")
	}
}

func TestPCAPWriteFails(t *testing.T) {
	w, err := OpenPCAP("/dev/full", PCAPOptions{})
	if err != nil {
		t.Skip(err)
	}
	for w.Err() == nil {
		var bufs [1][]byte
		w.Reserve([]int32{9000}, bufs[:])
		w.Commit(1)
		w.Flush()
	}
	s := statsOf(w)
	if err := w.Err(); !strings.Contains(err.Error(), "/dev/full") || s.TxErrors == 0 || w.Pending() != 0 {
		t.Errorf("%v %+v", err, s)
	}
	if err := w.Close(); err == nil {
		t.Error("an incomplete file is closed without an error")
	}
}

// smallDisk is a file on a disk with little room.
type smallDisk struct {
	*os.File
	room int
}

func (d *smallDisk) Write(p []byte) (int, error) {
	n, err := d.File.Write(p[:min(len(p), d.room)])
	d.room -= n
	if err == nil && n < len(p) {
		err = &os.PathError{Op: "write", Path: d.Name(), Err: syscall.ENOSPC}
	}
	return n, err
}

// TestPCAPCountsWhatTheFileHas: a disk that fills up takes some of a piece.
func TestPCAPCountsWhatTheFileHas(t *testing.T) {
	for _, name := range []string{"full.pcap", "full.pcapng"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			w, err := OpenPCAP(path, PCAPOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p := w.(*pcapWriter)
			p.file = &smallDisk{p.file.(*os.File), 7500}
			send := func(first, count uint64) {
				for k := first; k < first+count; k++ {
					if !sendOne(t, w, 1000, k) {
						t.Fatal("no room")
					}
				}
			}
			send(0, 3)
			if s := statsOf(w); s.TxFrames != 0 || w.Pending() != 3 {
				t.Errorf("before they are written: %+v, %d pending", s, w.Pending())
			}
			if err := w.Flush(); err != nil || w.Pending() != 0 || statsOf(w).TxFrames != 3 || statsOf(w).TxBytes != 3000 {
				t.Errorf("%v: %+v, %d pending", err, statsOf(w), w.Pending())
			}
			send(3, 10)
			if err := w.Flush(); !errors.Is(err, syscall.ENOSPC) || w.Err() == nil || w.Pending() != 0 {
				t.Errorf("%v: %v, %d pending", err, w.Err(), w.Pending())
			}
			if s := statsOf(w); s.TxFrames != 7 || s.TxErrors != 6 || s.TxBytes != 7000 {
				t.Errorf("on the full disk: %+v", s)
			}
			if err := w.Close(); !errors.Is(err, syscall.ENOSPC) || strings.Count(err.Error(), path) != 1 {
				t.Error(err)
			}
			r, err := OpenPCAP(path, PCAPOptions{Read: true})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if n := r.Next(make([]Frame, 20)); n != 7 || r.Err() != nil {
				t.Errorf("the file has %d frames: %v", n, r.Err())
			}
		})
	}
}

// TestTapRecordsBothDirections reads the recording by gopacket.
func TestTapRecordsBothDirections(t *testing.T) {
	clk := &clock.Virtual{}
	clk.Set(5e9)
	a, b := pairOf(t, LoopOptions{Clock: clk})
	var out bytes.Buffer
	tap, err := NewTap(a, &out, clk)
	if err != nil {
		t.Fatal(err)
	}
	sendOne(t, tap, 60, 1)
	clk.Advance(1)
	sendOne(t, b, 70, 2)
	sendOne(t, b, 80, 3)
	frames := make([]Frame, 4)
	for range 3 { // looking does not record
		if n := tap.Next(frames); n != 2 {
			t.Fatal(n)
		}
	}
	tap.Release(1)
	clk.Advance(1)
	tap.Release(1)
	if err := tap.Close(); err != nil || tap.Recorded() != 3 {
		t.Fatal(err, tap.Recorded())
	}
	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []pcapgo.NgEpbFlag{pcapgo.NgEpbFlagDirectionOutbound, pcapgo.NgEpbFlagDirectionInbound, pcapgo.NgEpbFlagDirectionInbound} {
		data, ci, o, err := r.ReadPacketDataWithOptions()
		if err != nil || o.Flags == nil || o.Flags.Direction != want || ci.Timestamp.UnixNano() != 5e9+int64(i) {
			t.Fatalf("frame %d: %v %+v %+v", i, err, ci, o)
		}
		if err := checkFilled(data, uint64(i+1), 60+10*i); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Error(err)
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestTapThatCannotWriteLetsFramesPass(t *testing.T) {
	a, b := pairOf(t, LoopOptions{})
	tap, err := NewTap(a, fullWriter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) {
		sendOne(t, tap, 1000, i)
	}
	frames := make([]Frame, 100)
	if n := b.Next(frames); n != 100 || tap.RecordErr() == nil {
		t.Errorf("%d frames, %v", n, tap.RecordErr())
	}
	if err := tap.Close(); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Error(err)
	}
}
