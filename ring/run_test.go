package ring

import (
	"math/rand/v2"
	"testing"
)

// Whatever stands in the ring, what FetchRun accepts Fetch accepts too, and
// reads the same from it; and it accepts all good WQEs of its shape.
func FuzzFetchRunIsNeverLaxerThanFetch(f *testing.F) {
	for _, at := range []int{OffOpmod, OffIndex, OffOpcode, OffQPN, OffDS, OffSig, 9, OffFMCESE, OffImm, OffSWP,
		OffCsumFlags, OffMSS, OffMetadata, OffInlineLen, OffInlineHdr, 32, 35, 36, 40} {
		for _, v := range []byte{1, 2, 3, 0x08, 0x40, 0x80, 0xff} {
			f.Add(uint16(at), v, uint16(65530), uint8(8))
		}
	}
	f.Fuzz(func(t *testing.T, at uint16, v byte, start uint16, n uint8) {
		const slots, qpn = 8, 0x100
		rec, err := NewRecord(make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		blocks := make([]Block, slots)
		fast, err := NewDevSQ(blocks, rec, qpn)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(slots) {
			pi := uint32(start) + i
			w := blocks[pi%slots:][:1]
			PutCtrl(&w[0], uint16(pi), OpSend, qpn, 3, uint8(i%2)*FlagSignaled, 0)
			PutEth0(&w[0], 0)
			PutData(w, 2, Seg{Addr: uint64(pi) << 32, Len: 60 + i, LKey: 0x1100 + i})
		}
		bad := int(at) / BlockBytes % slots
		Flatten(blocks)[int(at)%(slots*BlockBytes)] ^= v
		rec.StoreSend(uint32(start) + uint32(n%(slots+1)))
		fast.ci, fast.pi = uint32(start), uint32(start)
		slow := *fast
		var out [slots]Seg
		run, first, signaled := fast.FetchRun(out[:])
		var w SendWQE
		for i := range out[:run] {
			if got := slow.Fetch(&w); got != FetchOK {
				t.Fatalf("WQE %d: FetchRun takes it, Fetch says %d, rule %s", i, got, w.Rule)
			}
			s := &out[i]
			if w.NSeg != 1 || w.Segs[0] != *s || w.Index != first+uint16(i) || w.Signaled != (signaled>>i&1 != 0) || w.Bytes != s.Len ||
				w.Opcode != OpSend || w.CsumFlags != 0 || len(w.InlineHdr)+len(w.Inline) != 0 {
				t.Fatalf("WQE %d: FetchRun reads %+v, Fetch %+v", i, *s, w)
			}
			slow.Advance()
		}
		want := int(n % (slots + 1))
		if v != 0 {
			want = min(want, (bad-int(start)%slots+slots)%slots)
		}
		if run < want {
			t.Fatalf("%d WQEs taken of at least %d good ones", run, want)
		}
		if signaled>>run != 0 {
			t.Fatalf("a run of %d has completions %b", run, signaled)
		}
		fast.AdvanceRun(run)
		if fast.CI() != slow.CI() {
			t.Fatalf("counters %d and %d", fast.CI(), slow.CI())
		}
	})
}

func TestFetchRunLeavesOtherQueuesToFetch(t *testing.T) {
	for _, l := range []SendLimits{{Kind: UD}, {MinInline: EthInline18}} {
		s, d := newTestSQ(t, 8, SQConfig{QPN: 0x100, MaxBB: 1})
		d.SetLimits(l)
		w, pi, _ := s.Reserve(1)
		PutCtrl(&w[0], uint16(pi), OpSend, 0x100, 3, 0, 0)
		PutEth0(&w[0], 0)
		PutData(w, 2, Seg{Addr: 1, Len: 60, LKey: 0x1100})
		s.Commit(1, 0)
		s.Publish()
		if n, _, _ := d.FetchRun(make([]Seg, 4)); n != 0 {
			t.Errorf("limits %+v: a run of %d", l, n)
		}
	}
}

// Run gives what Peek gives, entry for entry, as far as entries are one piece.
func TestReceiveRunAgreesWithPeek(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, stride := range []int{16, 32, 64} {
		c := RQConfig{Stride: stride, Entries: 8}
		rec, _ := NewRecord(make([]byte, 8))
		mem := make([]byte, stride*c.Entries)
		host, err := NewRQ(mem, rec, c)
		if err != nil {
			t.Fatal(err)
		}
		fast, _ := NewDevRQ(mem, rec, c)
		slow, _ := NewDevRQ(mem, rec, c)
		for range 2000 {
			for range rng.IntN(9) {
				segs := make([]Seg, rng.IntN(stride/16+1))
				for i := range segs {
					segs[i] = Seg{Addr: rng.Uint64(), Len: rng.Uint32N(3), LKey: TermLKey + rng.Uint32N(2)}
				}
				host.Post(segs, 0)
			}
			host.Publish()
			var segs, one [8]Seg
			want := 1 + rng.IntN(8)
			if first, ok := fast.First(); ok != (fast.Run(segs[:1]) == 1) || ok && first != segs[0] {
				t.Fatalf("stride %d: First gives %+v, %v, Run %+v", stride, first, ok, segs[0])
			}
			n := fast.Run(segs[:want])
			checkRow(t, fast, segs[:n], want)
			for i := range n {
				if got, ok := slow.Peek(one[:]); !ok || got != 1 || one[0] != segs[i] {
					t.Fatalf("stride %d: entry %d of the run is %+v, Peek gives %d pieces, %+v", stride, i, segs[i], got, one[0])
				}
				slow.Advance()
				host.Take()
			}
			if first := fast.Take(n); first+uint16(n) != uint16(slow.CI()) || fast.CI() != slow.CI() {
				t.Fatalf("stride %d: counters %d and %d", stride, fast.CI(), slow.CI())
			}
			if n == 0 && host.Outstanding() > 0 { // an entry of another shape, or the end of what is known
				slow.Peek(one[:])
				fast.Peek(one[:])
				slow.Advance()
				fast.Advance()
				host.Take()
			}
		}
	}
}

// checkRow compares the entries that Row gives of the want oldest with those that Run gave.
func checkRow(t *testing.T, d *DevRQ, run []Seg, want int) {
	t.Helper()
	at := 0
	for at < want {
		row := d.Row(at, want-at)
		if len(row) == 0 {
			break
		}
		if len(row)%DSBytes != 0 || len(row)/DSBytes > want-at || d.stride != DSBytes {
			t.Fatalf("stride %d: Row(%d, %d) gives %d bytes", d.stride, at, want-at, len(row))
		}
		if at < len(run) && RowKey(row) != run[at].LKey {
			t.Fatalf("key %#x, want %#x", RowKey(row), run[at].LKey)
		}
		for ; len(row) > 0; row = row[DSBytes:] {
			if at < len(run) && getSeg(row) != run[at] {
				t.Fatalf("entry %d of the row is %+v, of the run %+v", at, getSeg(row), run[at])
			}
			at++
		}
	}
	if d.stride == DSBytes && (at < len(run) || at > int(d.pi-d.ci)) {
		t.Fatalf("rows of %d entries, a run of %d, %d known of", at, len(run), d.pi-d.ci)
	}
}

// PutSends and PutRecvs leave the ring as Next, Put and Seal do, whatever stood
// there, and Room never promises what Next would refuse.
func TestPutsOfRunsWriteWhatPutAndSealWrite(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	type side struct {
		ring []CQE
		host *CQ
		dev  *DevCQ
	}
	var s [2]side
	for i := range s {
		rec, _ := NewRecord(make([]byte, 8))
		s[i].ring = make([]CQE, 8)
		s[i].host, _ = NewCQ(s[i].ring, rec, 7)
		s[i].dev, _ = NewDevCQ(s[i].ring, rec, 7)
		for k := range s[i].ring {
			c := &s[i].ring[k]
			for b := range c[:cqeLast] {
				c[b] = 0xa5
			}
		}
	}
	const uidx, qpn = 0x123456, 0x654321
	for range 2000 {
		lens := make([]int32, rng.IntN(9))
		lens = lens[:s[0].dev.Room(len(lens))]
		first, time, send := uint16(rng.Uint32()), rng.Uint64(), rng.IntN(2) == 0
		for i := range lens {
			lens[i] = rng.Int32()
			c, ok := s[1].dev.Next()
			if !ok {
				t.Fatal("Room promised too much")
			}
			if send {
				c.PutReq(uidx, qpn, OpSend, first+uint16(i), time)
				s[1].dev.Seal(uint8(CQEReq) << 4)
			} else {
				c.PutRecv(uidx, qpn, uint32(lens[i]), first+uint16(i), time)
				s[1].dev.Seal(uint8(CQERecv) << 4)
			}
		}
		if send {
			s[0].dev.PutSends(uidx, qpn, OpSend, first, len(lens), time)
		} else {
			s[0].dev.PutRecvs(uidx, qpn, first, lens, time)
		}
		if rng.IntN(2) == 0 {
			take := rng.IntN(9)
			for i := range s {
				s[i].dev.Publish()
				for range take {
					if _, ok := s[i].host.Peek(); ok {
						s[i].host.Consume()
					}
				}
				s[i].host.Update()
			}
		}
		for k := range s[0].ring {
			if s[0].ring[k] != s[1].ring[k] {
				t.Fatalf("entry %d: %x, want %x", k, s[0].ring[k], s[1].ring[k])
			}
		}
		if s[0].dev.PI() != s[1].dev.PI() || s[0].dev.Pending() != s[1].dev.Pending() {
			t.Fatal("counters differ")
		}
	}
}

// Run and Commit post what Post would, Row and TakeRow take what Take would, and
// Repost gives an entry back as it stood.
func TestReceiveRunsAreThePlainQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, stride := range []int{16, 32} {
		c := RQConfig{Stride: stride, Entries: 8}
		type side struct {
			mem []byte
			q   *RQ
		}
		var s [2]side
		for i := range s {
			rec, _ := NewRecord(make([]byte, 8))
			s[i].mem = make([]byte, stride*c.Entries)
			s[i].q, _ = NewRQ(s[i].mem, rec, c)
		}
		fast, plain := s[0].q, s[1].q
		id, reposts := uint64(0), 0
		for range 3000 {
			switch rng.IntN(4) {
			case 0:
				mem, ids := fast.Run(1 + rng.IntN(9))
				if len(mem) != len(ids)*stride {
					t.Fatalf("%d bytes for %d entries of %d", len(mem), len(ids), stride)
				}
				for i := range ids {
					seg := Seg{Addr: rng.Uint64(), Len: 1 + rng.Uint32N(99), LKey: rng.Uint32()}
					PutScatter(mem[i*stride:][:stride], []Seg{seg})
					ids[i] = id
					if !plain.Post([]Seg{seg}, id) {
						t.Fatal("Run promised too much")
					}
					id++
				}
				fast.Commit(len(ids))
			case 1:
				at := fast.PI()
				n := fast.Repost(rng.IntN(9))
				for i := range n {
					slot := int(at+uint32(i)) % c.Entries
					var segs [2]Seg
					k := GetScatter(fast.entry(uint32(slot)), segs[:])
					if !plain.Post(segs[:k], plain.wrIDs[slot]) {
						t.Fatal("Repost promised too much")
					}
				}
				reposts += n
			case 2:
				fast.Publish()
				plain.Publish()
			case 3:
				ids := fast.Row(rng.IntN(9))
				for i := range ids {
					if got, ok := plain.Take(); !ok || got != ids[i] {
						t.Fatalf("number %d of the row, Take gives %d, %t", ids[i], got, ok)
					}
				}
				fast.TakeRow(len(ids))
			}
			if fast.PI() != plain.PI() || fast.Outstanding() != plain.Outstanding() || string(s[0].mem) != string(s[1].mem) {
				t.Fatalf("stride %d: counters %d and %d, outstanding %d and %d", stride, fast.PI(), plain.PI(), fast.Outstanding(), plain.Outstanding())
			}
		}
		if reposts == 0 {
			t.Fatal("nothing was reposted")
		}
	}
}

