package wire

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/tso"
)

// struct virtio_net_hdr of linux/virtio_net.h stands in front of each packet, in both directions, in native order.
const (
	vnetBytes     = 10
	vnetFlags     = 0
	vnetType      = 1
	vnetHdrLen    = 2
	vnetSize      = 4
	vnetCsumStart = 6
	vnetCsumOff   = 8

	vnetNeedsCsum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	vnetTCP4      = 1 // VIRTIO_NET_HDR_GSO_TCPV4
	vnetTCP6      = 4
	vnetUDP       = 5 // VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2
	vnetECN       = 0x80
)

const (
	superFrames = 64    // datagrams of one super-frame: UDP_MAX_SEGMENTS of kernels before 6.10
	superBytes  = 65535 // of an IP packet
	superHeader = 256   // bytes of all headers
	superSlots  = 16    // super-frames that may wait for the kernel
	superPieces = 62    // of a payload that is sent from where it is
	superLead   = 64    // bytes in front of a slot's frame; the virtio-net header ends them
)

// gsoTx sends by sendmmsg with a virtio-net header, and leaves the cutting to the kernel or a card: what was reserved as
// a super-frame, and frames that look as if they had been cut from one UDP packet.
type gsoTx struct {
	txSlots  // one for each entry
	fd       int
	big      []byte // slots for super-frames
	bigFree  []int
	entries  []gsoEntry
	tail     uint64 // committed
	sent     uint64 // taken by the kernel or skipped
	reserved int
	super    bool // what is reserved is one super-frame
	pads     uint64
	heads    []byte // superLead + superHeader for each message
	of       []int  // how many entries a message has
	batch    gatherBatch
	single   gatherBatch // for sendSuper, with its
	head     []byte      // first piece
	a, b     proto.Headers
}

// gsoEntry is a frame, or a super-frame.
type gsoEntry struct {
	data   []byte
	big    int // slot of a super-frame; -1
	header int // of a super-frame: bytes of its headers
	mss    int
}

func newGSOTx(fd, slots, longest int) *gsoTx {
	t := &gsoTx{fd: fd, txSlots: newTxSlots(slots, longest), big: make([]byte, superSlots*(superLead+1<<16)),
		entries: make([]gsoEntry, slots), heads: make([]byte, slots*(superLead+superHeader)), of: make([]int, slots)}
	for i := range superSlots {
		t.bigFree = append(t.bigFree, i)
	}
	t.batch = newGatherBatch(slots, 2*slots)
	t.single, t.head = newGatherBatch(1, 1+superPieces), make([]byte, superLead+superHeader)
	return t
}

func (t *gsoTx) room() uint64 { return t.count() - (t.tail - t.sent) }

func (t *gsoTx) reserve(lens []int32, bufs [][]byte) int {
	n := t.give(t.tail, t.room(), lens, bufs)
	for i, b := range bufs[:n] {
		t.entries[(t.tail+uint64(i))&t.mask] = gsoEntry{data: b, big: -1}
	}
	t.reserved, t.super = n, false
	return n
}

// reserveSuper gives room for one packet that the kernel is to cut; nil when there is none.
func (t *gsoTx) reserveSuper(length, header, mss int) []byte {
	if t.room() == 0 || len(t.bigFree) == 0 {
		return nil
	}
	slot := t.bigFree[len(t.bigFree)-1]
	at := slot*(superLead+1<<16) + superLead
	data := t.big[at : at+length : at+length]
	t.entries[t.tail&t.mask] = gsoEntry{data: data, big: slot, header: header, mss: mss}
	t.reserved, t.super = 1, true
	return data
}

