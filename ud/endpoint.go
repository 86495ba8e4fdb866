package ud

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// grhBytes stand in front of each received datagram.
const grhBytes = 40

// Defaults of Config. The third is how often eRPC asks for a completion.
const (
	DefaultDepth = 512
	cacheLine    = 64
	signalEvery  = 64
	repostEvery  = 32
	pollBurst    = 64
)

// Errors of an endpoint. They come as they are: nothing is built on the way.
var (
	// ErrClosed: the endpoint, or the device under it, was closed.
	ErrClosed = errors.New("ud: closed")
	// ErrFull: all sends are outstanding. Poll, then try again.
	ErrFull = errors.New("ud: all sends are outstanding")
	// ErrLength: the datagram is longer than the path takes.
	ErrLength = errors.New("ud: datagram longer than the endpoint's limit")
	// ErrPeer: no peer has this handle, or it was forgotten.
	ErrPeer = errors.New("ud: unknown or forgotten peer")
	// ErrReleased: the message was released or answered already.
	ErrReleased = errors.New("ud: message released already")
	// ErrUnresolved: the next hop to the sender of a message is not known yet;
	// it is being looked for.
	ErrUnresolved = errors.New("ud: next hop to the sender not known yet")
	// ErrTimeout: nothing came in time.
	ErrTimeout = errors.New("ud: nothing received in time")
)

// Wakes says how Recv sleeps.
type Wakes uint8

// The ways to sleep. The first needs nothing of the device; the others use a
// completion channel, whose descriptor can be polled.
const (
	WakeByDevice    Wakes = iota
	WakeByEvent           // a completion of the endpoint wakes
	WakeBySolicited       // only a datagram whose sender asked for it wakes, and failures
)

// Config asks for an endpoint. The zero value is 512 deep each way.
type Config struct {
	SendDepth, RecvDepth int            // datagrams; 0: DefaultDepth
	Payload              int            // bytes of the longest datagram; 0: what the device takes
	Inline               int            // datagrams up to this many bytes travel in the request itself; 0: none
	SignalEvery          int            // ask for a completion of every so many sends; 0: 64, at most half of SendDepth
	QKey                 uint32         // that datagrams must show; 0: DefaultQKey
	PSN                  uint32         // of the first datagram, 24 bits
	GID                  engine.GID     // own address, one of Device.GIDs; zero: the first, or what fits a peer's family
	Wakes                Wakes          // of Recv
	Shared               *SharedReceive // memory and receive queue of several endpoints; RecvDepth is then its depth
}

// Counts is what an endpoint has done. A datagram counts as sent when its
// completion, or that of a later one, was polled.
type Counts struct {
	Sent, SentBytes         uint64
	SendErrors              uint64 // refused or failed
	Received, ReceivedBytes uint64 // payload bytes
	RecvErrors              uint64
}

// Endpoint is a UD queue pair with its memory. One goroutine owns it; only
// Peer, Forget, AddrOf, LocalAddr and Dial may be called by others meanwhile.
//
// Sends: Reserve as often as wanted, fill, then one Commit, which rings once.
// Receives: Poll, and for each message Release or Reply, in any order.
type Endpoint struct {
	dev  *engine.Device
	pd   *engine.PD
	cq   *engine.CQ
	qp   *engine.QP
	ch   *engine.Channel // nil without events
	name string
	cfg  Config
	sgid int // own address; engine.AnyGID: by the peer

	tx     transmit
	rx     *receive
	shared *SharedReceive // whose rx is; nil: the endpoint's own

	peers   peerTable
	replies replyCache
	wc      [pollBurst]engine.Completion
	one     [1]Msg
	batch   [pollBurst]Msg
	kept    []engine.Completion // receives that came while only sends were looked for
	keptIn  uint64
	keptOut uint64
	counts  Counts
	err     error
	closed  atomic.Bool
}

