package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/clock"
)

const (
	packetRing    = 8 << 20
	superRing     = 64 << 20 // of slots that take a super-frame
	packetTxSlots = 256
	packetBlock   = 64 << 10 // of the rings: the kernel gets 16 pages at a time
)

// packet is a wire on a kernel interface, by one AF_PACKET socket:
//
//	Commit ─► slots ─► sendmmsg or mapped ring ─► interface
//	interface ─► mapped ring, TPACKET_V2 ─► Next          (V3 would hold a lone frame back for its block)
//
// The socket ignores frames that this host sends, and takes promiscuous membership.
type packet struct {
	kernelWire[packetTx]
	mem []byte // both rings, one mapping: the receive ring first
	rx  packetRx
	gso *gsoTx // is tx, with gso=auto; else nil
}

// packetTx is one way of sending by a packet socket.
type packetTx interface {
	kernelTx
	// skip gives up the first frame of the last push, which the kernel refuses for good, or, of what it would have
	// cut, frames.
	skip() (frames uint64)
	padded() uint64
}

// OpenPacket opens a wire on an interface. It needs CAP_NET_RAW, and CAP_SYS_ADMIN to enter another network
// namespace; nothing needs CAP_NET_ADMIN.
func OpenPacket(ifname string, o PacketOptions) (Wire, error) {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	w := &packet{}
	w.clk, w.ifname, w.fd = o.Clock, ifname, -1
	w.info = Info{Name: "packet:" + ifname, Kind: "packet", NetNS: o.NetNS, MinFrame: MinFrame}
	err := inNetNS(o.NetNS, func() error { return w.open(ifname, o) })
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("wire: packet:%s: %w", ifname, err)
	}
	return w, nil
}

// open does all that must happen inside the namespace.
func (w *packet) open(ifname string, o PacketOptions) error {
	if err := w.describe(); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // 0: nothing is received before bind
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("no privilege to open a packet socket: %w; run as root, or: %s", unix.EPERM, setcapLine("cap_net_raw"))
	}
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	w.fd, w.checked = fd, []int{fd}
	w.info.SpeedBPS = ethtoolSpeed(fd, ifname)
	if err := w.awaitCarrier(context.Background()); err != nil {
		return err
	}
	if err := w.setUp(o); err != nil {
		return err
	}
	protocol := uint16(unix.ETH_P_ALL)
	if o.SendOnly {
		protocol = 0
	}
	var inOrder [2]byte // of the network
	binary.BigEndian.PutUint16(inOrder[:], protocol)
	addr := unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(inOrder[:]), Ifindex: w.info.IfIndex}
	if err := unix.Bind(fd, &addr); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if o.SendOnly {
		return nil
	}
	if o.Fanout != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, o.Fanout|unix.PACKET_FANOUT_HASH<<16); err != nil {
			return fmt.Errorf("fanout=%d: %w (a group is of one interface and one kind)", o.Fanout, err)
		}
	}
	if o.NoPromisc {
		return nil
	}
	m := unix.PacketMreq{Ifindex: int32(w.info.IfIndex), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("promiscuous membership: %w", err)
	}
	return nil
}

