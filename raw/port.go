package raw

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// Defaults of PortConfig.
const (
	DefaultDepth      = 1024
	defaultFrameBytes = 2048
	maxFrameBytes     = 1 << 16
	linkBytes         = 22 // Ethernet header and two VLAN tags
)

// ErrClosed is what a queue answers after its port was closed.
var ErrClosed = errors.New("raw: closed")

// PortConfig asks for a port. The zero value is one queue each way, 1024 deep.
type PortConfig struct {
	TxQueues, RxQueues int // 0: one; below 0: none
	TxDepth, RxDepth   int // frames of a queue; 0: DefaultDepth
	FrameBytes         int // room for one frame; 0: the device's MTU, at least 2048
	// TSO prepares the transmit queues for CommitTSO and SendTSO; FrameBytes is
	// then also the longest payload.
	TSO bool
	// IPCsum leaves the IPv4, TCP and UDP checksums of frames that are
	// committed to the device. Streams have a setting of their own.
	IPCsum bool
	// RxCsum has the device check the checksums of received frames: WCCsumOK.
	RxCsum bool
	// Rule says which frames a receive queue gets; nil: all that nobody else
	// takes. Two queues with the same rule get a copy each; Rules[i], where it
	// is there, is for queue i instead.
	Rule  *engine.FlowRule
	Rules []engine.FlowRule
	// RSS has the receive queues share the frames of Rule: a hash over these
	// fields chooses the queue, so that a flow stays in one. 0: no. Then Rules
	// have no meaning, and are refused.
	RSS engine.RSSFields
}

// Port is a device with transmit and receive queues. Each queue has one owner
// goroutine; NewPort and Close belong to none of them.
type Port struct {
	dev    *engine.Device
	caps   engine.Caps
	cfg    PortConfig
	tx     []*TxQueue
	rx     []*RxQueue
	rss    *engine.RSS // nil: each receive queue has a rule of its own
	closed atomic.Bool
}

// NewPort makes the queues on a device, which stays the caller's to close.
func NewPort(dev *engine.Device, c PortConfig) (*Port, error) {
	if err := dev.Err(); err != nil {
		return nil, fmt.Errorf("raw: new port: %w", err)
	}
	p := &Port{dev: dev, caps: dev.Caps(), cfg: c}
	if err := p.fill(); err != nil {
		return nil, err
	}
	for i := range p.cfg.TxQueues {
		q, err := newTxQueue(p, i)
		if err != nil {
			_ = p.Close() // the first error says what happened
			return nil, fmt.Errorf("raw: %s: transmit queue %d: %w", p.caps.Name, i, err)
		}
		p.tx = append(p.tx, q)
	}
	for i := range p.cfg.RxQueues {
		q, err := newRxQueue(p, i)
		if err != nil {
			_ = p.Close() // the first error says what happened
			return nil, fmt.Errorf("raw: %s: receive queue %d: %w", p.caps.Name, i, err)
		}
		p.rx = append(p.rx, q)
	}
	if p.cfg.RSS != 0 {
		if err := p.spread(); err != nil {
			_ = p.Close() // the first error says what happened
			return nil, fmt.Errorf("raw: %s: receive hash over fields 0x%x: %w", p.caps.Name, uint32(p.cfg.RSS), err)
		}
	}
	return p, nil
}

// leastTable is the length of the table of receive queues that are no power of
// two: with three of them, one has a 64th more of it than the others.
const leastTable = 128

// spread has the receive queues share what the rule names.
func (p *Port) spread() (err error) {
	n := len(p.rx)
	if n&(n-1) != 0 {
		n = max(1<<bits.Len(uint(n)), min(leastTable, p.caps.MaxRSSTable))
	}
	table := make([]*engine.QP, n)
	for i := range table {
		table[i] = p.rx[i%len(p.rx)].qp
	}
	if p.rss, err = p.dev.DefaultPD().NewRSS(engine.RSSConfig{Fields: p.cfg.RSS, Table: table}); err != nil {
		return err
	}
	_, err = p.rss.Attach(p.cfg.rule(0))
	return err
}

