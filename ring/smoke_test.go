package ring

import "testing"

func TestSmoke(t *testing.T) {
	r, _ := NewRegion(64*64, RegionOptions{})
	rec, _ := NewRecord(make([]byte, 8))
	q, err := NewSQ(r.Blocks()[:64], rec, SQConfig{QPN: 5, MaxBB: 4})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := NewDevSQ(r.Blocks()[:64], rec, 5)
	var v SendWQE
	for i := 0; i < 10000; i++ {
		bb := i%4 + 1
		w, pi, ok := q.Reserve(bb)
		if !ok {
			t.Fatal(i)
		}
		ds := bb * 4
		PutCtrl(&w[0], uint16(pi), OpSend, 5, ds, 8, 0)
		PutEth0(&w[0], 0)
		for k := 2; k < ds; k++ {
			PutData(w, k, Seg{uint64(k), 1, 2})
		}
		q.Commit(bb, uint64(i))
		q.Publish()
		if s := d.Fetch(&v); s != FetchOK || v.NSeg != ds-2 {
			t.Fatal(i, s, v.Rule, v.NSeg)
		}
		d.Advance()
		id, n, ok := q.Retire(v.Index)
		if !ok || n != 1 || id != uint64(i) {
			t.Fatal(i, id, n, ok)
		}
	}
}
