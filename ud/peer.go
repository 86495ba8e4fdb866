package ud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// Peer is a handle on an address whose next hop is known. It belongs to its
// endpoint. The zero Peer names nobody; one that was forgotten is refused.
type Peer uint32

// A handle is an index and, above it, the number of that index's use.
const (
	peerBits = 20
	maxPeers = 1 << peerBits

	maxLearned = 4096 // addresses that wait for the owner to want them
)

type peer struct {
	addr      Addr
	ah        *engine.AH // nil: free
	qpn, qkey uint32
	use       uint32 // 12 bits, never 0 while in use
	holders   int    // remotes
	kept      bool   // by a call of Peer, until Forget
}

// peerTable finds peers. Readers take one load; what changes it holds the lock
// and changes a copy.
type peerTable struct {
	list atomic.Pointer[[]peer]

	mu      sync.Mutex
	handles map[Addr]Peer
	free    []uint32
	learned map[replyKey]engine.AHAttr
	grave   []*engine.AH // to be closed by the owner, whose requests may name them
	closed  bool

	buried atomic.Bool // grave is not empty
	slow   atomic.Int32
}

// find gives a peer, nil for a handle that names none.
func (t *peerTable) find(p Peer) *peer {
	list := t.list.Load()
	if list == nil {
		return nil
	}
	i := uint32(p) % maxPeers
	if i >= uint32(len(*list)) {
		return nil
	}
	if q := &(*list)[i]; q.ah != nil && q.use == uint32(p)>>peerBits {
		return q
	}
	return nil
}

// Peer gives the handle of an address. At the first time it finds the next hop,
// and waits for it as long as ctx lasts; later it gives the same handle. Any
// goroutine may call it.
func (e *Endpoint) Peer(ctx context.Context, a Addr) (Peer, error) {
	if p, ok := e.peers.kept(a); ok {
		return p, nil
	}
	return e.add(ctx, a, func(p *peer) { p.kept = true })
}

// kept finds a peer that Peer has given before.
func (t *peerTable) kept(a Addr) (Peer, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.handles[a]
	return p, ok && t.find(p).kept
}

// hold gives the handle of an address that drop gives up again, unless somebody
// else has it too.
func (e *Endpoint) hold(ctx context.Context, a Addr) (Peer, error) {
	return e.add(ctx, a, func(p *peer) { p.holders++ })
}

// add finds or makes a peer, and marks it under the lock.
func (e *Endpoint) add(ctx context.Context, a Addr, mark func(*peer)) (Peer, error) {
	if a.QPN == 0 || a.QPN > MulticastQPN {
		return 0, fmt.Errorf("ud: %s: peer %v: queue pair 0x%x, want 0x1..0xffffff: %w", e.name, a.GID, a.QPN, syscall.EINVAL)
	}
	t := &e.peers
	if p, ok := t.marked(a, mark); ok {
		return p, nil
	}
	attr, err := e.dev.Resolve(ctx, a.dest(e.sgid))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, ErrClosed
	}
	if p, ok := t.markedLocked(a, mark); ok { // somebody was faster
		return p, nil
	}
	// The table is not closed before the lock is given up: no address handle is left behind.
	q := peer{addr: a, qpn: a.QPN, qkey: a.QKey}
	if err == nil {
		q.ah, err = e.pd.NewAH(attr)
	}
	if err != nil {
		return 0, fmt.Errorf("ud: %s: peer %v: %w", e.name, a, err)
	}
	mark(&q)
	p, ok := t.insert(q)
	if !ok {
		_ = q.ah.Close() // nobody has seen it
		return 0, fmt.Errorf("ud: %s: all %d peers are in use: %w", e.name, maxPeers, syscall.ENOMEM)
	}
	return p, nil
}

// marked finds and marks a peer that is there already.
func (t *peerTable) marked(a Addr, mark func(*peer)) (Peer, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.markedLocked(a, mark)
}

