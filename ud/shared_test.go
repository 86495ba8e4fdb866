package ud

import (
	"context"
	"testing"
	"time"

	"github.com/bluering/bluering/engine"
)

func TestEndpointsShareBuffers(t *testing.T) {
	da, db := openDevice(t, "loop:"+t.Name()), openDevice(t, "loop:"+t.Name())
	s, err := NewSharedReceive(db, 64, 256)
	check(t, err)
	a := newEndpoint(t, da, Config{})
	var servers [3]*Endpoint
	var to [3]Peer
	for i := range servers {
		servers[i] = newEndpoint(t, db, Config{Shared: s})
		to[i] = peerOf(t, a, servers[i])
		if servers[i].MaxPayload() != 256 {
			t.Errorf("payload %d", servers[i].MaxPayload())
		}
	}
	check(t, s.SRQ().SetLimit(8))
	for round := range 50 {
		for i := range 6 {
			check(t, a.Send(to[i%3], []byte{byte(round), byte(i)}))
		}
		for back := 0; back < 6; {
			for i, e := range servers {
				for m := range e.Messages {
					if m.Data[0] != byte(round) || int(m.Data[1])%3 != i {
						t.Fatalf("endpoint %d got %v", i, m.Data)
					}
					check(t, m.Reply(m.Data))
				}
				check(t, e.Commit())
			}
			for range a.Messages {
				back++
			}
		}
	}
	// Not released: the limit is crossed, and an event tells it.
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	events := make(chan engine.AsyncEvent, 1)
	go func() {
		ev, err := db.NextEvent(ctx)
		if err != nil {
			t.Error(err)
		}
		events <- ev
	}()
	var held []Msg
	for told := false; !told; {
		select {
		case ev := <-events:
			if told = true; ev.Type != engine.EventSRQLimitReached || ev.SRQ != s.SRQ() {
				t.Errorf("event %v", ev)
			}
		default:
			if s.SRQ().Outstanding() > 0 {
				check(t, a.Send(to[0], []byte("held")))
				held = append(held, one(t, servers[0], a))
			}
		}
	}
	for i := range held {
		held[i].Release()
	}
	check(t, s.Close()) // it ends with its last endpoint
	check(t, s.Close())
	if e, err := New(db, Config{Shared: s}); err == nil {
		e.Close()
		t.Error("an endpoint on a closed shared receive")
	}
	other := openDevice(t, "loop:other"+t.Name())
	s2, err := NewSharedReceive(db, 4, 0)
	check(t, err)
	if e, err := New(other, Config{Shared: s2}); err == nil {
		e.Close()
		t.Error("an endpoint on another device's shared receive")
	}
	check(t, s2.Close())
	if _, err := NewSharedReceive(db, 4, 1<<20); err == nil {
		t.Error("payload of a mebibyte")
	}
	if _, err := NewSharedReceive(db, -4, 0); err == nil {
		t.Error("negative depth")
	}
}

func TestRecvSleepsByEvents(t *testing.T) {
	for _, w := range []Wakes{WakeByEvent, WakeBySolicited} {
		eachWire(t, Config{}, Config{Wakes: w}, func(t *testing.T, a, b *Endpoint, toB, _ Peer) {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			for i := range 20 {
				sent := make(chan error)
				go func() {
					_, err := a.ReserveWith(toB, i, SendOptions{Solicited: true})
					if err == nil {
						err = a.Commit()
					}
					sent <- err
				}()
				m, err := b.Recv(ctx)
				check(t, err)
				if len(m.Data) != i || !m.Solicited {
					t.Fatalf("%d bytes", len(m.Data))
				}
				m.Release()
				check(t, <-sent)
			}
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			_, err := b.Recv(short)
			wantErr(t, err, context.DeadlineExceeded)
			stopped, stop := context.WithCancel(ctx)
			go stop()
			_, err = b.Recv(stopped)
			wantErr(t, err, context.Canceled)
			if b.Channel() == nil || b.Channel().FD() < 0 {
				t.Error("no descriptor to wait for")
			}
			check(t, b.Arm())
			if a.Channel() != nil || a.Arm() == nil {
				t.Error("an endpoint without events has a channel")
			}
		})
	}
}
