package exchange

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Limits of a Lobby.
const (
	LobbyMost   = 256 // connections
	LobbySource = 64  // of them, of one Source
)

// Lobby keeps connections that have not said who they are yet, from their accepting until a server's accept function is
// called or the exchange has failed. Nobody is shut out by those who say nothing: when there are as many as may be, of
// one source or in all, the oldest of them is closed, and the next comes in. A client says its piece at once, and so is
// through long before it is the oldest. The zero Lobby is ready for use, by any goroutine.
type Lobby struct {
	mu    sync.Mutex
	conns []waiting // oldest first
}

type waiting struct {
	conn net.Conn
	from netip.Prefix
}

// Enter takes a connection in, and may close another.
func (l *Lobby) Enter(conn net.Conn) {
	w := waiting{conn, Source(conn)}
	l.mu.Lock()
	defer l.mu.Unlock()
	same, oldest := 0, 0 // oldest: of the same source
	for i := range l.conns {
		if l.conns[i].from == w.from {
			if same++; same == 1 {
				oldest = i
			}
		}
	}
	if same < LobbySource {
		oldest = 0 // of all
	}
	if same >= LobbySource || len(l.conns) >= LobbyMost {
		l.conns[oldest].conn.Close()
		l.conns = slices.Delete(l.conns, oldest, oldest+1)
	}
	l.conns = append(l.conns, w)
}

// Leave lets a connection out: it is not closed for others any more. A second Leave does nothing.
func (l *Lobby) Leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.conns, func(w waiting) bool { return w.conn == conn }); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
	}
}

// Source is where a connection comes from, as far as limits tell sources apart: an IPv4 address, or an IPv6 prefix of 64
// bits, which one host may have to itself; so all link-local addresses are one source. It is the zero Prefix for a
// connection that has no IP address.
func Source(conn net.Conn) netip.Prefix {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	a := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // both are lengths that its address has
	return p
}