// setUp sets the socket's options and maps its rings.
func (w *packet) setUp(o PacketOptions) error {
	set := func(name string, opt, v int) error {
		if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, opt, v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if err := errors.Join(
		set("PACKET_VERSION", unix.PACKET_VERSION, unix.TPACKET_V2),
		set("PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING, 1),
	); err != nil {
		return err
	}
	if o.Send != SendMMsgQDsc && !o.GSO { // past the queueing discipline the kernel sends nothing that it had to cut
		if err := set("PACKET_QDISC_BYPASS", unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
	}
	unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20) // as much of it as the system allows
	if o.GSO {
		if o.Send == SendRing {
			return fmt.Errorf("%w: gso=auto sends by messages, not send=ring", ErrParam)
		}
		if err := setVNet(w.fd); err != nil {
			return fmt.Errorf("PACKET_VNET_HDR: %w", err)
		}
	}
	rxBytes := 0
	if !o.SendOnly {
		reserve, longest, want := rxReserve, w.info.MaxFrame, packetRing
		if o.GSO {
			reserve, longest, want = rxReserve-vnetBytes, headerBytes+vlanTagBytes+superBytes, superRing
			w.rx.vnet = true
		}
		if err := set("PACKET_RESERVE", unix.PACKET_RESERVE, reserve); err != nil {
			return err
		}
		w.rx.slot = o.RingSlot
		if w.rx.slot == 0 {
			w.rx.slot = pow2ceil(rxDataOffset + longest)
		}
		if o.RingBytes != 0 {
			want = o.RingBytes
		}
		block := max(packetBlock, w.rx.slot)
		rxBytes = max(block, pow2ceil(want)) // slots are found by a mask
		if err := w.ring("receive", unix.PACKET_RX_RING, rxBytes, block, w.rx.slot); err != nil {
			return err
		}
	}
	slots := o.TxSlots
	if slots == 0 {
		slots = packetTxSlots
	}
	slots = pow2ceil(slots)
	if o.Send == SendRing {
		return w.setUpTxRing(rxBytes, slots)
	}
	w.tx = newMMsgTx(w.fd, slots, w.info.MaxFrame)
	if o.GSO {
		w.gso = newGSOTx(w.fd, slots, w.info.MaxFrame)
		w.tx = w.gso
	}
	return w.mapRings(rxBytes, 0)
}

func (w *packet) setUpTxRing(rxBytes, slots int) error {
	slot := pow2ceil(txDataOffset + w.info.MaxFrame)
	block := max(packetBlock, slot)
	txBytes := max(slots*slot, block)
	if err := w.ring("transmit", unix.PACKET_TX_RING, txBytes, block, slot); err != nil {
		return err
	}
	if err := w.mapRings(rxBytes, txBytes); err != nil {
		return err
	}
	w.tx = &ringTx{fd: w.fd, mem: w.mem[rxBytes:], slot: uint64(slot), slots: uint64(txBytes / slot), longest: w.info.MaxFrame, untagged: w.info.MTU + headerBytes}
	return nil
}

func (w *packet) ring(what string, opt, bytes, block, slot int) error {
	r := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(bytes / block),
		Frame_size: uint32(slot), Frame_nr: uint32(bytes / slot),
	}
	if err := unix.SetsockoptTpacketReq(w.fd, unix.SOL_PACKET, opt, &r); err != nil {
		return fmt.Errorf("%s ring of %d bytes in slots of %d: %w", what, bytes, slot, err)
	}
	return nil
}

func (w *packet) mapRings(rxBytes, txBytes int) error {
	if rxBytes+txBytes == 0 {
		return nil
	}
	mem, err := unix.Mmap(w.fd, 0, rxBytes+txBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes of rings: %w", rxBytes+txBytes, err)
	}
	w.mem = mem
	if rxBytes > 0 {
		w.rx.mem = mem[:rxBytes]
		w.rx.mask = uint64(rxBytes/w.rx.slot) - 1
		w.rx.slots = uint64(rxBytes / w.rx.slot)
	}
	return nil
}

func pow2ceil(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// Flush offers the committed frames to the kernel. Those it has no room for stay pending, so that no frame is
// lost and all counts are exact.
func (w *packet) Flush() error {
	if err := w.err.get(); err != nil {
		return err
	}
	err := w.takeFailed()
	for w.tx.pending() > 0 {
		frames, why := w.push()
		switch why {
		case nil, unix.EINTR:
			continue
		case unix.EAGAIN:
			return w.full(false, err)
		case unix.ENOBUFS:
			return w.full(frames == 0, err)
		case unix.EINVAL:
			if w.gso == nil {
				return w.broken(why)
			}
			w.stats.TxErrors += w.tx.skip()
			err = fmt.Errorf("wire: %s: the kernel refuses to cut a packet: %w", w.info.Name, why)
		case unix.EMSGSIZE:
			w.stats.TxErrors += w.tx.skip()
			err = fmt.Errorf("%w: %s: one longer than %d must carry an 802.1Q tag", ErrTooLong, w.info.Name, w.info.MTU+headerBytes)
		default:
			return w.broken(why)
		}
	}
	return err
}

// MaxSuper is the longest packet that the kernel takes to cut; 0 without gso=auto.
func (w *packet) MaxSuper() int {
	if w.gso == nil {
		return 0
	}
	return superBytes
}

func (w *packet) ReserveSuper(length, header, mss int) []byte {
	if !w.isSuper(length, header, mss) {
		return nil
	}
	return w.gso.reserveSuper(length, header, mss)
}

func (w *packet) isSuper(length, header, mss int) bool {
	return w.gso != nil && w.err.get() == nil && header >= headerBytes && header <= superHeader && mss >= 1 &&
		length > header+mss && length <= superBytes && mss+header <= w.info.MaxFrame
}

func (w *packet) SendSuper(header []byte, pieces [][]byte, mss int) bool {
	length := len(header)
	for _, p := range pieces {
		length += len(p)
	}
	if len(pieces) > superPieces || !w.isSuper(length, len(header), mss) {
		return false
	}
	for w.tx.pending() > 0 {
		if _, why := w.push(); why != nil {
			return false // Flush asks what it was
		}
	}
	frames, bytes := w.gso.sendSuper(header, pieces, length, mss)
	w.stats.TxFrames += uint64(frames)
	w.stats.TxBytes += bytes
	return frames > 0
}

func (w *packet) Next(frames []Frame) int {
	n := 0
	if w.rx.mem != nil {
		n = w.rx.next(frames)
	}
	if n == 0 {
		w.look()
		return 0
	}
	w.rx.stamp(frames[:n], w.ahead())
	return n
}

// ahead tells how far the clock is ahead of the time of day, which the ring has. Both are read once a burst, so that
// a step of the time of day matters for the frames of that moment only. A reading that was interrupted is made again:
// it would move a whole burst.
func (w *packet) ahead() int64 {
	const calm = 500 // ns; two readings take about 70
	best, delta := int64(math.MaxInt64), int64(0)
	for range 4 {
		before := w.clk.Now()
		wall := time.Now().UnixNano()
		after := w.clk.Now()
		if took := after - before; took < best {
			best, delta = took, after-wall
		}
		if best < calm {
			break
		}
	}
	return delta
}

func (w *packet) Release(n int) {
	if w.rx.mem == nil {
		return
	}
	w.stats.RxFrames += uint64(n)
	w.stats.RxBytes += w.rx.release(n)
}

func (w *packet) FD() int { return w.fd }

func (w *packet) Stats(s *Stats) {
	if w.fd >= 0 {
		w.readDrops()
	}
	*s = w.stats
	if w.tx != nil {
		s.TxPadded = w.tx.padded()
	}
	s.RxTruncated = w.rx.truncated
}

// readDrops adds up what the kernel forgets at each reading.
func (w *packet) readDrops() {
	if k, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		w.stats.RxRingDrops += uint64(k.Drops)
	}
}

func (w *packet) Close() error {
	if w.fd < 0 {
		return nil
	}
	w.readDrops()
	if w.tx != nil && w.err.get() == nil {
		w.broken(ErrClosed)
	}
	var err error
	if w.mem != nil {
		err = unix.Munmap(w.mem)
	}
	w.mem, w.rx.mem = nil, nil
	err = errors.Join(err, unix.Close(w.fd), w.net.close())
	w.fd = -1
	if err != nil {
		return fmt.Errorf("wire: close %s: %w", w.info.Name, err)
	}
	return nil
}

// Offsets in struct tpacket2_hdr of linux/if_packet.h, and where the kernel puts the frame behind it.
const (
	tpStatus  = 0
	tpLen     = 4
	tpSnapLen = 8
	tpMAC     = 12 // u16
	tpNet     = 14 // u16
	tpSec     = 16
	tpNsec    = 20
	tpTCI     = 24 // u16
	tpTPID    = 26 // u16
	tpPadding = 28 // 4 bytes that the kernel writes as zero; the first is ours while we hold the slot

	// The kernel puts the MAC header at 66 + PACKET_RESERVE: header 32, sockaddr_ll 20, at least 16 for the
	// MAC header, rounded up to 80, and 14 back. With 62 more the frame stands at a multiple of 64, and 4 bytes
	// before it are free for a VLAN tag.
	rxReserve    = 62
	rxDataOffset = 128
)

// packetRx is the receive ring: slots of equal size, each ours when TP_STATUS_USER is set.
type packetRx struct {
	mem       []byte
	slot      int
	slots     uint64
	mask      uint64
	head      uint64
	truncated uint64
	vnet      bool // a virtio-net header stands in front of each frame
	cut       superCut
}

// next fills frames from the first slot that is not released.
func (r *packetRx) next(frames []Frame) int {
	if r.vnet {
		return r.nextCut(frames)
	}
	return r.look(frames)
}

// nextCut is next where super-frames may come: one that is the first is handed out in pieces, any other ends the run.
func (r *packetRx) nextCut(frames []Frame) int {
	n := r.look(frames)
	for i := range frames[:n] {
		vnet := r.vnetOf(uint64(i))
		if vnet[vnetType] == 0 {
			continue
		}
		if i > 0 {
			return i
		}
		if whole := frames[0]; whole.Flags&FlagTruncated == 0 && (r.cut.on || r.cut.start(whole.Data, vnet)) {
			return r.cut.give(frames, &whole)
		}
	}
	return n
}

// vnetOf finds the virtio-net header of the i-th frame not released. Putting a VLAN tag back moved the frame's front,
// and overwrote what only a sender needs.
func (r *packetRx) vnetOf(i uint64) []byte {
	off := int((r.head+i)&r.mask) * r.slot
	s := r.mem[off : off+r.slot : off+r.slot]
	at := int(binary.NativeEndian.Uint16(s[tpMAC:]))
	if uint32(s[tpPadding])&FlagVLANRestored != 0 {
		at += vlanTagBytes
	}
	return s[at-vnetBytes : at]
}

func (r *packetRx) look(frames []Frame) int {
	n := min(len(frames), int(r.slots))
	for i := range frames[:n] {
		off := int((r.head+uint64(i))&r.mask) * r.slot
		s := r.mem[off : off+r.slot : off+r.slot]
		status := loadStatus(s) // partner: the kernel's store once the frame is whole
		if status&unix.TP_STATUS_USER == 0 {
			return i
		}
		if status&unix.TP_STATUS_VLAN_VALID != 0 {
			restoreVLAN(s, status)
		}
		f := &frames[i]
		mac := int(binary.NativeEndian.Uint16(s[tpMAC:]))
		length := int(binary.NativeEndian.Uint32(s[tpSnapLen:]))
		f.Data = s[mac : mac+length]
		f.TimeNS = int64(binary.NativeEndian.Uint32(s[tpSec:]))*1e9 + int64(binary.NativeEndian.Uint32(s[tpNsec:]))
		f.Flags = uint32(s[tpPadding])
		if status&unix.TP_STATUS_CSUMNOTREADY != 0 {
			f.Flags |= FlagCsumNotReady
		}
		if binary.NativeEndian.Uint32(s[tpLen:]) != uint32(length) {
			f.Flags |= FlagTruncated
		}
	}
	return n
}

// restoreVLAN puts the tag back that the kernel keeps beside the frame, once.
func restoreVLAN(s []byte, status uint32) {
	mac := int(binary.NativeEndian.Uint16(s[tpMAC:]))
	tpid := uint16(unix.ETH_P_8021Q)
	if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = binary.NativeEndian.Uint16(s[tpTPID:])
	}
	copy(s[mac-4:mac+8], s[mac:mac+12])
	binary.BigEndian.PutUint16(s[mac+8:], tpid)
	binary.BigEndian.PutUint16(s[mac+10:], binary.NativeEndian.Uint16(s[tpTCI:]))
	binary.NativeEndian.PutUint16(s[tpMAC:], uint16(mac-4))
	binary.NativeEndian.PutUint32(s[tpSnapLen:], binary.NativeEndian.Uint32(s[tpSnapLen:])+4)
	binary.NativeEndian.PutUint32(s[tpLen:], binary.NativeEndian.Uint32(s[tpLen:])+4)
	s[tpPadding] = byte(FlagVLANRestored)
	storeStatus(s, status&^(unix.TP_STATUS_VLAN_VALID|unix.TP_STATUS_VLAN_TPID_VALID))
}

// stamp turns the time of day into the clock's time.
func (r *packetRx) stamp(frames []Frame, delta int64) {
	for i := range frames {
		frames[i].TimeNS += delta
	}
}

// release gives slots back to the kernel.
func (r *packetRx) release(n int) (bytes uint64) {
	if r.cut.on {
		bytes, last := r.cut.release(n)
		if last {
			r.put(1)
		}
		return bytes
	}
	return r.put(n)
}

func (r *packetRx) put(n int) (bytes uint64) {
	for i := 0; i < n; i++ {
		off := int((r.head+uint64(i))&r.mask) * r.slot
		s := r.mem[off : off+r.slot : off+r.slot]
		length := binary.NativeEndian.Uint32(s[tpSnapLen:])
		if binary.NativeEndian.Uint32(s[tpLen:]) != length {
			r.truncated++
		}
		bytes += uint64(length)
		storeStatus(s, unix.TP_STATUS_KERNEL)
	}
	r.head += uint64(n)
	return bytes
}
