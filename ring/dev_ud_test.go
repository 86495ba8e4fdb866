package ring

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

const gramQPN = 0x123456

// putAny writes a WQE of the common shape, or another, or a damaged one, at counter pi into w, which reaches to the
// ring's edge, and gives its blocks. Where it does not fit there are NOPs.
func putAny(w []Block, pi uint32, rnd *rand.Rand) int {
	ds, op, flags, pointers, inline := gramDS, OpSend, uint8(0), 1, []byte(nil)
	switch rnd.IntN(16) {
	case 0:
		ds, pointers = 4, 0
	case 1:
		ds, pointers = 6, 2
	case 2, 3, 4:
		inline = make([]byte, 1+rnd.IntN(70))
		ds, pointers = 4+InlineDS(len(inline)), 0
	}
	if rnd.IntN(8) == 0 {
		op = OpSendImm
	}
	if rnd.IntN(3) == 0 {
		flags |= FlagSignaled
	}
	if rnd.IntN(3) == 0 {
		flags |= FlagSolicited
	}
	bb := BlocksFor(ds)
	if bb > len(w) {
		for i := range w {
			PutNOP(&w[i], uint16(pi)+uint16(i), gramQPN)
			clear(w[i][DSBytes:])
		}
		return len(w)
	}
	av := MakeAV(&AVFields{FlowLabel: rnd.Uint32() & 0xfffff, SGIDIndex: uint8(rnd.Uint32()), SrcPort: uint16(rnd.Uint32())})
	PutCtrl(&w[0], uint16(pi), op, gramQPN, ds, flags, rnd.Uint32())
	PutDatagram(&w[0], &av, rnd.Uint32(), rnd.Uint32()&0xffffff)
	for i := range pointers {
		PutData(w, 4+i, Seg{Addr: rnd.Uint64(), Len: 1 + rnd.Uint32N(5000), LKey: rnd.Uint32()})
	}
	if inline != nil {
		PutInline(w, 4, inline)
	}
	if rnd.IntN(8) == 0 {
		w[0][rnd.IntN(64)] ^= 1 << rnd.IntN(8)
	}
	if rnd.IntN(16) == 0 && ds > 4 {
		w[1][rnd.IntN(4)] ^= 1 << rnd.IntN(8)
	}
	return bb
}

// What a run decodes is what Fetch decodes, and it goes as far as that finds the common shape and one opcode.
func TestARunOfDatagramsIsWhatFetchDecodes(t *testing.T) {
	const slots = 16
	rnd := rand.New(rand.NewPCG(1, 2))
	lengths := map[int]int{}
	for range 20000 {
		rec, err := NewRecord(make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		blocks := make([]Block, slots)
		fast, err := NewDevSQ(blocks, rec, gramQPN)
		if err != nil {
			t.Fatal(err)
		}
		fast.SetLimits(SendLimits{Kind: UD})
		start := rnd.Uint32()
		end := start
		for end-start < slots-3 {
			end += uint32(putAny(blocks[end%slots:], end, rnd))
		}
		rec.StoreSend(end)
		fast.ci, fast.pi = start, start
		slow := *fast
		var out [8]Gram
		n, op := fast.FetchGrams(out[:])
		lengths[n]++
		var v SendWQE
		for i := range n {
			g := &out[i]
			if slow.Fetch(&v) != FetchOK || v.Opcode != op || v.Index != g.Index || v.Signaled != g.Signaled || v.Solicited != g.Solicited ||
				v.QKey != g.QKey || v.RemoteQPN != g.QPN || v.AV != g.AV || v.Imm != g.Imm || v.Bytes != g.Len ||
				g.Inline == nil && (v.NSeg != 1 || v.Segs[0] != g.Seg || len(v.Inline) != 0) ||
				g.Inline != nil && (v.NSeg != 0 || len(v.Inline) != len(g.Inline) || &v.Inline[0] != &g.Inline[0]) {
				t.Fatalf("WQE %d: rule %v, %+v is %+v", i, v.Rule, v, *g)
			}
			slow.Advance()
		}
		fast.AdvanceGrams(n)
		if fast.ci != slow.ci {
			t.Fatalf("at %d, Fetch is at %d", fast.ci, slow.ci)
		}
		at := slow.ci
		if slow.Fetch(&v) == FetchOK && slow.ci == at && (v.DS == gramDS && v.NSeg == 1 || v.BB == gramBB && len(v.Inline) != 0) &&
			(v.Opcode == op || n == 0) && !v.Fence && n < len(out) {
			t.Fatalf("a run of %d leaves a WQE of its shape: %+v", n, v)
		}
	}
	for n := range 8 {
		if lengths[n] == 0 && n < slots/gramBB-1 {
			t.Errorf("no run of %d: %v", n, lengths)
		}
	}
}

// A burst of completions has the bytes that one by one has.
func TestABurstOfDatagramsIsWhatOneByOneIs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var devs [2]*DevCQ
		var mem [2][]CQE
		for i := range devs {
			mem[i] = make([]CQE, 16)
			for k := range mem[i] {
				for b := range mem[i][k] {
					mem[i][k][b] = 0xa5
				}
			}
			rec, err := NewRecord(make([]byte, 8))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := NewCQ(mem[i], rec, 7); err != nil {
				t.Fatal(err)
			}
			d, err := NewDevCQ(mem[i], rec, 7)
			if err != nil {
				t.Fatal(err)
			}
			devs[i] = d
		}
		done := make([]DoneGram, 1+rnd.IntN(12))
		row := rnd.IntN(3) == 0
		for i := range done {
			if row && i > 0 {
				done[i] = done[0]
				done[i].Counter += uint16(i)
				continue
			}
			done[i] = DoneGram{Time: rnd.Uint64(), Bytes: rnd.Uint32(), Source: rnd.Uint32(), Counter: uint16(rnd.Uint32()),
				HasImm: rnd.IntN(2) == 0, Solicited: rnd.IntN(2) == 0}
			if done[i].HasImm = done[i].HasImm && !row; done[i].HasImm {
				done[i].Imm = rnd.Uint32()
			}
		}
		if row {
			devs[0].PutGramRow(0x123456, 0x654321, done[0], len(done))
		} else {
			devs[0].PutGrams(0x123456, 0x654321, done)
		}
		for _, g := range done {
			c, ok := devs[1].Next()
			if !ok {
				t.Fatal("full")
			}
			c.PutRecv(0x123456, 0x654321, g.Bytes, g.Counter, g.Time)
			c.SetSource(uint8(g.Source>>24), g.Source)
			op := uint8(CQERecv) << 4
			if g.HasImm {
				c.SetImm(g.Imm)
				op = uint8(CQERecvImm) << 4
			}
			if g.Solicited {
				op |= OpOwnSolicited
			}
			devs[1].Seal(op)
		}
		if devs[0].Urgent() != devs[1].Urgent() {
			t.Fatalf("urgent %v, one by one %v", devs[0].Urgent(), devs[1].Urgent())
		}
		devs[0].Publish()
		devs[1].Publish()
		for k := range mem[0] {
			if !bytes.Equal(mem[0][k][:], mem[1][k][:]) {
				t.Fatalf("entry %d:\n got %x\nwant %x", k, mem[0][k], mem[1][k])
			}
		}
	}
}

