package bench

import (
	"fmt"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
)

// BenchmarkLoop takes frames from the send request to both completions over loop:, in one goroutine and bursts of 64,
// with a send completion for each packet or for one in 64. Requests are posted, or those of an image re-armed. It has
// no baseline: the figure is what the host's and the device's halves of both ends cost together.
func BenchmarkLoop(b *testing.B) {
	for _, bytes := range []int{60, 1514} {
		for _, every := range []int{1, 64} {
			for _, rearm := range []bool{false, true} {
				name := fmt.Sprintf("size=%d/burst=64/signal=%d/rearm=%t", bytes, every, rearm)
				b.Run(name, func(b *testing.B) {
					l := newLoopPair(b, bytes, every, rearm)
					contest{packets: depth, ours: func() {
						for range depth / burst {
							l.round(b)
						}
					}}.run(b)
				})
			}
		}
	}
}

// loopPair is a sender and a receiver on the two ports of a loop.
type loopPair struct {
	tx, rx     *engine.QP
	txCQ, rxCQ *engine.CQ
	wrs        []engine.SendWR
	recvs      []engine.RecvWR
	wc         [burst]engine.Completion
	image      *engine.Image // nil: requests are posted
	bytes      uint32
	every      int // packets to a send completion
}

func newLoopPair(b *testing.B, bytes, every int, rearm bool) *loopPair {
	b.Helper()
	l := &loopPair{bytes: uint32(bytes), every: every, wrs: make([]engine.SendWR, burst), recvs: make([]engine.RecvWR, burst)}
	open := func() *engine.Device {
		d, err := device.Open("loop:bench", device.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := d.Close(); err != nil {
				b.Error(err)
			}
		})
		return d
	}
	from, to := open(), open()
	l.tx, l.txCQ = newQP(b, from, rearm && every == 1)
	l.rx, l.rxCQ = newReceiver(b, to)
	fromPool, err := from.DefaultPD().AllocPool(burst, 2048)
	if err != nil {
		b.Fatal(err)
	}
	toPool, err := to.DefaultPD().AllocPool(burst, 2048)
	if err != nil {
		b.Fatal(err)
	}
	dst, src := to.Caps().MAC, from.Caps().MAC
	for i := range burst {
		frame, _ := fromPool.Get()
		header := append(append(append([]byte(nil), dst[:]...), src[:]...), 0x88, 0xb5) // an EtherType for experiments
		copy(fromPool.Bytes(frame), header)
		l.wrs[i] = engine.SendWR{ID: uint64(i), Opcode: engine.OpSend, SGEs: []engine.SGE{fromPool.SGE(frame, bytes)}}
		frame, _ = toPool.Get()
		l.recvs[i] = engine.RecvWR{ID: uint64(i), SGEs: []engine.SGE{toPool.SGE(frame, 2048)}}
	}
	for i := every - 1; i < burst; i += every {
		l.wrs[i].Flags = engine.Signaled
	}
	if rearm {
		if l.image, err = l.tx.NewImage(engine.ImageConfig{Frame: fromPool.Bytes(0)[:bytes], SignalEvery: every}); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

func newReceiver(b *testing.B, d *engine.Device) (*engine.QP, *engine.CQ) {
	b.Helper()
	cq, err := d.NewCQ(2 * burst)
	if err != nil {
		b.Fatal(err)
	}
	qp, err := d.DefaultPD().NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq, MaxRecvWR: burst})
	if err != nil {
		b.Fatal(err)
	}
	if err := qp.MoveTo(engine.StateRTR, engine.QPAttr{}); err != nil {
		b.Fatal(err)
	}
	if _, err := qp.Attach(engine.FlowRule{Kind: engine.FlowAll}); err != nil {
		b.Fatal(err)
	}
	return qp, cq
}

// round sends one burst and polls both ends until all of it has completed.
func (l *loopPair) round(b *testing.B) {
	if _, err := l.rx.PostRecv(l.recvs); err != nil {
		b.Fatal(err)
	}
	l.post(b)
	for received, sent := 0, 0; received < burst || sent < burst/l.every; {
		n, err := l.txCQ.Poll(l.wc[:])
		if err != nil {
			b.Fatal(err)
		}
		sent += n
		if n, err = l.rxCQ.Poll(l.wc[:]); err != nil {
			b.Fatal(err)
		}
		for i := range n {
			if c := &l.wc[i]; c.Status != engine.StatusSuccess || c.ByteLen != l.bytes {
				b.Fatalf("completion %d: %v, %d bytes, want %d", i, c.Status, c.ByteLen, l.bytes)
			}
		}
		received += n
	}
}

// post sends one burst, which the ring has room for.
func (l *loopPair) post(b *testing.B) {
	if l.image == nil {
		if _, err := l.tx.Post(l.wrs); err != nil {
			b.Fatal(err)
		}
		return
	}
	for n := 0; n < burst; {
		_, got := l.image.Rearm(burst - n)
		n += got
	}
	if err := l.image.Publish(); err != nil {
		b.Fatal(err)
	}
}
