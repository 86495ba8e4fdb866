package ud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ud/exchange"
)

// Limits of a Listener.
const (
	pause       = 10 * time.Millisecond
	maxRemotes  = 1024 // sessions at a time; further clients are turned away
	waitingMost = 64   // remotes that nobody has accepted yet; further ones are served all the same
)

// Remote is another endpoint, known by an exchange over a connection.
type Remote struct {
	Peer    Peer
	Addr    Addr
	Session *exchange.Session // on Conn; a listener's remotes are served by the listener
	Conn    net.Conn

	e    *Endpoint
	once sync.Once
	done chan struct{}
}

// Done is closed when the other side, or Close, has ended the session.
func (r *Remote) Done() <-chan struct{} { return r.done }

// Close closes the connection and forgets the peer. A second Close does
// nothing.
func (r *Remote) Close() (err error) {
	r.once.Do(func() {
		err = r.Conn.Close()
		r.e.peers.drop(r.Peer)
		close(r.done)
	})
	return err
}

// Dial connects to HOST:PORT, where a server of the protocol listens, and
// exchanges addresses with it: nil is exchange.Native. hello's Mode, Size and
// Depth are told to it, as far as the protocol does. The remote is the caller's
// to close. Any goroutine may call it.
func (e *Endpoint) Dial(ctx context.Context, addr string, p exchange.Protocol, hello exchange.Info) (*Remote, error) {
	if p == nil {
		p = exchange.Native{}
	}
	bad := func(err error) (*Remote, error) { return nil, fmt.Errorf("ud: %s: dial %s: %w", e.name, addr, err) }
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return bad(err)
	}
	hello, err = e.introduce(hello, conn, engine.GID{})
	if err != nil {
		conn.Close()
		return bad(err)
	}
	s, err := p.Client(ctx, conn, hello)
	if err == nil {
		var r *Remote
		if r, err = e.remote(ctx, s.Theirs, conn); err == nil {
			r.Session = s
			return r, nil
		}
	}
	conn.Close()
	return bad(err)
}

// remote makes a peer of what the other side told.
func (e *Endpoint) remote(ctx context.Context, theirs exchange.Info, conn net.Conn) (*Remote, error) {
	a := Addr{GID: theirs.GID, QPN: theirs.QPN, QKey: theirs.QKey}
	peer, err := e.hold(ctx, a)
	if err != nil {
		return nil, err
	}
	e.peers.expect(peer) // its first datagram is answered at once
	return &Remote{Peer: peer, Addr: a, Conn: conn, e: e, done: make(chan struct{})}, nil
}

// introduce fills in what this endpoint tells of itself. The own address is the
// one that the connection has if it is the device's, else the first of the
// family of theirs or of the connection.
func (e *Endpoint) introduce(i exchange.Info, conn net.Conn, theirs engine.GID) (exchange.Info, error) {
	i.QPN, i.PSN, i.QKey, i.MTU = e.qp.QPN(), e.cfg.PSN, e.cfg.QKey, e.dev.Caps().MaxDatagram
	gid := e.cfg.GID
	if gid == (engine.GID{}) {
		var at netip.Addr
		if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
			at = a.AddrPort().Addr().Unmap().WithZone("")
		}
		gid = e.ownGID(engine.GIDFromAddr(at), theirs)
	}
	if gid == (engine.GID{}) {
		return i, fmt.Errorf("no own address of the family of %v, to be told to %v", theirs, conn.RemoteAddr())
	}
	i.GID = gid
	return i, nil
}

// ownGID chooses an own address: the wanted one, else the first of its family,
// else the first; always of the family of theirs, if that is known.
func (e *Endpoint) ownGID(wanted, theirs engine.GID) (best engine.GID) {
	none := engine.GID{}
	for _, g := range e.dev.GIDs() {
		switch {
		case theirs != none && g.GID.Is4() != theirs.Is4():
		case g.GID == wanted:
			return wanted
		case best == none, best.Is4() != wanted.Is4() && g.GID.Is4() == wanted.Is4():
			best = g.GID
		}
	}
	return best
}

