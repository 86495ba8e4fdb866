package traffic

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// Values is the set and order of a header field's values: one, a range, or a
// list. The zero value means "not given". Value i depends on i and the seed
// alone, so any frame of a run can be recomputed.
type Values struct {
	kind  valueKind
	mode  Mode
	first u128
	count uint64 // of a range; a list has its own length
	list  []u128
	text  string
}

// Mode is the order in which values are taken.
type Mode uint8

// The orders; each starts again at its end.
const (
	Inc Mode = iota
	Dec
	Rand
)

type valueKind uint8

const (
	kindNone valueKind = iota
	kindAddr4
	kindAddr6
	kindMAC
	kindPort
	kindVLAN
	kindFlowLabel
	kindQPN
)

// u128 is a field's value: an IPv6 address needs all of it.
type u128 struct{ hi, lo uint64 }

func (a u128) add(n uint64) u128 {
	lo, carry := bits.Add64(a.lo, n, 0)
	return u128{a.hi + carry, lo}
}

func (a u128) less(b u128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// span is the number of values from a to b, at most 2^64-1.
func (a u128) span(b u128) uint64 {
	lo, borrow := bits.Sub64(b.lo, a.lo, 0)
	if b.hi-a.hi-borrow != 0 || lo == ^uint64(0) {
		return ^uint64(0)
	}
	return lo + 1
}

// maxListValues bounds what a comma-separated list may expand to.
const maxListValues = 65536

// IsZero reports that the field was not given.
func (v Values) IsZero() bool { return v.kind == kindNone }

// String is the field as written; empty when it was not given.
func (v Values) String() string { return v.text }

// Len is the number of values, at most 2^64-1.
func (v Values) Len() uint64 {
	if v.list != nil {
		return uint64(len(v.list))
	}
	return v.count
}

// Mode is the order of the values.
func (v Values) Mode() Mode { return v.mode }

// Is6 reports IPv6 addresses.
func (v Values) Is6() bool { return v.kind == kindAddr6 }

// at is value i.
func (v Values) at(i, seed uint64) u128 {
	n := v.Len()
	switch v.mode {
	case Dec:
		i = n - 1 - i%n
	case Rand:
		i, _ = bits.Mul64(mix64(seed+i*0x9e3779b97f4a7c15), n)
	default:
		i %= n
	}
	if v.list != nil {
		return v.list[i]
	}
	return v.first.add(i)
}

// Uint is value i of a field of at most 64 bits.
func (v Values) Uint(i, seed uint64) uint64 { return v.at(i, seed).lo }

// Addr is address i.
func (v Values) Addr(i, seed uint64) netip.Addr { return addrOf(v.at(i, seed), v.Is6()) }

// put writes value i into b, big-endian, right aligned; bits above maskBits of
// b stay as they are.
func (v Values) put(b []byte, maskBits int, i, seed uint64) {
	x := v.at(i, seed)
	var full [16]byte
	binary.BigEndian.PutUint64(full[:8], x.hi)
	binary.BigEndian.PutUint64(full[8:], x.lo)
	for n := len(b) - 1; n >= 0 && maskBits > 0; n-- {
		mask := byte(0xff)
		if maskBits < 8 {
			mask = 1<<maskBits - 1
		}
		b[n] = b[n]&^mask | full[16-len(b)+n]&mask
		maskBits -= 8
	}
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fieldSpec is how one kind of field is written.
type fieldSpec struct {
	flag  string
	wants string
	whole string // what a bare "rand" ranges over
	parse func(string) (u128, valueKind, bool)
}

var (
	specMAC  = fieldSpec{"mac", "aa:bb:cc:dd:ee:ff, a range a-b, a list a,b,c, each with :inc, :dec or :rand", "", parseMAC}
	specPort = fieldSpec{"port", "0-65535: a port, a range 1000-2000, a list, each with :inc, :dec or :rand", "1024-65535", uintParser(65535, kindPort)}
	specVLAN = fieldSpec{"vlan", "0-4094: an id, a range 100-200, a list, each with :inc, :dec or :rand", "1-4094", uintParser(4094, kindVLAN)}
	specFlow = fieldSpec{"flow-label", "0-1048575: a label, a range, a list, each with :inc, :dec or :rand", "0-1048575", uintParser(1<<20-1, kindFlowLabel)}
	specQPN  = fieldSpec{"qpn", "2-16777215 (0xffffff names a group): a number, a range, a list, each with :inc, :dec or :rand", "", uintParser(MaxQPN, kindQPN)}
	specAddr = fieldSpec{"addr", "an address, a range a-b, a prefix 198.18.0.0/24, a list, each with :inc, :dec or :rand", "198.18.0.0/15", parseAddr}
)

// ParseAddrs reads addresses for the flag named thing: 198.18.0.1,
// 198.18.0.1-198.18.0.99, 198.18.0.0/24 (all of it), a,b,c, or IPv6, with an
// order such as :rand behind it.
func ParseAddrs(thing, s string) (Values, error) { return specAddr.values(thing, s) }

// ParseMACs reads Ethernet addresses, their ranges and lists.
func ParseMACs(thing, s string) (Values, error) { return specMAC.values(thing, s) }

// ParsePorts reads UDP or TCP ports, their ranges and lists.
func ParsePorts(thing, s string) (Values, error) { return specPort.values(thing, s) }

// ParseVLANs reads VLAN ids, their ranges and lists.
func ParseVLANs(thing, s string) (Values, error) { return specVLAN.values(thing, s) }

// ParseFlowLabels reads IPv6 flow labels, their ranges and lists.
func ParseFlowLabels(thing, s string) (Values, error) { return specFlow.values(thing, s) }

// ParseQPNs reads numbers of queue pairs, their ranges and lists. Those of
// queue pairs 0 and 1 are for the management of RDMA devices, not for load.
func ParseQPNs(thing, s string) (Values, error) {
	v, err := specQPN.values(thing, s)
	if err != nil || v.IsZero() {
		return v, err
	}
	least := v.first
	for _, x := range v.list {
		if x.less(least) || v.list[0] == x {
			least = x
		}
	}
	if least.lo < 2 {
		return Values{}, results.Usage(thing, s, "queue pairs 0 and 1 manage the device; use "+specQPN.wants)
	}
	return v, nil
}

// values parses s. An ending that could be an order or a part of an IPv6
// address ("::1:dec") is an order; "::1:0dec" is the address.
func (f fieldSpec) values(thing, s string) (Values, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if text == "" {
		return Values{}, nil
	}
	if text == "rand" && f.whole != "" {
		text = f.whole + ":rand"
	}
	for i, suffix := range [...]string{":inc", ":dec", ":rand"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			if v, why := f.items(rest); why == "" {
				v.mode, v.text = Mode(i), text
				return v, nil
			}
		}
	}
	v, why := f.items(text)
	if why != "" {
		return Values{}, results.Usage(thing, s, why+"; use "+f.wants)
	}
	v.text = text
	return v, nil
}

// items parses one item or a comma-separated list; why says what is wrong.
func (f fieldSpec) items(s string) (v Values, why string) {
	parts := strings.Split(s, ",")
	if len(parts) == 1 {
		return f.item(s)
	}
	var list []u128
	for _, p := range parts {
		r, why := f.item(p)
		if why != "" {
			return Values{}, why
		}
		if v.kind != kindNone && r.kind != v.kind {
			return Values{}, "mixes IPv4 and IPv6"
		}
		v.kind = r.kind
		if r.count > maxListValues || uint64(len(list))+r.count > maxListValues {
			return Values{}, fmt.Sprintf("a list holds at most %d values", maxListValues)
		}
		for i := range r.count {
			list = append(list, r.first.add(i))
		}
	}
	v.list = list
	return v, ""
}

// item parses a value, a range a-b or a prefix.
func (f fieldSpec) item(s string) (v Values, why string) {
	if strings.Contains(s, "/") && f.flag == "addr" {
		return prefixValues(s)
	}
	low, high, isRange := strings.Cut(s, "-")
	a, kind, ok := f.parse(low)
	if !ok {
		return Values{}, fmt.Sprintf("%q is not one", low)
	}
	b := a
	if isRange {
		var kb valueKind
		if b, kb, ok = f.parse(high); !ok {
			return Values{}, fmt.Sprintf("%q is not one", high)
		}
		if kb != kind {
			return Values{}, "mixes IPv4 and IPv6"
		}
		if b.less(a) {
			return Values{}, "the range's end is below its start"
		}
	}
	return Values{kind: kind, first: a, count: a.span(b)}, ""
}

func prefixValues(s string) (v Values, why string) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return Values{}, fmt.Sprintf("%q is not a prefix", s)
	}
	p = p.Masked()
	first, kind, _ := parseAddr(p.Addr().String())
	hostBits := p.Addr().BitLen() - p.Bits()
	count := ^uint64(0)
	if hostBits < 64 {
		count = 1 << hostBits
	}
	return Values{kind: kind, first: first, count: count}, ""
}

