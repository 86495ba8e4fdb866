package ring

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"testing"
)

type vecCQEs struct {
	QPs      map[string]vecQP
	Creation []struct {
		Asked, Entries int
		Size           int    `json:"cqe_size"`
		OpOwn          hexNum `json:"initial_op_own"`
		DBRec          hexBytes
	} `json:"cq_creation"`
	Arm []struct {
		Solicited int    `json:"solicited_only"`
		CQN       hexNum `json:"cqn"`
		CI        uint32 `json:"consumer_index"`
		DBRec     hexBytes
		Writes    []struct{ Bytes hexBytes } `json:"uar_writes"`
	}
	Vectors  []vecCQE
	Extended []vecCQE
}

type vecCQE struct {
	ID     string
	QP     string
	CQE    hexBytes
	Polled int
	WC     *struct {
		Status  uint8
		Opcode  *int
		ByteLen *uint32 `json:"byte_len"`
		Imm     *hexNum `json:"imm_be"`
		QPN     uint32  `json:"qp_num"`
		Flags   int     `json:"wc_flags"`
		SrcQP   uint32  `json:"src_qp"`
		PKey    uint16  `json:"pkey_index"`
		SLID    uint16
		SL      uint8
		Path    uint8 `json:"dlid_path_bits"`
		Vendor  uint8 `json:"vendor_err"`
	}
	Entries int
	CI      uint32   `json:"consumer_index"`
	OpOwn   hexNum   `json:"op_own"`
	Flips   []uint32 `json:"bit_flips_at"`
	DBRec   hexBytes `json:"cq_dbrec"`
	Written int
	Asked   int
	Before  string
	MaxWR   int `json:"max_send_wr"`
	Index   int `json:"completed_index"`
	After   int `json:"accepted_after"`
	// extended
	ByteLen uint32 `json:"byte_len"`
	Time    hexNum `json:"completion_ts"`
	CVLAN   hexNum
	Flow    hexNum `json:"flow_tag"`
	Flags   int    `json:"wc_flags"`
}

func (v *vecCQE) excluded() string {
	switch {
	case strings.HasPrefix(v.ID, "v0/"):
		return "v0"
	case strings.HasPrefix(v.ID, "compressed/"):
		return "compressed"
	case v.ID == "resp/inline-scatter-32":
		return "inline-scatter"
	}
	return ""
}

func newTestCQ(t testing.TB, entries int) (*CQ, *DevCQ, []CQE, []byte) {
	t.Helper()
	mem := make([]CQE, entries)
	for i := range mem {
		fillA5(mem[i][:])
	}
	recMem := bytes.Repeat([]byte{0xa5}, 8)
	rec, err := NewRecord(recMem)
	if err != nil {
		t.Fatal(err)
	}
	q, err := NewCQ(mem, rec, 0x42)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDevCQ(mem, rec, 0x42)
	if err != nil {
		t.Fatal(err)
	}
	return q, d, mem, recMem
}

// rebuild writes a CQE with the same fields by the Put and Set methods.
func rebuild(c *CQE, from *CQE) {
	switch from.Op() {
	case CQEReq:
		c.PutReq(from.UserIndex(), from.QPN(), from.WQEOpcode(), from.Counter(), from.Time())
	case CQEReqErr, CQERecvErr:
		c.PutError(from.UserIndex(), from.QPN(), from.WQEOpcode(), from.Counter(), from.Syndrome(), from.Vendor())
	default:
		c.PutRecv(from.UserIndex(), from.QPN(), from.ByteLen(), from.Counter(), from.Time())
		c.SetImm(from.Imm())
		c.SetSource(from.SourceFlags(), from.SrcQP())
		c.SetLink(from.SLID(), from.PathBits()|from[cqePath]&0x80)
		c.SetHeaders(from.HdrOK(), from.HdrType(), from.VLAN())
		c.SetRSS(from.RSSHash(), from.RSSType())
		c[cqeWQEOp] = from[cqeWQEOp] // means nothing in a receive; recorded with a pattern
	}
}

