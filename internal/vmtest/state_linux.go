package vmtest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// guestState prints what the machine's kernel knows of its end of the wire, and what its programs wait in.
const guestState = `ip -s link show eth0; ip neigh
	grep -H . /sys/class/infiniband/*/ports/1/hw_counters/* | sed 's,.*/infiniband/,,; s,ports/1/hw_counters/,,'
	ps -eo pid,stat,wchan:24,args | grep -v '\[.*\]$'`

// State is what a test prints that waited in vain: counters, neighbours and programs at both ends of the machine's eth0,
// as text for a reader. It takes a minute at most, and never fails.
func (m *Machine) State() string {
	guest, _, err := m.Spawn(step/2, "sh", "-c", guestState).Wait()
	if err != nil {
		guest += err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), step/2)
	defer cancel()
	host, err := exec.CommandContext(ctx, "sh", "-c", "ip -s link show "+m.Tap+"; ip neigh show dev "+m.Tap).CombinedOutput()
	if err != nil {
		host = append(host, err.Error()...)
	}
	return fmt.Sprintf("in the machine:\n%s\non the host:\n%s", guest, host)
}

// Watch counts from now on what the machine's RDMA device sends and receives. What it gives tells, in a run of so many
// sent and received datagrams of ours, whose datagram is missing where, and State.
func (m *Machine) Watch(t testing.TB, device string) (explain func(sent, received uint64) string) {
	t.Helper()
	before := m.RXECounters(t, device)
	began := time.Now()
	return func(sent, received uint64) string {
		now, err := m.rxeCounters(device)
		if err != nil {
			return err.Error() + "\n" + m.State()
		}
		theirSent, theirReceived := now["sent_pkts"]-before["sent_pkts"], now["rcvd_pkts"]-before["rcvd_pkts"]
		var said []string
		if theirSent > received {
			said = append(said, fmt.Sprintf("%d datagrams of the machine's did not reach us, who wait", theirSent-received))
		}
		if sent > theirReceived {
			said = append(said, fmt.Sprintf("%d datagrams of ours did not reach the machine, which waits", sent-theirReceived))
		}
		if sent+received+theirSent+theirReceived == 0 {
			said = append(said, "nobody has sent a datagram: the two have not met over TCP, or wait for each other")
		} else if len(said) == 0 {
			said = append(said, "every datagram reached the other device: somebody waits for a completion, or has ended")
		}
		return fmt.Sprintf("after %v: we sent %d and received %d, the machine sent %d and received %d: %s\n%s", time.Since(began).Round(time.Millisecond),
			sent, received, theirSent, theirReceived, strings.Join(said, "; "), m.State())
	}
}
