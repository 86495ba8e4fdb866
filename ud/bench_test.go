package ud

import "testing"

// BenchmarkOneAtATime is what a datagram of 16 bytes costs that goes alone, which is what a latency is made of: its
// post, its receive, and a look that finds nothing, all in one goroutine and hot. sent=32 is a post of 32.
func BenchmarkOneAtATime(b *testing.B) {
	const burst = 32
	open := func(b *testing.B) (tx, rx *Endpoint, to Peer) {
		tx, rx, to, _ = pair(b, "loop:TEST", "loop:TEST", Config{Inline: 64}, Config{})
		return tx, rx, to
	}
	send := func(b *testing.B, e *Endpoint, to Peer, n int) {
		for range n {
			if _, err := e.Reserve(to, 16); err != nil {
				b.Fatal(err)
			}
		}
		if err := e.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	take := func(b *testing.B, e *Endpoint, msgs []Msg, n int) {
		for got := 0; got < n; {
			k := e.Poll(msgs)
			for i := range msgs[:k] {
				msgs[i].Release()
			}
			got += k
		}
	}
	report := func(b *testing.B, n int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/float64(b.N), "ns/pkt")
	}
	many, one := make([]Msg, burst), make([]Msg, 1)
	for _, c := range []struct {
		name string
		sent int // by one post
		took []Msg
	}{{"post=1/poll=32", 1, many}, {"post=32/poll=1", burst, one}, {"post=32/poll=32", burst, many}, {"post=1/poll=1", 1, one}} {
		b.Run(c.name, func(b *testing.B) {
			tx, rx, to := open(b)
			b.ReportAllocs()
			for b.Loop() {
				for range burst / c.sent {
					send(b, tx, to, c.sent)
				}
				take(b, rx, c.took, burst)
			}
			report(b, burst)
		})
	}
	b.Run("poll=0", func(b *testing.B) {
		_, rx, _ := open(b)
		for b.Loop() {
			rx.Poll(one)
		}
		report(b, 1)
	})
}
