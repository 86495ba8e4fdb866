package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

const (
	qkey   = 0x11111111
	grhLen = 40
)

// udQP makes a UD queue pair in RTS.
func (e *end) udQP(c engine.QPConfig) *engine.QP {
	e.x.Helper()
	q := e.udReset(c)
	e.x.ok(q.MoveTo(engine.StateRTS, engine.QPAttr{QKey: qkey, SQPSN: 0x1234}))
	return q
}

// udReset makes a UD queue pair in RESET.
func (e *end) udReset(c engine.QPConfig) *engine.QP {
	e.x.Helper()
	c.Type, c.SendCQ, c.RecvCQ = engine.UD, e.cq, e.cq
	if c.MaxSendWR == 0 {
		c.MaxSendWR = 64
	}
	if c.MaxRecvWR == 0 {
		c.MaxRecvWR = 64
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 4), max(c.MaxRecvSGE, 4)
	q, err := e.pd.NewQP(c)
	e.x.ok(err)
	return q
}

// udPair opens two ends with a UD queue pair each.
func (x *trial) udPair() (a, b *end, qa, qb *engine.QP) {
	x.Helper()
	one, other := x.uris()
	a, b = x.open(one, engine.QPConfig{}), x.open(other, engine.QPConfig{})
	return a, b, a.udQP(engine.QPConfig{}), b.udQP(engine.QPConfig{})
}

// watched opens two ends: a has a UD queue pair, b sees the frames.
func (x *trial) watched() (a, b *end, qa *engine.QP) {
	x.Helper()
	a, b = x.pair(engine.QPConfig{})
	return a, b, a.udQP(engine.QPConfig{})
}

// gid gives the end's first address of a family, 4 or 6.
func (e *end) gid(family int) engine.GID {
	e.x.Helper()
	for _, g := range e.dev.GIDs() {
		if g.GID.Is4() == (family == 4) {
			return g.GID
		}
	}
	if !overLoop() {
		e.x.Skipf("%s has no IPv%d address", e.dev.Caps().Name, family)
	}
	e.x.Fatalf("%s has no IPv%d address", e.dev.Caps().Name, family)
	return engine.GID{}
}

// families gives those in which the end has an address.
func (e *end) families() (list []int) {
	has := map[bool]bool{}
	for _, g := range e.dev.GIDs() {
		has[g.GID.Is4()] = true
	}
	for _, f := range []int{4, 6} {
		if has[f == 4] {
			list = append(list, f)
		}
	}
	e.x.check(len(list) > 0, "%s has no address", e.dev.Caps().Name)
	return list
}

// to makes the address of an end.
func (e *end) to(b *end, family int) *engine.AH {
	e.x.Helper()
	return e.resolve(engine.Dest{GID: b.gid(family)})
}

