//go:build !linux

package traffic

import "github.com/bluering/bluering/cmd/internal/results"

func stateOf(ifname, otherwise string) string { return otherwise }

func driverOf(ifname string) string { return "" }

func interfaceFacts(uri, ifname, ns string) (*PortFacts, error) {
	return nil, results.Usage("port", uri, "kernel interfaces need Linux; use loop: or pcap:FILE")
}
