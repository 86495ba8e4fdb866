package exchange

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"unicode/utf8"
)

// Native is our own exchange; docs/FORMAT.md has its bytes. A server may refuse, saying why; a client may ask for counts
// while the run goes on, and gets the last ones at its end.
type Native struct{}

// NativeVersion is the highest version that this package speaks.
const NativeVersion = 1

// A message is a head of 16 bytes and a body. Big-endian.
const (
	nativeMagic = "bluering"
	nativeHead  = 16
	nativeMax   = 1024 // bytes of a body
	helloBytes  = 64
	countsBytes = 40

	kindHello  = 1   // both ways, first
	kindAsk    = 2   // client: counts, please
	kindCounts = 3   // server
	kindBye    = 4   // client: the last message; counts are the answer
	kindRefuse = 255 // server, in place of hello or counts, its last message: the body is why
)

// Name is "native".
func (Native) Name() string { return "native" }

// native is a session's state.
type native struct {
	*Session
	version uint16 // of this exchange
	buf     [nativeHead + nativeMax]byte
}

// send writes a message.
func (n *native) send(kind byte, body []byte) error {
	b := n.buf[:nativeHead+len(body)]
	copy(b, nativeMagic)
	binary.BigEndian.PutUint16(b[8:], n.version)
	b[10], b[11] = kind, 0
	binary.BigEndian.PutUint32(b[12:], uint32(len(body)))
	copy(b[nativeHead:], body)
	return n.l.write(b)
}

// receive reads a message. Its body is valid until the next send or receive.
func (n *native) receive() (kind byte, body []byte, err error) {
	head := n.buf[:nativeHead]
	if err := n.l.read(head); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[12:])
	version := binary.BigEndian.Uint16(head[8:])
	switch {
	case string(head[:8]) != nativeMagic:
		return 0, nil, unexpected(head, "a message that begins with "+nativeMagic)
	case version == 0:
		return 0, nil, fmt.Errorf("%w: the peer has 0", ErrVersion)
	case length > nativeMax:
		return 0, nil, fmt.Errorf("%w: a body of %d bytes, at most %d", ErrMessage, length, nativeMax)
	}
	n.version = min(version, NativeVersion)
	n.Version = fmt.Sprint(version)
	body = n.buf[nativeHead : nativeHead+int(length)]
	return head[10], body, n.l.read(body)
}

// expect reads a message of one kind with at least so many bytes: later versions may put more behind.
func (n *native) expect(kind byte, least int) ([]byte, error) {
	got, body, err := n.receive()
	switch {
	case err != nil:
		return nil, err
	case got == kindRefuse:
		return nil, fmt.Errorf("%w: %s", ErrRefused, printable(body))
	case got != kind:
		return nil, fmt.Errorf("%w: kind %d, want %d", ErrMessage, got, kind)
	case len(body) < least:
		return nil, fmt.Errorf("%w: a body of %d bytes, want %d", ErrMessage, len(body), least)
	}
	return body, nil
}

// printable is a peer's text without what could move a terminal's cursor.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, string(b))
}

func putHello(i *Info) []byte {
	b := make([]byte, helloBytes)
	copy(b, i.GID[:])
	for k, v := range []uint32{i.QPN, i.PSN, i.QKey, uint32(i.MTU), uint32(i.Mode), uint32(i.Size), uint32(i.Depth)} {
		binary.BigEndian.PutUint32(b[16+4*k:], v)
	}
	binary.BigEndian.PutUint64(b[48:], i.Nonce) // 44 to 47 and what follows: 0
	return b
}

func parseHello(b []byte) (i Info, err error) {
	copy(i.GID[:], b)
	u := func(k int) uint32 { return binary.BigEndian.Uint32(b[16+4*k:]) }
	i.QPN, i.PSN, i.QKey = u(0), u(1), u(2)
	mtu, mode, size, depth := u(3), u(4), u(5), u(6)
	i.Nonce = binary.BigEndian.Uint64(b[48:])
	switch {
	case mtu < 256 || mtu > 4096 || mtu&(mtu-1) != 0:
		return i, fmt.Errorf("%w: MTU %d", ErrMessage, mtu)
	case mode > uint32(ModeSink):
		return i, fmt.Errorf("%w: mode %d, known are 0 (echo) and 1 (sink)", ErrVersion, mode)
	case size > 4096:
		return i, fmt.Errorf("%w: datagrams of %d bytes, at most 4096", ErrMessage, size)
	case depth > 1<<20:
		return i, fmt.Errorf("%w: %d datagrams in flight, at most %d", ErrMessage, depth, 1<<20)
	}
	i.MTU, i.Mode, i.Size, i.Depth = int(mtu), Mode(mode), int(size), int(depth)
	return i, i.check()
}

