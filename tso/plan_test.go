package tso

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bluering/bluering/internal/csum"
)

func tcp4(t testing.TB) []byte {
	h := kernelCases(t)[0].Header
	return append([]byte(nil), h...)
}

// TestWhatIsNotProvenIsRefused breaks one thing at a time.
func TestWhatIsNotProvenIsRefused(t *testing.T) {
	six := func(r byte, ext ...byte) []byte {
		h := append([]byte(nil), tcp4(t)[:12]...)
		h = append(h, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, r, 64)
		h = append(h, make([]byte, 32)...)
		return append(append(h, ext...), 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0)
	}
	for _, c := range []struct {
		name         string
		header       []byte
		payload, mss int
		cause        Cause
		value, limit int
		says         string
	}{
		{"nothing", nil, 10, 5, CauseShort, 0, 14, "0 bytes, want 14"},
		{"no MSS", tcp4(t), 10, 0, CauseMSS, 0, 1, "MSS 0"},
		{"less than no payload", tcp4(t), -1, 5, CausePayload, -1, 0, "-1"},
		{"ARP", edit(tcp4(t), 13, 6), 10, 5, CauseType, 0x806, 0, "0x0806"},
		{"IPv6 in IPv4's type", edit(tcp4(t), 14, 0x65), 10, 5, CauseVersion, 6, 4, "version 6"},
		{"IPv4 in IPv6's type", edit(six(6), 14, 0x40), 10, 5, CauseVersion, 4, 6, "version 4"},
		{"cut IPv4 header", tcp4(t)[:30], 10, 5, CauseShort, 30, 34, "30"},
		{"IPv4 header of 16 bytes", edit(tcp4(t), 14, 0x44), 10, 5, CauseShort, 54, 34, ""},
		{"IPv4 options that are not there", edit(tcp4(t), 14, 0x4f)[:60-6], 10, 5, CauseShort, 54, 74, "74"},
		{"first fragment", edit(tcp4(t), 20, 0x20), 10, 5, CauseFragment, 0x2000, 0, "0x2000"},
		{"later fragment", edit(tcp4(t), 21, 1), 10, 5, CauseFragment, 0x4001, 0, "fragment"},
		{"ICMP", edit(tcp4(t), 23, 1), 10, 5, CauseProtocol, 1, 0, "protocol 1"},
		{"cut TCP header", tcp4(t)[:50], 10, 5, CauseShort, 50, 54, ""},
		{"TCP header of 16 bytes", edit(tcp4(t), 46, 0x40), 10, 5, CauseOffset, 16, 20, "16 bytes"},
		{"TCP options that are not there", edit(tcp4(t), 46, 0x60), 10, 5, CauseShort, 54, 58, ""},
		{"bytes behind the header", append(tcp4(t), 0), 10, 5, CauseTrailing, 55, 54, "ends at 54"},
		{"UDP and bytes behind", edit(tcp4(t), 23, 17), 10, 5, CauseTrailing, 54, 42, ""},
		{"cut UDP", edit(tcp4(t), 23, 17)[:40], 10, 5, CauseShort, 40, 42, ""},
		{"SYN cut in two", edit(tcp4(t), 47, 0x02), 10, 5, CauseFlags, 2, 0, "0x02"},
		{"RST cut in two", edit(tcp4(t), 47, 0x14), 10, 5, CauseFlags, 0x14, 0, ""},
		{"URG cut in two", edit(tcp4(t), 47, 0x30), 10, 5, CauseFlags, 0x30, 0, ""},
		{"too long for IPv4", tcp4(t), 70000, 65496, CauseLength, 65536, 65535, "65536"},
		{"too long for IPv6", six(6), 70000, 65516, CauseLength, 65536, 65535, ""},
		{"IPv6 fragment header", six(44, 6, 0, 0, 0, 0, 0, 0, 0), 10, 5, CauseFragment, 44, 0, ""},
		{"IPv6 on its way", six(43, 6, 0, 4, 1, 0, 0, 0, 0), 10, 5, CauseRouted, 1, 0, "1 segments left"},
		{"IPsec", six(51, 6, 0, 0, 0, 0, 0, 0, 0), 10, 5, CauseProtocol, 51, 0, ""},
		{"cut extension header", six(0, 6, 9, 0, 0, 0, 0, 0, 0), 10, 5, CauseShort, 82, 62, ""},
		{"cut tag", edit(edit(tcp4(t), 12, 0x81), 13, 0)[:16], 10, 5, CauseShort, 16, 18, "want 18"},
	} {
		var p Plan
		err := p.Make(c.header, c.payload, c.mss)
		var r *Refusal
		switch {
		case !errors.As(err, &r):
			t.Errorf("%s: %v", c.name, err)
		case r.Cause != c.cause || r.Value != c.value || r.Limit != c.limit || !strings.Contains(r.Error(), c.says):
			t.Errorf("%s: %v: %+v, want %v %d %d and %q", c.name, r, *r, c.cause, c.value, c.limit, c.says)
		case p.Segments() != 0:
			t.Errorf("%s: refused, and has %d segments", c.name, p.Segments())
		}
	}
}