func (e *end) resolve(d engine.Dest) *engine.AH {
	e.x.Helper()
	if d.SGIDIndex == 0 {
		d.SGIDIndex = engine.AnyGID
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ah, err := e.pd.ResolveAH(ctx, d)
	e.x.ok(err)
	return ah
}

// gram makes a signaled datagram.
func (e *end) gram(id uint64, ah *engine.AH, qpn uint32, data []byte) engine.SendWR {
	e.x.Helper()
	wr := engine.SendWR{ID: id, Opcode: engine.OpSend, Flags: engine.Signaled, AH: ah, RemoteQPN: qpn, RemoteQKey: qkey}
	if len(data) > 0 {
		wr.SGEs = []engine.SGE{e.big(data)}
	}
	return wr
}

// big is piece for more bytes than the pool's frames have.
func (e *end) big(data []byte) engine.SGE {
	e.x.Helper()
	if len(data) <= 2048 {
		return e.piece(data)
	}
	mr, err := e.pd.Register(bytes.Clone(data), 0)
	e.x.ok(err)
	return mr.SGE(0, len(data))
}

func (e *end) postTo(q *engine.QP, wrs ...engine.SendWR) {
	e.x.Helper()
	n, err := q.Post(wrs)
	e.x.ok(err)
	e.x.check(n == len(wrs), "posted %d of %d", n, len(wrs))
}

// buffer is memory for one receive.
type buffer struct {
	mem []byte
	mr  engine.MR
}

// buffer posts one receive of n bytes under an ID.
func (e *end) buffer(q *engine.QP, id uint64, n int) buffer {
	e.x.Helper()
	b := buffer{mem: bytes.Repeat([]byte{0xa5}, max(n, 1))}
	var err error
	b.mr, err = e.pd.Register(b.mem, engine.LocalWrite)
	e.x.ok(err)
	e.x.ok(q.PostRecv1(id, b.mr.SGE(0, n)))
	return b
}

// got takes one receive and judges its ID, its length and its payload.
func (e *end) got(id uint64, b buffer, payload []byte) engine.Completion {
	e.x.Helper()
	c := e.one(id, engine.StatusSuccess)
	e.x.check(c.Recv && c.Opcode == engine.WCRecv && c.ByteLen == uint32(len(payload)+grhLen) && c.Flags&engine.WCGRH != 0,
		"%+v, want %d bytes", c, len(payload)+grhLen)
	e.x.check(bytes.Equal(b.mem[grhLen:c.ByteLen], payload), "got %x, want %x", b.mem[grhLen:c.ByteLen], payload)
	behind := b.mem[c.ByteLen:]
	e.x.check(bytes.Count(behind, []byte{0xa5}) == len(behind), "bytes behind the message were written: %x", behind)
	return c
}

func message(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

// roce makes a RoCE v2 frame from one end to the other, without the device.
func roce(from, to *end, family int, u proto.UD, payload []byte) []byte {
	src, dst := from.gid(family), to.gid(family)
	return roceTo(from.dev.Caps().MAC, to.dev.Caps().MAC, src, dst, u, payload)
}

func roceTo(srcMAC, dstMAC [6]byte, src, dst engine.GID, u proto.UD, payload []byte) []byte {
	f := append(dstMAC[:len(dstMAC):len(dstMAC)], srcMAC[:]...)
	u.Pad = uint8(-len(payload) & 3)
	head := make([]byte, 24)
	head = head[:u.Put(head)]
	length := proto.UDPBytes + len(head) + len(payload) + int(u.Pad) + proto.ICRCBytes
	l4 := proto.IPv6Bytes
	if dst.Is4() {
		l4 = proto.IPv4Bytes
		f = append(f, 0x08, 0x00, 0x45, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(l4+length))
		f = append(f, 0, 0, 0x40, 0, 64, proto.ProtoUDP, 0, 0)
		f = append(append(f, src[12:]...), dst[12:]...)
		binary.BigEndian.PutUint16(f[24:], csum.Finish(csum.Sum(f[14:34], 0)))
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(length))
		f = append(append(append(f, proto.ProtoUDP, 64), src[:]...), dst[:]...)
	}
	f = append(f, proto.RoCEPort>>8, proto.RoCEPort&0xff, proto.RoCEPort>>8, proto.RoCEPort&0xff) // udp: sends from no other port
	f = binary.BigEndian.AppendUint16(f, uint16(length))
	f = append(append(append(f, 0, 0), head...), payload...)
	f = append(f, make([]byte, int(u.Pad)+proto.ICRCBytes)...)
	version := uint8(6)
	if dst.Is4() {
		version = 4
	}
	end := len(f) - proto.ICRCBytes
	proto.PutICRC(f[end:], proto.ICRC(f[14:], version, l4, end-14))
	return f
}

// inject sends a frame as it is, by a's raw queue pair.
func (e *end) inject(f []byte) {
	e.x.Helper()
	e.post(e.send(1, f))
	e.one(1, engine.StatusSuccess)
}

// good is the transport header of a datagram that q takes.
func good(q *engine.QP) proto.UD {
	return proto.UD{Opcode: proto.OpUDSend, PKey: 0xffff, DestQP: q.QPN(), QKey: qkey, SrcQP: 0x12, PSN: 1}
}

// seen takes a frame that an end sees and takes it apart.
func (e *end) seen() (frame []byte, h proto.Headers, u proto.UD) {
	e.x.Helper()
	c := e.take(1)[0]
	frame = e.pool.Bytes(uint32(c.WRID))[:c.ByteLen]
	proto.Parse(frame, &h)
	b, ok := h.Payload(frame)
	e.x.check(ok && h.DstPort == proto.RoCEPort, "no RoCE frame: %x", frame)
	_, ok = proto.ParseUD(b, &u)
	e.x.check(ok, "no datagram: %x", frame)
	end := h.PayloadEnd - proto.ICRCBytes
	e.x.check(proto.ICRC(frame[h.L3Off:], h.IPVersion, h.L4Off-h.L3Off, end-h.L3Off) == proto.LoadICRC(frame[end:]), "ICRC of %x", frame)
	return frame, h, u
}

func group(s string) engine.GID { return engine.GIDFromAddr(netip.MustParseAddr(s)) }
