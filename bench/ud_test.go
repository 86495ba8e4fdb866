package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/ud"
)

// BenchmarkDatagram takes datagrams from the send request to both completions over loop:, in one goroutine and bursts
// of 64, with raw frames of as many bytes as the baseline: the ratio is what the RoCE v2 headers, the two ICRCs and the
// 40 bytes in front of each datagram cost. The raw pair has room for frames of 2048 bytes.
func BenchmarkDatagram(b *testing.B) {
	for _, bytes := range []int{64, 1024} {
		for _, family := range []int{4, 6} {
			b.Run(fmt.Sprintf("size=%d/ip=%d/burst=64", bytes, family), func(b *testing.B) {
				u := newUDPair(b, bytes, family)
				raw := newLoopPair(b, bytes, burst, false)
				contest{packets: depth, ours: func() {
					for range depth / burst {
						u.round(b)
					}
				}, baseline: func() {
					for range depth / burst {
						raw.round(b)
					}
				}}.run(b)
			})
		}
	}
}

// BenchmarkLoneDatagram takes datagrams of 16 bytes over loop: one at a time, in one goroutine that does the work of both
// sides: what `echo-loop` of bench/peers takes without the way between two processors.
func BenchmarkLoneDatagram(b *testing.B) {
	var ends [2]*ud.Endpoint
	for i := range ends {
		d, err := device.Open("loop:bench-lone", device.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		if ends[i], err = ud.New(d, ud.Config{Inline: 64}); err != nil {
			b.Fatal(err)
		}
		defer ends[i].Close()
	}
	to, err := ends[0].Peer(context.Background(), ends[1].LocalAddr())
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 16)
	var msg [1]ud.Msg
	contest{packets: depth, ours: func() {
		for range depth {
			if err := ends[0].Send(to, data); err != nil {
				b.Fatal(err)
			}
			if ends[1].Poll(msg[:]) != 1 {
				b.Fatal("no datagram")
			}
			msg[0].Release()
		}
	}}.run(b)
}

// newUDPair is newLoopPair for datagrams.
func newUDPair(b *testing.B, bytes, family int) *loopPair {
	b.Helper()
	l := &loopPair{bytes: uint32(bytes + 40), every: burst, wrs: make([]engine.SendWR, burst), recvs: make([]engine.RecvWR, burst)}
	open := func() (*engine.Device, *engine.QP, *engine.CQ, *engine.Pool) {
		d, err := device.Open("loop:bench-ud", device.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { d.Close() })
		cq, err := d.NewCQ(2 * burst)
		if err != nil {
			b.Fatal(err)
		}
		qp, err := d.DefaultPD().NewQP(engine.QPConfig{Type: engine.UD, SendCQ: cq, RecvCQ: cq, MaxSendWR: burst, MaxRecvWR: burst})
		if err != nil {
			b.Fatal(err)
		}
		if err := qp.MoveTo(engine.StateRTS, engine.QPAttr{QKey: 0x11111111}); err != nil {
			b.Fatal(err)
		}
		pool, err := d.DefaultPD().AllocPool(burst, bytes+64+40)
		if err != nil {
			b.Fatal(err)
		}
		return d, qp, cq, pool
	}
	_, tx, txCQ, fromPool := open()
	to, rx, rxCQ, toPool := open()
	l.tx, l.txCQ, l.rx, l.rxCQ = tx, txCQ, rx, rxCQ
	dest := engine.Dest{SGIDIndex: engine.AnyGID}
	for _, g := range to.GIDs() {
		if g.GID.Is4() == (family == 4) {
			dest.GID = g.GID
		}
	}
	ah, err := tx.PD().ResolveAH(context.Background(), dest)
	if err != nil {
		b.Fatal(err)
	}
	for i := range burst {
		frame, _ := fromPool.Get()
		l.wrs[i] = engine.SendWR{ID: uint64(i), Opcode: engine.OpSend, SGEs: []engine.SGE{fromPool.SGE(frame, bytes)},
			AH: ah, RemoteQPN: rx.QPN(), RemoteQKey: 0x11111111}
		frame, _ = toPool.Get()
		l.recvs[i] = engine.RecvWR{ID: uint64(i), SGEs: []engine.SGE{toPool.SGE(frame, bytes+40)}}
	}
	l.wrs[burst-1].Flags = engine.Signaled
	return l
}
