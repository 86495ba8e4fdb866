package acceptance

import (
	"testing"
	"time"

	"github.com/bluering/bluering/internal/nstest"
)

// TestSentIsWhatTheKernelCountedWhenTheLinkGoesDown, to the frame: what the
// kernel refused or never saw has failed.
func TestSentIsWhatTheKernelCountedWhenTheLinkGoesDown(t *testing.T) {
	for _, args := range []string{"", "?send=mmsg", "?send=ring", "?mode=goroutine"} {
		for _, rate := range []string{"max", "200kpps"} {
			t.Run(args+"/rate="+rate, func(t *testing.T) {
				a, _, _ := nstest.Veth(t)
				before := nstest.Count(t, "", a)
				c, r := command(t, "tx", "packet:"+a+args, "-r", rate, "-d", "60s", "--dmac", "02:00:00:00:00:99", "-q", "2")
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				started(t, c)
				for end := time.Now().Add(20 * time.Second); nstest.Count(t, "", a).Sub(before).TxFrames < 1000; {
					if time.Now().After(end) {
						c.Process.Kill()
						t.Fatal("no 1000 frames in 20 s")
					}
				}
				nstest.Down(t, "", a)
				r.finish(t, c, c.Wait())
				if r.code != 1 || r.report == nil {
					t.Fatalf("exit status %d, report %v\n%s", r.code, r.report != nil, r.stderr)
				}
				kernel := nstest.Count(t, "", a).Sub(before)
				if p := r.report; p.Sent != kernel.TxFrames || p.SentBytes != kernel.TxBytes+4*kernel.TxFrames || p.Outcome != "failed" {
					t.Errorf("sent %d (%d bytes), failed %d; the kernel counted %d (%d bytes), %d dropped\n%s", p.Sent, p.SentBytes, p.SendFailed,
						kernel.TxFrames, kernel.TxBytes, kernel.TxDropped, r.stderr)
				}
			})
		}
	}
}
