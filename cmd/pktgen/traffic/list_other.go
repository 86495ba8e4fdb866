//go:build !linux

package traffic

func listInterfaces() ([]ListedPort, error) { return nil, nil }

func interfaceFacts(uri, ifname, ns string) (*PortFacts, error) {
	return nil, usage("port", uri, "kernel interfaces need Linux; use loop: or pcap:FILE")
}
