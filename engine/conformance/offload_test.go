package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"syscall"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
)

var _ = register(map[string]func(*trial){
	"H-07": func(x *trial) {
		one, other := x.uris()
		a := x.open(one, engine.QPConfig{MaxSendWR: 4})
		b := x.open(other, engine.QPConfig{MaxRecvWR: 8, RxCsum: true})
		x.ok(a.qp.MoveTo(toRTS, engine.QPAttr{}))
		x.ok(b.qp.MoveTo(toRTS, engine.QPAttr{}))
		_, err := b.qp.Attach(engine.FlowRule{Kind: engine.FlowAll})
		x.ok(err)
		unasked := b.steered(engine.FlowRule{Kind: engine.FlowAll})
		verdict := func(frame []byte) (good bool) {
			b.receives(b.qp, 1)
			a.post(a.send(1, frame))
			a.one(1, engine.StatusSuccess)
			for _, c := range b.take(2) {
				if ok := c.Flags&engine.WCCsumOK != 0; c.QPN == b.qp.QPN() {
					good = ok
				} else {
					x.check(c.QPN == unasked.QPN() && !ok, "a queue pair that did not ask: %+v", c)
				}
			}
			return good
		}
		for _, tcp := range []bool{false, true} {
			f := x.packet(4, tcp, 1, 30)
			x.check(verdict(f.bytes), "a good IPv4 packet, TCP %v", tcp)
			x.check(!verdict(f.with(f.L3Off+8, f.bytes[f.L3Off+8]^1)), "a wrong IPv4 header checksum, TCP %v", tcp)
			x.check(!verdict(f.with(f.PayloadOff, f.bytes[f.PayloadOff]^1)), "a wrong checksum, TCP %v", tcp)
			x.check(!verdict(x.packet(6, tcp, 0, 30).bytes), "IPv6, TCP %v", tcp)
		}
	},
	"H-08": func(x *trial) {
		a, b := x.pair(engine.QPConfig{MaxTSOHeader: 94})
		b.receives(b.qp, 3)
		a.post(a.segmented(x.packet(4, true, 0, 0), 250, 100))
		c := a.one(7, engine.StatusSuccess)
		x.check(c.Opcode == engine.WCTSO && c.Retired == 1, "%+v", c)
		b.take(3)
		a.quiet()
	},
	"J-24": func(x *trial) { fills(x, 4) },
	"J-25": func(x *trial) { fills(x, 6) },
	"J-26": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		first, later := x.packet(4, false, 0, 30), x.packet(4, false, 0, 30)
		first.bytes[first.L3Off+6], first.bytes[first.L3Off+10] = 0x20, 0x55
		later.bytes[later.L3Off+7], later.bytes[later.L3Off+10] = 0x03, 0x55
		arp := x.packet(4, false, 0, 30)
		arp.bytes[13] = 6
		six := x.packet(6, false, 0, 30)
		six.bytes = append(append(bytes.Clone(six.bytes[:54]), proto.ProtoUDP, 0, 0, 1, 0, 0, 0, 9), six.bytes[54:]...)
		six.bytes[20] = proto.ProtoFragment
		binary.BigEndian.PutUint16(six.bytes[18:], uint16(len(six.bytes)-54))
		binary.BigEndian.PutUint16(six.bytes[54+8+6:], 0x5555)
		for _, f := range []*packet{first, later, arp, six} {
			b.receives(b.qp, 1)
			wr := a.send(1, f.bytes)
			wr.Flags |= engine.IPCsum
			a.post(wr)
			a.one(1, engine.StatusSuccess)
			b.arrives(f.bytes)
		}
	},
	"J-27": func(x *trial) {
		a, b := x.pair(engine.QPConfig{})
		for _, version := range []int{4, 6} {
			f := x.packet(version, false, 0, 30)
			f.set16(f.PayloadOff, 0)
			f.set16(f.PayloadOff, fixed(f).at16(f.L4Off+6)) // now all adds up to ones
			want := fixed(f)
			x.check(want.at16(f.L4Off+6) == 0xffff, "gopacket and zero")
			b.receives(b.qp, 1)
			wr := a.send(1, f.bytes)
			wr.Flags |= engine.IPCsum
			a.post(wr)
			a.one(1, engine.StatusSuccess)
			b.arrives(want.bytes)
		}
	},
	"K-01": func(x *trial) {
		a := x.lone(engine.QPConfig{})
		x.check(a.qp.Cap().MaxTSOHeader == 0, "granted %d", a.qp.Cap().MaxTSOHeader)
		a.refused("no TSO header granted", []engine.SendWR{a.segmented(x.packet(4, true, 0, 0), 100, 50)}, 0, syscall.EINVAL)
	},
	"K-02": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxTSOHeader: 94})
		for _, n := range []int{0, 1, 13} {
			wr := a.segmented(x.packet(4, true, 0, 0), 100, 50)
			wr.TSOHeader = wr.TSOHeader[:n]
			a.refused("a short header", []engine.SendWR{wr}, 0, syscall.EINVAL)
		}
	},
	"K-03": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxTSOHeader: 94})
		wr := a.segmented(x.packet(4, true, 0, 0), 100, 50)
		wr.TSOHeader = make([]byte, a.qp.Cap().MaxTSOHeader+1)
		a.refused("a long header", []engine.SendWR{wr}, 0, syscall.EINVAL)
	},
	"K-04": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxTSOHeader: 94, MaxSendSGE: 8})
		most := a.dev.Caps().MaxTSO
		x.check(most > 0, "the device tells no limit")
		pool, err := a.pd.AllocPool(1, 1<<16)
		x.ok(err)
		wr := a.segmented(x.packet(4, true, 0, 0), 0, 1000)
		for left := most + 1; left > 0; left -= 1 << 16 {
			wr.SGEs = append(wr.SGEs, pool.SGE(0, min(left, 1<<16)))
		}
		a.refused("one byte too many", []engine.SendWR{wr}, 0, syscall.EINVAL)
	},
	"K-05": func(x *trial) {
		a, b := x.pair(engine.QPConfig{MaxTSOHeader: 94, MaxSendSGE: 2})
		b.receives(b.qp, 2)
		f := x.packet(4, true, 0, 0)
		wr := a.segmented(f, 0, 40)
		one, two := []byte("thirty bytes of payload are he"), []byte("re, and thirty more are there.")
		wr.SGEs = []engine.SGE{a.piece(one), a.piece(two)}
		a.hold()
		a.post(wr)
		clear(wr.TSOHeader)
		a.release()
		a.one(7, engine.StatusSuccess)
		got := b.frames(2)
		x.check(bytes.Equal(got[0][len(f.bytes):], append(bytes.Clone(one), two[:10]...)) && bytes.Equal(got[1][len(f.bytes):len(f.bytes)+20], two[10:]), "%q", got)
		x.check(bytes.Equal(got[0][:14], f.bytes[:14]), "header %x", got[0])
	},
	"K-06": func(x *trial) {
		a := x.lone(engine.QPConfig{MaxTSOHeader: 94})
		wr := a.segmented(x.packet(4, true, 0, 0), 100, 0)
		if choose(x, 22, false, false, true) {
			a.post(wr)
			a.one(7, engine.StatusLocQPOp)
			return
		}
		a.refused("no MSS", []engine.SendWR{wr}, 0, syscall.EINVAL)
	},
	"K-07": func(x *trial) {
		a, b := x.pair(engine.QPConfig{MaxTSOHeader: 94})
		f := x.packet(4, true, 0, 0)
		for _, n := range []int{0, 1, 99, 100, 101, 300, 301} {
			wr := a.segmented(f, n, 100)
			count := max(1, (n+99)/100)
			b.receives(b.qp, count)
			a.post(wr)
			a.one(7, engine.StatusSuccess)
			left := n
			for i, got := range b.frames(count) {
				want := max(len(f.bytes)+min(left, 100), b.dev.Caps().MinFrame)
				left -= min(left, 100)
				x.check(len(got) == want, "%d bytes: frame %d has %d, want %d", n, i, len(got), want)
			}
			b.quiet()
		}
	},
	"K-08": func(x *trial) {
		f := x.packet(4, true, 0, 0)
		f.set16(f.L3Off+4, 0xffff)
		for i, s := range x.segments(f, 250, 100) {
			x.check(s.at16(s.L3Off+2) == uint16(40+[]int{100, 100, 50}[i]) && s.at16(s.L3Off+4) == 0xffff+uint16(i), "segment %d: %x", i, s.bytes)
		}
	},
	"K-09": func(x *trial) {
		f := x.packet(4, true, 0, 0)
		binary.BigEndian.PutUint32(f.bytes[f.L4Off+4:], 0xffffffb0)
		f.bytes[f.L4Off+13] = 0x80 | 0x10 | 0x08 | 0x01 // CWR ACK PSH FIN
		for i, s := range x.segments(f, 250, 100) {
			seq, flags := binary.BigEndian.Uint32(s.bytes[s.L4Off+4:]), s.bytes[s.L4Off+13]
			x.check(seq == uint32(0xffffffb0+100*i), "segment %d: sequence %#x", i, seq)
			x.check(flags == []byte{0x90, 0x10, 0x19}[i], "segment %d: flags %#x", i, flags)
		}
	},
	"K-10": func(x *trial) {
		for _, version := range []int{4, 6} {
			for i, s := range x.segments(x.packet(version, false, 1, 0), 250, 100) {
				x.check(s.at16(s.L4Off+4) == uint16(8+[]int{100, 100, 50}[i]), "segment %d: %x", i, s.bytes)
			}
		}
	},
	"K-11": func(x *trial) {
		for i, s := range x.segments(x.packet(6, true, 2, 0), 250, 100) {
			x.check(s.at16(s.L3Off+4) == uint16(20+[]int{100, 100, 50}[i]), "segment %d: %x", i, s.bytes)
		}
	},
	"K-12": func(x *trial) {
		a, b := x.pair(engine.QPConfig{MaxTSOHeader: 94})
		stale := choose(x, 21, false, false, true)
		for _, flags := range []engine.SendFlags{0, engine.IPCsum} {
			f := x.packet(4, true, 0, 0)
			f.set16(f.L3Off+10, 0x1111)
			f.set16(f.L4Off+16, 0x2222)
			wr := a.segmented(f, 100, 50)
			wr.Flags = engine.Signaled | flags
			b.receives(b.qp, 2)
			a.post(wr)
			a.one(7, engine.StatusSuccess)
			for _, g := range b.frames(2) {
				s := parse(x, g)
				right := bytes.Equal(fixed(s).bytes, s.bytes)
				kept := s.at16(s.L3Off+10) == 0x1111 && s.at16(s.L4Off+16) == 0x2222
				x.check(flags == 0 && stale && kept || (flags != 0 || !stale) && right, "flags %#x: %x", flags, g)
			}
		}
	},
	"K-13": likeLinux,
})

