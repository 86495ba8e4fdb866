package wire

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Network is what a wire can do beside carrying frames when it is one end of an IP network. NetworkOf finds it
// behind an Impair or a Tap. Its methods may be called from any goroutine.
type Network interface {
	// Addrs gives the end's own addresses, the one in Info first of its family. The caller may keep it.
	Addrs() []netip.Addr
	// NextHop gives the MAC to which frames for an address go from here, and waits for an answer until ctx ends.
	NextHop(ctx context.Context, to netip.Addr) ([6]byte, error)
	// Join asks the network for a group's frames, Leave ends it. Each is called once for a group.
	Join(group netip.Addr) error
	Leave(group netip.Addr) error
	// HoldRoCE keeps the host from answering for the RoCE port, as long as the wire is open. It is called at most
	// once, before the first datagram.
	HoldRoCE() error
}

// NetworkOf finds the network of a wire; nil when it has none.
func NetworkOf(w Wire) Network {
	for {
		if n, ok := w.(Network); ok {
			return n
		}
		u, ok := w.(interface{ Unwrap() Wire })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

// Unwrap gives the wire that is impaired.
func (m *Impair) Unwrap() Wire { return m.Wire }

// Unwrap gives the wire that is recorded.
func (t *Tap) Unwrap() Wire { return t.Wire }

// A loop is a network of two hosts.

// Addrs gives the port's addresses.
func (e *loopEnd) Addrs() []netip.Addr { return []netip.Addr{e.info.Addr4, e.info.Addr6} }

// NextHop knows both ports of the switch, open or not.
func (e *loopEnd) NextHop(_ context.Context, to netip.Addr) ([6]byte, error) {
	if slices.Contains(e.Addrs(), to) {
		return e.info.MAC, nil
	}
	if p := e.sw.info(1 - e.port); to == p.Addr4 || to == p.Addr6 {
		return e.info.PeerMAC, nil
	}
	return [6]byte{}, fmt.Errorf("wire: %s: no port has the address %v: %w", e.info.Name, to, syscall.EHOSTUNREACH)
}

// Join does nothing: a switch of two ports floods.
func (e *loopEnd) Join(netip.Addr) error { return nil }

// Leave does nothing.
func (e *loopEnd) Leave(netip.Addr) error { return nil }

// HoldRoCE does nothing: there is no kernel behind a loop.
func (e *loopEnd) HoldRoCE() error { return nil }
