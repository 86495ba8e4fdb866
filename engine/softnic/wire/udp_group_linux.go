package wire

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bluering/bluering/internal/proto"
)

// udpMaxGroups bounds the sockets that a wire holds for groups.
const udpMaxGroups = 64

// udpGroups are the sockets of multicast groups, one for each: the socket that is bound to an address gets none of
// their datagrams. Any goroutine joins and leaves; the wire's owner receives, without the lock.
type udpGroups struct {
	list    atomic.Pointer[[]*udpSource] // replaced under mu; nil: none
	leaving atomic.Bool                  // left has something

	mu     sync.Mutex
	left   []*udpSource // to be closed by the owner, who may be reading from it
	gone   uint64       // drops of closed ones
	all    waiter       // open once there was a group
	closed bool

	turn int // the owner's: the group that is asked first
}

func (g *udpGroups) joined() []*udpSource {
	if p := g.list.Load(); p != nil {
		return *p
	}
	return nil
}

// receive takes from the groups in turn.
func (g *udpGroups) receive(r *udpRx) {
	if g.leaving.Load() {
		g.bury()
	}
	list := g.joined()
	if g.turn++; g.turn >= len(list) {
		g.turn = 0
	}
	for i := range list {
		r.receive(list[(g.turn+i)%len(list)])
	}
}

// bury closes what was left. The owner calls it.
func (g *udpGroups) bury() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.left {
		g.gone += uint64(socketDrops(x.fd))
		unix.Close(x.fd)
	}
	g.left = g.left[:0]
	g.leaving.Store(false)
}

// arm gives what to wait on for the wire's socket and all groups.
func (g *udpGroups) arm(fd int, out bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all.fd < 0 {
		return fd
	}
	return g.all.arm(fd, out, math.MaxInt64)
}

func (g *udpGroups) drops() uint64 {
	g.bury()
	n := g.gone
	for _, x := range g.joined() {
		n += uint64(socketDrops(x.fd))
	}
	return n
}

func (g *udpGroups) close() {
	g.mu.Lock()
	g.closed = true
	g.left = append(g.left, g.joined()...)
	g.list.Store(nil)
	g.all.close()
	g.mu.Unlock()
	g.bury()
}

// Join opens a socket for a group, once.
func (w *udp) Join(group netip.Addr) error {
	g := &w.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	group = group.Unmap()
	err := w.join(group)
	if err != nil {
		return fmt.Errorf("wire: %s: join %v: %w", w.info.Name, group, err)
	}
	return nil
}

func (w *udp) join(group netip.Addr) error {
	g := &w.groups
	list := g.joined()
	switch {
	case g.closed:
		return ErrClosed
	case !group.IsMulticast() || group.Is4() != w.addr.Is4():
		return syscall.EINVAL
	case slices.ContainsFunc(list, func(x *udpSource) bool { return x.to == group }):
		return nil
	case len(list) >= udpMaxGroups:
		return fmt.Errorf("it has %d groups already: %w", udpMaxGroups, syscall.ENOMEM)
	}
	if g.all.fd < 0 {
		if err := g.all.open(); err != nil {
			return err
		}
	}
	fd := -1
	err := inNetNS(w.info.NetNS, func() (err error) {
		fd, err = w.groupSocket(group)
		return err
	})
	if err != nil {
		return err
	}
	if err := g.all.add(fd); err != nil {
		unix.Close(fd)
		return err
	}
	list = append(slices.Clone(list), &udpSource{fd: fd, to: group})
	g.list.Store(&list)
	return nil
}

func (w *udp) groupSocket(group netip.Addr) (int, error) {
	fd, err := w.socket()
	if err != nil {
		return -1, err
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, udpSockBuf)
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // others of this host may listen to it too
	if err == nil {
		err = unix.Bind(fd, w.sockaddr(netip.AddrPortFrom(group, proto.RoCEPort)))
	}
	if err == nil {
		err = w.setMember(fd, group, true)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Leave ends a group. What its socket holds is lost.
func (w *udp) Leave(group netip.Addr) error {
	g := &w.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	group = group.Unmap()
	list := slices.Clone(g.joined())
	i := slices.IndexFunc(list, func(x *udpSource) bool { return x.to == group })
	if i < 0 {
		return fmt.Errorf("wire: %s: leave %v: not joined: %w", w.info.Name, group, syscall.EINVAL)
	}
	fd := list[i].fd
	g.left = append(g.left, list[i])
	list = slices.Delete(list, i, i+1)
	g.list.Store(&list)
	g.leaving.Store(true)
	// The switch learns of it now; the socket is closed when its reader is done with it.
	return errors.Join(g.all.remove(fd), w.setMember(fd, group, false))
}