// packet is a frame with what the parser found in it.
type packet struct {
	bytes []byte
	proto.Headers
}

func parse(x *trial, frame []byte) *packet {
	x.Helper()
	p := &packet{bytes: frame}
	x.check(proto.Parse(frame, &p.Headers) && p.Status == proto.OK, "%v: %x", p.Status, frame)
	return p
}

func (p *packet) at16(at int) uint16     { return binary.BigEndian.Uint16(p.bytes[at:]) }
func (p *packet) set16(at int, v uint16) { binary.BigEndian.PutUint16(p.bytes[at:], v) }

func (p *packet) with(at int, v byte) []byte {
	b := bytes.Clone(p.bytes)
	b[at] = v
	return b
}

// packet makes a frame with payload from gopacket; its destination MAC is nobody's.
func (x *trial) packet(version int, tcp bool, vlans, payload int) *packet {
	x.Helper()
	s := frametest.Random(rand.New(rand.NewPCG(uint64(payload), uint64(version))), version, tcp, vlans, payload)
	s.DstMAC = [6]byte{2, 0, 0, 0, 0, 0x77}
	return parse(x, s.Build())
}

// fixed is the packet with right checksums, worked out plainly.
func fixed(p *packet) *packet {
	out := &packet{bytes: bytes.Clone(p.bytes), Headers: p.Headers}
	if p.IPVersion == 4 {
		out.set16(p.L3Off+10, 0)
		out.set16(p.L3Off+10, internetChecksum(out.bytes[p.L3Off:p.L4Off]))
	}
	at := p.L4Off + 6
	if p.L4Proto == proto.ProtoTCP {
		at = p.L4Off + 16
	}
	out.set16(at, 0)
	l4 := out.bytes[p.L4Off:p.PayloadEnd]
	pseudo := append(bytes.Clone(out.bytes[p.SrcOff:p.SrcOff+2*p.AddrLen]), 0, p.L4Proto)
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(l4)))
	sum := internetChecksum(append(pseudo, l4...))
	if sum == 0 && p.L4Proto == proto.ProtoUDP {
		sum = 0xffff
	}
	out.set16(at, sum)
	return out
}