// sendSuper sends a packet from where its payload is, with nothing pending, and returns what it is cut into; 0: the kernel
// did not take it.
func (t *gsoTx) sendSuper(header []byte, payload [][]byte, length, mss int) (frames int, bytes uint64) {
	own, vnet := t.head[superLead:superLead+len(header)], t.head[superLead-vnetBytes:superLead]
	copy(own, header)
	clear(vnet)
	finishSuper(own, length-len(header), mss, t.parseSuper(own), vnet)
	t.reserved = 0
	t.single.reset()
	t.single.add(t.head[superLead-vnetBytes : superLead+len(header)])
	for _, p := range payload {
		if len(p) > 0 {
			t.single.more(p)
		}
	}
	if taken, _ := t.single.send(t.fd); taken != 1 { // what it was shows when the packet is sent the other way
		return 0, 0
	}
	return pieces(length, len(header), mss)
}

// parseSuper finds the headers of a super-frame. Its lengths, which may be any, become those of a packet without payload.
func (t *gsoTx) parseSuper(header []byte) *proto.Headers {
	proto.Parse(header, &t.a)
	ip := header[t.a.L3Off:]
	if t.a.EtherType == proto.EtherTypeIPv4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-proto.IPv6Bytes))
	}
	proto.Parse(header, &t.a)
	return &t.a
}

func (t *gsoTx) commit(n int) {
	n = min(n, t.reserved)
	if n > 0 && t.super {
		t.bigFree = t.bigFree[:len(t.bigFree)-1]
		t.tail++
		n = 0
	}
	for i := 0; i < n; i++ {
		e := &t.entries[(t.tail+uint64(i))&t.mask]
		if length := len(e.data); length < MinFrame {
			e.data = e.data[:MinFrame]
			clear(e.data[length:])
			t.pads++
		}
	}
	t.tail += uint64(n)
	t.reserved = 0
}

func (t *gsoTx) push() (frames int, bytes uint64, err error) {
	t.batch.reset()
	messages := 0
	for k := t.sent; k != t.tail; messages++ {
		t.of[messages] = t.message(k, t.heads[messages*(superLead+superHeader):][:superLead+superHeader])
		k += uint64(t.of[messages])
	}
	taken, err := t.batch.send(t.fd)
	for _, count := range t.of[:taken] {
		for range count {
			f, b := t.weigh(&t.entries[t.sent&t.mask])
			frames += f
			bytes += b
			t.retire()
		}
	}
	return frames, bytes, err
}

// weigh counts the frames that an entry is on the medium, once cut.
func (t *gsoTx) weigh(e *gsoEntry) (frames int, bytes uint64) {
	if e.big < 0 {
		return 1, uint64(len(e.data))
	}
	return pieces(len(e.data), e.header, e.mss)
}

// pieces counts what a super-frame is cut into.
func pieces(length, header, mss int) (frames int, bytes uint64) {
	frames = max((length-header+mss-1)/mss, 1)
	return frames, uint64(length + (frames-1)*header)
}

func (t *gsoTx) retire() {
	if e := &t.entries[t.sent&t.mask]; e.big >= 0 {
		t.bigFree = append(t.bigFree, e.big)
	}
	t.sent++
}

// message adds the next message to the batch: entry k, and those behind it that can go with it. It returns how many.
func (t *gsoTx) message(k uint64, head []byte) int {
	e := &t.entries[k&t.mask]
	vnet := head[superLead-vnetBytes : superLead]
	clear(vnet)
	if e.big >= 0 {
		finishSuper(e.data[:e.header], len(e.data)-e.header, e.mss, t.parseSuper(e.data[:e.header]), vnet)
		t.batch.add(vnet)
		t.batch.more(e.data)
		return 1
	}
	count := t.alike(k)
	if count < 2 {
		t.batch.add(vnet)
		t.batch.more(e.data)
		return 1
	}
	h := t.a.PayloadOff
	payload := 0
	for i := range count {
		payload += len(t.entries[(k+uint64(i))&t.mask].data) - h
	}
	header := head[superLead : superLead+h]
	copy(header, e.data)
	finishSuper(header, payload, len(e.data)-h, &t.a, vnet)
	t.batch.add(head[superLead-vnetBytes : superLead+h])
	for i := range count {
		t.batch.more(t.entries[(k+uint64(i))&t.mask].data[h:])
	}
	return count
}

