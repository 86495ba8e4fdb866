package ud

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
)

// within bounds what must happen soon; no verdict depends on how soon.
const within = 20 * time.Second

func openDevice(t testing.TB, uri string) *engine.Device {
	t.Helper()
	d, err := device.Open(uri, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newEndpoint(t testing.TB, d *engine.Device, c Config) *Endpoint {
	t.Helper()
	e, err := New(d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func peerOf(t testing.TB, e, other *Endpoint) Peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	p, err := e.Peer(ctx, other.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// uris are the two ends of each kind of wire that anybody may open.
var uris = []struct {
	name string
	a, b string
}{
	{"loop", "loop:TEST", "loop:TEST"},
	{"udp", "udp:127.0.0.1", "udp:127.0.0.2"},
	{"packet", "packet:TEST", "packet:TEST"},
}

// pair gives two endpoints on a wire, each with a handle of the other.
func pair(t testing.TB, a, b string, ca, cb Config) (ea, eb *Endpoint, toB, toA Peer) {
	t.Helper()
	if a == "packet:TEST" {
		a, b = veth(t)
	}
	for _, u := range []*string{&a, &b} {
		if *u == "loop:TEST" {
			*u = "loop:" + t.Name()
		}
	}
	ea, eb = newEndpoint(t, openDevice(t, a), ca), newEndpoint(t, openDevice(t, b), cb)
	return ea, eb, peerOf(t, ea, eb), peerOf(t, eb, ea)
}

// eachWire runs a test on every kind of wire.
func eachWire(t *testing.T, ca, cb Config, f func(t *testing.T, a, b *Endpoint, toB, toA Peer)) {
	for _, u := range uris {
		t.Run(u.name, func(t *testing.T) {
			if u.name != "loop" && runtime.GOOS != "linux" {
				t.Skip("this wire is Linux's: this is " + runtime.GOOS)
			}
			a, b, toB, toA := pair(t, u.a, u.b, ca, cb)
			f(t, a, b, toB, toA)
		})
	}
}

// one gives the next message of e while the other end works, too.
func one(t testing.TB, e, other *Endpoint) Msg {
	t.Helper()
	var m [1]Msg
	for end := time.Now().Add(within); time.Now().Before(end); {
		if e.Poll(m[:]) == 1 {
			return m[0]
		}
		other.dev.Progress(64)
	}
	t.Fatal("nothing came")
	return Msg{}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}
