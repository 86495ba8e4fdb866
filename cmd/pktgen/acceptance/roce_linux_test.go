package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/bluering/bluering/internal/nstest"
)

// datagrams are command lines that between them vary every field that the ICRC covers, and what tshark is to see in
// each frame.
var datagrams = []struct {
	args                     []string
	opcode, qkey, pad, first string // of tshark; first PSN
	qpns                     []string
	queues                   int
}{
	{[]string{"-s", "86-300", "--qpn", "17", "--sport", "49152-65535:rand"}, "100", "0x0000000011111111", "0", "0", []string{"0x000011"}, 1},
	{[]string{"-s", "1518", "--qpn", "0x11,0xfffffe", "--src", "198.18.0.1-198.18.0.250", "--dst", "198.19.0.0/24:rand"}, "100", "0x0000000011111111", "0", "0", []string{"0x000011", "0xfffffe"}, 1},
	{[]string{"--payload", "17", "--qpn", "18", "--qkey", "0x80010000", "--psn", "0xffff00", "--vlan", "1-4094:rand"}, "100", "0x0000000080010000", "3", "16776960", []string{"0x000012"}, 1},
	{[]string{"-s", "110", "--qpn", "17", "--imm", "0xdeadbeef", "--flows", "1000", "--queues", "3"}, "101", "0x0000000011111111", "0", "0", []string{"0x000011"}, 3},
	{[]string{"-s", "106-206", "--qpn", "17", "--src", "2001:2::1-2001:2::ffff", "--dst", "2001:2:0:1::/64:rand", "--flow-label", "0-1048575:rand", "--sport", "49152-65535:rand"},
		"100", "0x0000000011111111", "0", "0", []string{"0x000011"}, 1},
	{[]string{"--payload", "1001", "--qpn", "17", "--dst", "2001:2::2"}, "100", "0x0000000011111111", "3", "0", []string{"0x000011"}, 1},
}

