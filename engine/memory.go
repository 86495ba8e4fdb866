package engine

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// MR is a handle on registered memory: a small value without pointers, free to
// copy. It holds a generation: after Close, requests that name it are refused
// with EINVAL. The zero MR names nothing.
type MR struct {
	addr   uint64
	length uint64
	ref    uint64 // generation<<16 | table index; foreignRef: not in the table
	lkey   uint32
	access Access
}

// LKey gives the key.
func (m MR) LKey() uint32 { return m.lkey }

// Addr gives the address of the first byte as the device knows it.
func (m MR) Addr() uint64 { return m.addr }

// Len gives the length in bytes.
func (m MR) Len() int { return int(m.length) }

// Access gives the device's rights.
func (m MR) Access() Access { return m.access }

// SGE names n bytes from off.
func (m MR) SGE(off, n int) SGE { return SGE{MR: m, Off: uint32(off), Len: uint32(n)} }

// MRFromKey makes a handle on memory that was registered elsewhere. Nothing is
// checked before the device does. On a device that wants an inline header
// (Caps.MinInline) such memory cannot be sent raw, because the engine cannot
// read it.
func MRFromKey(lkey uint32, addr uint64, length int) MR {
	return MR{addr: addr, length: uint64(max(length, 0)), ref: foreignRef, lkey: lkey}
}

const (
	mrChunk    = 256
	maxMRs     = 1 << 16
	foreignRef = 1 << 16 // index 0 holds this reference forever
)

// region is one registration. It never changes once it is in the table.
type region struct {
	ref  uint64
	mem  []byte
	pd   *PD
	lkey uint32
}

// generation is process-wide, so that a handle of one device is stale on any
// other.
var generation atomic.Uint64

// mrTable finds a handle's region. Readers take two loads; writers hold the
// device's lock.
type mrTable struct {
	chunks [maxMRs / mrChunk]atomic.Pointer[[mrChunk]atomic.Pointer[region]]
	free   []uint32
	next   uint32
	live   int
}

func newMRTable() *mrTable {
	t := &mrTable{next: 1}
	t.slot(0).Store(&region{ref: foreignRef})
	return t
}

func (t *mrTable) slot(i uint32) *atomic.Pointer[region] {
	c := t.chunks[i/mrChunk].Load()
	if c == nil {
		c = new([mrChunk]atomic.Pointer[region])
		t.chunks[i/mrChunk].Store(c)
	}
	return &c[i%mrChunk]
}

// find gives the region that a handle means, nil for a stale or zero one.
func (t *mrTable) find(ref uint64) *region {
	c := t.chunks[ref%maxMRs/mrChunk].Load()
	if c == nil {
		return nil
	}
	if r := c[ref%mrChunk].Load(); r != nil && r.ref == ref {
		return r
	}
	return nil
}

func (t *mrTable) insert(r *region) bool {
	var i uint32
	switch {
	case len(t.free) > 0:
		i, t.free = t.free[0], t.free[1:]
	case t.next < maxMRs:
		i = t.next
		t.next++
	default:
		return false
	}
	r.ref = generation.Add(1)<<16 | uint64(i)
	t.slot(i).Store(r)
	t.live++
	return true
}

func (t *mrTable) remove(ref uint64) {
	i := uint32(ref % maxMRs)
	t.slot(i).Store(nil)
	t.free = append(t.free, i)
	t.live--
}

// Register makes memory known to the device. It must stay as it is, and not be
// Go heap with a hardware device, until Deregister.
func (p *PD) Register(mem []byte, a Access) (MR, error) {
	if err := p.usable(); err != nil {
		return MR{}, err
	}
	d := p.dev
	if len(mem) == 0 {
		return MR{}, fmt.Errorf("engine: %s: register: no memory given: %w", d.caps.Name, syscall.EINVAL)
	}
	if a&^LocalWrite == ZeroBased {
		return MR{}, fmt.Errorf("engine: %s: register: zero-based regions are not offered: %w", d.caps.Name, syscall.EOPNOTSUPP) // D-16
	}
	if a&^LocalWrite != 0 {
		return MR{}, fmt.Errorf("engine: %s: register: access 0x%x is not supported: %w", d.caps.Name, uint32(a), syscall.EINVAL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || p.closed {
		return MR{}, closed("protection domain")
	}
	lkey, addr, err := d.b.Register(p.num, mem, a)
	if err != nil {
		return MR{}, fmt.Errorf("engine: %s: register %d bytes: %w", d.caps.Name, len(mem), err)
	}
	r := &region{mem: mem, pd: p, lkey: lkey}
	if !d.mrs.insert(r) {
		_ = d.b.Deregister(lkey) // it was never handed out
		return MR{}, fmt.Errorf("engine: %s: all %d memory handles are in use: %w", d.caps.Name, maxMRs-1, syscall.ENOMEM)
	}
	p.users++
	return MR{addr: addr, length: uint64(len(mem)), ref: r.ref, lkey: lkey, access: a}, nil
}

// Deregister forgets memory. Requests posted before and not executed yet fail
// with StatusLocProt (D-13); the handle is stale from now on.
func (p *PD) Deregister(m MR) error {
	if err := p.usable(); err != nil {
		return err
	}
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.mrs.find(m.ref)
	if r == nil || r.pd != p {
		return fmt.Errorf("engine: %s: deregister: stale handle, or of another protection domain (key 0x%x): %w",
			d.caps.Name, m.lkey, syscall.EINVAL)
	}
	d.mrs.remove(m.ref)
	p.users--
	if err := d.b.Deregister(r.lkey); err != nil {
		return fmt.Errorf("engine: %s: deregister key 0x%x: %w", d.caps.Name, r.lkey, err)
	}
	return nil
}
