package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A mutant is a fault of one statement or condition. The simulation is worth what it catches: TestMutants builds it
// over sources with all of these at once, of which a variable of the environment chooses one.
type mutant struct {
	name  string
	file  string // of the module
	after string // text before the statement that makes it the only one; the first one behind it is meant
	good  string // the statement or condition, exactly
	bad   string
	cond  bool // good and bad are conditions, not statements
}

// mutantSeeds is how many histories a mutant may survive. The sources without a fault pass the same.
const mutantSeeds = 1000

const mutantEnv = "BLUERING_SIM_MUTANT"

// mutants are listed in the order of a packet's life.
var mutants = []mutant{
	{name: "a stale handle passes", file: "engine/memory.go", cond: true,
		good: "r != nil && r.ref == ref", bad: "r != nil"},
	{name: "a queue takes one send too many", file: "engine/post.go", cond: true,
		after: "func (q *QP) postAsFarAs(", good: "n == room", bad: "n == room+1"},
	{name: "a refused batch is not rolled back", file: "engine/post.go",
		good: "q.sq.Rollback(mark)", bad: ""},
	{name: "an inline header is cut from each piece", file: "engine/encode.go",
		after: "func putPieces(", good: "skip -= cut", bad: ""},
	{name: "a send ring grants the room of its pads", file: "ring/sq.go",
		good: "return (slots - (maxBB - 1)) / maxBB", bad: "return slots / maxBB"},
	{name: "pads are executed", file: "ring/dev_sq.go", cond: true,
		good: "isPad(&w[0], uint16(d.ci), d.qpn)", bad: "false"},
	{name: "a key of another generation is good", file: "engine/softnic/mtt.go", cond: true,
		after: "func (t *mtt) find(", good: "r.key != key", bad: "r.key>>8 != key>>8"},
	{name: "a key of another protection domain is good", file: "engine/softnic/mtt.go", cond: true,
		after: "func (t *mtt) find(", good: "r.pd != pd", bad: "false"},
	{name: "a region has no last byte", file: "engine/softnic/mtt.go", cond: true,
		after: "func (r *region) slice(", good: "uint64(n) > size-off", bad: "uint64(n) >= size-off"},
	{name: "memory can be reached after it was deregistered", file: "engine/softnic/mtt.go",
		good: "t.regions[index].mem = nil", bad: ""},
	{name: "the length of a frame is one of an earlier burst", file: "engine/softnic/tx.go",
		good: "s.lens[jobs] = length", bad: "s.lens[jobs] = max(length, s.lens[jobs])"},
	{name: "a full wire makes a frame go twice", file: "engine/softnic/tx.go",
		after: "func (n *NIC) rewind(", good: "q.sq.Advance()", bad: ""},
	{name: "sent bytes are counted twice", file: "engine/softnic/tx.go",
		after: "func (n *NIC) commit(", good: "n.counters.TxBytes += bytes", bad: "n.counters.TxBytes += 2 * bytes"},
	{name: "an unsignaled send fails silently", file: "engine/softnic/qpstate.go",
		good: "n.completeSendError(q, w, bad)", bad: "if w.Signaled { n.completeSendError(q, w, bad) }"},
	{name: "sends are flushed in reverse", file: "engine/softnic/qpstate.go",
		good: "n.completeSendError(q, w, ring.SynFlushed)", bad: "v := *w; defer n.completeSendError(q, &v, ring.SynFlushed)"},
	{name: "a queue pair sends before RTS and in SQD", file: "engine/softnic/step.go",
		after: "// RESET, INIT, RTR and SQD send nothing.", good: "return 0", bad: "return n.send(q, limit)"},
	{name: "a frame waits for no receive", file: "engine/softnic/rx.go", cond: true,
		good: "!allHaveWQE(r.targets[:count])", bad: "false"},
	{name: "a queue pair in any state receives", file: "engine/softnic/rx.go", cond: true,
		after: "func (n *NIC) deliver(", good: "!q.receives()", bad: "false"},
	{name: "the room of a receive is counted as its bytes", file: "engine/softnic/rx.go",
		after: "func (n *NIC) deliver(", good: "n.counters.RxBytes += uint64(length)", bad: "n.counters.RxBytes += uint64(r.segs[0].Len)"},
	{name: "a frame too long is dropped uncounted", file: "engine/softnic/rx.go",
		good: "n.drop(engine.DropOversize, len(f.Data))", bad: ""},
	{name: "the second piece of a receive starts a byte early", file: "engine/softnic/rx.go",
		good: "rest = rest[len(p):]", bad: "rest = rest[len(p)-1:]"},
	{name: "memory is written without the right to", file: "engine/softnic/mtt.go", cond: true,
		good: "r.access&need != need", bad: "false"},
	{name: "a receive is filled twice", file: "engine/softnic/run.go",
		good: "q.rq.Take(len(lens))", bad: "q.rq.Take(len(lens) - 1)"},
	{name: "a frame of a run begins a unit early", file: "engine/softnic/rows_unsafe.go",
		good: "at += (length + wire.SpanBytes - 1) &^ (wire.SpanBytes - 1)", bad: "at += (length - 1) &^ (wire.SpanBytes - 1)"},
	{name: "a run counts the bytes of its last frame only", file: "engine/softnic/rows_unsafe.go",
		after: "func gatherRow(", good: "bytes += length", bad: "bytes = length"},
	{name: "a row of receives says how much room there was", file: "engine/softnic/rows_unsafe.go",
		after: "func scatterEntries(", good: "lens[n] = int32(length)", bad: "lens[n] = int32(head >> 32)"},
	{name: "a row of receives counts the bytes of its last frame only", file: "engine/softnic/rows_unsafe.go",
		after: "func scatterEntries(", good: "bytes += length", bad: "bytes = length"},
	{name: "a row of sends has one completion more", file: "engine/softnic/run.go",
		good: "signaled &= ^uint64(0) >> (ring.MaxRun - count)", bad: "signaled &= ^uint64(0) >> (ring.MaxRun - min(count+1, ring.MaxRun))"},
	{name: "a row of sends is polled as if each had a completion", file: "engine/cq.go", cond: true,
		after: "func (q *QP) completeSends(", good: "counter != uint16(pi)+uint16(i)", bad: "false"},
	{name: "a row of receives takes the first number for all", file: "engine/cq.go",
		after: "func (q *QP) completeRecvs(", good: "w.WRID = ids[i]", bad: "w.WRID = ids[0]"},
	{name: "a datagram of a run leaves its number in the first half of its place", file: "engine/encode_ud.go",
		good: "ids[at] = wrs[i].ID", bad: "ids[i] = wrs[i].ID"},
	{name: "the last datagram of a run goes twice", file: "engine/softnic/ud_run.go",
		good: "q.sq.AdvanceGrams(room)", bad: "q.sq.AdvanceGrams(room - 1)"},
	{name: "the last datagram of a row goes twice", file: "engine/softnic/ud_row.go",
		good: "q.sq.AdvanceGrams(room)", bad: "q.sq.AdvanceGrams(room - 1)"},
	{name: "a lone datagram goes twice", file: "engine/softnic/ud_one.go",
		good: "q.sq.AdvanceGrams(1)", bad: "q.sq.AdvanceGrams(0)"},
	{name: "the ICRC of a lone frame of a known flow is not looked at", file: "engine/softnic/ud_one.go", cond: true,
		good: "proto.ICRCRest(crc, rest[behindBTH:]) != proto.LoadICRC(b[e.end:])", bad: "false"},
	{name: "a lone frame of a known flow is not counted", file: "engine/softnic/ud_one.go",
		good: "n.counters.RxFrames++", bad: ""},
	{name: "a row takes one PSN", file: "engine/softnic/ud_row.go",
		good: "q.ud.psn = (q.ud.psn + uint32(room)) & 0xffffff", bad: "q.ud.psn = (q.ud.psn + 1) & 0xffffff"},
	{name: "a row of datagrams takes its first address for all", file: "engine/softnic/ud_row.go",
		good: "row = append(row, proto.RowGram{Data: &mem[off]})", bad: "row = append(row, proto.RowGram{Data: &mem[addrs[0]-base]})"},
	{name: "completions of a row of datagrams are as far apart as those of frames", file: "engine/softnic/ud_row.go",
		good: "n.completeSend(q, dev, ring.OpSend, g.Index+uint16(2*bits.TrailingZeros64(signaled)))",
		bad:  "n.completeSend(q, dev, ring.OpSend, g.Index+uint16(bits.TrailingZeros64(signaled)))"},
	{name: "a row received counts its last frame only", file: "engine/softnic/ud_row.go",
		good: "bytes += uint64(len(f.Data))", bad: "bytes = uint64(len(f.Data))"},
	{name: "a row of datagrams stands in one place", file: "engine/softnic/ud_row.go",
		good: "row[room].Frame = &w[room*every]", bad: "row[room].Frame = &w[0]"},
	{name: "a datagram begins as one with another pad", file: "engine/softnic/ud_run.go", cond: true,
		good: "s.pad == pad", bad: "true"},
	{name: "a PSN has more than 24 bits", file: "engine/softnic/ud_run.go",
		good: "psn = (psn + 1) & 0xffffff", bad: "psn++"},
	{name: "a datagram of many pieces keeps its PSN", file: "engine/softnic/ud_tx.go",
		after: "func (n *NIC) build(", good: "q.ud.psn = (q.ud.psn + 1) & 0xffffff", bad: ""},
	{name: "a Q_Key with the high bit goes out", file: "engine/softnic/ud_tx.go", cond: true,
		good: "key&qkeyOwn != 0 && n.cfg.Profile != engine.ProfileRXE", bad: "false"},
	{name: "an ICRC is not looked at", file: "engine/softnic/ud_rx.go", cond: true,
		after: "switch {\n\tcase ", good: "got != want", bad: "false"},
	{name: "the ICRC of a known flow is not looked at", file: "engine/softnic/ud_run.go", cond: true,
		good: "proto.ICRCRest(crc, rest[behindBTH:]) != proto.LoadICRC(b[e.end:])", bad: "false"},
	{name: "a datagram with a wrong Q_Key is taken", file: "engine/softnic/ud_rx.go", cond: true,
		good: "r.ud.QKey != q.ud.qkey", bad: "false"},
	{name: "a datagram begins as one with another Q_Key", file: "engine/softnic/ud_run.go", cond: true,
		good: "s.key == key", bad: "true"},
	{name: "what stood in front of an IPv4 header stays", file: "engine/softnic/roce.go",
		good: "*(*[16]byte)(to[0:]) = [16]byte{}", bad: ""},
	{name: "the pad of a datagram is counted", file: "engine/softnic/ud_run.go",
		good: "e.need = uint32(grhArea + r.length())", bad: "e.need = uint32(grhArea + r.length() + int(r.ud.Pad))"},
	{name: "a receive completion names another entry", file: "engine/softnic/rx.go",
		after: "func (n *NIC) completeReceive(", good: "c.PutRecv(q.uidx, q.qpn, uint32(len(f.Data)), counter, n.arrival(f))",
		bad: "c.PutRecv(q.uidx, q.qpn, uint32(len(f.Data)), counter+1, n.arrival(f))"},
	{name: "a receive of an SRQ is judged by its queue pair's domain", file: "engine/softnic/srq.go",
		good: "return q.srq.pd", bad: "return q.pd"},
	{name: "a receive completion names another entry of the SRQ", file: "engine/softnic/srq.go",
		after: "func (n *NIC) takeRecv(", good: "return index", bad: "return index ^ 1"},
	{name: "an SRQ tells its limit a request too early", file: "engine/softnic/srq.go", cond: true,
		good: "s.dev.Available() < int(s.limit)", bad: "s.dev.Available() <= int(s.limit)"},
	{name: "an SRQ tells its limit again and again", file: "engine/softnic/srq.go",
		after: "func (n *NIC) takeRecv(", good: "s.setLimit(0)", bad: ""},
	{name: "an SRQ is flushed with a queue pair", file: "engine/softnic/qpstate.go", cond: true,
		after: "func (n *NIC) flushReceives(", good: "q.srq != nil", bad: "false"},
	{name: "a queue pair leaves its SRQ silently", file: "engine/softnic/qpstate.go",
		good: "q.nic.raise(engine.EventQPLastWQEReached, q.qpn)", bad: ""},
	{name: "an entry of an SRQ is taken twice", file: "ring/srq_queue.go",
		good: "d.head = uint32(SRQNext(d.entry(i))) & d.mask", bad: "_ = i"},
	{name: "entries come back to an SRQ in the order of the ring", file: "ring/srq_queue.go",
		good: "s.head = uint32(SRQNext(e)) & s.mask", bad: "s.head = (i + 1) & s.mask"},
	{name: "an SRQ posts the tail of its free list", file: "ring/srq_queue.go", cond: true,
		after: "func (s *SRQ) Free(", good: "s.head == s.tail", bad: "int(s.posted-s.given.Load()) > int(s.mask)"},
	{name: "what RESET takes away is lost to the SRQ", file: "engine/qp.go",
		good: "q.srq.ring.Take(e.Counter())", bad: ""},
	{name: "the owner bit stays when a completion ring wraps", file: "ring/dev_cq.go",
		good: "d.entry(d.pi)[cqeOpOwn] = opOwn&^opOwnOwner | uint8(d.pi>>d.lap&1)", bad: "d.entry(d.pi)[cqeOpOwn] = opOwn &^ opOwnOwner"},
	{name: "a completion ring holds one more than it has", file: "ring/dev_cq.go", cond: true,
		good: "d.pi-d.ci > d.mask", bad: "d.pi-d.ci > d.mask+1"},
	{name: "a moved completion keeps its owner bit", file: "ring/cq.go",
		good: "publishLast(dst, lastWord(src)&^opOwnOwner|owner)", bad: "publishLast(dst, lastWord(src))"},
	{name: "a send without a completion is retired twice", file: "ring/sq.go",
		after: "func (q *SQ) Retire(", good: "q.retired += n", bad: "q.retired++"},
}