func TestCapturedDatagramsAreRight(t *testing.T) {
	nstest.Judges(t)
	a, b, nsB := nstest.Veth(t)
	nstest.NoOffload(t, "", a)
	const count = 400
	var captures []string
	for i, d := range datagrams {
		capture := filepath.Join(t.TempDir(), "seen.pcapng")
		captures = append(captures, capture)
		from := "packet:" + a
		if i%2 == 1 {
			from += "?gso=auto" // which changes nothing: there is no UDP checksum to make again
		}
		run(t, append([]string{"tx", from, "--rx", "packet:" + b + "?netns=" + nsB, "--proto", "roce-ud", "-n", strconv.Itoa(count),
			"-r", "20kpps", "--seed", "7", "--tap", capture, "--dmac", "02:00:00:00:00:99"}, d.args...)...).clean(t, count)
		dissect(t, i, capture, count)
	}
	spoilt := filepath.Join(t.TempDir(), "spoilt.pcapng")
	data, err := os.ReadFile(captures[0])
	if err == nil {
		err = os.WriteFile(spoilt, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	flipPSN(t, spoilt)
	seen := judgeICRC(t, append(captures, spoilt)...)
	for i, d := range datagrams {
		args, s := strings.Join(d.args, " "), seen[i]
		if s.Frames != count || s.Wrong != 0 {
			t.Errorf("%s: scapy finds %d wrong of %d frames; %s", args, s.Wrong, s.Frames, s.First)
		}
		if want := strings.Contains(args, "2001:"); want != (s.IP6 == count) || want != (s.IP6 != 0) {
			t.Errorf("%s: %d frames over IPv6", args, s.IP6)
		}
		if strings.Contains(args, "65535:rand") && s.Sports < count*9/10 { // of 16,384, so that some come twice
			t.Errorf("%s: %d source ports", args, s.Sports)
		}
	}
	if s := seen[len(datagrams)]; s.Frames != count || s.Wrong != 1 {
		t.Errorf("a flipped bit: scapy finds %d wrong of %d frames", s.Wrong, s.Frames)
	}
}

// judged is what scapy says of a capture.
type judged struct {
	Frames, IP6, Wrong, Sports int
	First                      string `json:"first_wrong"`
}

// judgeICRC has scapy compute every ICRC.
func judgeICRC(t *testing.T, captures ...string) (all []judged) {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", append([]string{"testdata/roce.py"}, captures...)...).Output()
	if err != nil {
		t.Fatalf("scapy: %v\n%s", err, stderrOf(err))
	}
	if err := json.Unmarshal(out, &all); err != nil || len(all) != len(captures) {
		t.Fatalf("scapy printed %q: %v", out, err)
	}
	return all
}

// dissect has tshark read the frames of datagrams[i].
func dissect(t *testing.T, i int, capture string, frames int) {
	t.Helper()
	d := datagrams[i]
	fields := []string{"infiniband.bth.opcode", "infiniband.bth.padcnt", "infiniband.bth.p_key", "infiniband.deth.q_key", "infiniband.bth.destqp", "infiniband.deth.srcqp", "infiniband.bth.psn", "_ws.malformed"}
	args := []string{"-n", "-r", capture, "-T", "fields"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderrOf(err))
	}
	first, _ := strconv.Atoi(d.first)
	next, qpns, seen := map[string]int{}, map[string]bool{}, 0
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if want := []string{d.opcode, d.pad, "65535", d.qkey}; len(f) != len(fields) || !slices.Equal(f[:4], want) || f[7] != "" {
			t.Fatalf("%v: tshark reads %q, want %q", d.args, f, want)
		}
		if want := (first + next[f[5]]) & 0xffffff; f[6] != strconv.Itoa(want) {
			t.Fatalf("%v: frame %d of source queue pair %s has PSN %s, want %d", d.args, next[f[5]], f[5], f[6], want)
		}
		next[f[5]]++
		qpns[f[4]] = true
		seen++
	}
	if seen != frames || len(next) != d.queues || len(qpns) != len(d.qpns) {
		t.Fatalf("%v: tshark reads %d frames from queue pairs %v for %v", d.args, seen, next, qpns)
	}
	for q := range d.queues {
		if next[fmt.Sprintf("0x%08x", 0x11+q)] == 0 {
			t.Errorf("%v: source queue pairs %v", d.args, next)
		}
	}
	for _, q := range d.qpns {
		if !qpns[q] {
			t.Errorf("%v: destination queue pairs %v, want %s", d.args, qpns, q)
		}
	}
}

// TestDatagramsPassEveryWire: sockets of a kernel in between, which chooses identifications and makes headers, among them.
func TestDatagramsPassEveryWire(t *testing.T) {
	a, b, nsB := nstest.Veth(t)
	plain, peer, nsPeer := nstest.Veth(t) // without addresses, and so without frames of the kernel's
	nstest.NoOffload(t, "", a)            // what the kernel leaves to the card, a packet socket at the other end sees undone
	nstest.Run(t, "", "ip", "addr", "add", "198.18.7.1/24", "dev", a)
	nstest.Run(t, nsB, "ip", "addr", "add", "198.18.7.2/24", "dev", b)
	for _, end := range []struct{ ns, name, addr string }{{"", a, "2001:2::701/64"}, {nsB, b, "2001:2::702/64"}} {
		nstest.Do(t, end.ns, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+end.name+"/disable_ipv6", []byte("0"), 0) })
		nstest.Run(t, end.ns, "ip", "addr", "add", end.addr, "dev", end.name, "nodad")
	}
	var mac net.HardwareAddr
	nstest.Link(t, nsB, b, func(_ *netlink.Handle, l netlink.Link) error { mac = l.Attrs().HardwareAddr; return nil })
	at, atPeer := "?netns="+nsB, "?netns="+nsPeer
	for _, w := range []struct{ tx, rx, more string }{
		{"packet:" + plain, "packet:" + peer + atPeer, "-s 86-126 --flows 100"},
		{"packet:" + plain, "packet:" + peer + atPeer, "-s 106-126 --dst 2001:2::702 --src 2001:2::701 --queues 2 --hello"},
		{"udp:198.18.7.1", "udp:198.18.7.2" + at, "--payload 33"},
		{"udp:198.18.7.1?gso=1", "udp:198.18.7.2" + at, "-s 86-126"},
		{"udp:198.18.7.1?ports=4", "udp:198.18.7.2" + at, "-s 86 --flows 4 --hello"},
		{"udp:2001:2::701", "udp:2001:2::702" + at, "--payload 1000"},
		{"udp:198.18.7.1", "packet:" + b + at, "--payload 77 --dst 198.18.7.2"},
		{"packet:" + a, "udp:198.18.7.2" + at, "-s 1514 --src 198.18.7.1 --sport 49152-65535:rand --dmac " + mac.String()},
	} {
		t.Run(strings.ReplaceAll(w.tx+" to "+w.rx, "/", "-"), func(t *testing.T) {
			r := passes(t, 5003, w.rx == "packet:"+b+at, append([]string{"--drain", "5s"}, append([]string{w.tx, "--rx", w.rx}, strings.Fields(w.more)...)...)...)
			if c := r.report.Config; c.Proto != "roce-ud" || c.QPN != "17" || c.QKey != "0x11111111" || c.SrcQPN != "0x11" {
				t.Errorf("%+v", c)
			}
		})
	}
}

