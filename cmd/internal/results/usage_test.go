package results

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestReasonsAreInPlainWords(t *testing.T) {
	for _, tc := range []struct{ uri, err, want string }{
		{"packet:eth9", "device: packet:eth9: wire: packet:eth9: wire: interface is down", "interface is down"},
		{"loop:?x=1", `device: bad parameter: wire: bad parameter: loop: knows no parameter "x"`, `knows no parameter "x"`},
		{"pcap:/nope", "device: pcap:/nope?mode=read: wire: pcap: open /nope: no such file", "pcap: open /nope: no such file"},
		{"loop:a?mtu=99", "ud: loop:a: peer 1: engine: loop:a: destination 2: wire: loop:a: no port has the address 2", "no port has the address 2"},
		{"udp:127.0.0.1", "engine: udp:127.0.0.1: destination ::1: own address 127.0.0.1 is of another family", "destination ::1: own address 127.0.0.1 is of another family"},
		{"xdp:lo", "device: xdp:lo: wire: xdp:lo: frame too long; packet:lo works, xdp:lo does not", "frame too long; packet:lo works, xdp:lo does not"},
		{"pcap:a.b", "device: pcap:aXb: is another", "pcap:aXb: is another"},
	} {
		if got := Reason(tc.uri, errors.New(tc.err)); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.uri, got, tc.want)
		}
	}
	err := Plain("loop:a", fmt.Errorf("wire: loop:a: %w", syscall.EHOSTUNREACH))
	if err.Error() != syscall.EHOSTUNREACH.Error() || !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("%v", err)
	}
}
