package echo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// limitWindow is the time in which a client's rate is counted.
const limitWindow = int64(10 * time.Millisecond)

// server is one run.
type server struct {
	*end
	c        *Config
	p        exchange.Protocol
	r        *Report
	guests   guests
	lobby    exchange.Lobby
	sessions atomic.Uint64
	refused  atomic.Uint64
	total    ServerTotals
	perTick  uint64 // datagrams of a client in limitWindow
	first    engine.Counters
	msgs     [64]ud.Msg
}

// Serve answers datagrams, or counts them, until ctx ends, the time is up or
// Count clients have come and gone. Only clients that an exchange introduced are
// answered, with no more bytes than they sent, at no more than their rate.
func Serve(ctx context.Context, c Config) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", withListenPort(c.Listen))
	if err != nil {
		hint := err.Error()
		var op *net.OpError
		if errors.As(err, &op) && op.Err != nil {
			hint = op.Err.Error() // without the address again
		}
		return nil, &results.UsageError{Thing: "listen", Value: c.Listen, Hint: hint, Cause: err}
	}
	defer l.Close()
	e, err := open(&c, 0)
	if err != nil {
		return nil, err
	}
	s := &server{end: e, c: &c, r: newReport("serve", &c), perTick: max(c.Limit*uint64(limitWindow)/1e9, 1)}
	s.guests.most, s.guests.share, s.guests.idle = c.MaxClients, c.MaxOfSource, c.Idle
	s.guests.ever = c.Count
	s.p, _ = exchange.ByName(c.Exchange)
	if c.Exchange == "perftest" {
		s.p = exchange.Perftest{MTU: e.ep.MaxPayload()}
	}
	s.r.Device = e.describe(c.Device)
	s.first = e.dev.Counters()
	if c.Duration != 0 {
		timed, cancel := context.WithTimeout(ctx, c.Duration)
		defer cancel()
		return s.run(ctx, timed, l)
	}
	return s.run(ctx, ctx, l)
}

func withListenPort(addr string) string {
	if addr == "" {
		addr = ":"
	}
	if host, port, err := net.SplitHostPort(addr); err == nil && port == "" {
		return withPort(host)
	}
	return withPort(addr)
}

// run serves until until ends; asked tells an interruption from the end of the time.
func (s *server) run(asked, until context.Context, l net.Listener) (*Report, error) {
	inner, stop := context.WithCancel(until)
	var done sync.WaitGroup
	done.Go(func() {
		s.welcome(inner, l)
		stop() // Count clients are through
	})
	if s.c.OnReady != nil {
		s.c.OnReady(l.Addr())
	}
	start := s.clk.Now()
	err := s.cause(s.c.Device, s.answer(inner))
	stop()
	l.Close()
	done.Wait()
	r := s.r
	r.ElapsedNS = s.clk.Now() - start
	s.total.Sessions, s.total.Refused = s.sessions.Load(), s.refused.Load()
	s.total.RefusedShare, s.total.RefusedFull, s.total.IdleEnded = s.guests.shared, s.guests.full, s.guests.idled
	r.ServerTotal = &s.total
	now := s.dev.Counters()
	r.drops(&now, &s.first)
	if asked.Err() != nil {
		r.Outcome = "interrupted"
	}
	if err != nil {
		r.Outcome, r.Error = "failed", err.Error()
	}
	r.finish(r.ElapsedNS)
	return r, errors.Join(err, asked.Err(), s.close())
}

// welcome takes connections. Clients beyond MaxClients or MaxOfSource are told so in the exchange, by admit; there is
// room for some that are to be told.
func (s *server) welcome(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, s.c.MaxClients+exchange.LobbyMost)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) { // by ctx, or by the last of Count clients
			return
		}
		if err != nil {
			select { // out of descriptors, mostly
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			s.refused.Add(1)
			conn.Close()
			continue
		}
		s.lobby.Enter(conn)
		all.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			defer s.lobby.Leave(conn)
			s.session(ctx, conn, l)
		})
	}
}

func (s *server) dropped() uint64 {
	c := s.dev.Counters()
	return c.Dropped()
}

func (s *server) tell(format string, args ...any) {
	if s.c.OnSession != nil {
		s.c.OnSession(fmt.Sprintf(format, args...))
	}
}

