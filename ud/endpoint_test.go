package ud

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
)

func TestADatagramArrivesWithItsSenderAndNumber(t *testing.T) {
	eachWire(t, Config{}, Config{}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		for n := range a.MaxPayload() + 1 {
			if n > 300 && n < a.MaxPayload()-300 {
				continue
			}
			buf, err := a.ReserveWith(toB, n, SendOptions{Imm: uint32(n), HasImm: n%2 == 1, Solicited: n%3 == 0})
			check(t, err)
			for i := range buf {
				buf[i] = byte(n + i)
			}
			check(t, a.Commit())
			m := one(t, b, a)
			if len(m.Data) != n || m.HasImm != (n%2 == 1) || m.HasImm && m.Imm != uint32(n) || m.Solicited != (n%3 == 0) {
				t.Fatalf("%d bytes came as %d, %+v", n, len(m.Data), m)
			}
			for i, c := range m.Data {
				if c != byte(n+i) {
					t.Fatalf("byte %d of %d is %d", i, n, c)
				}
			}
			from, err := m.From()
			if want := a.LocalAddr(); err != nil || from != want {
				t.Fatalf("from %v, %v, want %v", from, err, want)
			}
			m.Release()
		}
	})
}

func TestAnswersLeaveFromTheMemoryThatTheQuestionCameIn(t *testing.T) {
	for _, inline := range []int{0, 64} {
		eachWire(t, Config{SendDepth: 4, RecvDepth: 4}, Config{SendDepth: 4, RecvDepth: 4, Inline: inline}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
			foreign := []byte("from elsewhere")
			for round := range 40 {
				check(t, a.Send(toB, []byte("question 1234")))
				m := one(t, b, a)
				var err error
				var want string
				switch round % 5 {
				case 0:
					want, err = "question 1234", m.Reply(m.Data)
				case 1:
					want, err = "1234", m.Reply(m.Data[9:])
				case 2:
					want, err = "question 1234 and more", m.Reply(append(m.Data, " and more"...))
				case 3:
					want, err = "from elsewhere", m.Reply(foreign)
				case 4:
					want, err = "", m.Reply(nil)
				}
				check(t, err)
				check(t, b.Commit())
				r := one(t, a, b)
				if string(r.Data) != want {
					t.Fatalf("round %d: answer %q, want %q", round, r.Data, want)
				}
				r.Release()
			}
			if c := b.Counts(); c.Received != 40 || c.SendErrors+c.RecvErrors != 0 {
				t.Errorf("counts %+v", c)
			}
		})
	}
}

func TestAMessageEndsOnce(t *testing.T) {
	eachWire(t, Config{}, Config{RecvDepth: 2}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		check(t, a.Send(toB, []byte("x")))
		m := one(t, b, a)
		again := m
		m.Release()
		m.Release()
		wantErr(t, m.Reply(nil), ErrReleased)
		wantErr(t, again.Reply(nil), ErrReleased)
		if _, err := again.From(); err == nil || again.GRH() != nil {
			t.Error("a released message still tells its sender")
		}
		wantErr(t, new(Msg).Reply(nil), ErrReleased)
		new(Msg).Release()
		for range 5 { // the buffer went back once
			check(t, a.Send(toB, []byte("y")))
			m := one(t, b, a)
			check(t, m.Reply(m.Data))
			wantErr(t, m.Reply(nil), ErrReleased)
			m.Release()
			check(t, b.Commit())
			r := one(t, a, b)
			r.Release()
		}
	})
}

func TestMisuseIsAnErrorThatTakesNothing(t *testing.T) {
	const depth = 3 // of a ring of four
	eachWire(t, Config{SendDepth: depth}, Config{}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		_, err := a.Reserve(toB, a.MaxPayload()+1)
		wantErr(t, err, ErrLength)
		_, err = a.Reserve(toB, -1)
		wantErr(t, err, ErrLength)
		for _, p := range []Peer{0, toB + 1, toB + 1<<peerBits, 1<<32 - 1} {
			_, err = a.Reserve(p, 1)
			wantErr(t, err, ErrPeer)
		}
		if a.Outstanding() != 0 {
			t.Errorf("%d outstanding", a.Outstanding())
		}
		for range depth {
			_, err = a.Reserve(toB, 1)
			check(t, err)
		}
		_, err = a.Reserve(toB, 1)
		wantErr(t, err, ErrFull)
		a.Discard()
		check(t, a.Send(toB, []byte("after all")))
		if m := one(t, b, a); string(m.Data) != "after all" {
			t.Errorf("got %q", m.Data)
		}
	})
}

