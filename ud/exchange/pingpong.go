package exchange

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
)

// Pingpong is the exchange of ibv_ud_pingpong (rdma-core, libibverbs/examples/ud_pingpong.c): one message of 52 bytes
// each way, LID, QPN, PSN and GID in lower-case hexadecimal, then "done" from the client. The peer needs -g INDEX:
// without it, it tells no GID. It sends the first datagram if it is the client, and both stop counting by themselves.
type Pingpong struct{}

const pingpongBytes = len("0000:000000:000000:") + 32 + 1

// done is the last message of ibv_ud_pingpong's client and of both ends of older perftest.
const done = "done\x00"

// Name is "pingpong".
func (Pingpong) Name() string { return "pingpong" }

func putPingpong(i *Info) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", i.LID, i.QPN, i.PSN, i.GID[:])
}

func parsePingpong(b []byte) (i Info, err error) {
	const want = `"LID:QPN:PSN:GID" in 4, 6, 6 and 32 hexadecimal digits, and a NUL`
	lid, rest, ok1 := hexField(b, 4, ':')
	qpn, rest, ok2 := hexField(rest, 6, ':')
	psn, rest, ok3 := hexField(rest, 6, ':')
	if !ok1 || !ok2 || !ok3 || len(rest) != 33 || rest[32] != 0 {
		return i, unexpected(b, want)
	}
	i = Info{LID: uint16(lid), QPN: uint32(qpn), PSN: uint32(psn), QKey: DefaultQKey}
	if _, err := hex.Decode(i.GID[:], rest[:32]); err != nil {
		return i, unexpected(b, want)
	}
	if err = i.check(); err == ErrNoGID {
		err = fmt.Errorf("%w: start it with -g INDEX", err)
	}
	return i, err
}

// Client is what ibv_ud_pingpong HOST does.
func (Pingpong) Client(ctx context.Context, conn net.Conn, mine Info) (*Session, error) {
	s := &Session{Mine: mine, l: link{"pingpong", conn}}
	if err := mine.check(); err != nil {
		return nil, fmt.Errorf("exchange: pingpong: own address: %w", err)
	}
	var b [pingpongBytes]byte
	err := s.l.step(ctx, StepTimeout, "tell the own address", func() error { return s.l.write(putPingpong(&mine)) })
	if err == nil {
		err = s.l.step(ctx, StepTimeout, "read the peer's address", func() (err error) {
			if err = s.l.read(b[:]); err == nil {
				s.Theirs, err = parsePingpong(b[:])
			}
			return err
		})
	}
	if err == nil {
		err = s.l.step(ctx, StepTimeout, "end", func() error { return s.l.write([]byte(done)) })
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Server is what ibv_ud_pingpong without a host does.
func (Pingpong) Server(ctx context.Context, conn net.Conn, accept func(Info) (Info, error)) (*Session, error) {
	s := &Session{l: link{"pingpong", conn}}
	var b [pingpongBytes]byte
	err := s.l.step(ctx, FirstTimeout, "read the peer's address", func() (err error) {
		if err = s.l.read(b[:]); err == nil {
			s.Theirs, err = parsePingpong(b[:])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.Mine, err = accept(s.Theirs); err != nil {
		return nil, err
	}
	err = s.l.step(ctx, StepTimeout, "tell the own address", func() error { return s.l.write(putPingpong(&s.Mine)) })
	if err != nil {
		return nil, err
	}
	err = s.l.step(ctx, StepTimeout, "read the end", func() error {
		end := b[:len(done)]
		if err := s.l.read(end); err != nil {
			return err
		}
		if string(end) != done {
			return unexpected(end, `"done" and a NUL`)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}
