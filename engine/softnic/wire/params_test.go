package wire

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestParseLoop(t *testing.T) {
	v, err := url.ParseQuery("speed=100gbps&queue=5&delay=5us&jitter=1ms&loss=1e-6&dup=1%25&reorder=.5&corrupt=0&seed=7&mtu=1500&drop=1&capacity=64KiB&mac=02:00:00:00:00:09&ip4=198.18.1.1,198.18.1.2&ip6=2001:2::9")
	if err != nil {
		t.Fatal(err)
	}
	o, err := ParseLoop("x", v)
	if err != nil {
		t.Fatal(err)
	}
	want := LoopOptions{
		Name: "x", SpeedBPS: 100e9, Queue: 5, Capacity: 65536, MTU: 1500, Drop: true,
		Impair: Impairs{Delay: 5 * time.Microsecond, Jitter: time.Millisecond, Loss: 1e-6, Dup: .01, Reorder: .5, Seed: 7},
		MAC:    [2][6]byte{{2, 0, 0, 0, 0, 9}},
		Addr4:  [2]netip.Addr{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("198.18.1.2")},
		Addr6:  [2]netip.Addr{netip.MustParseAddr("2001:2::9")},
	}
	if o != want {
		t.Errorf("\n got %+v\nwant %+v", o, want)
	}
}

// TestParseRefuses: each error names the value, and an unknown name comes with the known ones.
func TestParseRefuses(t *testing.T) {
	loop := func(v url.Values) error { _, err := ParseLoop("", v); return err }
	packet := func(v url.Values) error { _, err := ParsePacket("eth0", v); return err }
	xdp := func(v url.Values) error { _, err := ParseXDP("eth0", v); return err }
	pcap := func(v url.Values) error { _, err := ParsePCAP("f", v); return err }
	for _, c := range []struct {
		parse func(url.Values) error
		query string
		names string
	}{
		{loop, "speed=100", "100"}, {loop, "speed=0gbps", "0gbps"}, {loop, "speed=-1gbps", "-1gbps"}, {loop, "speed=gbps", "gbps"},
		{loop, "speed=NaNgbps", "NaN"}, {loop, "speed=infgbps", "inf"},
		{loop, "queue=0", "queue"}, {loop, "queue=x", "x"}, {loop, "delay=5", "delay"}, {loop, "delay=-5us", "-5us"},
		{loop, "loss=2", "2"}, {loop, "loss=150%25", "150%"}, {loop, "loss=NaN", "NaN"}, {loop, "dup=-1", "-1"},
		{loop, "seed=-1", "seed"}, {loop, "mtu=67", "67"}, {loop, "drop=maybe", "maybe"}, {loop, "capacity=1", "capacity"},
		{loop, "mac=01:00:00:00:00:00", "01:00"}, {loop, "mac=x", "x"}, {loop, "ip4=2001:2::1", "2001"}, {loop, "ip6=198.18.0.1", "198"},
		{loop, "ip4=1.1.1.1,2.2.2.2,3.3.3.3", "3.3.3.3"}, {loop, "loss=0&loss=1", "once"}, {loop, "los=1", "loss"},
		{packet, "ring=1", "ring"}, {packet, "ring=99999999GiB", "99999999GiB"}, {packet, "slot=1000", "1000"}, {packet, "send=fast", "fast"},
		{packet, "gso=1", "auto or off"}, {packet, "fanout=0", "fanout"}, {packet, "fanout=65536", "65535"}, {packet, "promisc=x", "x"}, {packet, "txslots=0", "txslots"}, {packet, "speed=1gbps", "netns"},
		{xdp, "queue=x", "x"}, {xdp, "queue=3-1", "3-1"}, {xdp, "queue=0-70000", "70000"}, {xdp, "queue=-1", "-1"}, {xdp, "mode=fast", "native"},
		{xdp, "zerocopy=1", "auto, off, on"}, {xdp, "busypoll=5", "unit"}, {xdp, "frames=63", "63"}, {xdp, "txslots=0", "txslots"}, {xdp, "lend=-1", "lend"}, {xdp, "ring=1MiB", "frames"},
		{pcap, "mode=x", "x"}, {pcap, "foo=1", "mode"},
	} {
		v, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.parse(v); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", c.query, err)
		}
	}
}

func TestParsePCAP(t *testing.T) {
	for mode, read := range map[string]bool{"": false, "write": false, "read": true} {
		v := url.Values{}
		if mode != "" {
			v.Set("mode", mode)
		}
		if o, err := ParsePCAP("f", v); err != nil || o.Read != read {
			t.Errorf("mode %q: %+v %v", mode, o, err)
		}
	}
}

func TestParsePacket(t *testing.T) {
	v, _ := url.ParseQuery("netns=x&ring=64MiB&slot=256&send=mmsg&txslots=1024&promisc=0&gso=auto&fanout=7")
	o, err := ParsePacket("eth0", v)
	if err != nil || o != (PacketOptions{NetNS: "x", RingBytes: 64 << 20, RingSlot: 256, Send: SendMMsg, TxSlots: 1024, NoPromisc: true, GSO: true, Fanout: 7}) {
		t.Errorf("%+v %v", o, err)
	}
}

func TestParseXDP(t *testing.T) {
	for query, want := range map[string]XDPOptions{
		"":          {},
		"queue=0":   {Queues: 1},
		"queue=1-3": {FirstQueue: 1, Queues: 3},
		"netns=x&mode=generic&zerocopy=off&busypoll=20us&frames=128&txslots=64&lend=1MiB": {NetNS: "x", Mode: XDPGeneric, ZeroCopy: ZeroCopyOff,
			BusyPoll: 20 * time.Microsecond, RxFrames: 128, TxSlots: 64, Lend: 1 << 20},
		"lend=0": {Lend: -1},
	} {
		v, _ := url.ParseQuery(query)
		if o, err := ParseXDP("eth0", v); err != nil || o != want {
			t.Errorf("%s: %+v %v", query, o, err)
		}
	}
}
