package engine

import (
	"fmt"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// AHAttr says where datagrams go, on Ethernet.
type AHAttr = ring.AVFields

// AH is the address of a datagram's destination. It is made once and may be
// used by any number of requests, from any goroutine.
type AH struct {
	pd *PD
	av ring.AV
}

// NewAH makes an address. The next hop's MAC is in it: nothing is resolved.
func (p *PD) NewAH(a AHAttr) (*AH, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	if err := p.dev.checkAH(&a); err != nil {
		return nil, fmt.Errorf("engine: %s: address of %v: %w", p.dev.caps.Name, GID(a.GID), err)
	}
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.closed {
		return nil, closed("protection domain")
	}
	if p.dev.ahs >= p.dev.caps.MaxAH { // F-06
		return nil, fmt.Errorf("engine: %s: all %d addresses are in use: %w", p.dev.caps.Name, p.dev.caps.MaxAH, syscall.ENOMEM)
	}
	p.users++
	p.dev.ahs++
	return &AH{pd: p, av: ring.MakeAV(&a)}, nil
}

// Attr gives the address.
func (a *AH) Attr() AHAttr {
	if a == nil {
		return AHAttr{}
	}
	return a.av.Fields()
}

// Close ends the address. A second Close does nothing.
func (a *AH) Close() error {
	if a == nil || a.pd == nil {
		return nil
	}
	p := a.pd
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if a.pd != nil {
		a.pd = nil
		p.users--
		p.dev.ahs--
	}
	return nil
}

// checkAH judges an address. Static rates are 0, none, or the codes of libmlx5:
// five more than ibv_rate, which has 2 to 10.
func (d *Device) checkAH(a *AHAttr) error {
	switch {
	case a.SL > 7:
		return fmt.Errorf("service level %d, at most 7: %w", a.SL, syscall.EINVAL)
	case a.Rate != 0 && (a.Rate < 7 || a.Rate > 15): // F-05
		return fmt.Errorf("static rate code %d, want 0 or 7..15: %w", a.Rate, syscall.EINVAL)
	case a.FlowLabel > maxFlowLabel:
		return fmt.Errorf("flow label 0x%x, at most 0x%x: %w", a.FlowLabel, maxFlowLabel, syscall.EINVAL)
	case GID(a.GID) == GID{}: // F-01
		return fmt.Errorf("no GID given, and Ethernet has no address without one: %w", syscall.EINVAL)
	case int(a.SGIDIndex) >= len(d.gids): // F-03
		return fmt.Errorf("GID index %d, the table has %d: %w", a.SGIDIndex, len(d.gids), syscall.EINVAL)
	}
	return nil
}