// alike counts the frames from k on that the cutting of one UDP packet would make, to the last byte. t.a has the headers
// of the first.
func (t *gsoTx) alike(k uint64) int {
	first := t.entries[k&t.mask].data
	if k+1 == t.tail || t.entries[(k+1)&t.mask].big >= 0 || !whole(first, &t.a) || t.a.PayloadOff > superHeader {
		return 1
	}
	h := t.a.PayloadOff
	each, total := len(first)-h, len(first)
	count := 1
	for at := k + 1; at != t.tail && count < superFrames; at++ {
		e := &t.entries[at&t.mask]
		if e.big >= 0 || len(e.data) > h+each || len(e.data) <= h || total+len(e.data)-h > superBytes || !t.follows(first, e.data, count) {
			break
		}
		total += len(e.data) - h
		count++
		if len(e.data) < len(first) {
			break // only the last may be shorter
		}
	}
	return count
}

// whole reports whether a frame is a UDP datagram that the kernel could have made: right checksums, which are there,
// nothing behind it, and something in it.
func whole(frame []byte, h *proto.Headers) bool {
	if !proto.Parse(frame, h) || h.Status != proto.OK || h.Fragment || h.Routed || h.L4Proto != proto.ProtoUDP ||
		h.PayloadEnd != len(frame) || h.PayloadOff >= len(frame) || frame[h.L4Off+6]|frame[h.L4Off+7] == 0 {
		return false
	}
	ip := frame[h.L3Off:h.L4Off]
	switch {
	case h.IPVersion == 4 && (!csum.VerifyIPv4(ip) || ip[10]&ip[11] == 0xff): // the other zero is never computed
		return false
	case h.IPVersion == 6 && len(ip) != proto.IPv6Bytes:
		return false
	}
	return csum.VerifyL4(frame, h.L3Off, h.L4Off, len(frame), proto.ProtoUDP)
}

// follows reports whether a frame is what cutting puts n places behind the first.
func (t *gsoTx) follows(first, frame []byte, n int) bool {
	a, b := &t.a, &t.b
	if !whole(frame, b) || a.PayloadOff != b.PayloadOff || a.L3Off != b.L3Off || a.L4Off != b.L4Off {
		return false
	}
	// All but lengths, IPv4 identification and checksums is the same.
	if !bytes.Equal(first[:a.L3Off], frame[:a.L3Off]) || !bytes.Equal(first[a.L4Off:a.L4Off+4], frame[a.L4Off:a.L4Off+4]) {
		return false
	}
	p, q := first[a.L3Off:a.L4Off], frame[a.L3Off:a.L4Off]
	if a.IPVersion == 6 {
		return bytes.Equal(p[:4], q[:4]) && bytes.Equal(p[6:], q[6:])
	}
	return bytes.Equal(p[:2], q[:2]) && bytes.Equal(p[6:10], q[6:10]) && bytes.Equal(p[12:], q[12:]) &&
		binary.BigEndian.Uint16(p[4:])+uint16(n) == binary.BigEndian.Uint16(q[4:])
}

// finishSuper writes lengths and checksums of a super-frame's header, as the kernel wants them, and its virtio-net
// header: the checksum field of TCP or UDP holds the sum of the pseudo header.
func finishSuper(header []byte, payload, mss int, h *proto.Headers, vnet []byte) {
	l4 := header[h.L4Off:]
	l4Bytes := len(l4) + payload
	ip := header[h.L3Off:h.L4Off]
	var pseudo uint32
	kind := byte(vnetTCP4)
	if h.IPVersion == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+l4Bytes))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], csum.Finish(csum.Sum(ip, 0)))
		pseudo = csum.Pseudo4((*[4]byte)(ip[12:]), (*[4]byte)(ip[16:]), h.L4Proto, uint32(l4Bytes))
	} else {
		kind = vnetTCP6
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-proto.IPv6Bytes+l4Bytes))
		pseudo = csum.Pseudo6((*[16]byte)(ip[8:]), (*[16]byte)(ip[24:]), h.L4Proto, uint32(l4Bytes))
	}
	check := 16
	if h.L4Proto == proto.ProtoUDP {
		kind, check = vnetUDP, 6
		binary.BigEndian.PutUint16(l4[4:], uint16(l4Bytes))
	} else if l4[13]&0x80 != 0 { // CWR, on the first segment only
		kind |= vnetECN
	}
	binary.BigEndian.PutUint16(l4[check:], csum.Fold64(uint64(pseudo)))
	vnet[vnetFlags] = vnetNeedsCsum
	vnet[vnetType] = kind
	binary.NativeEndian.PutUint16(vnet[vnetSize:], uint16(mss))
	binary.NativeEndian.PutUint16(vnet[vnetHdrLen:], uint16(len(header)))
	binary.NativeEndian.PutUint16(vnet[vnetCsumStart:], uint16(h.L4Off))
	binary.NativeEndian.PutUint16(vnet[vnetCsumOff:], uint16(check))
}