func TestBadConfigurationsNameValueAndLimit(t *testing.T) {
	d := openDevice(t, "loop:"+t.Name())
	for _, c := range []struct {
		c    Config
		says string
	}{
		{Config{SendDepth: -1}, "send depth -1"},
		{Config{RecvDepth: 1 << 20}, "receive depth 1048576"},
		{Config{Payload: 1 << 20}, "payload 1048576"},
		{Config{Inline: 1 << 20}, "inline 1048576"},
		{Config{SendDepth: 8, SignalEvery: 5}, "signal every 5, want 1..4"},
		{Config{PSN: 1 << 24}, "PSN 16777216"},
		{Config{GID: engine.GIDFromAddr(netip.MustParseAddr("192.0.2.99"))}, "192.0.2.99"},
	} {
		e, err := New(d, c.c)
		if err == nil {
			e.Close()
			t.Fatalf("%+v made an endpoint", c.c)
		}
		if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "loop:") {
			t.Errorf("%q does not say %q and the device", err, c.says)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("an endpoint without a device")
	}
}

func TestPeersAreHandles(t *testing.T) {
	eachWire(t, Config{}, Config{}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		ctx := context.Background()
		if again := peerOf(t, a, b); again != toB {
			t.Errorf("the same address is %x and %x", again, toB)
		}
		addr := b.LocalAddr()
		if got, ok := a.AddrOf(toB); !ok || got != addr {
			t.Errorf("AddrOf gives %v, %v", got, ok)
		}
		other := addr
		other.Flow = 5
		p, err := a.Peer(ctx, other)
		check(t, err)
		if p == toB {
			t.Error("two paths are one peer")
		}
		_, err = a.Reserve(p, 4)
		check(t, err)
		a.Forget(p)
		a.Forget(p)
		_, err = a.Reserve(p, 4)
		wantErr(t, err, ErrPeer)
		check(t, a.Commit()) // what was reserved before still goes
		if m := one(t, b, a); len(m.Data) != 4 {
			t.Errorf("%d bytes", len(m.Data))
		}
		q, err := a.Peer(ctx, other)
		check(t, err)
		if q == p || uint32(q)%maxPeers != uint32(p)%maxPeers {
			t.Errorf("handle %x after %x: not a later use of its index", q, p)
		}
		for _, bad := range []Addr{{}, {GID: addr.GID}, {GID: addr.GID, QPN: 1 << 24}, {QPN: 5}} {
			if _, err := a.Peer(ctx, bad); err == nil {
				t.Errorf("%v is a peer", bad)
			}
		}
		done, cancel := context.WithCancel(ctx)
		cancel()
		other.Flow = 6
		if _, err := a.Peer(done, other); err == nil {
			t.Error("resolved after the context ended")
		}
	})
}

func TestWrongQKeyOrQueuePairIsADrop(t *testing.T) {
	eachWire(t, Config{}, Config{}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		addr := b.LocalAddr()
		before := b.dev.Counters()
		for _, change := range []func(*Addr){func(x *Addr) { x.QKey ^= 1 }, func(x *Addr) { x.QPN ^= 0x800 }} {
			bad := addr
			change(&bad)
			p, err := a.Peer(context.Background(), bad)
			check(t, err)
			check(t, a.Send(p, []byte("lost")))
		}
		check(t, a.Send(toB, []byte("kept")))
		if m := one(t, b, a); string(m.Data) != "kept" {
			t.Fatalf("got %q", m.Data)
		}
		after := b.dev.Counters()
		for _, r := range []engine.DropReason{engine.DropQKey, engine.DropUnknownQP} {
			if n := after.Drops[r] - before.Drops[r]; n != 1 {
				t.Errorf("%d drops for %v, want 1", n, r)
			}
		}
	})
}

func TestAnyOrderOfClosingIsFine(t *testing.T) {
	for _, deviceFirst := range []bool{false, true} {
		d := openDevice(t, "loop:"+t.Name())
		e, err := New(d, Config{SendDepth: 4, RecvDepth: 4})
		check(t, err)
		self, err := e.Peer(context.Background(), e.LocalAddr())
		check(t, err)
		check(t, e.Send(self, []byte("to myself")))
		m := one(t, e, e)
		check(t, m.Reply(m.Data))
		check(t, e.Commit())
		m = one(t, e, e)
		if deviceFirst {
			check(t, d.Close())
		}
		check(t, e.Close())
		check(t, e.Close())
		_, err = e.Reserve(self, 1)
		if err == nil {
			t.Error("a closed endpoint reserves")
		}
		wantErr(t, e.Commit(), ErrClosed)
		wantErr(t, e.Err(), ErrClosed)
		m.Release()
		if m.Reply(nil) == nil {
			t.Error("a message of a closed endpoint is answered")
		}
		if n := e.Poll(make([]Msg, 4)); n != 0 {
			t.Errorf("a closed endpoint received %d", n)
		}
		for range e.Messages {
			t.Error("a closed endpoint has messages")
		}
		_, err = e.RecvSpin(time.Hour)
		wantErr(t, err, ErrClosed)
		_, err = e.Recv(context.Background())
		wantErr(t, err, ErrClosed)
		if _, err := e.Peer(context.Background(), Addr{GID: e.LocalAddr().GID, QPN: 9}); err == nil {
			t.Error("a closed endpoint has a new peer")
		}
		e.Forget(self)
		check(t, d.Close())
	}
}

