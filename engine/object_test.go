package engine

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func TestLimitsOfCreation(t *testing.T) {
	r := newRig(t, rigConfig{caps: Caps{MaxCQE: 1000, MaxSendWR: 100, MaxRecvWR: 100, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 200, MaxCQ: 3, MaxQP: 3}})
	for _, n := range []int{0, -1, 1001} {
		_, err := r.d.NewCQ(n)
		wantErr(t, "A-01", err, syscall.EINVAL)
	}
	cq, err := r.d.NewCQ(100)
	r.ok(err)
	if cq.Entries() < 100 {
		t.Fatalf("A-03: %d entries", cq.Entries())
	}
	pd := r.d.DefaultPD()
	base := QPConfig{Type: RawPacket, SendCQ: cq, RecvCQ: cq}
	for id, f := range map[string]func(*QPConfig){
		"A-09 send wr":    func(c *QPConfig) { c.MaxSendWR = 101 },
		"A-09 recv wr":    func(c *QPConfig) { c.MaxRecvWR = 101 },
		"A-09 send sge":   func(c *QPConfig) { c.MaxSendSGE = 5 },
		"A-09 recv sge":   func(c *QPConfig) { c.MaxRecvSGE = 5 },
		"A-09 inline":     func(c *QPConfig) { c.MaxInline = 201 },
		"A-09 negative":   func(c *QPConfig) { c.MaxSendWR = -1 },
		"A-13 no type":    func(c *QPConfig) { c.Type = 0 },
		"A-13 RC":         func(c *QPConfig) { c.Type = 2 },
		"A-18 TSO on UD":  func(c *QPConfig) { c.Type, c.MaxTSOHeader = UD, 94 },
		"no CQ":           func(c *QPConfig) { c.SendCQ = nil },
		"CQ of nothing":   func(c *QPConfig) { c.RecvCQ = &CQ{} },
		"CQ of elsewhere": func(c *QPConfig) { c.RecvCQ = newRig(t, rigConfig{}).cq },
	} {
		c := base
		f(&c)
		_, err := pd.NewQP(c)
		wantErr(t, id, err, syscall.EINVAL)
	}
	c := base
	c.MaxTSOHeader = 94
	_, err = pd.NewQP(c)
	wantErr(t, "TSO without the offload", err, syscall.EOPNOTSUPP)
	q, err := pd.NewQP(base)
	r.ok(err)
	if k := q.Cap(); k.MaxSendWR < 1 || k.MaxInline <= 0 {
		t.Fatalf("%+v", k)
	}
	_, err = pd.NewQP(base)
	r.ok(err)
	_, err = pd.NewQP(base)
	wantErr(t, "fourth QP", err, syscall.ENOMEM)
	_, err = r.d.NewCQ(5)
	r.ok(err)
	_, err = r.d.NewCQ(5)
	wantErr(t, "fourth CQ", err, syscall.ENOMEM)
	_, err = pd.Register(nil, 0)
	wantErr(t, "no memory", err, syscall.EINVAL)
	_, err = pd.Register(make([]byte, 10), 1<<9)
	wantErr(t, "unknown right", err, syscall.EINVAL)
	_, err = pd.Register(make([]byte, 10), LocalWrite|ZeroBased)
	wantErr(t, "D-16", err, syscall.EOPNOTSUPP)
}

func TestGrantedAtLeastWhatWasAsked(t *testing.T) {
	for _, minInline := range []int{0, 18} {
		r := newRig(t, rigConfig{caps: Caps{MinInline: minInline, Offloads: OffloadRawTSO}})
		for _, typ := range []QPType{RawPacket, UD} {
			for _, sge := range []int{0, 1, 2, 7, 30} {
				for _, inline := range []int{0, 1, 18, 60, 200, 828} {
					for _, hdr := range []int{0, 14, 94} {
						if typ == UD && hdr != 0 {
							continue
						}
						q, err := r.d.DefaultPD().NewQP(QPConfig{Type: typ, SendCQ: r.cq, RecvCQ: r.cq, MaxSendWR: 20, MaxRecvWR: 20,
							MaxSendSGE: sge, MaxRecvSGE: sge, MaxInline: inline, MaxTSOHeader: hdr})
						r.ok(err)
						k := q.Cap()
						if k.MaxSendWR < 20 || k.MaxRecvWR < 20 || k.MaxSendSGE < sge || k.MaxRecvSGE < sge || k.MaxInline < inline || k.MaxTSOHeader < hdr {
							t.Fatalf("asked %d %d %d, got %+v", sge, inline, hdr, k)
						}
						r.ok(q.MoveTo(StateRTS, QPAttr{}))
						wr := SendWR{Opcode: OpSend, Flags: Inline, Inline: make([]byte, k.MaxInline), AH: r.ah()}
						_, err = q.Post([]SendWR{wr}) // what is granted fits
						r.ok(err)
						r.ok(q.Close())
					}
				}
			}
		}
	}
}

