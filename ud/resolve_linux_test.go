package ud

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/internal/nstest"
)

// A sender whose next hop nobody knows is not answered, holds nobody up, and is answered as soon as somebody does.
func TestASenderThatCannotBeFoundHoldsNobodyUp(t *testing.T) {
	ua, ub := veth(t)
	a, b := newEndpoint(t, openDevice(t, ua), Config{}), newEndpoint(t, openDevice(t, ub), Config{})
	toB := peerOf(t, a, b)
	near := strings.TrimPrefix(ua, "packet:")
	far, ns, _ := strings.Cut(strings.TrimPrefix(ub, "packet:"), "?netns=")
	var mac net.HardwareAddr
	nstest.Link(t, "", near, func(h *netlink.Handle, l netlink.Link) error {
		mac = l.Attrs().HardwareAddr
		return h.LinkSetARPOff(l) // so that nobody there answers
	})
	neighbour := func(change func(h *netlink.Handle, n *netlink.Neigh) error) {
		nstest.Link(t, ns, far, func(h *netlink.Handle, l netlink.Link) error {
			return change(h, &netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP("192.0.2.1"), HardwareAddr: mac})
		})
	}
	neighbour(func(h *netlink.Handle, n *netlink.Neigh) error { return h.NeighDel(n) })

	check(t, a.Send(toB, []byte("who am I?")))
	m := one(t, b, a)
	for range 50 { // the first tells within 10 ms, most of the others at once
		wantErr(t, m.Reply(m.Data), ErrUnresolved)
	}
	if from, err := m.From(); err != nil || from.GID != a.LocalAddr().GID {
		t.Errorf("from %v, %v", from, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.Peer(ctx, a.LocalAddr()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a peer nobody knows: %v", err)
	}

	neighbour(func(h *netlink.Handle, n *netlink.Neigh) error { return h.NeighSet(n) })
	for end := time.Now().Add(within); ; {
		err := m.Reply(m.Data)
		if err == nil {
			break
		}
		wantErr(t, err, ErrUnresolved)
		if time.Now().After(end) {
			t.Fatal("it is never found")
		}
	}
	check(t, b.Commit())
	if r := one(t, a, b); string(r.Data) != "who am I?" {
		t.Errorf("answer %q", r.Data)
	}
}
