package exchange_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/bluering/bluering/ud/exchange"
)

// crowd connects to a listener from an address, n times, and gives both ends of each connection in their order.
func crowd(t *testing.T, l net.Listener, from string, n int) (ours, theirs []net.Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		ours, theirs = append(ours, c), append(theirs, s)
	}
	return ours, theirs
}

// closed reports whether the other side has closed a connection, which it is waited for where it is expected.
func closed(t *testing.T, c net.Conn, expected bool) bool {
	t.Helper()
	wait := time.Millisecond
	if expected {
		wait = 20 * time.Second
	}
	c.SetReadDeadline(time.Now().Add(wait))
	_, err := c.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return errors.Is(err, io.EOF)
}

// Of each source the newest stay, and of all the newest, whatever the others do; who left is not closed for others.
func TestLobby(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var lobby exchange.Lobby
	first, s := crowd(t, l, "127.0.0.1", 1)
	lobby.Enter(s[0])
	lobby.Leave(s[0])
	lobby.Leave(s[0])
	quiet, s := crowd(t, l, "127.0.0.9", 1)
	lobby.Enter(s[0])
	const more = 10
	for source := range 4 { // of which the last comes into a full lobby
		from := net.IPv4(127, 0, 0, byte(2+source)).String()
		ours, theirs := crowd(t, l, from, exchange.LobbySource+more)
		for _, c := range theirs {
			lobby.Enter(c)
		}
		for i, c := range ours {
			if gone := closed(t, c, i < more); gone != (i < more) {
				t.Errorf("connection %d of %d from %s: closed %v", i, len(ours), from, gone)
			}
		}
		full := source == exchange.LobbyMost/exchange.LobbySource-1
		if gone := closed(t, quiet[0], full); gone != full {
			t.Errorf("with %d sources the oldest of all is closed: %v", source+1, gone)
		}
	}
	if closed(t, first[0], false) {
		t.Error("a connection that had left was closed")
	}
}
