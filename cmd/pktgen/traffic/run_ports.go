package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"syscall"
	"time"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/csum"
	"github.com/bluering/bluering/internal/proto"
	"github.com/bluering/bluering/raw"
)

// Run carries out c: it opens the ports, sends, receives, drains and reports.
//
// A nil report comes with an error that was known before the first frame,
// mostly a *UsageError. Otherwise the report is complete, whatever the error
// says: a port that failed under way, ErrInconclusive. Cancelling ctx ends the
// sending, drains and reports; it is no error, the report's outcome says
// "interrupted".
func Run(ctx context.Context, c Config) (*Report, error) {
	clk := clock.System()
	ports, err := openPorts(&c, clk)
	if err != nil {
		return nil, err
	}
	r, err := ports.run(ctx, c)
	if closed := unsaid(ports.Close(), err); closed != nil && r != nil { // a recording that failed, mostly
		closed = results.Plain(cmp.Or(c.TX, c.RX), closed)
		r.Notes = append(r.Notes, closed.Error())
		err = errors.Join(err, closed)
	}
	if r == nil && ports.tap != nil {
		ports.tap.discard()
	}
	if r != nil {
		logResult(ctx, c.logger(), r, err)
	}
	return r, err
}

// unsaid is what of the errors of a Close has not ended the run already.
func unsaid(closed, said error) error {
	if joined, ok := closed.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, e := range joined.Unwrap() {
			rest = append(rest, unsaid(e, said))
		}
		return errors.Join(rest...)
	}
	for e := closed; e != nil; e = errors.Unwrap(e) {
		if _, plain := e.(syscall.Errno); !plain && errors.Is(said, e) {
			return nil
		}
	}
	return closed
}

// logger is where a run tells what happens to it; silent unless the caller gave one.
func (c *Config) logger() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// logResult says how a run ended. What a caller gets as an error is logged as one level below.
func logResult(ctx context.Context, l *slog.Logger, r *Report, err error) {
	counts := []any{"outcome", r.Outcome, "sent", r.Sent, "received", r.Received, "lost", r.Lost, "elapsed", time.Duration(r.ElapsedNS)}
	if err != nil {
		l.InfoContext(ctx, "run failed", append(counts, "err", err)...)
		return
	}
	l.InfoContext(ctx, "run ended", counts...)
}

// run plans and carries out c over the open ports.
func (o *openedPorts) run(ctx context.Context, c Config) (*Report, error) {
	plan, err := NewPlan(c, o.txFacts, o.rxFacts)
	if err != nil {
		return nil, err
	}
	token, err := plan.token(o.clk.Now())
	if err != nil {
		return nil, err
	}
	if err := o.prepare(plan, token); err != nil {
		return nil, err
	}
	c.logger().InfoContext(ctx, "run starts", "tx", c.TX, "rx", c.RX, "rate", c.Rate.String(), "flows", plan.Flows,
		"queues", plan.Queues, "seed", fmt.Sprintf("%#x", c.Seed), "run", token.String())
	if c.OnPlan != nil {
		c.OnPlan(plan)
	}
	return execute(ctx, plan, token, o.runPorts, o.clk)
}

// openedPorts are the devices of a run. They are opened before the plan, which
// needs their facts; their queues are made by prepare, which needs the plan.
type openedPorts struct {
	runPorts
	clk              clock.Clock
	txDev, rxDev     *engine.Device // nil: no such port
	tx, rx           *raw.Port
	txFacts, rxFacts *PortFacts
	tap              *recording // nil: nothing is recorded
	txTap            *recording // the same, if it is the sending port's
}

