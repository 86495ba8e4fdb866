package exchange

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Perftest is the exchange of ib_send_lat and ib_send_bw with -c UD and one queue pair (linux-rdma/perftest,
// src/perftest_communication.c), of 5.70 and later. In each step the client writes first and the server answers with
// its own message of the same kind. It does not tell iterations or sizes, nor whether latency or bandwidth is measured:
// both ends are started alike.
type Perftest struct {
	// MTU is what a server tells, which comes before anything is known of its client; 0: 1024. A client's is in its
	// Info.
	MTU int
}

const (
	// perftestVersion is what we say we are: from 6.28 on both ends exchange the image of a C structure.
	perftestVersion = "6.10"
	perftestOldest  = 5.70

	perftestVersionBytes = 16
	perftestCycle        = 4096 // bytes of a cycle buffer; the larger of both ends counts
	perftestLine         = 64   // bytes of a cache line; the same

	perftestHead  = len("0000:0000:000000:000000:00000000:0000000000000000:")
	perftestNoGID = perftestHead + 8 + 1
	perftestGID   = perftestHead + 16*3 + 8 + 2
)

// Name is "perftest".
func (Perftest) Name() string { return "perftest" }

// putKey writes a key message: LID, outstanding reads, QPN, PSN, rkey, address, GID, SRQ number.
func putKey(i *Info) []byte {
	b := fmt.Appendf(nil, "%04x:%04x:%06x:%06x:%08x:%016x:", i.LID, 0, i.QPN, i.PSN, 0, 0)
	for _, x := range i.GID {
		b = fmt.Appendf(b, "%02x:", x)
	}
	return fmt.Appendf(b, "%08x:\x00", 0)
}

func parseKey(b []byte) (i Info, err error) {
	const want = `"LID:READS:QPN:PSN:RKEY:ADDRESS:GID:SRQN:" in 4, 4, 6, 6, 8, 16, 16 times 2, and 8 hexadecimal digits, and a NUL`
	rest, ok := b, true
	take := func(digits int) (v uint64) {
		if ok {
			v, rest, ok = hexField(rest, digits, ':')
		}
		return v
	}
	i = Info{LID: uint16(take(4)), QKey: DefaultQKey}
	take(4)
	i.QPN, i.PSN = uint32(take(6)), uint32(take(6))
	take(8)
	take(16)
	for k := range i.GID {
		i.GID[k] = byte(take(2))
	}
	take(8)
	if !ok || len(rest) != 1 || rest[0] != 0 {
		return i, unexpected(b, want)
	}
	return i, i.check()
}

// perftest is a session's state: what both ends told.
type perftest struct {
	*Session
	client bool
}

// pair sends ours and gets theirs, or the other way round.
func (p *perftest) pair(ctx context.Context, what string, ours, theirs []byte) error {
	timeout := StepTimeout
	if !p.client && p.Version == "" { // nothing has come yet
		timeout = FirstTimeout
	}
	return p.l.step(ctx, timeout, what, func() error {
		if p.client {
			if err := p.l.write(ours); err != nil {
				return err
			}
			return p.l.read(theirs)
		}
		if err := p.l.read(theirs); err != nil {
			return err
		}
		return p.l.write(ours)
	})
}

// setUp is all that comes before the key messages.
func (p *perftest) setUp(ctx context.Context, mtu int) error {
	var ours, theirs [perftestVersionBytes]byte
	copy(ours[:], perftestVersion)
	if err := p.pair(ctx, "versions", ours[:], theirs[:]); err != nil {
		return err
	}
	text, _, _ := bytes.Cut(theirs[:], []byte{0})
	p.Version = string(text)
	version, err := strconv.ParseFloat(p.Version, 64)
	switch {
	case err != nil || strings.Trim(p.Version, "0123456789.") != "":
		return fmt.Errorf("exchange: perftest: versions: %w", unexpected(theirs[:], "a version such as 6.10"))
	case version < perftestOldest:
		return fmt.Errorf("exchange: perftest: %w: the peer has %s, want at least %.2f", ErrVersion, p.Version, perftestOldest)
	}
	var number [4]byte
	binary.BigEndian.PutUint32(ours[:4], perftestCycle)
	if err := p.pair(ctx, "cycle buffers", ours[:4], number[:]); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(ours[:4], perftestLine)
	if err := p.pair(ctx, "cache lines", ours[:4], number[:]); err != nil {
		return err
	}
	ours[0], ours[1] = mtuDigit(mtu), 0
	if err := p.pair(ctx, "MTUs", ours[:2], theirs[:2]); err != nil {
		return err
	}
	if theirs[0] < '1' || theirs[0] > '5' || theirs[1] != 0 {
		return fmt.Errorf("exchange: perftest: MTUs: %w", unexpected(theirs[:2], `a digit from "1" (256 bytes) to "5" (4096), and a NUL`))
	}
	p.Theirs.MTU = 128 << (theirs[0] - '0')
	return nil
}

// mtuDigit is enum ibv_mtu as text, of the largest that is not above.
func mtuDigit(mtu int) byte {
	d := byte('1')
	for ; d < '5' && 128<<(d+1-'0') <= mtu; d++ {
	}
	return d
}

// readKey reads a key message. end: the peer is through instead.
func (p *perftest) readKey() (i Info, end bool, err error) {
	var b [perftestGID]byte
	if n, err := io.ReadFull(p.l.conn, b[:len(done)]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return i, true, nil // newer ones only close
		}
		return i, false, fmt.Errorf("after %d bytes: %w", n, err)
	}
	if string(b[:len(done)]) == done {
		return i, true, nil
	}
	if b[0] == 0 { // the size in a bandwidth report
		return i, false, fmt.Errorf("%w: a report; start the peer without -b", ErrMessage)
	}
	if err := p.l.read(b[len(done) : perftestHead+3]); err != nil {
		return i, false, err
	}
	if b[perftestHead+2] != ':' {
		return i, false, fmt.Errorf("%w: start it with -x INDEX, for an address of this end's family", ErrNoGID)
	}
	if err := p.l.read(b[perftestHead+3:]); err != nil {
		return i, false, err
	}
	i, err = parseKey(b[:])
	return i, false, err
}

