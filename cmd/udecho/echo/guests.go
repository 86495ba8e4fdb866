package echo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ud/exchange"
)

// guest is a client of a server. The owner of the queue pair counts, others read.
type guest struct {
	gid    engine.GID
	qpn    uint32
	mode   exchange.Mode
	source netip.Prefix            // of its connection
	end    context.CancelCauseFunc // ends its session
	heard  atomic.Int64            // when it was, last
	apart  atomic.Bool             // it keeps no connection any more

	received, bytes, answered, limited atomic.Uint64

	// The owner's.
	window int64
	used   uint64

	seated, counted bool // of guests.mu
}

// guests are the clients. A client has a seat from its hello on, of which there are so many in all and so many for a
// source. It has a place, too, once it is introduced: where datagrams find it by where they came from, without a lock,
// in a table in which a client has one of the few places behind its hash.
type guests struct {
	places [4 * MaxClients]atomic.Pointer[guest]

	most, share int           // seats in all, and of a source
	ever        uint64        // clients that may have one at any time; 0: no limit
	idle        time.Duration // a client that is silent for so long gives its seat to one that needs it; see spares

	mu     sync.Mutex // of those who change what is below, and places
	count  int
	counts map[netip.Prefix]int // by source; no zeros
	served uint64               // of ever

	full, shared, idled uint64 // clients without a seat, and those that lost theirs
}

// Why a session ended before its client wanted.
var (
	errIdle     = errors.New("ended by the server")
	errReplaced = errors.New("the same queue pair came again")
)

// guestReach is how far behind its hash a client may stand.
const guestReach = 64

func guestHash(gid *engine.GID, qpn uint32) uint32 {
	h := qpn * 0x9e3779b1
	for _, b := range gid {
		h = (h ^ uint32(b)) * 0x01000193
	}
	return h ^ h>>15
}

func (t *guests) find(gid *engine.GID, qpn uint32) *guest {
	h := guestHash(gid, qpn)
	for i := range uint32(guestReach) {
		g := t.places[(h+i)%uint32(len(t.places))].Load()
		if g != nil && g.qpn == qpn && g.gid == *gid {
			return g
		}
	}
	return nil
}

// apartIdle is idle for a client without a connection, which has no other way to say that it is through.
const apartIdle = time.Second

// spares reports whether a client has been silent for so long that another may have its seat.
func (t *guests) spares(g *guest, now int64) bool {
	return now-g.heard.Load() >= int64(t.patience(g))
}

// patience is how long a client may be silent when another wants its seat.
func (t *guests) patience(g *guest) time.Duration {
	if g.apart.Load() {
		return min(t.idle, apartIdle)
	}
	return t.idle
}

// seat gives a client a seat. Without a free one, that of the client which has been silent for longest is taken, of
// those that spare theirs: of the same source when it is the source's share that is used up.
func (t *guests) seat(g *guest, now int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.counts[g.source]
	switch {
	case t.ever != 0 && t.served == t.ever:
		return fmt.Errorf("no room: the server has the %d clients that it serves (its --count)", t.ever)
	case mine >= t.share && !t.evict(now, g.source):
		t.shared++
		return fmt.Errorf("no room: %v has %d of the %d places of a source (the server's --clients-per-source)", sourceName(g.source), mine, t.share)
	case t.count >= t.most && !t.evict(now, netip.Prefix{}):
		t.full++
		return fmt.Errorf("no room: %d of %d places are taken (the server's --clients)", t.count, t.most)
	}
	g.heard.Store(now)
	g.seated, g.counted = true, true
	t.served++
	t.count++
	if t.counts == nil {
		t.counts = map[netip.Prefix]int{}
	}
	t.counts[g.source]++
	return nil
}

// evict ends the session that has been silent for longest of those that spare their seats, of one source or of all.
func (t *guests) evict(now int64, of netip.Prefix) bool {
	var oldest *guest
	for i := range t.places {
		g := t.places[i].Load()
		if g == nil || of.IsValid() && g.source != of || !t.spares(g, now) {
			continue
		}
		if oldest == nil || g.heard.Load() < oldest.heard.Load() {
			oldest = g
		}
	}
	if oldest == nil {
		return false
	}
	t.idled++
	t.remove(oldest)
	oldest.end(fmt.Errorf("%w: silent for %v, and another came", errIdle, t.patience(oldest)))
	return true
}

// place lets datagrams find a seated client. A former one with its address ends if it is of the same source, which has
// started it again, mostly; nobody else takes another's place.
func (t *guests) place(g *guest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := guestHash(&g.gid, g.qpn)
	var free *atomic.Pointer[guest]
	for i := range uint32(guestReach) {
		p := &t.places[(h+i)%uint32(len(t.places))]
		old := p.Load()
		switch {
		case old == nil:
			if free == nil {
				free = p
			}
		case old.qpn == g.qpn && old.gid == g.gid && old.source != g.source:
			return fmt.Errorf("queue pair %#x at %v is a client already, that %v introduced", g.qpn, g.gid, sourceName(old.source))
		case old.qpn == g.qpn && old.gid == g.gid:
			p.Store(g)
			t.remove(old)
			old.end(errReplaced)
			return nil
		}
	}
	if free == nil {
		return errors.New("no room: too many clients of nearly the same address")
	}
	free.Store(g)
	return nil
}

// turnAway is leave for a client whose exchange came to nothing: it is not one of those that were served.
func (t *guests) turnAway(g *guest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.counted {
		g.counted = false
		t.served--
	}
	t.remove(g)
}

// leave takes a client's seat and place, if they are still its own.
func (t *guests) leave(g *guest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(g)
}

func (t *guests) remove(g *guest) {
	if !g.seated {
		return
	}
	g.seated = false
	t.count--
	if t.counts[g.source]--; t.counts[g.source] == 0 {
		delete(t.counts, g.source)
	}
	h := guestHash(&g.gid, g.qpn)
	for i := range uint32(guestReach) {
		if t.places[(h+i)%uint32(len(t.places))].CompareAndSwap(g, nil) {
			return
		}
	}
}

// sourceName is an IPv4 address without its 32 bits, and another source as it is.
func sourceName(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
