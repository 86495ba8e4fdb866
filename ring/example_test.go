package ring_test

import (
	"fmt"
	"log"
	"os"

	"github.com/bluering/bluering/ring"
)

const qpn = 0x42

// pair lays a send queue of four blocks and a completion queue of four entries
// into memory, and makes both halves of each.
func pair(mem *ring.Region) (*ring.SQ, *ring.DevSQ, *ring.CQ, *ring.DevCQ) {
	sqRec, err := ring.NewRecord(mem.Bytes()[1024 : 1024+ring.RecordBytes])
	check(err)
	cqRec, err := ring.NewRecord(mem.Bytes()[1088 : 1088+ring.RecordBytes])
	check(err)
	blocks, cqes := mem.Blocks()[:4], ring.CQEs(mem.Bytes()[2048:2048+4*ring.CQEBytes])

	sq, err := ring.NewSQ(blocks, sqRec, ring.SQConfig{QPN: qpn, MaxBB: 1})
	check(err)
	devSQ, err := ring.NewDevSQ(blocks, sqRec, qpn)
	check(err)
	cq, err := ring.NewCQ(cqes, cqRec, 7) // initialises the entries: before the device's half
	check(err)
	devCQ, err := ring.NewDevCQ(cqes, cqRec, 7)
	check(err)
	return sq, devSQ, cq, devCQ
}

// A send request on its way through both halves: written, published, fetched,
// completed, retired.
func Example() {
	mem, err := ring.NewRegion(4096, ring.RegionOptions{})
	check(err)
	defer mem.Close()
	sq, devSQ, cq, devCQ := pair(mem)

	before := sq.Mark()
	for id := range uint64(2) {
		w, pi, ok := sq.Reserve(1)
		if !ok {
			log.Fatal("the ring is full")
		}
		ring.PutCtrl(&w[0], uint16(pi), ring.OpSend, sq.QPN(), 3, ring.FlagSignaled, 0)
		ring.PutEth0(&w[0], 0)
		ring.PutData(w, 2, ring.Seg{Addr: 0x1000, Len: 60, LKey: 0x1100})
		sq.Commit(1, 100+id)
		if id == 0 {
			sq.Rollback(before) // changed our mind: nobody saw it
		}
	}
	_, any := sq.Publish() // a driver now rings the doorbell
	fmt.Println("published:", any, "outstanding:", sq.Outstanding())

	var wqe ring.SendWQE
	for devSQ.Fetch(&wqe) == ring.FetchOK {
		fmt.Printf("device: %v of %d bytes from %#x\n", wqe.Opcode, wqe.Bytes, wqe.Segs[0].Addr)
		devSQ.Advance()
		e, _ := devCQ.Next()
		e.PutReq(0, qpn, wqe.Opcode, wqe.Index, 0)
		devCQ.Seal(uint8(ring.CQEReq) << 4)
	}
	devCQ.Publish()

	for e, ok := cq.Peek(); ok; e, ok = cq.Peek() {
		id, n, _ := sq.Retire(e.Counter())
		fmt.Printf("host: %v, request %d done, %d retired\n", e.Op(), id, n)
		cq.Consume()
	}
	cq.Update()
	// Output:
	// published: true outstanding: 1
	// device: SEND of 60 bytes from 0x1000
	// host: REQ, request 101 done, 1 retired
}

// A receive request: posted in two pieces, filled by the device, taken.
func ExampleRQ() {
	entries, stride, _, _, err := ring.RQGeometry(4, 2)
	check(err)
	geometry := ring.RQConfig{Stride: stride, Entries: entries}
	mem, err := ring.NewRegion(4096, ring.RegionOptions{Huge: true}) // plain pages where there are no huge ones
	check(err)
	defer mem.Close()
	rec, err := ring.NewRecord(mem.Bytes()[2048:2056])
	check(err)
	rq, err := ring.NewRQ(mem.Bytes()[:entries*stride], rec, geometry)
	check(err)
	device, err := ring.NewDevRQ(mem.Bytes()[:entries*stride], rec, geometry)
	check(err)

	fmt.Println(rq.Post([]ring.Seg{{Addr: 0x1000, Len: 14, LKey: 0x1100}, {Addr: 0x2000, Len: 1500, LKey: 0x1100}}, 9))
	fmt.Println("before Publish:", device.Available())
	rq.Publish()

	segs := make([]ring.Seg, rq.MaxSGE())
	n, _ := device.Peek(segs)
	fmt.Printf("%+v, counter %d\n", segs[:n], device.Advance())
	id, ok := rq.Take() // completions of receives come in the order of posting
	fmt.Println("request", id, ok)
	// Output:
	// true
	// before Publish: 0
	// [{Addr:4096 Len:14 LKey:4352} {Addr:8192 Len:1500 LKey:4352}], counter 0
	// request 9 true
}