// apply gives the source with mutant number k in it, on the line where it was: without the number, the good one runs.
func (m *mutant) apply(k int, source string) (string, error) {
	start := strings.Index(source, m.after)
	if start < 0 {
		return "", fmt.Errorf("%s has no %q any more: give the mutant %q another place", m.file, m.after, m.name)
	}
	head, rest := source[:start+len(m.after)], source[start+len(m.after):]
	at := strings.Index(rest, m.good)
	if at < 0 {
		return "", fmt.Errorf("%s has no %q behind %q any more: give the mutant %q another place", m.file, m.good, m.after, m.name)
	}
	if m.after == "" && strings.Count(source, m.good) != 1 {
		return "", fmt.Errorf("%s has %q more than once: say what stands before the one that the mutant %q means", m.file, m.good, m.name)
	}
	both := fmt.Sprintf("if simulatedMutant == %d { %s } else { %s }", k, m.bad, m.good)
	if m.cond {
		both = fmt.Sprintf("(simulatedMutant == %d && (%s) || simulatedMutant != %[1]d && (%[3]s))", k, m.bad, m.good)
	}
	return head + rest[:at] + both + rest[at+len(m.good):], nil
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// overlay writes the changed sources to dir, beside a file for each package that reads the number, and gives the file
// that names them to the go command. The sources themselves stay as they are.
func overlay(dir, module string) (string, error) {
	text := map[string]string{} // by path
	for i := range mutants {
		m := &mutants[i]
		path := filepath.Join(module, filepath.FromSlash(m.file))
		if _, ok := text[path]; !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text[path] = strings.ReplaceAll(string(b), "\r\n", "\n")
			text[filepath.Join(filepath.Dir(path), "simulated_mutant.go")] = packageClause.FindString(text[path]) +
				"\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\n" +
				"var simulatedMutant, _ = strconv.Atoi(os.Getenv(\"" + mutantEnv + "\"))\n"
		}
		var err error
		if text[path], err = m.apply(i+1, text[path]); err != nil {
			return "", err
		}
	}
	replace := map[string]string{}
	for path, t := range text {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], []byte(t), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}