func (t *peerTable) markedLocked(a Addr, mark func(*peer)) (Peer, bool) {
	p, ok := t.handles[a]
	if ok {
		t.change(p, mark)
	}
	return p, ok
}

// change changes a peer in a copy of the list.
func (t *peerTable) change(p Peer, mark func(*peer)) {
	list := slices.Clone(*t.list.Load())
	mark(&list[uint32(p)%maxPeers])
	t.list.Store(&list)
}

// drop ends one hold.
func (t *peerTable) drop(p Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.find(p)
	if q == nil {
		return
	}
	t.change(p, func(q *peer) { q.holders-- })
	if q = t.find(p); q.holders <= 0 && !q.kept {
		t.forget(p, q)
	}
}

// expect puts the address that answers a peer where the owner looks for it.
func (t *peerTable) expect(p Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.find(p); q != nil {
		a := q.ah.Attr()
		t.learn(replyKey{engine.GID(a.GID), int32(a.SGIDIndex), a.TClass}, a)
	}
}

// learn keeps an address until the owner wants it.
func (t *peerTable) learn(key replyKey, a engine.AHAttr) {
	if t.learned == nil || len(t.learned) >= maxLearned {
		t.learned = make(map[replyKey]engine.AHAttr)
	}
	t.learned[key] = a
}

// insert puts a peer in a copy of the list.
func (t *peerTable) insert(q peer) (Peer, bool) {
	var list []peer
	if old := t.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if len(list) == maxPeers {
			return 0, false
		}
		i = uint32(len(list))
		list = append(list, peer{})
	}
	q.use = list[i].use%(1<<(32-peerBits)-1) + 1
	list[i] = q
	t.list.Store(&list)
	p := Peer(q.use<<peerBits | i)
	if t.handles == nil {
		t.handles = map[Addr]Peer{}
	}
	t.handles[q.addr] = p
	return p, true
}

// AddrOf gives a peer's address; false for a handle that names nobody. Any
// goroutine may call it.
func (e *Endpoint) AddrOf(p Peer) (Addr, bool) {
	if q := e.peers.find(p); q != nil {
		return q.addr, true
	}
	return Addr{}, false
}

// Forget gives a handle up; later uses of it are ErrPeer. What was reserved for
// it is still sent. Any goroutine may call it, for an unknown handle, too.
func (e *Endpoint) Forget(p Peer) {
	t := &e.peers
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.find(p)
	if q != nil {
		t.forget(p, q)
	}
}

// forget frees a peer in a copy of the list.
func (t *peerTable) forget(p Peer, q *peer) {
	ah := q.ah
	delete(t.handles, q.addr)
	list := slices.Clone(*t.list.Load())
	i := uint32(p) % maxPeers
	list[i] = peer{use: list[i].use}
	t.list.Store(&list)
	t.free = append(t.free, i)
	t.inter(ah)
}

// retire lets the owner close an address after its requests were posted.
func (t *peerTable) retire(ah *engine.AH) {
	if ah != nil {
		t.mu.Lock()
		t.inter(ah)
		t.mu.Unlock()
	}
}

func (t *peerTable) inter(ah *engine.AH) {
	t.grave = append(t.grave, ah)
	t.buried.Store(true) // read by the owner in Commit
}

// bury closes the addresses that no request names any more.
func (t *peerTable) bury() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buryLocked()
}

func (t *peerTable) buryLocked() {
	for _, ah := range t.grave {
		_ = ah.Close() // it cannot fail
	}
	t.grave = t.grave[:0]
	t.buried.Store(false)
}

func (t *peerTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true // nothing comes into the table or the grave from here on
	t.buryLocked()
	var errs []error
	if list := t.list.Load(); list != nil {
		for i := range *list {
			errs = append(errs, (*list)[i].ah.Close())
		}
	}
	t.list.Store(nil)
	t.handles = nil
	return errors.Join(errs...)
}
