package echo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/engine/latency"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// end is a device with an endpoint.
type end struct {
	dev    *engine.Device
	shared *ud.SharedReceive // nil: the endpoint receives by itself
	ep     *ud.Endpoint
	clk    clock.Clock
}

// open opens the device and makes its endpoint, which receives from now on.
func open(c *Config, payload int) (e *end, err error) {
	e = &end{clk: clock.System()}
	if e.dev, err = device.Open(c.Device, device.Options{Clock: e.clk}); err != nil {
		return nil, openError(c.Device, err)
	}
	caps, gids := e.dev.Caps(), e.dev.GIDs()
	refuse := func(err error) (*end, error) {
		if e.shared != nil {
			e.shared.Close()
		}
		e.dev.Close()
		return nil, err
	}
	if caps.MaxDatagram == 0 {
		why := "has no IP address, which RoCE v2 datagrams go from and to; give it one, or use udp:ADDRESS"
		if len(gids) > 0 {
			why = fmt.Sprintf("has an MTU of %d, too small for a RoCE v2 datagram; use 1500", caps.MTU)
		}
		return refuse(results.Usage("device", c.Device, why))
	}
	if c.Size > caps.MaxDatagram {
		return refuse(results.Usage("size", fmt.Sprint(c.Size), fmt.Sprintf("is more than the path MTU of %s, %d", caps.Name, caps.MaxDatagram)))
	}
	if c.GIDIndex >= len(gids) {
		return refuse(results.Usage("gid-index", fmt.Sprint(c.GIDIndex), fmt.Sprintf("%s has %d GIDs: %s", caps.Name, len(gids), gidList(gids))))
	}
	if a := gids[c.GIDIndex].GID.Addr(); a.IsLoopback() && caps.Kind != "udp" {
		why := fmt.Sprintf("%v is a loopback address, and the kernel takes such datagrams from its own sockets only; use udp:%v", a, a)
		if len(gids) > 1 {
			why += ", or another --gid-index of " + gidList(gids)
		}
		return refuse(results.Usage("device", c.Device, why))
	}
	depth := min(c.Depth, caps.MaxSendWR, caps.MaxRecvWR)
	cfg := ud.Config{SendDepth: depth, RecvDepth: depth, Payload: payload, Inline: c.Inline, SignalEvery: c.SignalEvery,
		QKey: c.QKey, PSN: rand.Uint32N(1 << 24), GID: gids[c.GIDIndex].GID}
	if c.SRQ {
		if e.shared, err = ud.NewSharedReceive(e.dev, depth, payload); err != nil {
			return refuse(&results.UsageError{Thing: "srq", Value: c.Device, Hint: results.Reason(c.Device, err), Cause: err})
		}
		cfg.Shared = e.shared
	}
	if e.ep, err = ud.New(e.dev, cfg); err != nil {
		return refuse(openError(c.Device, err))
	}
	return e, nil
}

func openError(uri string, err error) error {
	return &results.UsageError{Thing: "device", Value: uri, Hint: results.Reason(uri, err), Cause: err}
}

// roceV2Port is the UDP port of RoCE v2, from which a udp: device sends without being asked.
const roceV2Port = 4791

// checkPorts refuses more source ports than a udp: device sends from, which is one but for its parameter.
func checkPorts(c *Config) error {
	rest, ok := strings.CutPrefix(c.Device, "udp:")
	if !ok {
		return nil
	}
	addr, query, _ := strings.Cut(rest, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil // which opening the device says better
	}
	text := params.Get("ports")
	have, err := strconv.Atoi(text)
	if text != "" && err != nil {
		return nil
	}
	others := make(map[uint16]bool)
	for _, port := range c.Ports {
		if port != 0 && port != roceV2Port {
			others[port] = true
		}
	}
	if len(others) > have {
		return results.Usage("device", c.Device, fmt.Sprintf("sends from %d source ports beside %d, %d wanted; use udp:%s?ports=%d", have, roceV2Port, len(others), addr, len(others)))
	}
	return nil
}

func gidList(gids []engine.GIDEntry) string {
	var names []string
	for _, g := range gids {
		names = append(names, fmt.Sprintf("%d %v", g.Index, g.GID))
	}
	return strings.Join(names, ", ")
}

// err is what has gone wrong: at the device, whose queues then tell no more than that they were flushed, or else at the
// endpoint.
func (e *end) err() error {
	if err := e.dev.Err(); err != nil {
		return err
	}
	return e.ep.Err()
}

