package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/bluering/bluering/internal/barrier"
)

// MaxSRQEntries is the largest shared receive ring: an entry's index has 16 bits.
const MaxSRQEntries = 1 << 15

// SRQGeometry sizes a shared receive ring: entries are a power of two, one more
// than is granted, because the tail of the free list is never posted.
func SRQGeometry(askedWR, askedSGE int) (entries, stride, maxWR, maxSGE int, err error) {
	if askedWR < 1 || askedWR >= MaxSRQEntries {
		return 0, 0, 0, 0, fmt.Errorf("ring: shared receive queue of %d requests, want 1..%d", askedWR, MaxSRQEntries-1)
	}
	if askedSGE < 1 || askedSGE > MaxRQStride/DSBytes-1 {
		return 0, 0, 0, 0, fmt.Errorf("ring: %d receive pieces, want 1..%d", askedSGE, MaxRQStride/DSBytes-1)
	}
	stride, maxSGE = SRQStride(askedSGE)
	entries = 1 << bits.Len(uint(askedWR))
	return entries, stride, entries - 1, maxSGE, nil
}

func checkSRQ(mem []byte, rec Record, stride, entries int) error {
	switch {
	case !isPow2(stride) || stride < 2*DSBytes || stride > MaxRQStride:
		return fmt.Errorf("ring: shared receive stride of %d bytes, want a power of two from %d to %d", stride, 2*DSBytes, MaxRQStride)
	case !isPow2(entries) || entries < 2 || entries > MaxSRQEntries:
		return fmt.Errorf("ring: %d shared receive entries, want a power of two from 2 to %d", entries, MaxSRQEntries)
	case len(mem) < stride*entries:
		return fmt.Errorf("ring: %d entries of %d bytes in %d bytes", entries, stride, len(mem))
	case !rec.Valid():
		return fmt.Errorf("ring: shared receive queue without a record")
	}
	return nil
}

// SRQ is the host half of a shared receive queue. One goroutine posts; the
// goroutines that poll the completion queues of its queue pairs, each its own,
// give completed entries back.
//
//	Post ... Publish        the poster
//	Take                    any poller
//
// Free entries are a chain of links. Posting takes from its head and rewrites
// no link; the poster appends what pollers have given back at its tail, in the
// order in which they did.
type SRQ struct {
	mem    []byte
	wrIDs  []uint64
	stride int
	mask   uint32
	rec    Record
	head   uint32 // next entry to post
	tail   uint32 // last of the free list, never posted
	posted uint32 // ever
	pub    uint32 // posted at the last Publish
	reaped uint32 // entries taken from back

	// back is a ring of entries given back, plus one; 0: not written yet. given
	// hands out its places. An entry is in it once at most, so it never overflows.
	back  []atomic.Uint32
	out   []atomic.Uint32 // 1: the entry is posted and not given back
	given atomic.Uint32
}

// NewSRQ makes a shared receive queue over memory of at least stride*entries
// bytes, and chains the entries. It must come before the device's half.
func NewSRQ(mem []byte, rec Record, stride, entries int) (*SRQ, error) {
	if err := checkSRQ(mem, rec, stride, entries); err != nil {
		return nil, err
	}
	s := &SRQ{
		mem: mem[:stride*entries], wrIDs: make([]uint64, entries), stride: stride, mask: uint32(entries - 1), rec: rec,
		tail: uint32(entries - 1), back: make([]atomic.Uint32, entries), out: make([]atomic.Uint32, entries),
	}
	InitSRQ(s.mem, stride, entries)
	rec.StoreSRQ(0)
	return s, nil
}

func (s *SRQ) entry(i uint32) []byte {
	off := int(i) * s.stride
	return s.mem[off : off+s.stride]
}

// Post writes one request. Pieces of no bytes are written, too. It is false
// when the queue is full or the pieces are too many; nothing has changed then.
func (s *SRQ) Post(segs []Seg, wrID uint64) bool {
	if s.Free() == 0 {
		return false
	}
	i := s.head
	e := s.entry(i)
	if !PutSRQEntry(e, segs) {
		return false
	}
	s.wrIDs[i] = wrID
	s.out[i].Store(1)
	s.head = uint32(SRQNext(e)) & s.mask
	s.posted++
	return true
}

