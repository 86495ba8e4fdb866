package device

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
)

// Entry is one device that could be opened now.
type Entry struct {
	URI   string
	MAC   string
	MTU   int
	Up    bool
	About string
}

// List gives the devices of this machine: a loop, which is always there, and on Linux the network interfaces of the
// caller's namespace with their addresses. A capture file is named by the user.
func List() ([]Entry, error) {
	list := []Entry{{URI: "loop:", MTU: 9000, Up: true, About: "in-process switch, needs no privilege"}}
	if runtime.GOOS != "linux" { // where no wire knows interfaces
		return list, nil
	}
	ifs, err := net.Interfaces() // by netlink, so of this very namespace
	if err != nil {
		return list, fmt.Errorf("device: list interfaces: %w", err)
	}
	for _, i := range ifs {
		about := "network interface"
		loopback := i.Flags&net.FlagLoopback != 0
		if loopback {
			about = "the kernel's loopback interface"
		}
		if len(i.HardwareAddr) == 6 || loopback { // else no Ethernet: a packet wire cannot use it
			list = append(list, Entry{URI: "packet:" + i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU,
				Up: i.Flags&net.FlagUp != 0, About: about})
		}
		if len(i.HardwareAddr) == 6 && !loopback { // frames of a loopback interface are longer than AF_XDP's
			list = append(list, Entry{URI: "xdp:" + i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU,
				Up: i.Flags&net.FlagUp != 0, About: about + ", past the kernel's stack"})
		}
		addrs, err := i.Addrs()
		if err != nil {
			return list, fmt.Errorf("device: list addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if u, ok := udpEntry(i, a); ok {
				list = append(list, u)
			}
		}
	}
	return list, nil
}

// udpEntry is the device on an address of an interface.
func udpEntry(i net.Interface, a net.Addr) (Entry, bool) {
	p, err := netip.ParsePrefix(a.String())
	if err != nil {
		return Entry{}, false
	}
	ip := p.Addr()
	if ip.IsLinkLocalUnicast() && ip.Is6() {
		ip = ip.WithZone(i.Name)
	}
	return Entry{URI: "udp:" + ip.String(), MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, About: "datagrams over UDP on " + i.Name + ", needs no privilege"}, true
}
