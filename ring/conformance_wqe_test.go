package ring

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The files in testdata were recorded from libmlx5; their "source" member says
// from which version.

const payloadBase = 0x100000000000

type hexNum uint64

func (h *hexNum) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseUint(strings.Trim(string(b), `"`), 0, 64)
	*h = hexNum(v)
	return err
}

type hexBytes []byte

func (h *hexBytes) UnmarshalJSON(b []byte) (err error) {
	*h, err = hex.DecodeString(strings.Trim(string(b), `"`))
	return err
}

type vecSGE struct {
	Addr hexNum
	Len  uint32
	LKey hexNum
}

type vecWR struct {
	WRID   uint64 `json:"wr_id"`
	Opcode string
	Flags  []string
	SGEs   []vecSGE
	Imm    hexNum
	TSO    *struct {
		MSS     uint16
		HdrLen  int    `json:"hdr_len"`
		HdrAddr hexNum `json:"hdr_addr"`
	}
	UD *struct {
		AH   string
		QPN  hexNum `json:"remote_qpn"`
		QKey hexNum `json:"remote_qkey"`
	}
}

type vecSend struct {
	ID      string
	QP      string
	StartPI uint32 `json:"start_pi"`
	WRs     []vecWR
	Ret     string
	WQEs    []struct {
		PI        uint32
		DS        int
		BB        int `json:"wqebbs"`
		Bytes     hexBytes
		Undefined [][2]int
	}
	EndPI    uint32 `json:"end_pi"`
	DBRec    hexBytes
	Doorbell struct {
		Kind  string
		Bytes hexBytes
	}
	Behind string `json:"written_behind_ring"`
}

type vecQP struct {
	Type  string
	QPN   hexNum
	UIdx  hexNum
	MinI  int `json:"min_inline"`
	Slots int `json:"sq_wqebbs"`
	Asked vecCap
	Got   vecCap
	RQ    int `json:"rq_wqes"`
	RQS   int `json:"rq_stride"`
}

type vecCap struct {
	SendWR  int `json:"max_send_wr"`
	RecvWR  int `json:"max_recv_wr"`
	SendSGE int `json:"max_send_sge"`
	RecvSGE int `json:"max_recv_sge"`
	Inline  int `json:"max_inline_data"`
	TSO     int `json:"max_tso_header"`
}

type vecAH struct {
	SGID int    `json:"sgid_index"`
	Type string `json:"gid_type"`
	DGID hexBytes
	Flow uint32 `json:"flow_label"`
	TC   uint8  `json:"traffic_class"`
	Hop  uint8  `json:"hop_limit"`
	SL   uint8
	Rate uint8 `json:"static_rate"`
	DMAC hexBytes
}

type vecSends struct {
	QPs            map[string]vecQP
	AHs            map[string]vecAH
	Vectors        []vecSend
	Refusals       []vecSend
	DoorbellPolicy []json.RawMessage `json:"doorbell_policy"`
}

func loadVectors(t testing.TB, name string, v any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func payload(addr uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		k := addr - payloadBase + uint64(i)
		b[i] = byte(k*7 + 3 + k>>8)
	}
	return b
}

func (a *vecAH) av() AV {
	f := AVFields{
		SL: a.SL, TClass: a.TC, HopLimit: a.Hop, SGIDIndex: uint8(a.SGID), FlowLabel: a.Flow,
		MAC: [6]byte(a.DMAC), GID: [16]byte(a.DGID),
	}
	if a.Rate != 0 {
		f.Rate = a.Rate + 5 // IBV_RATE_10_GBPS is 3, its code is 8
	}
	if a.Type == "roce_v2" {
		f.SrcPort = SrcPort(a.Flow)
	}
	return MakeAV(&f)
}

