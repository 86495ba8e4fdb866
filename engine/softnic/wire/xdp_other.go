//go:build !linux

package wire

import (
	"fmt"
	"runtime"
)

// OpenXDP needs Linux.
func OpenXDP(ifname string, _ XDPOptions) (Wire, error) {
	return nil, fmt.Errorf("%w: xdp:%s needs Linux's AF_XDP sockets, this is %s; loop: and pcap: work", ErrPlatform, ifname, runtime.GOOS)
}