func edit(b []byte, at int, v byte) []byte {
	b[at] = v
	return b
}

// TestOneSegmentMayBeWhatSeveralMayNot: SYN and the like pass when nothing is cut.
func TestOneSegmentMayBeWhatSeveralMayNot(t *testing.T) {
	var p Plan
	for _, payload := range []int{0, 5} {
		if err := p.Make(edit(tcp4(t), 47, 0x02), payload, 5); err != nil || p.Segments() != 1 {
			t.Errorf("%d bytes: %v, %d segments", payload, err, p.Segments())
		}
	}
}

// TestKeptChecksumsStay: a card that was not asked leaves them.
func TestKeptChecksumsStay(t *testing.T) {
	h := tcp4(t)
	h[24], h[25], h[50], h[51] = 1, 2, 3, 4
	var p Plan
	if err := p.Make(h, 10, 5); err != nil {
		t.Fatal(err)
	}
	p.KeepL3, p.KeepL4 = true, true
	buf := make([]byte, p.MaxFrame())
	s := p.Segmenter(h)
	for s.Write(buf, make([]byte, 10)) != 0 {
		if buf[24] != 1 || buf[25] != 2 || buf[50] != 3 || buf[51] != 4 {
			t.Errorf("checksums %x %x", buf[24:26], buf[50:52])
		}
	}
}

// TestUDPChecksumOfZeroIsSentAsOnes finds payloads whose sum comes out as 0.
func TestUDPChecksumOfZeroIsSentAsOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	k := build(r)
	for !k.udp {
		k = build(r)
	}
	h := k.header()
	var p Plan
	if err := p.Make(h, 2, 2); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, p.MaxFrame())
	s := p.Segmenter(h)
	s.Write(buf, []byte{0, 0})
	check := []byte{buf[p.l4+6], buf[p.l4+7]} // with it as the payload the sum is all ones
	s.Seek(0)
	s.Write(buf, check)
	if buf[p.l4+6] != 0xff || buf[p.l4+7] != 0xff {
		t.Errorf("checksum %x", buf[p.l4+6:p.l4+8])
	}
}

func TestWriteTakesNothingIntoTooLittle(t *testing.T) {
	h := tcp4(t)
	var p Plan
	if err := p.Make(h, 10, 5); err != nil {
		t.Fatal(err)
	}
	s := p.Segmenter(h)
	buf := make([]byte, p.MaxFrame())
	if s.Write(buf[:p.MaxFrame()-1], make([]byte, 10)) != 0 || s.Write(buf, make([]byte, 10)) != p.MaxFrame() {
		t.Error("a buffer too short took a segment")
	}
	if csum.Sum(buf[14:34], 0) != 0xffff {
		t.Error("not the first segment")
	}
}

func TestNothingAllocates(t *testing.T) {
	h, payload, buf := tcp4(t), make([]byte, 64000), make([]byte, 2048)
	run := [][]byte{buf, make([]byte, 2048), make([]byte, 2048)}
	if n := testing.AllocsPerRun(20, func() {
		var p Plan
		if p.Make(h, len(payload), 1448) != nil {
			t.Fatal("refused")
		}
		s := p.Segmenter(h)
		for s.Write(buf, payload) != 0 {
		}
		s.Seek(0)
		for s.WriteRun(run, payload) != 0 {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
