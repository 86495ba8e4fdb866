package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/nstest"
	"github.com/bluering/bluering/internal/proto"
)

var udpHosts atomic.Uint32

// udpPair opens wires on two addresses of the loopback interface that no other wire of this process or another uses;
// benchmarks, which call it anew for each run, come round to those that were closed long ago.
func udpPair(t testing.TB, oa, ob UDPOptions) (a, b Wire) {
	t.Helper()
	open := func(o UDPOptions) Wire {
		n := 1 + udpHosts.Add(1)%250
		addr := fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()>>8&63, os.Getpid()&255, n)
		w, err := OpenUDP(addr, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return w
	}
	return open(oa), open(ob)
}

// udpNet is a udp wire behind a veth whose other end a packet wire watches: all bytes are seen, and can be made.
func udpNet(t *testing.T, addr, peer string, o UDPOptions) (w, other Wire, u udpFrames) {
	t.Helper()
	a, b, ns := nstest.Veth(t)
	nstest.NoOffload(t, ns, b) // so that runs are cut, and checksums made, before they reach the other end
	bits, lladdr := "/24", "02:00:00:00:00:0a"
	if strings.Contains(addr, ":") {
		bits = "/64"
		nstest.Do(t, ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+b+"/disable_ipv6", []byte("0"), 0) })
		nstest.Run(t, ns, "ip", "addr", "add", addr+bits, "dev", b, "nodad")
	} else {
		nstest.Run(t, ns, "ip", "addr", "add", addr+bits, "dev", b)
	}
	nstest.Run(t, ns, "ip", "neigh", "add", peer, "lladdr", lladdr, "dev", b)
	o.NetNS = ns
	w, err := OpenUDP(addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	other = openPacket(t, a, PacketOptions{})
	u = udpFrames{netip.MustParseAddr(addr), netip.MustParseAddr(peer), w.Info().MAC, udpMAC(netip.MustParseAddr(peer))}
	return w, other, u
}

// udpFrames writes frames of RoCEv2 from one wire to another, as the software NIC does.
type udpFrames struct {
	src, dst   netip.Addr
	smac, dmac [6]byte
}

func between(a, b Wire) udpFrames {
	addr := func(w Wire) netip.Addr { return w.(Network).Addrs()[0] }
	return udpFrames{addr(a), addr(b), a.Info().MAC, b.Info().MAC}
}

func (u udpFrames) headers() int {
	if u.src.Is4() {
		return udpHdr4
	}
	return udpHdr6
}

// defaultTTL is the first frame of 32 that write gives the TTL and TOS that need no word to the kernel.
const defaultTTL = 25 * 32

// write fills b with frame seq, whose length may be anything from headers and 24 on.
func (u udpFrames) write(b []byte, seq uint64) {
	copy(b, u.dmac[:])
	copy(b[6:], u.smac[:])
	ip := b[headerBytes:]
	l4 := proto.IPv4Bytes
	version := uint8(4)
	if u.src.Is4() {
		binary.BigEndian.PutUint16(b[12:], proto.EtherTypeIPv4)
		ip[0], ip[1] = 0x45, byte(seq/40%5*4)
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint32(ip[4:], 0x4000)
		ip[8], ip[9], ip[10], ip[11] = byte(60+seq/32%7), 17, 0, 0
		copy(ip[12:], u.src.AsSlice())
		copy(ip[16:], u.dst.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], csum.Finish(csum.Sum(ip[:20], 0)))
	} else {
		l4, version = proto.IPv6Bytes, 6
		binary.BigEndian.PutUint16(b[12:], proto.EtherTypeIPv6)
		binary.BigEndian.PutUint32(ip, 6<<28|uint32(seq/40%5*4)<<20)
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		ip[6], ip[7] = 17, byte(60+seq/32%7)
		copy(ip[8:], u.src.AsSlice())
		copy(ip[24:], u.dst.AsSlice())
	}
	udp := ip[l4:]
	udpHeader(udp, proto.RoCEPort)
	ud := proto.UD{Opcode: proto.OpUDSend, PKey: 0xffff, DestQP: 17, PSN: uint32(seq), QKey: 1, SrcQP: 18}
	at := 8 + ud.Put(udp[8:])
	for i := at; i < len(udp)-4; i++ {
		udp[i] = byte(seq*7 + uint64(i)*13)
	}
	end := len(ip) - 4
	proto.PutICRC(ip[end:], proto.ICRC(ip, version, l4, end))
}

// same tells how a received frame differs from frame seq.
func (u udpFrames) same(f *Frame, seq uint64, length int) error {
	want := make([]byte, length)
	if u.write(want, seq); !bytes.Equal(f.Data, want) {
		return fmt.Errorf("frame %d:\n got %x\nwant %x", seq, f.Data, want)
	}
	return nil
}

// left compares a frame on the medium with frame seq: all but MACs, UDP checksum, identification, and what follows
// from it in header checksum and ICRC, both of which must be right.
func (u udpFrames) left(got []byte, seq uint64, length int) error {
	want := make([]byte, length)
	u.write(want, seq)
	if len(got) < length {
		return fmt.Errorf("frame %d has %d bytes, not %d", seq, len(got), length)
	}
	b := bytes.Clone(got[:length])
	ip, l4, version := b[headerBytes:], u.headers()-8-headerBytes, b[headerBytes]>>4
	if version == 4 && !csum.VerifyIPv4(ip[:20]) || !csum.VerifyL4(b, headerBytes, headerBytes+l4, length, 17) {
		return fmt.Errorf("frame %d: wrong checksum: %x", seq, b)
	}
	end := len(ip) - 4
	if icrc := proto.ICRC(ip, version, l4, end); icrc != proto.LoadICRC(ip[end:]) {
		return fmt.Errorf("frame %d: ICRC %#x should be %#x: %x", seq, proto.LoadICRC(ip[end:]), icrc, b)
	}
	copy(b, want[:12])
	copy(ip[l4+6:], []byte{0, 0})
	if version == 4 {
		copy(ip[4:6], []byte{0, 0})
		copy(ip[10:12], want[headerBytes+10:])
		proto.PutICRC(ip[end:], proto.LoadICRC(want[length-4:]))
	}
	if !bytes.Equal(b, want) {
		return fmt.Errorf("frame %d:\n got %x\nwant %x", seq, b, want)
	}
	return nil
}

// foreign is a frame as another sender makes it.
func (u udpFrames) foreign(b []byte, to [6]byte, port, id uint16) {
	u.dmac = to
	u.write(b, 3)
	ip, l4 := b[headerBytes:], u.headers()-8-headerBytes
	binary.BigEndian.PutUint16(ip[l4:], port)
	if ip[0]>>4 == 4 {
		binary.BigEndian.PutUint16(ip[4:], id)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], csum.Finish(csum.Sum(ip[:20], 0)))
	}
	binary.BigEndian.PutUint16(ip[l4+6:], 0)
	end := len(ip) - 4
	proto.PutICRC(ip[end:], proto.ICRC(ip, ip[0]>>4, l4, end))
}

func macOf(t *testing.T, w Wire) (m [6]byte) {
	t.Helper()
	nstest.Link(t, w.Info().NetNS, w.(*udp).ifname, func(_ *netlink.Handle, l netlink.Link) error {
		copy(m[:], l.Attrs().HardwareAddr)
		return nil
	})
	return m
}
