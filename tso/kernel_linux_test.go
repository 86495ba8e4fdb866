package tso_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/tso"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// Members of struct virtio_net_hdr (linux/virtio_net.h).
const (
	vnetBytes     = 10
	needsCsum     = 1
	gsoTCP4       = 1
	gsoTCP6       = 4
	gsoUDP        = 5 // VIRTIO_NET_HDR_GSO_UDP_L4
	gsoECN        = 0x80
	superFrameMax = 65000
)

// packetSocket is a raw socket on an interface of the namespace, which the test closes.
func packetSocket(t *testing.T, ns, name string, vnet bool) (fd int) {
	t.Helper()
	var index int
	nstest.Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error { index = l.Attrs().Index; return nil })
	nstest.Do(t, ns, func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if vnet {
			if err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
				return err
			}
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) // or as much as there is
		all := uint16(unix.ETH_P_ALL)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index})
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// superFrame is the packet as the kernel takes it for cutting: lengths of the whole, and the pseudo header's sum.
func superFrame(header, payload []byte, h *proto.Headers, mss int) []byte {
	frame := append(bytes.Clone(header), payload...)
	be, ip, l4 := binary.BigEndian, frame[h.L3Off:], frame[h.L4Off:]
	if h.IPVersion == 4 {
		be.PutUint16(ip[2:], uint16(len(ip)))
		be.PutUint16(ip[10:], 0)
		be.PutUint16(ip[10:], ^sum(ip[:h.L4Off-h.L3Off]))
	} else {
		be.PutUint16(ip[4:], uint16(len(ip)-40))
	}
	kind, at := uint8(gsoUDP), 6
	if h.L4Proto == proto.ProtoTCP {
		kind, at = map[uint8]uint8{4: gsoTCP4, 6: gsoTCP6}[h.IPVersion], 16
		if l4[13]&0x80 != 0 {
			kind |= gsoECN
		}
	} else {
		be.PutUint16(l4[4:], uint16(len(l4)))
	}
	pseudo := append(bytes.Clone(frame[h.SrcOff:h.SrcOff+2*h.AddrLen]), 0, h.L4Proto)
	pseudo = be.AppendUint16(pseudo, uint16(len(l4)))
	be.PutUint16(l4[at:], sum(pseudo))
	v := make([]byte, vnetBytes, vnetBytes+len(frame))
	v[0], v[1] = needsCsum, kind
	ne := binary.NativeEndian
	ne.PutUint16(v[2:], uint16(len(header)))
	ne.PutUint16(v[4:], uint16(mss))
	ne.PutUint16(v[6:], uint16(h.L4Off))
	ne.PutUint16(v[8:], uint16(at))
	return append(v, frame...)
}

func sum(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i&1))
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// TestAgreesWithTheKernelHere has this machine's kernel cut packets and compares every byte: TCP and UDP, IPv4 and IPv6,
// options, flags and sizes by chance, to the longest that the kernel takes.
func TestAgreesWithTheKernelHere(t *testing.T) {
	nstest.Need(t)
	a, b, nsB := nstest.Veth(t)
	nstest.Run(t, "", "ethtool", "-K", a, "tx", "off", "tso", "off", "gso", "on")
	out, in := packetSocket(t, "", a, true), packetSocket(t, nsB, b, false)
	tv := unix.NsecToTimeval(int64(10 * time.Second))
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		version, tcp := 4+2*int(seed&1), seed&2 != 0
		s := frametest.Random(r, version, tcp, 0, 0)
		s.TCPOptions = 4 * r.IntN(11)
		header := s.Build()
		var h proto.Headers
		proto.Parse(header, &h)
		if version == 4 {
			binary.BigEndian.PutUint16(header[h.L3Off+4:], uint16(r.Uint32()))
		}
		mss, segments := 100+r.IntN(1300), 2+r.IntN(40)
		if tcp {
			binary.BigEndian.PutUint32(header[h.L4Off+4:], r.Uint32()|0xffff0000)
			header[h.L4Off+13] = byte(r.Uint32())&(0x80|0x40|0x08|0x01) | 0x10
		}
		payload := make([]byte, min(1+(segments-1)*mss+r.IntN(mss), superFrameMax-len(header)))
		for i := range payload {
			payload[i] = byte(r.Uint32())
		}
		if _, err := unix.Write(out, superFrame(header, payload, &h, mss)); err != nil {
			t.Fatalf("seed %d: the kernel refused it: %v", seed, err)
		}
		compareKernel(t, fmt.Sprintf("seed %d", seed), in, header, payload, mss)
	}
	sendRecorded(t, out, in, nsB, a, b)
}

// sendRecorded sends the packets that are recorded without their payload once more, with one by chance.
func sendRecorded(t *testing.T, out, in int, nsB, a, b string) {
	for ns, name := range map[string]string{"": a, nsB: b} {
		nstest.Link(t, ns, name, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMTU(l, 9000) })
	}
	r, sent := rand.New(rand.NewPCG(1, 9)), 0
	for _, c := range tso.KernelCases(t) {
		if c.Frames != nil {
			continue
		}
		sent++
		payload := make([]byte, c.PayloadLen)
		for i := range payload {
			payload[i] = byte(r.Uint32())
		}
		var h proto.Headers
		proto.Parse(append(bytes.Clone(c.Header), payload...), &h)
		if h.L3Off == 0 || h.SrcOff == 0 {
			t.Fatalf("%v: %v", &c, h.Status)
		}
		if _, err := unix.Write(out, superFrame(c.Header, payload, &h, c.MSS)); err != nil {
			t.Fatalf("%v: the kernel refused it: %v", &c, err)
		}
		compareKernel(t, c.String(), in, c.Header, payload, c.MSS)
	}
	if sent != 16 {
		t.Errorf("%d recorded packets sent, want 16", sent)
	}
}

// compareKernel reads what the kernel made and compares it with package tso.
func compareKernel(t *testing.T, name string, in int, header, payload []byte, mss int) {
	t.Helper()
	var p tso.Plan
	if err := p.Make(header, len(payload), mss); err != nil {
		t.Fatal(err)
	}
	s := p.Segmenter(header)
	want, got := make([]byte, p.MaxFrame()), make([]byte, 1<<16)
	for i := range p.Segments() {
		n := s.Write(want, payload)
		k, from, err := unix.Recvfrom(in, got, 0)
		for err == nil && from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			k, from, err = unix.Recvfrom(in, got, 0)
		}
		if err != nil {
			t.Fatalf("%s: segment %d of %d did not come: %v", name, i, p.Segments(), err)
		}
		whole := want[:n]
		if whole[12] == 0x81 && whole[13] == 0 { // the receiving kernel takes the tag off
			whole = append(bytes.Clone(whole[:12]), whole[16:]...)
		}
		if !bytes.Equal(got[:k], whole) {
			t.Fatalf("%s: segment %d of %d\nkernel %x\n   tso %x", name, i, p.Segments(), got[:k], whole)
		}
	}
}
