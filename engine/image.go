package engine

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/bluering/bluering/ring"
)

// ImageConfig describes a stream of look-alike packets.
type ImageConfig struct {
	Frame  []byte // each slot starts as a copy of it
	Inline bool   // the bytes stand in the ring itself, else in a pool of the image's own
	MaxLen int    // pool only: SetLen may go up to it; 0: len(Frame)
	IPCsum bool   // fill in IP and TCP or UDP checksums
	// SignalEvery: a Rearm asks for a completion, of its last packet, once that
	// many are under way without one. 0 means 1, every Rearm. It is at most a
	// quarter of the slots, so that room always comes back.
	SignalEvery int
}

// Image is a raw packet queue pair's send ring filled with ready WQEs. Sending
// is re-arming: Rearm writes each WQE's index word and nothing else. While it is
// there, Post and Reserve are refused.
//
//	Rearm(n) ─▶ counters first, first+Step, ... ─▶ patch the frames' bytes ─▶ Publish
//
// Slot k of the image lies at block k*Step of the ring, and its frame always at
// the same place: Spans says where. The owner of the queue pair owns the image.
type Image struct {
	q       *QP
	sq      *ring.SQ
	pool    *Pool
	spans   [2]Span
	nspans  int
	step    uint32 // blocks of a WQE
	mask    uint32
	slots   int
	frame   int // bytes
	maxLen  int
	every   int
	pending int    // packets since the last one signaled
	nextID  uint64 // WR id of the next packet: they are numbered
	always  bool   // SigAll
	marks   []uint32
	head    uint32 // oldest of marks: slots whose completion bit is set
	tail    uint32
}

// Span says where a stretch of each slot's frame lies: its bytes from From to
// From+Len are, for slot k, at Mem[k*Stride+Off:].
type Span struct {
	Mem         []byte
	Stride, Off int
	From, Len   int
}

// NewImage lays the frame over the send ring. Nothing may be outstanding.
func (q *QP) NewImage(c ImageConfig) (*Image, error) {
	if err := q.usable(); err != nil {
		return nil, err
	}
	if !q.scq.owner.enter() {
		return nil, fmt.Errorf("engine: QP 0x%x: %w", q.qpn, ErrOwner)
	}
	defer q.scq.owner.leave()
	if c.MaxLen == 0 {
		c.MaxLen = len(c.Frame)
	}
	if err := q.checkImage(&c); err != nil {
		return nil, fmt.Errorf("engine: QP 0x%x: image: %w", q.qpn, err)
	}
	m := &Image{q: q, sq: q.sq, mask: q.idMask, frame: len(c.Frame), maxLen: c.MaxLen, always: q.enc.always != 0}
	ds := m.units(q.enc.minInline, c.Inline)
	m.step = uint32(ring.BlocksFor(ds))
	m.slots = q.sq.Slots() / int(m.step)
	if q.sq.PI()&m.mask%m.step != 0 {
		return nil, fmt.Errorf("engine: QP 0x%x: image: the send queue stands within a slot, move it to RESET first: %w",
			q.qpn, syscall.EINVAL)
	}
	if !c.Inline {
		pool, err := q.pd.AllocPool(m.slots, c.MaxLen)
		if err != nil {
			return nil, err
		}
		m.pool = pool
	}
	m.every = min(max(c.SignalEvery, 1), max(m.slots/4, 1))
	m.marks = make([]uint32, q.sq.Slots())
	m.lay(&c, ds)
	q.image = m
	return m, nil
}

func (q *QP) checkImage(c *ImageConfig) error {
	caps := &q.dev.caps
	least := max(ethHeader, caps.MinInline+1)
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), syscall.EINVAL)
	}
	switch {
	case q.typ != RawPacket:
		return bad("queue pair is of type %v", q.typ)
	case len(c.Frame) < least:
		return bad("frame of %d bytes, want at least %d", len(c.Frame), least)
	case c.MaxLen < len(c.Frame) || c.MaxLen > caps.MaxFrame:
		return bad("frames of up to %d bytes, want %d..%d", c.MaxLen, len(c.Frame), caps.MaxFrame)
	case c.Inline && c.MaxLen != len(c.Frame):
		return bad("inline frames have one length")
	case c.Inline && len(c.Frame) > q.cap.MaxInline:
		return bad("%d bytes inline, at most %d", len(c.Frame), q.cap.MaxInline)
	case c.IPCsum && !caps.Has(OffloadRawCsum):
		return bad("the device has no checksum offload")
	case c.SignalEvery < 0:
		return bad("a completion every %d packets", c.SignalEvery)
	case q.image != nil || q.inBatch || q.sq.Outstanding() != 0:
		return fmt.Errorf("the send queue is in use: %w", syscall.EBUSY)
	}
	return nil
}

