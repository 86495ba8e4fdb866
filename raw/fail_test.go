package raw

import (
	"errors"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
)

// openFailing gives a port whose frame k of the transmit pool names memory
// that nobody registered.
func openFailing(t *testing.T, k int) *Port {
	t.Helper()
	d, err := device.Open("loop:"+t.Name(), device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPort(d, PortConfig{TxDepth: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	p.tx[0].sges[k].MR = engine.MRFromKey(0xdead00, 0, 1<<20)
	return p
}

func TestAFailedFrameIsCountedAndTold(t *testing.T) {
	q := openFailing(t, 1).Tx(0)
	bufs := make([][]byte, 4)
	if n := q.Reserve(bufs); n != 4 {
		t.Fatal(n)
	}
	if n, err := q.Commit([]int{60, 60, 60, 60}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		q.Reclaim()
	}
	if c := q.Counts(); c != (TxCounts{Frames: 1, Bytes: 60, Errors: 3}) || q.Outstanding() != 0 {
		t.Errorf("%+v, %d outstanding", c, q.Outstanding())
	}
	if !errors.Is(q.Err(), engine.StatusLocProt) {
		t.Errorf("Err is %v", q.Err())
	}
	lens := []int{60}
	if n := testing.AllocsPerRun(50, func() {
		q.Reserve(bufs)
		_, _ = q.Commit(lens)
		_ = q.Flush()
		q.Reclaim()
	}); n != 0 {
		t.Errorf("%v allocations on a failed queue", n)
	}
	if c := q.Counts(); c.Frames != 1 || c.Errors < 50 {
		t.Errorf("a failed queue counts %+v", c)
	}
}
