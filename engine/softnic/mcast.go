package softnic

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// Limits of multicast, as kernel rxe has them. They stand in Caps.
const (
	maxGroups   = 8192
	maxGroupQPs = 56
)

// groups has the members of each multicast group. A map of pointers is read once for each multicast datagram.
type groups map[engine.GID][]*qp

// AttachMulticast makes a UD queue pair a member of a group; the first member joins it on the wire's network.
func (n *NIC) AttachMulticast(qpn uint32, g engine.GID) error {
	return n.control(func() error {
		q := n.findQP(qpn)
		if q == nil {
			return unknownQP(qpn)
		}
		members := n.groups[g]
		switch {
		case q.kind != engine.UD || !g.IsMulticast():
			return fmt.Errorf("softnic: QP 0x%x cannot join %v: %w", qpn, g, syscall.EINVAL)
		case slices.Contains(members, q):
			return nil
		case len(members) >= maxGroupQPs:
			return fmt.Errorf("softnic: group %v has all %d members: %w", g, maxGroupQPs, syscall.ENOMEM)
		case len(members) == 0 && len(n.groups) >= maxGroups:
			return fmt.Errorf("softnic: all %d multicast groups are in use: %w", maxGroups, syscall.ENOMEM)
		}
		if len(members) == 0 && n.network != nil {
			if err := n.network.Join(g.Addr()); err != nil {
				return fmt.Errorf("softnic: group %v: %w", g, err)
			}
		}
		if n.groups == nil {
			n.groups = groups{}
		}
		n.groups[g] = append(members, q)
		return nil
	})
}

// DetachMulticast ends a membership; the last member leaves the group on the wire's network.
func (n *NIC) DetachMulticast(qpn uint32, g engine.GID) error {
	return n.control(func() error {
		q := n.findQP(qpn)
		if q == nil || !slices.Contains(n.groups[g], q) {
			return fmt.Errorf("softnic: QP 0x%x is no member of %v: %w", qpn, g, syscall.EINVAL)
		}
		return n.leave(q, g)
	})
}

func (n *NIC) leave(q *qp, g engine.GID) error {
	rest := slices.DeleteFunc(n.groups[g], func(o *qp) bool { return o == q })
	if len(rest) > 0 {
		n.groups[g] = rest
		return nil
	}
	delete(n.groups, g)
	if n.network == nil {
		return nil
	}
	return n.network.Leave(g.Addr())
}

// leaveAll ends all memberships of a queue pair that is destroyed.
func (n *NIC) leaveAll(q *qp) (err error) {
	for g, members := range n.groups {
		if slices.Contains(members, q) {
			if e := n.leave(q, g); err == nil {
				err = e
			}
		}
	}
	return err
}