func (w *vecWR) has(flag string) bool {
	for _, f := range w.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

func (w *vecWR) opcode() Opcode {
	return map[string]Opcode{
		"SEND": OpSend, "SEND_WITH_IMM": OpSendImm, "TSO": OpTSO, "RDMA_WRITE": OpWrite,
	}[w.Opcode]
}

func (w *vecWR) flags(sigAll bool) (f uint8) {
	if w.has("SIGNALED") || sigAll {
		f |= FlagSignaled
	}
	if w.has("SOLICITED") {
		f |= FlagSolicited
	}
	return f
}

func (w *vecWR) csum() uint8 {
	if w.has("IP_CSUM") {
		return CsumL3 | CsumL4
	}
	return 0
}

// split takes the mandatory header off the pieces, and leaves out empty ones.
func (w *vecWR) split(header int) (hdr []byte, segs []Seg) {
	for _, s := range w.SGEs {
		n := min(header-len(hdr), int(s.Len))
		hdr = append(hdr, payload(uint64(s.Addr), n)...)
		if rest := s.Len - uint32(n); rest != 0 {
			segs = append(segs, Seg{uint64(s.Addr) + uint64(n), rest, uint32(s.LKey)})
		}
	}
	return hdr, segs
}

func gather(segs []Seg) (b []byte) {
	for _, s := range segs {
		b = append(b, payload(s.Addr, int(s.Len))...)
	}
	return b
}

// parts says what is in the WQE of a request.
func (w *vecWR) parts(q *vecQP) (hdr []byte, segs []Seg, inline []byte) {
	need := 0
	if q.Type == "RAW_PACKET" {
		need = q.MinI
	}
	if w.TSO != nil {
		_, segs = w.split(0)
		return payload(uint64(w.TSO.HdrAddr), w.TSO.HdrLen), segs, nil
	}
	hdr, segs = w.split(need)
	if w.has("INLINE") {
		return hdr, nil, gather(segs)
	}
	return hdr, segs, nil
}

// encode writes the request's WQE at the queue's next slot with the functions
// of this package.
func (w *vecWR) encode(t *testing.T, s *SQ, d *vecSends, qp string) {
	t.Helper()
	q := d.QPs[qp]
	hdr, segs, inline := w.parts(&q)
	ds := 1
	if q.Type == "UD" {
		ds = 4
	} else {
		ds += EthDS(len(hdr))
	}
	data := ds
	ds += len(segs) + InlineDS(len(inline))
	blocks, pi, ok := s.Reserve(BlocksFor(ds))
	if !ok {
		t.Fatalf("no room for %d blocks", BlocksFor(ds))
	}
	PutCtrl(&blocks[0], uint16(pi), w.opcode(), uint32(q.QPN), ds, w.flags(strings.HasSuffix(qp, "sigall")), uint32(w.Imm))
	switch {
	case q.Type == "UD":
		ah := d.AHs[w.UD.AH]
		av := ah.av()
		PutDatagram(&blocks[0], &av, uint32(w.UD.QKey), uint32(w.UD.QPN))
	case w.TSO != nil:
		PutEth(blocks, w.csum(), w.TSO.MSS, hdr)
	case len(hdr) == EthInline18:
		PutEth18(&blocks[0], w.csum(), (*[EthInline18]byte)(hdr))
	default:
		PutEth0(&blocks[0], w.csum())
	}
	at := data
	for _, sg := range segs {
		PutData(blocks, at, sg)
		at++
	}
	at = PutInline(blocks, at, inline)
	if at != ds {
		t.Fatalf("wrote %d units, planned %d", at, ds)
	}
	PutTail(blocks, ds)
	s.Commit(BlocksFor(ds), w.WRID)
}

// excluded gives the reason for which a send vector is outside the profile.
func (v *vecSend) excluded(slots int) string {
	switch v.ID { // found in the library, formats section 13
	case "raw18/inline/18/wr", "raw18/first-sge/18-alone/wr", "udmax/inline-max":
		return "library defect"
	}
	if v.Behind != "" {
		return "library defect"
	}
	if strings.HasPrefix(v.QP, "udsig") && v.QP != "udsigall" {
		return "signature"
	}
	for _, w := range v.WQEs {
		if int(w.PI)%slots+w.BB > slots {
			return "crosses the ring's end"
		}
	}
	return ""
}

func fillA5(b []byte) {
	for i := range b {
		b[i] = 0xa5
	}
}

func sqForVector(t *testing.T, q *vecQP, start uint32) (*SQ, []byte) {
	t.Helper()
	mem := make([]Block, q.Slots)
	fillA5(Flatten(mem))
	recMem := make([]byte, 8)
	rec, err := NewRecord(recMem)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSQ(mem, rec, SQConfig{QPN: uint32(q.QPN), MaxBB: min(MaxWQEBB, q.Slots)})
	if err != nil {
		t.Fatal(err)
	}
	s.pi, s.ci = start, start
	s.pub = s.Mark()
	return s, recMem
}

// checkSend compares encoding, record and doorbell, then decodes the recorded
// bytes. It says whether the doorbell's bytes were compared.
func checkSend(t *testing.T, d *vecSends, v *vecSend, wrs []vecWR, doorbell bool) {
	t.Helper()
	poisoned := strings.HasPrefix(v.ID, "error/")
	q := d.QPs[v.QP]
	s, recMem := sqForVector(t, &q, v.StartPI)
	for i := range wrs {
		wrs[i].encode(t, s, d, v.QP)
	}
	db, _ := s.Publish()
	if s.PI() != v.EndPI {
		t.Errorf("pi %d, want %d", s.PI(), v.EndPI)
	}
	if !bytes.Equal(recMem, v.DBRec) {
		t.Errorf("record %x, want %x", recMem, v.DBRec)
	}
	if len(wrs) != len(v.WQEs) {
		t.Fatalf("%d requests, %d recorded WQEs", len(wrs), len(v.WQEs))
	}
	for i, w := range v.WQEs {
		slot := int(w.PI) % q.Slots
		got := Flatten(s.Blocks()[slot : slot+w.BB])
		want := bytes.Clone(w.Bytes)
		for _, u := range w.Undefined {
			for k := u[0]; k < u[0]+u[1]; k++ {
				if got[k] != 0 && k >= 16 {
					t.Errorf("WQE %d: byte %d, undefined, is %#x, not zero", i, k, got[k])
				}
				want[k] = got[k]
			}
		}
		for k := range want {
			// The refusals name no undefined ranges; there, what was not
			// written holds the recorder's poison.
			if poisoned && want[k] == 0xee && got[k] == 0 {
				want[k] = 0
			}
		}
		if !bytes.Equal(got, want) {
			var a, b strings.Builder
			_ = Dump(&a, got)
			_ = Dump(&b, want)
			t.Errorf("WQE %d:\n%swant\n%s", i, a.String(), b.String())
		}
		for _, u := range w.Undefined {
			fillA5(w.Bytes[u[0] : u[0]+u[1]])
		}
		checkDecode(t, d, v.QP, &wrs[i], w.Bytes, uint16(w.PI), w.DS)
	}
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], db)
	if doorbell && !bytes.Equal(word[:], v.Doorbell.Bytes) {
		t.Errorf("doorbell %x, want %x", word, v.Doorbell.Bytes)
	}
}

