package tso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// packet is a header in parts, so that the twin needs no parser.
type packet struct {
	link    []byte // Ethernet with tags
	ip      []byte // with options or extension headers
	l4      []byte
	v6, udp bool
}

func (k *packet) header() []byte { return bytes.Join([][]byte{k.link, k.ip, k.l4}, nil) }

// words sums as RFC 1071 describes it.
func words(parts ...[]byte) uint16 {
	all := bytes.Join(parts, nil)
	if len(all)%2 == 1 {
		all = append(all, 0)
	}
	s := uint32(0)
	for i := 0; i < len(all); i += 2 {
		s += uint32(binary.BigEndian.Uint16(all[i:]))
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// twin cuts slowly and plainly: every field is set, every checksum computed over bytes.
func (k *packet) twin(payload []byte, mss int) (frames [][]byte) {
	for off := 0; off == 0 || off < len(payload); off += mss {
		piece := payload[off:min(off+mss, len(payload))]
		ip, l4 := bytes.Clone(k.ip), bytes.Clone(k.l4)
		be := binary.BigEndian
		var pseudo []byte
		if k.v6 {
			be.PutUint16(ip[4:], uint16(len(ip)-40+len(l4)+len(piece)))
			pseudo = append(pseudo, ip[8:40]...)
			pseudo = be.AppendUint32(pseudo, uint32(len(l4)+len(piece)))
		} else {
			be.PutUint16(ip[2:], uint16(len(ip)+len(l4)+len(piece)))
			be.PutUint16(ip[4:], be.Uint16(ip[4:])+uint16(off/mss))
			be.PutUint16(ip[10:], 0)
			be.PutUint16(ip[10:], words(ip))
			pseudo = append(pseudo, ip[12:20]...)
			pseudo = be.AppendUint16(pseudo, uint16(len(l4)+len(piece)))
		}
		if k.udp {
			be.PutUint16(l4[4:], uint16(len(l4)+len(piece)))
			be.PutUint16(l4[6:], 0)
			sum := words(pseudo, []byte{0, 17}, l4, piece)
			if sum == 0 {
				sum = 0xffff
			}
			be.PutUint16(l4[6:], sum)
		} else {
			be.PutUint32(l4[4:], be.Uint32(l4[4:])+uint32(off))
			if off > 0 {
				l4[13] &^= 0x80
			}
			if off+mss < len(payload) {
				l4[13] &^= 0x09
			}
			be.PutUint16(l4[16:], 0)
			be.PutUint16(l4[16:], words(pseudo, []byte{0, 6}, l4, piece))
		}
		frames = append(frames, bytes.Join([][]byte{k.link, ip, l4, piece}, nil))
	}
	return frames
}

// build makes a well-formed packet from a source of numbers: tags, options, extension headers.
func build(r *rand.Rand) *packet {
	fill := func(b []byte) []byte {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	k := &packet{v6: r.IntN(2) == 0, udp: r.IntN(2) == 0, link: fill(make([]byte, 12))}
	for range r.IntN(3) {
		k.link = binary.BigEndian.AppendUint16(k.link, []uint16{0x8100, 0x88a8, 0x9100}[r.IntN(3)])
		k.link = append(k.link, byte(r.Uint32()), byte(r.Uint32()))
	}
	next, etherType := byte(6), uint16(0x0800)
	if k.udp {
		next, k.l4 = 17, fill(make([]byte, 8))
	} else {
		size := 20 + 4*r.IntN(11)
		k.l4 = fill(make([]byte, size))
		k.l4[12] = byte(size/4)<<4 | byte(r.IntN(2))
		k.l4[13] &^= flagsOnce
	}
	if k.v6 {
		etherType = 0x86dd
		k.ip = fill(make([]byte, 40))
		k.ip[0], k.ip[6] = 0x60|k.ip[0]&15, next
		for range r.IntN(3) {
			kind := []byte{0, 43, 60}[r.IntN(3)]
			x := fill(make([]byte, 8+8*r.IntN(3)))
			x[0], x[1], x[3] = k.ip[6], byte(len(x)/8-1), 0
			k.ip[6] = kind
			k.ip = append(k.ip[:40:40], append(x, k.ip[40:]...)...)
		}
	} else {
		size := 20 + 4*r.IntN(11)
		k.ip = fill(make([]byte, size))
		k.ip[0], k.ip[9] = 0x40|byte(size/4), next
		binary.BigEndian.PutUint16(k.ip[6:], uint16(r.IntN(2))<<14)
	}
	k.link = binary.BigEndian.AppendUint16(k.link, etherType)
	return k
}

func compare(t *testing.T, k *packet, payload []byte, mss int) {
	t.Helper()
	header := k.header()
	var p Plan
	if err := p.Make(header, len(payload), mss); err != nil {
		t.Fatalf("%v: header %x", err, header)
	}
	want := k.twin(payload, mss)
	if p.Segments() != len(want) {
		t.Fatalf("%d segments, want %d", p.Segments(), len(want))
	}
	s := p.Segmenter(header)
	buf := make([]byte, p.MaxFrame())
	total := 0
	for i := range want {
		n := s.Write(buf, payload)
		total += n
		if !bytes.Equal(buf[:n], want[i]) {
			t.Fatalf("segment %d of %d, header %x\n got %x\nwant %x", i, len(want), header, buf[:n], want[i])
		}
	}
	if s.Write(buf, payload) != 0 || total != p.FrameBytes() {
		t.Fatalf("%d bytes in all, FrameBytes says %d", total, p.FrameBytes())
	}
	// Any segment by itself.
	i := len(want) / 2
	s.Seek(i)
	if n := s.Write(buf, payload); !bytes.Equal(buf[:n], want[i]) {
		t.Fatalf("segment %d after Seek differs", i)
	}
}

// compareRun writes the segments in runs of several lengths, to places of any alignment.
func compareRun(t *testing.T, r *rand.Rand, k *packet, payload []byte, mss int) {
	t.Helper()
	header := k.header()
	var p Plan
	if err := p.Make(header, len(payload), mss); err != nil {
		t.Fatalf("%v: header %x", err, header)
	}
	p.KeepL3, p.KeepL4 = r.IntN(8) == 0, r.IntN(8) == 0
	var want, got [][]byte
	one, run := p.Segmenter(header), p.Segmenter(header)
	for range p.Segments() {
		frame := make([]byte, p.MaxFrame())
		want = append(want, frame[:one.Write(frame, payload)])
	}
	for len(got) < len(want) {
		frames := make([][]byte, min(1+r.IntN(12), len(want)-len(got)))
		var all [][]byte
		for i := range frames {
			mem := bytes.Repeat([]byte{0xA5}, 64+p.MaxFrame()+8)
			at := r.IntN(2) * r.IntN(64)
			all, frames[i] = append(all, mem), mem[at:at+len(want[len(got)+i])]
		}
		if n := run.WriteRun(frames, payload); n != len(frames) {
			t.Fatalf("a run of %d wrote %d", len(frames), n)
		}
		for i := range frames {
			got = append(got, frames[i])
			if n := len(got) - 1; !bytes.Equal(frames[i], want[n]) {
				t.Fatalf("segment %d of %d in a run of %d, header %x\n got %x\nwant %x", n, len(want), len(frames), header, frames[i], want[n])
			}
			if around := bytes.Count(all[i], []byte{0xA5}) - bytes.Count(frames[i], []byte{0xA5}); around != len(all[i])-len(frames[i]) {
				t.Fatalf("segment %d wrote outside its frame", len(got)-1)
			}
		}
	}
	if run.WriteRun(make([][]byte, 1), payload) != 0 {
		t.Fatal("a segment too many")
	}
	run.Seek(0)
	if len(want) > 3 {
		frames := [][]byte{make([]byte, p.MaxFrame()), make([]byte, p.MaxFrame()), make([]byte, len(want[2])-1), make([]byte, p.MaxFrame())}
		if n := run.WriteRun(frames, payload); n != 2 {
			t.Fatalf("a run past a short frame wrote %d", n)
		}
	}
}

func TestRunsAreTheSegments(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		payload := make([]byte, r.IntN(6000))
		for i := range payload {
			payload[i] = byte(r.Uint32()) | byte(-(seed & 1))
		}
		compareRun(t, r, build(r), payload, 20+r.IntN(1500))
	}
}

func TestSegmentsAreTheTwins(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 5))
		payload := make([]byte, r.IntN(3000))
		for i := range payload {
			payload[i] = byte(r.Uint32()) | byte(-(seed & 1))
		}
		compare(t, build(r), payload, 1+r.IntN(1500))
	}
}

