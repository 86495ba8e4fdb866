package raw

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
)

// Kind names a field of a frame that can vary.
type Kind uint8

// The fields.
const (
	DstMAC    Kind = iota // 48 bits
	SrcMAC                // 48 bits
	VLANID                // 12 bits of the outermost tag
	InnerVLAN             // 12 bits of the second tag
	SrcAddr               // IPv4 or IPv6, as the template has it
	DstAddr               // IPv4 or IPv6
	FlowLabel             // 20 bits, IPv6
	SrcPort               // 16 bits, TCP or UDP
	DstPort               // 16 bits
	DestQPN               // 24 bits, RoCE v2: the queue pair that a datagram is for
	Counter               // 1, 2, 4 or 8 bytes of the payload
	kinds
)

var kindNames = [kinds]string{"destination MAC", "source MAC", "VLAN id", "inner VLAN id", "source address",
	"destination address", "flow label", "source port", "destination port", "destination QPN", "payload counter"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("field kind %d", uint8(k))
}

// Order is the order in which a field takes its values.
type Order uint8

// The orders. Inc and Dec start again at their end.
const (
	Inc Order = iota
	Dec
	Random // one of the values, by the seed and the packet's index alone
)

// Value is a field's value, up to 128 bits.
type Value struct{ Hi, Lo uint64 }

// Num is a number as a value.
func Num(n uint64) Value { return Value{Lo: n} }

// MAC is an Ethernet address as a value.
func MAC(a [6]byte) Value {
	return Value{Lo: uint64(binary.BigEndian.Uint16(a[:]))<<32 | uint64(binary.BigEndian.Uint32(a[2:]))}
}

// Addr is an IP address as a value; the zero Addr is 0.
func Addr(a netip.Addr) Value {
	if a.Is4() {
		b := a.As4()
		return Value{Lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	if !a.IsValid() {
		return Value{}
	}
	b := a.As16()
	return Value{Hi: binary.BigEndian.Uint64(b[:8]), Lo: binary.BigEndian.Uint64(b[8:])}
}

func (v Value) add(n, step uint64) Value {
	hi, lo := bits.Mul64(n, step)
	lo, carry := bits.Add64(v.Lo, lo, 0)
	return Value{v.Hi + hi + carry, lo}
}

func (v Value) less(w Value) bool { return v.Hi < w.Hi || v.Hi == w.Hi && v.Lo < w.Lo }

// Field is a varying field: the values Lo, Lo+Step, ... up to Hi, or those of
// List. Value i depends on i, and for Random on the seed, alone; i is the
// packet's index or, with ByFlow, its flow number. With n values and
// mix the finalizer of SplitMix64, value i is number
//
//	Inc i mod n    Dec n-1 - i mod n    Random floor(mix(Seed + i*0x9e3779b97f4a7c15) * n / 2^64)
type Field struct {
	Kind   Kind
	Order  Order
	Lo, Hi Value
	Step   uint64  // 0 means 1
	List   []Value // instead of Lo, Hi and Step
	Seed   uint64
	ByFlow bool

	Off, Width int // Counter only: bytes from the payload's start, and how many (1, 2, 4, 8)
}

// field is a Field with its place in the frame.
type field struct {
	lo      Value
	step    uint64
	n       uint64
	list    []Value
	seed    uint64
	fixed   uint64 // bits around the field that share its bytes
	off     int
	width   int // bytes that are written: 1, 2, 4, 6, 8, 16
	order   Order
	byFlow  bool
	inIP    bool     // in the IPv4 header's checksum
	inL4    bool     // in the TCP or UDP checksum
	swap    bool     // ends at an odd place of the checksummed bytes
	icrc    []inICRC // of the bytes written; nil where there is no ICRC
	byPlace []uint32 // a stream's values by place of the flow, if byFlow and narrow
}

// number is which of its n values the field has at index i.
func (f *field) number(i uint64) uint64 {
	switch f.order {
	case Random:
		x := f.seed + i*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		i, _ = bits.Mul64(x^x>>31, f.n)
		return i
	case Dec:
		return f.n - 1 - i%f.n
	}
	if i < f.n {
		return i // saves the division
	}
	return i % f.n
}

// at is the value at index i.
func (f *field) at(i uint64) Value { return f.pick(f.number(i)) }

// pick is value number x, with the fixed bits.
func (f *field) pick(x uint64) Value {
	v := f.lo
	if f.list != nil {
		v = f.list[x]
	} else {
		v = v.add(x, f.step)
	}
	v.Lo |= f.fixed
	return v
}

// sum is what a value adds to a checksum.
func (f *field) sum(v Value) uint64 { return wordSum(v.Hi, v.Lo, f.swap) }

// store writes the value's low bytes.
func (f *field) store(frame []byte, v Value) {
	b := frame[f.off : f.off+f.width]
	switch f.width {
	case 1:
		b[0] = byte(v.Lo)
	case 2:
		binary.BigEndian.PutUint16(b, uint16(v.Lo))
	case 4:
		binary.BigEndian.PutUint32(b, uint32(v.Lo))
	case 6:
		binary.BigEndian.PutUint16(b, uint16(v.Lo>>32))
		binary.BigEndian.PutUint32(b[2:], uint32(v.Lo))
	case 8:
		binary.BigEndian.PutUint64(b, v.Lo)
	case 16:
		binary.BigEndian.PutUint64(b, v.Hi)
		binary.BigEndian.PutUint64(b[8:], v.Lo)
	}
}

// wordSum is the sum of the 16-bit words of hi and lo. A number whose last
// byte stands at an even offset of the summed bytes counts 2^8 fold, which
// modulo 2^16-1 is a swap of the bytes of its sum.
func wordSum(hi, lo uint64, swap bool) uint64 {
	s := hi>>32 + hi&0xffffffff + lo>>32 + lo&0xffffffff
	if swap {
		s = s>>32 + s&0xffffffff
		return s << 8 // below 2^41; 2^8 fold
	}
	return s
}

// compile checks f against its width and gives it its values.
func (f *Field) compile(maxBits int) (field, error) {
	c := field{lo: f.Lo, step: max(f.Step, 1), n: uint64(len(f.List)), seed: f.Seed, order: f.Order, byFlow: f.ByFlow}
	if f.Order > Random {
		return c, fmt.Errorf("raw: %v: order %d is unknown", f.Kind, f.Order)
	}
	values := f.List
	if len(values) == 0 {
		values = []Value{f.Lo, f.Hi}
		if f.Hi.less(f.Lo) {
			return c, fmt.Errorf("raw: %v: the range's end %#x:%x is below its start %#x:%x", f.Kind, f.Hi.Hi, f.Hi.Lo, f.Lo.Hi, f.Lo.Lo)
		}
		c.n = steps(f.Lo, f.Hi, c.step)
	} else {
		c.list = append([]Value(nil), f.List...)
	}
	for _, v := range values {
		if maxBits <= 64 && (v.Hi != 0 || v.Lo>>maxBits != 0) {
			return c, fmt.Errorf("raw: %v: value %#x:%x has more than %d bits", f.Kind, v.Hi, v.Lo, maxBits)
		}
	}
	return c, nil
}

// steps counts lo, lo+step, ... hi, up to 2^64-1.
func steps(lo, hi Value, step uint64) uint64 {
	low, borrow := bits.Sub64(hi.Lo, lo.Lo, 0)
	high := hi.Hi - lo.Hi - borrow
	if high >= step {
		return ^uint64(0)
	}
	n, _ := bits.Div64(high, low, step)
	if n == ^uint64(0) {
		return n
	}
	return n + 1
}