func (t *gsoTx) skip() (frames uint64) { return t.giveUp(t.of[0]) }
func (t *gsoTx) drop() (frames uint64) { return t.giveUp(t.pending()) }

// giveUp forgets entries, and counts the frames they would have become.
func (t *gsoTx) giveUp(entries int) (frames uint64) {
	for range entries {
		f, _ := t.weigh(&t.entries[t.sent&t.mask])
		frames += uint64(f)
		t.retire()
	}
	return frames
}

func (t *gsoTx) pending() int   { return int(t.tail - t.sent) }
func (t *gsoTx) padded() uint64 { return t.pads }

// superCut hands out the pieces of a received super-frame, which holds its slot of the ring until all are released.
// Piece k stands in slot k modulo superFrames of the workspace, so those handed out and not released stay as they are.
type superCut struct {
	on       bool
	plan     tso.Plan
	header   []byte
	payload  []byte
	released int
	stride   int
	mem      []byte
	lens     [superFrames]int
}

// start plans the cutting of a frame by its virtio-net header. false: it is not one to cut, or not one that can be.
func (c *superCut) start(frame, vnet []byte) bool {
	kind, mss := vnet[vnetType]&^vnetECN, int(binary.NativeEndian.Uint16(vnet[vnetSize:]))
	if kind != vnetTCP4 && kind != vnetTCP6 && kind != vnetUDP || mss == 0 {
		return false
	}
	var h proto.Headers
	if !proto.Parse(frame, &h) || h.PayloadOff == 0 || h.PayloadOff > h.PayloadEnd || h.PayloadEnd > len(frame) {
		return false
	}
	c.header, c.payload = frame[:h.PayloadOff], frame[h.PayloadOff:h.PayloadEnd]
	if c.plan.Make(c.header, len(c.payload), mss) != nil {
		return false
	}
	if need := (c.plan.MaxFrame() + unitBytes - 1) / unitBytes * unitBytes; need > c.stride { // a longer MTU than seen before
		c.stride = need
		c.mem = make([]byte, superFrames*need)
	}
	c.on, c.released = true, 0
	return true
}

// give fills frames with the pieces that are not released.
func (c *superCut) give(frames []Frame, like *Frame) int {
	n := min(len(frames), superFrames, c.plan.Segments()-c.released)
	walk := c.plan.Segmenter(c.header)
	walk.Seek(c.released)
	for i := range frames[:n] {
		k := (c.released + i) % superFrames
		at := k * c.stride
		c.lens[k] = walk.Write(c.mem[at:at+c.stride], c.payload)
		frames[i] = Frame{Data: c.mem[at : at+c.lens[k] : at+c.lens[k]], TimeNS: like.TimeNS, Flags: like.Flags &^ FlagCsumNotReady}
	}
	return n
}

// release takes n pieces back, and reports whether they were the last.
func (c *superCut) release(n int) (bytes uint64, last bool) {
	for i := range n {
		bytes += uint64(c.lens[(c.released+i)%superFrames])
	}
	c.released += n
	if last = c.released == c.plan.Segments(); last {
		c.on = false
	}
	return bytes, last
}

// setVNet asks for a virtio-net header in front of what is sent and received.
func setVNet(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1) }