// A device's fast path: a burst of look-alike requests in, a burst of
// completions out, which one store releases.
func ExampleDevSQ_FetchRun() {
	mem, err := ring.NewRegion(4096, ring.RegionOptions{})
	check(err)
	defer mem.Close()
	sq, devSQ, cq, devCQ := pair(mem)
	w, pi, got := sq.ReserveRun(3, 1)
	for i := range uint32(got) {
		ring.PutCtrl(&w[i], uint16(pi+i), ring.OpSend, qpn, 3, ring.FlagSignaled, 0)
		ring.PutEth0(&w[i], 0)
		ring.PutData(w[i:i+1], 2, ring.Seg{Addr: 0x1000 + uint64(i)*2048, Len: 60 + i, LKey: 0x1100})
	}
	sq.CommitRun(got, 1, 500)
	sq.Publish()

	var segs [8]ring.Seg
	n, first, signaled := devSQ.FetchRun(segs[:devCQ.Room(len(segs))])
	for _, s := range segs[:n] {
		fmt.Printf("send %d bytes from %#x\n", s.Len, s.Addr)
	}
	fmt.Printf("of these want completions: %b\n", signaled)
	devSQ.AdvanceRun(n)
	devCQ.PutSends(0, qpn, ring.OpSend, first, n, 0)
	fmt.Println("released:", devCQ.Publish())

	last := uint16(0)
	for e, ok := cq.Peek(); ok; e, ok = cq.Peek() {
		last = e.Counter()
		cq.Consume()
	}
	cq.Update()
	fmt.Println(sq.Retire(last)) // it and all older ones
	// Output:
	// send 60 bytes from 0x1000
	// send 61 bytes from 0x1800
	// send 62 bytes from 0x2000
	// of these want completions: 111
	// released: 3
	// 502 3 true
}

// Why does a device refuse this WQE? Its size says one unit more than was
// published.
func ExampleDecodeSend() {
	var w [1]ring.Block
	ring.PutCtrl(&w[0], 0, ring.OpSend, qpn, 5, 0, 0)
	ring.PutEth0(&w[0], 0)
	ring.PutData(w[:], 2, ring.Seg{Addr: 0x1000, Len: 60, LKey: 0x1100})

	var wqe ring.SendWQE
	rule := ring.DecodeSend(w[:], &wqe, qpn, &ring.SendLimits{Kind: ring.RawPacket})
	fmt.Printf("%s (%s)\n", rule.Name(), rule.Source())
	fmt.Printf("completes with %v, ibv_wc_status %d\n", rule.Syndrome(), rule.Syndrome().Status())
	check(ring.Dump(os.Stdout, ring.Flatten(w[:])))
	// Output:
	// published (FORMAT, doorbells: the record covers whole WQEs)
	// completes with local QP operation, ibv_wc_status 2
	// 0000000a 00004205 00000000 00000000
	// 00000000 00000000 00000000 00000000
	// 0000003c 00001100 00000000 00001000
	// 00000000 00000000 00000000 00000000
}