func openPorts(c *Config, clk clock.Clock) (*openedPorts, error) {
	o := &openedPorts{clk: clk}
	if c.TX == "" && c.RX == "" {
		return nil, results.Usage("port", "", "no port is named; `pktgen list` shows what there is")
	}
	var err error
	if c.Tap != "" {
		if o.tap, err = record(c.Tap); err != nil {
			return nil, err
		}
	}
	if c.TX != "" {
		if c.RX == "" { // else of the receiving port: it has seen what arrives
			o.txTap = o.tap
		}
		if err = o.openSender(c.TX); err != nil {
			o.Close() // the first error says what happened
			if o.tap != nil {
				o.tap.discard()
			}
			return nil, err
		}
	}
	if c.RX != "" {
		if err = o.openReceiver(c); err != nil {
			o.Close() // the first error says what happened
			if o.tap != nil {
				o.tap.discard()
			}
			return nil, err
		}
	}
	return o, nil
}

// openSender opens the sending port, but of a recording it only gets the facts:
// opening it empties the file, and the plan may yet refuse the run. prepareSend
// opens it.
func (o *openedPorts) openSender(uri string) (err error) {
	if err = checkSender(uri); err != nil {
		return err
	}
	if path, _, ok := recordingPort(uri); ok {
		o.txFacts, err = probeRecording(uri, path)
		return err
	}
	o.txDev, o.txFacts, err = openDevice(uri, uri, o.clk, o.txTap)
	return err
}

func (o *openedPorts) openReceiver(c *Config) error {
	full, err := asReceiver(withRing(c))
	if err != nil {
		return err
	}
	o.rxDev, o.rxFacts, err = openDevice(c.RX, full, o.clk, o.tap)
	return err
}

func openDevice(uri, full string, clk clock.Clock, tap *recording) (*engine.Device, *PortFacts, error) {
	options := device.Options{Clock: clk}
	if tap != nil {
		options.TapTo = tap
	}
	dev, err := device.Open(full, options)
	if err != nil {
		return nil, nil, openError(uri, err)
	}
	return dev, factsOf(dev, uri), nil
}

// factsOf is what a plan needs to know of an open device.
func factsOf(dev *engine.Device, uri string) *PortFacts {
	c := dev.Caps()
	f := &PortFacts{
		Port:   Port{URI: uri, Name: c.Name, Kind: c.Kind, IsWire: c.IsWire, SpeedBPS: c.SpeedBPS, MaxFrame: c.MaxFrame},
		HWAddr: c.MAC, Addr4: c.Addr4, Addr6: c.Addr6, IfIndex: c.IfIndex, NetNS: c.NetNS,
	}
	f.MAC = macText(c.MAC)
	return f
}

// Bounds of the receive ring that withRing asks for.
const (
	ringLeastBytes = 8 << 20
	ringMostBytes  = 1 << 30
	ringMaxBytes   = 64 << 20 // at a rate that is not known beforehand
	slotOverhead   = 192      // a slot's header and its alignment
	slotLeast      = 256
	xdpFrames      = 4096 // of an xdp: port's queue, 2 KiB each: more would not stay in the caches
	xdpMostFrames  = 65536
)

// withRing is the receive port's device string with a ring that holds a second
// of the offered rate, unless its own parameters say otherwise: what the ring
// drops makes a run inconclusive. Sizes may follow from --tso or --payload.
func withRing(c *Config) string {
	sized := *c
	if sized.fillAddresses(nil, nil) != nil || sized.fillSize() != nil {
		return c.RX // the plan says so
	}
	c = &sized
	if strings.HasPrefix(c.RX, "xdp:") && !strings.Contains(c.RX, "frames=") {
		frames := uint64(xdpFrames)
		if rate, err := c.Rate.PPS(c.Size.Mean(), 0); c.TX != "" && err == nil && rate.Num > 0 {
			frames = min(max(uint64(rate.PPS()/4), frames), xdpMostFrames) // a quarter of a second
		}
		return withParameter(c.RX, fmt.Sprintf("frames=%d", frames))
	}
	if !strings.HasPrefix(c.RX, "packet:") || strings.Contains(c.RX, "ring=") || strings.Contains(c.RX, "slot=") || strings.Contains(c.RX, "gso=auto") {
		return c.RX
	}
	if c.TX == "" { // the sizes are another's: slots of whole frames
		return withParameter(c.RX, fmt.Sprintf("ring=%d", ringMaxBytes))
	}
	sizes := c.Size.Distinct()
	slot := 1 << bits.Len(uint(max(sizes[len(sizes)-1]+slotOverhead, slotLeast)-1))
	bytes := ringMaxBytes
	if rate, err := c.Rate.PPS(c.Size.Mean(), 0); err == nil && rate.Num > 0 {
		bytes = int(min(max(rate.PPS()*float64(slot), ringLeastBytes), ringMostBytes))
	}
	return withParameter(c.RX, fmt.Sprintf("ring=%d&slot=%d", bytes, slot))
}

