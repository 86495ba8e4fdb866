package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Port is the TCP port of ibv_ud_pingpong and perftest, and so of Native.
const Port = 18515

// DefaultQKey is the Q_Key of ibv_ud_pingpong and perftest, which do not tell it.
const DefaultQKey = 0x11111111

// StepTimeout bounds each message of the set-up. What waits for a peer's run, such as Session.Serve and Session.Finish,
// has only its context.
const StepTimeout = 10 * time.Second

// FirstTimeout bounds a server's wait for the first message. Clients of all protocols write it as soon as they are
// connected; who does not, holds a place that another could have.
const FirstTimeout = 3 * time.Second

// Errors a caller may want to test for. They come wrapped with what was read.
var (
	// ErrMessage: the peer does not speak this protocol.
	ErrMessage = errors.New("not a message of this protocol")
	// ErrVersion: the peer speaks a version that this end does not.
	ErrVersion = errors.New("version not supported")
	// ErrNoGID: the peer told no GID, and RoCE has no other address.
	ErrNoGID = errors.New("the peer told no GID")
	// ErrRefused: the server of Native said no, and why.
	ErrRefused = errors.New("refused by the peer")
	// ErrNotTold: the protocol cannot ask that.
	ErrNotTold = errors.New("the protocol does not tell that")
)

// Info is what one end tells the other. What a protocol does not tell is zero on the other side, but the Q_Key, which
// is DefaultQKey then.
type Info struct {
	QPN  uint32 // 24 bits, not 0
	PSN  uint32 // 24 bits
	QKey uint32
	GID  [16]byte
	LID  uint16
	MTU  int // bytes of payload that a datagram may have: 256 to 4096, a power of two

	// Told by Native only.
	Mode  Mode   // of a client: what it wants; of a server: what it does
	Size  int    // payload bytes of the longest datagram that this end sends, 0 to 4096
	Depth int    // datagrams that a client keeps in flight at most; receives that a server has
	Nonce uint64 // of a client: a number that tells its datagrams from others'; a server repeats it
}

// Mode is what a server does with datagrams.
type Mode uint8

// The modes.
const (
	ModeEcho Mode = iota // each is sent back as it is
	ModeSink             // they are counted
)

