package ring

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
)

type vecRecvs struct {
	QPs     map[string]vecQP
	Vectors []struct {
		ID        string
		QP        string
		SGEs      []vecSGE
		Ret       string
		Bytes     hexBytes
		Undefined [][2]int
		DBRec     hexBytes
		Posted    int `json:"posted_in_one_list"`
		BadWR     int `json:"bad_wr"`
	}
	SRQ []struct {
		ID    string
		Asked struct {
			WR  int `json:"max_wr"`
			SGE int `json:"max_sge"`
		}
		Got struct {
			WR  int `json:"max_wr"`
			SGE int `json:"max_sge"`
		}
		Stride, Ring, Entry int
		Tail                int
		WRID                int   `json:"wr_id"`
		Next                []int `json:"next_index"`
		SGEs                []vecSGE
		Bytes               hexBytes
		First               hexBytes `json:"first_entry"`
		DBRec               hexBytes
		NumSGE              int `json:"num_sge"`
	}
}

func vecSegs(s []vecSGE) (segs []Seg) {
	for _, x := range s {
		segs = append(segs, Seg{uint64(x.Addr), x.Len, uint32(x.LKey)})
	}
	return segs
}

func rqForVector(t *testing.T, q *vecQP) (*RQ, *DevRQ, []byte, []byte) {
	t.Helper()
	entries, stride, maxWR, maxSGE, err := RQGeometry(q.Asked.RecvWR, q.Asked.RecvSGE)
	if err != nil {
		t.Fatal(err)
	}
	if entries != q.RQ || stride != q.RQS || maxWR != q.Got.RecvWR || maxSGE != q.Got.RecvSGE {
		t.Fatalf("geometry %d %d %d %d, want %d %d %d %d", entries, stride, maxWR, maxSGE,
			q.RQ, q.RQS, q.Got.RecvWR, q.Got.RecvSGE)
	}
	mem := make([]byte, entries*stride)
	fillA5(mem)
	recMem := make([]byte, 8)
	rec, _ := NewRecord(recMem)
	c := RQConfig{Stride: stride, Entries: entries}
	rq, err := NewRQ(mem, rec, c)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := NewDevRQ(mem, rec, c)
	if err != nil {
		t.Fatal(err)
	}
	return rq, dev, mem, recMem
}

func TestReceiveEntriesAreWhatTheLibraryWrites(t *testing.T) {
	var d vecRecvs
	loadVectors(t, "mlx5-recv.json", &d)
	counts := map[string]int{}
	for _, v := range d.Vectors {
		if strings.HasPrefix(v.ID, "rq/ud-sig-") {
			counts["signature"]++
			continue
		}
		counts["compared"]++
		t.Run(v.ID, func(t *testing.T) {
			q := d.QPs[v.QP]
			rq, dev, mem, recMem := rqForVector(t, &q)
			if v.Posted != 0 {
				n := 0
				for n < v.Posted && rq.Post(nil, 0) {
					n++
				}
				if n != v.BadWR {
					t.Errorf("full after %d, want %d", n, v.BadWR)
				}
				rq.Publish()
				if !bytes.Equal(recMem, v.DBRec) {
					t.Errorf("record %x, want %x", recMem, v.DBRec)
				}
				return
			}
			segs := vecSegs(v.SGEs)
			ok := rq.Post(segs, 7)
			if ok != (v.Ret == "OK") {
				t.Fatalf("post %t, want %s", ok, v.Ret)
			}
			rq.Publish()
			if !bytes.Equal(recMem, v.DBRec) {
				t.Errorf("record %x, want %x", recMem, v.DBRec)
			}
			if !ok {
				return
			}
			for _, u := range v.Undefined {
				copy(v.Bytes[u[0]:u[0]+u[1]], mem[u[0]:])
			}
			if got := mem[:len(v.Bytes)]; !bytes.Equal(got, v.Bytes) {
				t.Errorf("entry %x\nwant %x", got, v.Bytes)
			}
			segs = slices.DeleteFunc(segs, func(s Seg) bool { return s.Len == 0 })
			var out [16]Seg
			copy(mem, v.Bytes)
			n, ok := dev.Peek(out[:])
			if !ok || !slices.Equal(out[:n], segs) {
				t.Errorf("decoded %v, want %v", out[:n], segs)
			}
			if len(segs) == 1 {
				rq1, _, mem1, _ := rqForVector(t, &q)
				rq1.Post1(segs[0], 7)
				if !bytes.Equal(mem1[:q.RQS], mem[:q.RQS]) {
					t.Errorf("Post1 wrote %x, Post %x", mem1[:q.RQS], mem[:q.RQS])
				}
			}
		})
	}
	if want := map[string]int{"compared": 22, "signature": 2}; !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
}

func TestSRQEntriesAreWhatTheLibraryWrites(t *testing.T) {
	var d vecRecvs
	loadVectors(t, "mlx5-recv.json", &d)
	var mem []byte
	var stride int
	recMem := make([]byte, 8)
	rec, _ := NewRecord(recMem)
	posted := uint32(0)
	compared := 0
	next := func() (n []int) {
		for o := 0; o < len(mem); o += stride {
			n = append(n, int(SRQNext(mem[o:])))
		}
		return n
	}
	for _, v := range d.SRQ {
		compared++
		switch {
		case strings.HasPrefix(v.ID, "srq/initial/"):
			var sge int
			stride, sge = SRQStride(v.Asked.SGE)
			if stride != v.Stride || sge != v.Got.SGE {
				t.Fatalf("%s: stride %d with %d pieces, want %d %d", v.ID, stride, sge, v.Stride, v.Got.SGE)
			}
			mem = make([]byte, v.Ring*stride)
			fillA5(mem)
			InitSRQ(mem, stride, v.Ring/2)
			if !slices.Equal(next(), v.Next) || !bytes.Equal(mem[:stride], v.First) {
				t.Errorf("%s: links %v, want %v; first %x", v.ID, next(), v.Next, mem[:stride])
			}
			posted = 0
		case v.NumSGE != 0:
			if PutSRQEntry(mem[:stride], make([]Seg, v.NumSGE)) {
				t.Errorf("%s: accepted", v.ID)
			}
		case v.Next != nil: // a completed entry goes behind the tail
			SetSRQNext(mem[7*stride:], uint16(v.Tail))
			if !slices.Equal(next(), v.Next) {
				t.Errorf("%s: links %v, want %v", v.ID, next(), v.Next)
			}
		default:
			e := mem[v.Entry*stride : (v.Entry+1)*stride]
			for i := 16; i < stride; i++ {
				e[i] = 0xee
			}
			segs := vecSegs(v.SGEs)
			if !PutSRQEntry(e, segs) || !bytes.Equal(e, v.Bytes) {
				t.Errorf("%s: entry %x\nwant %x", v.ID, e, v.Bytes)
			}
			posted = uint32(v.Entry) + 1
			rec.StoreSRQ(posted)
			if !bytes.Equal(recMem[:4], v.DBRec) {
				t.Errorf("%s: record %x, want %x", v.ID, recMem[:4], v.DBRec)
			}
			var out [8]Seg
			if n := GetSRQEntry(v.Bytes, out[:]); !slices.Equal(out[:n], segs) {
				t.Errorf("%s: decoded %v, want %v", v.ID, out[:n], segs)
			}
		}
	}
	if compared != 11 {
		t.Errorf("%d SRQ vectors compared, want 11", compared)
	}
}