func withParameter(uri, parameter string) string {
	if strings.Contains(uri, "?") {
		return uri + "&" + parameter
	}
	return uri + "?" + parameter
}

// prepare makes the queues and lays the streams over them.
func (o *openedPorts) prepare(p *Plan, t Token) error {
	if o.txFacts != nil {
		if err := o.prepareSend(p, t); err != nil {
			return err
		}
	}
	if o.rxDev == nil {
		o.drops = o.countDrops
		return nil
	}
	port, err := raw.NewPort(o.rxDev, raw.PortConfig{TxQueues: -1})
	if err != nil {
		return portFailed(p.Config.RX, err)
	}
	o.rx = port
	o.in = &rawIn{q: port.Rx(0), dev: o.rxDev, guessID: guessesID(p.Config.RX)}
	o.apart = o.rxDev.Caps().IsWire
	o.finite = o.rxDev.Caps().Kind == "pcap"
	o.drops = o.countDrops
	return nil
}

// portFailed names the port, unless the error does so itself.
func portFailed(uri string, err error) error {
	name, _, _ := strings.Cut(uri, "?")
	if strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s: %w", uri, err)
}

func (o *openedPorts) prepareSend(p *Plan, t Token) (err error) {
	if o.txDev == nil {
		if o.txDev, _, err = openDevice(p.Config.TX, p.Config.TX, o.clk, o.txTap); err != nil {
			return err
		}
	}
	c := raw.PortConfig{TxQueues: p.Queues, RxQueues: -1}
	if t := p.Config.TSO; t.MSS > 0 {
		c.TSO, c.FrameBytes, c.TxDepth = true, max(t.Payload, p.TX.MaxFrame), tsoDepth(t.Payload)
	}
	if p.Config.Hello {
		c.TxQueues++
	}
	port, err := raw.NewPort(o.txDev, c)
	if err != nil {
		return portFailed(p.Config.TX, err)
	}
	o.tx = port
	out := &rawOut{dev: o.txDev, plan: p, clk: o.clk, helloKey: proto.NewTagKey(t.RunID ^ helloKeyMix)}
	for q := range p.Queues {
		tmpl, err := p.template(q)
		if err != nil {
			return err
		}
		if p.Config.TSO.MSS > 0 {
			s := newTSOQueue(p, q, port.Tx(q), tmpl, proto.NewTagKey(t.RunID))
			out.txs = append(out.txs, port.Tx(q))
			out.streams = append(out.streams, s)
			out.queues = append(out.queues, s)
			continue
		}
		s, err := port.Tx(q).NewStream(tmpl, raw.StreamConfig{
			Tag: p.Tagged, Key: proto.NewTagKey(t.RunID), IPCsum: p.Config.Csum == CsumOffload,
			FlowFirst: uint32(q), FlowStep: uint32(p.Queues), Flows: uint32(p.PerFlow(q)),
			First: uint64(q), Step: uint32(p.Queues),
		})
		if err != nil {
			return fmt.Errorf("%s: queue %d: %w", p.Config.TX, q, err)
		}
		out.txs = append(out.txs, port.Tx(q))
		out.streams = append(out.streams, s)
		out.queues = append(out.queues, s)
	}
	if p.Config.Hello {
		out.hello = port.Tx(p.Queues)
		out.txs = append(out.txs, out.hello)
	}
	o.out = out
	return nil
}

