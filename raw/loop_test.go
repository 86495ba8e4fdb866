package raw_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/frametest"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// pair opens both ends of a loop of the test's own.
func pair(t testing.TB, params string, tx, rx raw.PortConfig) (*raw.Port, *raw.Port) {
	t.Helper()
	open := func(params string, c raw.PortConfig) *raw.Port {
		d, err := device.Open("loop:"+strings.ReplaceAll(t.Name(), "?", "+")+params, device.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := raw.NewPort(d, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for range 2 {
				if err := errors.Join(p.Close(), d.Close()); err != nil {
					t.Error(err)
				}
			}
		})
		return p
	}
	return open(params, tx), open("", rx)
}

// receive polls until want frames came or nothing has come for long, and
// hands each to f.
func receive(t testing.TB, tx *raw.TxQueue, rx *raw.RxQueue, want int, f func(data []byte)) {
	t.Helper()
	frames := make([]raw.RxFrame, 37)
	got, idle := 0, 0
	for got < want && idle < 1000000 {
		n := rx.Poll(frames)
		for _, fr := range frames[:n] {
			if fr.Status != engine.StatusSuccess {
				t.Fatalf("status %v", fr.Status)
			}
			f(fr.Data)
		}
		rx.Release(n)
		tx.Reclaim()
		if got += n; n == 0 {
			idle++
			runtime.Gosched() // the NIC may have a goroutine of its own
		} else {
			idle = 0
		}
	}
	if got != want || rx.Err() != nil || tx.Err() != nil {
		t.Fatalf("received %d of %d, rx %v, tx %v", got, want, rx.Err(), tx.Err())
	}
}

func TestFramesArriveAsCommitted(t *testing.T) {
	for _, inline := range []string{"", "?inline=18"} {
		t.Run("inline="+inline, func(t *testing.T) {
			tx, rx := pair(t, inline, raw.PortConfig{TxDepth: 16, RxQueues: -1}, raw.PortConfig{RxDepth: 32, TxQueues: -1})
			r := rand.New(rand.NewPCG(1, 1))
			bufs, lens := make([][]byte, 7), make([]int, 7)
			q := tx.Tx(0)
			for round := range 200 {
				want := 1 + r.IntN(len(bufs))
				n := q.Reserve(bufs[:want])
				if n != want {
					t.Fatalf("round %d: %d buffers, %d outstanding", round, n, q.Outstanding())
				}
				var sent [][]byte
				for i := range n {
					lens[i] = 60 + r.IntN(1400)
					for k := range bufs[i][:lens[i]] {
						bufs[i][k] = byte(r.Uint32())
					}
					sent = append(sent, bytes.Clone(bufs[i][:lens[i]]))
				}
				if c, err := q.Commit(lens[:n]); c != n || err != nil {
					t.Fatal(c, err)
				}
				if err := q.Flush(); err != nil {
					t.Fatal(err)
				}
				i := 0
				receive(t, q, rx.Rx(0), n, func(data []byte) {
					if !bytes.Equal(data, sent[i]) {
						t.Fatalf("round %d frame %d differs", round, i)
					}
					i++
				})
			}
			for range 10 {
				q.Reclaim()
			}
			if q.Outstanding() != 0 || q.Counts().Frames != rx.Rx(0).Counts().Frames || q.Counts().Bytes != rx.Rx(0).Counts().Bytes {
				t.Errorf("outstanding %d, %+v, %+v", q.Outstanding(), q.Counts(), rx.Rx(0).Counts())
			}
		})
	}
}

