package ud

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bluering/bluering/engine"
)

// PacketConn is a net.PacketConn of an endpoint, for programs that want no more
// than that: a datagram is copied once each way, and its sender's address costs
// an allocation with ReadFrom, none with ReadFromAddr. All methods may be called
// from any goroutine.
//
// An address is an Addr. A datagram longer than the buffer it is read into is
// cut, one longer than MaxPayload refused with EMSGSIZE. WriteTo waits while all
// sends are outstanding; that a datagram was written does not mean that it came.
//
// golang.org/x/net/nettest tests streams. Two connected PacketConns pass all of
// it over loop:, with an empty datagram in the place of the end of file, which
// datagrams have not. Over udp: its bulk transfers do not apply: what a reader
// does not fetch in time is dropped.
type PacketConn struct {
	e    *Endpoint
	back engine.Backend

	// The mutex makes whoever holds it the endpoint's owner. A reader that has
	// nothing to read sleeps while it holds it; who wants it counts up want and
	// wakes the sleeper if there is one. One of the two sees the other's mark.
	mu     sync.Mutex
	want   atomic.Int32
	asleep atomic.Bool
	turn   chan struct{} // one reader at a time sleeps on the device

	readEnd, writeEnd atomic.Int64 // Unix time in ns; 0: never
	closed            atomic.Bool
}

var _ net.PacketConn = (*PacketConn)(nil)

// linger is how long Close waits for datagrams that a full wire holds up.
const linger = 200 * time.Millisecond

// NewPacketConn makes a PacketConn of an endpoint, which it owns from now on
// and closes. Each of its sends asks for a completion, so that Close knows when
// the last has left.
func NewPacketConn(e *Endpoint) *PacketConn {
	e.tx.every = 1
	return &PacketConn{e: e, back: e.dev.Backend(), turn: make(chan struct{}, 1)}
}

// LocalAddr is the endpoint's.
func (c *PacketConn) LocalAddr() net.Addr { return c.e.LocalAddr() }

// MaxPayload is the length of the longest datagram, in bytes.
func (c *PacketConn) MaxPayload() int { return c.e.MaxPayload() }

func (c *PacketConn) lock() {
	c.want.Add(1)
	if c.asleep.Load() {
		c.back.Wake()
	}
	c.mu.Lock()
	c.want.Add(-1)
}

// failed wraps an error as package net does.
func (c *PacketConn) failed(op string, to net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "ud", Source: c.LocalAddr(), Addr: to, Err: err}
}

// ended tells why an operation cannot go on; nil if it can.
func (c *PacketConn) ended(end *atomic.Int64) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	if left(end) <= 0 {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// left is the time before a deadline.
func left(end *atomic.Int64) time.Duration {
	if at := end.Load(); at != 0 {
		return time.Until(time.Unix(0, at))
	}
	return math.MaxInt64
}

// ReadFrom reads the next datagram and tells its sender, an Addr.
func (c *PacketConn) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := c.ReadFromAddr(p)
	if err != nil {
		return 0, nil, err
	}
	return n, from, nil
}

// ReadFromAddr is ReadFrom without an allocation.
func (c *PacketConn) ReadFromAddr(p []byte) (n int, from Addr, err error) {
	if err := c.takeTurn(); err != nil {
		return 0, from, c.failed("read", nil, err)
	}
	defer func() { <-c.turn }()
	for looks := 0; ; looks++ {
		c.lock()
		if err := c.ended(&c.readEnd); err != nil {
			c.mu.Unlock()
			return 0, from, c.failed("read", nil, err)
		}
		if c.e.Poll(c.e.one[:]) == 1 {
			m := &c.e.one[0]
			n = copy(p, m.Data)
			from, err = m.From()
			m.Release()
			c.mu.Unlock()
			if err != nil {
				continue // to a group, or of no sender that could be named
			}
			return n, from, nil
		}
		if err := c.e.Err(); err != nil {
			c.mu.Unlock()
			return 0, from, c.failed("read", nil, err)
		}
		if looks > 50 {
			err = c.sleep()
		}
		c.mu.Unlock()
		if err != nil {
			return 0, from, c.failed("read", nil, err)
		}
		if c.want.Load() != 0 {
			runtime.Gosched()
		}
	}
}

// sleep waits for the device with the mutex held, unless somebody wants it.
func (c *PacketConn) sleep() (err error) {
	c.asleep.Store(true)
	if c.want.Load() == 0 && !c.closed.Load() {
		err = c.e.dev.Wait(int64(min(max(left(&c.readEnd), 0), time.Second)))
	}
	c.asleep.Store(false)
	return err
}

