package proto_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/internal/proto"
)

// rowOf makes the row of frames like this one, and gives its head without PSN, and its payload.
func rowOf(t testing.TB, frame []byte) (r *proto.Row, head, payload []byte, psn uint32) {
	t.Helper()
	l3, h, l4, end := roceFrame(t, frame)
	var u proto.UD
	off, ok := proto.ParseUD(frame[h.PayloadOff:], &u)
	if !ok || u.HasImm {
		t.Fatal("not of a row")
	}
	at := h.PayloadOff + off
	head = bytes.Clone(frame[:at])
	copy(head[at-12:], []byte{0, 0, 0, 0})
	masked := bytes.Clone(l3)
	copy(masked, head[h.L3Off:])
	var grh [proto.GRHBytes]byte
	for i := range grh {
		grh[i] = byte(0x80 + i)
	}
	r = new(proto.Row)
	payload = frame[at : h.L3Off+end-int(u.Pad)]
	r.Set(head, len(payload), proto.ICRC(masked, h.IPVersion, l4, at-h.L3Off), &grh)
	return r, head, payload, u.PSN
}

// resize gives a frame of Linux another payload, random, and makes its lengths and ICRC right by the functions that
// other tests hold to other programs.
func resize(t testing.TB, frame []byte, payload int, rnd *rand.Rand) []byte {
	t.Helper()
	_, h, _, _ := roceFrame(t, frame)
	var u proto.UD
	off, _ := proto.ParseUD(frame[h.PayloadOff:], &u)
	u.Pad = uint8(-payload & 3)
	at := h.PayloadOff + off
	f := append(bytes.Clone(frame[:at]), make([]byte, payload+int(u.Pad)+proto.ICRCBytes)...)
	for i := range payload {
		f[at+i] = byte(rnd.Uint32())
	}
	u.Put(f[h.PayloadOff:])
	if ip := f[h.L3Off:]; h.IPVersion == 4 {
		ip[2], ip[3] = byte(len(ip)>>8), byte(len(ip))
	} else {
		ip[4], ip[5] = byte((len(ip)-40)>>8), byte(len(ip)-40)
	}
	udp := f[h.L4Off:]
	udp[4], udp[5] = byte(len(udp)>>8), byte(len(udp))
	end := len(f) - proto.ICRCBytes - h.L3Off
	proto.PutICRC(f[h.L3Off+end:], proto.ICRC(f[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, end))
	return f
}

// rowSources are frames of Linux, one for each version of IP and pad, and the golden ones without immediate.
func rowSources(t testing.TB) (frames [][]byte) {
	seen := map[string]bool{}
	for _, f := range rxeFrames(t) {
		_, h, _, _ := roceFrame(t, f)
		var u proto.UD
		proto.ParseUD(f[h.PayloadOff:], &u)
		if key := fmt.Sprint(h.IPVersion, u.Pad, len(f)); !seen[key] && !u.HasImm {
			seen[key] = true
			frames = append(frames, f)
		}
	}
	for _, g := range golden {
		if !g.ud.HasImm {
			frames = append(frames, unhex(t, g.hex))
		}
	}
	return frames
}

// rowMemory is memory for the grams of a row of copies of a frame: frames and receive buffers at any distance.
type rowMemory struct {
	frames, data []byte
	grams        []proto.RowGram
	at, to       []int
}

const rowGap = 70 // bytes between two, which nothing may write

func newRowMemory(n, frame, data int, rnd *rand.Rand) *rowMemory {
	m := &rowMemory{
		frames: bytes.Repeat([]byte{0xa5}, n*(frame+rowGap)+rowGap), data: bytes.Repeat([]byte{0xa5}, n*(data+rowGap)+rowGap),
		grams: make([]proto.RowGram, n), at: make([]int, n), to: make([]int, n),
	}
	for i := range n {
		m.at[i], m.to[i] = i*(frame+rowGap)+1+rnd.IntN(rowGap), i*(data+rowGap)+1+rnd.IntN(rowGap)
		m.grams[i] = proto.RowGram{Frame: &m.frames[m.at[i]], Data: &m.data[m.to[i]]}
	}
	return m
}

// A row is sealed into the frames that Linux, scapy and tshark made of the same payload and PSN.
func TestARowIsSealedAsOthersMakeFrames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 32))
	for _, frame := range rowSources(t) {
		for _, n := range []int{1, 3, 4, 9} {
			r, _, payload, psn := rowOf(t, frame)
			if r.FrameBytes() != len(frame) || r.PayloadBytes() != len(payload) {
				t.Fatalf("frames of %d bytes, payload %d, want %d, %d", r.FrameBytes(), r.PayloadBytes(), len(frame), len(payload))
			}
			for which := range n {
				m := newRowMemory(n, len(frame), len(payload), rnd)
				for i := range m.data {
					m.data[i] = byte(rnd.Uint32())
				}
				copy(m.data[m.to[which]:], payload)
				want := bytes.Clone(m.frames)
				r.Seal(m.grams, psn-uint32(which))
				got := m.frames[m.at[which] : m.at[which]+len(frame)]
				if !bytes.Equal(got, frame) {
					t.Fatalf("%d of %d: made  %x\nwant %x", which, n, got, frame)
				}
				for _, at := range m.at {
					copy(want[at:at+len(frame)], m.frames[at:])
				}
				if !bytes.Equal(m.frames, want) {
					t.Fatal("something was written between the frames")
				}
			}
		}
	}
}

