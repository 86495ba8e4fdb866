package softnic

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// onRecording opens a NIC on a recording.
func onRecording(t *testing.T, path string, o wire.PCAPOptions) *NIC {
	t.Helper()
	w, err := wire.OpenPCAP(path, o)
	if err != nil {
		t.Skip(err)
	}
	n, err := New(w, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// flushed wants all the host's posted sends back with the flush syndrome.
func flushed(t *testing.T, h *host) {
	t.Helper()
	for range 4 {
		h.nic.Step(64)
	}
	for _, d := range h.sends() {
		if d.op != ring.CQEReqErr || d.syndrome != ring.SynFlushed {
			t.Errorf("completed as %+v", d)
		}
	}
	if n := h.sq.Outstanding(); n != 0 {
		t.Errorf("%d sends are outstanding for ever", n)
	}
}

func TestReadOnlyWireFailsWhatIsSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	if err := onRecording(t, path, wire.PCAPOptions{}).Close(); err != nil {
		t.Fatal(err)
	}
	n := onRecording(t, path, wire.PCAPOptions{Read: true})
	if err := n.Err(); err != nil {
		t.Fatalf("before anything was sent: %v", err)
	}
	h := newHost(t, n, hostConfig{})
	for k := range uint64(10) {
		h.post(k, true, nil, nil, h.seg(0, 60))
	}
	h.ring()
	flushed(t, h)
	if err := n.Err(); !errors.Is(err, wire.ErrReadOnly) {
		t.Errorf("the device says %v", err)
	}
	var c engine.Counters
	if n.Counters(&c); c.TxFrames != 0 || c.TxFlushed != 10 {
		t.Errorf("%+v", c)
	}
}

func TestFullDiskIsTheDevicesError(t *testing.T) {
	n := onRecording(t, "/dev/full", wire.PCAPOptions{})
	h := newHost(t, n, hostConfig{})
	for k := range uint64(10) {
		h.post(k, true, nil, nil, h.seg(0, 60))
	}
	h.ring()
	var c engine.Counters
	if n.Counters(&c); c.TxFrames != 10 || c.TxLost != 10 || c.TxLostBytes != 600 {
		t.Errorf("%+v", c)
	}
	if err := n.Err(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the device says %v", err)
	}
	h.sends() // of the frames that were in the buffer
	h.post(11, true, nil, nil, h.seg(0, 60))
	h.ring()
	flushed(t, h)
}
