package wire

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/nstest"
)

// What every wire on an interface does, in all the ways there are of using one.

func TestCountsEqualTheKernels(t *testing.T) {
	eachWay(t, func(t *testing.T, way *way) {
		const count = 10007 // each way
		a, b, ns := nstest.Veth(t)
		wa, wb := on(t, way.open, a, ""), on(t, way.open, b, ns)
		for _, end := range []struct {
			tx, rx         Wire
			ns, rns        string
			from, to, what string
		}{{wa, wb, "", ns, a, b, "there"}, {wb, wa, ns, "", b, a, "back"}} {
			before, beforeRx := nstest.Count(t, end.ns, end.from), nstest.Count(t, end.rns, end.to)
			length := func(seq uint64) int { return 14 + int(seq*37%1501) }
			want := make([]byte, 1600)
			r := &receiver{t: t, w: end.rx, check: func(f *Frame, seq uint64) error {
				exact := want[:length(seq)]
				experimental(exact, seq)
				if len(exact) < MinFrame {
					clear(want[len(exact):MinFrame])
					exact = want[:MinFrame]
				}
				if !bytes.Equal(f.Data, exact) {
					return fmt.Errorf("frame %d:\n got %x\nwant %x", seq, f.Data, exact)
				}
				return nil
			}}
			sendAll(t, end.tx, count, length, experimental, r.take)
			r.until(count)
			s, sr := statsOf(end.tx), statsOf(end.rx)
			k, kr := nstest.Count(t, end.ns, end.from).Sub(before), nstest.Count(t, end.rns, end.to).Sub(beforeRx)
			if s.TxFrames != count || k.TxFrames != count || kr.RxFrames != count || sr.RxFrames != count {
				t.Errorf("%s: frames: sent %d, kernel %d and %d, received %d", end.what, s.TxFrames, k.TxFrames, kr.RxFrames, sr.RxFrames)
			}
			k.TxBytes += way.uncounted * count
			kr.RxBytes += way.uncounted * count
			if s.TxBytes != k.TxBytes || sr.RxBytes != kr.RxBytes || s.TxBytes != sr.RxBytes {
				t.Errorf("%s: bytes: sent %d, kernel %d and %d, received %d", end.what, s.TxBytes, k.TxBytes, kr.RxBytes, sr.RxBytes)
			}
			if sr.RxRingDrops != 0 || s.TxErrors != 0 || s.TxPadded == 0 {
				t.Errorf("%s: %+v\n%+v", end.what, s, sr)
			}
		}
	})
}

// TestNobodyReads overruns the receiver: it must say so, and what the sender's kernel took must be what we counted.
func TestNobodyReads(t *testing.T) {
	eachWay(t, func(t *testing.T, way *way) {
		const count = 50003
		a, b, ns := nstest.Veth(t)
		tx, rx := on(t, way.open, a, ""), on(t, way.few, b, ns)
		before := nstest.Count(t, "", a)
		sendAll(t, tx, count, func(uint64) int { return 60 }, experimental, func() {})
		k, s := nstest.Count(t, "", a).Sub(before), statsOf(tx)
		if k.TxFrames != count || s.TxFrames != count {
			t.Errorf("sent %d, kernel %+v", s.TxFrames, k)
		}
		r := &receiver{t: t, w: rx, check: func(*Frame, uint64) error { return nil }}
		for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			r.take()
			if s := statsOf(rx); s.RxFrames+s.RxRingDrops == count {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v do not add up to %d", statsOf(rx), count)
			}
		}
		if s := statsOf(rx); s.RxRingDrops == 0 || s.RxFrames < way.room {
			t.Errorf("room for %d frames: %+v", way.room, s)
		}
	})
}