// inFlight is the reason of frames that are still inside a loop when the drain ends.
const inFlight = "in_flight"

// countDrops adds both devices' drops by reason, and returns those that the
// receive side of this machine is to blame for.
func (o *openedPorts) countDrops(drops map[string]uint64) (ring uint64) {
	for _, dev := range []*engine.Device{o.txDev, o.rxDev} {
		c := dev.Counters()
		for reason, n := range c.Drops {
			if n > 0 {
				drops[engine.DropReason(reason).String()] += n
			}
		}
		if dev == nil || dev != o.rxDev {
			continue
		}
		if c.RxInFlight > 0 {
			drops[inFlight] += c.RxInFlight
		}
		ring = c.Drops[engine.DropNoWQE]
		if !dev.Caps().Loop { // there, the wire's drops are the network's
			ring += c.Drops[engine.DropWire]
		}
	}
	return ring
}

// Close closes what is open.
func (o *openedPorts) Close() error {
	var errs []error
	for _, p := range []*raw.Port{o.tx, o.rx} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	errs = append(errs, o.txDev.Close(), o.rxDev.Close())
	if o.tap != nil {
		errs = append(errs, unsaid(o.tap.Close(), errors.Join(errs...)))
	}
	return errors.Join(errs...)
}

// Probe opens a port, tells what it is, and closes it again.
func Probe(uri string) (*PortFacts, error) {
	if path, mode, ok := recordingPort(uri); ok && mode != "read" {
		return probeRecording(uri, path)
	}
	dev, facts, err := openDevice(uri, uri, clock.System(), nil)
	if err != nil {
		return nil, err
	}
	return facts, dev.Close()
}

// rawOut is a raw port as a sender sees it.
type rawOut struct {
	dev      *engine.Device
	plan     *Plan
	clk      clock.Clock
	txs      []*raw.TxQueue
	streams  []counted
	queues   []txQueue
	hello    *raw.TxQueue // nil: no hellos
	helloKey proto.TagKey

	helloFrames, helloBytes uint64 // handed to the device
}

// counted is what was handed to the device: frames, and their bytes without FCS.
type counted interface {
	Sent() uint64
	Bytes() uint64
}

func (o *rawOut) Queues() []txQueue { return o.queues }

func (o *rawOut) SentBytes() (n uint64) {
	for _, s := range o.streams {
		n += s.Bytes() + fcsBytes*s.Sent()
	}
	return n
}

// Failed is what the device's own counters do not have: WRs that failed or were never executed, and frames that the
// medium did not take.
func (o *rawOut) Failed() (frames, bytes uint64) {
	c := o.dev.Counters()
	for _, s := range o.streams {
		frames += s.Sent()
		bytes += s.Bytes()
	}
	frames, bytes = frames+o.helloFrames, bytes+o.helloBytes
	left, leftBytes := c.TxFrames-c.TxLost, c.TxBytes-c.TxLostBytes
	frames -= min(frames, left)
	if frames == 0 {
		return 0, 0 // a medium that pads has more bytes
	}
	return frames, bytes - min(bytes, leftBytes) + fcsBytes*frames
}

func (o *rawOut) Pending() (n int) {
	for _, q := range o.txs {
		q.Reclaim()
		n += q.Outstanding()
	}
	return n
}

// Err is the device's error, of which those of its queues follow, or else a queue's.
func (o *rawOut) Err() error {
	if err := o.dev.Err(); err != nil {
		return err
	}
	for _, q := range o.txs {
		if err := q.Err(); err != nil {
			return err
		}
	}
	return nil
}

// helloWaitNS bounds how long a hello may take to leave.
const helloWaitNS = 100_000_000

