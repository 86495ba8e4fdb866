package device

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
)

// Options is what a program, not its user, decides about a device.
type Options struct {
	Clock clock.Clock // nil: clock.System()
	Pin   bool        // with ?mode=goroutine: pin the goroutine to CPU
	CPU   int
	// TapTo, if set, gets a pcapng recording of what passes the device's wire. It is for looking, not for speed.
	// The caller closes it after the device, whose Close tells if the recording failed.
	TapTo io.Writer
}

// Errors a caller may want to test for. They come wrapped with names and values.
var (
	ErrScheme = errors.New("device: unknown scheme")
	ErrParam  = errors.New("device: bad parameter")
)

// Scheme describes one kind of device.
type Scheme struct {
	Name  string
	Usage string
	About string
	open  func(name string, v url.Values, o *Options) (w wire.Wire, drop bool, err error)
}

// schemes in the order in which they are listed.
var schemes = []Scheme{
	{"loop", "loop:[NAME]", "one port of an in-process switch with two ports", openLoop},
	{"packet", "packet:INTERFACE", "a Linux network interface, through a packet socket (needs CAP_NET_RAW)", openPacket},
	{"xdp", "xdp:INTERFACE", "the same past the kernel's stack, through AF_XDP sockets (needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)", openXDP},
	{"udp", "udp:ADDRESS", "RoCE v2 datagrams over an ordinary UDP socket on an address of this host, without privilege", openUDP},
	{"pcap", "pcap:FILE", "a capture file: written, or replayed with ?mode=read", openPCAP},
}

// common names the parameters that every scheme has.
var common = []string{"inline", "mode", "profile"}

// Schemes lists what Open knows.
func Schemes() []Scheme { return slices.Clone(schemes) }

func openLoop(name string, v url.Values, o *Options) (wire.Wire, bool, error) {
	l, err := wire.ParseLoop(name, v)
	if err != nil {
		return nil, false, err
	}
	l.Clock = o.Clock
	w, err := wire.OpenLoop(l)
	return w, l.HardwareDrop(), err
}

// openPacket: the NIC drops what finds no receive WQE, as the hardware behind an interface does.
func openPacket(name string, v url.Values, o *Options) (wire.Wire, bool, error) {
	p, err := wire.ParsePacket(name, v)
	if err != nil {
		return nil, false, err
	}
	p.Clock = o.Clock
	w, err := wire.OpenPacket(name, p)
	return w, true, err
}

// openXDP, openUDP and openPCAP look alike: each has options of a type of its own, and what they share is three lines
// around it, which type parameters would not make fewer.
func openXDP(name string, v url.Values, o *Options) (wire.Wire, bool, error) {
	x, err := wire.ParseXDP(name, v)
	if err != nil {
		return nil, false, err
	}
	x.Clock = o.Clock
	w, err := wire.OpenXDP(name, x)
	return w, true, err
}

// openUDP: as behind an interface; the socket's buffer is the queue, and its drops are counted.
func openUDP(name string, v url.Values, o *Options) (wire.Wire, bool, error) {
	u, err := wire.ParseUDP(name, v)
	if err != nil {
		return nil, false, err
	}
	u.Clock = o.Clock
	w, err := wire.OpenUDP(name, u)
	return w, true, err
}

func openPCAP(name string, v url.Values, o *Options) (wire.Wire, bool, error) {
	p, err := wire.ParsePCAP(name, v)
	if err != nil {
		return nil, false, err
	}
	p.Clock = o.Clock
	w, err := wire.OpenPCAP(name, p)
	return w, false, err
}

// Open opens the device that a string such as "loop:a?speed=10gbps" names. Errors name the part that is
// wrong, its value and what is known.
func Open(uri string, o Options) (*engine.Device, error) {
	w, c, err := openWire(uri, &o)
	if err != nil {
		return nil, err
	}
	nic, err := softnic.New(w, c)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("device: %s: %w", uri, err)
	}
	d, err := engine.NewDevice(nic)
	if err != nil {
		nic.Close()
		return nil, fmt.Errorf("device: %s: %w", uri, err)
	}
	return d, nil
}