// checkDecode decodes recorded bytes and compares with the request.
func checkDecode(t *testing.T, d *vecSends, qp string, wr *vecWR, raw []byte, pi uint16, ds int) {
	t.Helper()
	q := d.QPs[qp]
	w := make([]Block, len(raw)/BlockBytes)
	copy(Flatten(w), raw)
	lim := SendLimits{MinInline: q.MinI}
	if q.Type == "UD" {
		lim = SendLimits{Kind: UD}
	}
	var v SendWQE
	v.Index = pi
	if r := DecodeSend(w, &v, uint32(q.QPN), &lim); r != RuleNone {
		if r == RuleOpcode && (wr.Opcode == "RDMA_WRITE" || q.Type != "UD" && wr.Opcode == "SEND_WITH_IMM") {
			return // the library writes it, a device refuses it
		}
		t.Errorf("WQE refused: %v", r)
		return
	}
	hdr, segs, inline := wr.parts(&q)
	flags := wr.flags(strings.HasSuffix(qp, "sigall"))
	switch {
	case v.Opcode != wr.opcode() || int(v.DS) != ds:
		t.Errorf("opcode %v ds %d, want %v %d", v.Opcode, v.DS, wr.opcode(), ds)
	case v.Signaled != (flags&FlagSignaled != 0) || v.Solicited != (flags&FlagSolicited != 0) || v.Fence:
		t.Errorf("flags %t %t %t, want %#x", v.Signaled, v.Solicited, v.Fence, flags)
	case v.CsumFlags != wr.csum():
		t.Errorf("checksum flags %#x", v.CsumFlags)
	case !bytes.Equal(v.InlineHdr, hdr):
		t.Errorf("inline header %x, want %x", v.InlineHdr, hdr)
	case !bytes.Equal(v.Inline, inline):
		t.Errorf("inline data %x, want %x", v.Inline, inline)
	case v.NSeg != len(segs):
		t.Errorf("%d pointers, want %d", v.NSeg, len(segs))
	case wr.TSO != nil && v.MSS != wr.TSO.MSS:
		t.Errorf("mss %d", v.MSS)
	case v.Opcode == OpSendImm && v.Imm != uint32(wr.Imm):
		t.Errorf("immediate %#x", v.Imm)
	}
	total := len(hdr) + len(inline)
	for i, s := range segs {
		total += int(s.Len)
		if v.Segs[i] != s {
			t.Errorf("pointer %d: %+v, want %+v", i, v.Segs[i], s)
		}
	}
	if int(v.Bytes) != total {
		t.Errorf("%d bytes, want %d", v.Bytes, total)
	}
	if wr.UD != nil {
		ah := d.AHs[wr.UD.AH]
		av := ah.av()
		if v.QKey != uint32(wr.UD.QKey) || v.RemoteQPN != uint32(wr.UD.QPN) || v.AV.Fields() != av.Fields() {
			t.Errorf("datagram segment %x", *v.AV)
		}
	}
}

