package raw_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/raw"
)

// BenchmarkStream measures a stream through the loop: with nothing to patch,
// and with tag, one varying field and checksum. The difference is what the
// patching costs; the rest is the software NIC.
func BenchmarkStream(b *testing.B) {
	port := raw.Field{Kind: raw.SrcPort, Lo: raw.Num(1024), Hi: raw.Num(65535)}
	addr := raw.Field{Kind: raw.DstAddr, Lo: raw.Num(0xc6120000), Hi: raw.Num(0xc613ffff)}
	for _, c := range []struct {
		name   string
		fields []raw.Field
		tag    bool
	}{
		{"bare", nil, false},
		{"tag", nil, true},
		{"tag+port", []raw.Field{port}, true},
		{"tag+address", []raw.Field{addr}, true},
		{"tag+port+address", []raw.Field{port, addr}, true},
	} {
		b.Run(fmt.Sprintf("%s/size=60/burst=64", c.name), func(b *testing.B) {
			tx, rx := pair(b, "", raw.PortConfig{TxDepth: 1024}, raw.PortConfig{RxDepth: 1024})
			s := frametest.Random(rand.New(rand.NewPCG(1, 1)), 4, false, 0, 18)
			st, err := tx.Tx(0).NewStream(template(b, s, false, c.fields, nil), raw.StreamConfig{Tag: c.tag})
			if err != nil {
				b.Fatal(err)
			}
			times, frames, in := []uint32{1}, make([]raw.RxFrame, 64), rx.Rx(0)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := st.Send(64, times); err != nil {
					b.Fatal(err)
				}
				in.Release(in.Poll(frames))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(st.Sent()), "ns/pkt")
			b.ReportMetric(float64(st.Sent())/float64(b.Elapsed().Nanoseconds())*1e3, "Mpps")
		})
	}
}
