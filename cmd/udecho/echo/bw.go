package echo

import (
	"context"
	"errors"
	"time"

	"github.com/bluering/bluering/ud"
	"github.com/bluering/bluering/ud/exchange"
)

// bwBurst is how many datagrams go with one doorbell.
const bwBurst = 64

// BW sends as many datagrams as go, or at a rate, and asks the peer how many
// came. Only the native exchange can ask.
func BW(ctx context.Context, c Config) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.onePath(); err != nil {
		return nil, err
	}
	x, err := connect(ctx, "bw", &c, exchange.ModeSink)
	if err != nil {
		return nil, err
	}
	if err := x.begin(); err != nil {
		return x.finish(err)
	}
	err = x.pour()
	if err == nil {
		err = x.settle()
	}
	if err == nil && x.ctx.Err() == nil {
		err = x.askPeer()
	}
	return x.finish(err)
}

// pour sends until the run is over.
func (x *client) pour() error {
	r := x.r
	for seq, now := uint64(0), x.start; !x.over(seq, now); {
		n := uint64(bwBurst)
		if x.c.paced() {
			due := x.at.Due(now - x.start)
			n = min(n, due-min(seq, due))
		}
		if x.c.Count != 0 {
			n = min(n, x.c.Count-seq)
		}
		put := uint64(0)
		for ; put < n; put++ {
			if err := x.put(x.peers[0], seq+put); errors.Is(err, ud.ErrFull) {
				break
			} else if err != nil {
				return err
			}
		}
		if put > 0 {
			if err := x.ep.Commit(); err != nil {
				r.SendFailed += put
				return err
			}
			seq += put
			r.Sent += put
			r.SentBytes += put * uint64(x.c.Size)
		}
		x.discard()
		now = x.clk.Now()
		if put > 0 {
			r.ElapsedNS = now - x.start
			x.sendNS = r.ElapsedNS
		}
		x.progress(now)
		if x.stopped() {
			return nil
		}
		if put == 0 {
			if err := x.rest(int64(time.Millisecond)); err != nil {
				return err
			}
		}
	}
	return x.err()
}

// discard takes completions, and answers that nobody wants.
func (x *client) discard() {
	n := x.ep.Poll(x.msgs[:])
	for i := range x.msgs[:n] {
		x.r.Foreign++
		x.msgs[i].Release()
	}
}

// settle waits until the device has taken everything.
func (x *client) settle() error {
	end := x.clk.Now() + int64(x.c.Timeout)
	for x.dev.Counters().TxFrames-x.first.TxFrames < x.r.Sent && x.clk.Now() < end && x.ctx.Err() == nil {
		x.discard()
	}
	return x.err()
}

// askPeer asks until the peer has all, or its count has stood still for the timeout.
func (x *client) askPeer() error {
	last, since := uint64(0), x.clk.Now()
	for {
		counts, err := x.s.Counts(x.ctx)
		if errors.Is(err, exchange.ErrNotTold) {
			x.r.Notes = append(x.r.Notes, "nobody counted what arrived: only the native exchange tells")
			return nil
		}
		if err != nil {
			return err
		}
		x.discard()
		now := x.clk.Now()
		if counts.Received != last {
			last, since = counts.Received, now
		}
		if counts.Received >= x.r.Sent || now-since >= int64(x.c.Timeout) {
			r := x.r
			r.PeerCounts = &PeerCounts{Received: counts.Received, Bytes: counts.Bytes, Answered: counts.Answered, Limited: counts.Limited, Dropped: counts.Dropped}
			r.LossKnown = true
			r.Received, r.Unique, r.RecvBytes = counts.Received, counts.Received, counts.Bytes
			return nil
		}
		select {
		case <-x.ctx.Done():
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}