// New makes an endpoint on a device, which stays the caller's to close, before
// or after the endpoint. It receives from now on.
func New(dev *engine.Device, c Config) (*Endpoint, error) {
	if err := dev.Err(); err != nil {
		return nil, fmt.Errorf("ud: new endpoint: %w", err)
	}
	caps := dev.Caps()
	e := &Endpoint{dev: dev, name: caps.Name, cfg: c, sgid: engine.AnyGID}
	if err := e.cfg.fill(&caps); err != nil {
		return nil, fmt.Errorf("ud: %s: %w", caps.Name, err)
	}
	err := e.chooseGID()
	if err == nil {
		err = e.build()
	}
	if err != nil {
		_ = e.Close() // the first error says what happened
		return nil, fmt.Errorf("ud: %s: new endpoint: %w", caps.Name, err)
	}
	return e, nil
}

// fill replaces what was left open and checks the rest.
func (c *Config) fill(caps *engine.Caps) error {
	if caps.Features&engine.FeatureUD == 0 {
		return fmt.Errorf("the device has no UD datagrams: %w", syscall.EOPNOTSUPP)
	}
	defaults := func(v *int, n int) {
		if *v == 0 {
			*v = n
		}
	}
	payload := caps.MaxDatagram
	if c.Shared != nil {
		c.RecvDepth, payload = len(c.Shared.rx.frames), min(payload, c.Shared.payload)
	}
	defaults(&c.SendDepth, min(DefaultDepth, caps.MaxSendWR))
	defaults(&c.RecvDepth, min(DefaultDepth, caps.MaxRecvWR))
	defaults(&c.Payload, payload)
	defaults(&c.SignalEvery, max(min(signalEvery, c.SendDepth/2), 1))
	if c.QKey == 0 {
		c.QKey = DefaultQKey
	}
	for _, l := range []struct {
		name           string
		n, least, most int
	}{
		{"send depth", c.SendDepth, 1, caps.MaxSendWR}, {"receive depth", c.RecvDepth, 1, caps.MaxRecvWR},
		{"payload", c.Payload, 1, payload}, {"inline", c.Inline, 0, caps.MaxInline},
		{"signal every", c.SignalEvery, 1, max(c.SendDepth/2, 1)}, {"PSN", int(c.PSN), 0, 1<<24 - 1},
		{"wakes", int(c.Wakes), 0, int(WakeBySolicited)},
	} {
		if l.n < l.least || l.n > l.most {
			return fmt.Errorf("%s %d, want %d..%d: %w", l.name, l.n, l.least, l.most, syscall.EINVAL)
		}
	}
	return nil
}

func (e *Endpoint) chooseGID() error {
	if e.cfg.GID == (engine.GID{}) {
		return nil
	}
	for _, g := range e.dev.GIDs() {
		if g.GID == e.cfg.GID {
			e.sgid = g.Index
			return nil
		}
	}
	return fmt.Errorf("own address %v is none of the device's: %w", e.cfg.GID, syscall.EADDRNOTAVAIL)
}

func (e *Endpoint) build() (err error) {
	c := &e.cfg
	if c.Shared != nil {
		if err := c.Shared.join(e); err != nil {
			return err
		}
	} else if e.pd = e.dev.NewPD(); e.pd == nil {
		return ErrClosed
	}
	if err = e.newCQ(c.SendDepth + c.RecvDepth); err != nil {
		return err
	}
	q := engine.QPConfig{Type: engine.UD, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: c.SendDepth, MaxRecvWR: c.RecvDepth, MaxInline: c.Inline}
	if e.shared != nil {
		q.SRQ = e.shared.srq
	}
	if e.qp, err = e.pd.NewQP(q); err != nil {
		return err
	}
	if err = e.tx.build(e.pd, c); err != nil {
		return err
	}
	// Receives may be posted from INIT on, so that no datagram finds the queue empty.
	if err = e.qp.MoveTo(engine.StateInit, engine.QPAttr{QKey: c.QKey}); err != nil {
		return err
	}
	if e.shared == nil {
		if e.rx, err = newReceive(e.pd, c.RecvDepth, c.Payload, e.qp.PostRecv); err != nil {
			return err
		}
		if err = e.rx.start(); err != nil {
			return err
		}
	}
	if err = e.qp.Modify(engine.StateRTR, engine.QPAttr{}, 0); err != nil {
		return err
	}
	return e.qp.Modify(engine.StateRTS, engine.QPAttr{SQPSN: c.PSN}, engine.AttrSQPSN)
}

