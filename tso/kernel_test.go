package tso

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// kernelCase is a packet and what Linux made of it.
type kernelCase struct {
	Proto         string
	IP            int
	VLAN          bool
	MSS           int
	Flags         string
	Header        hexBytes
	Payload       hexBytes
	PayloadLen    int `json:"payload_len"`
	Segments      int
	Frames, Heads []hexBytes
}

type hexBytes []byte

func (h *hexBytes) UnmarshalJSON(b []byte) (err error) {
	var s string
	if err = json.Unmarshal(b, &s); err == nil {
		*h, err = hex.DecodeString(s)
	}
	return err
}

func (c *kernelCase) String() string {
	return fmt.Sprintf("%s/ipv%d/vlan=%v/%d bytes/mss=%d/%s", c.Proto, c.IP, c.VLAN, c.PayloadLen, c.MSS, c.Flags)
}

// KernelCases is for the tests outside the package.
var KernelCases = kernelCases

func kernelCases(t testing.TB) (out []kernelCase) {
	f, err := os.Open("testdata/gso-kernel.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if len(out) != 104 {
		t.Fatalf("%d cases, want 104", len(out))
	}
	return out
}

// TestSegmentsAreTheKernels compares all recorded frames byte by byte; of the packets recorded without payload, the
// headers but for the L4 checksum.
func TestSegmentsAreTheKernels(t *testing.T) {
	whole, heads := 0, 0
	for _, c := range kernelCases(t) {
		var p Plan
		if err := p.Make(c.Header, c.PayloadLen, c.MSS); err != nil {
			t.Fatalf("%v: %v", &c, err)
		}
		if p.Segments() != c.Segments {
			t.Fatalf("%v: %d segments, Linux makes %d", &c, p.Segments(), c.Segments)
		}
		s := p.Segmenter(c.Header)
		if c.Frames == nil {
			heads++
			compareHeads(t, &c, &p, &s)
			continue
		}
		whole++
		buf := bytes.Repeat([]byte{0xA5}, p.MaxFrame()+8)
		for i, want := range c.Frames {
			n := s.Write(buf[:p.MaxFrame()], c.Payload)
			if !bytes.Equal(buf[:n], want) {
				t.Fatalf("%v: frame %d\n got %x\nwant %x", &c, i, buf[:n], []byte(want))
			}
		}
		if s.Write(buf, c.Payload) != 0 {
			t.Errorf("%v: a segment too many", &c)
		}
		s.Seek(0)
		frames := make([][]byte, p.Segments()+1)
		for i := range frames {
			frames[i] = make([]byte, p.MaxFrame())
		}
		if n := s.WriteRun(frames, c.Payload); n != len(c.Frames) {
			t.Errorf("%v: a run of %d", &c, n)
		}
		for i, want := range c.Frames {
			if !bytes.Equal(frames[i][:len(want)], want) {
				t.Fatalf("%v: frame %d of a run\n got %x\nwant %x", &c, i, frames[i][:len(want)], []byte(want))
			}
		}
	}
	if whole != 88 || heads != 16 {
		t.Errorf("%d packets compared whole and %d by their headers, want 88 and 16", whole, heads)
	}
}

func compareHeads(t *testing.T, c *kernelCase, p *Plan, s *Segmenter) {
	at := p.l4 + 16
	if p.udp {
		at = p.l4 + 6
	}
	var g Segment
	for i, want := range c.Heads {
		if !s.Next(&g) {
			t.Fatalf("%v: no segment %d", c, i)
		}
		got := make([]byte, p.header)
		s.Put(got, &g, 0)
		binary.BigEndian.PutUint16(got[at:], binary.BigEndian.Uint16(want[at:]))
		if !bytes.Equal(got, want) {
			t.Fatalf("%v: head %d\n got %x\nwant %x", c, i, got, []byte(want))
		}
	}
}
