package ring

import (
	"bytes"
	"io"
	"testing"
)

func FuzzDecodeSend(f *testing.F) {
	for _, w := range [][]Block{goodRaw(), goodTSO(), goodUD()} {
		f.Add(Flatten(w), uint16(7), false, uint8(18))
		f.Add(Flatten(w), uint16(7), true, uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, index uint16, ud bool, minInline uint8) {
		w := make([]Block, len(b)/BlockBytes)
		copy(Flatten(w), b)
		lim := SendLimits{MinInline: int(minInline)}
		if ud {
			lim.Kind = UD
		}
		v := SendWQE{Index: index}
		r := DecodeSend(w, &v, 0x100, &lim)
		_, _ = r.String(), r.Syndrome().String()
		_ = Explain(io.Discard, w, &v)
		if r == RuleNone && (v.NSeg > MaxSegs || int(v.BB) > len(w)) {
			t.Errorf("%d pointers, %d blocks of %d", v.NSeg, v.BB, len(w))
		}
	})
}

func FuzzDevSQ(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0, 0, 0, 10, 0, 1, 0, 4}, 64), uint16(8))
	f.Fuzz(func(t *testing.T, b []byte, pi uint16) {
		s, d := newTestSQ(t, 8, SQConfig{QPN: 0x100, MaxBB: 4})
		copy(Flatten(s.Blocks()), b)
		s.rec.StoreSend(uint32(pi))
		var v SendWQE
		for n := 0; d.Fetch(&v) != FetchEmpty; n++ {
			if n > int(pi) {
				t.Fatal("more WQEs than the record announces")
			}
			d.Advance()
		}
		d.Reset()
		d.Flush(nil)
		if d.Pending() > 8 {
			t.Errorf("%d pending", d.Pending())
		}
	})
}

func FuzzCQE(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c CQE
		copy(c[:], b)
		var d CQE
		rebuild(&d, &c)
		if d.QPN() != c.QPN() || d.Counter() != c.Counter() || d.UserIndex() != c.UserIndex() {
			t.Errorf("%x became %x", c, d)
		}
		_, _, _ = c.Op().String(), c.WQEOpcode().String(), c.Syndrome().Status()
		_, _, _, _ = c.Format(), c.Solicited(), c.Tunnelled(), c.RawChecksum()
	})
}

func FuzzScatter(f *testing.F) {
	f.Add(make([]byte, 64), uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, room uint8) {
		segs := make([]Seg, room%17)
		n := GetScatter(b, segs)
		GetSRQEntry(b, segs)
		n = min(n, len(b)/DSBytes)
		out := make([]byte, len(b))
		if GetScatter(b, segs) != n || !PutScatter(out, segs[:n]) {
			t.Fatal("what was read cannot be written")
		}
		again := make([]Seg, len(segs))
		if GetScatter(out, again) != n {
			t.Error("read differently")
		}
	})
}

func FuzzDump(f *testing.F) {
	f.Add([]byte("0000000a 00010004"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ParseDump(bytes.NewReader(b))
		var out bytes.Buffer
		if err := Dump(&out, b); err != nil {
			t.Fatal(err)
		}
		got, err := ParseDump(&out)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%x came back as %x, %v", b, got, err)
		}
	})
}

func BenchmarkPost(b *testing.B) {
	s, d := newTestSQ(b, 1024, SQConfig{QPN: 1, MaxBB: 1})
	hdr := new([18]byte)
	for b.Loop() {
		for i := range 64 {
			w, pi, _ := s.Reserve(1)
			PutCtrl(&w[0], uint16(pi), OpSend, 1, 4, 0, 0)
			PutEth18(&w[0], 0, hdr)
			PutData(w, 3, Seg{uint64(i), 42, 1})
			s.Commit(1, uint64(i))
		}
		s.Publish()
		s.Retire(uint16(s.PI() - 1))
	}
	_ = d
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
}

func BenchmarkRearmRun(b *testing.B) {
	s, _ := newTestSQ(b, 1024, SQConfig{QPN: 1, MaxBB: 1})
	for b.Loop() {
		w, pi, n := s.ReserveRun(64, 1)
		for i := range w {
			Rearm(&w[i], uint16(pi)+uint16(i), OpSend)
		}
		s.CommitRun(n, 1, 0)
		s.Publish()
		s.Retire(uint16(s.PI() - 1))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
}

func BenchmarkFetchAndComplete(b *testing.B) {
	s, d := newTestSQ(b, 64, SQConfig{QPN: 1, MaxBB: 1})
	q, dc, _, _ := newTestCQ(b, 128)
	for range 64 {
		put(b, s, 1, 0)
	}
	s.Publish()
	var v SendWQE
	for b.Loop() {
		for range 64 {
			d.Fetch(&v)
			d.Advance()
			c, _ := dc.Next()
			c.PutReq(0, 1, v.Opcode, v.Index, 0)
			dc.Seal(0)
		}
		dc.Publish()
		for range 64 {
			q.Peek()
			q.Consume()
		}
		q.Update()
		d.Reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
}
