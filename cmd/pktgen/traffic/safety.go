package traffic

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/bluering/bluering/cmd/internal/results"
)

// private lists the destinations that need no --yes-public: loopback, private,
// shared, link-local, documentation, benchmark and multicast ranges.
var private = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "224.0.0.0/4",
	"::1/128", "fc00::/7", "fe80::/10", "2001:db8::/32", "3fff::/20", "2001:2::/48", "ff00::/8",
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// checkTargets refuses destinations on the open Internet.
func checkTargets(c *Config) error {
	if c.YesPublic {
		return nil
	}
	bad := func() error {
		return results.Usage("dst", c.Dst.String(), "is a public address; use 198.18.0.0/15, 2001:2::/48 or a private range, or --yes-public if it is yours to load")
	}
	if c.Dst.list != nil {
		for _, x := range c.Dst.list {
			if !within(addrOf(x, c.Dst.Is6()), addrOf(x, c.Dst.Is6())) {
				return bad()
			}
		}
		return nil
	}
	if !within(addrOf(c.Dst.first, c.Dst.Is6()), addrOf(c.Dst.first.add(c.Dst.count-1), c.Dst.Is6())) {
		return bad()
	}
	return nil
}

// within reports that one private range holds all of a..b.
func within(a, b netip.Addr) bool {
	for _, p := range private {
		if p.Contains(a) && p.Contains(b) {
			return true
		}
	}
	return false
}

// kernelPort takes a device string apart; ok is false when it names no kernel
// interface.
func kernelPort(uri string) (ifname, netns string, ok bool) {
	scheme, rest, found := strings.Cut(uri, ":")
	if !found || scheme != "packet" && scheme != "xdp" && scheme != "kern" {
		return "", "", false
	}
	ifname, query, _ := strings.Cut(rest, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return ifname, "", true
	}
	return ifname, params.Get("netns"), true
}

// CheckPort refuses a kernel interface that does not exist, and the one that
// carries the default route: a generator on it saws the branch its user sits
// on. Call it before the port is opened.
func CheckPort(uri string, allowMgmt bool) error {
	if u, ok := udpPort(uri); ok && u.addr.IsValid() {
		return checkAddress(uri, u, allowMgmt)
	}
	ifname, netns, ok := kernelPort(uri)
	if !ok {
		return nil
	}
	if _, err := interfaceFacts(uri, ifname, netns); err != nil {
		return err
	}
	if allowMgmt {
		return nil
	}
	carries, err := carriesDefaultRoute(ifname, netns)
	if err != nil || !carries { // what cannot be read, opening the port will tell
		return nil
	}
	return results.Usage("port", uri, fmt.Sprintf("%s carries the default route; use another interface, or --allow-mgmt if losing this machine's network is acceptable", ifname))
}

// checkAddress is CheckPort for a port on an address. One that no interface has is left to the opening.
func checkAddress(uri string, u udpURI, allowMgmt bool) error {
	ifname, err := interfaceOf(u.addr, u.netns)
	if err != nil || ifname == "" || allowMgmt {
		return nil
	}
	if carries, err := carriesDefaultRoute(ifname, u.netns); err != nil || !carries {
		return nil
	}
	return results.Usage("port", uri, fmt.Sprintf("%s, which has that address, carries the default route; use another address, or --allow-mgmt if losing this machine's network is acceptable", ifname))
}
