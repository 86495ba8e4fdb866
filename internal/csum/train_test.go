package csum

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// someTrain has any of the fields, each where it overlaps no other.
func someTrain(r *rand.Rand) *Train {
	t := &Train{Head: make([]byte, 20+2*r.IntN(60)), Size: 1 + r.IntN(2000), ID: uint16(r.Uint32()), IPSum: r.Uint32N(1 << 17),
		Seq: r.Uint32(), Sum: r.Uint32N(1 << 18), Zero: uint16(r.IntN(2) * 0xffff)}
	for i := range t.Head {
		t.Head[i] = byte(r.Uint32())
	}
	for i, place := range []*int{&t.IDPlace, &t.IPPlace, &t.SeqPlace, &t.SumPlace} {
		if r.IntN(4) != 0 {
			*place = 2 + 4*i
		}
	}
	return t
}

// checkTrain compares the chosen kernel's frames with those of the loop in Go. The frames and src end and begin at will.
func checkTrain(t *testing.T, r *rand.Rand, train *Train, count int, src []byte, at func(n int) []byte) {
	t.Helper()
	twin := *train
	n := len(train.Head) + train.Size
	var got, want [][]byte
	for range count {
		got, want = append(got, at(n)), append(want, make([]byte, n))
	}
	train.Write(got, src)
	if twin.write(want, src); twin.ID != train.ID || twin.Seq != train.Seq {
		t.Fatalf("left %#x, %#x, want %#x, %#x", train.ID, train.Seq, twin.ID, twin.Seq)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("frame %d of %d, %+v\n got %x\nwant %x", i, count, train, got[i], want[i])
		}
	}
}

func TestTrainsAreTheLoopsInGo(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	src := make([]byte, 9*2000)
	for round := range 1000 {
		for i := range src {
			src[i] = byte(r.Uint32()) | byte(-(round & 1))
		}
		train, count := someTrain(r), 1+r.IntN(8)
		if round == 0 {
			count = 0
		}
		var all [][]byte
		at := func(n int) []byte {
			mem := bytes.Repeat([]byte{0xA5}, n+130)
			all = append(all, mem)
			from := r.IntN(65)
			return mem[from : from+n : from+n]
		}
		from := r.IntN(64)
		checkTrain(t, r, train, count, src[from:], at)
		for _, mem := range all {
			if a := bytes.Count(mem, []byte{0xA5}); a < 130 {
				t.Fatal("bytes around a frame were written")
			}
		}
	}
}

// TestTrainChecksumOfZero makes sums come out as zero, which is one in 2^16 otherwise.
func TestTrainChecksumOfZero(t *testing.T) {
	for _, zero := range []uint16{0, 0xffff} {
		src := make([]byte, 200)
		train := &Train{Head: make([]byte, 40), Size: 100, SumPlace: 6, Sum: 0xffff, Zero: zero}
		frames := [][]byte{make([]byte, 140), make([]byte, 140)}
		train.Write(frames, src)
		for _, f := range frames {
			if got := uint16(f[6])<<8 | uint16(f[7]); got != zero {
				t.Errorf("%#x, want %#x", got, zero)
			}
		}
	}
}

func TestTrainRefusesWhatIsTooShort(t *testing.T) {
	for name, short := range map[string]func(frames [][]byte, src []byte) ([][]byte, []byte){
		"src": func(frames [][]byte, src []byte) ([][]byte, []byte) { return frames, src[:199:199] },
		"frame": func(frames [][]byte, src []byte) ([][]byte, []byte) {
			frames[1] = frames[1][:139:139]
			return frames, src
		},
	} {
		frames, src := short([][]byte{make([]byte, 140), make([]byte, 140)}, bytes.Repeat([]byte{1}, 200))
		func() {
			defer func() {
				if recover() == nil || !bytes.Equal(frames[0], make([]byte, 140)) {
					t.Errorf("%s: written", name)
				}
			}()
			(&Train{Head: make([]byte, 40), Size: 100}).Write(frames, src)
		}()
	}
}

func FuzzTrains(f *testing.F) {
	f.Add(uint64(1), uint8(2), bytes.Repeat([]byte{0xff}, 700))
	f.Fuzz(func(t *testing.T, seed uint64, count uint8, src []byte) {
		r := rand.New(rand.NewPCG(seed, 1))
		train := someTrain(r)
		if count %= 6; count > 0 {
			if train.Size = len(src) / int(count); train.Size == 0 {
				return
			}
		}
		checkTrain(t, r, train, int(count), src, func(n int) []byte { return make([]byte, n) })
	})
}
