package device_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/raw"
	"github.com/bluering/bluering/tso"
)

// TestSegmentedSendsGoUncut: with gso=auto the kernel gets a segmented send whole, and passes it as one packet to a wire
// that cuts it. What arrives, and what is counted, is the same with the kernel cutting, and with gso=off.
func TestSegmentedSendsGoUncut(t *testing.T) {
	nstest.Need(t)
	s := frametest.Spec{DstMAC: [6]byte{2, 0, 0, 0, 0, 2}, SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, TCP: true, TCPOptions: 12,
		Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), SrcPort: 1000, DstPort: 9}
	header := s.Build()
	header = header[:14+20+32]
	payload := make([]byte, 60001)
	for i := range payload {
		payload[i] = byte(i * 13)
	}
	const mss, sends = 1448, 5
	var plan tso.Plan
	if err := plan.Make(header, len(payload), mss); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name           string
		send, receive  string
		forced         bool
		kernelsPackets uint64
	}{
		{"uncut", "auto", "auto", false, sends}, {"cut by the kernel", "auto", "off", true, sends * 42}, {"cut here", "off", "off", true, sends * 42},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b, ns := nstest.Veth(t)
			if c.forced {
				nstest.Run(t, "", "ethtool", "-K", a, "tx", "off", "tso", "off")
			}
			rx := openPort(t, "packet:"+b+"?netns="+ns+"&gso="+c.receive, raw.PortConfig{RxDepth: 512})
			tx := openPort(t, "packet:"+a+"?gso="+c.send, raw.PortConfig{TSO: true, FrameBytes: 1 << 16})
			before := nstest.Count(t, ns, b)
			var got [][]byte
			take := func() {
				frames := make([]raw.RxFrame, 64)
				n := rx.Rx(0).Poll(frames)
				for _, f := range frames[:n] {
					got = append(got, bytes.Clone(f.Data))
				}
				rx.Rx(0).Release(n)
			}
			for k := 0; k < sends; {
				n, err := tx.SendTSO(0, header, mss, payload)
				if err != nil {
					t.Fatal(err)
				}
				if n > 0 {
					k++
				}
				tx.Tx(0).Flush()
				tx.Tx(0).Reclaim()
				take()
			}
			for end := time.Now().Add(20 * time.Second); len(got) < sends*plan.Segments() && time.Now().Before(end); take() {
				tx.Tx(0).Reclaim()
			}
			room := make([]byte, 2000)
			for k := range sends {
				walk := plan.Segmenter(header)
				for i := range plan.Segments() {
					want := room[:walk.Write(room, payload)]
					if at := k*plan.Segments() + i; at >= len(got) || !bytes.Equal(got[at], want) {
						t.Fatalf("%d of %d frames came; piece %d of send %d is another", len(got), sends*plan.Segments(), i, k)
					}
				}
			}
			out, in := tx.Device().Counters(), rx.Device().Counters()
			frames, total := uint64(sends*plan.Segments()), uint64(sends*plan.FrameBytes())
			if out.TxFrames != frames || out.TxBytes != total || in.RxFrames != frames || in.RxBytes != total || out.TxLost != 0 {
				t.Errorf("want %d frames of %d bytes: sent %+v, received %+v", frames, total, out, in)
			}
			if k := nstest.Count(t, ns, b).Sub(before).RxFrames; k != c.kernelsPackets {
				t.Errorf("the kernel passed %d packets, want %d", k, c.kernelsPackets)
			}
		})
	}
}

func openPort(t *testing.T, uri string, c raw.PortConfig) *raw.Port {
	t.Helper()
	d, err := device.Open(uri, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	p, err := raw.NewPort(d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