// Free gives the requests that still fit. It appends what was given back when
// none would.
func (s *SRQ) Free() int {
	if s.head == s.tail {
		s.reap()
	}
	if s.head == s.tail {
		return 0
	}
	return int(s.mask) - int(s.posted-s.reaped)
}

// reap appends the entries given back to the free list. Partner: Take.
func (s *SRQ) reap() {
	for {
		p := &s.back[s.reaped&s.mask]
		i := p.Load()
		if i == 0 {
			return
		}
		p.Store(0)
		s.reaped++
		SetSRQNext(s.entry(s.tail), uint16(i-1))
		s.tail = i - 1
	}
}

// Publish hands all posted entries to the device: barrier, then the record.
func (s *SRQ) Publish() {
	if s.posted == s.pub {
		return
	}
	s.pub = s.posted
	barrier.ToDevice() // entries before the record
	s.rec.StoreSRQ(s.posted)
}

// Take completes the entry of that index, which a completion names, and gives
// it back; ok is false when it is not posted. Any goroutine may call it.
// Partner: Post.
func (s *SRQ) Take(index uint16) (wrID uint64, ok bool) {
	i := uint32(index)
	if i > s.mask || !s.out[i].CompareAndSwap(1, 0) {
		return 0, false
	}
	wrID = s.wrIDs[i]
	at := s.given.Add(1) - 1
	s.back[at&s.mask].Store(i + 1)
	return wrID, true
}

// Outstanding gives the requests posted and not completed. The poster calls it.
func (s *SRQ) Outstanding() int { return int(s.posted - s.given.Load()) }

// Max gives the requests that fit.
func (s *SRQ) Max() int { return int(s.mask) }

// MaxSGE gives the pieces that fit an entry.
func (s *SRQ) MaxSGE() int { return s.stride/DSBytes - 1 }

// DevSRQ is the device half of a shared receive queue. The NIC's goroutine owns
// it. It walks the chain that the host posts along.
//
//	Available ... Peek -> scatter -> Advance
type DevSRQ struct {
	mem      []byte
	stride   int
	mask     uint32
	rec      Record
	head     uint32 // next entry to take
	posted   uint32 // what the record said last
	consumed uint32
}

// NewDevSRQ makes the device half over the same memory as NewSRQ.
func NewDevSRQ(mem []byte, rec Record, stride, entries int) (*DevSRQ, error) {
	if err := checkSRQ(mem, rec, stride, entries); err != nil {
		return nil, err
	}
	return &DevSRQ{mem: mem[:stride*entries], stride: stride, mask: uint32(entries - 1), rec: rec}, nil
}

// Available gives the entries posted and not taken. It reads the record, which
// acquires the entries; partner: SRQ.Publish. A record that claims more than
// the ring holds counts as a full ring.
func (d *DevSRQ) Available() int {
	n := min(d.rec.LoadSRQ()-d.consumed, d.mask)
	barrier.FromDevice() // the record before the entries
	d.posted = d.consumed + n
	return int(n)
}

// Peek reads the oldest entry's pieces without taking it; ok is false when
// there is none. The record is read only when no entry is known of.
func (d *DevSRQ) Peek(segs []Seg) (n int, ok bool) {
	if d.posted == d.consumed && d.Available() == 0 {
		return 0, false
	}
	return GetSRQEntry(d.entry(d.head), segs), true
}

func (d *DevSRQ) entry(i uint32) []byte {
	off := int(i) * d.stride
	return d.mem[off : off+d.stride]
}

// Advance takes the entry that Peek read and gives its index.
func (d *DevSRQ) Advance() uint16 {
	i := d.head
	if d.posted != d.consumed {
		d.consumed++
		d.head = uint32(SRQNext(d.entry(i))) & d.mask
	}
	return uint16(i)
}