// internetChecksum is RFC 1071's, word by word.
func internetChecksum(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i&1))
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// fills sends packets with spoilt checksums and judges that they arrive as gopacket made them.
func fills(x *trial, version int) {
	x.Helper()
	a, b := x.pair(engine.QPConfig{})
	for vlans := range 3 {
		for _, tcp := range []bool{false, true} {
			for _, n := range []int{18, 19, 700} {
				want := x.packet(version, tcp, vlans, n)
				f := &packet{bytes: bytes.Clone(want.bytes), Headers: want.Headers}
				f.set16(f.L4Off+map[bool]int{false: 6, true: 16}[tcp], 0x1234)
				if version == 4 {
					f.set16(f.L3Off+10, uint16(n))
				}
				wr := a.send(1, f.bytes)
				wr.Flags |= engine.IPCsum
				b.receives(b.qp, 1)
				a.post(wr)
				a.one(1, engine.StatusSuccess)
				b.arrives(want.bytes)
			}
		}
	}
}

// segmented makes a signaled TSO request, 7, of n bytes.
func (e *end) segmented(header *packet, n int, mss uint16) engine.SendWR {
	e.x.Helper()
	wr := engine.SendWR{ID: 7, Opcode: engine.OpTSO, Flags: engine.Signaled | engine.IPCsum, MSS: mss, TSOHeader: bytes.Clone(header.bytes)}
	if n > 0 {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		wr.SGEs = []engine.SGE{e.piece(payload)}
	}
	return wr
}

