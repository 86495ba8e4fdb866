package ud

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
)

func TestHotPathsAllocateNothing(t *testing.T) {
	for _, inline := range []int{0, 64} {
		eachWire(t, Config{Inline: inline}, Config{Inline: inline}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
			msgs := make([]Msg, 16)
			lost := 0
			round := func() {
				for range 4 {
					buf, err := a.Reserve(toB, 32)
					if err != nil {
						t.Fatal(err)
					}
					buf[0]++
				}
				check(t, a.Commit())
				echoed, back := 0, 0
				for tries := 0; back < 4; tries++ {
					for m := range b.Messages {
						if m.Reply(m.Data) != nil {
							lost++
						}
						echoed++
					}
					check(t, b.Commit())
					n := a.Poll(msgs)
					for i := range msgs[:n] {
						msgs[i].Release()
					}
					if back += n; tries == 1<<20 {
						t.Fatalf("%d echoed, %d back", echoed, back)
					}
				}
				if _, err := a.RecvSpin(0); err != ErrTimeout {
					t.Fatal(err)
				}
				if _, err := a.Reserve(toB, 1<<20); err != ErrLength {
					t.Fatal(err)
				}
			}
			round() // the first answer finds its way
			if n := testing.AllocsPerRun(200, round); n != 0 || lost != 0 {
				t.Errorf("%v allocations for four datagrams and their answers, %d lost", n, lost)
			}
		})
	}
}

// A million datagrams are accounted for to the unit, on every wire.
func TestAMillionDatagrams(t *testing.T) {
	total := uint64(1_000_000)
	if testing.Short() || raceBuild {
		total = 50_000
	}
	eachWire(t, Config{SendDepth: 256}, Config{RecvDepth: 1024}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		before := b.dev.Counters()
		var sent, got, disorder uint64
		next := uint64(0)
		msgs := make([]Msg, 64)
		for idle := 0; idle < 1000; {
			for range 32 {
				buf, err := a.Reserve(toB, 16)
				if err != nil || sent == total {
					a.undo(err)
					break
				}
				binary.BigEndian.PutUint64(buf, sent)
				sent++
			}
			check(t, a.Commit())
			n := b.Poll(msgs)
			for i := range msgs[:n] {
				if s := binary.BigEndian.Uint64(msgs[i].Data); s < next {
					disorder++
				} else {
					next = s + 1
				}
				msgs[i].Release()
			}
			got += uint64(n)
			if idle++; n != 0 || sent < total {
				idle = 0
			}
		}
		after := b.dev.Counters()
		drops := uint64(0)
		for r := range after.Drops {
			if d := after.Drops[r] - before.Drops[r]; d != 0 {
				t.Logf("%d dropped: %v", d, engine.DropReason(r))
				drops += d
			}
		}
		if sent != total || got+drops != sent || disorder != 0 {
			t.Errorf("%d sent, %d received, %d dropped by name, %d out of order", sent, got, drops, disorder)
		}
		for range a.tx.wrs {
			a.Poll(msgs)
		}
		if c := a.Counts(); c.SendErrors != 0 || c.Sent+uint64(a.Outstanding()) != total {
			t.Errorf("the sender counts %+v, %d outstanding", c, a.Outstanding())
		}
	})
}

// undo drops the last reservation, of which a loop had no use.
func (e *Endpoint) undo(err error) {
	if err == nil {
		e.tx.made--
	}
}

// Whatever comes to the port of an endpoint, it is counted as dropped and the
// endpoint goes on.
func TestAFloodOfGarbageChangesNothing(t *testing.T) {
	a, b, toB, _ := pair(t, "udp:127.0.0.1", "udp:127.0.0.2", Config{}, Config{})
	c, err := net.Dial("udp", "127.0.0.2:4791")
	check(t, err)
	defer c.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	before := b.dev.Counters()
	const flood, good = 5000, 50
	written, got := 0, 0
	msgs := make([]Msg, 8)
	buf := make([]byte, 2000)
	for i := range flood {
		n := rng.IntN(1400)
		for k := range buf[:n] {
			buf[k] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 && n > 20 {
			copy(buf, []byte{0x64, 0x40, 0xff, 0xff, 0, byte(b.qp.QPN() >> 16), byte(b.qp.QPN() >> 8), byte(b.qp.QPN())}) // almost
		}
		if _, err := c.Write(buf[:n]); err == nil {
			written++
		}
		if i%(flood/good) == 0 {
			check(t, a.Send(toB, []byte("good")))
		}
		for _, m := range msgs[:b.Poll(msgs)] {
			if string(m.Data) != "good" {
				t.Fatalf("garbage came as %d bytes", len(m.Data))
			}
			got++
			m.Release()
		}
	}
	for end := time.Now().Add(within); time.Now().Before(end); {
		for _, m := range msgs[:b.Poll(msgs)] {
			got++
			m.Release()
		}
		drops := uint64(0)
		after := b.dev.Counters()
		for r := range after.Drops {
			drops += after.Drops[r] - before.Drops[r]
		}
		if got == good && int(drops) == written {
			return
		}
	}
	t.Errorf("%d of %d good ones came; %d of garbage written, counters %+v", got, good, written, b.dev.Counters())
}
