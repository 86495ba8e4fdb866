package wire

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/bluering/bluering/internal/clock"
)

// Tap is a wire with a recorder beside it: each committed frame and each released one is written to a pcapng
// stream with its direction and time. It copies and allocates; it is for looking, not for speed.
type Tap struct {
	Wire
	out      *pcapgo.NgWriter
	clk      clock.Clock
	epoch    int64
	bufs     [][]byte // of the last Reserve
	last     []Frame  // of the last Next
	recorded uint64
	err      error
}

// NewTap records the wire's frames to out, in pcapng with nanoseconds of the clock (nil: clock.System()). The
// caller closes out after the Tap. A recording that fails stops, the wire goes on; RecordErr and Close tell.
func NewTap(w Wire, out io.Writer, c clock.Clock) (*Tap, error) {
	if c == nil {
		c = clock.System()
	}
	ng, err := newNgWriter(out, w.Info().Name)
	if err != nil {
		return nil, fmt.Errorf("wire: tap on %s: %w", w.Info().Name, err)
	}
	return &Tap{Wire: w, out: ng, clk: c, epoch: wallEpoch(c)}, nil
}

// Recorded returns how many frames the recording has.
func (t *Tap) Recorded() uint64 { return t.recorded }

// RecordErr returns what stopped the recording.
func (t *Tap) RecordErr() error { return t.err }

func (t *Tap) Reserve(lens []int32, bufs [][]byte) int {
	n := t.Wire.Reserve(lens, bufs)
	t.bufs = append(t.bufs[:0], bufs[:n]...)
	return n
}

func (t *Tap) Commit(n int) {
	n = min(n, len(t.bufs))
	now := t.clk.Now()
	for _, b := range t.bufs[:n] {
		t.record(b, now, pcapgo.NgEpbFlagDirectionOutbound)
	}
	t.bufs = t.bufs[:0]
	t.Wire.Commit(n)
}

func (t *Tap) Next(frames []Frame) int {
	n := t.Wire.Next(frames)
	t.last = append(t.last[:0], frames[:n]...)
	return n
}

// Release records what is released: a frame that is looked at twice is recorded once.
func (t *Tap) Release(n int) {
	n = min(n, len(t.last))
	now := t.clk.Now()
	for i := range t.last[:n] {
		at := t.last[i].TimeNS
		if at == 0 {
			at = now
		}
		t.record(t.last[i].Data, at, pcapgo.NgEpbFlagDirectionInbound)
	}
	t.last = t.last[n:]
	t.Wire.Release(n)
}

// Close ends the recording and closes the wire.
func (t *Tap) Close() error {
	if t.err == nil {
		if err := t.out.Flush(); err != nil {
			t.err = fmt.Errorf("wire: recording of %s: %w", t.Info().Name, err)
		}
	}
	return errors.Join(t.err, t.Wire.Close())
}

func (t *Tap) record(b []byte, at int64, direction pcapgo.NgEpbFlag) {
	if t.err != nil {
		return
	}
	ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, t.epoch+at).UTC(), CaptureLength: len(b), Length: len(b)}
	flags := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: direction}}
	if err := t.out.WritePacketWithOptions(ci, b, flags); err != nil {
		t.err = fmt.Errorf("wire: recording of %s: %w", t.Info().Name, err)
		return
	}
	t.recorded++
}