func TestAFullQueueIsACount(t *testing.T) {
	tx, rx := pair(t, "", raw.PortConfig{TxDepth: 8}, raw.PortConfig{RxDepth: 4})
	q, bufs := tx.Tx(0), make([][]byte, 100)
	if n := q.Reserve(bufs); n != 8 {
		t.Fatalf("%d buffers of 8", n)
	}
	if n, err := q.Commit([]int{60, 60, 13}); n != 2 || !errors.Is(err, raw.ErrLength) {
		t.Fatal(n, err)
	}
	if n, err := q.Commit([]int{60}); n != 0 || !errors.Is(err, raw.ErrReserve) {
		t.Fatal(n, err)
	}
	if n := q.Reserve(bufs); n != 6 || q.Outstanding() != 2 {
		t.Fatalf("%d buffers, %d outstanding", n, q.Outstanding())
	}
	if n, err := q.Commit([]int{60, 60, 60, 60, 60, 60}); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	if n := q.Reserve(bufs); n != 0 {
		t.Fatalf("%d buffers of a full queue", n)
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	receive(t, q, rx.Rx(0), 8, func([]byte) {})
}

// streamCase draws a stream, runs it over loop and compares every frame with
// what gopacket builds.
func streamCase(t *testing.T, seed uint64, params string) {
	r := rand.New(rand.NewPCG(seed, 9))
	version, vlans := 4+2*r.IntN(2), r.IntN(3)
	s := frametest.Random(r, version, r.IntN(2) == 0, vlans, 30+r.IntN(60))
	var fields []raw.Field
	kinds := kindsFor(version, vlans)
	for range r.IntN(3) { // none or one field most of the time: the leaf loops
		k := kinds[r.IntN(len(kinds))]
		if k == raw.Counter || len(fields) == 1 && fields[0].Kind == k {
			continue
		}
		fields = append(fields, randomField(r, k, version, len(s.Payload)))
	}
	var sizes *raw.Sizes
	if r.IntN(3) == 0 {
		sizes = &raw.Sizes{Random: r.IntN(2) == 0, Seed: r.Uint64()}
		for range 1 + r.IntN(4) {
			sizes.List = append(sizes.List, len(s.Build())+r.IntN(200))
		}
	}
	tmpl := template(t, s, false, fields, sizes)
	c := raw.StreamConfig{
		Tag: r.IntN(4) != 0, Key: proto.NewTagKey(r.Uint64()), Flows: []uint32{0, 1, 3, 200}[r.IntN(4)],
		FlowFirst: r.Uint32N(1000), FlowStep: r.Uint32N(5), First: r.Uint64() >> r.IntN(64), Step: r.Uint32N(5),
	}
	tx, rx := pair(t, params, raw.PortConfig{TxDepth: 1 + r.IntN(200)}, raw.PortConfig{})
	st, err := tx.Tx(0).NewStream(tmpl, c)
	if err != nil {
		t.Fatal(err)
	}
	total, bytesSeen := uint64(0), uint64(0)
	flows, flowStep, step := max(c.Flows, 1), max(c.FlowStep, 1), max(c.Step, 1)
	for range 12 {
		n := r.IntN(300)
		times := make([]uint32, n)
		for i := range times {
			times[i] = r.Uint32()
		}
		if n == 0 || r.IntN(2) == 0 {
			times = []uint32{r.Uint32()}
		}
		sent, err := st.Send(n, times)
		for tries := 0; sent == 0 && n != 0 && err == nil && tries < 1000000; tries++ {
			runtime.Gosched() // the ring is full: a NIC with a goroutine of its own completes later than it delivers
			sent, err = st.Send(n, times)
		}
		if err != nil || sent != n && sent == 0 {
			t.Fatal(sent, err)
		}
		i := uint64(0)
		receive(t, tx.Tx(0), rx.Rx(0), sent, func(data []byte) {
			k := total + i
			flow := c.FlowFirst + uint32(k%uint64(flows))*flowStep
			want := expected(s, fields, sizes, c.First+k*uint64(step), flow)
			if c.Tag {
				ticks := times[0]
				if len(times) > 1 {
					ticks = times[i]
				}
				want = withTag(want, c.Key, proto.Tag{Flow: flow, Seq: k / uint64(flows), Time: ticks})
			}
			if !bytes.Equal(data, want) {
				t.Fatalf("seed %d packet %d of %+v, %+v, %+v\n got  %x\n want %x", seed, k, s, fields, c, data, want)
			}
			bytesSeen += uint64(len(data))
			i++
		})
		total += uint64(sent)
	}
	checkCounts(t, st, tx.Tx(0), total, bytesSeen, flows)
}

func checkCounts(t *testing.T, st *raw.Stream, q *raw.TxQueue, total, bytesSeen uint64, flows uint32) {
	t.Helper()
	for i := 0; q.Outstanding() != 0 && i < 1000000; i++ {
		q.Reclaim()
		runtime.Gosched()
	}
	perFlow := uint64(0)
	for k := range flows + 1 {
		perFlow += st.FlowSent(k)
	}
	if st.Sent() != total || st.Bytes() != bytesSeen || perFlow != total || q.Counts() != (raw.TxCounts{Frames: total, Bytes: bytesSeen}) {
		t.Errorf("sent %d, %d B, per flow %d, counts %+v; received %d, %d B", st.Sent(), st.Bytes(), perFlow, q.Counts(), total, bytesSeen)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if n := q.Reserve(make([][]byte, 1)); n != 1 {
		t.Error("the stream kept the queue")
	}
}

// withTag is frame with the tag at the end of its payload and the checksum
// computed anew by the plain functions.
func withTag(frame []byte, key proto.TagKey, tag proto.Tag) []byte {
	var h proto.Headers
	proto.Parse(frame, &h)
	key.Put(frame[h.PayloadEnd-proto.TagBytes:], tag.Flow, tag.Seq, tag.Time)
	at := h.L4Off + 16
	if h.L4Proto == proto.ProtoUDP {
		at = h.L4Off + 6
	}
	frame[at], frame[at+1] = 0, 0
	sum := csum.Sum(frame[h.SrcOff:h.SrcOff+2*h.AddrLen], uint32(h.L4Proto)+uint32(h.PayloadEnd-h.L4Off))
	c := csum.Finish(csum.Sum(frame[h.L4Off:h.PayloadEnd], sum))
	if h.L4Proto == proto.ProtoUDP && c == 0 {
		c = 0xffff
	}
	frame[at], frame[at+1] = byte(c>>8), byte(c)
	return frame
}

func TestStreamsEqualGopacket(t *testing.T) {
	for seed := range uint64(60) {
		params := []string{"", "?inline=18", "?mode=goroutine", ""}[seed%4]
		t.Run(fmt.Sprintf("seed=%d%s", seed, params), func(t *testing.T) { streamCase(t, seed, params) })
	}
}

// TestStreamsOfPortsAloneEqualGopacket sends every value of a port of UDP datagrams without a tag, which has loops of its
// own: the checksum comes by zero on the way.
func TestStreamsOfPortsAloneEqualGopacket(t *testing.T) {
	for i, f := range []raw.Field{
		{Kind: raw.SrcPort, Hi: raw.Num(65535)},
		{Kind: raw.DstPort, Hi: raw.Num(65535), Step: 7},
		{Kind: raw.SrcPort, Lo: raw.Num(5), Hi: raw.Num(65535), Step: 3000},
		{Kind: raw.DstPort, Hi: raw.Num(65535), Order: raw.Dec},
		{Kind: raw.SrcPort, List: []raw.Value{raw.Num(65535), raw.Num(0), raw.Num(77)}},
	} {
		t.Run(fmt.Sprintf("%v/%d", f.Kind, i), func(t *testing.T) { portCase(t, i, f) })
	}
}

// portCase sends every value of f, and some once more.
func portCase(t *testing.T, seed int, f raw.Field) {
	version := 4 + 2*(seed%2)
	s := frametest.Random(rand.New(rand.NewPCG(7, uint64(seed))), version, false, seed%2, 30)
	tx, rx := pair(t, "", raw.PortConfig{TxDepth: 256}, raw.PortConfig{})
	st, err := tx.Tx(0).NewStream(template(t, s, false, []raw.Field{f}, nil), raw.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	step := max(f.Step, 1)
	count := (f.Hi.Lo-f.Lo.Lo)/step + 1
	if f.List != nil {
		count = uint64(len(f.List))
	}
	zero := false
	for k := uint64(0); k < count+200; {
		sent, err := st.Send(100, nil)
		if err != nil || sent != 100 {
			t.Fatal(sent, err)
		}
		receive(t, tx.Tx(0), rx.Rx(0), sent, func(data []byte) {
			x := k % count
			port := uint16(f.Lo.Lo + x*step)
			switch {
			case f.List != nil:
				port = uint16(f.List[x].Lo)
			case f.Order == raw.Dec:
				port = uint16(f.Lo.Lo + (count-1-x)*step)
			}
			if f.Kind == raw.SrcPort {
				s.SrcPort = port
			} else {
				s.DstPort = port
			}
			if want := s.Build(); !bytes.Equal(data, want) {
				t.Fatalf("%+v: packet %d\n got  %x\n want %x", f, k, data, want)
			}
			at := len(data) - len(s.Payload) - 2
			zero = zero || data[at] == 0xff && data[at+1] == 0xff
			k++
		})
	}
	if !zero && count == 1<<16 {
		t.Errorf("%+v: no checksum came out as zero", f)
	}
	checkCounts(t, st, tx.Tx(0), st.Sent(), st.Sent()*uint64(len(s.Build())), 1)
}

func TestStreamRefuses(t *testing.T) {
	tx, _ := pair(t, "", raw.PortConfig{FrameBytes: 2048}, raw.PortConfig{})
	q := tx.Tx(0)
	s := frametest.Random(rand.New(rand.NewPCG(2, 2)), 4, false, 0, 18)
	tmpl := template(t, s, false, nil, nil)
	if _, err := q.NewStream(tmpl, raw.StreamConfig{Tag: true, FlowFirst: 1 << 24}); err == nil {
		t.Error("flow 2^24 is taken")
	}
	small := frametest.Random(rand.New(rand.NewPCG(2, 2)), 4, false, 0, 15)
	if _, err := q.NewStream(template(t, small, false, nil, nil), raw.StreamConfig{Tag: true}); err == nil {
		t.Error("a tag in 15 bytes")
	}
	big := template(t, s, false, nil, &raw.Sizes{List: []int{9000}})
	if _, err := q.NewStream(big, raw.StreamConfig{}); err == nil {
		t.Error("a frame larger than FrameBytes")
	}
	st, err := q.NewStream(tmpl, raw.StreamConfig{Tag: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.NewStream(tmpl, raw.StreamConfig{}); !errors.Is(err, raw.ErrStream) {
		t.Error(err)
	}
	if n, err := st.Send(3, make([]uint32, 2)); n != 0 || !errors.Is(err, raw.ErrTimes) {
		t.Error(n, err)
	}
	if n, err := q.Commit([]int{60}); n != 0 || !errors.Is(err, raw.ErrStream) {
		t.Error(n, err)
	}
	if err := q.Flush(); !errors.Is(err, raw.ErrStream) {
		t.Error(err)
	}
	if err := tx.Close(); err != nil {
		t.Error(err)
	}
	if n, err := st.Send(1, make([]uint32, 1)); n != 0 || !errors.Is(err, raw.ErrClosed) {
		t.Error(n, err)
	}
	if q.Reserve(make([][]byte, 1)) != 0 || !errors.Is(q.Err(), raw.ErrClosed) {
		t.Error("a closed queue gives buffers")
	}
}

// TestQueuesShareByHash: with a receive hash each frame comes to one queue, all of a flow to the same.
func TestQueuesShareByHash(t *testing.T) {
	const flows, each = 40, 3
	for _, queues := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			tx, rx := pair(t, "", raw.PortConfig{}, raw.PortConfig{RxQueues: queues, RSS: engine.RSSIPv4 | engine.RSSUDP, RxDepth: 2 * flows * each})
			q, bufs := tx.Tx(0), make([][]byte, 1)
			for k := range flows * each {
				s := frametest.Spec{Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"), SrcPort: uint16(k % flows), DstPort: 9, Payload: make([]byte, 18)}
				if q.Reserve(bufs) != 1 {
					t.Fatal("full")
				}
				if _, err := q.Commit([]int{copy(bufs[0], s.Build())}); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Flush(); err != nil {
				t.Fatal(err)
			}
			var hashes [flows]uint32
			var of [flows]int
			got, frames := make([]int, queues), make([]raw.RxFrame, 16)
			left := flows * each
			for look := 0; left > 0 && look < 1000; look++ {
				i := look % queues
				n := rx.Rx(i).Poll(frames)
				got[i] += n
				left -= n
				for _, f := range frames[:n] {
					k := int(f.Data[34])<<8 | int(f.Data[35]) // the source port
					if f.Flags&(engine.WCRSSHash|engine.WCRSSPorts) != engine.WCRSSHash|engine.WCRSSPorts {
						t.Fatalf("flow %d: %+v", k, f)
					}
					if hashes[k] == 0 {
						hashes[k], of[k] = f.RSSHash, i
					}
					if hashes[k] != f.RSSHash || of[k] != i {
						t.Errorf("flow %d: hash %08x in queue %d, then %08x in %d", k, hashes[k], of[k], f.RSSHash, i)
					}
				}
			}
			if left != 0 || slices.Contains(got, 0) {
				t.Errorf("%d frames missing, %d in the queues", left, got)
			}
		})
	}
}

func TestPortRefuses(t *testing.T) {
	d, err := device.Open("loop:"+t.Name(), device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []raw.PortConfig{{TxDepth: -1}, {RxDepth: 1 << 20}, {FrameBytes: 5}, {FrameBytes: 1 << 20},
		{RSS: 1 << 20}, {RSS: engine.RSSIPv4, RxQueues: -1}, {RSS: engine.RSSIPv4, Rules: make([]engine.FlowRule, 1)}} {
		if _, err := raw.NewPort(d, c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.NewPort(d, raw.PortConfig{}); err == nil {
		t.Error("a closed device has a port")
	}
}

// TestPortOfTheLongestMTU: what a frame may have by default is bounded by what a port takes.
func TestPortOfTheLongestMTU(t *testing.T) {
	d, err := device.Open("loop:"+t.Name()+"?mtu=65517", device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, err := raw.NewPort(d, raw.PortConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var frame [1][]byte
	if p.Tx(0).Reserve(frame[:]) != 1 || len(frame[0]) < d.Caps().MaxFrame {
		t.Errorf("frames of %d bytes, the device takes %d", len(frame[0]), d.Caps().MaxFrame)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestHotPathsAllocateNothing(t *testing.T) {
	tx, rx := pair(t, "", raw.PortConfig{TxQueues: 2, TxDepth: 64}, raw.PortConfig{RxDepth: 256})
	s := frametest.Random(rand.New(rand.NewPCG(3, 3)), 4, false, 0, 18)
	tmpl := template(t, s, false, []raw.Field{{Kind: raw.SrcPort, Hi: raw.Num(100)}}, nil)
	st, err := tx.Tx(0).NewStream(tmpl, raw.StreamConfig{Tag: true})
	if err != nil {
		t.Fatal(err)
	}
	q, in := tx.Tx(1), rx.Rx(0)
	bufs, lens, frames, times := make([][]byte, 8), []int{60, 60, 60, 60}, make([]raw.RxFrame, 64), []uint32{7}
	if n := testing.AllocsPerRun(200, func() {
		_, _ = st.Send(16, times)
		q.Reserve(bufs)
		_, _ = q.Commit(lens)
		_ = q.Flush()
		q.Reclaim()
		in.Release(in.Poll(frames))
		// and what goes wrong
		_, _ = st.Send(3, nil)
		_, _ = st.Send(1000, times) // full
		_, _ = tx.Tx(0).Commit(lens)
		_, _ = q.Commit(lens)
		in.Release(in.Poll(frames))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = tx.Close()
	if n := testing.AllocsPerRun(20, func() {
		_, _ = st.Send(1, times)
		q.Reserve(bufs)
		_, _ = q.Commit(lens)
		_ = q.Flush()
		_ = q.Err()
	}); n != 0 {
		t.Errorf("%v allocations on a closed port", n)
	}
}
