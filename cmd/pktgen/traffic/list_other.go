//go:build !linux

package traffic

import "github.com/bluering/bluering/cmd/internal/results"

func listInterfaces() ([]ListedPort, error) { return nil, nil }

func interfaceFacts(uri, ifname, ns string) (*PortFacts, error) {
	return nil, results.Usage("port", uri, "kernel interfaces need Linux; use loop: or pcap:FILE")
}