// Hello sends a marked frame on its own queue and waits until it has left, so
// that it is before or behind all frames of the run.
func (o *rawOut) Hello(kind uint32, total uint64) error {
	f := o.plan.Frames[0]
	if f.TagOff < 0 {
		return nil // no tags, no marks
	}
	f, err := buildFrame(o.plan.configOf(o.plan.Queues, o.helloFrames), f.SizeBytes, 0, false)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	o.helloKey.Put(f.Bytes[f.TagOff:], kind, total, 0)
	tmpl, err := o.plan.newTemplate(f.Bytes)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	var buf [1][]byte
	for end := o.clk.Now() + helloWaitNS; o.hello.Reserve(buf[:]) == 0; {
		if o.clk.Now() > end {
			return errors.New("hello: the send queue is full")
		}
	}
	n := tmpl.Write(buf[0], 0, 0)
	if _, err := o.hello.Commit([]int{n}); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if err := o.hello.Flush(); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	o.helloFrames, o.helloBytes = o.helloFrames+1, o.helloBytes+uint64(n)
	for end := o.clk.Now() + helloWaitNS; o.hello.Outstanding() > 0 && o.clk.Now() < end; {
		o.hello.Reclaim()
	}
	return o.Err()
}

// rawIn is a raw receive queue as a receiver sees it.
type rawIn struct {
	q    *raw.RxQueue
	dev  *engine.Device
	head proto.Headers
	ud   proto.UD
	// guessID: the identifications of IPv4 packets are not known, only made up.
	guessID bool
}

// Poll hands out what has come.
func (r *rawIn) Poll(frames []raw.RxFrame) (int, error) {
	n := r.q.Poll(frames)
	if n == 0 {
		if err := r.q.Err(); err != nil {
			return 0, err
		}
		return 0, r.dev.Err()
	}
	return n, nil
}

// Describe does not compute a checksum again that the device vouches for.
func (r *rawIn) Describe(in *raw.RxFrame, a *arrival) {
	h := &r.head
	*a = arrival{Data: in.Data}
	if end, ok := plainUDP(in.Data); ok {
		a.TagEnd = end
		return
	}
	if !proto.Parse(in.Data, h) {
		return
	}
	if h.DstPort == proto.RoCEPort && r.describeDatagram(in, a) {
		return
	}
	if in.Flags&engine.WCCsumOK == 0 {
		a.Corrupt = isCorrupt(in.Data, h)
	}
	a.Fragment = h.Fragment && !a.Corrupt // a header that is wrong says nothing of fragments
	if h.Status == proto.OK && !h.Fragment {
		a.TagEnd = h.PayloadEnd
	}
}

// isCorrupt verifies the checksums there are. That of an IPv4 header comes first: whatever else is odd about the
// frame may be due to the bit that it finds.
func isCorrupt(frame []byte, h *proto.Headers) bool {
	if hasWrongIPv4(frame, h) {
		return true
	}
	segment := h.PayloadEnd - h.L4Off
	whole := h.Status == proto.OK || h.Status == proto.BadL4 && h.L4Proto == proto.ProtoTCP && segment >= proto.TCPBytes
	return whole && !h.Fragment && !h.Routed && !csum.VerifyL4(frame, h.L3Off, h.L4Off, h.PayloadEnd, h.L4Proto)
}

func hasWrongIPv4(frame []byte, h *proto.Headers) bool {
	ip := frame[h.L3Off:]
	if h.EtherType != proto.EtherTypeIPv4 || len(ip) < proto.IPv4Bytes || ip[0]>>4 != 4 {
		return false
	}
	n := int(ip[0]&15) * 4
	return n >= proto.IPv4Bytes && n <= len(ip) && !csum.VerifyIPv4(ip[:n])
}

// Release gives the n oldest frames back.
func (r *rawIn) Release(n int) error {
	r.q.Release(n)
	return nil
}
