package traffic

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// slowly is what rawIn does without plainUDP.
func slowly(frame []byte) (end int, good bool) {
	var h proto.Headers
	if !proto.Parse(frame, &h) || isCorrupt(frame, &h) || h.Fragment || h.Status != proto.OK || h.DstPort == proto.RoCEPort {
		return 0, false
	}
	return h.PayloadEnd, true
}

// What plainUDP finds good, the general way finds good, with the same end; and it finds good all that it is for.
func FuzzPlainUDPIsNeverLaxer(f *testing.F) {
	for n := range 40 {
		for at := 0; at < 80; at += 3 {
			f.Add(uint64(n), uint8(0), uint8(n), uint8(0), uint8(at), uint16(1<<(at%16)))
		}
		f.Add(uint64(n), uint8(0), uint8(n), uint8(n), uint8(0), uint16(0))
		f.Add(uint64(n), uint8(n), uint8(n), uint8(n), uint8(0), uint16(0))
	}
	f.Fuzz(func(t *testing.T, seed uint64, kind, payload, padding, at uint8, flip uint16) {
		spec := frametest.Random(rand.New(rand.NewPCG(seed, 1)), 4+int(kind&1)*2, kind&2 != 0, int(kind>>2&1), int(payload))
		spec.IPOptions = int(kind>>3&1) * 4
		frame := append(spec.Build(), make([]byte, padding)...)
		if v := int(at) % (len(frame) - 1); flip != 0 {
			binary.BigEndian.PutUint16(frame[v:], binary.BigEndian.Uint16(frame[v:])^flip)
		}
		end, ok := plainUDP(frame)
		wantEnd, want := slowly(frame)
		switch {
		case ok && (!want || end != wantEnd):
			t.Errorf("plainUDP says %d, the general way %d, %t: %x", end, wantEnd, want, frame)
		case !ok && want && flip == 0 && kind&15 == 0 && payload >= proto.TagBytes:
			t.Errorf("plainUDP does not take %x", frame)
		}
	})
}

// takeAll books what take books, whatever comes.
func TestTakeAllBooksWhatTakeBooks(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		c := receiverConfig{
			Token: Token{RunID: 7, StartNS: 1000, Flows: 1 + rng.IntN(3)}, Tagged: rng.IntN(10) != 0, EveryN: uint64(rng.IntN(4)),
			NoEpoch: rng.IntN(5) == 0, Count: uint64(rng.IntN(2) * 150),
		}
		var r [2]*receiver
		for i := range r {
			var err error
			if r[i], err = newReceiver(c, &rawIn{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		next, now := make([]uint64, c.Token.Flows+1), int64(1000)
		for range 20 {
			now += rng.Int64N(200)
			frames := make([]raw.RxFrame, rng.IntN(receiveBurst+1))
			for i := range frames {
				frames[i] = oddFrame(rng, r[0], next, &now)
			}
			r[0].takeAll(frames, now)
			for i := range frames {
				var a arrival
				r[1].in.Describe(&frames[i], &a)
				at := frames[i].TimeNS
				if at == 0 {
					at = now
				}
				r[1].take(&a, at)
			}
			var got, want Counts
			r[0].counts(&got)
			r[1].counts(&want)
			if !reflect.DeepEqual(got, want) || r[0].first != r[1].first || r[0].last != r[1].last || r[0].epoch != r[1].epoch ||
				!reflect.DeepEqual(r[0].tracker, r[1].tracker) || r[0].total != r[1].total {
				t.Fatalf("seed %d: takeAll books %+v, take %+v", seed, got, want)
			}
		}
		a, b := r[0].latency.Swap(), r[1].latency.Swap()
		if !sameLatency(&a, &b) {
			t.Fatalf("seed %d: other latencies: %d and %d values, %d..%d and %d..%d", seed, a.Count(), b.Count(), a.Min(), a.Max(), b.Min(), b.Max())
		}
	}
}

func sameLatency(a, b *latency.Snapshot) bool {
	x, errX := a.Encode()
	y, errY := b.Encode()
	return errX == nil && errY == nil && x == y && a.Count() == b.Count() && a.Min() == b.Min() && a.Max() == b.Max() && a.Mean() == b.Mean()
}

// oddFrame is mostly the next frame of a flow, sometimes lost, repeated, late, early, foreign, broken or of another make.
func oddFrame(rng *rand.Rand, r *receiver, next []uint64, now *int64) raw.RxFrame {
	flow := rng.IntN(len(next))
	seq := next[flow]
	key, at := r.key, *now-1000
	version, vlans, payload, padding, bit, fragment := 4, 0, 18, 0, -1, false
	switch rng.IntN(40) {
	case 0:
		seq += rng.Uint64N(100)
	case 1:
		seq -= min(seq, rng.Uint64N(5))
	case 2:
		at += rng.Int64N(1000)
	case 3:
		at -= rng.Int64N(1 << 40)
	case 4:
		key = proto.NewTagKey(8)
	case 5:
		key, flow, seq = r.helloKey, rng.IntN(3), 77
	case 6:
		fragment = true
	case 7:
		bit = rng.IntN(60 * 8)
	case 8:
		payload = 16 + rng.IntN(70)
	case 9:
		seq += 1 << 40
	case 10:
		version = 6
	case 11:
		vlans = 1
	case 12:
		padding = rng.IntN(20)
	}
	if flow < len(next) {
		next[flow] = max(next[flow], seq&(1<<40-1)+1)
	}
	spec := frametest.Random(rng, version, false, vlans, payload)
	key.Put(spec.Payload[payload-tagBytes:], uint32(flow), seq, stampOf(at))
	build := spec.Build
	if rng.IntN(2) == 0 {
		build = func() []byte { return datagramOf(rng, spec) }
	}
	f := raw.RxFrame{Data: append(build(), make([]byte, padding)...)}
	if fragment {
		ip := f.Data[proto.EthernetBytes:][:proto.IPv4Bytes]
		ip[6] = 0x20
		csum.FillIPv4(ip)
	}
	if bit >= 0 {
		f.Data[bit/8] ^= 1 << (bit % 8)
	}
	if rng.IntN(20) == 0 {
		f = raw.RxFrame{Data: f.Data[:rng.IntN(len(f.Data))]}
	}
	if rng.IntN(2) == 0 {
		*now += rng.Int64N(3) * 8
		f.TimeNS = *now
	}
	return f
}