func (m *Image) units(minInline int, inline bool) int {
	ds := 1 + ring.EthDS(minInline)
	if inline {
		return ds + ring.InlineDS(m.frame-minInline)
	}
	return ds + 1
}

// lay writes all WQEs and frames.
func (m *Image) lay(c *ImageConfig, ds int) {
	head := m.q.dev.caps.MinInline
	csum := uint8(0)
	if c.IPCsum {
		csum = ring.CsumL3 | ring.CsumL4
	}
	blocks := m.sq.Blocks()
	at := 0
	for k := range m.slots {
		w := blocks[k*int(m.step) : (k+1)*int(m.step)]
		ring.PutCtrl(&w[0], 0, ring.OpSend, m.sq.QPN(), ds, m.q.enc.always, 0)
		at = ring.PutEth(w, csum, 0, c.Frame[:head])
		end := at + 1
		if c.Inline {
			end = ring.PutInline(w, at, c.Frame[head:])
		} else {
			copy(m.pool.Bytes(uint32(k)), c.Frame)
			s := m.pool.SGE(uint32(k), len(c.Frame))
			ring.PutData(w, at, ring.Seg{Addr: s.MR.addr + uint64(s.Off) + uint64(head), Len: s.Len - uint32(head), LKey: s.MR.lkey})
		}
		ring.PutTail(w, end)
	}
	stride := int(m.step) * ring.BlockBytes
	if head != 0 {
		m.spans[0] = Span{Mem: ring.Flatten(blocks), Stride: stride, Off: ring.OffInlineHdr, Len: head}
		m.nspans = 1
	}
	body := Span{Mem: ring.Flatten(blocks), Stride: stride, Off: ring.InlineOff(at), From: head, Len: m.frame - head}
	if !c.Inline {
		body.Mem, body.Stride, body.Off, body.Len = m.pool.bytes, m.pool.stride, head, m.maxLen-head
	}
	m.spans[m.nspans] = body
	m.nspans++
}

// Slots gives the number of WQEs in the ring.
func (m *Image) Slots() int {
	if m == nil {
		return 0
	}
	return m.slots
}

// Step gives the blocks of a WQE: the distance of two packets' counters.
func (m *Image) Step() uint32 {
	if m == nil {
		return 0
	}
	return m.step
}

// Slot gives the slot of a counter that Rearm returned.
func (m *Image) Slot(counter uint32) int {
	if m == nil || m.step == 0 {
		return 0
	}
	return int((counter & m.mask) / m.step)
}

// Spans tells where the frames' bytes are, for loops that patch many: one span,
// or two on devices with an inline header. Valid until Close of the image, its
// queue pair or the device.
func (m *Image) Spans() []Span {
	if m == nil {
		return nil
	}
	return m.spans[:m.nspans]
}

// Frame gives the bytes of a slot's frame: those in the WQE that the device
// wants inline, if any, and the rest. They may be patched between the Rearm that
// returned the slot and its Publish.
func (m *Image) Frame(slot int) (head, body []byte) {
	if m == nil || m.q == nil || m.q.closed.Load() || uint(slot) >= uint(m.slots) {
		return nil, nil
	}
	b := &m.spans[m.nspans-1]
	body = b.Mem[slot*b.Stride+b.Off:][:b.Len:b.Len]
	if m.nspans == 2 {
		h := &m.spans[0]
		head = h.Mem[slot*h.Stride+h.Off:][:h.Len:h.Len]
	}
	return head, body
}

// SetLen sets the length of a slot's frame. It is false, and nothing changes,
// when the frame is inline or the length out of range.
func (m *Image) SetLen(slot, n int) bool {
	if m == nil || m.q == nil || m.q.closed.Load() || m.pool == nil || uint(slot) >= uint(m.slots) {
		return false
	}
	head := m.q.dev.caps.MinInline
	if n < max(ethHeader, head+1) || n > m.maxLen {
		return false
	}
	at := (1 + ring.EthDS(head)) * ring.DSBytes
	w := &m.sq.Blocks()[slot*int(m.step)]
	binary.BigEndian.PutUint32(w[at:at+4], uint32(n-head))
	return true
}