func TestReceivingEndsByTime(t *testing.T) {
	eachWire(t, Config{}, Config{}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		_, err := b.RecvSpin(time.Millisecond)
		wantErr(t, err, ErrTimeout)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, err = b.Recv(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		check(t, a.Send(toB, []byte("spun")))
		m, err := b.RecvSpin(within)
		if err != nil || string(m.Data) != "spun" {
			t.Errorf("%q, %v", m.Data, err)
		}
		m.Release()
		sent := make(chan error)
		go func() { sent <- a.Send(toB, []byte("awaited")) }()
		ctx, cancel = context.WithTimeout(context.Background(), within)
		defer cancel()
		m, err = b.Recv(ctx)
		if err != nil || string(m.Data) != "awaited" {
			t.Errorf("%q, %v", m.Data, err)
		}
		check(t, <-sent)
	})
}

func TestEveryMessageOfALoopIsReleased(t *testing.T) {
	eachWire(t, Config{}, Config{RecvDepth: 16}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
		seen := 0
		for i := range 100 {
			for range 8 {
				check(t, a.Send(toB, []byte{byte(i)}))
			}
			for end := time.Now().Add(within); seen < 8*(i+1) && time.Now().Before(end); {
				for m := range b.Messages {
					seen++
					if seen%7 == 0 {
						check(t, m.Reply(m.Data))
					}
					if seen%5 == 0 {
						break // the rest of the batch counts as well
					}
				}
				check(t, b.Commit())
				seen = int(b.Counts().Received)
			}
		}
		if seen != 800 {
			t.Errorf("%d messages", seen)
		}
	})
}

func TestAddressesAreReadAsTheyAreWritten(t *testing.T) {
	for _, a := range []Addr{
		{GID: engine.GIDFromAddr(netip.MustParseAddr("192.0.2.1")), QPN: 0x11, QKey: DefaultQKey},
		{GID: engine.GIDFromAddr(netip.MustParseAddr("2001:2::1")), QPN: 0xfffffe, QKey: 0xffffffff, Flow: 0xfffff, SrcPort: 0xffff, TClass: 0xff, HopLimit: 0xff},
		GroupAddr(netip.MustParseAddr("ff0e::1"), 7),
	} {
		got, err := ParseAddr(a.String())
		if err != nil || got != a {
			t.Errorf("%v read as %v, %v", a, got, err)
		}
	}
	if a, err := ParseAddr("192.0.2.1/17"); err != nil || a.QPN != 17 || a.QKey != DefaultQKey || a.Network() != "ud" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, s := range []string{"", "192.0.2.1", "x/1", "192.0.2.1/0x1000000", "192.0.2.1/1/2/3", "192.0.2.1/1/flow=0x100000", "192.0.2.1/1/qkey=2", "192.0.2.1/1/2/speed=1", "192.0.2.1/-1", "::/1"} {
		if a, err := ParseAddr(s); err == nil {
			t.Errorf("%q is %v", s, a)
		} else if !strings.Contains(err.Error(), syscall.EINVAL.Error()) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	f.Add("192.0.2.1/0x11/0x11111111/flow=5")
	f.Add("2001:2::1/1")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddr(s)
		if err != nil {
			return
		}
		if b, err := ParseAddr(a.String()); err != nil || b != a {
			t.Errorf("%q is %v, which is read as %v, %v", s, a, b, err)
		}
	})
}

// Tiny rings wrap all the time, and lose nothing on a wire that loses nothing.
func TestTinyRings(t *testing.T) {
	for depth := 1; depth <= 5; depth++ {
		a, b, toB, _ := pair(t, "loop:"+t.Name()+string(rune('0'+depth)), "loop:"+t.Name()+string(rune('0'+depth)),
			Config{SendDepth: depth, RecvDepth: depth, Payload: 64}, Config{SendDepth: depth, RecvDepth: depth, Payload: 64})
		sent, echoed, back := uint64(0), uint64(0), uint64(0)
		var held []Msg
		msgs := make([]Msg, 3)
		for end := time.Now().Add(within); back < 2000 && time.Now().Before(end); {
			if sent < 2000 {
				if buf, err := a.Reserve(toB, 8); err == nil {
					binary.BigEndian.PutUint64(buf, sent)
					sent++
				}
			}
			check(t, a.Commit())
			held = append(held, msgs[:b.Poll(msgs)]...)
			for len(held) > 0 {
				m := held[0]
				if n := binary.BigEndian.Uint64(m.Data); n != echoed {
					t.Fatalf("depth %d: message %d, want %d", depth, n, echoed)
				}
				if m.Reply(m.Data) != nil {
					break // no room now
				}
				echoed++
				held = held[1:]
			}
			check(t, b.Commit())
			for _, m := range msgs[:a.Poll(msgs)] {
				if !bytes.Equal(m.Data, binary.BigEndian.AppendUint64(nil, back)) {
					t.Fatalf("depth %d: answer %x, want %d", depth, m.Data, back)
				}
				back++
				m.Release()
			}
		}
		if back != 2000 {
			t.Fatalf("depth %d: %d of 2000 came back; %d sent, %d echoed; %+v %+v", depth, back, sent, echoed, a.Counts(), b.Counts())
		}
	}
}
