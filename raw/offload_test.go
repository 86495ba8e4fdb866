package raw_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
	"github.com/bluering/bluering/tso"
)

// tcpHeader is a random header of Ethernet, IP and TCP.
func tcpHeader(seed uint64, version int) []byte {
	s := frametest.Random(rand.New(rand.NewPCG(seed, 1)), version, true, 0, 0)
	return s.Build()
}

// TestSegmentedSendsArriveCut: what arrives is what package tso cuts, among plain frames, and the counts are of frames.
func TestSegmentedSendsArriveCut(t *testing.T) {
	a, b := pair(t, "", raw.PortConfig{TSO: true, TxDepth: 8, FrameBytes: 1 << 16}, raw.PortConfig{RxDepth: 256})
	r := rand.New(rand.NewPCG(4, 4))
	frames, bytesSent := uint64(0), uint64(0)
	for i := range 40 {
		var want [][]byte
		if i%5 == 4 { // a plain frame on a buffer that was a payload before
			s := frametest.Random(r, 4, false, 0, 100)
			f := s.Build()
			var buf [1][]byte
			if a.Tx(0).Reserve(buf[:]) != 1 {
				t.Fatal("no buffer")
			}
			copy(buf[0], f)
			if _, err := a.Tx(0).Commit([]int{len(f)}); err != nil {
				t.Fatal(err)
			}
			if err := a.Tx(0).Flush(); err != nil {
				t.Fatal(err)
			}
			want = [][]byte{f}
		} else {
			header, payload, mss := tcpHeader(uint64(i), 4+2*(i&1)), make([]byte, r.IntN(1<<16)), 500+r.IntN(1400)
			for k := range payload {
				payload[k] = byte(r.Uint32())
			}
			n, err := a.SendTSO(0, header, mss, payload)
			if err != nil {
				t.Fatal(err)
			}
			var p tso.Plan
			if err := p.Make(header, len(payload), mss); err != nil {
				t.Fatal(err)
			}
			s := p.Segmenter(header)
			for range n {
				f := make([]byte, p.MaxFrame())
				want = append(want, f[:s.Write(f, payload)])
			}
		}
		at := 0
		receive(t, a.Tx(0), b.Rx(0), len(want), func(data []byte) {
			if !bytes.Equal(data, want[at]) {
				t.Fatalf("request %d frame %d\n got %x\nwant %x", i, at, data, want[at])
			}
			at++
		})
		frames += uint64(len(want))
		for _, f := range want {
			bytesSent += uint64(len(f))
		}
	}
	a.Tx(0).Reclaim()
	if c := a.Tx(0).Counts(); c != (raw.TxCounts{Frames: frames, Bytes: bytesSent}) {
		t.Errorf("%+v, want %d frames of %d bytes", c, frames, bytesSent)
	}
}