func TestSendWQEsAreWhatTheLibraryWrites(t *testing.T) {
	var d vecSends
	loadVectors(t, "mlx5-wqe.json", &d)
	counts := map[string]int{}
	for i := range d.Vectors {
		v := &d.Vectors[i]
		slots := d.QPs[v.QP].Slots
		if r := v.excluded(slots); r != "" {
			counts[r]++
			continue
		}
		if v.Ret != "OK" {
			counts["refused"]++
			t.Run(v.ID, func(t *testing.T) { checkRefusedRaw18(t, &d, v) })
			continue
		}
		counts["compared"]++
		if v.Doorbell.Kind == "db64" {
			counts["doorbell compared"]++
		} else {
			counts["doorbell blueflame"]++
		}
		t.Run(v.ID, func(t *testing.T) { checkSend(t, &d, v, v.WRs, v.Doorbell.Kind == "db64") })
	}
	counts["doorbell_policy"] = len(d.DoorbellPolicy)
	want := map[string]int{ // docs/FORMAT.md says the same
		"compared": 182, "doorbell compared": 5, "doorbell blueflame": 177,
		"crosses the ring's end": 18, "library defect": 5, "signature": 1, "refused": 2,
		"doorbell_policy": 3,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
}

// checkRefusedRaw18 shows that a device would refuse what the library does: a
// frame shorter than the mandatory header.
func checkRefusedRaw18(t *testing.T, d *vecSends, v *vecSend) {
	q := d.QPs[v.QP]
	s, _ := sqForVector(t, &q, 0)
	hdr, _, _ := v.WRs[0].parts(&q)
	w, pi, _ := s.Reserve(1)
	ds := 1 + EthDS(len(hdr))
	PutCtrl(&w[0], uint16(pi), OpSend, uint32(q.QPN), ds, 0, 0)
	PutEth(w, 0, 0, hdr)
	var got SendWQE
	if r := DecodeSend(w, &got, uint32(q.QPN), &SendLimits{MinInline: q.MinI}); r != RuleMinInline {
		t.Errorf("%d bytes: %v, want %v", len(hdr), r, RuleMinInline)
	}
}

// The WQEs that were written before, or in spite of, a refusal; the refusals
// themselves are the engine's.
func TestSendWQEsAroundRefusals(t *testing.T) {
	var d vecSends
	loadVectors(t, "mlx5-wqe.json", &d)
	counts := map[string]int{}
	for i := range d.Refusals {
		v := &d.Refusals[i]
		if len(v.WQEs) == 0 {
			counts["nothing written"]++
			continue
		}
		n := len(v.WQEs)
		// Formats section 13, 4: the doorbell of a refused request is stale.
		doorbell := v.Ret == "OK" && v.Doorbell.Kind == "db64"
		counts["compared"]++
		t.Run(v.ID, func(t *testing.T) { checkSend(t, &d, v, v.WRs[:n], doorbell) })
	}
	want := map[string]int{"compared": 14, "nothing written": 12} // docs/FORMAT.md says the same
	if !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
}
