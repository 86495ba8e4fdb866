package echo

import (
	"cmp"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// Config asks for a run of any kind. What a kind does not need it does not read.
type Config struct {
	Device   string // device string
	Server   string // of a client: host and TCP port of the exchange; the port may be left out
	Listen   string // of a server
	Exchange string // native, pingpong or perftest
	GIDIndex int    // own address: an index of the device's GIDs
	QKey     uint32 // 0: that of ibv_ud_pingpong

	Size        int           // payload bytes
	Count       uint64        // datagrams, of a server clients that it met; 0: no limit
	Duration    time.Duration // 0: no limit
	Rate        results.Rate  // of datagrams; max for Ping: one after the other
	Timeout     time.Duration // a datagram without an answer for so long is lost; 0: DefaultTimeout
	Inline      int           // datagrams up to so many bytes travel in the request
	SignalEvery int           // 0: chosen
	Depth       int           // sends and receives that are posted; 0: DefaultDepth
	SRQ         bool          // receive through a shared receive queue
	Event       bool          // sleep while there is nothing to do, in place of looking all the time
	Ports       []uint16      // Scan: the UDP source ports; Ping, BW: at most one

	Interval time.Duration // between calls of OnInterval; 0: none
	// OnInterval gets totals, with the latency of the interval.
	OnInterval func(*Interval)
	// OnSession is told when a server's client comes or goes; it may be called from several goroutines.
	OnSession func(text string)
	// OnReady is told a server's address once it listens.
	OnReady func(addr net.Addr)

	// Of a server.
	Mode       exchange.Mode // what it does for a client that cannot say: of pingpong and perftest
	Limit      uint64        // datagrams a second that each client is answered; 0: DefaultLimit
	MaxClients int           // 0: DefaultClients
	// MaxOfSource is how many of them may be of one source (exchange.Source) at a time; 0: a quarter, at least 1.
	// Loopback addresses are sources like all others.
	MaxOfSource int
	// Idle: a client that has sent nothing for so long is forgotten, one with a connection when another needs its place;
	// 0: DefaultIdle.
	Idle time.Duration
}

// Defaults of Config.
const (
	DefaultTimeout = 500 * time.Millisecond
	DefaultDepth   = 1024
	DefaultLimit   = 2_000_000
	DefaultClients = 256
	DefaultIdle    = time.Minute

	maxPaths = 1024
)

// Limits of Config.
const (
	MaxSize    = 4096 // payload bytes; a path can take less
	MaxDepth   = 1 << 14
	MaxClients = 2048
)

// check refuses what no device could do, and fills in defaults.
func (c *Config) check() error {
	c.Depth, c.MaxClients = cmp.Or(c.Depth, DefaultDepth), cmp.Or(c.MaxClients, DefaultClients)
	c.MaxOfSource = cmp.Or(c.MaxOfSource, max(c.MaxClients/4, 1))
	c.Timeout, c.Idle = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Idle, DefaultIdle)
	c.Limit, c.QKey, c.Exchange = cmp.Or(c.Limit, DefaultLimit), cmp.Or(c.QKey, ud.DefaultQKey), cmp.Or(c.Exchange, "native")
	if _, err := exchange.ByName(c.Exchange); err != nil {
		return results.Usage("exchange", c.Exchange, "not a protocol; use native, pingpong or perftest")
	}
	if u := c.Rate.Unit(); u != results.RateMax && u != results.RatePPS {
		return results.Usage("rate", c.Rate.String(), "is not of datagrams; use "+results.PPSWants)
	}
	for _, l := range []struct {
		name           string
		n, least, most int
	}{
		{"size", c.Size, 0, MaxSize}, {"inline", c.Inline, 0, MaxSize}, {"signal-every", c.SignalEvery, 0, MaxDepth},
		{"depth", c.Depth, 2, MaxDepth}, {"gid-index", c.GIDIndex, 0, 255}, {"clients", c.MaxClients, 1, MaxClients},
		{"clients-per-source", c.MaxOfSource, 1, MaxClients},
		{"ports", len(c.Ports), 0, maxPaths},
	} {
		if l.n < l.least || l.n > l.most {
			return results.Usage(l.name, strconv.Itoa(l.n), fmt.Sprintf("is out of range; use %d to %d", l.least, l.most))
		}
	}
	return nil
}

// foreign reports whether the peer sends answers of its own, that carry nothing
// of ours.
func (c *Config) foreign() bool { return c.Exchange != "native" }

// checkServer refuses an address that no client could reach.
func (c *Config) checkServer() error {
	host, port, err := net.SplitHostPort(withPort(c.Server))
	if err == nil && host == "" {
		return results.Usage("server", c.Server, "has no host; use HOST or HOST:PORT")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return results.Usage("server", c.Server, "has no TCP port from 1 to 65535; use HOST or HOST:PORT")
	}
	return nil
}

// onePath refuses more source ports than one.
func (c *Config) onePath() error {
	if len(c.Ports) > 1 {
		return results.Usage("port", strings.Trim(fmt.Sprint(c.Ports), "[]"), "is more than one; use scan")
	}
	return nil
}

// paced reports whether datagrams leave by a schedule.
func (c *Config) paced() bool { return c.Rate.Unit() != results.RateMax }

// schedule is when they leave, and how many a second; of max it is empty.
func (c *Config) schedule() (at clock.Schedule, pps float64, err error) {
	if !c.paced() {
		return at, 0, nil
	}
	rate, err := c.Rate.PPS(big.NewRat(1, 1), 0) // the size does not matter to a rate of datagrams
	if err != nil {
		return at, 0, err
	}
	if at, err = clock.NewSchedule(rate); err != nil {
		return at, 0, results.Usage("rate", c.Rate.String(), err.Error())
	}
	return at, rate.PPS(), nil
}

// ParsePorts reads UDP source ports: 50000, 49152-49167, 50000,50007 or paths:N,
// which is N ports from 49152 on; thing names the flag in errors.
func ParsePorts(thing, s string) ([]uint16, error) {
	const first = 49152 // of the dynamic ports, RFC 6335
	bad := func(why string) ([]uint16, error) {
		return nil, results.Usage(thing, s, why+"; use 49152-49167, a list, or paths:16")
	}
	if n, ok := strings.CutPrefix(s, "paths:"); ok {
		k, err := strconv.Atoi(n)
		if err != nil || k < 1 || k > maxPaths {
			return bad(fmt.Sprintf("not a number of paths from 1 to %d", maxPaths))
		}
		s = fmt.Sprintf("%d-%d", first, first+k-1)
	}
	var out []uint16
	for part := range strings.SplitSeq(s, ",") {
		low, high, dash := strings.Cut(part, "-")
		if !dash {
			high = low
		}
		a, err1 := strconv.ParseUint(low, 10, 16)
		b, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || a == 0 || b < a {
			return bad("not ports")
		}
		if len(out)+int(b-a) >= maxPaths {
			return bad(fmt.Sprintf("more than %d", maxPaths))
		}
		for p := a; p <= b; p++ {
			out = append(out, uint16(p))
		}
	}
	return out, nil
}

// withPort adds the exchange's port to a host that has none.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(exchange.Port))
}
