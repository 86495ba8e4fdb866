package echo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// served is a server that runs beside a test.
type served struct {
	addr string
	end  func() *Report // stops it and gives its report
}

// serve starts a server of its own device on a free TCP port.
func serve(t testing.TB, c Config) served {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan net.Addr, 1)
	type result struct {
		r   *Report
		err error
	}
	ended := make(chan result, 1)
	c.Listen, c.Event = "127.0.0.1:0", true
	c.OnReady = func(a net.Addr) { ready <- a }
	go func() {
		r, err := Serve(ctx, c)
		ended <- result{r, err}
	}()
	s := served{end: func() *Report {
		stop()
		got := <-ended
		ended <- got
		if got.err != nil && !errors.Is(got.err, context.Canceled) {
			t.Error(got.err)
		}
		return got.r
	}}
	t.Cleanup(func() { s.end() })
	select {
	case a := <-ready:
		s.addr = a.String()
	case got := <-ended:
		ended <- got
		t.Fatal(got.err)
	}
	return s
}

// lastAddress numbers the addresses that tests use.
var lastAddress atomic.Int32

// addresses gives the devices of two ends: loopback addresses of this test, or a loop.
func addresses(t testing.TB, kind string) (theirs, mine string) {
	if kind == "loop" {
		name := "loop:" + strings.ReplaceAll(t.Name(), "/", "-") + "?drop=1"
		return name, name
	}
	host := func(n int) string {
		return fmt.Sprintf("udp:127.%d.%d.%d", 128+os.Getpid()>>8&63, os.Getpid()&255, n)
	}
	n := int(lastAddress.Add(2)) % 250 // a process that runs the tests many times comes round
	return host(n + 1), host(n + 2)
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func clientConfig(t testing.TB, device, server string) Config {
	t.Helper()
	return Config{Device: device, Server: server, Size: 64, Count: 200, Event: true, Timeout: 5 * time.Second}
}

func rate(t testing.TB, s string) results.Rate {
	t.Helper()
	r, err := results.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryDatagramIsAnsweredAndAccountedFor(t *testing.T) {
	for _, kind := range []string{"udp", "loop"} {
		t.Run(kind, func(t *testing.T) {
			theirs, mine := addresses(t, kind)
			s := serve(t, Config{Device: theirs})
			sent := uint64(0)
			for _, c := range []struct {
				name   string
				change func(c *Config)
			}{
				{"one after the other", func(*Config) {}},
				{"empty ones", func(c *Config) { c.Size = 0 }},
				{"too short for a mark", func(c *Config) { c.Size = 15 }},
				{"just long enough", func(c *Config) { c.Size = 16 }},
				{"the longest, inline off", func(c *Config) { c.Size = 4096 }},
				{"inline", func(c *Config) { c.Inline, c.Size = 64, 64 }},
				{"each signalled", func(c *Config) { c.SignalEvery = 1 }},
				{"through a shared receive queue", func(c *Config) { c.SRQ = true }},
				{"at a rate", func(c *Config) { c.Rate = rate(t, "2kpps") }},
				{"at a rate, empty", func(c *Config) { c.Rate, c.Size = rate(t, "2kpps"), 0 }},
				{"looking all the time", func(c *Config) { c.Event = false }},
			} {
				t.Run(c.name, func(t *testing.T) {
					cfg := clientConfig(t, mine, s.addr)
					c.change(&cfg)
					r, err := Ping(ctxOf(t), cfg)
					if err != nil {
						t.Fatal(err)
					}
					if r.Outcome != "complete" || r.Sent != 200 || r.Unique != 200 || r.Lost != 0 || r.Foreign != 0 || r.RTTSamples != 200 || len(r.Drops) != 0 {
						t.Errorf("%s", r.Text())
					}
					if r.RTT.P50/2 != r.HalfRTT.P50 || r.SentBytes != 200*uint64(cfg.Size) || r.RecvBytes != r.SentBytes {
						t.Errorf("%+v %+v", r.RTT, r.HalfRTT)
					}
					sent += r.Sent
				})
			}
			r := s.end()
			if r.Outcome != "interrupted" || r.Received != sent || r.ServerTotal.Answered != sent || r.ServerTotal.Strangers != 0 || r.Sent != sent || r.SentBytes != r.RecvBytes {
				t.Errorf("%d were sent\n%s", sent, r.Text())
			}
		})
	}
}

// TestLossIsCounted: on a loop that loses, what is not answered is lost, to the unit.
func TestLossIsCounted(t *testing.T) {
	name := "loop:echo-loss?drop=1&loss=0.05&seed=3"
	s := serve(t, Config{Device: name})
	for _, rateText := range []string{"max", "5kpps"} {
		c := clientConfig(t, name, s.addr)
		c.Count, c.Timeout, c.Rate = 1000, 30*time.Millisecond, rate(t, rateText)
		r, err := Ping(ctxOf(t), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sent != 1000 || r.Lost == 0 || r.Lost != r.Sent-r.Unique || r.Unique != r.RTTSamples || r.Received != r.Unique+r.Late || r.LossRatio == 0 {
			t.Errorf("rate %s: %s", rateText, r.Text())
		}
	}
}

func TestBandwidthIsWhatThePeerCounted(t *testing.T) {
	theirs, mine := addresses(t, "loop")
	s := serve(t, Config{Device: theirs})
	c := clientConfig(t, mine, s.addr)
	c.Count, c.Size, c.Timeout = 20000, 256, 2*time.Second
	r, err := BW(ctxOf(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent != c.Count || !r.LossKnown || r.PeerCounts.Received != r.Unique || r.Lost != r.Sent-r.Unique || r.Unique == 0 || r.RecvBytes != r.Unique*256 {
		t.Errorf("%s%+v", r.Text(), r.PeerCounts)
	}
	total := s.end()
	if total.ServerTotal.Sunk != r.Unique || total.ServerTotal.Answered != 0 || r.Lost != sum(total.Drops) {
		t.Errorf("lost %d, the server dropped %d\n%s", r.Lost, sum(total.Drops), total.Text())
	}
	c.Rate, c.Count = rate(t, "1kpps"), 50
	if _, err := BW(ctxOf(t), c); err == nil {
		t.Error("a server that is gone was no error")
	}
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

func TestScanMeasuresEachPath(t *testing.T) {
	theirs, mine := addresses(t, "loop")
	s := serve(t, Config{Device: theirs})
	c := clientConfig(t, mine, s.addr)
	c.Ports, c.Rate = []uint16{49152, 50000, 65535}, rate(t, "3kpps")
	c.Count = 301
	r, err := Scan(ctxOf(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Paths) != 3 || r.Paths[0].Sent != 101 || r.Paths[1].Unique != 100 || r.Paths[2].SourcePort != 65535 || r.Paths[2].RTT == nil || r.Lost != 0 {
		t.Errorf("%s", r.Text())
	}
	udpServer, udpClient := addresses(t, "udp")
	c.Device, c.Server = udpClient, serve(t, Config{Device: udpServer}).addr
	for _, query := range []string{"", "?ports=1", "?gso=0&ports=2"} {
		few := c
		few.Device += query
		var usage *results.UsageError
		if _, err := Scan(ctxOf(t), few); !errors.As(err, &usage) || !strings.Contains(err.Error(), "?ports=3") {
			t.Errorf("udp:%s for three source ports: %v", query, err)
		}
	}
	c.Device += "?ports=3"
	if r, err := Scan(ctxOf(t), c); err != nil || r.Lost != 0 || r.Paths[1].Unique != 100 {
		t.Errorf("%v\n%s", err, r.Text())
	}
}

// TestOtherProgramsProtocols: the client and the server of each, against each other.
func TestOtherProgramsProtocols(t *testing.T) {
	for _, p := range []string{"pingpong", "perftest"} {
		t.Run(p, func(t *testing.T) {
			theirs, mine := addresses(t, "udp")
			s := serve(t, Config{Device: theirs, Exchange: p})
			c := clientConfig(t, mine, s.addr)
			c.Exchange = p
			r, err := Ping(ctxOf(t), c)
			if err != nil || r.Sent != 200 || r.Unique != 200 || r.Lost != 0 {
				t.Fatalf("%v\n%s", err, r.Text())
			}
			c.Rate = rate(t, "1kpps")
			var usage *results.UsageError
			if _, err := Ping(ctxOf(t), c); !errors.As(err, &usage) {
				t.Errorf("a rate with answers that say nothing: %v", err)
			}
		})
	}
}

// TestEndsOfDifferentProtocolsSayWhatIsLikely: both of them.
func TestEndsOfDifferentProtocolsSayWhatIsLikely(t *testing.T) {
	for _, pair := range [][2]string{{"native", "pingpong"}, {"native", "perftest"}, {"pingpong", "native"}, {"perftest", "native"}, {"perftest", "pingpong"}} {
		t.Run(pair[0]+" serves "+pair[1], func(t *testing.T) {
			theirs, mine := addresses(t, "udp")
			told := make(chan string, 1)
			s := serve(t, Config{Device: theirs, Exchange: pair[0], OnSession: func(text string) { told <- text }})
			c := clientConfig(t, mine, s.addr)
			c.Exchange = pair[1]
			if r, err := Ping(ctxOf(t), c); err == nil || r != nil || !strings.Contains(err.Error(), "another --exchange than "+pair[1]) {
				t.Errorf("the client says %v", err)
			}
			if text := <-told; !strings.Contains(text, "another --exchange than "+pair[0]) {
				t.Errorf("the server says %s", text)
			}
		})
	}
}

// TestNobodyAnswersItself: the first ports of two loops have one address, and what one sends there comes back to it.
func TestNobodyAnswersItself(t *testing.T) {
	s := serve(t, Config{Device: "loop:echo-one"})
	r, err := Ping(ctxOf(t), clientConfig(t, "loop:echo-two", s.addr))
	if err == nil || r != nil || !strings.Contains(err.Error(), "both ends are queue pair") || !strings.Contains(err.Error(), "within one process") {
		t.Errorf("%v, %+v", err, r)
	}
	if total := s.end(); total.ServerTotal.Refused != 1 || total.ServerTotal.Sessions != 0 {
		t.Errorf("%s", total.Text())
	}
}

// TestServerLimits: a client's rate, and strangers that nobody introduced.
func TestServerLimits(t *testing.T) {
	theirs, mine := addresses(t, "loop")
	s := serve(t, Config{Device: theirs, Limit: 200, SRQ: true}) // 2 in each 10 ms
	c := clientConfig(t, mine, s.addr)
	c.Rate, c.Count, c.Timeout = rate(t, "5kpps"), 500, 2*time.Second
	r, err := Ping(ctxOf(t), c)
	if err != nil {
		t.Fatal(err)
	}
	total := s.end()
	if total.ServerTotal.Limited == 0 || total.ServerTotal.Limited != r.Lost || total.ServerTotal.Answered != r.Unique {
		t.Errorf("%s%s", r.Text(), total.Text())
	}
}

func TestStrangersAndGarbageAreNotAnswered(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs})
	dev, err := device.Open(mine, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := ud.New(dev, ud.Config{})
	if err != nil {
		t.Fatal(err)
	}
	// What a client would be told, without being introduced.
	c := clientConfig(t, theirs, s.addr)
	to := ud.Addr{GID: gidOf(t, theirs), QPN: 0x40, QKey: ud.DefaultQKey}
	peer, err := ep.Peer(ctxOf(t), to)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := ep.Send(peer, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ep.RecvSpin(200 * time.Millisecond); !errors.Is(err, ud.ErrTimeout) {
		t.Errorf("a stranger was answered: %v", err)
	}
	ep.Close()
	dev.Close()
	// Garbage on both sockets; then a client is served as if nothing had been.
	plain, err := net.Dial("udp", strings.TrimPrefix(theirs, "udp:")+":"+strconv.Itoa(proto.RoCEPort))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	junk := make([]byte, 600)
	for i := range 200 { // no more than a small socket buffer holds
		binary.BigEndian.PutUint64(junk[i%500:], uint64(i)*0x9e3779b97f4a7c15)
		plain.Write(junk[:1+i%600])
	}
	for _, b := range [][]byte{nil, junk, []byte("GET / HTTP/1.1\r\n\r\n")} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(b)
		conn.Close()
	}
	c.Device = mine
	r, err := Ping(ctxOf(t), c)
	if err != nil || r.Unique != 200 {
		t.Fatalf("%v\n%s", err, r.Text())
	}
	total := s.end()
	if total.ServerTotal.Strangers != 50 || total.ServerTotal.Answered != 200 || total.ServerTotal.Refused != 3 || total.Received != 250 || sum(total.Drops) == 0 {
		t.Errorf("%s", total.Text())
	}
}

func gidOf(t *testing.T, uri string) [16]byte {
	t.Helper()
	a, err := net.ResolveIPAddr("ip", strings.TrimPrefix(uri, "udp:"))
	if err != nil {
		t.Fatal(err)
	}
	return [16]byte(a.IP.To16())
}

func TestRefusals(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs, MaxClients: 1})
	for _, c := range []struct {
		name, says string
		change     func(c *Config)
	}{
		{"another Q_Key", "--qkey 0x11111111", func(c *Config) { c.QKey = 7 }},
		{"too long", "size", func(c *Config) { c.Size = 4097 }},
		{"no such GID", "gid-index", func(c *Config) { c.GIDIndex = 3 }},
		{"no such protocol", "exchange", func(c *Config) { c.Exchange = "sockperf" }},
		{"bits", "pps", func(c *Config) { c.Rate = rate(t, "1gbps") }},
		{"no such device", "127.0.0.1", func(c *Config) { c.Device = "udp:192.0.2.77" }},
		{"nobody there", "refused", func(c *Config) { c.Server = "127.0.0.1:1" }},
		{"no datagrams", "192.0.2.9", func(c *Config) { c.Device = "packet:192.0.2.9" }},
		{"faster than a schedule", "1000mpps", func(c *Config) { c.Rate = rate(t, "2000mpps") }},
		{"several ports", "scan", func(c *Config) { c.Ports = []uint16{1, 2} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := clientConfig(t, mine, s.addr)
			c.change(&cfg)
			if r, err := Ping(ctxOf(t), cfg); err == nil || r != nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
		})
	}
	// One client at a time: a second is refused, and is welcome when the first has gone.
	held, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	info := exchange.Info{QPN: 0x99, QKey: ud.DefaultQKey, GID: gidOf(t, mine), MTU: 1024}
	if _, err := (exchange.Native{}).Client(ctxOf(t), held, info); err != nil {
		t.Fatal(err)
	}
	if _, err := Ping(ctxOf(t), clientConfig(t, mine, s.addr)); err == nil {
		t.Error("a second client of one")
	}
	held.Close()
	for deadline := time.Now().Add(20 * time.Second); ; {
		r, err := Ping(ctxOf(t), clientConfig(t, mine, s.addr))
		if err == nil && r.Unique == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the first client went: %v, %+v", err, r)
		}
	}
}

// TestServerThatVanishes: the client ends with what it knows.
func TestServerThatVanishes(t *testing.T) {
	for _, rateText := range []string{"max", "2kpps"} {
		theirs, mine := addresses(t, "udp")
		s := serve(t, Config{Device: theirs})
		c := clientConfig(t, mine, s.addr)
		c.Count, c.Timeout, c.Rate, c.Interval = 1<<40, 50*time.Millisecond, rate(t, rateText), time.Millisecond
		answered := make(chan struct{})
		told := false
		c.OnInterval = func(i *Interval) {
			if i.Unique > 0 && !told {
				told = true
				close(answered)
			}
		}
		go func() {
			<-answered
			s.end()
		}()
		r, err := Ping(ctxOf(t), c)
		if err == nil || r == nil || r.Outcome != "failed" || !strings.Contains(r.Error, "gone") || r.Unique == 0 || r.Lost != r.Sent-r.Unique {
			t.Errorf("rate %s: %v, %+v", rateText, err, r)
		}
	}
}

func TestAnInterruptedRunHasItsCounts(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs})
	for name, run := range map[string]func(context.Context, Config) (*Report, error){"ping": Ping, "ping at a rate": Ping, "bw": BW} {
		ctx, cancel := context.WithCancel(ctxOf(t))
		c := clientConfig(t, mine, s.addr)
		c.Count, c.Interval = 1<<40, time.Millisecond
		if name == "ping at a rate" {
			c.Rate = rate(t, "5kpps")
		}
		c.OnInterval = func(i *Interval) {
			if i.Sent > 10 {
				cancel()
			}
		}
		r, err := run(ctx, c)
		cancel()
		if !errors.Is(err, context.Canceled) || r.Outcome != "interrupted" || r.Sent < 10 {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
		if name != "bw" && r.Lost != 0 { // what is on its way is waited for
			t.Errorf("%s: lost %d of %d", name, r.Lost, r.Sent)
		}
	}
}

func TestOutputs(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs})
	c := clientConfig(t, mine, s.addr)
	r, err := Ping(ctxOf(t), c)
	if err != nil {
		t.Fatal(err)
	}
	for text, pass := range map[string]bool{
		"loss==0": true, "sent==200": true, "p50<10s": true, "half_rtt_ns.p99>0": true, "max<1ns": false, "rtt_ns.p99.999>0": true,
		"rate_err<1%": false, "drops_datagrams.x==0": true, "loss<1%": true,
	} {
		a, err := ParseAssert(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if v := r.Judge(a); v.Pass != pass {
			t.Errorf("%s", results.AssertText(v))
		}
	}
	for _, f := range []results.Format{results.Text, results.JSON, results.JSONL, results.CSV, results.None} {
		var b strings.Builder
		if err := (Writer{W: &b, Format: f}).Report(r); err != nil || (b.Len() == 0) != (f == results.None) {
			t.Errorf("%s: %v, %d bytes", f, err, b.Len())
		}
		if f == results.CSV && !strings.Contains(b.String(), "\nsent_datagrams,200\n") || f == results.JSON && !strings.Contains(b.String(), `"sent_datagrams": 200`) {
			t.Errorf("%s", b.String())
		}
	}
	if log := string(r.HDRLog()); !strings.Contains(log, "Histogram log format") {
		t.Errorf("%s", log)
	}
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]int{"50000": 1, "49152-49167": 16, "1,2,5-7": 5, "paths:3": 3, "paths:1024": 1024} {
		if p, err := ParsePorts("ports", text); err != nil || len(p) != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, bad := range []string{"", "0", "65536", "5-4", "paths:0", "paths:1025", "1-2000", "a"} {
		if p, err := ParsePorts("ports", bad); err == nil {
			t.Errorf("%q: %v", bad, p)
		}
	}
}

// TestRoundTripsAllocateNothing: neither end, client nor server.
func TestRoundTripsAllocateNothing(t *testing.T) {
	theirs, mine := addresses(t, "udp")
	s := serve(t, Config{Device: theirs})
	c := clientConfig(t, mine, s.addr)
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	x, err := connect(ctxOf(t), "ping", &c, exchange.ModeEcho)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.begin(); err != nil {
		t.Fatal(err)
	}
	seq := uint64(0)
	if n := testing.AllocsPerRun(500, func() {
		if _, err := x.once(seq); err != nil {
			t.Fatal(err)
		}
		seq++
	}); n != 0 {
		t.Errorf("%v allocations a round trip", n)
	}
	if r, err := x.finish(nil); err != nil || r.Unique != seq {
		t.Errorf("%v\n%s", err, r.Text())
	}
}