// TestTagsPass judges by gopacket what arrives: also what comes out of a ring with its tag put back.
func TestTagsPass(t *testing.T) {
	eachWay(t, func(t *testing.T, way *way) {
		a, b, ns := nstest.Veth(t)
		tx, rx := on(t, way.open, a, ""), on(t, way.open, b, ns)
		tags := [][]layers.Dot1Q{{{VLANIdentifier: 5, Priority: 3}}, {{VLANIdentifier: 4095, DropEligible: true}, {VLANIdentifier: 1}}, nil}
		for i, vlans := range tags {
			for _, outer := range []layers.EthernetType{layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ} {
				want := taggedFrame(t, outer, vlans)
				sendAll(t, tx, 1, func(uint64) int { return len(want) }, func(b []byte, _ uint64) { copy(b, want) }, func() {})
				r := &receiver{t: t, w: rx, check: func(f *Frame, _ uint64) error {
					if !bytes.Equal(f.Data, want) {
						return fmt.Errorf("tags %d:\n got %x\nwant %x", i, f.Data, want)
					}
					var again [1]Frame
					if rx.Next(again[:]) != 1 || !bytes.Equal(again[0].Data, want) || again[0].Flags != f.Flags {
						return fmt.Errorf("tags %d: another look shows another frame: %x", i, again[0].Data)
					}
					return nil
				}}
				r.until(1)
			}
		}
	})
}

// TestBytesByAPlainSocket has recvfrom judge what each way of sending puts on the medium, and sendto feed the receiving
// side.
func TestBytesByAPlainSocket(t *testing.T) {
	eachWay(t, func(t *testing.T, way *way) {
		a, b, ns := nstest.Veth(t)
		w := on(t, way.open, a, "")
		plain := plainSocket(t, ns, b)
		want, got := make([]byte, 1514), make([]byte, 2048)
		for k := range uint64(300) {
			frame := want[:MinFrame+k*37%1455]
			experimental(frame, k)
			sendAll(t, w, 1, func(uint64) int { return len(frame) }, func(b []byte, _ uint64) { copy(b, frame) }, func() {})
			n, _, err := unix.Recvfrom(plain, got, 0)
			if err != nil || !bytes.Equal(got[:n], frame) {
				t.Fatalf("frame %d: %v\n got %x\nwant %x", k, err, got[:n], frame)
			}
			if _, err := unix.Write(plain, frame); err != nil {
				t.Fatal(err)
			}
			r := &receiver{t: t, w: w, check: func(f *Frame, _ uint64) error {
				if !bytes.Equal(f.Data, frame) {
					return fmt.Errorf("frame %d back:\n got %x\nwant %x", k, f.Data, frame)
				}
				return nil
			}}
			r.until(1)
		}
	})
}

// TestLosesItsInterface: the error names what happened, idle or sending, and all frames are accounted for.
func TestLosesItsInterface(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(t *testing.T, a, b, ns string)
		want error
	}{
		"down":     {func(t *testing.T, a, b, ns string) { nstest.Down(t, "", a) }, ErrDown},
		"carrier":  {func(t *testing.T, a, b, ns string) { nstest.Down(t, ns, b) }, ErrNoCarrier},
		"vanished": {func(t *testing.T, a, b, ns string) { nstest.Delete(t, ns, b) }, ErrVanished},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, way *way) {
				for _, idle := range []bool{true, false} {
					loseInterface(t, way, idle, c.act, c.want)
				}
			})
		})
	}
}

func loseInterface(t *testing.T, way *way, idle bool, act func(t *testing.T, a, b, ns string), want error) {
	t.Helper()
	a, b, ns := nstest.Veth(t)
	w := on(t, way.open, a, "")
	committed := uint64(0)
	send := func() bool {
		if !idle && w.Reserve([]int32{60}, make([][]byte, 1)) == 1 {
			w.Commit(1)
			committed++
		}
		return w.Flush() == nil
	}
	before := nstest.Count(t, "", a)
	if !send() {
		t.Fatal(w.Err())
	}
	sent := nstest.Count(t, "", a).Sub(before).TxFrames
	act(t, a, b, ns)
	for send() && !idle {
		if way.silent {
			w.Next(make([]Frame, 1))
		}
	}
	checkLost(t, w, a, want)
	s := statsOf(w)
	if idle != (committed == 0) || s.TxFrames+s.TxErrors != committed || w.Pending() != 0 {
		t.Errorf("idle %v: committed %d: %+v", idle, committed, s)
	}
	if w.Info().Kind == "xdp" && s.TxFrames != sent { // a packet socket takes frames that the interface then drops
		t.Errorf("idle %v: the kernel sent %d: %+v", idle, sent, s)
	}
}

func TestWiresOnInterfacesAllocateNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, way *way) {
		a, b, ns := nstest.Veth(t)
		tx, rx := on(t, way.open, a, ""), on(t, way.open, b, ns)
		checkAllocs(t, func() {}, tx, rx)
		if statsOf(rx).RxFrames == 0 {
			t.Error("nothing was received")
		}
	})
}
