package proto_test

import (
	"bytes"
	"encoding/hex"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
)

// tagVectors are in docs/FORMAT.md too.
var tagVectors = []struct {
	run  uint64
	tag  proto.Tag
	text string
}{
	{0, proto.Tag{}, "565d9268000000000000000000000000"},
	{1, proto.Tag{Flow: 1, Seq: 2, Time: 3}, "300b4c77000001000000000200000003"},
	{0x0123456789abcdef, proto.Tag{Flow: 0xabcdef, Seq: 0x123456789a, Time: 0xdeadbeef}, "d5f85ff8abcdef123456789adeadbeef"},
	{^uint64(0), proto.Tag{Flow: 1<<24 - 1, Seq: 1<<40 - 1, Time: 1<<32 - 1}, "87092e4dffffffffffffffffffffffff"},
}

// dullTag builds the tag with big integers from the words of the package
// comment.
func dullTag(run uint64, t proto.Tag) []byte {
	two64 := new(big.Int).Lsh(big.NewInt(1), 64)
	mod := func(x *big.Int) *big.Int { return x.Mod(x, two64) }
	num := func(s string) *big.Int { x, _ := new(big.Int).SetString(s, 16); return x }
	key := func(n int64) *big.Int {
		x := new(big.Int).SetUint64(run)
		x = mod(x.Add(x, new(big.Int).Mul(big.NewInt(n), num("9e3779b97f4a7c15"))))
		x = mod(x.Mul(x.Xor(x, new(big.Int).Rsh(x, 30)), num("bf58476d1ce4e5b9")))
		x = mod(x.Mul(x.Xor(x, new(big.Int).Rsh(x, 27)), num("94d049bb133111eb")))
		return x.Xor(x, new(big.Int).Rsh(x, 31))
	}
	a := new(big.Int).Lsh(big.NewInt(int64(t.Flow)), 40)
	a.Or(a, new(big.Int).SetUint64(t.Seq))
	product := new(big.Int).Mul(new(big.Int).Xor(a, key(1)), new(big.Int).Xor(big.NewInt(int64(t.Time)), key(2)))
	x := new(big.Int).Rsh(product, 64)
	x = mod(x.Xor(x, product))
	check := new(big.Int).Rsh(x, 32)
	check.Xor(check, x).And(check, big.NewInt(0xffffffff))
	whole := check.Lsh(check, 96)
	whole.Or(whole, a.Lsh(a, 32)).Or(whole, big.NewInt(int64(t.Time)))
	return whole.FillBytes(make([]byte, 16))
}

func TestTagVectors(t *testing.T) {
	for _, v := range tagVectors {
		b := bytes.Repeat([]byte{0xa5}, 16)
		key := proto.NewTagKey(v.run)
		key.Put(b, v.tag.Flow, v.tag.Seq, v.tag.Time)
		if hex.EncodeToString(b) != v.text {
			t.Errorf("run %#x %+v: %x, want %s", v.run, v.tag, b, v.text)
		}
		if dull := dullTag(v.run, v.tag); !bytes.Equal(b, dull) {
			t.Errorf("run %#x %+v: %x, want %x by the definition", v.run, v.tag, b, dull)
		}
		if got, ok := key.Get(b); !ok || got != v.tag {
			t.Errorf("run %#x %+v came back as %+v, %v", v.run, v.tag, got, ok)
		}
	}
}

func FuzzTag(f *testing.F) {
	f.Add(uint64(1), uint32(2), uint64(3), uint32(4), uint8(5))
	f.Fuzz(func(t *testing.T, run uint64, flow uint32, seq uint64, ticks uint32, bit uint8) {
		want := proto.Tag{Flow: flow % proto.MaxFlows, Seq: seq & (1<<40 - 1), Time: ticks}
		key := proto.NewTagKey(run)
		b := make([]byte, 16)
		key.Put(b, want.Flow, seq, ticks)
		if !bytes.Equal(b, dullTag(run, want)) {
			t.Fatalf("%x, want %x", b, dullTag(run, want))
		}
		if got, ok := key.Get(b); !ok || got != want {
			t.Fatalf("%+v, %v, want %+v", got, ok, want)
		}
	})
}

func TestForeignAndDamagedTagsAreNotOurs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	passed := 0
	for range 20000 {
		key, other := proto.NewTagKey(r.Uint64()), proto.NewTagKey(r.Uint64())
		b := make([]byte, 16)
		key.Put(b, r.Uint32()>>8, r.Uint64(), r.Uint32())
		if _, ok := other.Get(b); ok {
			passed++
		}
		bit := r.IntN(128)
		b[bit/8] ^= 1 << (bit % 8)
		if _, ok := key.Get(b); ok {
			passed++
		}
	}
	if passed > 1 { // 40,000 trials at 2^-32
		t.Errorf("%d passed", passed)
	}
	key := proto.NewTagKey(1)
	if _, ok := key.Get(make([]byte, 15)); ok {
		t.Error("15 bytes are a tag")
	}
	if _, ok := key.Get(make([]byte, 16)); ok {
		t.Error("zeros are a tag")
	}
}

func TestTagStandsWhereTheIPLengthEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	key := proto.NewTagKey(9)
	for _, padding := range []int{0, 1, 16} {
		for _, n := range []int{15, 16, 17, 40} {
			s := frametest.Random(r, 6, false, 1, n)
			if n >= 16 {
				key.Put(s.Payload[n-16:], 5, 6, 7)
			}
			frame := append(s.Build(), make([]byte, padding)...)
			var h proto.Headers
			proto.Parse(frame, &h)
			if tag, ok := key.FindTag(frame, &h); ok != (n >= 16) || ok && tag != (proto.Tag{Flow: 5, Seq: 6, Time: 7}) {
				t.Errorf("payload %d, padding %d: %+v, %v", n, padding, tag, ok)
			}
		}
	}
}

func TestExtendSeqTakesTheNearest(t *testing.T) {
	const m = 1 << 40
	for _, c := range []struct{ seq, highest, want uint64 }{
		{0, 0, 0},
		{1, 0, 1},
		{7, 9, 7},
		{0, m - 1, m},
		{m - 1, m, m - 1},
		{m - 1, 0, m - 1}, // -1 cannot be
		{m - 1, 5 * m, 5*m - 1},
		{3, 5*m - 2, 5*m + 3},
		{m/2 - 1, 8 * m, 8*m + m/2 - 1},
		{m / 2, 8 * m, 8*m - m/2}, // equally near: the lower
		{m/2 + 1, 8 * m, 7*m + m/2 + 1},
		{m / 2, 0, m / 2},
	} {
		if got := proto.ExtendSeq(c.seq, c.highest); got != c.want {
			t.Errorf("ExtendSeq(%#x, %#x) = %#x, want %#x", c.seq, c.highest, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(2, 2))
	for range 10000 {
		highest := r.Uint64() >> (r.IntN(20) + 2)
		want := highest + uint64(r.Int64N(m/2))
		if r.IntN(2) == 0 && highest >= m {
			want = highest - uint64(r.Int64N(m/2))
		}
		if got := proto.ExtendSeq(want%m, highest); got != want {
			t.Fatalf("ExtendSeq(%#x, %#x) = %#x, want %#x", want%m, highest, got, want)
		}
	}
}

func TestDelayUnwrapsInItsWindow(t *testing.T) {
	for _, c := range []struct {
		arrival, tag uint32
		want         int64
	}{
		{0, 0, 0}, {5, 3, 2}, {3, 5, -2},
		{1, 0xffffffff, 2},
		{0xffffffff, 1, -2},
		{0, 1 << 26, -1 << 26},            // the earliest
		{0, 1<<26 + 1, 1<<32 - 1<<26 - 1}, // one earlier is the latest
		{1<<32 - 1<<26, 0, -1 << 26},      // the same the other way round
		{1<<32 - 1<<26 - 1, 0, 1<<32 - 1<<26 - 1},
	} {
		if got := proto.DelayTicks(c.arrival, c.tag); got != c.want {
			t.Errorf("DelayTicks(%#x, %#x) = %d, want %d", c.arrival, c.tag, got, c.want)
		}
	}
	hours := int64(30 * time.Hour)
	for _, delay := range []int64{0, 16, 1000, -16, -int64(time.Second), int64(60 * time.Second), int64(67 * time.Second)} {
		if got := proto.DelayTicks(uint32((hours+delay)/16), uint32(hours/16)) * proto.TickNS; got != delay-delay%16 {
			t.Errorf("delay %d came out as %d", delay, got)
		}
	}
	if s := proto.MaxDelay.Seconds(); s < 67.63 || s > 67.65 {
		t.Errorf("MaxDelay %v", proto.MaxDelay)
	}
	if s := proto.MaxEarly.Seconds(); s < 1.07 || s > 1.08 {
		t.Errorf("MaxEarly %v", proto.MaxEarly)
	}
}

func TestTagAllocatesNothing(t *testing.T) {
	b := make([]byte, 16)
	key := proto.NewTagKey(1)
	if n := testing.AllocsPerRun(100, func() { key.Put(b, 1, 2, 3); key.Get(b); key.Get(b[1:]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTag(b *testing.B) {
	buf := make([]byte, 64*16)
	key := proto.NewTagKey(1)
	b.Run("put", func(b *testing.B) {
		i := uint32(0)
		for b.Loop() {
			for k := range uint32(64) {
				key.Put(buf[k*16:], 7, uint64(i), k)
				i++
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i), "ns/tag")
	})
	b.Run("get", func(b *testing.B) {
		n, bad := 0, 0
		for b.Loop() {
			for k := range 64 {
				if _, ok := key.Get(buf[k*16:]); !ok {
					bad++
				}
				n++
			}
		}
		if bad > 0 {
			b.Fatal(bad)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/tag")
	})
}
