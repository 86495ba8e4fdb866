package traffic

import (
	"fmt"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/bluering/bluering/cmd/internal/results"
	"github.com/bluering/bluering/engine/device"
)

// ListedPort is one row of `pktgen list`.
type ListedPort struct {
	URI      string `json:"uri"`
	Kind     string `json:"kind"`
	IsWire   bool   `json:"is_wire"`
	State    string `json:"state"`
	MAC      string `json:"mac"`
	MTU      int    `json:"mtu_bytes"`
	Driver   string `json:"driver"`
	IsMgmt   bool   `json:"carries_default_route"`
	Describe string `json:"description"`
}

// List is what this machine can be asked for: the devices that need no
// hardware, then its interfaces.
func List() ([]ListedPort, error) {
	ports := []ListedPort{
		{URI: "loop:", Kind: "loop", State: "ready", MTU: 0, Describe: "two ports in this process; ?speed= &delay= &loss= ... shape it"},
		{URI: "pcap:FILE", Kind: "pcap", State: "ready", Describe: "a sender writes the file, a receiver reads it"},
	}
	entries, err := device.List()
	for _, e := range entries {
		kind, name, _ := strings.Cut(e.URI, ":")
		if kind == "loop" {
			continue
		}
		p := ListedPort{URI: e.URI, Kind: kind, IsWire: true, State: "down", MAC: e.MAC, MTU: e.MTU}
		if e.Up {
			p.State = "up"
		}
		if kind == "udp" {
			p.Describe = "RoCE v2 datagrams only, needs no privilege"
			addr, _ := netip.ParseAddr(name) // the zero Addr is of no interface
			name, _ = interfaceOf(addr.WithZone(""), "")
		} else {
			p.State, p.Driver = stateOf(name, p.State), driverOf(name)
		}
		p.IsMgmt, _ = carriesDefaultRoute(name, "") // what cannot be read, opening the port will tell
		ports = append(ports, p)
	}
	return ports, err
}

// ListText is the list as a table.
func ListText(ports []ListedPort) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PORT\tSTATE\tMAC\tMTU\tDRIVER\tNOTE")
	for _, p := range ports {
		mtu := "-"
		if p.MTU > 0 {
			mtu = fmt.Sprint(p.MTU)
		}
		note := p.Describe
		if p.IsMgmt {
			note = "default route: refused without --allow-mgmt"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.URI, p.State, results.OrDash(p.MAC), mtu, results.OrDash(p.Driver), note)
	}
	w.Flush()
	return b.String()
}

// PortText is what `pktgen probe` prints.
func PortText(p *PortFacts) string {
	s := fmt.Sprintf("%s: ready\n  backend %s\n  mac %s\n  link %s\n", strings.TrimSuffix(p.URI, ":"), backendText(&p.Port), results.OrDash(p.MAC), results.Speed(p.SpeedBPS))
	if p.MaxFrame > 0 {
		s += fmt.Sprintf("  largest frame %d B with FCS, %d with a VLAN tag\n", p.MaxFrame+fcsBytes-vlanBytes, p.MaxFrame+fcsBytes)
	}
	for _, a := range []string{p.Addr4.String(), p.Addr6.String()} {
		if a != "invalid IP" {
			s += fmt.Sprintf("  address %s\n", a)
		}
	}
	return s
}

// Facts looks a port up for a plan. A kernel interface is only read about, not
// opened, so that planning needs no privilege.
func Facts(uri string) (*PortFacts, error) {
	if ifname, netns, ok := kernelPort(uri); ok {
		return interfaceFacts(uri, ifname, netns)
	}
	return Probe(uri)
}