// A row is as many as FetchGrams decodes with the fields of the first, up to the ring's edge.
func TestARowOfDatagramsIsWhatARunDecodes(t *testing.T) {
	const slots = 16
	rnd := rand.New(rand.NewPCG(5, 6))
	lengths := map[int]int{}
	for range 20000 {
		rec, err := NewRecord(make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewDevSQ(make([]Block, slots), rec, gramQPN)
		if err != nil {
			t.Fatal(err)
		}
		d.SetLimits(SendLimits{Kind: UD})
		start := rnd.Uint32() &^ 1
		var image [gramBB]Block
		putAny(image[:], 0, rnd)
		for pi := start; pi-start < slots; pi += gramBB {
			w := d.blocks[pi%slots:][:gramBB]
			copy(w, image[:])
			w[0][1], w[0][2] = byte(pi>>8), byte(pi)
			w[0][OffFMCESE] = image[0][OffFMCESE]&^FlagSignaled | uint8(rnd.Uint32())&FlagSignaled
			put64(w[1][8:16], rnd.Uint64())
			if rnd.IntN(12) == 0 {
				w[rnd.IntN(gramBB)][rnd.IntN(64)] ^= 1 << rnd.IntN(8)
			}
		}
		d.ci, d.pi = start, start+slots
		var out [slots]Gram
		got, op := d.FetchGrams(out[:])
		want := 0
		for want < got && op == OpSend && start%slots+uint32(gramBB*want) < slots && alike(&out[0], &out[want]) {
			want++
		}
		least := rnd.IntN(4)
		if want < least {
			want = 0
		}
		var addrs [slots]uint64
		g, n, signaled := d.FetchGramRow(addrs[:], least)
		lengths[n]++
		if n != want {
			t.Fatalf("a row of %d, want %d of %+v", n, want, out[:got])
		}
		for i := range n {
			o := &out[i]
			addr := o.Addr
			if o.Inline != nil {
				addr = uint64(start+uint32(gramBB*i)+1)%slots*BlockBytes + inlineHead
				if &d.Bytes()[addr] != &o.Inline[0] {
					t.Fatalf("inline data %d is elsewhere", i)
				}
			}
			if addrs[i] != addr || signaled>>i&1 != 0 != o.Signaled || !alike(&g, o) || g.Index != out[0].Index {
				t.Fatalf("WQE %d of %d: %#x, %v; %+v is %+v", i, n, addrs[i], signaled>>i&1, g, *o)
			}
		}
	}
	for n := range slots / gramBB {
		if lengths[n] == 0 {
			t.Errorf("no row of %d: %v", n, lengths)
		}
	}
}

// alike compares what is the same in a row.
func alike(a, b *Gram) bool {
	return a.Len == b.Len && (a.Inline == nil) == (b.Inline == nil) && (a.Inline != nil || a.LKey == b.LKey) &&
		*a.AV == *b.AV && a.QKey == b.QKey && a.QPN == b.QPN && a.Solicited == b.Solicited
}
