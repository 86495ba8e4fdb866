//go:build race

package engine

import (
	"errors"
	"testing"
)

func TestSecondOwnerIsTold(t *testing.T) {
	r := newRig(t, rigConfig{})
	m, err := r.q.NewImage(ImageConfig{Frame: make([]byte, 60)})
	r.ok(err)
	if !r.cq.owner.enter() { // as another goroutine in the middle of Poll has done
		t.Fatal("taken already")
	}
	_, post := r.q.Post([]SendWR{{}})
	_, recv := r.q.PostRecv([]RecvWR{{}})
	_, poll := r.cq.Poll(r.wc)
	_, _, reserve := r.q.Reserve(1)
	for i, err := range []error{post, recv, poll, reserve, r.q.PostAll([]SendWR{{}}), r.q.Modify(StateErr, QPAttr{}, 0),
		r.q.Close(), r.cq.Close(), m.Publish(), m.Close(), r.q.QueueRecv(1, SGE{})} {
		if !errors.Is(err, ErrOwner) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if _, got := m.Rearm(1); got != 0 {
		t.Error("re-armed")
	}
	r.cq.owner.leave()
	if _, err := r.cq.Poll(r.wc); err != nil {
		t.Fatal(err)
	}
}
