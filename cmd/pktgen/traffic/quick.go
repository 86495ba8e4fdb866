package traffic

import (
	"encoding/binary"
	"math/bits"

	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// plainUDP is the quick way of the commonest frame: Ethernet without a tag, IPv4 without options and whole, UDP with room
// for a tag, to another port than RoCE's, both checksums there and right, lengths that agree. end is where the payload
// ends. All that differs is left to proto.Parse and isCorrupt: ok means that they would find nothing wrong either.
func plainUDP(b []byte) (end int, ok bool) {
	const (
		l3    = proto.EthernetBytes
		l4    = l3 + proto.IPv4Bytes
		least = l4 + proto.UDPBytes + proto.TagBytes
	)
	if len(b) < least {
		return 0, false
	}
	h := (*[least]byte)(b)
	length := int(binary.BigEndian.Uint16(h[l4+4:]))
	end = l4 + length
	if oddHeaders((*[l4]byte)(b), length) != 0 || end < least || end > len(b) || h[l4+6]|h[l4+7] == 0 || binary.BigEndian.Uint16(h[l4+2:]) == proto.RoCEPort {
		return 0, false
	}
	// A sum of little-endian words is the sum of big-endian ones with its two bytes swapped, and so right when that is.
	addresses := binary.LittleEndian.Uint64(h[l3+12:])
	ip, c := bits.Add64(binary.LittleEndian.Uint64(h[l3:]), uint64(binary.LittleEndian.Uint32(h[l3+8:])), 0)
	ip, c = bits.Add64(ip, addresses, c)
	udp, d := bits.Add64(addresses, proto.ProtoUDP<<8+uint64(bits.ReverseBytes16(uint16(length))), 0)
	udp, d = bits.Add64(udp, binary.LittleEndian.Uint64(h[l4:]), d)
	udp, d = bits.Add64(udp, binary.LittleEndian.Uint64(h[l4+8:]), d)
	udp, d = bits.Add64(udp, binary.LittleEndian.Uint64(h[l4+16:]), d)
	at := least
	for ; at+8 <= end; at += 8 {
		udp, d = bits.Add64(udp, binary.LittleEndian.Uint64(b[at:at+8]), d)
	}
	if at < end {
		udp, d = bits.Add64(udp, binary.LittleEndian.Uint64(b[end-8:end])>>(8*uint(at+8-end)&63), d)
	}
	return end, allOnes(ip, c) && allOnes(udp, d)
}

// oddHeaders is 0 for Ethernet without a tag and IPv4 without options, whole, with a UDP datagram of so many bytes.
func oddHeaders(h *[proto.EthernetBytes + proto.IPv4Bytes]byte, length int) uint32 {
	const l3 = proto.EthernetBytes
	// EtherType, version and header length; fragment bits and protocol; both lengths.
	return (binary.LittleEndian.Uint32(h[12:])^0x450008)&0xffffff | (binary.LittleEndian.Uint32(h[l3+6:])^proto.ProtoUDP<<24)&0xff00ff3f |
		(uint32(binary.BigEndian.Uint16(h[l3+2:])) ^ uint32(length+proto.IPv4Bytes))
}

// allOnes reports whether a sum with its carry, which is not 0, folds to 0xffff: whether 0xffff divides it.
func allOnes(s, carry uint64) bool {
	s, carry = bits.Add64(s, 0, carry)
	return (s+carry)%0xffff == 0
}

// takeAll books frames as they came from the device, in order; those without a time of their own arrived at now. It
// leaves the commonest to quickRun; the others are described and given to take.
func (r *receiver) takeAll(frames []raw.RxFrame, now int64) {
	b, quick := &r.run, r.tagged && !r.noEpoch && r.clockKnown
	for len(frames) > 0 {
		at := arrivedAt(&frames[0], now)
		if quick {
			b.until(r, at)
			if n := r.quickRun(frames, now, b); n > 0 {
				frames = frames[n:]
				continue
			}
		}
		b.close(r)
		r.in.Describe(&frames[0], &r.odd)
		r.take(&r.odd, at)
		frames = frames[1:]
	}
	b.close(r)
}

func arrivedAt(f *raw.RxFrame, now int64) int64 {
	if f.TimeNS != 0 {
		return f.TimeNS
	}
	return now
}

// burstBook is what takeAll keeps of a run of frames that quick has taken, until close adds it up.
type burstBook struct {
	at     int64  // arrival of the frame at hand
	stamp  uint32 // in ticks
	most   uint64 // a flow's sequence and, in ns, a frame's delay are below it; 0: no frame is quick
	first  int64  // arrival of the first
	last   int64
	frames uint64
	bytes  uint64
	n      int
	delays [receiveBurst]int64
}

// until is told the arrival of the frames that follow. What plausible asks of them is worked out once.
func (b *burstBook) until(r *receiver, at int64) {
	since := at - r.epoch
	b.at, b.stamp, b.most = at, stampOf(since), 0
	if since >= 0 && since <= mostSince {
		b.most = uint64(since+slackNS) + 1
	}
}

// quickRun books frames from the first on, plain UDP or plain datagrams of RoCE v2, each the next of its flow, as long as nothing is odd about them and all
// have arrived at the same time, which b has been told. It returns how many. All that it needs of the receiver stays in
// locals, and each frame is read once.
func (r *receiver) quickRun(frames []raw.RxFrame, now int64, b *burstBook) (n int) {
	t, key, flows, everyN := r.tracker, r.key, r.flows, r.everyN
	table, stride, window := t.table, t.stride, t.window-1
	at, stamp, most, last := b.at, b.stamp, b.most, b.most
	if r.perFlow > 0 {
		last = min(last, r.perFlow)
	}
	bytes, kept := uint64(0), b.n
	for n < len(frames) {
		f := &frames[n]
		data := f.Data
		end, ok := plainUDP(data)
		if !ok {
			end, ok = plainDatagram(data)
		}
		if !ok || end < tagBytes || end > len(data) || arrivedAt(f, now) != at || kept >= receiveBurst {
			break
		}
		tag, ok := key.Read((*[tagBytes]byte)(data[end-tagBytes:]))
		if !ok || tag.Flow >= flows {
			break
		}
		row := uint64(tag.Flow) * stride
		seq := table[row]
		ticks := stamp - tag.Time
		delay := uint64(ticks) * proto.TickNS
		if tag.Seq != seq&(1<<proto.SeqBits-1) || ticks >= proto.FirstEarly || seq >= last || delay >= most {
			break
		}
		table[row] = seq + 1
		table[row+1+seq&window>>6] |= 1 << (seq & 63)
		bytes += uint64(len(data))
		if everyN != 0 && (everyN == 1 || seq%everyN == 0) {
			b.delays[kept] = int64(delay)
			kept++
		}
		n++
	}
	if n > 0 {
		if b.frames == 0 {
			b.first = at
		}
		b.last = at
		b.frames += uint64(n)
		b.bytes += bytes
		b.n = kept
	}
	return n
}

// close adds up what quick took, before anything else is booked.
func (b *burstBook) close(r *receiver) {
	if b.frames == 0 {
		return
	}
	if r.received == 0 {
		r.first = b.first
	}
	r.last = b.last
	r.received += b.frames
	r.recvBytes += b.bytes + b.frames*fcsBytes
	r.tracker.unique += b.frames
	r.tracker.spanned += b.frames
	r.latency.RecordAll(b.delays[:b.n])
	b.frames, b.bytes, b.n = 0, 0, 0
}
