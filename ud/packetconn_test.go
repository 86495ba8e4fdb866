package ud

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// packetConns gives both ends of a wire as PacketConns.
func packetConns(t *testing.T, a, b string, c Config) (*PacketConn, *PacketConn) {
	t.Helper()
	ea, eb, _, _ := pair(t, a, b, c, c)
	pa, pb := NewPacketConn(ea), NewPacketConn(eb)
	t.Cleanup(func() { pa.Close(); pb.Close() })
	return pa, pb
}

func TestAPacketConnIsOneOfPackageNet(t *testing.T) {
	for _, u := range uris {
		t.Run(u.name, func(t *testing.T) {
			a, b := packetConns(t, u.a, u.b, Config{})
			buf := make([]byte, 100)
			for i := range 100 {
				text := strings.Repeat("x", i)
				n, err := a.WriteTo([]byte(text), b.LocalAddr())
				if n != i || err != nil {
					t.Fatal(n, err)
				}
				n, from, err := b.ReadFrom(buf)
				if err != nil || string(buf[:n]) != text || from != a.LocalAddr() {
					t.Fatalf("%q from %v, %v", buf[:n], from, err)
				}
			}
			_, err := a.WriteTo([]byte("long enough to be cut"), b.LocalAddr())
			check(t, err)
			if n, _, err := b.ReadFrom(buf[:4]); n != 4 || err != nil || string(buf[:4]) != "long" {
				t.Errorf("%q, %v", buf[:n], err)
			}
			_, err = a.WriteTo(make([]byte, a.MaxPayload()+1), b.LocalAddr())
			wantErr(t, err, syscall.EMSGSIZE)
			_, err = a.WriteTo(nil, &net.UDPAddr{})
			wantErr(t, err, syscall.EINVAL)
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "write" || op.Net != "ud" {
				t.Errorf("%v is no net.OpError", err)
			}
			if n := testing.AllocsPerRun(100, func() {
				_, err1 := a.WriteToAddr(buf[:10], b.e.LocalAddr())
				_, _, err2 := b.ReadFromAddr(buf)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
			}); n > 3 { // LocalAddr copies the table of addresses
				t.Errorf("%v allocations for one datagram", n)
			}
		})
	}
}

func TestDeadlinesAndCloseWakeReadersAndWriters(t *testing.T) {
	for _, u := range uris {
		t.Run(u.name, func(t *testing.T) {
			a, b := packetConns(t, u.a, u.b, Config{})
			read := func() <-chan error {
				done := make(chan error, 1)
				go func() { _, _, err := b.ReadFrom(make([]byte, 10)); done <- err }()
				return done
			}
			first, second := read(), read()
			check(t, b.SetReadDeadline(time.Now()))
			for _, done := range []<-chan error{first, second} {
				err := <-done
				wantErr(t, err, os.ErrDeadlineExceeded)
				if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
					t.Errorf("%v is no timeout", err)
				}
			}
			check(t, b.SetReadDeadline(time.Time{}))
			first = read()
			_, err := a.WriteTo([]byte("x"), b.LocalAddr())
			check(t, err)
			check(t, <-first)
			check(t, a.SetWriteDeadline(time.Unix(1, 0)))
			_, err = a.WriteTo([]byte("x"), b.LocalAddr())
			wantErr(t, err, os.ErrDeadlineExceeded)
			first = read()
			check(t, b.Close())
			wantErr(t, <-first, net.ErrClosed)
			wantErr(t, b.Close(), net.ErrClosed)
			wantErr(t, b.SetDeadline(time.Time{}), net.ErrClosed)
			_, _, err = b.ReadFrom(nil)
			wantErr(t, err, net.ErrClosed)
			_, err = b.WriteTo(nil, a.LocalAddr())
			wantErr(t, err, net.ErrClosed)
		})
	}
}

func TestReadersAndWritersAtTheSameTime(t *testing.T) {
	a, b := packetConns(t, "loop:TEST", "loop:TEST", Config{})
	const each, workers = 300, 4
	var wg sync.WaitGroup
	for _, way := range [][2]*PacketConn{{a, b}, {b, a}} {
		for range workers {
			wg.Go(func() {
				for i := range each {
					if _, err := way[0].WriteTo([]byte{byte(i)}, way[1].LocalAddr()); err != nil {
						t.Errorf("write: %v", err)
						return
					}
				}
			})
			wg.Go(func() {
				buf := make([]byte, 8)
				for range each {
					if n, _, err := way[1].ReadFrom(buf); n != 1 || err != nil {
						t.Errorf("read: %d, %v", n, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// stream gives a Conn the end of file that datagrams have not: an empty one.
// Nothing else is added, so the wire must lose and reorder nothing.
type stream struct {
	*Conn
	mu     sync.Mutex // of the one that closes
	closed bool
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Close waits until the other end made room for all that was written. A
// PacketConn alone waits for 200 ms, which a reader that the machine keeps from
// running can miss; a stream loses nothing by that.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.Conn.Close()
	}
	s.closed = true
	end := time.Now().Add(20 * time.Second)
	s.SetWriteDeadline(end)
	if _, err := s.Conn.Write(nil); err == nil {
		for s.outstanding() > 0 && time.Now().Before(end) {
			runtime.Gosched()
		}
	}
	return s.Conn.Close()
}

func (s *stream) outstanding() int {
	s.lock()
	defer s.PacketConn.mu.Unlock()
	s.e.reclaim()
	return s.e.Outstanding()
}

// stop closes a stream that nobody reads any more, and waits for a Close that
// is under way: the device goes next.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.Conn.Close()
}

// What golang.org/x/net/nettest asks of a net.Conn holds for two connected
// PacketConns on a lossless wire: data, deadlines past, present and future,
// close, and races of all of them. nettest has no test of a net.PacketConn; it
// tests streams, so this one ends with an empty datagram, which stands for the
// end of file. Over udp:, where the kernel drops what a reader does not fetch in
// time, its bulk transfers would fail for a reason that is UD's nature.
func TestNettest(t *testing.T) {
	loops := 0
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		loops++
		uri := "loop:" + t.Name() + string(rune('a'+loops))
		var ends [2]*Endpoint
		for i := range ends {
			d := openDevice(t, uri)
			if ends[i], err = New(d, Config{}); err != nil {
				return nil, nil, nil, err
			}
		}
		s1 := &stream{Conn: NewPacketConn(ends[0]).Connect(ends[1].LocalAddr())}
		s2 := &stream{Conn: NewPacketConn(ends[1]).Connect(ends[0].LocalAddr())}
		return s1, s2, func() { s1.stop(); s2.stop() }, nil
	})
}

func TestAConnPassesOverOthers(t *testing.T) {
	a, b := packetConns(t, "loop:TEST", "loop:TEST", Config{})
	other := newEndpoint(t, a.e.dev, Config{})
	c := b.Connect(a.e.LocalAddr())
	p, err := other.Peer(context.Background(), b.e.LocalAddr())
	check(t, err)
	a.lock()
	err = other.Send(p, []byte("from another"))
	a.mu.Unlock()
	check(t, err)
	_, err = a.WriteTo([]byte("from the right one"), b.LocalAddr())
	check(t, err)
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil || !bytes.Equal(buf[:n], []byte("from the right one")) || c.RemoteAddr() != a.LocalAddr() {
		t.Errorf("%q, %v", buf[:n], err)
	}
}