// Frames of each length up to some vectors, and of the longest, are sealed and opened as one by one: headers and ICRC by
// UD.Put and ICRC. Then some bits are wrong.
func TestRowsOfEachLength(t *testing.T) {
	rnd := rand.New(rand.NewPCG(33, 34))
	sources := [][]byte{unhex(t, golden[0].hex), unhex(t, golden[3].hex)}
	for length := 0; length <= 4096; length++ {
		switch length {
		case 301:
			length = 1020
		case 1101:
			length = 4090
		}
		frame := resize(t, sources[length&1], length, rnd)
		r, head, _, _ := rowOf(t, frame)
		n := 4 + rnd.IntN(6)
		m := newRowMemory(n, len(frame), proto.GRHBytes+length, rnd)
		want := bytes.Clone(m.data)
		psn := rnd.Uint32() & 0xffffff
		if length%5 == 0 {
			psn = 0xfffffe
		}
		for i := range n {
			copy(m.frames[m.at[i]:], resize(t, withPSN(frame, psn+uint32(i)), length, rnd))
			payload := m.frames[m.at[i]+len(head):][:length]
			for k := range proto.GRHBytes {
				want[m.to[i]+k] = byte(0x80 + k)
			}
			copy(want[m.to[i]+proto.GRHBytes:], payload)
		}
		if got := r.Open(m.grams); got != n || !bytes.Equal(m.data, want) {
			t.Fatalf("%d bytes: %d of %d are good, right %v", length, got, n, bytes.Equal(m.data, want))
		}
		// Sealing what was received gives the frames again.
		again := newRowMemory(n, len(frame), length, rnd)
		for i := range n {
			copy(again.data[again.to[i]:], m.data[m.to[i]+proto.GRHBytes:][:length])
		}
		r.Seal(again.grams, psn)
		for i := range n {
			if a, b := again.frames[again.at[i]:][:len(frame)], m.frames[m.at[i]:][:len(frame)]; !bytes.Equal(a, b) {
				t.Fatalf("%d bytes: sealed %x\nwant   %x", length, a, b)
			}
		}
		refuses(t, r, m, len(frame), rnd)
	}
}

