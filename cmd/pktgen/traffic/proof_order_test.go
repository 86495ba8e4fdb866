package traffic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// lane is both ports and a network that carries tags alone, in order but for those it sets aside: frame k of a
// class comes after so many frames more.
//
//	sent      k   k+1   k+2  ...  k+lag   k+lag+1
//	arrives      k+1   k+2  ...  k+lag   k   k+lag+1
type lane struct {
	key     proto.TagKey
	flows   uint64
	next    uint64
	classes []asideClass
	ready   [2 * receiveBurst][proto.TagBytes]byte
	waiting int
	handed  int
	at      int64
	count   uint64
}

// asideClass sets every n-th frame aside, beginning with the first-th, while it can still come in its time.
type asideClass struct {
	lag, n, first uint64
	aside         uint64 // how many were
	tags          [][proto.TagBytes]byte
	due           []uint64
}

func (l *lane) Queues() []txQueue { return []txQueue{l} }

// Send takes what there is room for, and room for what may come between.
func (l *lane) Send(n int, times []uint32) (int, error) {
	for i := range n {
		if l.waiting+1+len(l.classes) > len(l.ready) {
			return i, nil
		}
		k := l.next
		l.next++
		l.carry(k, times[min(i, len(times)-1)])
	}
	return n, nil
}

func (l *lane) carry(k uint64, at uint32) {
	var tag [proto.TagBytes]byte
	l.key.Put(tag[:], uint32(k%l.flows), k/l.flows, at)
	aside := false
	for i := range l.classes {
		c := &l.classes[i]
		if k%c.n == c.first && k+c.lag < l.count && !aside {
			aside = true
			c.aside++
			c.tags, c.due = append(c.tags, tag), append(c.due, k+c.lag)
		}
	}
	if !aside {
		l.ready[l.waiting] = tag
		l.waiting++
	}
	for i := range l.classes {
		if c := &l.classes[i]; len(c.due) > 0 && c.due[0] == k {
			l.ready[l.waiting] = c.tags[0]
			l.waiting++
			c.tags, c.due = c.tags[1:], c.due[1:]
		}
	}
}

func (l *lane) SentBytes() uint64              { return 64 * l.next }
func (l *lane) Failed() (frames, bytes uint64) { return 0, 0 }
func (l *lane) Pending() int                   { return 0 }
func (l *lane) Err() error                     { return nil }
func (l *lane) Hello(uint32, uint64) error     { return nil }

func (l *lane) Poll(frames []raw.RxFrame) (int, error) {
	l.handed = min(len(frames), l.waiting)
	for i := range frames[:l.handed] {
		frames[i] = raw.RxFrame{Data: l.ready[i][:], TimeNS: l.at}
	}
	return l.handed, nil
}

func (l *lane) Describe(f *raw.RxFrame, a *arrival) {
	*a = arrival{Data: f.Data, TagEnd: proto.TagBytes}
}

func (l *lane) Release(n int) error {
	if n != l.handed {
		return fmt.Errorf("released %d of %d", n, l.handed)
	}
	l.waiting = copy(l.ready[:], l.ready[n:l.waiting])
	return nil
}

// TestProofOfOrder: frames set aside by less than the window are reordered, by exactly that extent; frames set aside
// by the window or more are stale, and not received in time: lost.
func TestProofOfOrder(t *testing.T) {
	for _, flows := range []int{1, manyFlows} {
		window, f := windowOf(flows), uint64(flows)
		for _, c := range []struct {
			name    string
			classes []asideClass
			count   uint64
			stale   int // classes that are, from the last
		}{
			{"one place", []asideClass{{lag: f, n: 3 * f, first: f}}, 40 * f, 0},
			{"below the window", []asideClass{{lag: min(window-1, 20) * f, n: 1009, first: 5}, {lag: min(window-1, 30) * f, n: 1013, first: 6}}, 60*f + 50_000, 0},
			{"at the edge of the window", []asideClass{{lag: (window - 1) * f, n: 1009, first: 5}, {lag: window * f, n: 1013, first: 6}}, (window+10)*f + 20_000, 1},
			{"far beyond", []asideClass{{lag: 3, n: 1013, first: 6}, {lag: (window + 3) * f, n: 1009, first: 5}}, (window+10)*f + 20_000, 1},
		} {
			t.Run(fmt.Sprintf("flows=%d/%s", flows, c.name), func(t *testing.T) {
				clk := new(clock.Virtual)
				clk.Set(1_000_000)
				token := Token{RunID: 9, StartNS: 1_000_000, Flows: flows}
				l := &lane{key: proto.NewTagKey(token.RunID), flows: f, classes: c.classes, count: c.count, at: 1_000_100}
				p := pretendPlan(1, flows, c.count, clock.Rate{})
				p.Config.Drain = time.Millisecond
				r, err := execute(context.Background(), p, token, runPorts{out: l, in: l}, clk)
				if err != nil {
					t.Fatal(err)
				}
				var reordered, stale, extent uint64
				for i, class := range l.classes {
					switch {
					case i >= len(l.classes)-c.stale:
						stale += class.aside
					case class.lag >= f: // less is not out of its own flow's order
						reordered += class.aside
						extent = max(extent, class.lag/f)
					}
					if class.aside == 0 || len(class.due) > 0 {
						t.Errorf("class %d: %d set aside, %d left", i, class.aside, len(class.due))
					}
				}
				checkSane(t, r)
				checkCount(t, "sent", r.Sent, c.count)
				checkCount(t, "reordered", r.Reordered, reordered)
				checkCount(t, "extent", r.ReorderExtentMaxSeqs, extent)
				checkCount(t, "stale", r.Stale, stale)
				checkCount(t, "lost", r.Lost, stale)
				checkCount(t, "received", r.Received, c.count)
				checkCount(t, "duplicate, foreign and corrupt", r.Duplicate+r.Foreign+r.Corrupt, 0)
			})
		}
	}
}
