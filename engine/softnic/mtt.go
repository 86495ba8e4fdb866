package softnic

import (
	"fmt"
	"syscall"

	"github.com/bluering/bluering/engine"
)

// A memory key is a table index and a generation, as in mlx5: key = index<<8 | generation. The index is
// handed out in FIFO order and the generation counts its re-uses, so that a key kept after Deregister names
// nothing for as long as possible. Index 1 with generation 0 would be 0x100, the key of a receive list's
// terminator; indices start at 2 so that it can never be valid.
const (
	firstMR = 2
	maxMR   = 1 << 16
)

// Addresses are synthetic: each registration gets its own range of a 64-bit space that is never used twice.
// They start above 4 GiB so that code which drops the upper half fails at once, and leave an unmapped guard
// between regions so that running over an edge by any small amount never lands in a neighbour.
const (
	firstIOVA  = 1 << 32
	pageBytes  = 4096
	guardBytes = 16 * pageBytes
)

// region is one registered memory range. key 0 marks a free slot.
type region struct {
	mem    []byte
	base   uint64
	key    uint32
	pd     uint32
	access engine.Access
	lent   bool   // it lies in what the wire lends
	at     uint64 // and where there
}

// mtt is the memory translation table: (key, address, length) to bytes. It belongs to the goroutine that
// runs Step; changes reach it through NIC.control.
type mtt struct {
	regions []region
	free    []uint32 // indices, oldest first
	next    uint64   // next unused address
	live    int
}

func newMTT() mtt {
	return mtt{regions: make([]region, firstMR), next: firstIOVA}
}

func (t *mtt) register(pd uint32, mem []byte, a engine.Access) (key uint32, addr uint64, err error) {
	if len(mem) == 0 {
		return 0, 0, fmt.Errorf("softnic: register: no memory given: %w", syscall.EINVAL)
	}
	var index uint32
	switch {
	case len(t.free) > 0 && (len(t.free) >= 64 || len(t.regions) >= maxMR):
		index, t.free = t.free[0], t.free[1:]
	case len(t.regions) < maxMR:
		index = uint32(len(t.regions))
		t.regions = append(t.regions, region{})
	default:
		return 0, 0, fmt.Errorf("softnic: register: all %d memory keys are in use: %w", maxMR-firstMR, syscall.ENOMEM)
	}
	r := &t.regions[index]
	key, addr = index<<8|(r.key+1)&0xff, t.next
	*r = region{mem: mem, base: addr, key: key, pd: pd, access: a}
	size := (uint64(len(mem)) + pageBytes - 1) &^ (pageBytes - 1)
	t.next += size + guardBytes
	t.live++
	return key, addr, nil
}

// deregister forgets the memory. The slot keeps its last key, so that the next user of the index gets the
// following generation.
func (t *mtt) deregister(key uint32) error {
	index := key >> 8
	if index >= uint32(len(t.regions)) || t.regions[index].key != key || t.regions[index].mem == nil {
		return fmt.Errorf("softnic: deregister: memory key 0x%x is not registered: %w", key, syscall.EINVAL)
	}
	t.regions[index].mem = nil
	t.free = append(t.free, index)
	t.live--
	return nil
}

// lookup returns the n bytes at addr of the region that key names, or nil when the key, the protection
// domain, the right or a bound does not hold.
// n is at least 1: callers drop empty segments, whose keys are never looked at (D-11).
func (t *mtt) lookup(key uint32, addr uint64, n uint32, pd uint32, need engine.Access) []byte {
	if r := t.find(key, pd, need); r != nil {
		return r.slice(addr, n)
	}
	return nil
}

// find is the part of lookup that is the same for all segments with one key: the region, or nil. It stays
// valid for the rest of the burst, because keys change between Steps only.
func (t *mtt) find(key, pd uint32, need engine.Access) *region {
	index := uint64(key >> 8)
	if index >= uint64(len(t.regions)) {
		return nil
	}
	r := &t.regions[index]
	if r.key != key || r.pd != pd || r.access&need != need {
		return nil
	}
	return r
}

// slice returns the n bytes at addr, at least 1, or nil when they are not all in the region. A freed slot has
// no memory, so each bound fails there.
func (r *region) slice(addr uint64, n uint32) []byte {
	off := addr - r.base // an address below the base becomes a huge offset
	size := uint64(len(r.mem))
	if off >= size || uint64(n) > size-off {
		return nil
	}
	return r.mem[off : off+uint64(n) : off+uint64(n)]
}