func (e *Endpoint) newCQ(entries int) (err error) {
	if e.cfg.Wakes == WakeByDevice {
		e.cq, err = e.dev.NewCQ(entries)
		return err
	}
	if e.ch, err = e.dev.NewChannel(); err != nil {
		return err
	}
	e.cq, err = e.dev.NewCQOn(e.ch, entries)
	return err
}

// Channel gives the completion channel, for those who wait for its descriptor
// beside others; nil with WakeByDevice. Recv does all that by itself.
func (e *Endpoint) Channel() *engine.Channel { return e.ch }

// Arm asks for one event on the channel, of the kind that Config.Wakes says.
// What has come already makes none: Poll once more after it. With WakeByDevice
// it is an error.
func (e *Endpoint) Arm() error { return e.cq.Arm(e.cfg.Wakes == WakeBySolicited) }

// Device gives the device under the endpoint.
func (e *Endpoint) Device() *engine.Device { return e.dev }

// QP gives the queue pair, for what only it knows. Posting to it, or changing
// its state, breaks the endpoint.
func (e *Endpoint) QP() *engine.QP { return e.qp }

// LocalAddr is where others reach this endpoint. On a device with several
// addresses it has Config.GID, or the first.
func (e *Endpoint) LocalAddr() Addr {
	a := Addr{GID: e.cfg.GID, QPN: e.qp.QPN(), QKey: e.cfg.QKey}
	if gids := e.dev.GIDs(); a.GID == (engine.GID{}) && len(gids) > 0 {
		a.GID = gids[0].GID
	}
	return a
}

// MaxPayload is the length of the longest datagram, in bytes.
func (e *Endpoint) MaxPayload() int { return e.cfg.Payload }

// Counts is what the endpoint has done.
func (e *Endpoint) Counts() Counts { return e.counts }

// Err is the first thing that went wrong, nil while all is well.
func (e *Endpoint) Err() error {
	if e.gone() {
		return ErrClosed
	}
	return e.err
}

// Join makes the endpoint a member of a multicast group: it gets what is sent
// to GroupAddr with its Q_Key.
func (e *Endpoint) Join(group Addr) error { return e.qp.AttachMulticast(group.GID) }

// Leave ends a membership.
func (e *Endpoint) Leave(group Addr) error { return e.qp.DetachMulticast(group.GID) }

// gone reports whether the endpoint's memory may be gone.
func (e *Endpoint) gone() bool {
	return e.closed.Load() || e.qp.State() == engine.StateReset // which is what the queue pair of a closed device says
}

func (e *Endpoint) note(err error) error {
	if e.err == nil {
		e.err = err
	}
	return err
}

// Close destroys the queue pair; datagrams that have not left are lost, and the
// bytes of messages must not be touched any more. The owner must have stopped.
// A second Close does nothing.
func (e *Endpoint) Close() error {
	if !e.closed.CompareAndSwap(false, true) {
		return nil
	}
	errs := []error{e.qp.Close(), e.cq.Close(), e.ch.Close(), e.peers.close(), e.replies.close(), e.tx.pool.Close()}
	switch {
	case e.shared != nil:
		errs = append(errs, e.shared.leave())
	default:
		if e.rx != nil {
			errs = append(errs, e.rx.pool.Close())
		}
		errs = append(errs, e.pd.Close())
	}
	return errors.Join(errs...)
}