func TestBusyObjects(t *testing.T) {
	r := newRig(t, rigConfig{})
	wantErr(t, "A-05", r.cq.Close(), syscall.EBUSY)
	pd := r.d.NewPD()
	busy := func(what string, undo func() error) {
		t.Helper()
		wantErr(t, what, pd.Close(), syscall.EBUSY)
		r.ok(undo())
	}
	mr, err := pd.Register(make([]byte, 10), 0)
	r.ok(err)
	busy("MR", func() error { return pd.Deregister(mr) })
	wantErr(t, "twice", pd.Deregister(mr), syscall.EINVAL)
	wantErr(t, "zero", pd.Deregister(MR{}), syscall.EINVAL)
	wantErr(t, "foreign", pd.Deregister(MRFromKey(1, 2, 3)), syscall.EINVAL)
	wantErr(t, "another domain's", pd.Deregister(r.mr), syscall.EINVAL)
	a, err := pd.NewAH(AHAttr{GID: stubGID4})
	r.ok(err)
	busy("AH", a.Close)
	q, err := pd.NewQP(QPConfig{Type: UD, SendCQ: r.cq, RecvCQ: r.cq})
	r.ok(err)
	busy("QP", q.Close)
	pool, err := pd.AllocPool(3, 100)
	r.ok(err)
	busy("pool", pool.Close)
	r.ok(pd.Close())
	r.ok(pd.Close())
	_, err = pd.Register(make([]byte, 10), 0)
	wantErr(t, "closed PD", err, ErrClosed)
	r.ok(r.q.Close())
	r.ok(r.cq.Close())
	r.ok(r.cq.Close())
	_, err = r.cq.Poll(r.wc)
	wantErr(t, "closed CQ", err, ErrClosed)
}

func TestPool(t *testing.T) {
	r := newRig(t, rigConfig{})
	p, err := r.d.DefaultPD().AllocPool(5, 100)
	r.ok(err)
	if p.FrameBytes() != 128 || p.Frames() != 5 || p.Free() != 5 {
		t.Fatal(p.FrameBytes(), p.Frames(), p.Free())
	}
	seen := map[uint32]bool{}
	for i := range 5 {
		f, ok := p.Get()
		if !ok || seen[f] || int(f) != i {
			t.Fatal(f, ok)
		}
		seen[f] = true
		p.Bytes(f)[0] = byte(f)
		if s := p.SGE(f, 60); s.Off != f*128 || s.Len != 60 || p.Frame(s.Off+127) != f {
			t.Fatalf("%+v", s)
		}
	}
	if _, ok := p.Get(); ok {
		t.Fatal("a sixth frame")
	}
	if !p.Put(3) || p.Put(3) || p.Put(5) {
		t.Fatal("Put")
	}
	if f, ok := p.Get(); !ok || f != 3 {
		t.Fatal("the last one given back comes first")
	}
	_, err = r.q.Post([]SendWR{{Opcode: OpSend, SGEs: []SGE{p.SGE(3, 60)}}})
	r.ok(err)
	r.ok(p.Close())
	r.ok(p.Close())
	n, err := r.q.Post([]SendWR{{Opcode: OpSend, SGEs: []SGE{p.SGE(3, 60)}}})
	checkPost(t, n, err, 0, CauseKey, syscall.EINVAL)
	for _, c := range [][2]int{{0, 1}, {1, 0}, {-1, 5}, {1 << 30, 1 << 30}} {
		_, err = r.d.DefaultPD().AllocPool(c[0], c[1])
		wantErr(t, "pool", err, syscall.EINVAL)
	}
}

func TestFlowRules(t *testing.T) { // J-07
	r := newRig(t, rigConfig{caps: Caps{FlowPriorities: 8}})
	f, err := r.q.Attach(FlowRule{Priority: 7, Match: MatchDstMAC([6]byte{2})})
	r.ok(err)
	if len(r.s.flows) != 1 {
		t.Fatal(r.s.flows)
	}
	r.ok(f.Close())
	r.ok(f.Close())
	if len(r.s.flows) != 0 {
		t.Fatal(r.s.flows)
	}
	for id, rule := range map[string]FlowRule{
		"J-07":           {Priority: 8},
		"kind":           {Kind: 3},
		"match of all":   {Kind: FlowAll, Match: MatchDstMAC([6]byte{})},
		"version":        {Match: Match{IPVersion: 5}},
		"no version":     {Match: Match{SrcMask: [16]byte{1}}},
		"long IPv4 mask": {Match: Match{IPVersion: 4, DstMask: [16]byte{4: 1}}},
	} {
		_, err := r.q.Attach(rule)
		wantErr(t, id, err, syscall.EINVAL)
	}
	m := newRig(t, rigConfig{caps: Caps{FlowPriorities: 8, Profile: ProfileMLX5}})
	_, err = m.q.Attach(FlowRule{Priority: 8})
	wantErr(t, "J-07 mlx5", err, syscall.ENOMEM)
	f, err = r.q.Attach(FlowRule{Kind: FlowAll})
	r.ok(err)
	r.ok(r.q.Close())
	r.ok(f.Close())
}