// Listener tells the endpoint's address to those who ask.
type Listener struct {
	e        *Endpoint
	ln       net.Listener
	p        exchange.Protocol
	hello    exchange.Info
	ctx      context.Context
	stop     context.CancelFunc
	lobby    exchange.Lobby
	remotes  chan struct{} // a place for each session
	accepted chan *Remote
	silent   chan *Remote // clients of a protocol that does not tell its end; the oldest go
	counts   func(*Remote) exchange.Counts
	wg       sync.WaitGroup
}

// ListenConfig is what a Listener tells and is asked.
type ListenConfig struct {
	Protocol exchange.Protocol // nil: exchange.Native
	Hello    exchange.Info     // Mode, Size and Depth are told to clients, as far as the protocol does
	// Counts is asked for what a client of exchange.Native wants to know, from
	// another goroutine than the owner's; nil: zeros.
	Counts func(*Remote) exchange.Counts
}

// Listen tells this endpoint's address to the clients that connect to
// [HOST]:PORT, and makes peers of them, until Close. It does so beside the
// owner: nothing that a client does holds up the datagrams.
func (e *Endpoint) Listen(addr string, c ListenConfig) (*Listener, error) {
	if c.Protocol == nil {
		c.Protocol = exchange.Native{}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ud: %s: listen: %w", e.name, err)
	}
	l := &Listener{e: e, ln: ln, p: c.Protocol, hello: c.Hello, counts: c.Counts,
		remotes: make(chan struct{}, maxRemotes), accepted: make(chan *Remote, waitingMost), silent: make(chan *Remote, maxRemotes)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Add(1)
	go l.run()
	return l, nil
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Accept gives the next client. Clients that nobody accepts are served as well.
func (l *Listener) Accept(ctx context.Context) (*Remote, error) {
	select {
	case r := <-l.accepted:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, ErrClosed
	}
}

// Close ends the sessions and waits for what runs. A second Close does nothing.
func (l *Listener) Close() error {
	l.stop()
	err := l.ln.Close()
	l.wg.Wait()
	for len(l.silent) > 0 {
		(<-l.silent).Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// run accepts connections. It waits a while after an error, which comes when all
// descriptors are in use.
func (l *Listener) run() {
	defer l.wg.Done()
	for l.ctx.Err() == nil {
		conn, err := l.ln.Accept()
		if err != nil {
			select {
			case <-time.After(pause):
			case <-l.ctx.Done():
			}
			continue
		}
		l.lobby.Enter(conn)
		l.wg.Add(1)
		go l.serve(conn)
	}
}

// serve is one client from its first byte to its last.
func (l *Listener) serve(conn net.Conn) {
	defer l.wg.Done()
	defer conn.Close()
	defer l.lobby.Leave(conn)
	select {
	case l.remotes <- struct{}{}:
		defer func() { <-l.remotes }()
	default:
		return
	}
	short, cancel := context.WithTimeout(l.ctx, exchange.StepTimeout)
	var r *Remote
	s, err := l.p.Server(l.ctx, conn, func(theirs exchange.Info) (mine exchange.Info, err error) {
		l.lobby.Leave(conn)
		if mine, err = l.e.introduce(l.hello, conn, theirs.GID); err == nil {
			r, err = l.e.remote(short, theirs, conn)
		}
		return mine, err
	})
	cancel()
	if err != nil {
		if r != nil {
			r.Close()
		}
		return
	}
	r.Session = s
	select {
	case l.accepted <- r:
	default:
	}
	_ = s.Serve(l.ctx, func() exchange.Counts { // how it ends is the client's affair
		if l.counts == nil {
			return exchange.Counts{}
		}
		return l.counts(r)
	})
	if s.TellsEnd() {
		r.Close()
		return
	}
	for {
		select {
		case l.silent <- r:
			return
		default:
		}
		select {
		case oldest := <-l.silent:
			oldest.Close()
		default:
		}
	}
}
