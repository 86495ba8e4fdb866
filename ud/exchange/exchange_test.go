package exchange_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluering/bluering/ud/exchange"
)

func gid(addr string) [16]byte { return netip.MustParseAddr(addr).As16() }

var (
	alice = exchange.Info{QPN: 0x11, PSN: 0xabcdef, GID: gid("192.0.2.1"), MTU: 1024}
	bob   = exchange.Info{QPN: 0x00beef, PSN: 0x000001, GID: gid("192.0.2.2"), MTU: 4096}
)

// turn is one step of a peer that is played: it reads exactly what it wants, then says what it has to say, with one
// write.
type turn struct{ want, say string }

// play runs f against a peer of turns, which closes at its end.
func play(t *testing.T, turns []turn, f func(ctx context.Context, conn net.Conn) error) error {
	t.Helper()
	ours, peer := net.Pipe()
	defer ours.Close()
	played := make(chan error, 1)
	go func() {
		defer peer.Close()
		for i, x := range turns {
			got := make([]byte, len(x.want))
			if n, err := io.ReadFull(peer, got); err != nil {
				played <- fmt.Errorf("step %d: %q, then %w; want %q", i, got[:n], err, x.want)
				return
			}
			if string(got) != x.want {
				played <- fmt.Errorf("step %d:\n got %q\nwant %q", i, got, x.want)
				return
			}
			if x.say == "" {
				continue
			}
			if _, err := peer.Write([]byte(x.say)); err != nil {
				played <- fmt.Errorf("step %d: say %q: %w", i, x.say, err)
				return
			}
		}
		played <- nil
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := f(ctx, ours)
	ours.Close()
	if p := <-played; p != nil && err == nil {
		t.Fatal(p)
	}
	return err
}

// What the programs write, by their formats: "%04x:%06x:%06x:" and the GID of ibv_ud_pingpong,
// "%04x:%04x:%06x:%06x:%08x:%016llx:", 16 times "%02x:" and "%08x:" of perftest, each with its NUL.
const (
	alicePingpong = "0000:000011:abcdef:00000000000000000000ffffc0000201\x00"
	bobPingpong   = "0000:00beef:000001:00000000000000000000ffffc0000202\x00"
	aliceKey      = "0000:0000:000011:abcdef:00000000:0000000000000000:00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:01:00000000:\x00"
	bobKey        = "0000:0000:00beef:000001:00000000:0000000000000000:00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:02:00000000:\x00"
	// Of a peer with an rkey, an address and outstanding reads, as a card has them.
	bobCardKey = "0000:0010:00beef:000001:00182a4b:00007f2ac4c3e000:00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:02:00000000:\x00"
	bobNoGID   = "0002:0000:00beef:000001:00182a4b:00007f2ac4c3e000:00000000\x00"
	ours610    = "6.10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	debian606  = "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	head629    = "6.29\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	cycle      = "\x00\x00\x10\x00"
	line       = "\x00\x00\x00\x40"
	done       = "done\x00"
)

func TestMessageLengthsAreThoseOfThePrograms(t *testing.T) {
	if len(alicePingpong) != 52 || len(aliceKey) != 108 || len(bobNoGID) != 59 || len(ours610) != 16 {
		t.Fatal(len(alicePingpong), len(aliceKey), len(bobNoGID), len(ours610))
	}
}

// told is what a session must know of bob, who does not tell his MTU and key but by the protocol's means.
func told(i exchange.Info, mtu int) exchange.Info {
	i.MTU, i.QKey = mtu, exchange.DefaultQKey
	return i
}

// answering is a server that hears want from its client and tells alice.
func answering(t *testing.T, p exchange.Protocol, want exchange.Info) func(ctx context.Context, conn net.Conn) error {
	return func(ctx context.Context, conn net.Conn) error {
		s, err := p.Server(ctx, conn, func(theirs exchange.Info) (exchange.Info, error) {
			if theirs != want {
				t.Errorf("%+v, want %+v", theirs, want)
			}
			return alice, nil
		})
		if err != nil {
			return err
		}
		return s.Serve(ctx, nil)
	}
}

func TestPingpongClientSpeaksToTheLetter(t *testing.T) {
	err := play(t, []turn{{alicePingpong, bobPingpong}, {done, ""}}, func(ctx context.Context, conn net.Conn) error {
		s, err := exchange.Pingpong{}.Client(ctx, conn, alice)
		if err != nil {
			return err
		}
		if s.Theirs != told(bob, 0) || s.Mine != alice {
			t.Errorf("%+v", s)
		}
		_, noCounts := s.Counts(ctx)
		if !errors.Is(noCounts, exchange.ErrNotTold) {
			t.Error(noCounts)
		}
		return errors.Join(s.Sync(ctx), s.Finish(ctx))
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPingpongServerSpeaksToTheLetter(t *testing.T) {
	err := play(t, []turn{{"", bobPingpong}, {alicePingpong, done}}, answering(t, exchange.Pingpong{}, told(bob, 0)))
	if err != nil {
		t.Error(err)
	}
}

// TestPerftestClientSpeaksToTheLetter: against both ways in which a server ends.
func TestPerftestClientSpeaksToTheLetter(t *testing.T) {
	for name, c := range map[string]struct {
		version, key string
		end          []turn
	}{
		"Debian's 4.5 says done":    {debian606, bobCardKey, []turn{{aliceKey, bobCardKey}, {done, ""}}},
		"HEAD closes":               {head629, bobKey, []turn{{aliceKey, bobKey}}},
		"the oldest that may speak": {"5.70" + strings.Repeat("\x00", 12), bobKey, []turn{{aliceKey, bobKey}}},
	} {
		t.Run(name, func(t *testing.T) {
			turns := append([]turn{
				{ours610, c.version}, {cycle, cycle}, {line, line}, {"3\x00", "5\x00"},
				{aliceKey, c.key}, {aliceKey, c.key}, {aliceKey, c.key}, // addresses, ready, addresses again
				{aliceKey, c.key}, // receives are posted
			}, c.end...)
			err := play(t, turns, func(ctx context.Context, conn net.Conn) error {
				s, err := exchange.Perftest{}.Client(ctx, conn, alice)
				if err != nil {
					return err
				}
				if s.Theirs != told(bob, 4096) || s.Version != c.version[:4] {
					t.Errorf("%+v", s)
				}
				return errors.Join(s.Sync(ctx), s.Finish(ctx))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPerftestServerSpeaksToTheLetter: one size, and all sizes, which is more of the same steps.
func TestPerftestServerSpeaksToTheLetter(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		sizes   int
		end     string
	}{
		"Debian's 4.5": {debian606, 1, done},
		"HEAD":         {head629, 1, ""},
		"all sizes":    {debian606, 20, done},
	} {
		t.Run(name, func(t *testing.T) {
			turns := []turn{{"", c.version}, {ours610, cycle}, {cycle, line}, {line, "4\x00"}, {"3\x00", bobKey}, {aliceKey, bobKey}, {aliceKey, bobKey}}
			for range c.sizes {
				turns = append(turns, turn{aliceKey, bobKey})
			}
			turns = append(turns, turn{aliceKey, bobKey}, turn{aliceKey, c.end})
			err := play(t, turns, answering(t, exchange.Perftest{MTU: 1024}, told(bob, 2048)))
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func server(p exchange.Protocol) func(ctx context.Context, conn net.Conn) error {
	return func(ctx context.Context, conn net.Conn) error {
		s, err := p.Server(ctx, conn, func(exchange.Info) (exchange.Info, error) { return alice, nil })
		if err != nil {
			return err
		}
		return s.Serve(ctx, func() exchange.Counts { return exchange.Counts{} })
	}
}

func client(p exchange.Protocol) func(ctx context.Context, conn net.Conn) error {
	return func(ctx context.Context, conn net.Conn) error {
		s, err := p.Client(ctx, conn, alice)
		if err == nil {
			err = s.Sync(ctx)
		}
		if err == nil {
			err = s.Finish(ctx)
		}
		return err
	}
}

func TestPeersThatAreRefused(t *testing.T) {
	pp, pt, nv := exchange.Pingpong{}, exchange.Perftest{}, exchange.Native{}
	upTo := func(key string) []turn {
		return []turn{{"", debian606}, {ours610, cycle}, {cycle, line}, {line, "3\x00"}, {"3\x00", key}}
	}
	bobGone := func(last turn) []turn { return append(upTo(bobKey), turn{aliceKey, bobKey}, last) }
	v6 := strings.Replace(bobKey, "00:00:00:00:00:00:00:00:00:00:ff:ff", "20:01:0d:b8:00:00:00:00:00:00:00:00", 1)
	for _, c := range []struct {
		name  string
		turns []turn
		run   func(context.Context, net.Conn) error
		is    error
		says  string
	}{
		{"pingpong, nothing", nil, server(pp), io.ErrUnexpectedEOF, "0 of 52"},
		{"pingpong, half", []turn{{"", bobPingpong[:30]}}, server(pp), io.ErrUnexpectedEOF, "30 of 52"},
		{"pingpong, HTTP", []turn{{"", "GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: curl/8.0\r\n\r\n"}}, server(pp), exchange.ErrMessage, "GET /"},
		{"pingpong, a sign", []turn{{"", "0000:00-eef" + bobPingpong[11:]}}, server(pp), exchange.ErrMessage, "want"},
		{"pingpong, no NUL", []turn{{"", bobPingpong[:51] + "0"}}, server(pp), exchange.ErrMessage, "NUL"},
		{"pingpong, no GID", []turn{{"", bobPingpong[:19] + strings.Repeat("0", 32) + "\x00"}}, server(pp), exchange.ErrNoGID, "-g INDEX"},
		{"pingpong, queue pair 0", []turn{{"", "0000:000000" + bobPingpong[11:]}}, server(pp), exchange.ErrMessage, "queue pair"},
		{"pingpong, another end", []turn{{"", bobPingpong}, {alicePingpong, "gone\x00"}}, server(pp), exchange.ErrMessage, "gone"},
		{"pingpong, no end", []turn{{"", bobPingpong}, {alicePingpong, ""}}, server(pp), io.ErrUnexpectedEOF, "end"},
		{"pingpong, server gone", []turn{{alicePingpong, ""}}, client(pp), io.ErrUnexpectedEOF, "0 of 52"},

		{"perftest, old", []turn{{"", "5.33" + strings.Repeat("\x00", 12)}, {ours610, ""}}, server(pt), exchange.ErrVersion, "5.33"},
		{"perftest, no version", []turn{{"", "NaN" + strings.Repeat("\x00", 13)}, {ours610, ""}}, server(pt), exchange.ErrMessage, "NaN"},
		{"perftest, infinity", []turn{{"", "0x1p99" + strings.Repeat("\x00", 10)}, {ours610, ""}}, server(pt), exchange.ErrMessage, "0x1p99"},
		{"perftest, MTU", append(upTo("")[:4], turn{"3\x00", ""}), server(pt), io.ErrUnexpectedEOF, "addresses"},
		{"perftest, MTU 9", []turn{{"", debian606}, {ours610, cycle}, {cycle, line}, {line, "9\x00"}, {"3\x00", ""}}, server(pt), exchange.ErrMessage, "MTU"},
		{"perftest, no GID", upTo(bobNoGID), server(pt), exchange.ErrNoGID, "-x INDEX"},
		{"perftest, IPv6", upTo(v6), server(pt), exchange.ErrMessage, "family"},
		{"perftest, data validation", upTo(bobKey[:50] + "0000000000000000:" + bobKey[50:]), server(pt), nil, ""},
		{"perftest, client gone", bobGone(turn{aliceKey, ""}), server(pt), io.ErrUnexpectedEOF, "closed"},
		{"perftest, two queue pairs", append(upTo(bobKey), turn{aliceKey, strings.Replace(bobKey, "00beef", "00bef0", 1)}), server(pt), exchange.ErrMessage, "more than one"},
		{"perftest, -b", bobGone(turn{aliceKey, "\x00\x00\x00\x00\x00\x00\x00\x02"}), server(pt), exchange.ErrMessage, "without -b"},

		{"native, HTTP", []turn{{"", "GET / HTTP/1.1\r\n"}}, server(nv), exchange.ErrMessage, "GET /"},
		{"native, huge", []turn{{"", "bluering\x00\x01\x01\x00\xff\xff\xff\xff"}}, server(nv), exchange.ErrMessage, "4294967295 bytes"},
		{"native, version 0", []turn{{"", "bluering\x00\x00\x01\x00\x00\x00\x00\x00"}}, server(nv), exchange.ErrVersion, "0"},
		{"native, short", []turn{{"", "bluering\x00\x01\x01\x00\x00\x00\x00\x00"}}, server(nv), exchange.ErrMessage, "0 bytes, want 64"},
		{"native, counts first", []turn{{"", "bluering\x00\x01\x03\x00\x00\x00\x00\x00"}}, server(nv), exchange.ErrMessage, "kind 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := play(t, c.turns, c.run)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v that says %q", err, c.is, c.says)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x00\r\n") {
				t.Errorf("raw bytes in %q", err)
			}
		})
	}
}

// listen opens a listener for as long as the test, which has 20 s.
func listen(t *testing.T) (net.Listener, context.Context) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(func() {
		cancel()
		l.Close()
	})
	return l, ctx
}

// both runs a client and a server of one protocol over TCP.
func both(t *testing.T, p exchange.Protocol, mine exchange.Info, accept func(exchange.Info) (exchange.Info, error), counts func() exchange.Counts,
	use func(ctx context.Context, s *exchange.Session) error) (clientErr, serverErr error) {
	t.Helper()
	l, ctx := listen(t)
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		s, err := p.Server(ctx, conn, accept)
		if err == nil {
			err = s.Serve(ctx, counts)
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := p.Client(ctx, conn, mine)
	if err == nil {
		err = use(ctx, s)
	}
	conn.Close()
	return err, <-served
}

func TestBothEndsOfEachProtocolUnderstandEachOther(t *testing.T) {
	for _, p := range exchange.Protocols() {
		t.Run(p.Name(), func(t *testing.T) {
			if q, err := exchange.ByName(p.Name()); err != nil || q != p {
				t.Fatal(q, err)
			}
			mine, theirs := alice, bob
			mine.QKey, theirs.QKey = 0x11111111, 0x11111111
			if p.Name() == "native" {
				mine.QKey, theirs.QKey = 0xfedcba98, 7
				mine.Mode, mine.Size, mine.Depth, mine.Nonce = exchange.ModeSink, 4096, 64, 1<<63
				theirs.Size, theirs.Depth = 0, 1<<20
			}
			ce, se := both(t, p, mine, func(got exchange.Info) (exchange.Info, error) {
				want := mine
				if p.Name() == "pingpong" {
					want.MTU = 0
				}
				if got != want {
					t.Errorf("the server heard %+v, want %+v", got, want)
				}
				return theirs, nil
			}, func() exchange.Counts {
				return exchange.Counts{Received: 5, Bytes: 1 << 40, Answered: 3, Limited: 1, Dropped: 9}
			},
				func(ctx context.Context, s *exchange.Session) error {
					want := theirs
					want.Nonce = mine.Nonce
					switch p.Name() {
					case "pingpong":
						want.MTU = 0
					case "perftest":
						want.MTU = 1024
					case "native":
						c, err := s.Counts(ctx)
						if err != nil || c != (exchange.Counts{Received: 5, Bytes: 1 << 40, Answered: 3, Limited: 1, Dropped: 9}) {
							t.Errorf("%+v, %v", c, err)
						}
					}
					if s.Theirs != want {
						t.Errorf("the client heard %+v, want %+v", s.Theirs, want)
					}
					return errors.Join(s.Sync(ctx), s.Finish(ctx))
				})
			if ce != nil || se != nil {
				t.Errorf("client %v, server %v", ce, se)
			}
		})
	}
}

func TestNativeRefusalSaysWhy(t *testing.T) {
	why := errors.New("no room: 64 clients\x1b[2J\n")
	ce, se := both(t, exchange.Native{}, alice, func(exchange.Info) (exchange.Info, error) { return exchange.Info{}, why }, nil, nil)
	if !errors.Is(ce, exchange.ErrRefused) || !strings.Contains(ce.Error(), "no room: 64 clients") || strings.ContainsAny(ce.Error(), "\x1b\n") || !errors.Is(se, why) {
		t.Errorf("client %q, server %v", ce, se)
	}
	// A later version may ask for what this one does not know; it is told so.
	hello, err := hex.DecodeString(nativeHello)
	if err != nil {
		t.Fatal(err)
	}
	hello[9], hello[16+35] = 9, 7 // version 9, mode 7
	refusal := "bluering\x00\x01\xff\x00\x00\x00\x00"
	err = play(t, []turn{{"", string(hello)}, {refusal, ""}}, server(exchange.Native{}))
	if !errors.Is(err, exchange.ErrVersion) {
		t.Error(err)
	}
}

// TestNativeSessionEndedByTheServer: the client finds the refusal where counts would have been.
func TestNativeSessionEndedByTheServer(t *testing.T) {
	l, ctx := listen(t)
	why := errors.New("closing time")
	over, end := context.WithCancelCause(ctx)
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			var s *exchange.Session
			if s, err = (exchange.Native{}).Server(ctx, conn, func(exchange.Info) (exchange.Info, error) { return bob, nil }); err == nil {
				err = s.Serve(over, func() exchange.Counts { return exchange.Counts{} })
				s.Refuse(why)
			}
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := (exchange.Native{}).Client(ctx, conn, alice)
	if err == nil {
		_, err = s.Counts(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	end(why)
	if err := <-served; !errors.Is(err, why) {
		t.Errorf("the server ends with %v", err)
	}
	if _, err := s.Counts(ctx); !errors.Is(err, exchange.ErrRefused) || !strings.HasSuffix(err.Error(), why.Error()) {
		t.Errorf("the client learns %v", err)
	}
}

// nativeHello is a hello as docs/FORMAT.md describes it, put together by hand.
const nativeHello = "626c756572696e67" + "0001" + "01" + "00" + "00000040" + // bluering, version 1, hello, 64 bytes
	"00000000000000000000ffffc0000201" + "00000011" + "00abcdef" + "11111111" + "00000400" + // GID, QPN, PSN, Q_Key, MTU
	"00000001" + "00001000" + "00000040" + "00000000" + "0123456789abcdef" + "0000000000000000" // mode, size, depth, nonce

func TestNativeBytes(t *testing.T) {
	want, err := hex.DecodeString(nativeHello)
	if err != nil {
		t.Fatal(err)
	}
	mine := alice
	mine.QKey, mine.Mode, mine.Size, mine.Depth, mine.Nonce = 0x11111111, exchange.ModeSink, 4096, 64, 0x0123456789abcdef
	answer := bytes.Clone(want)
	answer[9] = 3                                                                                      // a later version
	answer[15] = 68                                                                                    // which puts more behind
	answer = append(answer, 1, 2, 3, 4)                                                                // and
	ask, bye := "bluering\x00\x01\x02\x00\x00\x00\x00\x00", "bluering\x00\x01\x04\x00\x00\x00\x00\x00" // no bodies
	counts := "bluering\x00\x01\x03\x00\x00\x00\x00\x28" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x07", 5)
	err = play(t, []turn{{string(want), string(answer)}, {ask, counts}, {bye, counts}}, func(ctx context.Context, conn net.Conn) error {
		s, err := exchange.Native{}.Client(ctx, conn, mine)
		if err != nil {
			return err
		}
		if s.Theirs != mine || s.Version != "3" {
			t.Errorf("%+v", s)
		}
		c, err := s.Counts(ctx)
		if c != (exchange.Counts{Received: 7, Bytes: 7, Answered: 7, Limited: 7, Dropped: 7}) {
			t.Errorf("%+v", c)
		}
		return errors.Join(err, s.Finish(ctx))
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNothingHangs: a peer that says nothing, or takes nothing, costs no more than the context.
func TestNothingHangs(t *testing.T) {
	for _, p := range exchange.Protocols() {
		for name, run := range map[string]func(context.Context, net.Conn) error{"client": client(p), "server": server(p)} {
			t.Run(p.Name()+" "+name, func(t *testing.T) {
				ours, peer := net.Pipe()
				defer ours.Close()
				defer peer.Close()
				ctx, cancel := context.WithCancelCause(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- run(ctx, ours) }()
				why := errors.New("the user has had enough")
				cancel(why)
				select {
				case err := <-ended:
					if !errors.Is(err, why) {
						t.Errorf("%v does not say why", err)
					}
				case <-time.After(20 * time.Second):
					t.Error("still there")
				}
			})
		}
	}
}

// TestSilentClientsLoseTheirPlaceSoon: a server waits less for the first message than for the others.
func TestSilentClientsLoseTheirPlaceSoon(t *testing.T) {
	for _, c := range []struct {
		name  string
		p     exchange.Protocol
		turns []turn
		after time.Duration
	}{
		{"pingpong, first", exchange.Pingpong{}, nil, exchange.FirstTimeout},
		{"pingpong, later", exchange.Pingpong{}, []turn{{"", bobPingpong}, {alicePingpong, ""}}, exchange.StepTimeout},
		{"perftest, first", exchange.Perftest{}, nil, exchange.FirstTimeout},
		{"perftest, later", exchange.Perftest{}, []turn{{"", debian606}, {ours610, ""}}, exchange.StepTimeout},
		{"native, first", exchange.Native{}, nil, exchange.FirstTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, peer := net.Pipe()
				defer peer.Close()
				ended := make(chan error, 1)
				go func() { ended <- server(c.p)(t.Context(), ours) }()
				for i, x := range c.turns {
					if _, err := io.ReadFull(peer, make([]byte, len(x.want))); err != nil {
						t.Fatal(i, err)
					}
					if _, err := io.WriteString(peer, x.say); err != nil {
						t.Fatal(i, err)
					}
				}
				start := time.Now()
				if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != c.after {
					t.Errorf("%v after %v, want the deadline after %v", err, time.Since(start), c.after)
				}
			})
		})
	}
}

// said is a connection to a peer that says what it has to say and closes, and takes everything.
type said struct {
	net.Conn
	r io.Reader
	n int
}

func (s *said) Read(b []byte) (int, error)  { return s.r.Read(b) }
func (s *said) Write(b []byte) (int, error) { s.n += len(b); return len(b), nil }
func (s *said) SetDeadline(time.Time) error { return nil }

// fuzz gives arbitrary bytes to an end, whole and one by one: an error or an end, nothing written that was not asked
// for, and nothing that grows with the input.
func fuzz(f *testing.F, p exchange.Protocol, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, run := range map[string]func(context.Context, net.Conn) error{"client": client(p), "server": server(p)} {
			whole, bytewise := &said{r: bytes.NewReader(b)}, &said{r: oneByOne{bytes.NewReader(b)}}
			e1, e2 := run(context.Background(), whole), run(context.Background(), bytewise)
			if fmt.Sprint(e1) != fmt.Sprint(e2) || whole.n != bytewise.n {
				t.Errorf("%s: %v at once, %v byte by byte", name, e1, e2)
			}
			if whole.n > 1024+4*len(b) {
				t.Errorf("%s: %d bytes in, %d out", name, len(b), whole.n)
			}
			if e1 != nil && strings.ContainsAny(e1.Error(), "\x00\x1b\r\n") {
				t.Errorf("%s: raw bytes in %q", name, e1)
			}
		}
	})
}

type oneByOne struct{ r io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

func FuzzPingpong(f *testing.F) { fuzz(f, exchange.Pingpong{}, bobPingpong, bobPingpong+done) }

func FuzzPerftest(f *testing.F) {
	fuzz(f, exchange.Perftest{}, debian606+cycle+line+"3\x00"+strings.Repeat(bobKey, 6)+done, head629+cycle+line+"5\x00"+bobNoGID)
}

func FuzzNative(f *testing.F) {
	hello, _ := hex.DecodeString(nativeHello)
	bye := "bluering\x00\x01\x04\x00\x00\x00\x00\x00"
	fuzz(f, exchange.Native{}, string(hello)+bye, string(hello)+bye+bye, "bluering\x00\x01\xff\x00\x00\x00\x00\x02no")
}