func (p *Port) fill() error {
	c := &p.cfg
	for _, n := range []*int{&c.TxQueues, &c.RxQueues} {
		if *n == 0 {
			*n = 1
		}
		*n = max(*n, 0)
	}
	if c.FrameBytes == 0 {
		c.FrameBytes = min(max(defaultFrameBytes, p.caps.MTU+linkBytes), maxFrameBytes)
	}
	if c.FrameBytes < p.caps.MinFrame || c.FrameBytes > maxFrameBytes {
		return fmt.Errorf("raw: %s: frames of %d bytes, want %d..%d: %w", p.caps.Name, c.FrameBytes, p.caps.MinFrame, maxFrameBytes, syscall.EINVAL)
	}
	if c.RSS != 0 && (len(c.Rules) > 0 || c.RxQueues == 0) {
		return fmt.Errorf("raw: %s: a receive hash of %d queues, want some, and %d rules, want none: %w", p.caps.Name, c.RxQueues, len(c.Rules), syscall.EINVAL)
	}
	for _, d := range []struct {
		name string
		n    *int
		most int
	}{{"transmit", &c.TxDepth, p.caps.MaxSendWR}, {"receive", &c.RxDepth, p.caps.MaxRecvWR}} {
		if *d.n == 0 {
			*d.n = min(DefaultDepth, d.most)
		}
		if *d.n < 1 || *d.n > d.most {
			return fmt.Errorf("raw: %s: %s depth %d, want 1..%d: %w", p.caps.Name, d.name, *d.n, d.most, syscall.EINVAL)
		}
	}
	return nil
}

// rule is the flow rule of receive queue i.
func (c *PortConfig) rule(i int) engine.FlowRule {
	switch {
	case i < len(c.Rules):
		return c.Rules[i]
	case c.Rule != nil:
		return *c.Rule
	}
	return engine.FlowRule{Kind: engine.FlowAll}
}

// Caps tells what the device is and can do.
func (p *Port) Caps() engine.Caps { return p.caps }

// Device gives the device under the port.
func (p *Port) Device() *engine.Device { return p.dev }

// TxQueues is the number of transmit queues.
func (p *Port) TxQueues() int { return len(p.tx) }

// RxQueues is the number of receive queues.
func (p *Port) RxQueues() int { return len(p.rx) }

// Tx is transmit queue i, nil if there is none.
func (p *Port) Tx(i int) *TxQueue {
	if i < 0 || i >= len(p.tx) {
		return nil
	}
	return p.tx[i]
}

// Rx is receive queue i, nil if there is none.
func (p *Port) Rx(i int) *RxQueue {
	if i < 0 || i >= len(p.rx) {
		return nil
	}
	return p.rx[i]
}

// Close destroys the queues; frames that have not left are lost. The owners of
// the queues must have stopped. A second Close does nothing.
func (p *Port) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	errs := []error{p.rss.Close()}
	for _, q := range p.tx {
		errs = append(errs, q.close())
	}
	for _, q := range p.rx {
		errs = append(errs, q.close())
	}
	return errors.Join(errs...)
}

// queueParts is what one queue is made of.
type queueParts struct {
	cq   *engine.CQ
	qp   *engine.QP
	pool *engine.Pool
}

// newParts makes a CQ, a QP in RTS or RTR, and a pool.
func newParts(p *Port, c engine.QPConfig, depth int, to engine.QPState) (q queueParts, err error) {
	defer func() {
		if err != nil {
			_ = q.close() // the first error says what happened
		}
	}()
	if q.cq, err = p.dev.NewCQ(depth); err != nil {
		return q, err
	}
	c.Type, c.SendCQ, c.RecvCQ = engine.RawPacket, q.cq, q.cq
	pd := p.dev.DefaultPD()
	if q.qp, err = pd.NewQP(c); err != nil {
		return q, err
	}
	if q.pool, err = pd.AllocPool(depth, p.cfg.FrameBytes); err != nil {
		return q, err
	}
	return q, q.qp.MoveTo(to, engine.QPAttr{})
}

func (q *queueParts) close() error {
	return errors.Join(q.qp.Close(), q.cq.Close(), q.pool.Close())
}
