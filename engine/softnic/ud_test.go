package softnic

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ring"
)

// golden are RoCE v2 frames made and dissected by other programs: scapy 2.5.0 (IPv4) and tshark 4.0.17 (all).
var golden = []string{
	"020000000002020000000001080045000038000040004011b6b1c0000201c0000202c12312b7002400006400ffff0000001100001234111111110000001270696e67606f9b8b",
	"020000000002020000000001080045020040000040000111f5a7c0000201c0000202c12312b7002c000065b0ffff00000011000012341111111100000012deadbeef68656c6c6f0000007f6ad486",
	"020000000002020000000001080045000034000040004011b6b5c0000201c0000202c12312b7002000006400ffff00000011000012341111111100000012e702c57f",
	"02000000000202000000000186dd600000000024114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002400006400ffff0000001100001234111111110000001270696e670cd413cf",
	"02000000000202000000000186dd62012345002c114020010db800000000000000000000000120010db8000000000000000000000002c12312b7002c000065b0ffff00000011000012341111111100000012deadbeef68656c6c6f00000067fc7358",
}

// parts is a frame taken apart by package proto, which its own tests hold to other programs.
type parts struct {
	h       proto.Headers
	u       proto.UD
	payload []byte
	src     engine.GID
	dst     engine.GID
}

func takeApart(t testing.TB, frame []byte) (p parts) {
	t.Helper()
	if !proto.Parse(frame, &p.h) || p.h.Status != proto.OK || p.h.DstPort != proto.RoCEPort {
		t.Fatalf("no RoCE frame: %.80x", frame)
	}
	off, ok := proto.ParseUD(frame[p.h.PayloadOff:p.h.PayloadEnd], &p.u)
	if !ok {
		t.Fatalf("no datagram: %.80x", frame)
	}
	p.payload = frame[p.h.PayloadOff+off : p.h.PayloadEnd-proto.ICRCBytes-int(p.u.Pad)]
	gid := func(at int) engine.GID {
		a, _ := netip.AddrFromSlice(frame[at : at+p.h.AddrLen])
		return engine.GIDFromAddr(a)
	}
	p.src, p.dst = gid(p.h.SrcOff), gid(p.h.DstOff)
	return p
}

// av is the address with which the frame was sent.
func (p *parts) av(frame []byte) ring.AV {
	f := ring.AVFields{SrcPort: p.h.SrcPort, MAC: [6]byte(frame[:6]), GID: p.dst}
	ip := frame[p.h.L3Off:]
	if p.h.IPVersion == 4 {
		f.TClass, f.HopLimit = ip[1], ip[8]
	} else {
		f.TClass, f.HopLimit = ip[0]<<4|ip[1]>>4, ip[7]
		f.FlowLabel = binary.BigEndian.Uint32(ip) & 0xfffff
	}
	return ring.MakeAV(&f)
}

// pairFor opens a loop whose ports have the frame's addresses.
func (p *parts) pairFor(t testing.TB, frame []byte, c Config) (a, b *NIC) {
	t.Helper()
	o := wire.LoopOptions{Name: fmt.Sprintf("%s-%d", t.Name(), loopNumber.Add(1)), MAC: [2][6]byte{[6]byte(frame[6:12]), [6]byte(frame[:6])}}
	for i, g := range []engine.GID{p.src, p.dst} {
		if g.Is4() {
			o.Addr4[i] = g.Addr()
		} else {
			o.Addr6[i] = g.Addr()
		}
	}
	nics := [2]*NIC{}
	for i := range nics {
		w, err := wire.OpenLoop(o)
		if err != nil {
			t.Fatal(err)
		}
		if nics[i], err = New(w, c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nics[i].Close() })
	}
	for i, g := range nics[0].gids {
		if g.GID == p.src {
			own := nics[0].gids
			own[0], own[i] = own[i], own[0] // the index of the source is not in the frame
		}
	}
	return nics[0], nics[1]
}

// udHost makes a host with a UD queue pair of that number, in RTS.
func udHost(t testing.TB, n *NIC, qpn uint32, c hostConfig, a engine.QPAttr) *host {
	t.Helper()
	n.lastQP = qpn - 1
	c.kind, c.state, c.maxBB = engine.UD, engine.StateInit, 16
	h := newHost(t, n, c)
	if h.qpn != qpn {
		t.Fatalf("QP 0x%x, want 0x%x", h.qpn, qpn)
	}
	for _, s := range []engine.QPState{engine.StateRTR, engine.StateRTS} {
		h.ok(n.SetState(qpn, s, a))
	}
	return h
}

// postUD posts a datagram with the frame's fields, its payload in pieces of these lengths and the rest.
func (h *host) postUD(p *parts, av ring.AV, inline bool, cuts ...int) {
	h.t.Helper()
	copy(h.mem, p.payload)
	var segs []ring.Seg
	at := 0
	for _, n := range append(cuts, len(p.payload)) {
		if n = min(n, len(p.payload)-at); n > 0 {
			segs = append(segs, h.seg(at, n))
			at += n
		}
	}
	ds := 4 + len(segs)
	if inline {
		ds = 4 + ring.InlineDS(len(p.payload))
	}
	w, pi, ok := h.sq.Reserve(ring.BlocksFor(ds))
	if !ok {
		h.t.Fatal("the send queue is full")
	}
	op, flags := ring.OpSend, uint8(ring.FlagSignaled)
	if p.u.HasImm {
		op = ring.OpSendImm
	}
	if p.u.Solicited {
		flags |= ring.FlagSolicited
	}
	ring.PutCtrl(&w[0], uint16(pi), op, h.qpn, ds, flags, p.u.Imm)
	ring.PutDatagram(&w[0], &av, p.u.QKey, p.u.DestQP)
	if inline {
		ring.PutInline(w, 4, p.payload)
	} else {
		for i, s := range segs {
			ring.PutData(w, 4+i, s)
		}
	}
	h.sq.Commit(ring.BlocksFor(ds), 1)
	h.ring()
}

