package echo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

func source(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 32)
}

// sit gives a guest a seat and a place.
func (t *guests) sit(g *guest, now int64) error {
	if err := t.seat(g, now); err != nil {
		return err
	}
	return t.place(g)
}

func TestGuestsAreFound(t *testing.T) {
	g := guests{most: 500, share: 500, idle: time.Minute}
	var all []*guest
	for i := range 500 {
		x := &guest{qpn: uint32(i), gid: [16]byte{15: byte(i)}, source: source(i % 7)}
		if err := g.sit(x, 0); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if err := g.sit(&guest{qpn: 1 << 20, source: source(0)}, 0); err == nil || g.full != 1 {
		t.Error("more than asked for")
	}
	for _, x := range all[:250] {
		g.leave(x)
		g.leave(x)
	}
	for i, x := range all {
		if got := g.find(&x.gid, x.qpn); (got == x) != (i >= 250) {
			t.Fatalf("client %d: %v", i, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { g.find(&all[300].gid, all[300].qpn) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for _, x := range all[250:] {
		g.leave(x)
	}
	if g.count != 0 || len(g.counts) != 0 {
		t.Errorf("%d clients, of sources %v, when all have left", g.count, g.counts)
	}
}

// TestAQueuePairComesAgain: of its own source it takes the place of the former, whose session ends; of another it does not.
func TestAQueuePairComesAgain(t *testing.T) {
	g := guests{most: 4, share: 2, idle: time.Minute}
	var ended error
	first := &guest{qpn: 7, source: source(1), end: func(why error) { ended = why }}
	again := &guest{qpn: 7, source: source(1)}
	thief := &guest{qpn: 7, source: source(2)}
	if err := errors.Join(g.sit(first, 0), g.sit(again, 0)); err != nil || !errors.Is(ended, errReplaced) || g.find(&again.gid, 7) != again {
		t.Errorf("%v, the former ends with %v", err, ended)
	}
	g.leave(first)
	if err := g.sit(thief, 0); err == nil || !strings.Contains(err.Error(), "192.0.2.1 introduced") || g.find(&again.gid, 7) != again {
		t.Errorf("another source's: %v", err)
	}
	g.leave(thief)
	if g.count != 1 || g.counts[source(1)] != 1 || len(g.counts) != 1 {
		t.Errorf("%d clients, of sources %v", g.count, g.counts)
	}
}

// TestASilentClientGivesItsSeat: to one of its source when that has its share, to anybody when all seats are taken; the
// one that is silent for longest, and not before the idle time is over.
func TestASilentClientGivesItsSeat(t *testing.T) {
	const idle = 100
	g := guests{most: 3, share: 2, idle: idle}
	var ended []uint32
	sit := func(qpn uint32, of int, now int64) error {
		x := &guest{qpn: qpn, source: source(of), end: func(why error) {
			if !errors.Is(why, errIdle) {
				t.Error(why)
			}
			ended = append(ended, qpn)
		}}
		return g.sit(x, now)
	}
	for _, step := range []struct {
		qpn   uint32
		of    int
		now   int64
		says  string
		ended int
	}{
		{1, 1, 0, "", 0},
		{2, 2, 10, "", 0},
		{3, 2, 20, "", 0},
		{4, 2, 109, "no room: 192.0.2.2 has 2 of the 2 places of a source (the server's --clients-per-source)", 0},
		{4, 2, 110, "", 2},
		{5, 3, 111, "", 1},
		{6, 3, 119, "no room: 3 of 3 places are taken (the server's --clients)", 0},
		{6, 3, 120, "", 3},
	} {
		ended = nil
		err := sit(step.qpn, step.of, step.now)
		if fmt.Sprint(err) != "<nil>" && (step.says == "" || !strings.Contains(err.Error(), step.says)) || err == nil && step.says != "" {
			t.Errorf("client %d: %v, want %q", step.qpn, err, step.says)
		}
		if got := fmt.Sprint(ended); step.ended != 0 && got != fmt.Sprint([]int{step.ended}) || step.ended == 0 && len(ended) != 0 {
			t.Errorf("client %d took the seats of %v, want %d", step.qpn, ended, step.ended)
		}
	}
	if g.shared != 1 || g.full != 1 || g.idled != 3 {
		t.Errorf("%d, %d, %d", g.shared, g.full, g.idled)
	}
}

// TestAClientWithoutAConnectionGivesItsSeatSooner: programs such as ibv_ud_pingpong go without a word, and one machine may
// start many in turn.
func TestAClientWithoutAConnectionGivesItsSeatSooner(t *testing.T) {
	g := guests{most: 3, share: 2, idle: time.Minute}
	var ended []uint32
	at := func(qpn uint32) *guest {
		return &guest{qpn: qpn, source: source(1), end: func(error) { ended = append(ended, qpn) }}
	}
	kept, apart := at(1), at(2)
	if err := errors.Join(g.sit(kept, 0), g.sit(apart, 1)); err != nil {
		t.Fatal(err)
	}
	apart.apart.Store(true)
	if err := g.sit(at(3), int64(apartIdle)); err == nil || len(ended) != 0 {
		t.Errorf("%v took a seat that was not to be had: %v", ended, err)
	}
	if err := g.sit(at(4), int64(apartIdle)+1); err != nil || fmt.Sprint(ended) != "[2]" || g.find(&kept.gid, 1) != kept {
		t.Errorf("%v, ended %v, want client 2", err, ended)
	}
}

// hello introduces a client of so many queue pairs' number to a server, from a loopback address.
func hello(t *testing.T, from, server string, qpn uint32) (*exchange.Session, net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := (exchange.Native{}).Client(ctxOf(t), c, exchange.Info{QPN: qpn, QKey: ud.DefaultQKey, GID: gidOf(t, "udp:"+from), MTU: 1024})
	return s, c, err
}

// TestAFloodOfOneSource: with complete hellos it gets its share and a refusal that says so; others are served, and its
// seats are given back when it goes.
func TestAFloodOfOneSource(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs, MaxClients: 16}) // of which a quarter
	const from = "127.0.0.77"
	refused := uint64(0)
	var conns []net.Conn
	for i := range 100 {
		_, c, err := hello(t, from, s.addr, uint32(0x100+i))
		conns = append(conns, c)
		switch {
		case err == nil && i < 4:
		case i >= 4 && errors.Is(err, exchange.ErrRefused) && strings.Contains(err.Error(), "127.0.0.77 has 4 of the 4 places of a source (the server's --clients-per-source)"):
			refused++
		default:
			t.Fatalf("hello %d: %v", i, err)
		}
	}
	r, err := Ping(ctxOf(t), clientConfig(t, mine, s.addr))
	if err != nil || r.Unique != r.Sent {
		t.Fatalf("beside a flood: %v\n%s", err, r.Text())
	}
	for _, c := range conns {
		c.Close()
	}
	for { // until the server has seen that they went
		_, _, err := hello(t, from, s.addr, 0x100)
		if err == nil {
			break
		}
		if !errors.Is(err, exchange.ErrRefused) {
			t.Fatalf("after the flood: %v", err)
		}
		refused++
	}
	total := s.end()
	if got := total.ServerTotal; got.RefusedShare != refused || got.Refused != refused || got.RefusedFull != 0 || got.Sessions != 6 || got.IdleEnded != 0 {
		t.Errorf("%d were refused\n%s", refused, total.Text())
	}
	if text := total.Text(); !strings.Contains(text, fmt.Sprintf("refused %d (beyond a source's share %d,", refused, refused)) {
		t.Errorf("%s", text)
	}
}

// TestASilentSessionEnds: when another wants its seat, and its client learns why.
func TestASilentSessionEnds(t *testing.T) {
	theirs, _ := addresses(t, "udp")
	server := serve(t, Config{Device: theirs, MaxClients: 1, Idle: 1})
	old, _, err := hello(t, "127.0.0.78", server.addr, 0x100)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := hello(t, "127.0.0.79", server.addr, 0x101); err != nil {
		t.Fatalf("beside a silent client: %v", err)
	}
	for err == nil { // the server may answer once more before it sees that it is over
		_, err = old.Counts(ctxOf(t))
	}
	if !errors.Is(err, exchange.ErrRefused) || !strings.Contains(err.Error(), "silent for 1ns, and another came") {
		t.Errorf("the silent client learns %v", err)
	}
	total := server.end()
	if got := total.ServerTotal; got.IdleEnded != 1 || got.Sessions != 2 || got.Refused != 0 {
		t.Errorf("%s", total.Text())
	}
}

// TestAClientWithoutAConnectionIsForgotten: the server ends, which has one client to serve.
func TestAClientWithoutAConnectionIsForgotten(t *testing.T) {
	theirs, _ := addresses(t, "udp")
	told := make(chan string, 2)
	s := serve(t, Config{Device: theirs, Exchange: "pingpong", Idle: 1, Count: 1, OnSession: func(text string) { told <- text }})
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := (exchange.Pingpong{}).Client(ctxOf(t), c, exchange.Info{QPN: 0x100, GID: gidOf(t, "udp:127.0.0.1"), MTU: 1024}); err != nil {
		t.Fatal(err)
	}
	<-told
	if text := <-told; !strings.HasSuffix(text, "received 0, answered 0, limited 0: through") {
		t.Errorf("the server says %s", text)
	}
}

// TestWhoIsNotServedDoesNotCount: a server of one client is still there when somebody has connected and gone, and when one
// was refused.
func TestWhoIsNotServedDoesNotCount(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs, Count: 1})
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	other := exchange.Info{QPN: 0x100, QKey: 1, GID: gidOf(t, "udp:127.0.0.1"), MTU: 1024}
	if c, err = net.Dial("tcp", s.addr); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := (exchange.Native{}).Client(ctxOf(t), c, other); !errors.Is(err, exchange.ErrRefused) {
		t.Fatalf("another Q_Key: %v", err)
	}
	r, err := Ping(ctxOf(t), clientConfig(t, mine, s.addr))
	if err != nil || r.Unique != r.Sent {
		t.Fatalf("%v\n%s", err, r.Text())
	}
	if total := s.end(); total.ServerTotal.Sessions != 1 || total.ServerTotal.Refused != 2 {
		t.Errorf("%s", total.Text())
	}
}

// TestSoManyClientsEver: who was turned away is none of them, who has left is.
func TestSoManyClientsEver(t *testing.T) {
	g := guests{most: 4, share: 4, ever: 2, idle: time.Minute}
	first, second, third := &guest{qpn: 1, source: source(1)}, &guest{qpn: 2, source: source(1)}, &guest{qpn: 3, source: source(2)}
	if err := errors.Join(g.sit(first, 0), g.sit(second, 0)); err != nil {
		t.Fatal(err)
	}
	g.leave(first)
	if err := g.sit(third, 0); err == nil || !strings.Contains(err.Error(), "the server has the 2 clients that it serves (its --count)") {
		t.Errorf("a third client: %v", err)
	}
	g.turnAway(second)
	g.turnAway(second)
	if err := g.sit(third, 0); err != nil || g.served != 2 {
		t.Errorf("in place of one that was turned away: %v, %d are served", err, g.served)
	}
}
