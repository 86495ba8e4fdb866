package softnic

import (
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/ring"
)

// host is the dullest driver: it writes WQEs by hand with the format's encoders and reads CQEs one by one.
type host struct {
	t        testing.TB
	nic      *NIC
	qpn      uint32
	kind     engine.QPType
	inline   int
	sq       *ring.SQ
	rq       *ring.RQ
	scq, rcq *ring.CQ
	scqn     uint32
	rcqn     uint32
	mem      []byte
	key      uint32
	addr     uint64
	kept     []ring.CQE // of receives, when keep says so
	keep     bool
}

type hostConfig struct {
	sendWR, maxBB int
	recvWR, sge   int
	cqe           int
	kind          engine.QPType
	access        engine.Access
	memBytes      int
	state         engine.QPState
	noRule        bool
	shared        *host // complete on this host's CQs
}

const testPD = 5

var loopNumber atomic.Uint64

// loopPair opens both ports of a fresh loop.
func loopPair(t testing.TB, params string, c Config) (a, b *NIC) {
	t.Helper()
	v, err := url.ParseQuery(params)
	if err != nil {
		t.Fatal(err)
	}
	o, err := wire.ParseLoop(fmt.Sprintf("%s-%d", t.Name(), loopNumber.Add(1)), v)
	if err != nil {
		t.Fatal(err)
	}
	o.Clock = c.Clock
	var nics [2]*NIC
	for i := range nics {
		w, err := wire.OpenLoop(o)
		if err != nil {
			t.Fatal(err)
		}
		if nics[i], err = New(w, c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nics[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return nics[0], nics[1]
}

func newHost(t testing.TB, n *NIC, c hostConfig) *host {
	t.Helper()
	if c.kind == 0 {
		c.kind = engine.RawPacket
	}
	if c.maxBB == 0 {
		c.maxBB = 1
	}
	if c.sendWR == 0 {
		c.sendWR = 16
	}
	if c.recvWR == 0 {
		c.recvWR = 16
	}
	if c.sge == 0 {
		c.sge = 1
	}
	if c.cqe == 0 {
		c.cqe = 255
	}
	if c.memBytes == 0 {
		c.memBytes = 1 << 16
	}
	if c.state == 0 {
		c.state = engine.StateRTS
	}
	h := &host{t: t, nic: n, kind: c.kind, inline: n.cfg.MinInline}
	if c.shared != nil {
		h.scq, h.rcq, h.scqn, h.rcqn = c.shared.scq, c.shared.rcq, c.shared.scqn, c.shared.rcqn
	} else {
		h.scq, h.scqn = h.makeCQ(c.cqe)
		h.rcq, h.rcqn = h.makeCQ(c.cqe)
	}
	h.makeQP(c)
	h.mem = make([]byte, c.memBytes)
	for i := range h.mem {
		h.mem[i] = 0xa5
	}
	var err error
	h.key, h.addr, err = n.Register(testPD, h.mem, c.access)
	h.ok(err)
	for s := engine.StateInit; s <= c.state; s++ {
		h.ok(n.SetState(h.qpn, s, engine.QPAttr{}))
	}
	if !c.noRule && c.kind == engine.RawPacket {
		_, err = n.Attach(h.qpn, engine.FlowRule{Kind: engine.FlowAll})
		h.ok(err)
	}
	return h
}

func (h *host) makeCQ(asked int) (*ring.CQ, uint32) {
	h.t.Helper()
	entries, err := ring.CQEntries(asked)
	h.ok(err)
	m, err := h.nic.NewCQ(entries)
	h.ok(err)
	cq, err := ring.NewCQ(m.CQEs, m.Rec, m.CQN)
	h.ok(err)
	return cq, m.CQN
}

func (h *host) makeQP(c hostConfig) {
	h.t.Helper()
	slots, maxWR, err := ring.SQSlots(c.sendWR, c.maxBB)
	h.ok(err)
	entries, stride, _, _, err := ring.RQGeometry(c.recvWR, c.sge)
	h.ok(err)
	m, err := h.nic.NewQP(engine.QPSpec{Type: c.kind, PD: testPD, SendCQN: h.scqn, RecvCQN: h.rcqn,
		UserIndex: 0x1234, SQSlots: slots, RQEntries: entries, RQStride: stride})
	h.ok(err)
	h.qpn = m.QPN
	h.sq, err = ring.NewSQ(m.SQ, m.SQRec, ring.SQConfig{QPN: m.QPN, MaxBB: c.maxBB, MaxWR: maxWR})
	h.ok(err)
	h.rq, err = ring.NewRQ(m.RQ, m.RQRec, ring.RQConfig{Stride: stride, Entries: entries})
	h.ok(err)
}

func (h *host) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// seg names bytes of the host's memory.
func (h *host) seg(off, n int) ring.Seg {
	return ring.Seg{Addr: h.addr + uint64(off), Len: uint32(n), LKey: h.key}
}

// post writes one SEND WQE over the segments; false: no room. inlineData goes into the WQE instead.
func (h *host) post(wrID uint64, signaled bool, hdr, inlineData []byte, segs ...ring.Seg) bool {
	ds := 1 + ring.EthDS(len(hdr)) + ring.InlineDS(len(inlineData)) + len(segs)
	if h.kind == engine.UD {
		ds = 4 + ring.InlineDS(len(inlineData)) + len(segs)
	}
	bb := ring.BlocksFor(ds)
	w, pi, ok := h.sq.Reserve(bb)
	if !ok {
		return false
	}
	flags := uint8(0)
	if signaled {
		flags = ring.FlagSignaled
	}
	ring.PutCtrl(&w[0], uint16(pi), ring.OpSend, h.qpn, ds, flags, 0)
	at := 4
	if h.kind == engine.UD {
		ring.PutDatagram(&w[0], &ring.AV{}, 0, 0)
	} else {
		at = ring.PutEth(w, 0, 0, hdr)
	}
	at = ring.PutInline(w, at, inlineData)
	for _, s := range segs {
		ring.PutData(w, at, s)
		at++
	}
	h.sq.Commit(bb, wrID)
	return true
}

func (h *host) ring() {
	if word, any := h.sq.Publish(); any {
		h.nic.Ring(h.qpn, word)
	}
}

// done is what a completion said.
type done struct {
	wrID     uint64
	op       ring.CQEOpcode
	syndrome ring.Syndrome
	bytes    uint32
	retired  int
}

// sends polls all send completions.
func (h *host) sends() (out []done) {
	for {
		c, ok := h.scq.Peek()
		if !ok {
			h.scq.Update()
			return out
		}
		d := done{op: c.Op(), bytes: c.ByteLen()}
		if d.op == ring.CQEReqErr {
			d.syndrome = c.Syndrome()
		}
		if c.QPN() != h.qpn || c.UserIndex() != 0x1234 {
			h.t.Fatalf("send CQE of QP 0x%x, user index 0x%x", c.QPN(), c.UserIndex())
		}
		if d.wrID, d.retired, ok = h.sq.Retire(c.Counter()); !ok {
			h.t.Fatalf("send CQE names counter %d, which is no WR", c.Counter())
		}
		h.scq.Consume()
		out = append(out, d)
	}
}

// receives polls all receive completions.
func (h *host) receives() (out []done) {
	for {
		c, ok := h.rcq.Peek()
		if !ok {
			h.rcq.Update()
			return out
		}
		d := done{op: c.Op(), bytes: c.ByteLen()}
		if d.op == ring.CQERecvErr {
			d.syndrome, d.bytes = c.Syndrome(), 0
		}
		if c.QPN() != h.qpn {
			h.t.Fatalf("receive CQE of QP 0x%x", c.QPN())
		}
		if d.wrID, ok = h.rq.Take(); !ok {
			h.t.Fatal("receive CQE without a posted WR")
		}
		if h.keep {
			h.kept = append(h.kept, *c)
		}
		h.rcq.Consume()
		out = append(out, d)
	}
}

// frameOf builds a frame with gopacket.
func frameOf(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// udpFrame is an IPv4 UDP frame of n payload bytes, which start with the number.
func udpFrame(t testing.TB, number uint64, n int) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 1, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{198, 18, 0, 1}, DstIP: net.IP{198, 18, 0, 2}}
	udp := &layers.UDP{SrcPort: 50000, DstPort: 50001}
	udp.SetNetworkLayerForChecksum(ip)
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(number>>(8*(i%8))) + byte(i/8)
	}
	return frameOf(t, &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(payload))
}
