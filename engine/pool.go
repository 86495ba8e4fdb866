package engine

import (
	"fmt"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// Pool is packet memory of a device cut into frames of one size, with a stack
// of those that are free. One goroutine owns it.
type Pool struct {
	pd     *PD
	mem    *ring.Region
	bytes  []byte
	mr     MR
	stride int
	free   []uint32
	taken  []bool
	closed bool
}

// poolAlign keeps frames on cache lines of their own.
const poolAlign = 64

// AllocPool carves frames out of new memory of the device. frameBytes is
// rounded up to whole cache lines.
func (p *PD) AllocPool(frames, frameBytes int) (*Pool, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	const most = 1 << 32 // what SGE.Off reaches
	if frames < 1 || frameBytes < 1 || frameBytes > most || frames > most/((frameBytes+poolAlign-1)&^(poolAlign-1)) {
		return nil, fmt.Errorf("engine: %s: pool of %d frames of %d bytes: %w", p.dev.caps.Name, frames, frameBytes, syscall.EINVAL)
	}
	stride := (frameBytes + poolAlign - 1) &^ (poolAlign - 1)
	mem, err := p.dev.b.AllocMemory(frames * stride)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: pool of %d frames of %d bytes: %w", p.dev.caps.Name, frames, stride, err)
	}
	mr, err := p.Register(mem.Bytes(), LocalWrite)
	if err != nil {
		_ = mem.Close() // the first error says what happened
		return nil, err
	}
	f := &Pool{pd: p, mem: mem, bytes: mem.Bytes(), mr: mr, stride: stride, free: make([]uint32, frames), taken: make([]bool, frames)}
	for i := range f.free {
		f.free[i] = uint32(frames - 1 - i)
	}
	p.dev.mu.Lock()
	p.pools = append(p.pools, f)
	p.dev.mu.Unlock()
	return f, nil
}

func (p *Pool) usable() bool { return p != nil && !p.closed && p.stride != 0 }

// Get takes a frame, the one given back last; false when none is free.
func (p *Pool) Get() (frame uint32, ok bool) {
	if p == nil || p.closed || len(p.free) == 0 {
		return 0, false
	}
	frame = p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.taken[frame] = true
	return frame, true
}

// Put gives a frame back. It is false, and nothing happens, for a frame that
// is free already or does not exist.
func (p *Pool) Put(frame uint32) bool {
	if p == nil || p.closed || int(frame) >= len(p.taken) || !p.taken[frame] {
		return false
	}
	p.taken[frame] = false
	p.free = append(p.free, frame)
	return true
}

// Bytes gives a frame's memory; nil if there is no such frame.
func (p *Pool) Bytes(frame uint32) []byte {
	if !p.usable() || int(frame) >= len(p.taken) {
		return nil
	}
	off := int(frame) * p.stride
	return p.bytes[off : off+p.stride : off+p.stride]
}

// SGE names the first n bytes of a frame.
func (p *Pool) SGE(frame uint32, n int) SGE {
	if p == nil {
		return SGE{}
	}
	return SGE{MR: p.mr, Off: frame * uint32(p.stride), Len: uint32(n)}
}

// Frame gives the frame that an offset in the pool's region lies in.
func (p *Pool) Frame(off uint32) uint32 {
	if !p.usable() {
		return 0
	}
	return off / uint32(p.stride)
}

// MR gives the region of the whole pool.
func (p *Pool) MR() MR {
	if p == nil {
		return MR{}
	}
	return p.mr
}

// Frames gives the number of frames.
func (p *Pool) Frames() int {
	if p == nil {
		return 0
	}
	return len(p.taken)
}

// FrameBytes gives the size of a frame.
func (p *Pool) FrameBytes() int {
	if p == nil {
		return 0
	}
	return p.stride
}

// Free gives the number of frames that can be taken.
func (p *Pool) Free() int {
	if p == nil {
		return 0
	}
	return len(p.free)
}

// Close deregisters and frees the memory. No request on it may be outstanding.
// A second Close does nothing.
func (p *Pool) Close() error {
	if !p.usable() || p.pd.usable() != nil {
		return nil
	}
	p.closed = true
	err := p.pd.Deregister(p.mr)
	d := p.pd.dev
	d.mu.Lock()
	for i, o := range p.pd.pools {
		if o == p {
			p.pd.pools = append(p.pd.pools[:i], p.pd.pools[i+1:]...)
			break
		}
	}
	d.mu.Unlock()
	if e := p.mem.Close(); err == nil {
		err = e
	}
	p.bytes = nil
	return err
}