// hello reads the peer's, into Theirs.
func (n *native) hello() error {
	body, err := n.expect(kindHello, helloBytes)
	if err != nil {
		return err
	}
	n.Theirs, err = parseHello(body)
	return err
}

// Client tells mine and learns theirs.
func (Native) Client(ctx context.Context, conn net.Conn, mine Info) (*Session, error) {
	n := &native{Session: &Session{Mine: mine, l: link{"native", conn}}, version: NativeVersion}
	if _, err := parseHello(putHello(&mine)); err != nil {
		return nil, fmt.Errorf("exchange: native: own address: %w", err)
	}
	err := n.l.step(ctx, StepTimeout, "tell the own address", func() error { return n.send(kindHello, putHello(&mine)) })
	if err == nil {
		err = n.l.step(ctx, StepTimeout, "read the peer's address", n.hello)
	}
	if err != nil {
		return nil, err
	}
	if n.Theirs.Nonce != mine.Nonce {
		return nil, fmt.Errorf("exchange: native: read the peer's address: %w: nonce %#x, ours is %#x", ErrMessage, n.Theirs.Nonce, mine.Nonce)
	}
	n.counts = func(ctx context.Context) (Counts, error) { return n.ask(ctx, kindAsk) }
	n.finish = func(ctx context.Context) error {
		_, err := n.ask(ctx, kindBye)
		return err
	}
	return n.Session, nil
}

// ask sends a request and reads the counts that answer it.
func (n *native) ask(ctx context.Context, kind byte) (c Counts, err error) {
	err = n.l.step(ctx, StepTimeout, "counts", func() error {
		if err := n.send(kind, nil); err != nil {
			return err
		}
		b, err := n.expect(kindCounts, countsBytes)
		if err != nil {
			return err
		}
		for i, p := range []*uint64{&c.Received, &c.Bytes, &c.Answered, &c.Limited, &c.Dropped} {
			*p = binary.BigEndian.Uint64(b[8*i:])
		}
		return nil
	})
	return c, err
}

// Server learns theirs and tells mine.
func (Native) Server(ctx context.Context, conn net.Conn, accept func(Info) (Info, error)) (*Session, error) {
	n := &native{Session: &Session{l: link{"native", conn}}, version: NativeVersion}
	n.refuse = n.decline
	err := n.l.step(ctx, FirstTimeout, "read the peer's address", func() error {
		err := n.hello()
		if errors.Is(err, ErrVersion) || errors.Is(err, ErrNoGID) {
			n.decline(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	mine, err := accept(n.Theirs)
	if err != nil {
		n.Refuse(err)
		return nil, err
	}
	mine.Nonce = n.Theirs.Nonce
	n.Mine = mine
	err = n.l.step(ctx, StepTimeout, "tell the own address", func() error { return n.send(kindHello, putHello(&mine)) })
	if err != nil {
		return nil, err
	}
	n.serve = n.answer
	return n.Session, nil
}

func (n *native) decline(why error) error {
	text := why.Error()
	return n.send(kindRefuse, []byte(text[:min(len(text), 512)]))
}

// answer answers requests until the client's last.
func (n *native) answer(ctx context.Context, counts func() Counts) error {
	for {
		var kind byte
		err := n.l.step(ctx, 0, "wait for the client", func() (err error) {
			if kind, _, err = n.receive(); err != nil {
				if errors.Is(err, io.ErrUnexpectedEOF) {
					return vanished()
				}
				return err
			}
			if kind != kindAsk && kind != kindBye {
				return fmt.Errorf("%w: kind %d, want %d or %d", ErrMessage, kind, kindAsk, kindBye)
			}
			c := counts()
			var b [countsBytes]byte
			for i, v := range []uint64{c.Received, c.Bytes, c.Answered, c.Limited, c.Dropped} {
				binary.BigEndian.PutUint64(b[8*i:], v)
			}
			return n.send(kindCounts, b[:])
		})
		if err != nil || kind == kindBye {
			return err
		}
	}
}