// A datagram's address is made once and patched into each WQE.
func ExampleMakeAV() {
	av := ring.MakeAV(&ring.AVFields{MAC: [6]byte{2, 0, 0, 0, 0, 9}, HopLimit: 64, SrcPort: ring.SrcPort(0x12345)})
	var w [2]ring.Block
	ring.PutCtrl(&w[0], 0, ring.OpSendImm, qpn, 6, ring.FlagSignaled, 0xcafe)
	ring.PutDatagram(&w[0], &av, 0x11111111, 77)
	ds := ring.PutInline(w[:], 4, []byte("a datagram of 27 bytes, say"))
	ring.PutTail(w[:], ds)

	var wqe ring.SendWQE
	rule := ring.DecodeSend(w[:], &wqe, qpn, &ring.SendLimits{Kind: ring.UD})
	fmt.Println(ds, rule == ring.RuleNone)
	fmt.Printf("%v imm %#x to QP %d, Q_Key %#x, port %d: %q\n",
		wqe.Opcode, wqe.Imm, wqe.RemoteQPN, wqe.QKey, wqe.AV.Fields().SrcPort, wqe.Inline)
	// Output:
	// 6 true
	// SEND_IMM imm 0xcafe to QP 77, Q_Key 0x11111111, port 58177: "a datagram of 27 bytes, say"
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A shared receive queue's entries are a chain of links: completed in any
// order, they are posted again in that order.
func ExampleSRQ() {
	entries, stride, maxWR, maxSGE, err := ring.SRQGeometry(3, 1)
	check(err)
	mem, err := ring.NewRegion(4096, ring.RegionOptions{})
	check(err)
	defer mem.Close()
	rec, err := ring.NewRecord(mem.Bytes()[2048:])
	check(err)
	srq, err := ring.NewSRQ(mem.Bytes()[:2048], rec, stride, entries) // chains them: before the device's half
	check(err)
	dev, err := ring.NewDevSRQ(mem.Bytes()[:2048], rec, stride, entries)
	check(err)
	fmt.Println(entries, "entries for", maxWR, "requests of", maxSGE, "piece")

	for id := range uint64(3) {
		srq.Post([]ring.Seg{{Addr: 0x1000 * (id + 1), Len: 64, LKey: 0x1100}}, 100+id)
	}
	srq.Publish()
	var segs [1]ring.Seg
	var taken []uint16
	for range 3 {
		dev.Peek(segs[:])
		taken = append(taken, dev.Advance())
		fmt.Printf("device: entry %d, %#x\n", taken[len(taken)-1], segs[0].Addr)
	}
	for _, k := range []int{2, 0, 1} { // as the completions are polled
		id, ok := srq.Take(taken[k])
		fmt.Println("completed:", id, ok)
	}
	for range 3 {
		srq.Post(segs[:], 0)
	}
	srq.Publish()
	for range 3 {
		dev.Peek(segs[:])
		fmt.Println("device: entry", dev.Advance())
	}
	// Output:
	// 4 entries for 3 requests of 1 piece
	// device: entry 0, 0x1000
	// device: entry 1, 0x2000
	// device: entry 2, 0x3000
	// completed: 102 true
	// completed: 100 true
	// completed: 101 true
	// device: entry 3
	// device: entry 2
	// device: entry 0
}

// A device that sends datagrams decodes a run of them at once.
func ExampleDevSQ_FetchGrams() {
	mem, err := ring.NewRegion(4096, ring.RegionOptions{})
	check(err)
	defer mem.Close()
	sq, devSQ, _, _ := pair(mem)
	devSQ.SetLimits(ring.SendLimits{Kind: ring.UD})
	av := ring.MakeAV(&ring.AVFields{GID: [16]byte{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}})
	w, pi, got := sq.ReserveRun(2, 2)
	for i := range uint32(got) {
		b := w[2*i:]
		ring.PutCtrl(&b[0], uint16(pi+2*i), ring.OpSend, qpn, 5, 0, 0)
		ring.PutDatagram(&b[0], &av, 0x11111111, 0x40+i)
		ring.PutData(b, 4, ring.Seg{Addr: 0x1000, Len: 64, LKey: 0x1100})
	}
	sq.CommitRun(got, 2, 0)
	sq.Publish()

	var grams [8]ring.Gram
	n, op := devSQ.FetchGrams(grams[:])
	for _, g := range grams[:n] {
		fmt.Printf("%v of %d bytes to QP 0x%x at ...%d\n", op, g.Len, g.QPN, g.AV.GID()[15])
	}
	devSQ.AdvanceGrams(n)
	// Output:
	// SEND of 64 bytes to QP 0x40 at ...1
	// SEND of 64 bytes to QP 0x41 at ...1
}

// A device that receives datagrams completes a run of them at once.
func ExampleDevCQ_PutGrams() {
	mem, err := ring.NewRegion(4096, ring.RegionOptions{})
	check(err)
	defer mem.Close()
	_, _, cq, devCQ := pair(mem)
	const from = uint32(ring.GRHInBuffer|ring.RoCEv2IPv4) << 24
	grams := []ring.DoneGram{{Bytes: 104, Source: from | 0x12}, {Bytes: 41, Source: from | 0x13, Imm: 7, HasImm: true, Counter: 1}}
	devCQ.PutGrams(0, qpn, grams[:devCQ.Room(len(grams))])
	devCQ.Publish()
	for e, ok := cq.Peek(); ok; e, ok = cq.Peek() {
		fmt.Printf("%v: %d bytes from QP 0x%x, immediate %d\n", e.Op(), e.ByteLen(), e.SrcQP(), e.Imm())
		cq.Consume()
	}
	// Output:
	// RESP_SEND: 104 bytes from QP 0x12, immediate 0
	// RESP_SEND_IMM: 41 bytes from QP 0x13, immediate 7
}