func FuzzSegmentsAreTheTwins(f *testing.F) {
	f.Add(uint64(1), []byte("payload of some length"), uint16(7))
	f.Fuzz(func(t *testing.T, seed uint64, payload []byte, mss uint16) {
		if mss == 0 || len(payload)/int(mss) > 2000 {
			return
		}
		compare(t, build(rand.New(rand.NewPCG(seed, 6))), payload, int(mss))
		r := rand.New(rand.NewPCG(seed, 6))
		compareRun(t, r, build(r), payload, int(mss))
	})
}

// FuzzPlan takes any bytes as a header: what is accepted has to come out as frames that the parser of another package
// understands and finds right.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(build(rand.New(rand.NewPCG(seed, 7))).header(), []byte("0123456789"), uint16(4))
	}
	f.Fuzz(func(t *testing.T, header, payload []byte, mss uint16) {
		var p Plan
		if err := p.Make(header, len(payload), int(mss)); err != nil {
			var r *Refusal
			if !errors.As(err, &r) || r.Error() == "" || p.Segments() != 0 {
				t.Fatalf("%v, %d segments", err, p.Segments())
			}
			return
		}
		if p.Segments() > 2000 {
			return
		}
		s := p.Segmenter(header)
		var got []byte
		for {
			frame := make([]byte, p.MaxFrame())
			n := s.Write(frame, payload)
			if n == 0 {
				break
			}
			frame = frame[:n]
			var h proto.Headers
			if !proto.Parse(frame, &h) || h.Status != proto.OK || h.Fragment || h.Routed || h.PayloadEnd != n {
				t.Fatalf("a segment parses as %v, %+v: %x", h.Status, h, frame)
			}
			if h.IPVersion == 4 && !csum.VerifyIPv4(frame[h.L3Off:h.L4Off]) || !csum.VerifyL4(frame, h.L3Off, h.L4Off, n, h.L4Proto) {
				t.Fatalf("a segment has a wrong checksum: %x", frame)
			}
			got = append(got, frame[h.PayloadOff:]...)
		}
		if !bytes.Equal(got, payload) {
			t.Fatal("the payload did not come through")
		}
	})
}
