package engine

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
)

func addr(s string) GID { return GIDFromAddr(netip.MustParseAddr(s)) }

func TestGIDsAreAddresses(t *testing.T) {
	for _, c := range []struct {
		text       string
		is4, multi bool
	}{
		{"192.0.2.1", true, false}, {"239.1.2.3", true, true}, {"2001:db8::1", false, false}, {"ff02::1", false, true},
		{"fe80::1", false, false},
	} {
		g := addr(c.text)
		if g.String() != c.text || g.Addr() != netip.MustParseAddr(c.text) || g.Is4() != c.is4 || g.IsMulticast() != c.multi {
			t.Errorf("%s: %v, IPv4 %v, group %v", c.text, g, g.Is4(), g.IsMulticast())
		}
	}
	mapped := GID{0: 0xff, 1: 0x0e, 10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3}
	if mapped.Addr() != netip.MustParseAddr("239.1.2.3") || !mapped.IsMulticast() || !mapped.Is4() {
		t.Errorf("%x is %v", mapped, mapped)
	}
	if g := GIDFromAddr(netip.Addr{}); g != (GID{}) || g.Addr().IsValid() || g.String() != "-" || g.IsMulticast() {
		t.Errorf("zero: %v", g)
	}
}

func TestResolveFillsWhatIsLeftOpen(t *testing.T) {
	link := addr("fe80::5")
	s := newStub(Caps{})
	s.gids = append(s.gids, GIDEntry{2, link})
	d, err := NewDevice(s)
	if err != nil {
		t.Fatal(err)
	}
	pd := d.DefaultPD()
	for _, c := range []struct {
		in   Dest
		own  int
		hop  uint8
		port uint16
	}{
		{Dest{GID: addr("192.0.2.1"), SGIDIndex: AnyGID}, 0, 64, 0},
		{Dest{GID: addr("2001:db8::1"), SGIDIndex: AnyGID, HopLimit: 3, SrcPort: 0xd000, FlowLabel: 9}, 1, 3, 0xd000},
		{Dest{GID: addr("fe80::9"), SGIDIndex: AnyGID, FlowLabel: 1}, 2, 64, 0xc001},
		{Dest{GID: addr("ff02::9"), SGIDIndex: AnyGID}, 2, 64, 0},
		{Dest{GID: addr("2001:db8::1"), SGIDIndex: 2}, 2, 64, 0},
	} {
		ah, err := pd.ResolveAH(context.Background(), c.in)
		if err != nil {
			t.Fatalf("%+v: %v", c.in, err)
		}
		if a := ah.Attr(); int(a.SGIDIndex) != c.own || a.HopLimit != c.hop || a.SrcPort != c.port || a.MAC != s.mac ||
			GID(a.GID) != c.in.GID || a.FlowLabel != c.in.FlowLabel {
			t.Errorf("%+v became %+v", c.in, a)
		}
	}
	for name, c := range map[string]struct {
		in   Dest
		want syscall.Errno
	}{
		"no GID":              {Dest{}, syscall.EINVAL},
		"index beyond":        {Dest{GID: addr("2001:db8::1"), SGIDIndex: 3}, syscall.EINVAL},
		"another family":      {Dest{GID: addr("2001:db8::1"), SGIDIndex: 0}, syscall.EINVAL},
		"flow label":          {Dest{GID: addr("2001:db8::1"), SGIDIndex: 1, FlowLabel: 1 << 20}, syscall.EINVAL},
		"the backend refuses": {Dest{GID: addr("192.0.2.1")}, syscall.EHOSTUNREACH},
	} {
		s.fail = nil
		if c.want == syscall.EHOSTUNREACH {
			s.fail = c.want
		}
		if _, err := pd.ResolveAH(context.Background(), c.in); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	s.gids = s.gids[:1]
	if d, err = NewDevice(s); err != nil {
		t.Fatal(err)
	}
	if _, err := d.DefaultPD().ResolveAH(context.Background(), Dest{GID: addr("2001:db8::1"), SGIDIndex: AnyGID}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("no own IPv6 address: %v", err)
	}
}

// grh4 and grh6 are the 40 bytes in front of a datagram.
func grh4(src, dst GID) []byte {
	b := make([]byte, 40)
	copy(b[20:], []byte{0x45, 0x20, 0, 60, 0, 0, 0x40, 0, 7, 17, 0, 0})
	copy(b[32:], src[12:])
	copy(b[36:], dst[12:])
	sum := uint32(0)
	for i := 20; i < 40; i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	sum = ^(sum&0xffff + sum>>16)
	b[30], b[31] = byte(sum>>8), byte(sum)
	return b
}

func grh6(src, dst GID) []byte {
	b := append([]byte{0x62, 0x01, 0x23, 0x45, 0, 60, 17, 9}, src[:]...)
	return append(b, dst[:]...)
}

// both makes the 40 bytes look like either kind.
func both(six, four []byte) []byte {
	b := append([]byte(nil), six...)
	copy(b[20:], four[20:])
	return b
}

func TestWhereADatagramCameFromIsInItsFirst40Bytes(t *testing.T) {
	d, err := NewDevice(newStub(Caps{}))
	if err != nil {
		t.Fatal(err)
	}
	pd := d.DefaultPD()
	peer4, peer6 := addr("192.0.2.9"), addr("2001:db8::9")
	wc := Completion{Recv: true, Flags: WCGRH}
	four := Dest{GID: peer4, SGIDIndex: 0, TrafficClass: 0x20, HopLimit: 7}
	six := Dest{GID: peer6, SGIDIndex: 1, TrafficClass: 0x20, HopLimit: 9, FlowLabel: 0x12345}
	noSum := grh4(peer4, stubGID4)
	noSum[30], noSum[31] = 0, 0
	for name, c := range map[string]struct {
		grh  []byte
		want Dest
		err  error
	}{
		"IPv4":                         {grh4(peer4, stubGID4), four, nil},
		"IPv6":                         {grh6(peer6, stubGID6), six, nil},
		"IPv4 behind what looks IPv6":  {both(grh6(peer6, stubGID6), grh4(peer4, stubGID4)), four, nil},
		"the same without a checksum":  {both(grh6(peer6, stubGID6), noSum), four, nil},
		"to somebody else":             {grh4(peer4, peer4), Dest{}, syscall.EINVAL},
		"to a group":                   {grh4(peer4, addr("239.1.1.1")), Dest{}, syscall.EINVAL},
		"to an IPv6 group":             {grh6(peer6, addr("ff02::1")), Dest{}, syscall.EINVAL},
		"neither":                      {make([]byte, 40), Dest{}, syscall.EPROTONOSUPPORT},
		"too short":                    {make([]byte, 39), Dest{}, syscall.EINVAL},
		"IPv6 of another next header":  {append([]byte{0x60, 0, 0, 0, 0, 60, 0x1b, 9}, make([]byte, 32)...), Dest{}, syscall.EPROTONOSUPPORT},
		"more than the 40 bytes given": {append(grh4(peer4, stubGID4), 1, 2, 3), four, nil},
	} {
		got, err := pd.DestFromCompletion(&wc, c.grh)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, err, c.want, c.err)
		}
	}
	for name, bad := range map[string]*Completion{"nil": nil, "a send": {Flags: WCGRH}, "no header": {Recv: true},
		"failed": {Recv: true, Flags: WCGRH, Status: StatusLocProt}} {
		if _, err := pd.DestFromCompletion(bad, grh4(peer4, stubGID4)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	grh := both(grh6(peer6, stubGID6), noSum)
	if n := testing.AllocsPerRun(100, func() { _, _ = pd.DestFromCompletion(&wc, grh) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An IPv6 header whose addresses happen to hold what looks like an IPv4 header: neither destination is ours, so the
// checksum decides.
func TestTheChecksumDecidesLast(t *testing.T) {
	h := (*[20]byte)(grh4(addr("192.0.2.9"), stubGID4)[20:])
	if !ipv4CsumGood(h) {
		t.Error("a good header is refused")
	}
	for i := range h {
		h[i] ^= 0x10
		if ipv4CsumGood(h) {
			t.Errorf("byte %d changed, and the checksum is right", i)
		}
		h[i] ^= 0x10
	}
}

func TestGroupsHaveMembers(t *testing.T) {
	r := newRig(t, rigConfig{qp: QPConfig{Type: UD}})
	g := addr("239.1.2.3")
	r.ok(r.q.AttachMulticast(g))
	r.ok(r.q.AttachMulticast(GID{0: 0xff, 1: 0x0e, 10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3})) // the same
	if got := r.s.groups[g]; len(got) != 1 || got[0] != r.q.QPN() {
		t.Fatalf("members %v", got)
	}
	if err := r.q.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a member was destroyed: %v", err)
	}
	r.s.fail = syscall.EIO
	if err := r.q.DetachMulticast(g); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	r.ok(r.q.DetachMulticast(g))
	for name, err := range map[string]error{"no member": r.q.DetachMulticast(g), "no group": r.q.AttachMulticast(stubGID4)} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.s.fail = syscall.ENOMEM
	if err := r.q.AttachMulticast(g); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%v", err)
	}
	r.ok(r.q.Close())
}
