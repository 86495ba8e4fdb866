//go:build !linux

package traffic

import "net/netip"

func carriesDefaultRoute(ifname, ns string) (bool, error) { return false, nil }

func neighbour(tx *PortFacts, dst netip.Addr) (mac [6]byte, err error) {
	return mac, usage("dmac", "", "no neighbour table here; use --dmac MAC or --rx PORT")
}
