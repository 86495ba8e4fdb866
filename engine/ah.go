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
	if a.SL > 7 || a.Rate > 15 || a.FlowLabel > 0xfffff {
		return nil, fmt.Errorf("engine: %s: address with service level %d, rate %d, flow label 0x%x: %w",
			p.dev.caps.Name, a.SL, a.Rate, a.FlowLabel, syscall.EINVAL)
	}
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if p.closed {
		return nil, closed("protection domain")
	}
	p.users++
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
	}
	return nil
}