// refuses demands that a frame with a bit wrong ends the row, and that nothing is written of it and those behind.
func refuses(t *testing.T, r *proto.Row, m *rowMemory, frame int, rnd *rand.Rand) {
	t.Helper()
	for range 40 {
		for i := range m.data {
			m.data[i] = 0xa5
		}
		bad, bit := rnd.IntN(len(m.grams)), rnd.IntN(8*frame)
		m.frames[m.at[bad]+bit/8] ^= 1 << (bit % 8)
		if got := r.Open(m.grams); got != bad {
			t.Fatalf("frame %d of %d bytes has a wrong bit %d: %d are good", bad, frame, bit, got)
		}
		end := m.to[bad]
		if rest := m.data[end:]; bytes.Count(rest, []byte{0xa5}) != len(rest) {
			t.Fatalf("behind frame %d, the first bad one, something was written", bad)
		}
		m.frames[m.at[bad]+bit/8] ^= 1 << (bit % 8)
	}
}

// withPSN is a copy of a frame with that PSN, its ICRC not yet right.
func withPSN(frame []byte, psn uint32) []byte {
	f := bytes.Clone(frame)
	at := 14 + 20 + 8 + 8
	if f[14]>>4 == 6 {
		at += 20
	}
	f[at+1], f[at+2], f[at+3] = byte(psn>>16), byte(psn>>8), byte(psn)
	return f
}

// FuzzRow opens what Seal made of any payload, and refuses it with any byte changed.
func FuzzRow(f *testing.F) {
	f.Add([]byte("ping"), uint32(1), uint8(7), uint16(3), uint8(1))
	f.Add(make([]byte, 300), uint32(0xffffff), uint8(4), uint16(200), uint8(0x80))
	sources := [][]byte{unhex(f, golden[0].hex), unhex(f, golden[3].hex)}
	f.Fuzz(func(t *testing.T, payload []byte, psn uint32, count uint8, at uint16, flip uint8) {
		if len(payload) > 4096 {
			return
		}
		rnd := rand.New(rand.NewPCG(uint64(psn), uint64(count)))
		frame := resize(t, sources[psn&1], len(payload), rnd)
		r, head, _, _ := rowOf(t, frame)
		n := 1 + int(count%12)
		m := newRowMemory(n, len(frame), len(payload), rnd)
		for _, to := range m.to {
			copy(m.data[to:], payload)
		}
		r.Seal(m.grams, psn)
		in := newRowMemory(n, len(frame), proto.GRHBytes+len(payload), rnd)
		for i := range n {
			made := m.frames[m.at[i]:][:len(frame)]
			l3, h, l4, end := roceFrame(t, made)
			if got, want := proto.LoadICRC(l3[end:]), proto.ICRC(l3, h.IPVersion, l4, end); got != want {
				t.Fatalf("frame %d: ICRC %#x, want %#x", i, got, want)
			}
			if !bytes.Equal(made[:len(head)], withPSN(head, psn+uint32(i))) || !bytes.Equal(made[len(head):][:len(payload)], payload) {
				t.Fatalf("frame %d: %x", i, made)
			}
			copy(in.frames[in.at[i]:], made)
		}
		good := n
		if flip != 0 {
			good = int(at) / len(frame) % n
			in.frames[in.at[good]+int(at)%len(frame)] ^= flip
		}
		if got := r.Open(in.grams); got != good {
			t.Fatalf("%d of %d are good, want %d", got, n, good)
		}
		for _, to := range in.to[:good] {
			if !bytes.Equal(in.data[to+proto.GRHBytes:][:len(payload)], payload) {
				t.Fatal("another payload")
			}
		}
	})
}

func BenchmarkRow(b *testing.B) {
	for _, length := range []int{16, 64, 256, 1024} {
		for _, source := range []int{0, 3} {
			rnd := rand.New(rand.NewPCG(1, 1))
			frame := resize(b, unhex(b, golden[source].hex), length, rnd)
			r, _, _, _ := rowOf(b, frame)
			m := newRowMemory(64, len(frame), proto.GRHBytes+length, rnd)
			name := fmt.Sprintf("/size=%d/frame=%d", length, len(frame))
			b.Run("seal"+name, func(b *testing.B) {
				for b.Loop() {
					r.Seal(m.grams, 5)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
			})
			b.Run("open"+name, func(b *testing.B) {
				for b.Loop() {
					if r.Open(m.grams) != 64 {
						b.Fatal("not good")
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
			})
		}
	}
}