func checkCQE(t *testing.T, v *vecCQE, csumCap bool, uidx uint32) {
	t.Helper()
	q, d, mem, _ := newTestCQ(t, 32)
	from := CQE(v.CQE)
	for range 32 * int(from[cqeOpOwn]&1) { // reach a lap with the recorded owner bit
		_, _ = d.Next()
		d.Seal(0)
		d.Publish()
		_, _ = q.Peek()
		q.Consume()
		q.Update()
	}
	c, ok := d.Next()
	if !ok {
		t.Fatal("queue full")
	}
	fillA5(c[:])
	rebuild(c, &from)
	d.Seal(from.OpOwn())
	d.Publish()
	if mem[0] != from {
		t.Errorf("wrote %x\nwant  %x", mem[0], from)
	}
	got, ok := q.Peek()
	if !ok {
		t.Fatal("not ours")
	}
	if v.ID != "err/unknown-user-index" && got.UserIndex() != uidx {
		t.Errorf("user index %d, want %d", got.UserIndex(), uidx)
	}
	if w := v.WC; w != nil {
		if err := judge(got, v, csumCap); err != nil {
			t.Error(err)
		}
	}
}

// judge compares a CQE's fields with what libmlx5's poll made of it.
func judge(c *CQE, v *vecCQE, csumCap bool) error {
	w := v.WC
	status, flags := uint8(0), 0
	recv := false
	switch c.Op() {
	case CQEReqErr, CQERecvErr:
		status = c.Syndrome().Status()
		if c.Vendor() != w.Vendor {
			return fmt.Errorf("vendor %d, want %d", c.Vendor(), w.Vendor)
		}
	case CQEReq:
		if c.WQEOpcode() == OpSendImm {
			flags = 2
		}
		if tso := *w.Opcode == 7; tso != (c.WQEOpcode() == OpTSO) {
			return fmt.Errorf("opcode %v", c.WQEOpcode())
		}
	default:
		recv = true
		flags = map[CQEOpcode]int{CQERecvImm: 2, CQERecvInval: 8}[c.Op()]
		if c.GRH() {
			flags |= 1
		}
		if csumCap && c.CsumOK() {
			flags |= 4
		}
	}
	if status != w.Status || c.QPN() != w.QPN || flags != w.Flags {
		return fmt.Errorf("status %d qpn %#x flags %d, want %+v", status, c.QPN(), flags, *w)
	}
	if !recv {
		return nil
	}
	if c.ByteLen() != *w.ByteLen || c.SrcQP() != w.SrcQP || uint16(c.Imm()) != w.PKey ||
		c.SLID() != w.SLID || c.SL() != w.SL || c.PathBits() != w.Path {
		return fmt.Errorf("receive fields of %x, want %+v", *c, *w)
	}
	if w.Imm != nil {
		got := c.Imm()
		if c.Op() == CQERecvInval { // libmlx5 reports the key in host order
			got = swap32(got)
		}
		if got != uint32(*w.Imm) {
			return fmt.Errorf("immediate %#x, want %#x", got, *w.Imm)
		}
	}
	return nil
}

func TestCQEsAreWhatTheLibraryTakes(t *testing.T) {
	var d vecCQEs
	loadVectors(t, "mlx5-cqe.json", &d)
	counts := map[string]int{}
	for i := range d.Vectors {
		v := &d.Vectors[i]
		if r := v.excluded(); r != "" {
			counts[r]++
			continue
		}
		if v.CQE == nil {
			counts["behaviour"]++
			t.Run(v.ID, func(t *testing.T) { checkCQBehaviour(t, v) })
			continue
		}
		counts["compared"]++
		q := d.QPs[v.QP]
		t.Run(v.ID, func(t *testing.T) { checkCQE(t, v, v.QP == "raw", uint32(q.UIdx)) })
	}
	want := map[string]int{"compared": 53, "behaviour": 5, "v0": 3, "compressed": 1, "inline-scatter": 1}
	if !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	x := &d.Extended[0]
	t.Run(x.ID, func(t *testing.T) {
		checkCQE(t, x, true, 2)
		c := CQE(x.CQE)
		if c.Time() != uint64(x.Time) || c.VLAN() != uint16(x.CVLAN) || c.QPN() != uint32(x.Flow) ||
			c.ByteLen() != x.ByteLen || !c.CsumOK() || x.Flags != 4 {
			t.Errorf("fields of %x, want %+v", c, *x)
		}
	})
}