// cause is the error that a user is told of one that ended a run: its device's, if that is it, without the names of the
// layers that it came through.
func (e *end) cause(uri string, err error) error {
	switch broken := e.dev.Err(); {
	case err == nil:
		return nil
	case broken != nil:
		return fmt.Errorf("device %q: %w", uri, results.Plain(uri, broken))
	}
	return results.Plain(uri, err)
}

func (e *end) close() error {
	err := e.ep.Close()
	if e.shared != nil {
		err = errors.Join(err, e.shared.Close())
	}
	return errors.Join(err, e.dev.Close())
}

func (e *end) describe(uri string) Device {
	caps, a := e.dev.Caps(), e.ep.LocalAddr()
	return Device{URI: uri, Name: caps.Name, Kind: caps.Kind, IsWire: caps.IsWire, GID: a.GID.String(), QPN: a.QPN, MTU: e.ep.MaxPayload()}
}

func (e *end) info(c *Config) exchange.Info {
	a := e.ep.LocalAddr()
	return exchange.Info{QPN: a.QPN, QKey: a.QKey, GID: a.GID, MTU: e.ep.MaxPayload(), Size: c.Size, Depth: c.Depth}
}

// notOwn refuses a peer at this end's own address and queue pair: what is sent
// there comes back as if the peer had answered.
func (e *end) notOwn(theirs *exchange.Info) error {
	if a := e.ep.LocalAddr(); theirs.GID == a.GID && theirs.QPN == a.QPN {
		return fmt.Errorf("both ends are queue pair %#x at %v; use devices with different addresses", a.QPN, a.GID)
	}
	return nil
}

// loopHint adds to an error of a loop why nobody is there, mostly.
func loopHint(device string, err error) error {
	if strings.HasPrefix(device, "loop:") {
		return fmt.Errorf("%w; a loop: lives within one process, use udp:ADDRESS between two", err)
	}
	return err
}

// exchangeHint adds to an error of an exchange why the peer says something else
// or nothing, or goes, mostly.
func exchangeHint(why string, err error) error {
	for _, kind := range []error{exchange.ErrMessage, io.ErrUnexpectedEOF, syscall.ECONNRESET, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return fmt.Errorf("%w; %s", err, why)
		}
	}
	return err
}

// client is one run.
type client struct {
	*end
	c     *Config
	conn  net.Conn
	s     *exchange.Session
	r     *Report
	peers []ud.Peer
	nonce uint64
	at    clock.Schedule // of a rate that is not max
	rtt   *latency.Recorder
	total latency.Snapshot // of intervals that are over
	start int64            // of the run, in the clock's time
	first engine.Counters  // at its start
	tick  int64            // when the next interval ends
	last  Counts           // at the end of the last one
	lastT int64
	every int64 // ns of an interval; 0: none
	// sendNS is the time from the first departure to the last.
	sendNS int64
	msgs   [64]ud.Msg
	ctx    context.Context
	looks  uint
	ended  bool // the context is, as far as seen
}

// connect opens the device, meets the server and learns the way to it. The
// request was checked.
func connect(ctx context.Context, command string, c *Config, mode exchange.Mode) (*client, error) {
	if err := c.checkServer(); err != nil {
		return nil, err
	}
	p, _ := exchange.ByName(c.Exchange)
	if err := checkPorts(c); err != nil {
		return nil, err
	}
	at, pps, err := c.schedule()
	if err != nil {
		return nil, err
	}
	e, err := open(c, 0)
	if err != nil {
		return nil, err
	}
	x := &client{end: e, c: c, at: at, r: newReport(command, c), nonce: rand.Uint64() | 1, rtt: latency.New(latency.Options{}), ctx: ctx, every: int64(c.Interval)}
	fail := func(err error) (*client, error) {
		if x.conn != nil {
			x.conn.Close()
		}
		e.close()
		return nil, err
	}
	x.r.Device, x.r.RateAskedPPS = e.describe(c.Device), pps
	d := net.Dialer{Timeout: exchange.StepTimeout}
	if x.conn, err = d.DialContext(ctx, "tcp", withPort(c.Server)); err != nil {
		return fail(loopHint(c.Device, fmt.Errorf("exchange with %s: %w", c.Server, err)))
	}
	mine := e.info(c)
	mine.Mode, mine.Nonce = mode, x.nonce
	if x.s, err = p.Client(ctx, x.conn, mine); err != nil {
		return fail(exchangeHint("the server has another --exchange than "+c.Exchange+", or it refused and says why", err))
	}
	t := x.s.Theirs
	if err := e.notOwn(&t); err != nil {
		return fail(loopHint(c.Device, err))
	}
	to := ud.Addr{GID: t.GID, QPN: t.QPN, QKey: t.QKey}
	x.r.Peer = &Peer{Address: x.conn.RemoteAddr().String(), Protocol: c.Exchange, Version: x.s.Version, GID: to.GID.String(), QPN: t.QPN, QKey: t.QKey, MTU: t.MTU}
	if t.MTU != 0 && c.Size > t.MTU {
		return fail(results.Usage("size", fmt.Sprint(c.Size), fmt.Sprintf("is more than the peer's path MTU, %d", t.MTU)))
	}
	ports := c.Ports
	if len(ports) == 0 {
		ports = []uint16{0}
	}
	for _, port := range ports {
		to.SrcPort = port
		resolve, cancel := context.WithTimeout(ctx, exchange.StepTimeout)
		peer, err := e.ep.Peer(resolve, to)
		cancel()
		if port != 0 && errors.Is(err, syscall.EINVAL) {
			hint := fmt.Sprintf("%s; a udp: device sends from others than %d with ?ports=N", results.Reason(c.Device, err), roceV2Port)
			return fail(&results.UsageError{Thing: "ports", Value: fmt.Sprint(port), Hint: hint, Cause: err})
		}
		if err != nil {
			return fail(loopHint(c.Device, fmt.Errorf("way to the peer: %w", results.Plain(c.Device, err))))
		}
		x.peers = append(x.peers, peer)
	}
	return x, nil
}