// frames takes n receives and gives their bytes.
func (e *end) frames(n int) (out [][]byte) {
	e.x.Helper()
	for _, c := range e.take(n) {
		e.x.check(c.Status == engine.StatusSuccess && c.Recv, "%+v", c)
		out = append(out, bytes.Clone(e.pool.Bytes(uint32(c.WRID))[:c.ByteLen]))
		e.pool.Put(uint32(c.WRID))
	}
	return out
}

// segments sends n bytes behind the header and gives what arrives, whose checksums it has judged.
func (x *trial) segments(header *packet, n int, mss uint16) (out []*packet) {
	x.Helper()
	a, b := x.pair(engine.QPConfig{MaxTSOHeader: 128})
	count := (n + int(mss) - 1) / int(mss)
	b.receives(b.qp, count)
	a.post(a.segmented(header, n, mss))
	a.one(7, engine.StatusSuccess)
	for i, f := range b.frames(count) {
		s := parse(x, f)
		x.check(bytes.Equal(fixed(s).bytes, f), "segment %d has a wrong checksum: %x", i, f)
		out = append(out, s)
	}
	x.close()
	return out
}

// likeLinux sends the recorded packets of Linux's own segmentation whose payload was recorded.
func likeLinux(x *trial) {
	file, err := os.Open("../../tso/testdata/gso-kernel.json.gz")
	x.ok(err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	x.ok(err)
	var cases []struct {
		MSS             uint16
		Header, Payload string
		Frames          []string
	}
	x.ok(json.NewDecoder(z).Decode(&cases))
	a, b := x.pair(engine.QPConfig{MaxTSOHeader: 128})
	big, err := a.pd.AllocPool(1, 1<<16)
	x.ok(err)
	judged := 0
	for _, c := range cases {
		if c.Frames == nil || int(c.MSS) > 1900 {
			continue
		}
		header, err := hex.DecodeString(c.Header)
		x.ok(err)
		payload, err := hex.DecodeString(c.Payload)
		x.ok(err)
		copy(big.Bytes(0), payload)
		b.receives(b.qp, len(c.Frames))
		a.post(engine.SendWR{ID: 7, Opcode: engine.OpTSO, Flags: engine.Signaled | engine.IPCsum, MSS: c.MSS, TSOHeader: header,
			SGEs: []engine.SGE{big.SGE(0, len(payload))}})
		a.one(7, engine.StatusSuccess)
		for i, got := range b.frames(len(c.Frames)) {
			want, err := hex.DecodeString(c.Frames[i])
			x.ok(err)
			x.check(bytes.Equal(got, b.padded(want)), "frame %d\n got %x\nwant %x", i, got, want)
			judged++
		}
	}
	x.check(judged > 300, "%d frames were judged", judged)
}
