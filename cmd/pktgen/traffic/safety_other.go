//go:build !linux

package traffic

import (
	"net/netip"

	"github.com/bluering/bluering/cmd/internal/results"
)

func carriesDefaultRoute(ifname, ns string) (bool, error) { return false, nil }

func interfaceOf(addr netip.Addr, ns string) (ifname string, err error) { return "", nil }

func neighbour(tx *PortFacts, dst netip.Addr) (mac [6]byte, err error) {
	return mac, results.Usage("dmac", "", "no neighbour table here; use --dmac MAC or --rx PORT")
}