// session is one client from its exchange to its end. The last of Count clients closes the listener.
func (s *server) session(ctx context.Context, conn net.Conn, l net.Listener) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	g := &guest{source: exchange.Source(conn), end: end}
	defer s.guests.leave(g)
	from := conn.RemoteAddr()
	before := s.dropped()
	x, err := s.p.Server(ctx, conn, func(theirs exchange.Info) (exchange.Info, error) {
		s.lobby.Leave(conn)
		err := s.admit(ctx, g, &theirs)
		mine := s.info(s.c)
		mine.Mode = g.mode
		return mine, err
	})
	if err != nil {
		s.guests.turnAway(g)
		s.refused.Add(1)
		s.tell("%v refused: %v", from, exchangeHint("the client has another --exchange than "+s.c.Exchange, err))
		return
	}
	if s.sessions.Add(1) == s.c.Count {
		l.Close()
	}
	s.tell("%v is queue pair %#x at %v, %v", from, g.qpn, g.gid, g.mode)
	err = x.Serve(ctx, func() exchange.Counts {
		g.heard.Store(s.clk.Now())
		return exchange.Counts{Received: g.received.Load(), Bytes: g.bytes.Load(), Answered: g.answered.Load(),
			Limited: g.limited.Load(), Dropped: s.dropped() - before}
	})
	if s.c.Exchange != "native" {
		s.linger(ctx, g)
	}
	how := "through"
	if cause := context.Cause(ctx); errors.Is(cause, errIdle) || errors.Is(cause, errReplaced) {
		how = cause.Error()
		x.Refuse(cause)
	} else if err != nil && cause == nil {
		how = err.Error()
	}
	s.tell("%v: received %d, answered %d, limited %d: %s", from, g.received.Load(), g.answered.Load(), g.limited.Load(), how)
}

// linger waits until a client that keeps no connection has been silent for the
// idle time; one of perftest has said that it is through.
func (s *server) linger(ctx context.Context, g *guest) {
	idle := s.c.Idle
	if s.c.Exchange == "perftest" {
		idle = min(idle, apartIdle)
	}
	g.heard.Store(s.clk.Now())
	g.apart.Store(true)
	for {
		wait := idle - time.Duration(s.clk.Now()-g.heard.Load())
		if wait <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// admit makes a client of a peer: everything that its first datagram needs is
// there before it is told where to send.
func (s *server) admit(ctx context.Context, g *guest, theirs *exchange.Info) error {
	mine := s.ep.LocalAddr()
	if theirs.QKey != mine.QKey {
		return fmt.Errorf("Q_Key %#x, and answers go to %#x: use --qkey %#x", theirs.QKey, mine.QKey, mine.QKey)
	}
	if err := s.notOwn(theirs); err != nil {
		return loopHint(s.c.Device, err)
	}
	g.gid, g.qpn, g.mode = theirs.GID, theirs.QPN, theirs.Mode
	if s.c.Exchange != "native" {
		g.mode = s.c.Mode
	}
	if err := s.guests.seat(g, s.clk.Now()); err != nil {
		return err
	}
	resolve, cancel := context.WithTimeout(ctx, exchange.StepTimeout/2)
	defer cancel()
	to := ud.Addr{GID: theirs.GID, QPN: theirs.QPN, QKey: theirs.QKey}
	peer, err := s.ep.Peer(resolve, to)
	if err != nil {
		return fmt.Errorf("no way back to %v: %w", to.GID, results.Plain(s.c.Device, err))
	}
	s.ep.Forget(peer) // the neighbour is known now, which is what counts
	return s.guests.place(g)
}

// answer is the owner's loop.
func (s *server) answer(ctx context.Context) error {
	for idle := 0; ; {
		n := s.ep.Poll(s.msgs[:])
		if n == 0 {
			if idle++; idle&255 == 0 || s.c.Event {
				if ctx.Err() != nil {
					return nil
				}
				if err := s.err(); err != nil {
					return err
				}
				if s.c.Event || idle > 1<<16 { // nobody for milliseconds
					if err := s.dev.Wait(int64(10 * time.Millisecond)); err != nil {
						return err
					}
				}
			}
			continue
		}
		idle = 0
		now := s.clk.Now()
		for i := range s.msgs[:n] {
			s.one(&s.msgs[i], now)
		}
		if err := s.ep.Commit(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// one answers, counts or drops a datagram.
func (s *server) one(m *ud.Msg, now int64) {
	s.r.Received++
	s.r.RecvBytes += uint64(len(m.Data))
	from, err := m.From()
	var g *guest
	if err == nil {
		g = s.guests.find(&from.GID, from.QPN)
	}
	if g == nil {
		s.total.Strangers++
		m.Release()
		return
	}
	g.heard.Store(now)
	g.received.Add(1)
	g.bytes.Add(uint64(len(m.Data)))
	if g.mode == exchange.ModeSink {
		s.total.Sunk++
		m.Release()
		return
	}
	if now-g.window >= limitWindow {
		g.window, g.used = now, 0
	}
	if g.used >= s.perTick {
		g.limited.Add(1)
		s.total.Limited++
		m.Release()
		return
	}
	g.used++
	bytes := uint64(len(m.Data))
	if err := m.ReplyWith(m.Data, ud.SendOptions{Imm: m.Imm, HasImm: m.HasImm}); err != nil {
		s.total.Unanswered++
		m.Release()
		return
	}
	g.answered.Add(1)
	s.total.Answered++
	s.r.Sent++
	s.r.SentBytes += bytes
}