var failedSeed = regexp.MustCompile(`seed (\d+), in (.*)`)

// TestMutants: the simulation catches each fault within mutantSeeds histories, and finds none where there is none.
func TestMutants(t *testing.T) {
	dir := t.TempDir()
	module, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	names, err := overlay(dir, module)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "simulation.exe")
	if out, err := exec.Command("go", "test", "-c", "-overlay", names, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("the mutants do not build: %v\n%s", err, out)
	}
	play := func(k int) (string, error) {
		c := exec.Command(program, "-test.run", "^TestSimulation$", "-test.timeout", "1m", "-first", "1", "-seeds", strconv.Itoa(mutantSeeds))
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", mutantEnv, k))
		out, err := c.CombinedOutput()
		return string(out), err
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if out, err := play(0); err != nil {
			t.Errorf("the sources without a fault fail: %v\n%s", err, out)
		}
	})
	for i := range mutants {
		t.Run(mutants[i].name, func(t *testing.T) {
			t.Parallel()
			out, err := play(i + 1)
			found := failedSeed.FindStringSubmatch(out)
			switch {
			case err == nil:
				t.Errorf("%s: not caught by %d histories", mutants[i].file, mutantSeeds)
			case found == nil:
				t.Errorf("%s: ended without a history that failed: %v\n%s", mutants[i].file, err, out)
			default:
				t.Logf("caught by history %s, in %s", found[1], found[2])
			}
		})
	}
}