func TestSegmentedSendsThatAreRefusedTakeNothing(t *testing.T) {
	a, b := pair(t, "", raw.PortConfig{TSO: true, FrameBytes: 4096}, raw.PortConfig{})
	header := tcpHeader(1, 4)
	q := a.Tx(0)
	if _, err := q.CommitTSO(header, 100, 10); !errors.Is(err, raw.ErrReserve) {
		t.Errorf("without a buffer: %v", err)
	}
	var r *tso.Refusal
	for name, err := range map[string]error{
		"header cut":    errOf(a.SendTSO(0, header[:40], 100, make([]byte, 300))),
		"no MSS":        errOf(a.SendTSO(0, header, 0, make([]byte, 300))),
		"IP fragment":   errOf(a.SendTSO(0, append(append(bytes.Clone(header[:20]), 0x20), header[21:]...), 100, make([]byte, 300))),
		"nothing to it": errOf(a.SendTSO(0, nil, 100, nil)),
	} {
		if !errors.As(err, &r) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"payload longer than a buffer": errOf(a.SendTSO(0, header, 100, make([]byte, 4097))),
		"MSS of more than 16 bits":     errOf(a.SendTSO(0, header, 65536, make([]byte, 10))),
		"header longer than granted":   errOf(a.SendTSO(0, make([]byte, a.Caps().MaxTSOHeader+1), 100, nil)),
	} {
		if !errors.Is(err, raw.ErrLength) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.SendTSO(0, header, 100, nil); !errors.Is(err, raw.ErrTSO) {
		t.Errorf("a port without TSO: %v", err)
	}
	if _, err := a.SendTSO(7, header, 100, nil); !errors.Is(err, raw.ErrClosed) {
		t.Errorf("a queue that is not there: %v", err)
	}
	if q.Outstanding() != 0 || q.Counts() != (raw.TxCounts{}) || q.Err() != nil {
		t.Errorf("%d outstanding, %+v, %v", q.Outstanding(), q.Counts(), q.Err())
	}
}

func errOf(_ int, err error) error { return err }

// TestDeviceMakesChecksums: of committed frames, and of a stream's, whose fields and tags vary. The receiver's device
// calls the IPv4 ones good.
func TestDeviceMakesChecksums(t *testing.T) {
	a, b := pair(t, "", raw.PortConfig{IPCsum: true, TxQueues: 2}, raw.PortConfig{RxDepth: 512, RxCsum: true})
	for version := 4; version <= 6; version += 2 {
		s := frametest.Random(rand.New(rand.NewPCG(5, 5)), version, false, 1, 60)
		want := s.Build()
		var h proto.Headers
		proto.Parse(want, &h)
		spoilt := bytes.Clone(want)
		spoilt[h.L4Off+6] ^= 0x55
		if version == 4 {
			spoilt[h.L3Off+10] ^= 0x55
		}
		var buf [1][]byte
		a.Tx(0).Reserve(buf[:])
		copy(buf[0], spoilt)
		if _, err := a.Tx(0).Commit([]int{len(spoilt)}); err != nil {
			t.Fatal(err)
		}
		if err := a.Tx(0).Flush(); err != nil {
			t.Fatal(err)
		}
		receive(t, a.Tx(0), b.Rx(0), 1, func(data []byte) {
			if !bytes.Equal(data, want) {
				t.Errorf("got %x, want %x", data, want)
			}
		})
		template, err := raw.NewTemplateBytes(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []raw.Field{
			{Kind: raw.SrcPort, Lo: raw.Num(1), Hi: raw.Num(60000)},
			{Kind: raw.SrcAddr, List: []raw.Value{raw.Addr(s.Src), raw.Addr(s.Dst)}},
		} {
			if err := template.Vary(f); err != nil {
				t.Fatal(err)
			}
		}
		stream, err := a.Tx(1).NewStream(template, raw.StreamConfig{Tag: true, Key: proto.NewTagKey(7), IPCsum: true})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := stream.Send(200, []uint32{9}); n != 200 || err != nil {
			t.Fatal(n, err)
		}
		frames, got := make([]raw.RxFrame, 64), 0
		for got < 200 {
			n := b.Rx(0).Poll(frames)
			for _, f := range frames[:n] {
				proto.Parse(f.Data, &h)
				if !csum.VerifyL4(f.Data, h.L3Off, h.L4Off, h.PayloadEnd, 17) || version == 4 && !csum.VerifyIPv4(f.Data[h.L3Off:h.L4Off]) {
					t.Fatalf("a wrong checksum: %x", f.Data)
				}
				if good := f.Flags&engine.WCCsumOK != 0; good != (version == 4) {
					t.Fatalf("IPv%d: called good %v", version, good)
				}
			}
			b.Rx(0).Release(n)
			got += n
		}
		a.Tx(1).Reclaim()
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSegmentedSendsAllocateNothing(t *testing.T) {
	a, b := pair(t, "", raw.PortConfig{TSO: true, FrameBytes: 1 << 16}, raw.PortConfig{RxDepth: 256})
	header, payload := tcpHeader(1, 4), make([]byte, 20000)
	frames := make([]raw.RxFrame, 64)
	if n := testing.AllocsPerRun(50, func() {
		segments, err := a.SendTSO(0, header, 1448, payload)
		if err != nil {
			t.Fatal(err)
		}
		for got := 0; got < segments; {
			n := b.Rx(0).Poll(frames)
			b.Rx(0).Release(n)
			got += n
			a.Tx(0).Reclaim()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
