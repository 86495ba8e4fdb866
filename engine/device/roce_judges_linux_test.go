package device

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/internal/clock"
	"github.com/bluering/bluering/internal/nstest"
)

// wants is a datagram that was sent, in the words of both judges.
type wants struct {
	opcode, dqpn, psn, qkey, sqpn, pad int
	solicited                          bool
	imm                                string
	payload                            string
	icrc                               string
}

// sendAll sends datagrams of many shapes over IPv4 and IPv6 and gives the recording of them.
func sendAll(t *testing.T) (capture string, sent []wants) {
	t.Helper()
	nstest.Judges(t)
	var tap bytes.Buffer
	dev, err := Open("loop:roce-judges", Options{TapTo: &tap, Clock: new(clock.Virtual)})
	if err != nil {
		t.Fatal(err)
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cq, err := dev.NewCQ(64)
	ok(err)
	pd := dev.DefaultPD()
	qp, err := pd.NewQP(engine.QPConfig{Type: engine.UD, SendCQ: cq, RecvCQ: cq, MaxSendWR: 16, MaxInline: 64})
	ok(err)
	ok(qp.MoveTo(engine.StateRTS, engine.QPAttr{QKey: 0x1234, SQPSN: 0xfffff0}))
	mem := make([]byte, 5000)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	mr, err := pd.Register(mem, 0)
	ok(err)
	wc := make([]engine.Completion, 4)
	for i, size := range []int{0, 1, 2, 3, 4, 5, 63, 64, 65, 200, 1024, 4096} {
		for k, d := range []engine.Dest{
			{GID: dev.GIDs()[0].GID}, {GID: dev.GIDs()[1].GID},
			{GID: dev.GIDs()[0].GID, TrafficClass: 0xb9, HopLimit: 1, SrcPort: 0xd123}, {GID: dev.GIDs()[1].GID, TrafficClass: 0x21, FlowLabel: 0xabcde},
		} {
			d.SGIDIndex = k % 2
			d.GID[15]++ // the other port
			ah, err := pd.ResolveAH(context.Background(), d)
			ok(err)
			wr := engine.SendWR{Opcode: engine.OpSend, Flags: engine.Signaled, AH: ah, RemoteQPN: uint32(0x100 + i), RemoteQKey: uint32(0x11110000 + i)}
			if size > 0 {
				wr.SGEs = []engine.SGE{mr.SGE(i, size)}
			}
			w := wants{opcode: 100, dqpn: 0x100 + i, psn: (0xfffff0 + len(sent)) & 0xffffff, qkey: 0x11110000 + i, sqpn: int(qp.QPN()),
				pad: -size & 3, payload: hex.EncodeToString(mem[i : i+size]), icrc: "unknown"}
			if k%2 == 0 {
				w.icrc = "right"
			}
			if i%3 == 1 {
				wr.Opcode, wr.Imm, w.opcode, w.imm = engine.OpSendImm, 0xdead0000+uint32(i), 101, fmt.Sprintf("%x", 0xdead0000+i)
			}
			if i%2 == 1 {
				wr.Flags, w.solicited = wr.Flags|engine.Solicited, true
			}
			_, err = qp.Post([]engine.SendWR{wr})
			ok(err)
			if n, err := cq.Poll(wc); err != nil || n != 1 || wc[0].Status != engine.StatusSuccess {
				t.Fatalf("%d completions, %v, %v", n, wc[0].Err(), err)
			}
			sent = append(sent, w)
		}
	}
	ok(dev.Close())
	capture = filepath.Join(t.TempDir(), "sent.pcapng")
	ok(os.WriteFile(capture, tap.Bytes(), 0o600))
	return capture, sent
}

// judge gives what a judge of the recording prints.
func judge(t *testing.T, program string, args ...string) (lines []string) {
	t.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		var failed *exec.ExitError
		errors.As(err, &failed)
		t.Fatalf("%s: %v\n%+v", program, err, failed)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestScapyReadsWhatIsSent(t *testing.T) {
	capture, sent := sendAll(t)
	lines := judge(t, "/usr/bin/python3", "testdata/roce_judge.py", capture)
	if len(lines) != len(sent) {
		t.Fatalf("scapy sees %d frames of %d", len(lines), len(sent))
	}
	for i, l := range lines {
		var got struct {
			Opcode, Pad, Pkey, Dqpn, PSN int
			Solicited                    bool
			ICRC                         string
		}
		if err := json.Unmarshal([]byte(l), &got); err != nil {
			t.Fatal(err)
		}
		w := &sent[i]
		if got.Opcode != w.opcode || got.Pad != w.pad || got.Pkey != 0xffff || got.Dqpn != w.dqpn || got.PSN != w.psn ||
			got.Solicited != w.solicited || got.ICRC != w.icrc {
			t.Errorf("frame %d: scapy reads %s, want %+v", i, l, w)
		}
	}
}

func TestTsharkReadsWhatIsSent(t *testing.T) {
	capture, sent := sendAll(t)
	args := []string{"-n", "-r", capture, "-T", "fields", "-E", "separator=|"}
	for _, f := range []string{"infiniband.bth.opcode", "infiniband.bth.se", "infiniband.bth.padcnt", "infiniband.bth.p_key", "infiniband.bth.destqp",
		"infiniband.bth.psn", "infiniband.deth.q_key", "infiniband.deth.srcqp", "infiniband.immdt", "data.data", "ip.checksum.status"} {
		args = append(args, "-e", f)
	}
	args = append(args, "-o", "ip.check_checksum:TRUE")
	lines := judge(t, "tshark", args...)
	if len(lines) != len(sent) {
		t.Fatalf("tshark sees %d frames of %d", len(lines), len(sent))
	}
	number := func(s string) int {
		n, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			t.Fatalf("tshark prints %q: %v", s, err)
		}
		return int(n)
	}
	for i, l := range lines {
		f, w := strings.Split(l, "|"), &sent[i]
		imm, _, _ := strings.Cut(strings.TrimPrefix(f[8], "0x"), ",") // it shows it twice
		se := f[1] == "1" || f[1] == "True"
		if number(f[0]) != w.opcode || se != w.solicited || number(f[2]) != w.pad || number(f[3]) != 0xffff || number(f[4]) != w.dqpn ||
			number(f[5]) != w.psn || number(f[6]) != w.qkey || number(f[7]) != w.sqpn || imm != w.imm || f[10] == "0" {
			t.Errorf("frame %d: tshark reads %s, want %+v", i, l, w)
		}
		if !strings.HasPrefix(f[9], w.payload) { // it shows the pad as part of the payload
			t.Errorf("frame %d: tshark reads the payload %.100s, want %.100s", i, f[9], w.payload)
		}
	}
}
