package ud

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/bluering/bluering/engine"
)

const (
	replyEntries = 256
	quickResolve = 10 * time.Millisecond // how long an answer may be held up by its next hop
	slowResolve  = 3 * time.Second       // how long it is looked for meanwhile
	tryAgain     = 20 * time.Millisecond
	maxSlow      = 4 // next hops looked for at a time
)

// replyKey is what an answer's address depends on.
type replyKey struct {
	gid    engine.GID
	sgid   int32
	tclass uint8
}

// replyCache has the addresses of the senders that were answered last: one place
// for each, chosen by their GID. No map, and no memory that grows.
type replyCache struct {
	entries [replyEntries]struct {
		key    replyKey
		ah     *engine.AH
		absent time.Time // there is no address before then
	}
}

func (k *replyKey) place() uint64 {
	h := binary.LittleEndian.Uint64(k.gid[:]) ^ binary.LittleEndian.Uint64(k.gid[8:]) ^ uint64(k.tclass)
	return h * 0x9e3779b97f4a7c15 >> 56
}

const _ = uint(1<<8-replyEntries) + uint(replyEntries-1<<8) // place gives eight bits

func (r *replyCache) close() error {
	var errs []error
	for i := range r.entries {
		errs = append(errs, r.entries[i].ah.Close())
	}
	return errors.Join(errs...)
}

// answer gives the destination that answers a message.
func (e *Endpoint) answer(m *Msg) (engine.Dest, error) {
	wc := engine.Completion{Recv: true}
	if m.grh {
		wc.Flags = engine.WCGRH
	}
	return e.pd.DestFromCompletion(&wc, e.rx.frames[m.slot][:grhBytes])
}

// Reply sends data to the sender of the message, out of the memory that the
// message came in, and releases it; what Reserve gave before goes first, and
// nothing goes before Commit. data may be a part of m.Data, or m.Data with bytes
// appended, and is then sent from where it lies; else it is copied there. The
// answer goes to the Q_Key of this endpoint, in the message's traffic class.
//
// On an error the message is still valid. ErrUnresolved means that the next hop
// to the sender is being looked for: a later message from there can be answered.
func (m *Msg) Reply(data []byte) error { return m.ReplyWith(data, SendOptions{}) }

// ReplyWith is Reply with options.
func (m *Msg) ReplyWith(data []byte, o SendOptions) error {
	if !m.live() {
		return ErrReleased
	}
	e := m.e
	if len(data) > e.cfg.Payload {
		return ErrLength
	}
	if e.gone() {
		return ErrClosed
	}
	d, err := e.answer(m)
	if err != nil {
		return err
	}
	key := replyKey{d.GID, int32(d.SGIDIndex), d.TrafficClass}
	c := &e.replies.entries[key.place()]
	if c.key != key || c.ah == nil {
		if err := e.learn(key); err != nil {
			return err
		}
	}
	at, err := e.slot()
	if err != nil {
		return err
	}
	off := m.locate(data)
	sge := e.rx.wrs[m.slot].SGEs[0]
	sge.Off, sge.Len = sge.Off+uint32(off), uint32(len(data))
	e.tx.fill(at, c.ah, m.SrcQPN, e.cfg.QKey, o)
	e.tx.put(at, sge, e.rx.frames[m.slot][off:off+len(data)])
	e.tx.lent[at] = int32(m.slot)
	e.rx.turn[m.slot]++
	return nil
}

// locate gives the place of data in the message's frame, where it puts it if it
// lies elsewhere. Slices of one array end at the same byte when their capacity
// was not cut.
func (m *Msg) locate(data []byte) int {
	frame := m.e.rx.frames[m.slot]
	if off := cap(frame) - cap(data); len(data) > 0 && off >= 0 && &frame[:cap(frame)][off] == &data[0] {
		return off
	}
	copy(frame[grhBytes:], data)
	return grhBytes
}

// learn finds the address of a sender for the cache.
func (e *Endpoint) learn(key replyKey) error {
	c := &e.replies.entries[key.place()]
	if c.key == key && time.Now().Before(c.absent) {
		return ErrUnresolved
	}
	d := engine.Dest{GID: key.gid, SGIDIndex: int(key.sgid), TrafficClass: key.tclass}
	ah, err := e.known(key)
	if ah == nil && err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), quickResolve)
		ah, err = e.pd.ResolveAH(ctx, d)
		cancel()
	}
	e.peers.retire(c.ah) // a request that is not posted yet may name it
	c.key, c.ah = key, ah
	if err != nil {
		c.absent = time.Now().Add(tryAgain)
		e.lookFor(key, d)
		return ErrUnresolved
	}
	return nil
}

// known makes an address of what was found meanwhile; nil if nothing was.
func (e *Endpoint) known(key replyKey) (*engine.AH, error) {
	t := &e.peers
	t.mu.Lock()
	attr, ok := t.learned[key]
	delete(t.learned, key)
	t.mu.Unlock()
	if !ok {
		return nil, nil
	}
	return e.pd.NewAH(attr)
}

// lookFor looks for a next hop beside the owner, unless too many are looked for.
func (e *Endpoint) lookFor(key replyKey, d engine.Dest) {
	t := &e.peers
	if t.slow.Add(1) > maxSlow {
		t.slow.Add(-1)
		return
	}
	go func() {
		defer t.slow.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), slowResolve)
		defer cancel()
		a, err := e.dev.Resolve(ctx, d)
		if err != nil {
			return // the next message tries again
		}
		t.mu.Lock()
		t.learn(key, a)
		t.mu.Unlock()
	}()
}
