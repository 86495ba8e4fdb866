package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// Device is an open device. Its methods may be called from any goroutine, but
// Progress and Wait belong to the owner of its queues.
type Device struct {
	b    Backend
	caps Caps
	gids []GIDEntry

	mu     sync.Mutex // control state; never taken on a hot path
	mrs    *mrTable
	pds    []*PD
	cqs    []*CQ
	qps    atomic.Pointer[[]*QP] // by user index; copied on change
	live   int                   // queue pairs
	ahs    int                   // address handles
	nextPD uint32
	def    *PD
	strays atomic.Uint64
	srqs   int

	channels []*Channel
	hub      hub
	closed   atomic.Bool
}

// firstUserIndex keeps index 0 for CQEs that carry none.
const firstUserIndex = 1

// NewDevice makes a device of a backend, which it then owns.
func NewDevice(b Backend) (*Device, error) {
	if b == nil {
		return nil, fmt.Errorf("engine: no backend given: %w", syscall.EINVAL)
	}
	c := b.Caps()
	if c.MinInline != 0 && c.MinInline != ring.EthInline18 {
		return nil, fmt.Errorf("engine: %s: inline minimum of %d bytes, want 0 or 18: %w", c.Name, c.MinInline, syscall.EINVAL)
	}
	if c.Profile > ProfileMLX5 {
		return nil, fmt.Errorf("engine: %s: %v is unknown: %w", c.Name, c.Profile, syscall.EINVAL)
	}
	c.fill()
	d := &Device{b: b, caps: c, mrs: newMRTable(), gids: b.GIDs()}
	if len(d.gids) > maxGIDs {
		d.gids = d.gids[:maxGIDs]
	}
	qps := make([]*QP, firstUserIndex)
	d.qps.Store(&qps)
	d.hub.init()
	b.Notify(d.hub.take)
	return d, nil
}

// fill replaces limits that were not told by those of the format.
func (c *Caps) fill() {
	set := func(v *int, n int) {
		if *v <= 0 {
			*v = n
		}
	}
	set(&c.MaxQP, 1<<16)
	set(&c.MaxCQ, 1<<16)
	set(&c.MaxMR, maxMRs-1)
	set(&c.MaxSRQ, 1<<16)
	set(&c.MaxSRQWR, ring.MaxSRQEntries-1)
	set(&c.MaxSRQSGE, 31)
	set(&c.MaxCQE, ring.MaxCQEntries-1)
	set(&c.MaxSendWR, ring.MaxSlots)
	set(&c.MaxRecvWR, ring.MaxRQEntries)
	set(&c.MaxSendSGE, 30)
	set(&c.MaxRecvSGE, 32)
	set(&c.MaxInline, 828)
	set(&c.MaxTSOHeader, 256)
	set(&c.MaxAH, 1<<16)
	set(&c.MaxFrame, 1<<16)
	set(&c.MinFrame, 14)
}

func (d *Device) usable() error {
	if d == nil || d.b == nil {
		return closed("device")
	}
	if d.closed.Load() {
		return closed("device " + d.caps.Name)
	}
	return nil
}

// Caps tells what the device is and can do.
func (d *Device) Caps() Caps {
	if d == nil {
		return Caps{}
	}
	return d.caps
}

// Backend gives the backend, for what only its provider knows.
func (d *Device) Backend() Backend {
	if d == nil {
		return nil
	}
	return d.b
}

// Counters gives what the device has done since it was opened.
func (d *Device) Counters() (c Counters) {
	if d.usable() == nil {
		d.b.Counters(&c)
		c.StrayCQEs += d.strays.Load()
		d.hub.mu.Lock()
		c.LostEvents += d.hub.lost
		d.hub.mu.Unlock()
	}
	return c
}

// Progress runs a device without a goroutine of its own for about budget
// packets, and tells how much it did. CQ.Poll does so by itself when it finds
// nothing.
func (d *Device) Progress(budget int) int {
	if d.usable() != nil || budget <= 0 {
		return 0
	}
	return d.b.Progress(budget)
}

// Wait parks until something may have come, or timeoutNS have passed; below 0
// means any time. It may return early. First Progress, then poll; nothing
// there: Wait.
func (d *Device) Wait(timeoutNS int64) error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.b.Wait(timeoutNS)
}

// Err gives what made the device useless, nil while it is healthy.
func (d *Device) Err() error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.b.Err()
}

// Close ends the device and all that was made of it. The owners of its queues
// must have stopped. A second Close does nothing.
func (d *Device) Close() error {
	if d == nil || d.b == nil || !d.closed.CompareAndSwap(false, true) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	close(d.hub.closed)
	for _, ch := range d.channels {
		ch.mu.Lock()
		ch.end()
		ch.mu.Unlock()
	}
	d.channels = nil
	for _, q := range *d.qps.Load() {
		if q != nil {
			q.closed.Store(true)
		}
	}
	errs = append(errs, d.b.Close())
	for _, p := range d.pds {
		errs = append(errs, p.closeMemory())
	}
	return errors.Join(errs...)
}

// PD is a protection domain: queue pairs work on its memory only.
type PD struct {
	dev    *Device
	num    uint32
	users  int // MRs, QPs, AHs
	pools  []*Pool
	closed bool
}

// NewPD makes a protection domain; nil when the device is closed.
func (d *Device) NewPD() *PD {
	if d.usable() != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.addPD()
}

func (d *Device) addPD() *PD {
	d.nextPD++
	p := &PD{dev: d, num: d.nextPD}
	d.pds = append(d.pds, p)
	return p
}

// DefaultPD gives a protection domain that is made at the first call; nil when
// the device is closed.
func (d *Device) DefaultPD() *PD {
	if d.usable() != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.def == nil || d.def.closed {
		d.def = d.addPD()
	}
	return d.def
}

func (p *PD) usable() error {
	if p == nil || p.dev == nil {
		return closed("protection domain")
	}
	return p.dev.usable()
}

// Device gives the device.
func (p *PD) Device() *Device {
	if p == nil {
		return nil
	}
	return p.dev
}

// Close ends the domain; EBUSY while a queue pair, region, pool or address is
// left. A second Close does nothing.
func (p *PD) Close() error {
	if p == nil || p.dev == nil {
		return nil
	}
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.closed || d.closed.Load() {
		return nil
	}
	if p.users > 0 {
		return fmt.Errorf("engine: %s: protection domain %d has %d users: %w", d.caps.Name, p.num, p.users, syscall.EBUSY)
	}
	p.closed = true
	for i, o := range d.pds {
		if o == p {
			d.pds = append(d.pds[:i], d.pds[i+1:]...)
			break
		}
	}
	return nil
}

// closeMemory gives back the pools' memory after the device has closed.
func (p *PD) closeMemory() error {
	var errs []error
	for _, pool := range p.pools {
		errs = append(errs, pool.mem.Close())
		pool.closed = true
	}
	p.pools = nil
	p.closed = true
	return errors.Join(errs...)
}