// RetireRow does what a Retire of each request does, for as many as Row says.
func TestRowsOfSendsRetireOneByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	fast, _ := newTestSQ(t, 16, SQConfig{QPN: 1, MaxBB: 2})
	plain, _ := newTestSQ(t, 16, SQConfig{QPN: 1, MaxBB: 2})
	rows, id := 0, uint64(0)
	for range 5000 {
		switch rng.IntN(3) {
		case 0:
			bb := 1 + rng.IntN(5)/4
			for _, q := range []*SQ{fast, plain} {
				_, _, got := q.ReserveRun(1+int(id%4), bb)
				q.CommitRun(got, bb, id)
			}
			id += 4
		case 1:
			fast.Publish()
			plain.Publish()
		case 2:
			pi, first, n := fast.Row()
			n = min(n, rng.IntN(9))
			for k := range n {
				if got, one, ok := plain.Retire(uint16(pi) + uint16(k)); !ok || one != 1 || got != first+uint64(k) {
					t.Fatalf("request %d of the row is number %d: Retire says %d, %d requests, %t", k, first+uint64(k), got, one, ok)
				}
			}
			fast.RetireRow(n)
			rows += n
			if n == 0 && fast.pub.pi != fast.ci { // a larger request, or a pad
				at := fast.runs[fast.head&fast.mask].pi
				fast.Retire(uint16(at))
				plain.Retire(uint16(at))
			}
		}
		if fast.CI() != plain.CI() || fast.Outstanding() != plain.Outstanding() {
			t.Fatalf("counters %d and %d, outstanding %d and %d", fast.CI(), plain.CI(), fast.Outstanding(), plain.Outstanding())
		}
	}
	if rows == 0 {
		t.Fatal("no row")
	}
}