// passes runs pktgen and wants every datagram to arrive once. What a ring or a socket drops because its reader did not run
// says nothing of the datagrams: then it sends them again, more slowly. foreign: the kernel sends frames of its own.
func passes(t *testing.T, count uint64, foreign bool, args ...string) (r result) {
	t.Helper()
	for _, rate := range []string{"20kpps", "5kpps", "2kpps", "500pps"} {
		r = run(t, append([]string{"tx", "--proto", "roce-ud", "--qpn", "17", "-n", strconv.FormatUint(count, 10), "-r", rate, "--latency", "all",
			"--assert", "corrupt==0"}, args...)...)
		if r.report == nil || r.report.RingDrops == 0 {
			break
		}
		if p := r.report; p.Received+p.RingDrops != count || p.Unique != p.Received || p.Corrupt > 0 {
			t.Fatalf("%d ring drops, %+v", p.RingDrops, p.Counts)
		}
	}
	if foreign && r.report != nil {
		r.report.Foreign = 0
	}
	r.clean(t, count)
	return r
}

func TestXDPCarriesDatagrams(t *testing.T) {
	nstest.Root(t)
	a, b, nsB := nstest.Veth(t)
	passes(t, 20003, false, "xdp:"+a, "--rx", "xdp:"+b+"?netns="+nsB, "--payload", "22")
}

// TestRecordedDatagramsAreReplayed: a recording is received as it was sent, and a flipped bit is a wrong ICRC.
func TestRecordedDatagramsAreReplayed(t *testing.T) {
	capture := filepath.Join(t.TempDir(), "sent.pcap")
	sent := run(t, "tx", "pcap:"+capture, "--proto", "roce-ud", "--qpn", "17", "-s", "90-1518", "-n", "3001", "--flows", "3", "--dmac", "02:00:00:00:00:99")
	if sent.code != 0 || sent.report.Sent != 3001 {
		t.Fatalf("exit status %d: %s", sent.code, sent.stderr)
	}
	for _, wrong := range []uint64{0, 1} {
		r := run(t, "rx", "pcap:"+capture, "--run", sent.report.RunToken, "--assert", fmt.Sprintf("bad_icrc_packets==%d", wrong))
		if r.code != 0 || r.report.Unique != 3001-wrong || r.report.Corrupt != wrong || r.report.Foreign != 0 {
			t.Fatalf("exit status %d: %s", r.code, r.stderr)
		}
		flipPSN(t, capture)
	}
}

// flipPSN inverts a bit of the first datagram's PSN in a capture.
func flipPSN(t *testing.T, capture string) {
	t.Helper()
	data, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte{0x64, 0, 0xff, 0xff}) // the BTH: opcode, no pad, P_Key
	if at < 0 || at+12 > len(data) {
		t.Fatal("no datagram in the capture")
	}
	data[at+9] ^= 1
	if err := os.WriteFile(capture, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
