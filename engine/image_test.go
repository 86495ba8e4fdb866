package engine

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/bluering/bluering/ring"
)

func TestImageSendsItsFramesForever(t *testing.T) {
	for _, minInline := range []int{0, 18} {
		for _, inline := range []bool{false, true} {
			for _, size := range []int{60, 61, 150} {
				for _, every := range []int{0, 3, 100} {
					t.Run(fmt.Sprintf("min=%d/inline=%v/size=%d/every=%d", minInline, inline, size, every), func(t *testing.T) {
						runImage(t, minInline, inline, size, every)
					})
				}
			}
		}
	}
}

func runImage(t *testing.T, minInline int, inline bool, size, every int) {
	r := newRig(t, rigConfig{caps: Caps{MinInline: minInline}, qp: QPConfig{MaxSendWR: 6, MaxInline: 150}})
	frame := make([]byte, size)
	for i := range frame {
		frame[i] = byte(i)
	}
	m, err := r.q.NewImage(ImageConfig{Frame: frame, Inline: inline, SignalEvery: every})
	r.ok(err)
	if inline {
		r.mr = MR{}
	} else {
		r.mr, r.mem = m.pool.mr, m.pool.bytes
	}
	n, err := r.q.Post([]SendWR{r.wr(1, 0)})
	checkPost(t, n, err, 0, CauseImage, syscall.EBUSY)
	sent, retired := 0, 0
	for round := 0; sent < 20*m.Slots(); round++ {
		first, got := m.Rearm(1 + round%7)
		if got == 0 {
			t.Fatalf("no room after %d packets, %d retired", sent, retired)
		}
		r.s.sent = r.s.sent[:0]
		for i := range got {
			slot := m.Slot(first + uint32(i)*m.Step())
			head, body := m.Frame(slot)
			if len(head) != minInline || len(head)+len(body) != size {
				t.Fatalf("frame of %d and %d bytes", len(head), len(body))
			}
			if len(head) > 0 {
				head[17] = byte(sent + i)
			}
			body[len(body)-1] = byte(sent + i)
		}
		r.ok(m.Publish())
		if len(r.s.sent) != got {
			t.Fatalf("%d sent of %d", len(r.s.sent), got)
		}
		for i := range r.s.sent {
			want := append([]byte{}, frame...)
			want[size-1] = byte(sent + i)
			if minInline > 0 {
				want[17] = byte(sent + i)
			}
			if got := r.frameOf(&r.s.sent[i]); !bytes.Equal(got, want) {
				t.Fatalf("packet %d:\n%x, want\n%x", sent+i, got, want)
			}
		}
		sent += got
		for _, c := range r.poll() {
			retired += int(c.Retired)
			if c.Status != StatusSuccess || c.WRID != uint64(retired-1) {
				t.Fatalf("%+v after %d", c, retired)
			}
		}
		if sent-retired >= m.every || every == 0 && retired != sent {
			t.Fatalf("%d sent, %d retired, a completion every %d", sent, retired, m.every)
		}
	}
}

func TestImageAndErrors(t *testing.T) {
	r := newRig(t, rigConfig{})
	m, err := r.q.NewImage(ImageConfig{Frame: make([]byte, 60)})
	r.ok(err)
	_, err = r.q.NewImage(ImageConfig{Frame: make([]byte, 60)})
	wantErr(t, "second image", err, syscall.EBUSY)
	r.s.hold = true
	total := 0
	for {
		_, got := m.Rearm(5)
		if got == 0 {
			break
		}
		total += got
	}
	if total != m.Slots() {
		t.Fatalf("%d re-armed of %d slots", total, m.Slots())
	}
	r.ok(m.Publish())
	wantErr(t, "busy", m.Close(), syscall.EBUSY)
	r.s.qps[r.q.qpn].bad = ring.SynLocalProt
	r.s.hold = false
	next := uint64(0)
	for _, c := range r.poll() { // the first fails, the rest is flushed, each by name
		if c.WRID != next || c.Retired != 1 || (c.Status == StatusLocProt) != (next == 0) {
			t.Fatalf("%+v, expected WR %d", c, next)
		}
		next++
	}
	if int(next) != total {
		t.Fatalf("%d of %d completed", next, total)
	}
	r.ok(r.q.Modify(StateReset, QPAttr{}, 0))
	if _, got := m.Rearm(1); got != 0 {
		t.Fatal("re-armed in RESET")
	}
	r.ok(r.q.MoveTo(StateRTS, QPAttr{}))
	first, got := m.Rearm(3)
	if first != 0 || got != 3 {
		t.Fatalf("after RESET %d at %d", got, first)
	}
	r.ok(m.Publish())
	if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 2 || wc[0].Retired != 3 {
		t.Fatalf("%+v", wc)
	}
	r.ok(m.Close())
	r.ok(m.Close())
	_, err = r.q.Post([]SendWR{r.wr(50, Signaled)})
	r.ok(err)
	if wc := r.poll(); len(wc) != 1 || wc[0].WRID != 50 {
		t.Fatalf("%+v", wc)
	}
}

func TestImageLengths(t *testing.T) {
	for _, minInline := range []int{0, 18} {
		r := newRig(t, rigConfig{caps: Caps{MinInline: minInline}})
		m, err := r.q.NewImage(ImageConfig{Frame: make([]byte, 60), MaxLen: 1514})
		r.ok(err)
		for _, n := range []int{60, 1514, 19, 700} {
			_, got := m.Rearm(1)
			if got != 1 || !m.SetLen(m.Slot(r.q.sq.PI()-1), n) {
				t.Fatal(got)
			}
			r.ok(m.Publish())
			k := &r.s.sent[len(r.s.sent)-1]
			if len(k.hdr)+int(k.segs[0].Len) != n {
				t.Fatalf("%+v, want %d bytes", k, n)
			}
		}
		if m.SetLen(0, 1515) || m.SetLen(0, 13) || m.SetLen(m.Slots(), 60) || m.SetLen(-1, 60) {
			t.Fatal("SetLen takes anything")
		}
	}
}

func TestImageRefusals(t *testing.T) {
	frame := make([]byte, 60)
	for id, c := range map[string]ImageConfig{
		"short":       {Frame: frame[:13]},
		"max":         {Frame: frame, MaxLen: 59},
		"over":        {Frame: frame, MaxLen: 1 << 17},
		"inline long": {Frame: make([]byte, 1000), Inline: true},
		"inline var":  {Frame: frame, Inline: true, MaxLen: 61},
		"csum":        {Frame: frame, IPCsum: true},
		"every":       {Frame: frame, SignalEvery: -1},
	} {
		r := newRig(t, rigConfig{})
		_, err := r.q.NewImage(c)
		wantErr(t, id, err, syscall.EINVAL)
	}
	r := newRig(t, rigConfig{qp: QPConfig{Type: UD}})
	_, err := r.q.NewImage(ImageConfig{Frame: frame})
	wantErr(t, "UD", err, syscall.EINVAL)
	r = newRig(t, rigConfig{})
	r.s.fail = errors.New("no memory")
	if _, err = r.q.NewImage(ImageConfig{Frame: frame}); err == nil {
		t.Fatal("no memory, no error")
	}
	_, err = r.q.Post([]SendWR{r.wr(1, 0)})
	r.ok(err)
	_, err = r.q.NewImage(ImageConfig{Frame: frame})
	wantErr(t, "outstanding", err, syscall.EBUSY)
}
