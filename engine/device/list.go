package device

import (
	"fmt"
	"net"
)

// Entry is one device that could be opened now.
type Entry struct {
	URI   string
	MAC   string
	MTU   int
	Up    bool
	About string
}

// List gives the devices of this machine: a loop, which is always there, and the network interfaces of the
// caller's namespace. A capture file is named by the user.
func List() ([]Entry, error) {
	list := []Entry{{URI: "loop:", MTU: 9000, Up: true, About: "in-process switch, needs no privilege"}}
	ifs, err := net.Interfaces() // by netlink on Linux, so of this very namespace
	if err != nil {
		return list, fmt.Errorf("device: list interfaces: %w", err)
	}
	for _, i := range ifs {
		about := "network interface"
		switch {
		case i.Flags&net.FlagLoopback != 0:
			about = "the kernel's loopback interface"
		case len(i.HardwareAddr) != 6:
			continue // no Ethernet: a packet wire cannot use it
		}
		list = append(list, Entry{URI: "packet:" + i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU,
			Up: i.Flags&net.FlagUp != 0, About: about})
	}
	return list, nil
}
