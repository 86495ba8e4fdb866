//go:build !linux

package wire

import (
	"fmt"
	"runtime"
)

// OpenUDP needs Linux.
func OpenUDP(addr string, _ UDPOptions) (Wire, error) {
	return nil, fmt.Errorf("%w: udp:%s needs Linux's UDP sockets, this is %s; loop: and pcap: work", ErrPlatform, addr, runtime.GOOS)
}