// theirKey reads the first key message, or one that must be of the same queue pair.
func (p *perftest) theirKey() (end bool, err error) {
	i, end, err := p.readKey()
	if err != nil || end {
		return end, err
	}
	if p.Theirs.QPN == 0 {
		i.MTU = p.Theirs.MTU
		p.Theirs = i
	} else if i.QPN != p.Theirs.QPN || i.GID != p.Theirs.GID {
		return false, fmt.Errorf("%w: queue pair %#x of %x, after %#x of %x: more than one is not supported", ErrMessage, i.QPN, i.GID, p.Theirs.QPN, p.Theirs.GID)
	}
	if p.Mine.QPN != 0 && isV4(p.Mine.GID) != isV4(p.Theirs.GID) {
		return false, p.otherFamily()
	}
	return false, nil
}

func (p *perftest) otherFamily() error {
	return fmt.Errorf("%w: GID %x is of another address family than %x; start the peer with another -x INDEX", ErrMessage, p.Theirs.GID, p.Mine.GID)
}

// vanished is the error of a peer that closes in the middle.
func vanished() error { return fmt.Errorf("the peer closed: %w", io.ErrUnexpectedEOF) }

func isV4(gid [16]byte) bool { return [12]byte(gid[:12]) == [12]byte{10: 0xff, 11: 0xff} }

// keys is one step of a client: its message, then the server's. A server waits for its client in serve.
func (p *perftest) keys(ctx context.Context, what string) error {
	return p.l.step(ctx, 0, what, func() error {
		if err := p.l.write(putKey(&p.Mine)); err != nil {
			return err
		}
		end, err := p.theirKey()
		if end {
			err = vanished()
		}
		return err
	})
}

// Client is what ib_send_lat -c UD HOST does up to the traffic. Sync is its "receives are posted now".
func (Perftest) Client(ctx context.Context, conn net.Conn, mine Info) (*Session, error) {
	p := &perftest{&Session{Mine: mine, l: link{"perftest", conn}}, true}
	if err := mine.check(); err != nil {
		return nil, fmt.Errorf("exchange: perftest: own address: %w", err)
	}
	if err := p.setUp(ctx, mine.MTU); err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	for _, what := range []string{"addresses", "ready", "addresses again"} {
		if err := p.keys(short, what); err != nil {
			return nil, err
		}
	}
	p.sync = func(ctx context.Context) error { return p.keys(ctx, "receives posted") }
	p.finish = func(ctx context.Context) error {
		if err := p.keys(ctx, "end"); err != nil {
			return err
		}
		p.l.step(ctx, StepTimeout, "end", func() error { return p.l.write([]byte(done)) }) // newer ones have closed by now
		return nil
	}
	return p.Session, nil
}

// Server is what ib_send_lat -c UD or ib_send_bw -c UD without a host does up to the first addresses; Serve does the
// rest.
func (x Perftest) Server(ctx context.Context, conn net.Conn, accept func(Info) (Info, error)) (*Session, error) {
	p := &perftest{&Session{l: link{"perftest", conn}}, false}
	if x.MTU == 0 {
		x.MTU = 1024
	}
	if err := p.setUp(ctx, x.MTU); err != nil {
		return nil, err
	}
	err := p.l.step(ctx, StepTimeout, "addresses", func() error {
		end, err := p.theirKey()
		if end {
			err = vanished()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	mine, err := accept(p.Theirs)
	if err != nil {
		return nil, err
	}
	p.Mine = mine
	err = p.l.step(ctx, StepTimeout, "addresses", func() error {
		if isV4(mine.GID) != isV4(p.Theirs.GID) {
			return p.otherFamily()
		}
		return p.l.write(putKey(&mine))
	})
	if err != nil {
		return nil, err
	}
	p.serve = func(ctx context.Context, _ func() Counts) error { return p.answer(ctx) }
	return p.Session, nil
}

// perftestSteps is how many key messages a whole run has behind the first: ready, addresses again, receives posted for
// one size, end.
const perftestSteps = 4

// answer answers key messages until the client is through. Newer clients only close.
func (p *perftest) answer(ctx context.Context) error {
	for steps := 0; ; steps++ {
		end := false
		err := p.l.step(ctx, 0, "wait for the client", func() (err error) {
			if end, err = p.theirKey(); err != nil {
				return err
			}
			if end && steps < perftestSteps {
				return vanished()
			}
			if end {
				return nil
			}
			return p.l.write(putKey(&p.Mine))
		})
		if err != nil || end {
			return err
		}
	}
}