func openWire(uri string, o *Options) (wire.Wire, softnic.Config, error) {
	c := softnic.Config{Clock: o.Clock, Pin: o.Pin, CPU: o.CPU}
	scheme, rest, colon := strings.Cut(uri, ":")
	at := slices.IndexFunc(schemes, func(s Scheme) bool { return s.Name == scheme })
	if !colon || at < 0 {
		return nil, c, fmt.Errorf("%w %q in %q; known: %s", ErrScheme, scheme, uri, known())
	}
	name, query, _ := strings.Cut(rest, "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		return nil, c, fmt.Errorf("%w: %s: parameters %q: %w", ErrParam, uri, query, err)
	}
	if name == "" && scheme != "loop" {
		return nil, c, fmt.Errorf("%w: %q names nothing; want %s", ErrParam, uri, schemes[at].Usage)
	}
	if err := takeCommon(scheme, v, &c); err != nil {
		return nil, c, fmt.Errorf("%w: %s: %w", ErrParam, uri, err)
	}
	w, drop, err := schemes[at].open(name, v, o)
	if err != nil {
		if errors.Is(err, wire.ErrNoParam) {
			err = fmt.Errorf("%w (and for every device: %s)", err, strings.Join(common, ", "))
		}
		if errors.Is(err, wire.ErrParam) {
			return nil, c, fmt.Errorf("%w: %w", ErrParam, err)
		}
		return nil, c, fmt.Errorf("device: %s: %w", uri, err)
	}
	c.Drop = drop
	if o.TapTo != nil {
		tapped, err := wire.NewTap(w, o.TapTo, o.Clock)
		if err != nil {
			w.Close()
			return nil, c, fmt.Errorf("device: %s: %w", uri, err)
		}
		w = tapped
	}
	return w, c, nil
}

func known() string {
	names := make([]string, len(schemes))
	for i, s := range schemes {
		names[i] = s.Name + ":"
	}
	return strings.Join(names, ", ")
}

// ownModes are values of mode= that mean something else to a scheme, and are left to it.
var ownModes = map[string][]string{
	"pcap": {"read", "write"},
	"xdp":  {"auto", "native", "generic"},
}

// takeCommon reads the parameters that every scheme has and removes them. A scheme with a mode of its own keeps that;
// both may be given, as mode=goroutine&mode=generic.
func takeCommon(scheme string, v url.Values, c *softnic.Config) error {
	var own []string
	if all, ok := v["mode"]; ok {
		mine := slices.DeleteFunc(slices.Clone(all), func(m string) bool { return slices.Contains(ownModes[scheme], m) })
		own = slices.DeleteFunc(slices.Clone(all), func(m string) bool { return !slices.Contains(ownModes[scheme], m) })
		if v["mode"] = mine; len(mine) == 0 {
			delete(v, "mode")
		}
	}
	profile, err := choice(v, "profile", map[string]engine.Profile{
		"strict": engine.ProfileStrict, "rxe": engine.ProfileRXE, "mlx5": engine.ProfileMLX5})
	if err != nil {
		return err
	}
	inline, err := choice(v, "inline", map[string]int{"0": 0, "18": 18})
	if err != nil {
		return err
	}
	c.Profile, c.MinInline = profile, inline
	c.Mode, err = choice(v, "mode", map[string]softnic.Mode{"inline": softnic.Inline, "goroutine": softnic.Goroutine}, ownModes[scheme]...)
	if len(own) > 0 {
		v["mode"] = own
	}
	return err
}

// choice takes a parameter that has one of a few values; the zero value stands for an absent one. An error also names
// those that others take.
func choice[T any](v url.Values, name string, values map[string]T, others ...string) (chosen T, err error) {
	given, ok := v[name]
	if !ok {
		return chosen, nil
	}
	delete(v, name)
	if len(given) == 1 {
		if chosen, ok = values[given[0]]; ok {
			return chosen, nil
		}
	}
	names := slices.Sorted(maps.Keys(values))
	names = append(names, others...)
	return chosen, fmt.Errorf("%s=%q: must be one of %s", name, strings.Join(given, ","), strings.Join(names, ", "))
}