// String gives "echo" or "sink".
func (m Mode) String() string {
	switch m {
	case ModeEcho:
		return "echo"
	case ModeSink:
		return "sink"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Counts are what a server of Native counted for one client.
type Counts struct {
	Received uint64 // datagrams
	Bytes    uint64 // of their payload
	Answered uint64
	Limited  uint64 // not answered because of the server's rate limit
	Dropped  uint64 // lost at the server's device since the session began, also those of others
}

// Protocol is one way of telling.
type Protocol interface {
	// Name is "pingpong", "perftest" or "native".
	Name() string
	// Client tells mine and learns theirs. The receives of mine are posted. The connection is the caller's to close.
	Client(ctx context.Context, conn net.Conn, mine Info) (*Session, error)
	// Server learns theirs and tells what accept returns, which has posted its receives and can send when it
	// returns. With an error of accept the client is refused.
	Server(ctx context.Context, conn net.Conn, accept func(theirs Info) (mine Info, err error)) (*Session, error)
}

// Protocols are all of them, the first being the default.
func Protocols() []Protocol { return []Protocol{Native{}, Pingpong{}, Perftest{}} }

// ByName finds a protocol.
func ByName(name string) (Protocol, error) {
	for _, p := range Protocols() {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("exchange: protocol %q: want native, pingpong or perftest", name)
}

// Session is what is left of an exchange when both ends know each other. Its methods belong to one goroutine.
type Session struct {
	Mine, Theirs Info
	Version      string // that the peer told

	l link
	// What the protocol does in the methods of the same names; nil: nothing.
	sync   func(ctx context.Context) error
	counts func(ctx context.Context) (Counts, error)
	finish func(ctx context.Context) error
	serve  func(ctx context.Context, counts func() Counts) error
	refuse func(why error) error
}

// Sync is a client's step before traffic of one size: the server has its receives posted when it returns. Perftest
// has such a step; to the others it is nothing.
func (s *Session) Sync(ctx context.Context) error {
	if s.sync == nil {
		return nil
	}
	return s.sync(ctx)
}

// Counts asks the server what it counted: ErrNotTold except with Native.
func (s *Session) Counts(ctx context.Context) (Counts, error) {
	if s.counts == nil {
		return Counts{}, fmt.Errorf("exchange: %s: %w", s.l.name, ErrNotTold)
	}
	return s.counts(ctx)
}

// TellsEnd reports whether Serve returns no earlier than the client is through. With Pingpong it returns at once: nobody
// tells when the run ends.
func (s *Session) TellsEnd() bool { return s.serve != nil }

// Finish is a client's last step. The connection stays the caller's to close.
func (s *Session) Finish(ctx context.Context) error {
	if s.finish == nil {
		return nil
	}
	return s.finish(ctx)
}

// Serve is the rest of a server's session: it answers the client's steps until its last, and returns nil then; a
// client that vanishes is an error. counts may be called at any time until it returns.
func (s *Session) Serve(ctx context.Context, counts func() Counts) error {
	if s.serve == nil {
		return nil
	}
	return s.serve(ctx, counts)
}

// Refuse is how a server ends a session early, after Serve has returned: the client learns why as an ErrRefused, with
// Native, when it next asks. To the other protocols it is nothing. The connection stays the caller's to close.
func (s *Session) Refuse(why error) {
	if s.refuse != nil {
		s.l.step(context.Background(), time.Second, "refuse", func() error { return s.refuse(why) }) // who is gone need not know
	}
}

// link reads and writes whole messages.
type link struct {
	name string
	conn net.Conn
}

// step runs f with a deadline: the context's, and timeout from now on if it is not 0. The error says what f was at.
func (l *link) step(ctx context.Context, timeout time.Duration, what string, f func() error) error {
	if timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	l.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { l.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := f()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return fmt.Errorf("exchange: %s: %s: %w", l.name, what, err)
}

// read fills b.
func (l *link) read(b []byte) error {
	n, err := io.ReadFull(l.conn, b)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return fmt.Errorf("the peer closed after %d of %d bytes: %w", n, len(b), io.ErrUnexpectedEOF)
		}
		return fmt.Errorf("after %d of %d bytes: %w", n, len(b), err)
	}
	return nil
}

// write writes a message with one call, as peers want it that read with one.
func (l *link) write(b []byte) error {
	_, err := l.conn.Write(b)
	return err
}

// unexpected is an error that shows the beginning of what came.
func unexpected(b []byte, want string) error {
	shown := b[:min(len(b), 64)]
	return fmt.Errorf("%w: %q, want %s", ErrMessage, shown, want)
}

// hexField takes digits of one width off the front of b, and the separator behind them.
func hexField(b []byte, digits int, sep byte) (v uint64, rest []byte, ok bool) {
	if len(b) < digits+1 || b[digits] != sep {
		return 0, nil, false
	}
	for _, c := range b[:digits] {
		d := uint64(0)
		switch {
		case c >= '0' && c <= '9':
			d = uint64(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			d = uint64(c|0x20-'a') + 10
		default:
			return 0, nil, false
		}
		v = v<<4 | d
	}
	return v, b[digits+1:], true
}

// check is what all protocols ask of an Info.
func (i *Info) check() error {
	switch {
	case i.QPN == 0 || i.QPN >= 1<<24:
		return fmt.Errorf("%w: queue pair number %#x", ErrMessage, i.QPN)
	case i.PSN >= 1<<24:
		return fmt.Errorf("%w: packet sequence number %#x", ErrMessage, i.PSN)
	case i.GID == [16]byte{}:
		return ErrNoGID
	}
	return nil
}