// use calls everything there is, with whatever objects it gets.
func use(d *Device, pd *PD, cq *CQ, q *QP, p *Pool, a *AH, f *Flow, m *Image, po *Poller) {
	d.Caps()
	d.Backend()
	d.Counters()
	d.Progress(1)
	_ = d.Wait(0)
	_ = d.Err()
	d.NewPD()
	d.DefaultPD()
	_, _ = d.NewCQ(4)
	pd.Device()
	d.GIDs()
	_, _ = pd.ResolveAH(context.Background(), Dest{GID: stubGID4})
	_, _ = d.Resolve(context.Background(), Dest{GID: stubGID4})
	_, _ = pd.AHFromCompletion(nil, nil)
	_, _ = pd.DestFromCompletion(&Completion{}, make([]byte, 40))
	_ = q.AttachMulticast(GID{0: 0xff})
	_ = q.DetachMulticast(GID{0: 0xff})
	mr, _ := pd.Register([]byte{1}, 0)
	_ = pd.Deregister(mr)
	_, _ = pd.AllocPool(1, 1)
	_, _ = pd.NewAH(AHAttr{GID: stubGID4})
	_, _ = pd.NewQP(QPConfig{Type: RawPacket, SendCQ: cq, RecvCQ: cq})
	cq.CQN()
	cq.Entries()
	_, _ = cq.Poll(make([]Completion, 2))
	q.QPN()
	q.Type()
	q.Cap()
	q.PD()
	q.State()
	q.Attr()
	q.Outstanding()
	_ = q.Modify(StateInit, QPAttr{}, 0)
	_ = q.MoveTo(StateRTS, QPAttr{})
	_, _ = q.Post([]SendWR{{}, {Opcode: OpTSO}, {AH: a}})
	_ = q.PostAll([]SendWR{{}})
	_, _ = q.PostRecv([]RecvWR{{}})
	_ = q.PostRecv1(1, SGE{Len: 1})
	_ = q.QueueRecv(1, SGE{})
	q.PublishRecv()
	_, _, _ = q.Reserve(1)
	q.Commit(1, 1)
	_ = q.Publish()
	q.Abort()
	_, _ = q.Attach(FlowRule{})
	_, _ = q.NewImage(ImageConfig{Frame: make([]byte, 60)})
	p.Get()
	p.Put(0)
	p.Bytes(0)
	p.SGE(0, 1)
	p.Frame(0)
	p.MR()
	p.Frames()
	p.FrameBytes()
	p.Free()
	a.Attr()
	m.Slots()
	m.Step()
	m.Slot(5)
	m.Spans()
	m.Frame(0)
	m.SetLen(0, 60)
	m.Rearm(1)
	_ = m.Publish()
	_ = po.Add(cq, func([]Completion) {})
	po.Stalls()
	po.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = po.Run(ctx)
	_, _ = NewPoller(d, PollerConfig{})
	_ = f.Close()
	_ = m.Close()
	_ = p.Close()
	_ = a.Close()
	_ = q.Close()
	_ = cq.Close()
	_ = pd.Close()
	_ = d.Close()
}

// useShared is use for what queues share: channels, SRQs, receive hashes, and
// the events of all.
func useShared(d *Device, pd *PD, cq *CQ, ch *Channel, s *SRQ, h *RSS) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	d.GIDs()
	d.TryEvent()
	_, _ = d.NextEvent(ended)
	_, _ = d.NewChannel()
	_, _ = d.NewCQOn(ch, 4)
	_, _ = pd.NewSRQ(SRQConfig{MaxWR: 4})
	_, _ = pd.NewRSS(RSSConfig{Table: []*QP{nil}})
	_, _ = pd.ResolveAH(ended, Dest{GID: stubGID4})
	_ = cq.Arm(false)
	_ = cq.Ack(1)
	ch.FD()
	_, _ = ch.TryGet()
	_, _ = ch.Get(ended)
	s.SRQN()
	s.Cap()
	s.Outstanding()
	s.Limit()
	_, _ = s.Post([]RecvWR{{}})
	_ = s.Post1(1, SGE{Len: 1})
	_ = s.SetLimit(1)
	_ = s.Modify(SRQAttr{}, SRQMaxWR)
	_, _ = h.Attach(FlowRule{Kind: FlowAll})
	_ = ch.Close()
	_ = s.Close()
	_ = h.Close()
}