// remakes sends with the fields of a frame, and compares what arrives with it. rxe lets the kernel choose the IPv4
// identification, which the ICRC covers: that one is put into the frame made, which then has to be equal, too.
func remakes(t *testing.T, frame []byte, inline bool, cuts ...int) {
	t.Helper()
	p := takeApart(t, frame)
	a, b := p.pairFor(t, frame, Config{})
	tx := udHost(t, a, p.u.SrcQP, hostConfig{}, engine.QPAttr{QKey: p.u.QKey, SQPSN: p.u.PSN})
	rx := newHost(t, b, hostConfig{access: rw})
	rx.rq.Post1(rx.seg(0, 8000), 1)
	rx.rq.Publish()
	tx.postUD(&p, p.av(frame), inline, cuts...)
	b.Step(8)
	got := rx.receives()
	if len(got) != 1 || len(tx.sends()) != 1 {
		t.Fatalf("%d frames arrived", len(got))
	}
	made := rx.mem[:got[0].bytes]
	if id := frame[p.h.L3Off+4 : p.h.L3Off+6]; p.h.IPVersion == 4 && binary.BigEndian.Uint16(id) != 0 {
		ip := made[14:34]
		copy(ip[4:], id)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], csum.Finish(csum.Sum(ip, 0)))
		end := len(made) - proto.ICRCBytes
		proto.PutICRC(made[end:], proto.ICRC(made[14:], 4, 20, end-14))
	}
	if !bytes.Equal(made, frame) {
		t.Fatalf("made %x\nwant %x", made, frame)
	}
}

// takes gives a frame to a queue pair for which it is, and judges what is delivered.
func takes(t *testing.T, frame []byte) {
	t.Helper()
	p := takeApart(t, frame)
	a, b := p.pairFor(t, frame, Config{})
	tx := newHost(t, a, hostConfig{})
	rx := udHost(t, b, p.u.DestQP, hostConfig{access: rw}, engine.QPAttr{QKey: p.u.QKey})
	rx.rq.Post1(rx.seg(0, 8000), 1)
	rx.rq.Publish()
	copy(tx.mem, frame)
	tx.post(1, true, nil, nil, tx.seg(0, len(frame)))
	tx.ring()
	b.Step(8)
	c, ok := rx.rcq.Peek()
	if !ok {
		t.Fatalf("not delivered: %+v", b.counters.Drops)
	}
	op, kind := ring.CQERecv, uint8(ring.RoCEv2IPv4)
	if p.u.HasImm {
		op = ring.CQERecvImm
	}
	head := append(make([]byte, 20), frame[p.h.L3Off:p.h.L4Off]...)
	if p.h.IPVersion == 6 {
		kind, head = ring.RoCEv2IPv6, bytes.Clone(frame[p.h.L3Off:p.h.L4Off])
	}
	if c.Op() != op || c.Imm() != p.u.Imm || c.Solicited() != p.u.Solicited || c.SrcQP() != p.u.SrcQP || c.QPN() != p.u.DestQP ||
		c.SourceFlags() != ring.GRHInBuffer|kind || c.ByteLen() != uint32(40+len(p.payload)) {
		t.Fatalf("CQE %x of %+v", c[:], p.u)
	}
	if want := append(head, p.payload...); !bytes.Equal(rx.mem[:len(want)], want) || rx.mem[len(want)] != 0xa5 {
		t.Fatalf("got %x\nwant %x", rx.mem[:len(want)+1], want)
	}
}

func TestGoldenFramesAreSentAndTaken(t *testing.T) {
	for _, g := range golden {
		frame, err := hex.DecodeString(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, inline := range []bool{false, true} {
			remakes(t, frame, inline)
		}
		remakes(t, frame, false, 1, 1)
		remakes(t, frame, false, 3)
		takes(t, frame)
	}
}

// rxeFrames are the frames of two kernel rxe devices (see internal/proto/testdata).
func rxeFrames(t testing.TB) (frames [][]byte) {
	f, err := os.Open("../../internal/proto/testdata/rxe-ud.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	for err == nil {
		var b []byte
		if b, _, err = r.ReadPacketData(); err == nil {
			frames = append(frames, b)
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return frames
}

func TestFramesOfKernelRXEAreSentAndTaken(t *testing.T) {
	frames := rxeFrames(t)
	if len(frames) != 172 {
		t.Fatalf("%d frames", len(frames))
	}
	for i, frame := range frames {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) { // closes its devices
			remakes(t, frame, i%2 == 0 && len(frame) < 900)
			takes(t, frame)
			if p := takeApart(t, frame); p.h.SrcPort != proto.QPPort(p.u.SrcQP) {
				t.Errorf("port %#x of QP 0x%x", p.h.SrcPort, p.u.SrcQP)
			}
		})
	}
}