// Rearm makes up to n packets ready to be sent again and gives the counter of
// the first and how many they are: less than n at the ring's edge, so that the
// slots are consecutive, or when the oldest are still under way; 0 when there is
// no room before a completion is polled. They leave with Publish.
func (m *Image) Rearm(n int) (first uint32, got int) {
	if m == nil || m.q == nil || m.q.closed.Load() || !m.q.enc.open || n < 1 || !m.q.scq.owner.enter() {
		return 0, 0
	}
	w, pi, got := m.sq.ReserveRun(n, int(m.step))
	if got == 0 {
		m.q.scq.owner.leave()
		return 0, 0
	}
	if m.step == 1 {
		rearm1(w, pi)
	} else {
		rearm(w, pi, m.step)
	}
	if !m.always {
		m.signal(w, pi, got)
	}
	m.sq.CommitRun(got, int(m.step), m.nextID)
	m.nextID += uint64(got)
	m.q.scq.owner.leave()
	return pi, got
}

// signal clears the completion bits that the run's slots have from their last
// use, and sets that of the last when one is due.
func (m *Image) signal(w []ring.Block, pi uint32, got int) {
	s := pi & m.mask
	for m.head != m.tail {
		at := m.marks[m.head&m.mask]
		if at-s >= uint32(len(w)) {
			break
		}
		ring.SetFlags(&w[at-s], 0)
		m.head++
	}
	if m.pending += got; m.pending < m.every {
		return
	}
	m.pending = 0
	last := uint32(len(w)) - m.step
	ring.SetFlags(&w[last], ring.FlagSignaled)
	m.marks[m.tail&m.mask] = s + last
	m.tail++
}

// rearm1 writes the index words of WQEs of one block.
func rearm1(w []ring.Block, pi uint32) {
	v := pi<<8 | uint32(ring.OpSend)
	const step, keep = 1 << 8, 1<<24 - 1
	for len(w) >= 4 {
		p := (*[4]ring.Block)(w)
		binary.BigEndian.PutUint32(p[0][0:4], v&keep)
		binary.BigEndian.PutUint32(p[1][0:4], (v+step)&keep)
		binary.BigEndian.PutUint32(p[2][0:4], (v+2*step)&keep)
		binary.BigEndian.PutUint32(p[3][0:4], (v+3*step)&keep)
		v += 4 * step
		w = w[4:]
	}
	for i := range w {
		binary.BigEndian.PutUint32(w[i][0:4], v&keep)
		v += step
	}
}

// rearm writes the index words of WQEs of several blocks.
func rearm(w []ring.Block, pi, step uint32) {
	for i := uint32(0); i < uint32(len(w)); i += step {
		binary.BigEndian.PutUint32(w[i][0:4], (pi+i)&0xffff<<8|uint32(ring.OpSend))
	}
}

// Publish sends what was re-armed and rings once.
func (m *Image) Publish() error {
	if m == nil || m.q == nil {
		return closedPost
	}
	q := m.q
	if q.closed.Load() {
		return q.refuse(CauseClosed, 0, false)
	}
	if !q.scq.owner.enter() {
		return ErrOwner
	}
	q.ringDoorbell()
	q.scq.owner.leave()
	return nil
}

// restart follows a reset of the queue pair: the WQEs stay.
func (m *Image) restart() {
	for ; m.head != m.tail; m.head++ {
		ring.SetFlags(&m.sq.Blocks()[m.marks[m.head&m.mask]], 0)
	}
	m.pending, m.nextID = 0, 0
}

// Close gives the send queue back to Post; EBUSY while packets are under way. A
// second Close does nothing.
func (m *Image) Close() error {
	if m == nil || m.q == nil || m.q.usable() != nil {
		return nil
	}
	if !m.q.scq.owner.enter() {
		return ErrOwner
	}
	defer m.q.scq.owner.leave()
	if n := m.sq.Outstanding(); n != 0 {
		return fmt.Errorf("engine: QP 0x%x: image: %d packets are under way: %w", m.q.qpn, n, syscall.EBUSY)
	}
	return m.release()
}

// release frees the image's memory. The device must be done with it.
func (m *Image) release() error {
	q := m.q
	m.q = nil
	q.image = nil
	return m.pool.Close()
}