// checkCQBehaviour replays the vectors that record what poll does.
func checkCQBehaviour(t *testing.T, v *vecCQE) {
	burst := func(q *CQ, d *DevCQ, n int) (polled int) {
		for range n {
			c, _ := d.Next()
			c.PutRecv(0, 1, 0, 0, 0)
			d.Seal(uint8(CQERecv) << 4)
		}
		d.Publish()
		for range n + 3 {
			if _, ok := q.Peek(); ok {
				q.Consume()
				polled++
			}
		}
		q.Update()
		return polled
	}
	switch v.ID {
	case "owner/wrong-bit":
		q, _, mem, _ := newTestCQ(t, v.Entries)
		q.ci = v.CI
		mem[v.CI][cqeOpOwn] = byte(v.OpOwn)
		if _, ok := q.Peek(); ok {
			t.Error("taken in spite of its owner bit")
		}
	case "owner/three-laps":
		q, d, mem, rec := newTestCQ(t, v.Entries)
		end := binary.BigEndian.Uint32(v.DBRec)
		var flips []uint32
		for q.CI() < end {
			ci := q.CI()
			if burst(q, d, 1) != 1 {
				t.Fatalf("not polled at %d", ci)
			}
			if ci > 0 {
				was := mem[(ci-1)&q.mask][cqeOpOwn] & 1
				if mem[ci&q.mask][cqeOpOwn]&1 != was {
					flips = append(flips, ci)
				}
			}
		}
		if !bytes.Equal(rec[:4], v.DBRec[:4]) || fmt.Sprint(flips) != fmt.Sprint(v.Flips) {
			t.Errorf("record %x flips %v, want %x %v", rec, flips, v.DBRec, v.Flips)
		}
	case "poll/empty":
		q, _, _, _ := newTestCQ(t, 2)
		if _, ok := q.Peek(); ok {
			t.Error("polled from an empty queue")
		}
	case "poll/burst":
		q, d, _, _ := newTestCQ(t, 32)
		if n := burst(q, d, v.Written); n != v.Polled {
			t.Errorf("polled %d, want %d", n, v.Polled)
		}
	case "req/room-after-retires-several":
		checkRoomAfterRetire(t, v)
	default:
		t.Errorf("unknown vector")
	}
}

func checkRoomAfterRetire(t *testing.T, v *vecCQE) {
	slots, _, err := SQSlots(v.MaxWR, 2)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newTestSQ(t, slots, SQConfig{QPN: 1, MaxBB: 2, MaxWR: v.MaxWR})
	var at []uint16
	for i := range v.MaxWR {
		w, pi, ok := s.Reserve(2)
		if !ok {
			t.Fatalf("full after %d", i)
		}
		PutCtrl(&w[0], uint16(pi), OpSend, 1, 8, 0, 0)
		s.Commit(2, uint64(1000+i))
		at = append(at, uint16(pi))
	}
	s.Publish()
	id, n, ok := s.Retire(at[v.Index])
	if !ok || id != uint64(1000+v.Index) || n != v.Index+1 || s.MaxWR()-s.Outstanding() != v.After {
		t.Errorf("retired %d of %d, id %d %t, want room %d", n, v.Index, id, ok, v.After)
	}
}

func newTestSQ(t testing.TB, slots int, c SQConfig) (*SQ, *DevSQ) {
	t.Helper()
	mem := make([]Block, slots)
	fillA5(Flatten(mem))
	rec, err := NewRecord(make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSQ(mem, rec, c)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDevSQ(mem, rec, c.QPN)
	if err != nil {
		t.Fatal(err)
	}
	return s, d
}

func TestCQCreationAndArming(t *testing.T) {
	var d vecCQEs
	loadVectors(t, "mlx5-cqe.json", &d)
	wide := 0
	for _, v := range d.Creation {
		if v.Size != CQEBytes {
			wide++
			continue
		}
		n, err := CQEntries(v.Asked)
		if err != nil || n != v.Entries {
			t.Errorf("asked %d: %d entries, want %d", v.Asked, n, v.Entries)
		}
		_, _, mem, rec := newTestCQ(t, n)
		want := CQE{cqeOpOwn: byte(v.OpOwn)}
		for i := range mem {
			if mem[i] != want {
				t.Errorf("entry %d of %d starts as %x", i, n, mem[i])
			}
		}
		if !bytes.Equal(rec, v.DBRec) {
			t.Errorf("record %x, want %x", rec, v.DBRec)
		}
	}
	if wide != 1 {
		t.Errorf("%d queues of 128-byte entries left out, want 1", wide)
	}
	for _, v := range d.Arm {
		q, _, _, rec := newTestCQ(t, 32)
		q.ci = v.CI
		q.Update()
		var db [8]byte
		binary.NativeEndian.PutUint64(db[:], q.Arm(v.Solicited != 0))
		if !bytes.Equal(rec, v.DBRec) || !bytes.Equal(db[:], v.Writes[0].Bytes) {
			t.Errorf("arm at %d: record %x doorbell %x, want %x %x", v.CI, rec, db, v.DBRec, v.Writes[0].Bytes)
		}
	}
}
