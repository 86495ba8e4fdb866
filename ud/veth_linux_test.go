package ud

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/internal/nstest"
)

// veth makes a veth pair whose ends have addresses and know each other for good, so that no other frame passes, and
// gives the two devices.
func veth(t testing.TB) (a, b string) {
	t.Helper()
	near, far, ns := nstest.Veth(t)
	mac := func(ns, name string) (m net.HardwareAddr) {
		nstest.Link(t, ns, name, func(_ *netlink.Handle, l netlink.Link) error {
			m = l.Attrs().HardwareAddr
			return nil
		})
		return m
	}
	macA, macB := mac("", near), mac(ns, far)
	for _, end := range []struct {
		ns, name, own, other string
		mac                  net.HardwareAddr
	}{{"", near, "192.0.2.1", "192.0.2.2", macB}, {ns, far, "192.0.2.2", "192.0.2.1", macA}} {
		nstest.Link(t, end.ns, end.name, func(h *netlink.Handle, l netlink.Link) error {
			addr, err := netlink.ParseAddr(end.own + "/24")
			if err != nil {
				return err
			}
			if err := h.AddrAdd(l, addr); err != nil {
				return err
			}
			return h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.ParseIP(end.other), HardwareAddr: end.mac})
		})
	}
	return "packet:" + near, "packet:" + far + "?netns=" + ns
}
