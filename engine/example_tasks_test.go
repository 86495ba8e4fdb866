package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/bluering/bluering/engine"
	"github.com/bluering/bluering/engine/device"
	"github.com/bluering/bluering/engine/softnic"
	"github.com/bluering/bluering/engine/softnic/wire"
	"github.com/bluering/bluering/internal/clock"
)

// A port is one end of a loop with a queue pair that is ready to send.
type port struct {
	dev  *engine.Device
	cq   *engine.CQ
	pool *engine.Pool
	qp   *engine.QP
}

func openPort(uri string) *port {
	dev, err := device.Open(uri, device.Options{})
	check(err)
	return ready(dev)
}

func ready(dev *engine.Device) *port {
	cq, err := dev.NewCQ(64)
	check(err)
	pd := dev.DefaultPD()
	pool, err := pd.AllocPool(8, 2048)
	check(err)
	qp, err := pd.NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})
	check(err)
	check(qp.MoveTo(engine.StateRTS, engine.QPAttr{}))
	return &port{dev, cq, pool, qp}
}

// frame is a request to send a 60-byte frame to a MAC that ends in to.
func (p *port) frame(id uint64, to byte) engine.SendWR {
	f, _ := p.pool.Get()
	copy(p.pool.Bytes(f), []byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return engine.SendWR{ID: id, Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{p.pool.SGE(f, 60)}}
}

// What a device can do, and what a queue pair got.
func ExampleDevice_Caps() {
	p := openPort("loop:example-caps?profile=mlx5&inline=18")
	defer p.dev.Close()
	var caps engine.Caps = p.dev.Caps()
	fmt.Println(caps.Kind, caps.Profile, "leaves this process:", caps.IsWire, "MTU", caps.MTU)
	fmt.Println("bytes of a frame that must stand in the WQE:", caps.MinInline)
	fmt.Println("checksums:", caps.Has(engine.OffloadRawCsum), "datagrams:", caps.Features&engine.FeatureUD != 0)
	got := p.qp.Cap() // nothing is less than asked
	fmt.Println(got.MaxSendWR >= 4, got.MaxRecvWR >= 4, got.MaxBlocks)
	// Output:
	// loop mlx5 leaves this process: false MTU 9000
	// bytes of a frame that must stand in the WQE: 18
	// checksums: true datagrams: true
	// true true 1
}

// Pacing by the device: what is posted leaves at a rate, here a frame of 60
// bytes in 0.48 ms, two of them at once.
func ExampleRateLimit() {
	now := new(clock.Virtual)
	dev, err := device.Open("loop:example-rate", device.Options{Clock: now})
	check(err)
	defer dev.Close()
	p := ready(dev)
	limit := engine.RateLimit{Kbps: 1000, BurstBytes: 120, TypicalBytes: 60}
	check(p.qp.Modify(engine.StateRTS, engine.QPAttr{Rate: limit}, engine.AttrRateLimit))
	for id := range uint64(4) {
		_, err := p.qp.Post([]engine.SendWR{p.frame(id, 2)})
		check(err)
	}
	done := make([]engine.Completion, 4)
	for range 3 {
		n, err := p.cq.Poll(done)
		check(err)
		fmt.Println(n, "left by", time.Duration(now.Now()))
		now.Advance(480_000)
	}
	// Output:
	// 2 left by 0s
	// 1 left by 480µs
	// 1 left by 960µs
}

// Steering: frames for one address go to this queue pair, and the device
// counts what nobody wants.
func ExampleQP_Attach() {
	a, b := openPort("loop:example-attach"), openPort("loop:example-attach")
	defer a.dev.Close()
	defer b.dev.Close()
	rule := engine.FlowRule{Kind: engine.FlowNormal, Match: engine.MatchDstMAC([6]byte{2, 0, 0, 0, 0, 2})}
	rule.Match.EtherType, rule.Match.EtherTypeMask = 0x88b5, 0xffff
	flow, err := b.qp.Attach(rule)
	check(err)
	into, _ := b.pool.Get()
	_, err = b.qp.PostRecv([]engine.RecvWR{{ID: 1, SGEs: []engine.SGE{b.pool.SGE(into, 2048)}}})
	check(err)

	_, err = a.qp.Post([]engine.SendWR{a.frame(1, 2), a.frame(2, 9)})
	check(err)
	wc := make([]engine.Completion, 8)
	n, err := b.cq.Poll(wc)
	check(err)
	counters := b.dev.Counters()
	fmt.Println(n, "received,", counters.Drop(engine.DropNoRule), "dropped for", engine.DropNoRule)
	fmt.Println(flow.Close())
	// Output:
	// 1 received, 1 dropped for no_rule
	// <nil>
}

// A receive hash spreads flows over queue pairs, here two on one CQ; each may
// have an owner, and a CQ, of its own.
func ExamplePD_NewRSS() {
	a, b := openPort("loop:example-rss"), openPort("loop:example-rss")
	defer a.dev.Close()
	defer b.dev.Close()
	other, err := b.dev.DefaultPD().NewQP(engine.QPConfig{Type: engine.RawPacket, SendCQ: b.cq, RecvCQ: b.cq, MaxRecvWR: 4})
	check(err)
	check(other.MoveTo(engine.StateRTR, engine.QPAttr{}))
	c := engine.RSSConfig{Fields: engine.RSSIPv4 | engine.RSSUDP, Table: []*engine.QP{b.qp, other}}
	var rss *engine.RSS
	rss, err = b.dev.DefaultPD().NewRSS(c)
	check(err)
	_, err = rss.Attach(engine.FlowRule{Kind: engine.FlowAll})
	check(err)
	into, _ := b.pool.Get()
	check(b.qp.PostRecv1(1, b.pool.SGE(into, 2048)))

	_, err = a.qp.Post([]engine.SendWR{a.frame(1, 2)}) // no IP: hash 0, the first of the table
	check(err)
	wc := make([]engine.Completion, 8)
	n, err := b.cq.Poll(wc)
	check(err)
	fmt.Println(n, "received, by the first:", wc[0].QPN == b.qp.QPN())
	fmt.Println("in use:", errors.Is(other.Close(), syscall.EBUSY))
	fmt.Println(rss.Close(), other.Close())

	c.Fields = 1 << 31 // the fields of an inner packet
	_, err = b.dev.DefaultPD().NewRSS(c)
	unknown := c.Fields &^ b.dev.Caps().RSSFields
	fmt.Println(unknown == engine.RSSFields(1<<31), errors.Is(err, syscall.EOPNOTSUPP))
	// Output:
	// 1 received, by the first: true
	// in use: true
	// <nil> <nil>
	// true true
}

// What a backend is asked for when a receive hash is made.
func ExampleRSSBackend() {
	w, err := wire.OpenLoop(wire.LoopOptions{Name: "example-rss-backend"})
	check(err)
	nic, err := softnic.New(w, softnic.Config{})
	check(err)
	defer nic.Close()
	var b engine.RSSBackend = nic
	spec := engine.RSSSpec{Key: engine.DefaultRSSKey, Fields: engine.RSSIPv6, Table: []uint32{0x40}}
	_, err = b.NewRSS(spec)
	fmt.Println(errors.Is(err, syscall.EINVAL), "no such queue pair")
	// Output:
	// true no such queue pair
}

// A ring full of ready frames: sending again costs one word of each.
func ExampleQP_NewImage() {
	a := openPort("loop:example-image")
	defer a.dev.Close()
	img, err := a.qp.NewImage(engine.ImageConfig{Frame: make([]byte, 60), SignalEvery: 2})
	check(err)
	var where engine.Span = img.Spans()[0]
	first, got := img.Rearm(2)
	for i := range got { // patch the frames' bytes in place
		slot := img.Slot(first + uint32(i)*img.Step())
		where.Mem[slot*where.Stride+where.Off+59] = byte(i)
	}
	check(img.Publish())

	wc := make([]engine.Completion, 8)
	n, err := a.cq.Poll(wc)
	check(err)
	fmt.Println(got, "sent with one doorbell,", n, "completion retires", wc[0].Retired)
	fmt.Println("closed:", img.Close())
	// Output:
	// 2 sent with one doorbell, 1 completion retires 2
	// closed: <nil>
}

// A poller owns the queues: it sends in Each, and stops when all has completed.
func ExamplePoller() {
	a := openPort("loop:example-poller")
	defer a.dev.Close()
	const total = 10
	wrs := []engine.SendWR{a.frame(0, 2)}
	sent, done := 0, 0
	p, err := engine.NewPoller(a.dev, engine.PollerConfig{Idle: engine.IdleYield, Each: func(int64) int {
		if sent == total {
			return 0
		}
		wrs[0].ID = uint64(sent)
		n, err := a.qp.Post(wrs)
		if !errors.Is(err, engine.CauseFull) { // full: try again in the next round
			check(err)
		}
		sent += n
		return n
	}})
	check(err)
	check(p.Add(a.cq, func(wc []engine.Completion) { // an engine.Handler
		if done += len(wc); done == total {
			p.Stop()
		}
	}))
	check(p.Run(context.Background()))
	var ledger engine.Stalls = p.Stalls()
	fmt.Println(sent, done, ledger.Rounds > 0, ledger.Parks)
	// Output:
	// 10 10 true 0
}

// What goes wrong at once is a *PostError, what goes wrong later a completion.
func ExamplePostError() {
	a := openPort("loop:example-errors")
	defer a.dev.Close()
	runt := a.frame(2, 2)
	runt.SGEs[0].Len = 5
	n, err := a.qp.Post([]engine.SendWR{a.frame(1, 2), runt})
	var pe *engine.PostError
	if errors.As(err, &pe) {
		fmt.Printf("%d posted; request %d: %v (%v)\n", n, pe.Index, pe.Cause, errors.Is(err, syscall.EINVAL))
	}

	// A region that may not be read to the end of the request.
	mem := make([]byte, 64)
	mr, err := a.dev.DefaultPD().Register(mem, engine.LocalWrite)
	check(err)
	_, err = a.qp.Post([]engine.SendWR{{ID: 3, Opcode: engine.OpSend, Flags: engine.Signaled, SGEs: []engine.SGE{mr.SGE(0, 100)}}})
	check(err)
	wc := make([]engine.Completion, 8)
	n, err = a.cq.Poll(wc)
	check(err)
	for i := range wc[:n] {
		var ce *engine.CompletionError
		if errors.As(wc[i].Err(), &ce) {
			fmt.Println("request", ce.WRID, "failed:", ce.Status, errors.Is(ce, engine.StatusLocProt))
		}
	}
	fmt.Println(a.qp.State())
	// Output:
	// 1 posted; request 1: packet shorter than the device's minimum (true)
	// request 3 failed: LOC_PROT_ERR true
	// ERR
}

// The steps that MoveTo takes, one by one, and the way out: in ERR everything
// posted is flushed.
func ExampleQP_Modify() {
	a := openPort("loop:example-modify")
	defer a.dev.Close()
	check(a.qp.Modify(engine.StateReset, engine.QPAttr{}, engine.AttrState))
	check(a.qp.Modify(engine.StateInit, engine.QPAttr{Port: 1}, engine.AttrPort))
	fmt.Println(a.qp.Modify(engine.StateRTS, engine.QPAttr{}, engine.AttrState) != nil, a.qp.State())
	for _, s := range []engine.QPState{engine.StateRTR, engine.StateRTS} {
		check(a.qp.Modify(s, engine.QPAttr{}, engine.AttrState))
	}
	into, _ := a.pool.Get()
	check(a.qp.PostRecv1(7, a.pool.SGE(into, 2048)))
	check(a.qp.Modify(engine.StateErr, engine.QPAttr{}, engine.AttrState))
	wc := make([]engine.Completion, 8)
	n, err := a.cq.Poll(wc)
	check(err)
	fmt.Println(n, wc[0].WRID, wc[0].Status, a.qp.State())
	// Output:
	// true INIT
	// 1 7 WR_FLUSH_ERR ERR
}

// spy is a backend that shows what the engine asks of the one behind it.
type spy struct{ engine.Backend }

func (s spy) NewCQ(entries int) (engine.CQMem, error) {
	m, err := s.Backend.NewCQ(entries)
	fmt.Println("completion queue:", entries, "entries,", len(m.CQEs), "mapped")
	return m, err
}

func (s spy) NewQP(q engine.QPSpec) (engine.QPMem, error) {
	m, err := s.Backend.NewQP(q)
	fmt.Println("queue pair:", q.Type, q.SQSlots, "slots,", len(m.SQ), "mapped, receive queue of", len(m.RQ), "bytes")
	return m, err
}

func (s spy) Register(pd uint32, mem []byte, a engine.Access) (lkey uint32, addr uint64, err error) {
	fmt.Println("memory:", len(mem), "bytes, receives may write:", a&engine.LocalWrite != 0)
	return s.Backend.Register(pd, mem, a)
}

func (s spy) NewSRQ(q engine.SRQSpec) (engine.SRQMem, error) {
	m, err := s.Backend.NewSRQ(q)
	fmt.Println("shared receive queue:", q.Entries, "entries,", len(m.Mem), "bytes")
	return m, err
}

func (s spy) Notify(f func(engine.DeviceEvent)) {
	s.Backend.Notify(func(e engine.DeviceEvent) {
		fmt.Println("event:", e.Type)
		f(e)
	})
}

// A backend is all that a provider writes. One may also wrap another: here it
// watches the control calls of the software NIC.
func ExampleBackend() {
	w, err := wire.OpenLoop(wire.LoopOptions{Name: "example-backend"})
	check(err)
	nic, err := softnic.New(w, softnic.Config{})
	check(err)
	dev, err := engine.NewDevice(spy{nic})
	check(err)
	p := ready(dev)
	_, err = p.qp.Post([]engine.SendWR{p.frame(1, 2)})
	check(err)
	_, err = dev.DefaultPD().NewSRQ(engine.SRQConfig{MaxWR: 7})
	check(err)
	check(p.qp.Modify(engine.StateSQD, engine.QPAttr{SQDNotify: true}, engine.AttrSQDNotify))
	fmt.Println(dev.Close())
	// Output:
	// completion queue: 128 entries, 128 mapped
	// memory: 16384 bytes, receives may write: true
	// queue pair: RAW_PACKET 4 slots, 4 mapped, receive queue of 64 bytes
	// shared receive queue: 8 entries, 256 bytes
	// event: SQ_DRAINED
	// <nil>
}

// An address with a known MAC is made without asking anybody.
func ExamplePD_NewAH() {
	a := openPort("loop:example-ah")
	defer a.dev.Close()
	to := engine.GIDFromAddr(netip.MustParseAddr("198.18.0.2"))
	ah, err := a.dev.DefaultPD().NewAH(engine.AHAttr{MAC: [6]byte{2, 0, 0, 0, 0, 2}, GID: to, HopLimit: 64})
	check(err)
	fmt.Println("hop limit", ah.Attr().HopLimit)
	fmt.Println(ah.Close())
	// Output:
	// hop limit 64
	// <nil>
}

// A destination is named by its address; the device finds the next hop.
func ExamplePD_ResolveAH() {
	a := openPort("loop:example-resolve")
	defer a.dev.Close()
	for _, own := range a.dev.GIDs() {
		fmt.Println(own.Index, own.GID)
	}
	to := engine.GIDFromAddr(netip.MustParseAddr("198.18.0.2"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ah, err := a.dev.DefaultPD().ResolveAH(ctx, engine.Dest{GID: to, SGIDIndex: engine.AnyGID, FlowLabel: 1})
	check(err)
	attr := ah.Attr()
	fmt.Printf("%x, hop limit %d, port %#x\n", attr.MAC, attr.HopLimit, attr.SrcPort)
	fmt.Println(ah.Close())
	// What needs no closing: the attributes alone, from any goroutine.
	found, err := a.dev.Resolve(ctx, engine.Dest{GID: to, SGIDIndex: engine.AnyGID, FlowLabel: 1})
	fmt.Println(found == attr, err)
	// Output:
	// 0 198.18.0.1
	// 1 2001:2::1
	// 020000000002, hop limit 64, port 0xc001
	// <nil>
	// true <nil>
}