func TestMisuseDoesNotCrash(t *testing.T) {
	use(nil, nil, nil, nil, nil, nil, nil, nil, nil)
	useShared(nil, nil, nil, nil, nil, nil)
	useShared(&Device{}, &PD{}, &CQ{}, &Channel{}, &SRQ{}, &RSS{})
	use(&Device{}, &PD{}, &CQ{}, &QP{}, &Pool{}, &AH{}, &Flow{}, &Image{}, &Poller{})
	var wc *Completion
	if wc.Err() != nil {
		t.Fatal("nil completion")
	}
	_, err := NewDevice(nil)
	wantErr(t, "no backend", err, syscall.EINVAL)
	_, err = NewDevice(newStub(Caps{MinInline: 5}))
	wantErr(t, "inline minimum", err, syscall.EINVAL)
	_, err = NewDevice(newStub(Caps{Profile: 9}))
	wantErr(t, "profile", err, syscall.EINVAL)
}

func TestClosedObjectsDoNotCrash(t *testing.T) {
	for _, close := range []string{"nothing", "qp", "all but the device", "device"} {
		t.Run(close, func(t *testing.T) {
			r := newRig(t, rigConfig{caps: Caps{Features: FeatureSRQ}})
			pd := r.d.DefaultPD()
			p, err := pd.AllocPool(4, 64)
			r.ok(err)
			f, err := r.q.Attach(FlowRule{Kind: FlowAll})
			r.ok(err)
			m, err := r.q.NewImage(ImageConfig{Frame: make([]byte, 60)})
			r.ok(err)
			po, err := NewPoller(r.d, PollerConfig{})
			r.ok(err)
			a := r.ah()
			ch, err := r.d.NewChannel()
			r.ok(err)
			s, err := pd.NewSRQ(SRQConfig{MaxWR: 4})
			r.ok(err)
			switch close {
			case "device":
				r.ok(r.d.Close())
			case "qp":
				r.ok(r.q.Close())
			case "all but the device":
				r.ok(m.Close())
				r.ok(r.q.Close())
				r.ok(r.cq.Close())
				r.ok(p.Close())
				r.ok(a.Close())
				r.ok(ch.Close())
				r.ok(s.Close())
				r.ok(pd.Deregister(r.mr))
				r.ok(pd.Close())
			}
			useShared(r.d, pd, r.cq, ch, s, nil)
			use(r.d, pd, r.cq, r.q, p, a, f, m, po)
			useShared(r.d, pd, r.cq, ch, s, nil)
			use(r.d, pd, r.cq, r.q, p, a, f, m, po)
			if n, err := r.q.Post([]SendWR{{}}); n != 0 || !errors.Is(err, ErrClosed) || !errors.Is(err, syscall.EINVAL) {
				t.Fatal(n, err)
			}
		})
	}
}

func TestFailingBackend(t *testing.T) {
	r := newRig(t, rigConfig{})
	pd := r.d.DefaultPD()
	fail := func() { r.s.fail = syscall.EIO }
	fail()
	_, err := pd.Register(make([]byte, 5), 0)
	wantErr(t, "Register", err, syscall.EIO)
	fail()
	_, err = pd.AllocPool(1, 1)
	wantErr(t, "AllocPool", err, syscall.EIO)
	fail()
	_, err = r.d.NewCQ(1)
	wantErr(t, "NewCQ", err, syscall.EIO)
	fail()
	_, err = pd.NewQP(QPConfig{Type: UD, SendCQ: r.cq, RecvCQ: r.cq})
	wantErr(t, "NewQP", err, syscall.EIO)
	fail()
	_, err = r.q.Attach(FlowRule{})
	wantErr(t, "Attach", err, syscall.EIO)
}

func TestNames(t *testing.T) {
	for want, got := range map[string]interface{ String() string }{
		"RTS": StateRTS, "state 9": QPState(9), "UD": UD, "RAW_PACKET": RawPacket, "strict": ProfileStrict,
		"no_wqe": DropNoWQE, "no_peer": DropNoPeer, "all": FlowAll, "park": IdlePark, "LOC_PROT_ERR": StatusLocProt,
		"status 3": Status(3), "queue full": CauseFull,
	} {
		if got.String() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	for c := CauseNone; c < numCauses; c++ {
		if c.String() == "" {
			t.Errorf("cause %d has no text", c)
		}
	}
	for r := DropReason(0); r < NumDropReasons; r++ {
		if r.String() == "" {
			t.Errorf("reason %d has no name", r)
		}
	}
	c := Counters{}
	c.Drops[DropRunt], c.Drops[DropQKey] = 3, 4
	if c.Dropped() != 7 || c.Drop(DropRunt) != 3 || c.Drop(99) != 0 {
		t.Fatal(c)
	}
}
