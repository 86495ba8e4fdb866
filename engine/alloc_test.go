//go:build !race

package engine

import (
	"errors"
	"syscall"
	"testing"

	"github.com/bluering/bluering/ring"
)

func TestHotPathsAllocateNothing(t *testing.T) {
	r := newRig(t, rigConfig{qp: QPConfig{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 3, MaxInline: 64}})
	r.s.quiet = true
	wrs := make([]SendWR, 16)
	for i := range wrs {
		wrs[i] = r.wr(uint64(i), 0)
	}
	wrs[3].SGEs = append(wrs[3].SGEs, r.mr.SGE(0, 5))
	wrs[9] = SendWR{Opcode: OpSend, Flags: Inline, Inline: r.mem[:60]}
	wrs[15].Flags = Signaled
	recvs := make([]RecvWR, 8)
	for i := range recvs {
		recvs[i] = RecvWR{SGEs: []SGE{r.mr.SGE(0, 100)}}
	}
	bad := append([]SendWR{}, wrs...)
	bad[15] = SendWR{Opcode: OpSend}
	sink := 0
	fill := r.s.qps[r.q.qpn].spec.UserIndex
	dev := r.s.cq(r.cq.cqn).dev
	for name, f := range map[string]func(){
		"Post and Poll": func() {
			n, err := r.q.Post(wrs)
			m, err2 := r.cq.Poll(r.wc)
			if n != 16 || err != nil || m != 1 || err2 != nil {
				t.Fatal(n, err, m, err2)
			}
		},
		"Post refused": func() {
			n, err := r.q.Post(bad[15:])
			if n != 0 || err == nil || !errors.Is(err, syscall.EINVAL) {
				t.Fatal(n, err)
			}
			if err := r.q.PostAll(bad); err == nil {
				t.Fatal("accepted")
			}
		},
		"PostRecv, refused and not": func() {
			n, err := r.q.PostRecv(recvs)
			sink += n
			if err == nil {
				for range recvs {
					q := r.s.qps[r.q.qpn]
					counter := q.rq.Advance()
					e, _ := dev.Next()
					if counter%2 == 0 {
						e.PutRecv(fill, r.q.qpn, 60, counter, 0)
						dev.Seal(uint8(ring.CQERecv) << 4)
					} else {
						e.PutError(fill, r.q.qpn, 0, counter, ring.SynLocalProt, 0)
						dev.Seal(uint8(ring.CQERecvErr) << 4)
					}
					q.rq.Available()
				}
				dev.Publish()
			}
			m, _ := r.cq.Poll(r.wc)
			for i := range r.wc[:m] {
				if err := r.wc[i].Err(); err != nil && errors.Is(err, StatusFatal) {
					t.Fatal(err)
				}
			}
			if err := r.q.PostRecv1(1, SGE{Len: 1}); err == nil {
				t.Fatal("accepted")
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	full := newRig(t, rigConfig{})
	full.s.hold = true
	one := []SendWR{full.wr(1, 0)}
	for {
		if _, err := full.q.Post(one); err != nil {
			break
		}
	}
	m, err := r.q.NewImage(ImageConfig{Frame: r.mem[:60]})
	r.ok(err)
	for name, f := range map[string]func(){
		"Post when full": func() {
			if _, err := full.q.Post(one); !errors.Is(err, syscall.ENOMEM) || !errors.Is(err, CauseFull) {
				t.Fatal(err)
			}
		},
		"Rearm": func() {
			_, got := m.Rearm(8)
			r.ok(m.Publish())
			if n, err := r.cq.Poll(r.wc); n != 1 || err != nil || got == 0 {
				t.Fatal(n, err, got)
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
