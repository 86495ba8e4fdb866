//go:build !linux

package wire

import (
	"fmt"
	"runtime"
)

// OpenPacket needs Linux.
func OpenPacket(ifname string, _ PacketOptions) (Wire, error) {
	return nil, fmt.Errorf("%w: packet:%s needs Linux's packet sockets, this is %s; loop: and pcap: work", ErrPlatform, ifname, runtime.GOOS)
}