// takeTurn waits until no other reader sleeps.
func (c *PacketConn) takeTurn() error {
	for {
		if err := c.ended(&c.readEnd); err != nil {
			return err
		}
		select {
		case c.turn <- struct{}{}:
			return nil
		default:
		}
		again := time.NewTimer(min(left(&c.readEnd), pause)) // the deadline may change meanwhile
		select {
		case c.turn <- struct{}{}:
			again.Stop()
			return nil
		case <-again.C:
		}
	}
}

// WriteTo sends a datagram to an Addr. The first to an address finds its next
// hop, and waits for that.
func (c *PacketConn) WriteTo(p []byte, to net.Addr) (int, error) {
	a, ok := to.(Addr)
	if !ok {
		return 0, c.failed("write", to, fmt.Errorf("ud: address of type %T, want ud.Addr: %w", to, syscall.EINVAL))
	}
	return c.WriteToAddr(p, a)
}

// WriteToAddr is WriteTo without an allocation.
func (c *PacketConn) WriteToAddr(p []byte, to Addr) (int, error) {
	if len(p) > c.e.MaxPayload() {
		return 0, c.failed("write", to, syscall.EMSGSIZE)
	}
	if err := c.ended(&c.writeEnd); err != nil {
		return 0, c.failed("write", to, err)
	}
	peer, ok := c.e.peers.kept(to)
	if !ok {
		var err error
		if peer, err = c.find(to); err != nil {
			return 0, c.failed("write", to, err)
		}
	}
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		c.lock()
		err := c.ended(&c.writeEnd)
		if err == nil {
			err = c.e.Send(peer, p)
		}
		c.mu.Unlock()
		if err == nil {
			return len(p), nil
		}
		if !errors.Is(err, ErrFull) {
			return 0, c.failed("write", to, err)
		}
		time.Sleep(min(wait, max(left(&c.writeEnd), 0))) // the wire is full, and tells nobody when it is not
	}
}

// find finds the next hop of an address before the deadline for writes.
func (c *PacketConn) find(to Addr) (Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(left(&c.writeEnd), slowResolve))
	defer cancel()
	return c.e.Peer(ctx, to)
}

// SetDeadline sets both deadlines; the zero time is none. An operation that
// waits meanwhile sees it.
func (c *PacketConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the time after which reading fails.
func (c *PacketConn) SetReadDeadline(t time.Time) error { return c.setEnd(&c.readEnd, t) }

// SetWriteDeadline sets the time after which writing fails.
func (c *PacketConn) SetWriteDeadline(t time.Time) error { return c.setEnd(&c.writeEnd, t) }

func (c *PacketConn) setEnd(end *atomic.Int64, t time.Time) error {
	if c.closed.Load() {
		return c.failed("set", nil, net.ErrClosed)
	}
	at := int64(0)
	if !t.IsZero() {
		at = max(t.UnixNano(), 1)
	}
	end.Store(at)
	c.back.Wake()
	return nil
}

// Close ends what waits and closes the endpoint. Datagrams that were written and
// that the wire has no room for are given 200 ms to leave. A second Close is an
// error, as package net has it.
func (c *PacketConn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return c.failed("close", nil, net.ErrClosed)
	}
	c.lock()
	defer c.mu.Unlock()
	for end := time.Now().Add(linger); c.e.Outstanding() > 0 && time.Now().Before(end); {
		before := c.e.Outstanding()
		if c.e.reclaim(); c.e.Err() != nil {
			break
		}
		if c.e.Outstanding() == before {
			time.Sleep(20 * time.Microsecond)
		}
	}
	return c.e.Close()
}

// Conn is a PacketConn with one address at the other end.
type Conn struct {
	*PacketConn
	to Addr
}

var _ net.Conn = (*Conn)(nil)

// Connect makes a net.Conn of it: Write sends to that address, Read passes over
// datagrams of others. Closing it closes the PacketConn.
func (c *PacketConn) Connect(to Addr) *Conn { return &Conn{c, to} }

// RemoteAddr is the other end's.
func (c *Conn) RemoteAddr() net.Addr { return c.to }

// Write sends a datagram.
func (c *Conn) Write(p []byte) (int, error) { return c.WriteToAddr(p, c.to) }

// Read reads the next datagram of the other end. It does not tell that there
// will be none any more: a datagram has no end of file.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		n, from, err := c.ReadFromAddr(p)
		if err != nil || from.GID == c.to.GID && from.QPN == c.to.QPN {
			return n, err
		}
	}
}
