package traffic

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
)

// recorded reads the frames of a capture file.
func recorded(t *testing.T, path string) (frames [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			return frames
		}
		if err != nil {
			t.Fatalf("frame %d of %s: %v", len(frames), path, err)
		}
		frames = append(frames, data)
	}
}

// asPlanned compares what was recorded with the plan, frame by frame: all but tags and checksums is equal, checksums are
// right, and each tag has the flow and the sequence that the plan gives it.
func asPlanned(t *testing.T, c Config, r *Report, frames [][]byte) {
	t.Helper()
	p := mustPlan(t, c)
	token := must(ParseToken(r.RunToken))
	key := proto.NewTagKey(token.RunID)
	sequences := map[uint32]uint64{}
	for k, got := range frames {
		want := must(p.FrameAt(uint64(k)))
		if len(got) < len(want) {
			t.Fatalf("frame %d has %d bytes, want %d", k, len(got), len(want))
		}
		var h proto.Headers
		if !proto.Parse(got, &h) || h.Status != proto.OK || h.PayloadEnd != len(want) {
			t.Fatalf("frame %d: %v, ends at %d, want %d: %x", k, h.Status, h.PayloadEnd, len(want), got)
		}
		if h.IPVersion == 4 && !csum.VerifyIPv4(got[h.L3Off:h.L4Off]) || !csum.VerifyL4(got, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto) {
			t.Fatalf("frame %d has a wrong checksum: %x", k, got)
		}
		tag, ok := key.FindTag(got, &h)
		q := k % p.Queues
		if flow := p.FlowAt(q, uint64(k/p.Queues)); !ok || tag.Flow != flow || uint64(tag.Seq) != sequences[flow] {
			t.Fatalf("frame %d: tag %+v %v, want flow %d sequence %d", k, tag, ok, flow, sequences[flow])
		}
		sequences[tag.Flow]++
		at := h.L4Off + 6
		if h.L4Proto == proto.ProtoTCP {
			at = h.L4Off + 16
		}
		clear(got[h.PayloadEnd-tagBytes : h.PayloadEnd])
		copy(got[at:], want[at:at+2])
		if !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("frame %d\n got %x\nwant %x", k, got, want)
		}
	}
}

// TestSegmentsAreThePlansFrames runs TSO over a loop, a payload's last piece and the run's last payload being short.
func TestSegmentsAreThePlansFrames(t *testing.T) {
	for i, c := range []Config{
		{TSO: TSO{MSS: 1448}, Count: 500},
		{TSO: TSO{MSS: 1448, Payload: 10000}, Proto: TCP, Count: 501, Flows: 3},
		{TSO: TSO{MSS: 1000, Payload: 1000}, Count: 77},
		{TSO: TSO{MSS: 1440, Payload: 5 * 1440}, Proto: TCP, Dst: must(ParseAddrs("dst", "2001:2::2")), Queues: 2, Flows: 6, Count: 300},
		{TSO: TSO{MSS: 700, Payload: 2000}, VLAN: must(ParseVLANs("vlan", "7")), SPort: must(ParsePorts("sport", "5-9")), Count: 100},
		{TSO: TSO{MSS: 1448}, Proto: TCP, Count: 450, Rate: rateOf(t, "500kpps")},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c.Tap = filepath.Join(t.TempDir(), "seen.pcapng")
			r := loopRun(t, c)
			r.Early = 0 // a paced payload leaves at the schedule of its last piece
			checkClean(t, r, c.Count)
			frames := recorded(t, c.Tap)
			if uint64(len(frames)) != c.Count {
				t.Fatalf("%d frames were recorded", len(frames))
			}
			if c.Queues > 1 { // they share the wire as they like
				return
			}
			asPlanned(t, c, r, frames)
			bytes := uint64(0)
			for k := range frames {
				bytes += uint64(len(must(mustPlan(t, c).FrameAt(uint64(k)))) + fcsBytes)
			}
			if r.SentBytes != bytes || r.Config.TSOMSS != c.TSO.MSS || r.Config.TSOPayload == 0 {
				t.Errorf("%d bytes sent, want %d; the report says MSS %d, payload %d", r.SentBytes, bytes, r.Config.TSOMSS, r.Config.TSOPayload)
			}
		})
	}
}

// TestDeviceMakesThePlansChecksums: with --csum offload the frames are those of the software, of any size and field.
func TestDeviceMakesThePlansChecksums(t *testing.T) {
	for i, c := range []Config{
		{Count: 200},
		{Count: 200, Proto: TCP, Size: must(ParseSize("74-90"))},
		{Count: 200, Size: must(ParseSize("imix")), Src: must(ParseAddrs("src", "198.18.0.1-198.18.0.99")), Flows: 7},
		{Count: 200, Size: must(ParseSize("100")), Dst: must(ParseAddrs("dst", "2001:2::/64:rand")), VLAN: must(ParseVLANs("vlan", "1-9"))},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c.Csum, c.Tap = CsumOffload, filepath.Join(t.TempDir(), "seen.pcapng")
			r := loopRun(t, c)
			checkClean(t, r, c.Count)
			asPlanned(t, c, r, recorded(t, c.Tap))
			if r.Config.Csum != "offload" {
				t.Errorf("the report says %q", r.Config.Csum)
			}
		})
	}
}

// TestVirtualGroupsLeaveTogether: a group goes at the slot of its last frame, the run's last frames without a whole group.
func TestVirtualGroupsLeaveTogether(t *testing.T) {
	for _, group := range []int{1, 3, 45, 64} {
		for _, queues := range []int{1, 2, 5} {
			for _, count := range []uint64{1, 44, 64, 1000} {
				for _, policy := range []OnLate{LateBurst, LateSlip} {
					name := fmt.Sprintf("group=%d/queues=%d/count=%d/%v", group, queues, count, policy)
					clk := new(clock.Virtual)
					mine, theirs := newSlotQueues(queues, clk)
					p, err := newPacer(pacerConfig{Rate: clock.Rate{Num: 1_000_000, Den: 1}, Count: count, Group: group, OnLate: policy}, theirs)
					if err != nil {
						t.Fatal(err)
					}
					p.begin(0, 0)
					drive(t, p, clk)
					if p.sent != count || p.late != 0 {
						t.Fatalf("%s: sent %d, late %d", name, p.sent, p.late)
					}
					for n, q := range mine {
						at := 0
						for b, size := range q.bursts {
							if size%group != 0 && b != len(q.bursts)-1 {
								t.Fatalf("%s: queue %d sent %d at once", name, n, size)
							}
							at += size
							last := uint64(at-1)*uint64(queues) + uint64(n)
							if left, due := q.departed[at-1], int64(last)*1000; left < due || left > due+1000*int64(queues) && policy == LateBurst {
								t.Fatalf("%s: frame %d left at %d, its slot is %d", name, last, left, due)
							}
						}
					}
				}
			}
		}
	}
}