func parseAddr(s string) (u128, valueKind, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return u128{}, kindNone, false
	}
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return u128{0, uint64(binary.BigEndian.Uint32(b[:]))}, kindAddr4, true
	}
	b := a.As16()
	return u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, kindAddr6, true
}

func addrOf(x u128, is6 bool) netip.Addr {
	if is6 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], x.hi)
		binary.BigEndian.PutUint64(b[8:], x.lo)
		return netip.AddrFrom16(b)
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(x.lo))
	return netip.AddrFrom4(b)
}

func parseMAC(s string) (u128, valueKind, bool) {
	m, err := net.ParseMAC(s)
	if err != nil || len(m) != 6 || strings.Contains(s, ".") {
		return u128{}, kindNone, false
	}
	return u128{0, macUint([6]byte(m))}, kindMAC, true
}

func macUint(m [6]byte) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

func uintParser(limit uint64, k valueKind) func(string) (u128, valueKind, bool) {
	return func(s string) (u128, valueKind, bool) {
		base := 10
		if rest, ok := strings.CutPrefix(s, "0x"); ok {
			s, base = rest, 16
		}
		n, err := strconv.ParseUint(s, base, 64)
		if err != nil || n > limit {
			return u128{}, kindNone, false
		}
		return u128{0, n}, k, true
	}
}

// oneValue makes a fixed value that was not written by a user.
func oneValue(k valueKind, x u128, text string) Values {
	return Values{kind: k, first: x, count: 1, text: text}
}

func oneAddr(a netip.Addr) Values {
	x, k, _ := parseAddr(a.String())
	return oneValue(k, x, a.String())
}

func oneMAC(m [6]byte) Values {
	return oneValue(kindMAC, u128{0, macUint(m)}, net.HardwareAddr(m[:]).String())
}