// begin is the last step before traffic.
func (x *client) begin() error {
	if err := x.s.Sync(x.ctx); err != nil {
		return err
	}
	x.first = x.dev.Counters()
	x.start = x.clk.Now()
	x.tick, x.lastT = x.start+x.every, x.start
	return nil
}

// finish completes the report; why is what ended the run early.
func (x *client) finish(why error) (*Report, error) {
	r := x.r
	if why == nil && x.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(x.ctx, exchange.StepTimeout)
		if err := x.s.Finish(ctx); err != nil {
			r.Notes = append(r.Notes, "the exchange did not end well: "+err.Error())
		}
		cancel()
	}
	x.endInterval()
	r.rtt = x.total
	now := x.dev.Counters()
	r.drops(&now, &x.first)
	if now.WeakICRCs > x.first.WeakICRCs {
		r.Notes = append(r.Notes, fmt.Sprintf("%d answers had an ICRC right for an IPv4 identification that only their sender knows: 16 bits weaker", now.WeakICRCs-x.first.WeakICRCs))
	}
	if err := x.err(); err != nil && why == nil {
		why = err
	}
	why = x.cause(x.c.Device, why)
	if why == nil && x.ctx.Err() != nil {
		r.Outcome = "interrupted"
		why = context.Canceled
	} else if why != nil {
		r.Outcome, r.Error = "failed", why.Error()
	}
	r.finish(x.sendNS)
	x.conn.Close()
	return r, errors.Join(why, x.close())
}

// endInterval adds an interval's round trips to the total, and describes them.
func (x *client) endInterval() *results.Summary {
	part := x.rtt.Swap()
	s := results.Summarize(&part)
	_ = x.total.Merge(part) // of recorders that are alike
	x.rtt.Recycle(&part)
	return s
}

// alive asks a peer that does not answer whether it is there, where it can be asked.
func (x *client) alive() error {
	if x.c.foreign() || x.ctx.Err() != nil {
		return nil
	}
	if _, err := x.s.Counts(x.ctx); err != nil && x.ctx.Err() == nil {
		return fmt.Errorf("the peer is gone: %w", err)
	}
	return nil
}

// stopped looks at the context now and then: it takes a lock.
func (x *client) stopped() bool {
	if x.looks++; x.looks&255 == 0 && x.ctx.Err() != nil {
		x.ended = true
	}
	return x.ended
}

// progress tells about an interval when one is over.
func (x *client) progress(now int64) {
	if x.every == 0 || now < x.tick {
		return
	}
	x.tick += x.every
	i := Interval{Schema: Schema, Record: "interval", ElapsedNS: now - x.start, Counts: x.r.Counts, RTT: x.endInterval(), oneWay: x.r.Command == "bw"}
	if s := float64(now-x.lastT) / 1e9; s > 0 {
		i.TxPPS, i.RxPPS = float64(x.r.Sent-x.last.Sent)/s, float64(x.r.Unique-x.last.Unique)/s
	}
	x.last, x.lastT = x.r.Counts, now
	if x.c.OnInterval != nil {
		x.c.OnInterval(&i)
	}
}

// rest sleeps for at most so long when nothing is to do and the run is to sleep.
func (x *client) rest(ns int64) error {
	if !x.c.Event || ns < int64(20*time.Microsecond) {
		return nil
	}
	x.looks |= 255 // the next look is at the context, too
	return x.dev.Wait(min(ns, int64(10*time.Millisecond)))
}
