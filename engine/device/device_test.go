package device_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/engine/softnic/wire"
)

func open(t *testing.T, uri string) *engine.Device {
	t.Helper()
	d, err := device.Open(uri, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestErrorsNameTheThingAndWhatIsKnown(t *testing.T) {
	cases := []struct {
		uri  string
		is   error
		says []string
	}{
		{"", device.ErrScheme, []string{`""`, "loop:, packet:, xdp:, udp:, pcap:"}},
		{"loop", device.ErrScheme, []string{`"loop"`, "loop:"}},
		{"tape:x", device.ErrScheme, []string{`"tape"`, "loop:, packet:, xdp:, udp:, pcap:"}},
		{"loop:err?spede=10gbps", device.ErrParam, []string{`"spede"`, "speed", "profile"}},
		{"loop:err?speed=10", device.ErrParam, []string{"speed", `"10"`, "unit"}},
		{"loop:err?profile=lax", device.ErrParam, []string{`profile="lax"`, "mlx5, rxe, strict"}},
		{"loop:err?mode=thread", device.ErrParam, []string{`mode="thread"`, "goroutine, inline"}},
		{"loop:err?inline=17", device.ErrParam, []string{`inline="17"`, "0, 18"}},
		{"loop:err?inline=0&inline=18", device.ErrParam, []string{"inline"}},
		{"loop:err?%zz", device.ErrParam, []string{"%zz"}},
		{"packet:", device.ErrParam, []string{"packet:INTERFACE"}},
		{"xdp:", device.ErrParam, []string{"xdp:INTERFACE"}},
		{"xdp:x?mode=fast", device.ErrParam, []string{`mode="fast"`, "goroutine, inline, auto, native, generic"}},
		{"xdp:x?mode=native&mode=auto", device.ErrParam, []string{"mode", "once"}},
		{"xdp:x?queue=3-1", device.ErrParam, []string{`queue="3-1"`, "range"}},
		{"xdp:x?zerocopy=yes", device.ErrParam, []string{`zerocopy="yes"`, "auto, off, on"}},
		{"pcap:", device.ErrParam, []string{"pcap:FILE"}},
	}
	for _, c := range cases {
		t.Run(c.uri, func(t *testing.T) {
			d, err := device.Open(c.uri, device.Options{})
			if err == nil {
				d.Close()
				t.Fatal("opened")
			}
			if !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if others := strings.Contains(err.Error(), "for every device"); others != strings.Contains(err.Error(), "knows no parameter") {
				t.Errorf("%q: parameters of every device are named: %v", err, others)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than one line", err)
			}
		})
	}
}

func TestLoopHasTwoPorts(t *testing.T) {
	a := open(t, "loop:two?mtu=1500&mac=02:00:00:00:00:aa,02:00:00:00:00:bb")
	b := open(t, "loop:two")
	if a.Caps().MAC[5] != 0xaa || b.Caps().MAC[5] != 0xbb || b.Caps().MaxFrame != 1518 {
		t.Fatalf("ports %v and %v", a.Caps(), b.Caps())
	}
	if _, err := device.Open("loop:two", device.Options{}); !errors.Is(err, wire.ErrPortsTaken) {
		t.Fatalf("third port: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := device.Open("loop:two?mtu=9000", device.Options{}); err == nil {
		t.Fatal("other parameters were taken")
	}
	if again := open(t, "loop:two"); again.Caps().MAC[5] != 0xaa {
		t.Fatal("a reopened port does not take the lowest free number")
	}
}

func TestEveryLoopVariantOpensAndCloses(t *testing.T) {
	for _, q := range []string{"", "?profile=rxe", "?profile=mlx5&inline=18", "?mode=goroutine", "?mode=inline&speed=10gbps", "?loss=1e-3&seed=4"} {
		d := open(t, "loop:variant"+q)
		if err := d.Close(); err != nil {
			t.Fatalf("%q: %v", q, err)
		}
		if err := d.Close(); err != nil {
			t.Fatalf("%q: second close: %v", q, err)
		}
	}
}

func TestListHasTheLoop(t *testing.T) {
	l, err := device.List()
	if err != nil {
		t.Skipf("no interfaces to list here: %v", err)
	}
	if len(l) == 0 || l[0].URI != "loop:" {
		t.Fatalf("%+v", l)
	}
	for _, e := range l {
		if e.URI == "" || e.About == "" {
			t.Errorf("%+v", e)
		}
	}
}
