package ud

import (
	"encoding/binary"
	"testing"

	"github.com/bluering/bluering/engine"
)

// Datagrams that are lost, late, doubled or broken are that and nothing else: what comes is whole, and what does not
// is counted.
func TestLateAndDoubleDatagrams(t *testing.T) {
	a, b, toB, _ := pair(t, "loop:impaired?loss=0.05&dup=0.05&reorder=0.1&corrupt=0.05&delay=10us&seed=7", "loop:impaired", Config{}, Config{RecvDepth: 1024})
	const total = 20_000
	seen := make([]uint8, total)
	msgs := make([]Msg, 64)
	sent, got, late, last := 0, 0, 0, -1
	for idle := 0; idle < 20_000; idle++ {
		for range 16 {
			if sent == total {
				break
			}
			buf, err := a.Reserve(toB, 12)
			if err != nil {
				break
			}
			binary.BigEndian.PutUint64(buf, uint64(sent))
			binary.BigEndian.PutUint32(buf[8:], uint32(sent)*2654435761)
			sent++
		}
		check(t, a.Commit())
		n := b.Poll(msgs)
		for i := range msgs[:n] {
			d := msgs[i].Data
			seq := int(binary.BigEndian.Uint64(d))
			if len(d) != 12 || seq < 0 || seq >= sent || binary.BigEndian.Uint32(d[8:]) != uint32(seq)*2654435761 {
				t.Fatalf("%d bytes: % x", len(d), d)
			}
			if seen[seq]++; seq < last {
				late++
			}
			last = seq
			msgs[i].Release()
		}
		if got += n; n != 0 || sent < total {
			idle = 0
		}
	}
	unique, double := 0, 0
	for _, n := range seen {
		unique += min(int(n), 1)
		double += max(int(n)-1, 0)
	}
	corrupt := int(b.dev.Counters().Drops[engine.DropChecksum])
	t.Logf("%d sent, %d unique, %d double, %d late, %d broken", sent, unique, double, late, corrupt)
	if sent != total || unique == total || double == 0 || late == 0 || corrupt == 0 || unique+double != got || int(b.Counts().Received) != got {
		t.Errorf("%d sent, %d received: %+v", sent, got, b.Counts())
	}
	check(t, b.Err())
}
